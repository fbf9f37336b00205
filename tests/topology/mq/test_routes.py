"""Routes over several queue managers: where channels and clusters lead."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.mq_notation import read_topology
from tests.topology.mq.routes import End, PutMessage, follow_route

from redrive.topology.mq.network import MqNetwork
from redrive.topology.mq.reader import read_mqsc
from redrive.topology.mq.results import OpenRequest, Persistence


def manager(name: str, script: str) -> Any:
    result = read_mqsc(script, queue_manager=name, file=f"{name}.mqsc")
    assert result.diagnostics == ()
    return result.queue_manager


def test_a_transmission_queue_without_a_channel_keeps_its_messages() -> None:
    network = read_topology(["QM1: DEF QL(QM2) USAGE(XMITQ)"]).network()
    put = PutMessage(persistence=Persistence.PERSISTENT)
    route = follow_route(network, "QM1", OpenRequest(queue="Q", queue_manager="QM2"), put)
    assert (route.end, str(route.final)) == (End.HELD, "QM2@QM1")
    assert "no channel" in route.detail


# Channels and clusters from scripts

SENDER = "DEF QL(X) USAGE(XMITQ)\nDEF CHL(A.B) CHLTYPE(SDR) XMITQ(X) CONNAME('b(1)')\n"


def test_sender_and_receiver_find_each_other_by_name() -> None:
    network = MqNetwork(
        [
            manager("QM1", SENDER + "DEF QR(QM2) RQMNAME(QM2) XMITQ(X)"),
            manager("QM2", "DEF QL(Q)\nDEF CHL(A.B) CHLTYPE(RCVR)"),
            manager("QM3", "DEF CHL(OTHER) CHLTYPE(RCVR)"),
        ]
    )
    route = follow_route(network, "QM1", OpenRequest(queue="Q", queue_manager="QM2"))
    assert str(route.final) == "Q@QM2"
    assert network.reached() == {"QM2"}


@pytest.mark.parametrize(
    ("receivers", "queue", "expected"),
    [
        (["QM2", "QM3"], "QM3", "QM3"),
        (["QM2", "QM3"], "X", None),
        ([], "QM3", None),
        ([], "X", None),
        (["QM2"], "QM3", "QM2"),
    ],
)
def test_where_a_channel_leads_when_names_alone_do_not_tell(
    receivers: list[str], queue: str, expected: str | None
) -> None:
    sender = f"DEF QL({queue}) USAGE(XMITQ)\nDEF CHL(A.B) CHLTYPE(SDR) XMITQ({queue}) CONNAME(c)"
    others = [
        manager(name, "DEF CHL(A.B) CHLTYPE(RCVR)" if name in receivers else "")
        for name in ("QM2", "QM3")
    ]
    link = MqNetwork([manager("QM1", sender), *others]).link(queue=queue, queue_manager="QM1")
    assert (link and link.queue_manager) == expected


CLUSTER = "DEF CHL(TO.{0}) CHLTYPE(CLUSRCVR) CLUSTER(C) CONNAME('x(1)') {1}\n"


def clustered(name: str, script: str = "", channel: str = "") -> Any:
    return manager(name, CLUSTER.format(name, channel) + script)


def finals(*managers: Any, manager: str = "") -> set[str]:
    """Where messages for the queue I come to lie, whichever instance each of them gets."""
    network = MqNetwork(managers)
    requests = [OpenRequest(queue="I", queue_manager=manager, seed=seed) for seed in range(10)]
    return {str(follow_route(network, "QM1", request).final) for request in requests}


def test_members_of_a_cluster_know_each_others_queues() -> None:
    network = MqNetwork(
        [
            clustered("QM1"),
            clustered("QM2", "DEF QL(I) CLUSTER(C)\nDEF QL(PRIVATE)\nDEF QL(O) CLUSTER(OTHER)"),
            manager("QM3", "DEF QL(UNJOINED) CLUSTER(C)"),
        ]
    )
    ends = {
        queue: follow_route(network, "QM1", OpenRequest(queue=queue)).end
        for queue in ("I", "PRIVATE", "O", "UNJOINED")
    }
    refused = End.REFUSED
    assert ends == {"I": End.QUEUE, "PRIVATE": refused, "O": refused, "UNJOINED": refused}
    outsider = follow_route(network, "QM3", OpenRequest(queue="I"))
    assert outsider.end is refused
    assert network.reached() == {"QM1", "QM2"}


@pytest.mark.parametrize("attribute", ["CLWLRANK(1)", "CLWLPRTY(1)", "NETPRTY(1)"])
def test_attributes_of_the_cluster_channel_decide(attribute: str) -> None:
    queue = "DEF QL(I) CLUSTER(C)"
    better = clustered("QM3", queue, attribute)
    assert finals(clustered("QM1"), clustered("QM2", queue), better) == {"I@QM3"}


def test_a_suspended_manager_is_set_aside() -> None:
    """SUSPEND QMGR in a script counts until RESUME QMGR."""
    suspended = "DEF QL(I) CLUSTER(C)\nSUSPEND QMGR CLUSTER(C)"
    other = clustered("QM3", "DEF QL(I) CLUSTER(C)")
    assert finals(clustered("QM1"), clustered("QM2", suspended), other) == {"I@QM3"}


def test_clusters_may_be_named_by_a_namelist() -> None:
    script = (
        "DEF NL(BOTH) NAMES(C, D)\nDEF QL(I) CLUSNL(BOTH)\n"
        "DEF CHL(TO.QM2) CHLTYPE(CLUSRCVR) CLUSNL(BOTH)"
    )
    assert finals(clustered("QM1"), manager("QM2", script)) == {"I@QM2"}


def test_a_clustered_queue_manager_alias_leads_to_its_host() -> None:
    host = "DEF QR(VIRTUAL) RQMNAME(QM2) CLUSTER(C)\nDEF QL(Q)"
    network = MqNetwork([clustered("QM1"), clustered("QM2", host)])
    route = follow_route(network, "QM1", OpenRequest(queue="Q", queue_manager="VIRTUAL"))
    assert str(route.final) == "Q@QM2"
    assert [hop.to for hop in route.hops] == ["QM2"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", "SYSTEM.CLUSTER.TRANSMIT.QUEUE"),
        ("ALTER QMGR DEFCLXQ(CHANNEL)", "SYSTEM.CLUSTER.TRANSMIT.TO.QM2"),
        ("DEF QL(OWN) USAGE(XMITQ) CLCHNAME(TO.QM2)", "OWN"),
        ("DEF QL(ALL) USAGE(XMITQ) CLCHNAME(*)\nDEF QL(TO) USAGE(XMITQ) CLCHNAME('TO.*')", "TO"),
        ("DEF QL(OTHER) USAGE(XMITQ) CLCHNAME(TO.QM3)", "SYSTEM.CLUSTER.TRANSMIT.QUEUE"),
    ],
)
def test_which_cluster_transmission_queue_is_used(script: str, expected: str) -> None:
    """CLCHNAME, the most specific first, then DEFCLXQ, then the common one."""
    network = MqNetwork([clustered("QM1", script), clustered("QM2", "DEF QL(I) CLUSTER(C)")])
    route = follow_route(network, "QM1", OpenRequest(queue="I"))
    assert [hop.transmission_queue for hop in route.hops] == [expected]
    assert str(route.final) == "I@QM2"


def test_what_came_over_a_cluster_stays_at_the_receiver() -> None:
    queue = "DEF QL(I) CLUSTER(C) CLWLUSEQ(ANY)"
    hub = f"{queue}\nDEF QR(ANY) CLUSTER(C)"
    managers = clustered("QM1"), clustered("QM2", hub), clustered("QM3", queue)
    assert finals(*managers, manager="ANY") == {"I@QM2"}

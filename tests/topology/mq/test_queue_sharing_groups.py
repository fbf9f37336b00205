"""Queue-sharing groups of scripts: one queue for all members (IBM MQ, "Shared queues and
queue-sharing groups"), and ways between them without channels ("Intra-group queuing")."""

from __future__ import annotations

import pytest

from redrive.topology.bindings import Bindings, QueueBinding, QueueManagerBinding
from redrive.topology.files import check_together
from redrive.topology.layout import Topology, topics_of
from redrive.topology.mq.network import MqNetwork
from redrive.topology.mq.reader import read_mqsc
from redrive.topology.put import Refusal
from redrive.topology.receiving import resolver_of

SHARED = "DEF QL(IN) QSGDISP(SHARED)\n"


def network(first: str, second: str) -> MqNetwork:
    """Two queue managers, each with a queue OWN."""
    scripts = {"QM1": first, "QM2": second}
    return MqNetwork(
        read_mqsc(f"DEF QL(OWN)\n{script}", queue_manager=name).queue_manager
        for name, script in scripts.items()
    )


MEMBERS = network(f"ALTER QMGR QSGNAME(SQ1) IGQ(ENABLED)\n{SHARED}", "ALTER QMGR QSGNAME(SQ1)")
TWICE = network(
    f"ALTER QMGR QSGNAME(SQ1)\n{SHARED}DEF QL(IN) USAGE(XMITQ)\n", "ALTER QMGR QSGNAME(SQ1)"
)
STRANGERS = network(f"ALTER QMGR QSGNAME(SQ1)\n{SHARED}", "ALTER QMGR QSGNAME(SQ2)")


@pytest.mark.parametrize(
    ("known", "at", "names", "expected"),
    [
        (MEMBERS, "QM1", ("", "IN"), "SQ1--IN"),
        (MEMBERS, "QM2", ("", "IN"), "SQ1--IN"),
        (MEMBERS, "QM1", ("QM2", "IN"), "SQ1--IN"),
        (MEMBERS, "QM1", ("", "OWN"), "QM1--OWN"),
        (MEMBERS, "QM1", ("QM2", "OWN"), "QM1--SYSTEM.QSG.TRANSMIT.QUEUE--redrive-to-QM2"),
        (MEMBERS, "QM2", ("QM1", "OWN"), "2087"),  # its IGQ is disabled
        (TWICE, "QM1", ("IN", "Q"), "QM1--IN"),
        (STRANGERS, "QM1", ("", "IN"), "SQ1--IN"),
        (STRANGERS, "QM2", ("", "IN"), "2085"),
        (STRANGERS, "QM1", ("QM2", "OWN"), "2087"),
    ],
)
def test_a_put_at_a_member_reaches_the_topic_of_the_group(
    known: MqNetwork, at: str, names: tuple[str, str], expected: str
) -> None:
    resolution = resolver_of(Topology(mq=known), at).resolve(queue_manager=names[0], queue=names[1])
    assert (
        str(resolution.reason) if isinstance(resolution, Refusal) else resolution.topic
    ) == expected


def test_a_shared_queue_has_one_topic_and_each_pair_of_members_a_way() -> None:
    topics = [topic.topic for topic in topics_of(Topology(mq=MEMBERS, bindings=Bindings()))]
    assert sorted(set(topics)) == [
        "QM1--OWN", "QM1--SYSTEM.QSG.TRANSMIT.QUEUE--redrive-to-QM2", "QM1--redrive-put",
        "QM2--OWN", "QM2--redrive-put", "SQ1--IN",
    ]  # fmt: skip


def test_bindings_name_the_group_of_a_shared_queue() -> None:
    def bound(name: str) -> Bindings:
        queues = {"IN": QueueBinding(topic="orders", consumer_group="billing")}
        return Bindings(queue_managers={name: QueueManagerBinding(queues=queues)})

    group = bound("SQ1")
    assert not [*check_together(Topology(mq=MEMBERS, bindings=group))]
    resolution = resolver_of(Topology(mq=MEMBERS, bindings=group), "QM2").resolve(
        queue_manager="", queue="IN"
    )
    assert not isinstance(resolution, Refusal)
    assert (resolution.topic, resolution.limits.consumer_group) == ("orders", "billing")


def test_a_shared_queue_is_disabled_for_all_members() -> None:
    for known in (MEMBERS.with_put_enabled({(name, "IN"): False}) for name in ("QM1", "QM2")):
        shared = [manager.shared_queues["IN"] for manager in known.queue_managers.values()]
        assert [queue.put_enabled for queue in shared] == [False, False]


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        ("DEF QL(A) USAGE(XMITQ) CLCHNAME('*.QM2')", "A"),
        ("DEF QL(A) USAGE(XMITQ) CLCHNAME('*')\nDEF QL(B) USAGE(XMITQ) CLCHNAME('T*2')", "B"),
        ("DEF QL(A) USAGE(XMITQ) CLCHNAME('T*O*Q*')\nDEF QL(B) USAGE(XMITQ) CLCHNAME('*.QM2')",
         "B"),
    ],
)  # fmt: skip
def test_the_most_specific_pattern_of_channel_names_has_the_message(
    queues: str, expected: str
) -> None:
    receiver = "DEF CHL(TO.QM2) CHLTYPE(CLUSRCVR) CLUSTER(C) CONNAME('b')\nDEF QL(Q) CLUSTER(C)"
    sender = "DEF CHL(TO.QM1) CHLTYPE(CLUSRCVR) CLUSTER(C) CONNAME('a')\n"
    known = network(f"{sender}{queues}", receiver)
    resolution = resolver_of(Topology(mq=known), "QM1").resolve(queue_manager="", queue="Q")
    assert not isinstance(resolution, Refusal)
    assert resolution.topic == f"QM1--{expected}--redrive-to-QM2"

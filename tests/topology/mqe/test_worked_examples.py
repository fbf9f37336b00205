"""The worked examples E1 to E19 of the resolution specification A.7."""

from __future__ import annotations

import pytest
from tests.topology.mqe.notation import read_topology

from redrive.topology.mqe import (
    FollowUp,
    MqeResolver,
    Pull,
    Push,
    Resolution,
    TriggerTransmission,
)
from redrive.topology.names import Names

E5 = (
    "LocalQM: RQD(TargetQueue@TargetQM)",
    "LocalQM: CONN(TargetQM)",
    "TargetQM: LQ(TargetQueue) ALIAS(QueueAlias)",
)
E8 = (*E5, "LocalQM: SAF(SafQueue@TargetQM) QME(TargetQM)")
E10 = (
    "LocalQM: RQD(TargetQueue@TargetQM)",
    "LocalQM: CONN(TargetQM) VIA(RemoteQM)",
    "LocalQM: CONN(RemoteQM)",
    "RemoteQM: CONN(TargetQM)",
    "TargetQM: LQ(TargetQueue)",
)
VIA_STEPS = (
    "LocalQM exact RQD TargetQueue@TargetQM sync",
    "LocalQM conn TargetQM via RemoteQM",
    "LocalQM conn RemoteQM direct",
)
E14 = ("SERVER23QM: CONN(SERVICEXQM) NULL", "SERVER23QM: LQ(SERVICEXQ)")
E17 = (
    "MQE2: RQD(MY_Q_ASYNC@MQE1) MODE(async)",
    "MQE2: RQD(MY_Q_SYNC@MQE1) MODE(sync)",
    "MQE2: CONN(MQE1)",
    "MQE1: LQ(MY_Q_ASYNC) ALIAS(MY_Q_SYNC)",
)


def way(
    topology: tuple[str, ...], at: str, to: str, then: FollowUp | None = None
) -> tuple[list[str], str, Resolution]:
    """Steps and end of a put to ``queue@manager``, as text, and the resolution itself."""
    queue, _, queue_manager = to.partition("@")
    resolver = MqeResolver(read_topology(topology).network)
    resolution = resolver.resolve(at, Names(queue=queue, queue_manager=queue_manager))
    if then is not None:
        resolution = resolver.follow(resolution, then)
    return [str(step) for step in resolution.steps], str(resolution.end), resolution


@pytest.mark.parametrize(
    ("topology", "at", "to", "then", "steps", "end"),
    [
        pytest.param(
            ("LocalQM: LQ(LocalQueue)",),
            "LocalQM",
            "LocalQueue@LocalQM",
            None,
            ["LocalQM exact LQ LocalQueue"],
            "LocalQueue@LocalQM",
            id="E1",
        ),
        pytest.param(
            ("LocalQM: LQ(LocalQueue) ALIAS(LocalQueueAlias)",),
            "LocalQM",
            "LocalQueueAlias@LocalQM",
            None,
            ["LocalQM queue-alias LQ LocalQueue"],
            "LocalQueue@LocalQM",
            id="E2",
        ),
        pytest.param(
            ("LocalQM: QMALIAS(AliasQM) IS(LocalQM)", "LocalQM: LQ(LocalQueue)"),
            "LocalQM",
            "LocalQueue@AliasQM",
            None,
            ["LocalQM qm-alias AliasQM->LocalQM", "LocalQM exact LQ LocalQueue"],
            "LocalQueue@LocalQM",
            id="E3",
        ),
        pytest.param(
            (
                "LocalQM: QMALIAS(AliasQM) IS(LocalQM)",
                "LocalQM: LQ(LocalQueue) ALIAS(LocalQueueAlias)",
            ),
            "LocalQM",
            "LocalQueueAlias@AliasQM",
            None,
            ["LocalQM qm-alias AliasQM->LocalQM", "LocalQM queue-alias LQ LocalQueue"],
            "LocalQueue@LocalQM",
            id="E4",
        ),
        pytest.param(
            E5,
            "LocalQM",
            "TargetQueue@TargetQM",
            None,
            [
                "LocalQM exact RQD TargetQueue@TargetQM sync",
                "LocalQM conn TargetQM direct",
                "TargetQM exact LQ TargetQueue",
            ],
            "TargetQueue@TargetQM",
            id="E5",
        ),
        pytest.param(
            ("LocalQM: RQD(QueueAlias@TargetQM)", *E5[1:]),
            "LocalQM",
            "QueueAlias@TargetQM",
            None,
            [
                "LocalQM exact RQD QueueAlias@TargetQM sync",
                "LocalQM conn TargetQM direct",
                "TargetQM queue-alias LQ TargetQueue",
            ],
            "TargetQueue@TargetQM",
            id="E6",
        ),
        pytest.param(
            E8[1:],
            "LocalQM",
            "TargetQueue@TargetQM",
            Push(),
            [
                "LocalQM s&f SafQueue (stores TargetQueue@TargetQM)",
                "LocalQM conn TargetQM direct",
                "TargetQM exact LQ TargetQueue",
            ],
            "TargetQueue@TargetQM",
            id="E7",
        ),
        pytest.param(
            E8,
            "LocalQM",
            "TargetQueue@TargetQM",
            None,
            [
                "LocalQM exact RQD TargetQueue@TargetQM sync",
                "LocalQM conn TargetQM direct",
                "TargetQM exact LQ TargetQueue",
            ],
            "TargetQueue@TargetQM",
            id="E8-definition",
        ),
        pytest.param(
            E8,
            "LocalQM",
            "QueueAlias@TargetQM",
            Push(),
            [
                "LocalQM s&f SafQueue (stores QueueAlias@TargetQM)",
                "LocalQM conn TargetQM direct",
                "TargetQM queue-alias LQ TargetQueue",
            ],
            "TargetQueue@TargetQM",
            id="E8-store-and-forward",
        ),
        pytest.param(
            (
                "LocalQM: SAF(SaFQueue@RemoteQM) QME(TargetQM)",
                "LocalQM: CONN(RemoteQM)",
                "RemoteQM: SAF(SaFQueue@TargetQM) QME(TargetQM)",
                "RemoteQM: CONN(TargetQM)",
                "TargetQM: LQ(TargetQueue)",
            ),
            "LocalQM",
            "TargetQueue@TargetQM",
            Push(),
            [
                "LocalQM s&f SaFQueue (stores TargetQueue@TargetQM)",
                "LocalQM conn RemoteQM direct",
                "RemoteQM s&f SaFQueue (stores TargetQueue@TargetQM)",
                "RemoteQM conn TargetQM direct",
                "TargetQM exact LQ TargetQueue",
            ],
            "TargetQueue@TargetQM",
            id="E9",
        ),
        pytest.param(
            (*E10, "RemoteQM: RQD(TargetQueue@TargetQM)"),
            "LocalQM",
            "TargetQueue@TargetQM",
            None,
            [
                *VIA_STEPS,
                "RemoteQM exact RQD TargetQueue@TargetQM sync",
                "RemoteQM conn TargetQM direct",
                "TargetQM exact LQ TargetQueue",
            ],
            "TargetQueue@TargetQM",
            id="E10-synchronous",
        ),
        pytest.param(
            (*E10, "RemoteQM: RQD(TargetQueue@TargetQM) MODE(async)"),
            "LocalQM",
            "TargetQueue@TargetQM",
            TriggerTransmission("RemoteQM"),
            [
                *VIA_STEPS,
                "RemoteQM exact RQD TargetQueue@TargetQM async",
                "RemoteQM conn TargetQM direct",
                "TargetQM exact LQ TargetQueue",
            ],
            "TargetQueue@TargetQM",
            id="E10-asynchronous",
        ),
        pytest.param(
            (*E10, "RemoteQM: SAF(Safe@TargetQM) QME(TargetQM)"),
            "LocalQM",
            "TargetQueue@TargetQM",
            Push(),
            [
                *VIA_STEPS,
                "RemoteQM s&f Safe (stores TargetQueue@TargetQM)",
                "RemoteQM conn TargetQM direct",
                "TargetQM exact LQ TargetQueue",
            ],
            "TargetQueue@TargetQM",
            id="E10-store-and-forward",
        ),
        pytest.param(
            (
                "RemoteQM: SAF(Store@Nowhere) QME(LocalQM)",
                "LocalQM: HSQ(homeServerQueue@RemoteQM)",
                "LocalQM: CONN(RemoteQM)",
                "LocalQM: LQ(TargetQueue)",
            ),
            "RemoteQM",
            "TargetQueue@LocalQM",
            Pull("LocalQM"),
            [
                "RemoteQM s&f Store (stores TargetQueue@LocalQM)",
                "LocalQM pull from RemoteQM",
                "LocalQM exact LQ TargetQueue",
            ],
            "TargetQueue@LocalQM",
            id="E11",
        ),
        pytest.param(
            (
                "qm2: SAF(SFQ@Nowhere) QME(qm3)",
                "qm3: HSQ(SFQ@qm2)",
                "qm3: CONN(qm2)",
                "qm3: LQ(Q)",
            ),
            "qm2",
            "Q@qm3",
            Pull("qm3"),
            ["qm2 s&f SFQ (stores Q@qm3)", "qm3 pull from qm2", "qm3 exact LQ Q"],
            "Q@qm3",
            id="E12",
        ),
        pytest.param(
            (
                "MQeEarthQM: SAF(TO.HANDHELDS@Nowhere) QME(MQeMoonQM)",
                "MQeMoonQM: HSQ(TO.HANDHELDS@MQeEarthQM)",
                "MQeMoonQM: CONN(MQeEarthQM)",
                "MQeMoonQM: LQ(Q)",
            ),
            "MQeEarthQM",
            "Q@MQeMoonQM",
            TriggerTransmission("MQeMoonQM"),
            [
                "MQeEarthQM s&f TO.HANDHELDS (stores Q@MQeMoonQM)",
                "MQeMoonQM pull from MQeEarthQM",
                "MQeMoonQM exact LQ Q",
            ],
            "Q@MQeMoonQM",
            id="E13",
        ),
        pytest.param(
            E14,
            "SERVER23QM",
            "SERVICEXQ@SERVICEXQM",
            None,
            ["SERVER23QM qm-alias SERVICEXQM->SERVER23QM", "SERVER23QM exact LQ SERVICEXQ"],
            "SERVICEXQ@SERVER23QM",
            id="E14-alias",
        ),
        pytest.param(
            E14,
            "SERVER23QM",
            "SERVICEXQ@SERVER23QM",
            None,
            ["SERVER23QM exact LQ SERVICEXQ"],
            "SERVICEXQ@SERVER23QM",
            id="E14-own-name",
        ),
        pytest.param(
            (
                "MOBILE0058QM: CONN(SERVICEXQM) VIA(SERVER23QM)",
                "MOBILE0058QM: CONN(SERVER23QM)",
                "MOBILE0058QM: RQD(SERVICEXQ@SERVICEXQM)",
                *E14,
            ),
            "MOBILE0058QM",
            "SERVICEXQ@SERVICEXQM",
            None,
            [
                "MOBILE0058QM exact RQD SERVICEXQ@SERVICEXQM sync",
                "MOBILE0058QM conn SERVICEXQM via SERVER23QM",
                "MOBILE0058QM conn SERVER23QM direct",
                "SERVER23QM qm-alias SERVICEXQM->SERVER23QM",
                "SERVER23QM exact LQ SERVICEXQ",
            ],
            "SERVICEXQ@SERVER23QM",
            id="E16",
        ),
        pytest.param(
            ("LocalQM: LQ(Q1) ALIAS(Q2)",),
            "LocalQM",
            "Q2@LocalQM",
            None,
            ["LocalQM queue-alias LQ Q1"],
            "Q1@LocalQM",
            id="E17-merge",
        ),
        pytest.param(
            ("LocalQM: LQ(Q2) ALIAS(Q1)",),
            "LocalQM",
            "Q1@LocalQM",
            None,
            ["LocalQM queue-alias LQ Q2"],
            "Q2@LocalQM",
            id="E17-upgrade",
        ),
        pytest.param(
            E17,
            "MQE2",
            "MY_Q_SYNC@MQE1",
            None,
            [
                "MQE2 exact RQD MY_Q_SYNC@MQE1 sync",
                "MQE2 conn MQE1 direct",
                "MQE1 queue-alias LQ MY_Q_ASYNC",
            ],
            "MY_Q_ASYNC@MQE1",
            id="E17-synchronous",
        ),
        pytest.param(
            E17,
            "MQE2",
            "MY_Q_ASYNC@MQE1",
            None,
            ["MQE2 exact RQD MY_Q_ASYNC@MQE1 async"],
            "RQD MY_Q_ASYNC@MQE1 on MQE2",
            id="E17-asynchronous",
        ),
        pytest.param(
            (
                "MQeMoonQM: CONN(MQSaturnQM) VIA(MQeEarthQM)",
                "MQeMoonQM: CONN(MQeEarthQM)",
                "MQeMoonQM: RQD(MQSaturnQ@MQSaturnQM)",
                "MQeEarthQM: BRIDGE(MQSaturnQ@MQSaturnQM)",
            ),
            "MQeMoonQM",
            "MQSaturnQ@MQSaturnQM",
            None,
            [
                "MQeMoonQM exact RQD MQSaturnQ@MQSaturnQM sync",
                "MQeMoonQM conn MQSaturnQM via MQeEarthQM",
                "MQeMoonQM conn MQeEarthQM direct",
                "MQeEarthQM exact BRIDGE MQSaturnQ@MQSaturnQM",
            ],
            "MQSaturnQ@MQSaturnQM (over the bridge)",
            id="E18",
        ),
        pytest.param(
            (
                "heirQM: QMALIAS(oldQM) IS(heirQM)",
                "heirQM: LQ(Q)",
                "senderQM: RQD(Q@oldQM)",
                "senderQM: CONN(oldQM)",
            ),
            "senderQM",
            "Q@oldQM",
            None,
            [
                "senderQM exact RQD Q@oldQM sync",
                "senderQM conn oldQM direct",
                "heirQM qm-alias oldQM->heirQM",
                "heirQM exact LQ Q",
            ],
            "Q@heirQM",
            id="E19",
        ),
    ],
)
def test_worked_example(
    *,
    topology: tuple[str, ...],
    at: str,
    to: str,
    then: FollowUp | None,
    steps: list[str],
    end: str,
) -> None:
    """The put goes the way that the vendor's example describes, step by step."""
    taken, ended, _ = way(topology, at, to, then)
    assert taken == steps
    assert ended == end


@pytest.mark.parametrize("server", ["SERVER23QM", "SERVER24QM"])
def test_e15_traffic_follows_an_alias_that_is_moved_to_another_connection(server: str) -> None:
    """E15: the same put goes to the server whose connection carries the alias."""
    topology = (
        *(
            f"MOBILE0058QM: CONN({name}) " + ("ALIAS(SERVICEXQM)" if name == server else "")
            for name in ("SERVER23QM", "SERVER24QM")
        ),
        "SERVER23QM: LQ(SERVICEXQ)",
        "SERVER24QM: LQ(SERVICEXQ)",
    )
    steps, end, resolution = way(topology, "MOBILE0058QM", "SERVICEXQ@SERVICEXQM")
    assert steps == [
        f"MOBILE0058QM qm-alias SERVICEXQM->{server}",
        f"MOBILE0058QM discovery creates RQD SERVICEXQ@{server} sync",
        f"MOBILE0058QM conn {server} direct",
        f"{server} exact LQ SERVICEXQ",
    ]
    assert end == f"SERVICEXQ@{server}"
    assert [one.names for one in resolution.discovered] == [
        Names(queue="SERVICEXQ", queue_manager=server)
    ]

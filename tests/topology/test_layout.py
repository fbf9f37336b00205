"""The topics of a topology, and whether their channels run from the start."""

from __future__ import annotations

from tests.topology.mqe import notation

from redrive.topology.files import read_topology
from redrive.topology.layout import QueueTopic, SourceText, Topology, topics_of
from redrive.topology.mq.network import MqNetwork
from redrive.topology.put import Destination
from redrive.topology.receiving import resolver_of

SENDER = b"""\
DEFINE QLOCAL(QM2) USAGE(XMITQ) GET(DISABLED)
DEFINE CHANNEL(A.B) CHLTYPE(SDR) XMITQ(QM2) CONNAME('b')
DEFINE CHANNEL(TO.1) CHLTYPE(CLUSRCVR) CLUSTER(C) CONNAME('a')
ALTER QLOCAL(SYSTEM.CLUSTER.TRANSMIT.QUEUE) GET(DISABLED)
ALTER QMGR DEADQ(SYSTEM.DEAD.LETTER.QUEUE)
"""
RECEIVER = b"""\
DEFINE CHANNEL(A.B) CHLTYPE(RCVR)
DEFINE CHANNEL(TO.2) CHLTYPE(CLUSRCVR) CLUSTER(C) CONNAME('b')
"""


def topics() -> dict[str, QueueTopic]:
    """Those of two managers."""
    files = [SourceText("QM1.mqsc", SENDER), SourceText("QM2.mqsc", RECEIVER)]
    topology = read_topology(files).topology
    assert topology is not None
    return {topic.topic: topic for topic in topics_of(topology)}


def test_a_transmission_queue_with_get_disabled_has_a_channel_that_does_not_run() -> None:
    held = [name for name, topic in topics().items() if not topic.is_running]
    assert held == ["QM1--QM2", "QM1--SYSTEM.CLUSTER.TRANSMIT.QUEUE--redrive-to-QM2"]


def test_the_dead_letter_queue_that_comes_with_a_manager_has_a_topic() -> None:
    """DEADQ names it without a DEFINE; others that come with a manager have none."""
    system = {topic.queue for topic in topics().values() if topic.queue.startswith("SYSTEM.")}
    assert system == {"SYSTEM.CLUSTER.TRANSMIT.QUEUE", "SYSTEM.DEAD.LETTER.QUEUE"}


def test_a_store_is_emptied_over_the_connection_that_its_alias_leads_to() -> None:
    """Whether it is pushed or pulled: an operator stops the alias or the connection."""
    network = notation.read_topology([
        "R: SAF(PULLED@Nowhere) QME(L)", "R: SAF(PUSHED@X) QME(T)", "R: CONN(T) ALIAS(X)",
        "L: HSQ(h@Y)", "L: CONN(R) ALIAS(Y)",
    ]).network  # fmt: skip
    topics = topics_of(Topology(mq=MqNetwork(()), mqe=network))
    ways = {topic.queue: (topic.channel, topic.via) for topic in topics if topic.channel[1]}
    assert ways == {
        "PULLED": (("L", "Y"), (("L", "R"),)),
        "PUSHED": (("R", "X"), (("R", "T"),)),
    }


def test_each_cluster_channel_to_a_manager_leads_over_its_own_transmission_queue() -> None:
    """Which of them a put takes is a matter of its seed."""
    receivers = [f"DEF CHL(TO.{n}) CHLTYPE(CLUSRCVR) CLUSTER(C{n}) CONNAME('a')" for n in (1, 2)]
    sender = "\n".join([*receivers, "DEF QL(X) USAGE(XMITQ) CLCHNAME(BY.2)"]).encode()
    receiver = "\n".join(receivers).replace("TO.", "BY.").encode()
    files = [SourceText("QM1.mqsc", sender), SourceText("QM2.mqsc", receiver)]
    topology = read_topology(files).topology
    assert topology is not None
    ways = {topic.topic for topic in topics_of(topology) if topic.to == "QM2"}
    answers = [
        resolver_of(topology, "QM1").resolve(queue="Q", queue_manager="QM2", seed=seed)
        for seed in range(20)
    ]
    assert {answer.topic for answer in answers if isinstance(answer, Destination)} == ways
    assert len(ways) == len(receivers)

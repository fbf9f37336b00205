"""The topics of a topology, and whether their channels run from the start."""

from __future__ import annotations

from tests.topology.mqe import notation

from redrive.topology.files import read_topology
from redrive.topology.layout import QueueTopic, SourceText, Topology, topics_of
from redrive.topology.mq.network import MqNetwork

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

"""The plan of ``redrive topology apply``: what is created, and what is only shown."""

from __future__ import annotations

from pathlib import Path

from redrive.operations.topics import FoundTopic, TopicState, plan_topics
from redrive.topology.files import read_topology
from redrive.topology.layout import SourceText, Topology

QM1 = b"""\
DEFINE QLOCAL(ORDERS) MAXMSGL(1000)
DEFINE QLOCAL(QM2) USAGE(XMITQ) MAXMSGL(5000)
DEFINE QALIAS(A) TARGET(ORDERS)
DEFINE CHANNEL(QM1.QM2) CHLTYPE(SDR) CONNAME('b') XMITQ(QM2)
ALTER QMGR MAXMSGL(5000)
"""
QM2 = b"DEFINE QLOCAL(PAY)\nDEFINE CHANNEL(QM1.QM2) CHLTYPE(RCVR)\n"
MOON = b"""\
kind: mqe
queue_managers:
  - name: MOON
    queues:
      - {kind: local, name: SMALL, maximum_message_size: 10}
      - {kind: local, name: LARGE}
"""
BINDINGS = b"kind: bindings\nqueue_managers: {QM2: {queues: {PAY: {topic: payments}}}}\n"


def topology_of(**files: bytes) -> Topology:
    result = read_topology(
        [SourceText(name.replace("_", "."), data) for name, data in files.items()]
    )
    assert result.topology is not None, result.diagnostics
    return result.topology


BOUND = topology_of(QM1_mqsc=QM1, QM2_mqsc=QM2, bindings_yaml=BINDINGS)


def test_every_topic_of_the_definitions_is_missing_on_an_empty_cluster() -> None:
    plan = plan_topics(topology_of(QM1_mqsc=QM1, QM2_mqsc=QM2), {}, partitions=2)
    purposes = {topic.topic: topic.purpose for topic in plan.missing}
    assert (
        purposes.items()
        >= {
            "QM1--redrive-put": "puts to QM1",
            "QM1--ORDERS": "queue ORDERS@QM1",
            "QM1--QM2": "transmission queue QM2@QM1, to QM2",
            "QM2--redrive-put": "puts to QM2",
            "QM2--PAY": "queue PAY@QM2",
        }.items()
    )
    assert "QM1--A" not in purposes
    assert {topic.partitions for topic in plan.missing} == {2}
    assert plan.problems == ()


def test_a_topic_takes_the_longest_body_with_its_headers_and_keeps_it() -> None:
    """MAXMSGL is of the queue, or of the manager for its intake; nothing is deleted by age."""
    plan = plan_topics(topology_of(QM1_mqsc=QM1, MOON_yaml=MOON), {}, partitions=1)
    settings = {topic.topic: topic.settings for topic in plan.missing}
    assert settings["QM1--ORDERS"] == {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "max.message.bytes": str(1000 + 65_536),
    }
    lengths = {
        topic: int(setting["max.message.bytes"]) - 65_536 for topic, setting in settings.items()
    }
    assert lengths["QM1--redrive-put"] == 5000
    assert lengths["QM1--QM2"] == 5000
    assert lengths["MOON--SMALL"] == 10
    assert lengths["MOON--LARGE"] == 64 * 1024 * 1024


def test_a_topic_that_would_lose_or_refuse_messages_differs() -> None:
    good = {"retention.ms": "-1", "max.message.bytes": "99999999"}
    bad = {"retention.ms": "604800000", "max.message.bytes": "1000"}
    existing = {"QM1--ORDERS": FoundTopic(3, bad), "QM1--QM2": FoundTopic(1, good)}
    plan = plan_topics(topology_of(QM1_mqsc=QM1, QM2_mqsc=QM2), existing, partitions=1)
    by_topic = {topic.topic: topic for topic in plan.topics}
    assert by_topic["QM1--QM2"].state is TopicState.EXISTS
    assert by_topic["QM1--ORDERS"].state is TopicState.DIFFERS
    assert by_topic["QM1--ORDERS"].partitions == 3
    assert by_topic["QM1--ORDERS"].differences == (
        "retention.ms is 604800000 instead of -1",
        "max.message.bytes is 1000, less than 66536",
    )
    assert not {"QM1--ORDERS", "QM1--QM2"} & {topic.topic for topic in plan.missing}


def test_topics_of_queues_that_are_gone_are_listed() -> None:
    names = ("QM1--OLD", "QM1--X--redrive-to-QM9", "QM9--OLD", "orders", "redrive-app-control")
    existing = {name: FoundTopic(1, {}) for name in names}
    plan = plan_topics(topology_of(QM1_mqsc=QM1, QM2_mqsc=QM2), existing, partitions=1)
    unknown = [topic.topic for topic in plan.topics if topic.state is TopicState.UNKNOWN]
    assert unknown == ["QM1--OLD", "QM1--X--redrive-to-QM9"]


def test_a_binding_to_a_missing_topic_is_a_problem_at_its_line() -> None:
    (problem,) = plan_topics(BOUND, {}, partitions=1).problems
    assert (problem.file, problem.line) == (str(Path("bindings.yaml")), 2)
    assert "PAY@QM2 is bound to topic payments" in problem.message
    assert plan_topics(BOUND, {"payments": FoundTopic(1, {})}, partitions=1).problems == ()


def test_a_binding_to_the_default_topic_says_nothing_about_who_creates_it() -> None:
    bindings = b"kind: bindings\nqueue_managers: {QM2: {queues: {PAY: {topic: QM2--PAY}}}}\n"
    plan = plan_topics(topology_of(QM2_mqsc=QM2, bindings_yaml=bindings), {}, partitions=1)
    assert plan.problems == ()
    assert "QM2--PAY" in {topic.topic for topic in plan.missing}

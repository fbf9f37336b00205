"""What ``redrive put`` finds out beforehand, with a cluster's answers instead of assumptions."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.engine.known_cluster import KnownCluster

from redrive.engine.commands import States
from redrive.engine.facts import MISSING, TopicFacts
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.operations import put_trace
from redrive.operations.network import Network
from redrive.operations.put import NewMessage
from redrive.operations.put_trace import ResolutionTrace
from redrive.topology.files import read_topology
from redrive.topology.layout import SourceText

SCRIPT = b"DEF QL(Q)\nDEF QL(DLQ)\nALTER QMGR DEADQ(DLQ)\n"


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Traces a put on QM1 to Q on a cluster with these facts of its topics."""

    def trace(**facts: TopicFacts) -> ResolutionTrace:
        topics = {f"QM1--{name}": facts_of_topic for name, facts_of_topic in facts.items()}
        cluster = cast("Cluster", None)
        monkeypatch.setattr(put_trace, "ClusterFacts", lambda _: KnownCluster(topics))
        topology = read_topology([SourceText("QM1.mqsc", SCRIPT)]).topology
        assert topology is not None
        network = Network(Connection(bootstrap_servers="nowhere:9092"), topology)
        tracer = put_trace.cluster_tracer(network, cluster)
        return tracer.trace("QM1", NewMessage(queue="Q"), b"body")

    return trace


def test_a_topic_that_the_cluster_lacks_is_told(traced: Any) -> None:
    trace = traced(Q=MISSING)
    assert (trace.end, trace.final) == ("on a dead-letter queue", "DLQ@QM1")
    assert (trace.problem.code, trace.assumed) == (2085, ())
    assert "redrive topology apply creates it" in trace.problem.detail


def test_a_record_that_the_topic_refuses_is_told(traced: Any) -> None:
    """The topic's limit counts beside MAXMSGL."""
    assert traced(Q=TopicFacts(max_message_bytes=3)).problem.code == 2030


def test_the_rights_of_who_puts_do_not_count(traced: Any) -> None:
    assert traced(Q=TopicFacts(may_write=False)).is_good


# What operators stopped

MQ = (
    SourceText(
        "QM1.mqsc",
        b"DEF QR(FAR) RNAME(Q) RQMNAME(QM2)\nDEF QL(QM2) USAGE(XMITQ)\n"
        b"DEF CHL(TO.B) CHLTYPE(SDR) CONNAME('b') XMITQ(QM2)\n",
    ),
    SourceText("QM2.mqsc", b"DEF QL(Q)\nDEF CHL(TO.B) CHLTYPE(RCVR)\n"),
)
MOONS = (
    SourceText(
        "moons.yaml",
        b"kind: mqe\nqueue_managers:\n"
        b"  - name: MOON\n    connections: [{kind: direct, name: SUN}]\n"
        b"    queues: [{kind: remote, name: LATER, queue_manager: SUN, mode: async}]\n"
        b"  - name: SUN\n    queues: [{kind: local, name: Q}, {kind: local, name: LATER}]\n",
    ),
)


@pytest.mark.parametrize(
    ("sources", "names", "channel", "end"),
    [
        (MQ, ("QM1", "FAR", ""), ("QM1", "TO.B"), "stays on a transmission queue"),
        (MOONS, ("MOON", "LATER", "SUN"), ("MOON", "SUN"), "stays on a transmission queue"),
        (MOONS, ("MOON", "Q", "SUN"), ("MOON", "SUN"), "remains"),
    ],
    ids=["a transmission queue", "an asynchronous queue", "discovery"],
)
def test_a_stopped_channel_is_foreseen(
    sources: tuple[SourceText, ...],
    names: tuple[str, str, str],
    channel: tuple[str, str],
    end: str,
) -> None:
    topology = read_topology(sources).topology
    assert topology is not None
    at, queue, queue_manager = names
    message = NewMessage(queue=queue, queue_manager=queue_manager)
    stopped = put_trace.assuming_tracer(topology, States(running={channel: False}))
    trace = stopped.trace(at, message)
    assert (trace.end, trace.is_good, trace.problem is not None) == (end, False, True)
    sentence = f"{trace.problem.detail} {trace.problem.advice}" if trace.problem else ""
    assert f"redrive channel start {' '.join(channel)}" in sentence
    running = put_trace.assuming_tracer(topology, States(running={channel: True}))
    assert running.trace(at, message).is_good

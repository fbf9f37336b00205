"""What ``redrive put`` finds out beforehand, with a cluster's answers instead of assumptions."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.engine.known_cluster import KnownCluster

from redrive.engine.facts import MISSING, TopicFacts
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.operations import put_trace
from redrive.operations.network import Network
from redrive.operations.put import NewMessage
from redrive.topology.files import SourceText, read_topology
from redrive.topology.trace import ResolutionTrace

SCRIPT = b"DEF QL(Q)\nDEF QL(DLQ)\nALTER QMGR DEADQ(DLQ)\n"


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Traces a put on QM1 to Q on a cluster with these facts of its topics."""

    def trace(**facts: TopicFacts) -> ResolutionTrace:
        topics = {f"QM1--{name}": one for name, one in facts.items()}
        cluster = cast("Cluster", None)
        monkeypatch.setattr(put_trace, "ClusterFacts", lambda _: KnownCluster(topics))
        topology = read_topology([SourceText("QM1.mqsc", SCRIPT)]).topology
        assert topology is not None
        network = Network(Connection(bootstrap_servers="nowhere:9092"), topology)
        tracer = put_trace.cluster_tracer(network, cluster)
        return tracer.trace("QM1", NewMessage(queue="Q"), b"body")

    return trace


def test_a_topic_that_the_cluster_lacks_is_told(traced: Any) -> None:
    """The queue is defined and was not created: the message would be a dead letter."""
    found = traced(Q=MISSING)
    assert (found.end, found.final) == ("on a dead-letter queue", "DLQ@QM1")
    assert (found.problem.code, found.assumed) == (2085, ())
    assert "redrive topology apply creates it" in found.problem.detail


def test_a_record_that_the_topic_refuses_is_told(traced: Any) -> None:
    """The topic's limit counts beside MAXMSGL."""
    assert traced(Q=TopicFacts(max_message_bytes=3)).problem.code == 2030


def test_the_rights_of_who_puts_do_not_count(traced: Any) -> None:
    """An application may write to the intake only; the job writes to the queue."""
    assert traced(Q=TopicFacts(may_write=False)).is_good

"""The seam to the job: destinations on topics."""

from __future__ import annotations

import pytest
from tests.conformance.mq_notation import read_topology

from redrive.topology.bindings import Bindings, QueueBinding, QueueManagerBinding
from redrive.topology.mq.network import Network
from redrive.topology.mq.resolver import MqResolver
from redrive.topology.put import Destination, Refusal, Resolver

LINES = (
    "QM1: DEF QL(ORDERS) MAXDEPTH(7)",
    "QM1: DEF QA(IN) TARGET(ORDERS)",
    "QM1: DEF QR(FAR) RNAME(Q) RQMNAME(QM2)",
    "QM1: DEF QL(QM2) USAGE(XMITQ)",
    "QM1: DEF QM(MODEL)",
    "QM1: DEF QA(NEWS) TARGET(T) TARGTYPE(TOPIC)",
    "QM1: TOPIC(T)",
    "QM1: CLQ(INV) ON(QM3) CLUSTER(C)",
    "QM2: DEF QL(ORDERS)",
)
BINDINGS = Bindings(
    queue_managers={
        "QM1": QueueManagerBinding(
            queues={"ORDERS": QueueBinding(topic="orders", consumer_group="billing")}
        )
    }
)


@pytest.fixture(scope="module")
def network() -> Network:
    return read_topology(LINES).network()


def test_a_local_queue_is_its_topic(network: Network) -> None:
    """Names, topic and limits of a queue, through an alias too."""
    resolver: Resolver = MqResolver(network, "QM1")
    answer = resolver.resolve(queue="IN", queue_manager="")
    assert isinstance(answer, Destination)
    assert (answer.topic, answer.queue, answer.queue_manager) == ("QM1--ORDERS", "ORDERS", "QM1")
    assert answer.headers == ()
    assert answer.limits.max_depth == 7
    assert answer.limits.consumer_group is None


def test_a_binding_gives_topic_and_consumer_group(network: Network) -> None:
    """What the bindings file says replaces the topic that the names give."""
    answer = MqResolver(network, "QM1", bindings=BINDINGS).resolve(queue="ORDERS", queue_manager="")
    assert isinstance(answer, Destination)
    assert (answer.topic, answer.limits.consumer_group) == ("orders", "billing")


def test_a_transmission_queue_carries_the_names(network: Network) -> None:
    """The topic is that of the transmission queue, the headers are what the receiver opens with."""
    answer = MqResolver(network, "QM1").resolve(queue="FAR", queue_manager="")
    assert isinstance(answer, Destination)
    assert (answer.topic, answer.queue, answer.queue_manager) == ("QM1--QM2", "Q", "QM2")
    assert answer.headers == (("redrive.oqm", b"QM2"), ("redrive.oq", b"Q"))


def test_a_cluster_queue_names_the_next_manager_too(network: Network) -> None:
    """No channel leads from a cluster transmission queue to one manager only."""
    answer = MqResolver(network, "QM1").resolve(queue="INV", queue_manager="")
    assert isinstance(answer, Destination)
    assert answer.headers[-1] == ("redrive.next", b"QM3")


@pytest.mark.parametrize(("queue", "reason"), [("NOPE", 2085), ("MODEL", 2057), ("", 2085)])
def test_what_has_no_topic_is_refused(network: Network, queue: str, reason: int) -> None:
    """Unknown names and model queues are refused with a code."""
    answer = MqResolver(network, "QM1").resolve(queue=queue, queue_manager="")
    assert isinstance(answer, Refusal)
    assert (answer.reason, bool(answer.detail)) == (reason, True)

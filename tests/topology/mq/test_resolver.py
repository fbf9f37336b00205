"""The seam to the job: destinations on topics."""

from __future__ import annotations

import pytest
from tests.conformance.mq_notation import read_topology

from redrive.topology.bindings import Bindings, QueueBinding, QueueManagerBinding
from redrive.topology.layout import Topology
from redrive.topology.mq.network import MqNetwork
from redrive.topology.put import Destination, DynamicQueue, Refusal, Resolver, check_limits
from redrive.topology.receiving import resolver_of

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
def network() -> MqNetwork:
    return read_topology(LINES).network()


def test_a_local_queue_is_its_topic(network: MqNetwork) -> None:
    resolver: Resolver = resolver_of(Topology(mq=network), "QM1")
    answer = resolver.resolve(queue="IN", queue_manager="")
    assert isinstance(answer, Destination)
    assert (answer.topic, answer.queue, answer.queue_manager) == ("QM1--ORDERS", "ORDERS", "QM1")
    assert answer.headers == ()
    assert answer.limits.max_depth == 7
    assert answer.limits.consumer_group is None


def test_a_binding_gives_topic_and_consumer_group(network: MqNetwork) -> None:
    answer = resolver_of(Topology(mq=network, bindings=BINDINGS), "QM1").resolve(
        queue="ORDERS", queue_manager=""
    )
    assert isinstance(answer, Destination)
    assert (answer.topic, answer.limits.consumer_group) == ("orders", "billing")


def test_a_transmission_queue_carries_the_names(network: MqNetwork) -> None:
    answer = resolver_of(Topology(mq=network), "QM1").resolve(queue="FAR", queue_manager="")
    assert isinstance(answer, Destination)
    assert (answer.topic, answer.queue, answer.queue_manager) == ("QM1--QM2", "Q", "QM2")
    assert answer.headers == (("redrive.oqm", b"QM2"), ("redrive.oq", b"Q"))


def test_a_cluster_queue_names_the_next_manager_too(network: MqNetwork) -> None:
    answer = resolver_of(Topology(mq=network), "QM1").resolve(queue="INV", queue_manager="")
    assert isinstance(answer, Destination)
    assert answer.headers[-1] == ("redrive.next", b"QM3")


@pytest.mark.parametrize(("queue", "reason"), [("NOPE", 2085), ("MODEL", 2057), ("", 2085)])
def test_what_has_no_topic_is_refused(network: MqNetwork, queue: str, reason: int) -> None:
    answer = resolver_of(Topology(mq=network), "QM1").resolve(queue=queue, queue_manager="")
    assert isinstance(answer, Refusal)
    assert (answer.reason, bool(answer.detail)) == (reason, True)


@pytest.mark.parametrize(
    ("queue", "until", "expected"),
    [
        ("TEMP", 1, ("QM1--TEMP", 2048)),
        ("KEPT", None, ("QM1--KEPT", 0)),
        ("ORDERS", 1, ("QM1--ORDERS", 0)),
        ("NONE", 1, 2085),
    ],
)
def test_a_dynamic_queue_takes_puts_like_a_local_one(
    network: MqNetwork, queue: str, until: int | None, expected: object
) -> None:
    """A temporary one no persistent messages (B.8); a definition of its name counts more."""
    made = [] if queue == "NONE" else [DynamicQueue("QM1", queue, "MODEL", until)]
    known = network.with_dynamic_queues(made)
    answer = resolver_of(Topology(mq=known), "QM1").resolve(queue=queue, queue_manager="")
    if isinstance(answer, Refusal):
        assert answer.reason == expected
    else:
        refusal = check_limits(answer.limits, 1, 0, 1)
        assert (answer.topic, refusal.reason if refusal else 0) == expected


def test_a_dynamic_queue_outlives_its_model_and_its_manager(network: MqNetwork) -> None:
    made = [DynamicQueue("QM1", "TEMP", "GONE", 1), DynamicQueue("QM9", "TEMP", "GONE", 1)]
    answer = resolver_of(Topology(mq=network.with_dynamic_queues(made)), "QM1").resolve(
        queue="TEMP", queue_manager=""
    )
    assert isinstance(answer, Destination)

"""Queue managers of kind ``kafka``: exact topic names, nothing reserved."""

from __future__ import annotations

import pytest

from redrive.messages.reasons import Reason
from redrive.topology.kafka import KafkaResolver
from redrive.topology.put import Destination, QueueLimits, Refusal, Resolver

TOPICS = frozenset(
    {"orders", "dlq", "redrive-pay-control", "QM1--redrive-put", "__consumer_offsets"}
)


def resolver(**options: object) -> KafkaResolver:
    return KafkaResolver(TOPICS.__contains__, **options)  # type: ignore[arg-type]


def reason_of(answer: Destination | Refusal) -> int:
    assert isinstance(answer, Refusal)
    assert answer.detail
    return answer.reason


def test_a_topic_is_a_local_queue() -> None:
    answer = resolver().resolve(queue="orders", queue_manager="")
    assert answer == Destination(topic="orders", queue="orders", queue_manager="")


@pytest.mark.parametrize("queue", ["", "   ", "Orders", "order", "orders2"])
def test_a_name_without_a_topic_is_unknown(queue: str) -> None:
    assert (
        reason_of(resolver().resolve(queue=queue, queue_manager="")) == Reason.UNKNOWN_OBJECT_NAME
    )


@pytest.mark.parametrize(
    "queue", ["redrive-pay-control", "QM1--redrive-put", "__consumer_offsets", "dlq"]
)
def test_reserved_topics_are_no_queues(queue: str) -> None:
    answer = resolver(reserved={"dlq"}).resolve(queue=queue, queue_manager="")
    assert reason_of(answer) == Reason.UNKNOWN_OBJECT_NAME
    assert isinstance(answer, Refusal)
    assert "reserved" in answer.detail


def test_every_manager_name_is_local_unless_listed() -> None:
    assert resolver().resolve(queue="orders", queue_manager="ANY.QM") == Destination(
        topic="orders", queue="orders", queue_manager="ANY.QM"
    )


def test_a_list_of_local_names_makes_others_remote() -> None:
    listed = resolver(queue_managers=["QM1", "QM2"])
    assert listed.resolve(queue="orders", queue_manager="QM2") == Destination(
        topic="orders", queue="orders", queue_manager="QM2"
    )
    assert listed.resolve(queue="orders", queue_manager="") == Destination(
        topic="orders", queue="orders", queue_manager="QM1"
    )
    assert (
        reason_of(listed.resolve(queue="orders", queue_manager="QM3"))
        == Reason.UNKNOWN_REMOTE_Q_MGR
    )
    assert reason_of(listed.resolve(queue="", queue_manager="QM3")) == Reason.UNKNOWN_REMOTE_Q_MGR


def test_limits_belong_to_the_queue() -> None:
    limits = QueueLimits(put_enabled=False)
    limited = resolver(limits={"orders": limits}, reserved=())
    orders, dlq = (
        limited.resolve(queue="orders", queue_manager=""),
        limited.resolve(queue="dlq", queue_manager=""),
    )
    assert isinstance(orders, Destination)
    assert isinstance(dlq, Destination)
    assert orders.limits == limits
    assert dlq.limits == QueueLimits()


def test_topics_created_later_are_found() -> None:
    topics: set[str] = set()
    late: Resolver = KafkaResolver(lambda name: name in topics)
    assert reason_of(late.resolve(queue="new", queue_manager="")) == Reason.UNKNOWN_OBJECT_NAME
    topics.add("new")
    assert late.resolve(queue="new", queue_manager="") == Destination(
        topic="new", queue="new", queue_manager=""
    )

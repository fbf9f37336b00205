"""Waiting for a record: it ends with a new one, and otherwise when its time is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from tests.conftest import PATIENCE, KafkaClient

from redrive.kafka.connection import Connection
from redrive.kafka.records import Watch
from redrive.messages import TopicPartition

LONG, SOON, SHORT = PATIENCE, PATIENCE / 2, 1.0
"""Seconds: of a wait that a record ends, in which it has ended then, and of one in vain."""


@pytest.fixture
def watch(bootstrap_servers: str) -> Iterator[Watch]:
    opened = Watch(Connection(bootstrap_servers=bootstrap_servers))
    yield opened
    opened.close()


def waited(watch: Watch, ends: dict[TopicPartition, int], seconds: float) -> float:
    """How long a wait took."""
    before = time.monotonic()
    watch.wait(ends, seconds)
    return time.monotonic() - before


def test_a_record_that_arrives_ends_the_wait(kafka: KafkaClient, watch: Watch) -> None:
    topic = kafka.topic(partitions=2)
    is_sent = threading.Event()

    def send() -> None:
        is_sent.set()
        kafka.produce(topic, [{"value": b"new", "partition": 1}])

    sender = threading.Timer(SHORT, send)
    sender.start()
    assert waited(watch, {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0}, LONG) < SOON
    assert is_sent.is_set()
    sender.join()


def test_a_record_that_is_already_there_ends_the_wait(kafka: KafkaClient, watch: Watch) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [{"value": b"known"}, {"value": b"new"}])
    assert waited(watch, {TopicPartition(topic, 0): 1}, LONG) < SOON


def test_without_news_the_wait_ends_when_its_time_is_over(kafka: KafkaClient, watch: Watch) -> None:
    topic = kafka.topic()
    kafka.produce(topic, [{"value": b"known"}, {"value": b"known too"}])
    assert SHORT * 0.9 < waited(watch, {TopicPartition(topic, 0): 2}, SHORT) < SOON


def test_a_wait_from_other_ends_looks_from_there(kafka: KafkaClient, watch: Watch) -> None:
    first, second = (
        TopicPartition(kafka.topic("first"), 0),
        TopicPartition(kafka.topic("second"), 0),
    )
    kafka.produce(second.topic, [{"value": b"new"}])
    waited(watch, {first: 0}, SHORT)
    assert waited(watch, {first: 0, second: 0}, LONG) < SOON
    assert waited(watch, {first: 0, second: 1}, SHORT) > SHORT * 0.9


def test_without_a_broker_a_wait_ends_too() -> None:
    watch = Watch(Connection(bootstrap_servers="localhost:1"))
    assert waited(watch, {TopicPartition("nowhere", 0): 0}, SHORT) < SOON
    watch.close()

"""Kafka's clients as benchmarks use them: topics, backlogs, what comes, and what was committed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as Lane
from kafka.admin import KafkaAdminClient, NewTopic

Pairs: TypeAlias = list[tuple[str, str | bytes | None]]


class Sent(NamedTuple):
    """One record of a load or of a backlog."""

    topic: str
    partition: int
    value: bytes | None
    headers: Pairs = []  # noqa: RUF012 - nobody changes it
    key: bytes | None = None


def create(servers: str, *topics: NewTopic) -> None:
    """Creates topics."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics(list(topics), wait_for_metadata=True)
    admin.close()


def send(producer: Producer, sent: Sent, **more: Any) -> None:  # noqa: ANN401 - of produce()
    """Hands one record to a producer, once there is room for it."""
    while True:
        try:
            producer.produce(
                sent.topic,
                sent.value,
                sent.key,
                partition=sent.partition,
                headers=sent.headers,
                **more,
            )
            break
        except BufferError:
            producer.poll(0.1)


def produce(servers: str, records: Iterable[Sent], **settings: Any) -> None:  # noqa: ANN401
    """Writes a backlog as fast as it goes.

    Args:
        servers: The broker.
        records: The backlog.
        settings: More of the producer, with underscores for dots.
    """
    more = {name.replace("_", "."): value for name, value in settings.items()}
    room = {"linger.ms": 20, "queue.buffering.max.messages": 500_000}
    producer = Producer({"bootstrap.servers": servers, **room, **more})
    for sent in records:
        send(producer, sent)
    producer.flush()


def listener(servers: str, topics: list[str]) -> Consumer:
    """A consumer at read_committed that stands at the end of some topics."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "bench-listener", "fetch.wait.max.ms": 5,
            "isolation.level": "read_committed", "enable.auto.commit": False, "log_level": 0,
        }
    )  # fmt: skip
    known = consumer.list_topics(timeout=10).topics
    lanes = [TopicPartition(t, n) for t in topics for n in known[t].partitions]
    consumer.assign([TopicPartition(x.topic, x.partition, _end(consumer, x)) for x in lanes])
    return consumer


def _end(consumer: Consumer, lane: TopicPartition) -> int:
    """The end of a partition; a topic that was created this moment has no leader yet."""
    while True:
        with contextlib.suppress(KafkaException):
            return int(consumer.get_watermark_offsets(lane, timeout=10)[1])
        time.sleep(0.2)


def read_committed(servers: str, topics: Sequence[str], last: int | None = None) -> Iterator[Any]:
    """Every committed record of some topics, partition by partition in offset order.

    Args:
        servers: The brokers.
        topics: Those that do not exist hold nothing.
        last: Reads no more offsets than so many at the end of each partition; None for all.
    """
    consumer = KafkaConsumer(
        bootstrap_servers=servers, isolation_level="read_committed", enable_auto_commit=False
    )
    with contextlib.closing(consumer):
        lanes = [
            Lane(topic, number)
            for topic in topics
            for number in consumer.partitions_for_topic(topic) or ()
        ]
        begins, ends = consumer.beginning_offsets(lanes), consumer.end_offsets(lanes)
        consumer.assign(lanes)
        for lane in lanes:
            begin = begins[lane] if last is None else max(begins[lane], ends[lane] - last)
            consumer.seek(lane, begin)
        while any(consumer.position(lane) < end for lane, end in ends.items()):
            for records in consumer.poll(timeout_ms=200).values():
                yield from records

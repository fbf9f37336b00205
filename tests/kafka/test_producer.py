"""Transactions on a real broker: what is refused spoils them, with reports and without."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redrive.checkpoints.protocol import Spoiled
from redrive.kafka.connection import Connection
from redrive.kafka.producer import KafkaCommittedOffsets, KafkaProducer
from redrive.messages import OutputRecord, TopicPartition

SMALL = OutputRecord("", b"k", b"small", [("h", b"1")], 1_700_000_000_000)
LARGE = OutputRecord("", b"k", os.urandom(20_000), [("h", b"1")], 1_700_000_000_000)


@pytest.fixture
def small_topic(topics: Callable[..., str]) -> str:
    """A topic that refuses records of more than 2,000 bytes."""
    return topics("small", partitions=2, config={"max.message.bytes": "2000"})


@pytest.fixture
def producer(
    bootstrap_servers: str, unique_name: Callable[[str], str], small_topic: str
) -> Iterator[KafkaProducer]:
    """A transactional producer, in the middle of a transaction."""
    del small_topic
    client = Connection(bootstrap_servers=bootstrap_servers).librdkafka()
    offsets = KafkaCommittedOffsets(client, unique_name("group"))
    opened = KafkaProducer(client, unique_name("id"), offsets, limit_of=lambda _: 2000)
    opened.begin()
    yield opened
    opened.close()
    offsets.close()


def test_a_refusal_without_a_report_keeps_the_transaction_from_being_committed(
    producer: KafkaProducer, small_topic: str, read_all: Callable[..., list[Any]]
) -> None:
    """Nobody is told which record it was, but neither offsets nor records are committed."""
    # On partitions of their own: a broker refuses a batch whole.
    records = [
        SMALL._replace(topic=small_topic, partition=0),
        LARGE._replace(topic=small_topic, partition=1),
    ]
    producer.produce(enumerate(records), with_reports=False)
    assert not producer.flush().spoiled
    with pytest.raises(Spoiled):
        producer.send_offsets({TopicPartition(small_topic, 0): 7})
    with pytest.raises(Spoiled):
        producer.commit()
    producer.abort()
    assert not read_all(small_topic)
    producer.begin()
    producer.produce(enumerate(records), with_reports=True)
    flushed = producer.flush()
    assert flushed.spoiled
    assert [refused.entry for refused in flushed.refused] == [1]
    producer.abort()
    producer.begin()
    producer.produce([(0, records[0])], with_reports=False)
    producer.flush()
    producer.send_offsets({TopicPartition(small_topic, 0): 7})
    producer.commit()
    assert [record.value for record in read_all(small_topic)] == [b"small"]


def test_a_refusal_after_the_offsets_were_sent_spoils_the_commit(
    producer: KafkaProducer, small_topic: str, read_all: Callable[..., list[Any]]
) -> None:
    """The client counts what was not delivered, whenever it comes to know of it."""
    producer.send_offsets({TopicPartition(small_topic, 0): 7})
    producer.produce([(0, LARGE._replace(topic=small_topic))], with_reports=False)
    with pytest.raises(Spoiled):
        producer.commit()
    producer.abort()
    assert not read_all(small_topic)

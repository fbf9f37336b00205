"""Transactions on a real broker: what is refused aborts them, with reports and without."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.conftest import KafkaClient

from redrive.errors import FencedFault, TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.kafka.producer import KafkaProducer
from redrive.kafka.reports import FailureKind
from redrive.messages import OutputRecord, TopicPartition

SMALL = OutputRecord("", b"k", b"small", [("h", b"1")], 1_700_000_000_000)
LARGE = OutputRecord("", b"k", os.urandom(20_000), [("h", b"1")], 1_700_000_000_000)


@pytest.fixture
def small_topic(kafka: KafkaClient) -> str:
    """A topic that refuses records of more than 2,000 bytes."""
    return kafka.topic("small", partitions=2, config={"max.message.bytes": "2000"})


@pytest.fixture
def producer(kafka: KafkaClient, small_topic: str) -> Iterator[KafkaProducer]:
    """A transactional producer, in the middle of a transaction."""
    client = kafka.connection.librdkafka()
    opened = KafkaProducer(client, kafka.unique_name("id"), "test-producer")
    opened.initialise()
    opened.begin()
    yield opened
    opened.close()


def test_a_refusal_without_a_report_keeps_the_transaction_from_being_committed(
    kafka: KafkaClient, producer: KafkaProducer, small_topic: str
) -> None:
    # On partitions of their own: a broker refuses a batch whole.
    records = [
        SMALL._replace(topic=small_topic, partition=0),
        LARGE._replace(topic=small_topic, partition=1),
    ]
    lane = TopicPartition(small_topic, 0)
    producer.produce(enumerate(records), with_reports=False)
    assert producer.flush().failed == ()
    assert not producer.send_offsets({lane: 7}).may_commit
    assert not producer.commit().may_commit
    producer.abort()
    assert not kafka.read(small_topic)
    producer.begin()
    producer.produce(enumerate(records), with_reports=True)
    report = producer.flush()
    assert not report.may_commit
    assert [
        (record.entry, record.kind, record.topic, record.reason) for record in report.failed
    ] == [(1, FailureKind.CULPRIT, small_topic, 2030)]
    producer.abort()
    producer.begin()
    producer.produce([(0, records[0])], with_reports=False)
    assert producer.flush().may_commit
    assert producer.send_offsets({lane: 7}).may_commit
    assert producer.commit().may_commit
    assert kafka.values(small_topic) == [b"small"]
    cluster = Cluster(kafka.connection)
    assert cluster.committed("test-producer", [lane], stable=True) == {lane: 7}


def test_a_refusal_after_the_offsets_were_sent_keeps_it_from_being_committed_too(
    kafka: KafkaClient, producer: KafkaProducer, small_topic: str
) -> None:
    producer.send_offsets({TopicPartition(small_topic, 0): 7})
    producer.produce([(0, LARGE._replace(topic=small_topic))], with_reports=False)
    assert not producer.commit().may_commit
    producer.abort()
    assert not kafka.read(small_topic)


def test_a_refusal_in_the_middle_of_produce_names_the_culprit_and_nobody_else(
    producer: KafkaProducer, small_topic: str
) -> None:
    producer.produce([(0, LARGE._replace(topic=small_topic))])
    producer.flush()
    producer.produce([(1, SMALL._replace(topic=small_topic))])
    report = producer.flush()
    assert not report.may_commit
    assert [record.entry for record in report.failed if record.kind is FailureKind.CULPRIT] == [0]
    assert {record.kind for record in report.failed} <= {FailureKind.CULPRIT, FailureKind.INNOCENT}


def test_offsets_of_more_lanes_than_a_broker_takes_at_once_are_committed_together(
    kafka: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.kafka.producer.LANES_AT_ONCE", 25)
    # Each stored offset repeats the group's name: 100 would take 2 MB, and a broker takes 1 MB.
    topic, group = kafka.topic("wide", partitions=100), "g" * 20_000
    positions = {TopicPartition(topic, number): 7 for number in range(100)}
    opened = KafkaProducer(kafka.connection.librdkafka(), kafka.unique_name("id"), group)
    opened.initialise()
    opened.begin()
    assert opened.send_offsets(positions).may_commit
    assert opened.commit().may_commit
    opened.close()
    assert Cluster(kafka.connection).committed(group, positions, stable=True) == positions


def test_a_producer_of_the_same_id_fences_an_older_one(
    kafka: KafkaClient, producer: KafkaProducer, small_topic: str
) -> None:
    producer.produce([(0, SMALL._replace(topic=small_topic))])
    producer.flush()
    client = kafka.connection.librdkafka()
    newer = KafkaProducer(client, producer.transactional_id, "test-producer")
    newer.initialise()
    with pytest.raises(FencedFault):
        producer.commit()
    newer.close()
    assert not kafka.read(small_topic)


def test_whoever_waits_for_stable_offsets_is_told_of_the_transaction_that_holds_them(
    producer: KafkaProducer, small_topic: str, bootstrap_servers: str
) -> None:
    lane = TopicPartition(small_topic, 0)
    producer.produce([(0, SMALL._replace(topic=small_topic))])
    producer.flush()
    producer.send_offsets({lane: 7})
    connection = Connection(bootstrap_servers=bootstrap_servers)
    cluster = Cluster(connection, timeout=20)  # four tries
    with pytest.raises(TransientFault, match="the offsets of test-producer wait for a transaction"):
        cluster.committed("test-producer", [lane], stable=True)
    assert cluster.committed("test-producer", [lane]) == {lane: None}
    producer.abort()


def test_an_error_of_the_client_does_not_keep_a_producer_from_being_closed() -> None:
    """The client raises SystemError in any call while a fatal error of its own is raised."""
    served: list[float] = []

    def purge() -> None:
        raise SystemError("returned a result with an exception set")

    opened = KafkaProducer({"bootstrap.servers": "localhost:1"}, "id", "group")
    opened._producer = cast("Any", SimpleNamespace(purge=purge, poll=served.append))
    opened.close()
    assert served == [0]

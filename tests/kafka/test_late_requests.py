"""A commit whose connection breaks is sent again, and its first copy may come much later."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any, NamedTuple

import pytest
from benchmarks.clients import create
from benchmarks.fault_proxy import HOST, FaultProxy, Rule, What, running
from kafka.admin import NewTopic
from tests.conftest import eventually, read_records

from redrive.broker import EmbeddedBroker
from redrive.broker.configuration import free_port
from redrive.kafka.connection import Connection
from redrive.kafka.producer import KafkaProducer
from redrive.messages import OutputRecord


class Relayed(NamedTuple):
    """A broker behind a relay."""

    proxy: FaultProxy
    client: Any
    direct: str


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relayed]:
    """A broker that clients reach through the relay only."""
    port, advertised = free_port(), free_port()
    properties = {"advertised.listeners": f"PLAINTEXT://{HOST}:{advertised}"}
    folder = tmp_path_factory.mktemp("relayed")
    with (
        running(advertised, port, ()) as proxy,
        EmbeddedBroker(folder, port=port, properties=properties, heap="256m") as broker,
    ):
        client = Connection(bootstrap_servers=f"{HOST}:{advertised}").librdkafka()
        yield Relayed(proxy, client, broker.bootstrap_servers)


def begin(producer: KafkaProducer, topic: str, value: bytes) -> None:
    """One record in a transaction that stays open."""
    producer.begin()
    producer.produce([(0, OutputRecord(topic, None, value, None, 0, 0))])
    assert producer.flush().may_commit


def commit_twice(relayed: Relayed, producer: KafkaProducer) -> None:
    """The connection breaks in the commit, so that the client sends it again."""
    relayed.proxy.apply(Rule("EndTxn", What.LATE_COPY, seconds=inf, times=1))
    assert producer.commit().may_commit


def values_on(relayed: Relayed, topic: str) -> list[bytes]:
    """What readers see by now: markers follow a commit."""
    return [record.value for record in read_records(relayed.direct, topic)]


def test_a_late_copy_of_a_commit_ends_the_next_transaction_of_the_same_producer(
    relayed: Relayed,
) -> None:
    create(relayed.direct, NewTopic("harmed", 1, 1))
    producer = KafkaProducer(relayed.client, "harmed", "group")
    producer.initialise()
    begin(producer, "harmed", b"one")
    assert not producer.may_arrive_late
    commit_twice(relayed, producer)
    assert producer.may_arrive_late
    begin(producer, "harmed", b"two")
    relayed.proxy.deliver("harmed")
    eventually(lambda: relayed.proxy.counts["late copy was taken"], "late copy was taken")
    eventually(lambda: values_on(relayed, "harmed") == [b"one", b"two"], "a marker")
    producer.close()


def test_the_next_producer_of_the_id_is_safe_from_it(relayed: Relayed) -> None:
    create(relayed.direct, NewTopic("safe", 1, 1))
    first, second = (KafkaProducer(relayed.client, "safe", "group") for _ in range(2))
    first.initialise()
    begin(first, "safe", b"one")
    commit_twice(relayed, first)
    assert first.may_arrive_late
    first.close()
    second.initialise()
    begin(second, "safe", b"two")
    relayed.proxy.deliver("safe")
    eventually(lambda: relayed.proxy.counts["late copy was refused"], "late copy was refused")
    second.abort()
    assert values_on(relayed, "safe") == [b"one"]
    second.close()

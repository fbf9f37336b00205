"""What waits for each key, read from a real broker: never too little."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka import KafkaProducer
from tests.conftest import KafkaClient

from redrive.engine.facts import WaitingQuestion
from redrive.engine.ordering import Place, Round, WaitingMessage, position_of
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.kafka.waiting_keys import LiveOrder
from redrive.messages import TopicPartition
from redrive.messages import own_headers as own

SINCE = 1_700_000_000_000


@pytest.fixture
def cluster(bootstrap_servers: str) -> Iterator[Cluster]:
    with Cluster(Connection(bootstrap_servers=bootstrap_servers)) as opened:
        yield opened


def test_parked_copies_wait_until_the_job_is_past_them_and_others_until_they_are_taken_away(
    kafka: KafkaClient, cluster: Cluster
) -> None:
    retry, remaining, group = kafka.topic("retry"), kafka.topic("remaining"), kafka.topic("job")
    question = WaitingQuestion(
        TopicPartition(retry, 0),
        (TopicPartition("no-such-topic", 0),),
        TopicPartition(remaining, 0),
    )
    order = LiveOrder(cluster, group)
    assert order.waiting(question) == {}
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    for number in range(2):
        headers = [(own.ID, b"DLQ:0:%d" % number)]
        producer.send(retry, b"v", b"k", headers=headers, timestamp_ms=SINCE)
    headers = [(own.ID, b"DLQ:0:2"), (own.KEY, b"k")]
    producer.send(remaining, b"v", b"DLQ:0:2", headers=headers, timestamp_ms=SINCE)
    producer.flush()
    places = [Place(question.retry, 0), Place(question.retry, 1), Place(question.remaining, 0)]
    everything = {
        place: WaitingMessage(position_of(f"DLQ:0:{at}"), SINCE) for at, place in enumerate(places)
    }
    assert order.waiting(question) == {b"k": everything}
    kafka.commit(group, retry, 1)
    assert order.waiting(question) == {b"k": dict(list(everything.items())[1:])}
    assert LiveOrder(cluster, group).waiting(question) == order.waiting(question)
    producer.send(remaining, None, b"DLQ:0:2")
    producer.flush()
    assert order.waiting(question) == {b"k": {places[1]: everything[places[1]]}}
    kafka.commit(group, retry, 2)
    assert order.waiting(question) == {}
    producer.close()


def test_a_round_is_over_once_the_group_and_then_the_job_have_passed_it(
    kafka: KafkaClient, cluster: Cluster
) -> None:
    target, letters, group, job = (kafka.topic(name) for name in ("orders", "DLQ", "group", "job"))
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    for topic in (target, target, letters):
        producer.send(topic, b"v")
    producer.flush()
    order = LiveOrder(cluster, job)
    began = Round(target, 0, group, 1 << 45, TopicPartition(letters, 0))
    (first,) = order.rounds([began]).values()
    assert first == began._replace(processed=((0, 2),))  # the group has no offsets at all
    assert order.rounds([first._replace(put_at=1)])[first._replace(put_at=1)].returned == 1
    kafka.commit(group, target, 1)
    assert order.rounds([first])[first] == first
    kafka.commit(group, target, 2)
    second = order.rounds([first])[first]
    assert second == first._replace(returned=1)
    gone = first._replace(letters=TopicPartition(letters, 7))
    assert order.rounds([gone])[gone].is_over  # nothing comes back to a partition that is not there
    kafka.commit(job, letters, 1)
    assert order.rounds([second])[second].is_over
    producer.close()

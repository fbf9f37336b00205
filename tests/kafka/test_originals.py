"""Records that dead letters point at, as a broker has them."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, TopicPartition
from tests.conftest import KafkaClient, RawName

from redrive.engine.facts import Gone, Original, RecordQuestion
from redrive.kafka.cluster import Cluster
from redrive.kafka.compacted import CompactedTopic
from redrive.kafka.connection import Connection
from redrive.kafka.facts import fetch_originals
from redrive.kafka.records import read_parts
from redrive.messages import Headers, OffsetRange
from redrive.messages import TopicPartition as Lane
from redrive.messages import own_headers as own


@pytest.fixture
def cluster(bootstrap_servers: str) -> Cluster:
    return Cluster(Connection(bootstrap_servers=bootstrap_servers))


def transactional(servers: str, name: str) -> Producer:
    """A producer in an open transaction."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    return producer


def test_what_is_there_is_found_and_of_the_rest_it_is_told_why(
    kafka: KafkaClient, cluster: Cluster
) -> None:
    name = kafka.topic("jobs", partitions=2)
    letters = [
        {"value": b"v%d" % n, "key": b"k", "headers": [("n", b"%d" % n)], "timestamp_ms": 1000 + n}
        for n in range(200)
    ]
    kafka.produce(name, [{**letter, "partition": 0} for letter in letters])
    aborted = transactional(kafka.bootstrap_servers, kafka.unique_name("aborted"))
    aborted.produce(name, b"never", partition=1)
    aborted.flush()
    aborted.abort_transaction()
    kafka.produce(name, [{"value": b"after", "partition": 1}])
    KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers).delete_records(
        {TopicPartition(name, 0): 3}
    )
    hanging = transactional(kafka.bootstrap_servers, kafka.unique_name("open"))
    hanging.produce(name, b"not yet", partition=1)
    hanging.flush()
    try:
        places = {
            **{RecordQuestion(name, 0, n): n for n in (3, 4, 150, 199)},
            **dict.fromkeys([RecordQuestion(name, 0, 2), RecordQuestion(name, 0, 200)], "offsets"),
            RecordQuestion(name, 1, 0): "never committed",
            RecordQuestion(name, 1, 3): "open transaction",
            RecordQuestion(name, 2, 0): "no partition",
            RecordQuestion(kafka.unique_name("absent"), 0, 0): "no partition",
        }
        answers = fetch_originals(cluster, set(places))
    finally:
        hanging.abort_transaction()
    assert answers.keys() == places.keys()
    for place, expected in places.items():
        answer = answers[place]
        if isinstance(expected, int):
            headers = [("n", b"%d" % expected)]
            original = Original(b"k", b"v%d" % expected, headers, 1000 + expected)
            assert answer == original
        else:
            assert isinstance(answer, Gone)
            assert expected in answer.detail
            assert answer.may_come == (expected == "open transaction")


BAD_NAMES = [("a", b"1"), (RawName(b"caf\xe9"), b"2"), ("", b""), (RawName(b"\xff\xfe"), b"4")]
"""Headers of which the second and the last have names that are not UTF-8."""
AS_READ = [
    *(("a", b"1"), ("caf\ufffd", b"2"), ("", b""), ("\ufffd", b"4")),
    (own.UNREADABLE, rb"the name of header 2 (caf\xe9), 4 is not UTF-8"),
]


def test_a_record_with_header_names_that_are_not_utf_8_is_read_by_every_reader(
    kafka: KafkaClient, cluster: Cluster
) -> None:
    """What can be read is there, and which headers can't; the records beside it are as they are.

    There are many of them: what Python has called often it calls in another way.
    """
    name, good = kafka.topic("jobs"), [("b", b"5")]
    written = [BAD_NAMES, *[good] * 300, BAD_NAMES, good]
    kafka.produce(name, [{"value": b"v", "key": b"k", "headers": headers} for headers in written])
    place = RecordQuestion(name, 0, 0)
    original = fetch_originals(cluster, [place])[place]
    assert isinstance(original, Original)
    assert (original.key, original.value, original.headers) == (b"k", b"v", AS_READ)
    connection = kafka.connection
    asked = [OffsetRange(name, 0, 0, len(written))]
    with closing(CompactedTopic(cluster, Lane(name, 0))) as topic:
        readers: list[list[Headers]] = [
            [
                headers
                for _, records in read_parts(connection, asked)
                for headers in records.headers
            ],
            [record.headers for record in topic.records_to_end()],
        ]
    assert readers == [[AS_READ if headers is BAD_NAMES else good for headers in written]] * 2


def test_an_answer_holds_what_there_is_room_for_and_the_first_at_least(
    kafka: KafkaClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.kafka.facts.LARGEST_ANSWER", 250)
    name = kafka.topic("large")
    kafka.produce(name, [{"value": b"x" * size} for size in (100, 100, 100, 1000)])
    every = [RecordQuestion(name, 0, n) for n in range(4)]
    answers = fetch_originals(cluster, every)
    assert list(answers) == every[:3]
    alone = fetch_originals(cluster, every[3:])
    assert isinstance(alone[every[3]], Original)

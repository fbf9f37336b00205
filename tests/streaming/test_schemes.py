"""Dead letters of other programs on a running job: back where they belong, exactly once."""

from __future__ import annotations

import json

from tests.streaming.conftest import Jobs

from redrive.messages.schemes import OwnScheme


def number(value: int, size: int) -> bytes:
    """As Java's ``ByteBuffer`` writes it."""
    return value.to_bytes(size, "big")


def test_dead_letters_of_four_programs_go_back_to_their_partitions(jobs: Jobs) -> None:
    """Connect, Spring, Streams and a format of one's own; by key where there is no such partition.

    Their headers are gone, the payload is out of its envelope, other headers stay.
    """
    dlq, orders, dead = jobs.topic("dlq"), jobs.topic("orders", partitions=4), jobs.topic("dead")
    topic = orders.encode()
    schemes: dict[str, list[tuple[str, bytes]]] = {
        "connect": [
            ("__connect.errors.topic", topic),
            ("__connect.errors.partition", b"3"),
            ("__connect.errors.exception.class.name", b"a.TimeoutException"),
        ],
        "spring": [
            ("kafka_original-topic", topic),
            ("kafka_original-partition", number(2, 4)),
            ("kafka_exception-cause-fqcn", b"a.TimeoutException"),
            ("kafka_exception-stacktrace", b"x" * 1000),
        ],
        "streams": [
            ("__streams.errors.exception", b"a.TimeoutException: away"),
            ("__streams.errors.topic", topic),
            ("__streams.errors.partition", b"99"),
        ],
        "unreadable": [
            ("__streams.errors.exception", b"a.SerializationException: no"),
            ("__streams.errors.topic", topic),
            ("__streams.errors.stacktrace", b"x" * 1000),
        ],
    }
    records = [
        {"key": b"k", "value": name.encode(), "headers": [("a", b"1"), *headers]}
        for name, headers in schemes.items()
    ]
    own = {"failed": {"topic": orders, "partition": 1}, "payload": {"order": 7}}
    records.append({"key": b"k", "value": json.dumps(own).encode(), "headers": [("a", b"1")]})
    records.append({"value": b"no dead letter"})
    jobs.produce(dlq, records)
    table = (
        "WAIT(NO)\n"
        f"REASON(MQRC_FORMAT_ERROR) ACTION(FWD) FWDQ('{dead}') HEADER(YES)\n"
        "ACTION(RETRY)\n"
    )
    envelope = OwnScheme(
        name="envelope",
        recognise="$.failed.topic",
        payload="$.payload",
        parts={"origin.topic": "$.failed.topic", "origin.partition": "$.failed.partition"},
    )
    configuration = jobs.configure({dlq: table}, schemes=(envelope,))
    jobs.start(configuration).join()
    back = {record.value: record for record in jobs.read(orders)}
    places = {value: record.partition for value, record in back.items()}
    assert places.pop(b"streams") in range(4)
    assert places == {b"connect": 3, b"spring": 2, b'{"order":7}': 1}
    for record in back.values():
        assert record.key == b"k"
        assert [pair for pair in record.headers if not pair[0].startswith("redrive.")] == [
            ("a", b"1")
        ]
    (forwarded,) = jobs.read(dead)
    assert forwarded.value == b"unreadable"
    assert [name for name, _ in forwarded.headers if name.startswith("__")] == [
        "__streams.errors.exception",
        "__streams.errors.topic",
    ]
    outcomes = jobs.outcomes(configuration)
    assert sorted(outcome["form"] for outcome in outcomes) == [
        "connect", "envelope", "kafka-streams", "kafka-streams", "none", "spring-retry-topic",
    ]  # fmt: skip
    assert sum(outcome["result"] == "remains" for outcome in outcomes) == 1

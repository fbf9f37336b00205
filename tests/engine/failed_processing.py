"""Dead letters as the libraries of consumers write them.

Each function makes the dead letter of a record whose processing failed. Its arguments are the
record, the offset of the record, and the time of the failure in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import orjson

from redrive.messages import DeadLetterHeader, Headers, OutputRecord, encode_header
from redrive.messages.schemes import OwnScheme

Fail = Callable[[OutputRecord, int, int], OutputRecord]
"""Makes the dead letter of a record."""


def connect(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    """A sink connector: its headers come last, and the time stays that of the record."""
    prefix = "__connect.errors."
    headers = [
        *(record.headers or []),
        (f"{prefix}topic", record.topic.encode()),
        (f"{prefix}partition", b"0"),
        (f"{prefix}offset", b"%d" % offset),
        (f"{prefix}connector.name", b"sink"),
        (f"{prefix}exception.class.name", b"org.acme.WriteException"),
    ]
    return OutputRecord("DLQ", record.key, record.value, headers, record.timestamp)


def spring(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    """DeadLetterPublishingRecoverer: what it says of the origin is appended at every failure."""
    prefix = "kafka_dlt-"
    headers = [
        *(record.headers or []),
        (f"{prefix}original-topic", record.topic.encode()),
        (f"{prefix}original-partition", bytes(4)),
        (f"{prefix}original-offset", offset.to_bytes(8, "big")),
        (f"{prefix}original-timestamp", record.timestamp.to_bytes(8, "big")),
        (f"{prefix}original-consumer-group", b"billing"),
        (f"{prefix}exception-fqcn", b"org.acme.WriteException"),
    ]
    return OutputRecord("DLQ", record.key, record.value, headers, now)


def spring_retry_topic(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    """The topics of @RetryableTopic: the first origin is kept."""
    known = dict(record.headers or [])
    prefix = "kafka_"
    added: Headers = [
        (f"{prefix}original-topic", record.topic.encode()),
        (f"{prefix}original-partition", bytes(4)),
        (f"{prefix}original-offset", offset.to_bytes(8, "big")),
        (f"{prefix}original-timestamp", record.timestamp.to_bytes(8, "big")),
        ("kafka_dlt-original-consumer-group", b"billing"),
        (f"{prefix}exception-fqcn", b"org.acme.WriteException"),
        ("retry_topic-attempts", bytes([0, 0, 0, 4])),
    ]
    headers = [*(record.headers or []), *(pair for pair in added if pair[0] not in known)]
    return OutputRecord("DLQ", record.key, record.value, headers, now)


def smallrye(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    """Quarkus: its headers stand before those of the record."""
    headers = [
        ("dead-letter-reason", b"it failed"),
        ("dead-letter-topic", record.topic.encode()),
        ("dead-letter-partition", b"0"),
        ("dead-letter-offset", b"%d" % offset),
        *(record.headers or []),
    ]
    return OutputRecord("DLQ", record.key, record.value, headers, now)


def streams(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    """Kafka Streams: an application that drops the record's headers; its time stays."""
    headers: Headers = [
        ("__streams.errors.exception", b"org.acme.WriteException: it failed"),
        ("__streams.errors.topic", record.topic.encode()),
        ("__streams.errors.partition", b"0"),
        ("__streams.errors.offset", b"%d" % offset),
    ]
    return OutputRecord("DLQ", record.key, record.value, headers, record.timestamp)


def share_group(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    """A share group: the dead letter has neither key nor value, and points at its original."""
    headers: Headers = [
        ("__dlq.errors.topic", record.topic.encode()),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.offset", b"%d" % offset),
        ("__dlq.errors.group", b"billing"),
    ]
    return OutputRecord("DLQ", None, None, headers, now)


def karafka(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    """Karafka: headers are a map."""
    headers = {
        **dict(record.headers or []),
        "source_topic": record.topic.encode(),
        "source_partition": b"0",
        "source_offset": b"%d" % offset,
        "source_consumer_group": b"billing",
        "source_key": record.key,
    }
    return OutputRecord("DLQ", b"0", record.value, [*headers.items()], now)


def _with(record: OutputRecord, now: int, headers: Mapping[str, object]) -> OutputRecord:
    """The record with a library's own headers behind its own, those of an earlier failure gone."""
    added: Headers = [(name, str(header).encode()) for name, header in headers.items()]
    before = [pair for pair in record.headers or [] if pair[0] not in headers]
    return OutputRecord("DLQ", record.key, record.value, [*before, *added], now)


def spring_cloud_stream(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    """The Kafka binder: numbers in bytes."""
    letter = _with(record, now, {"x-original-topic": record.topic, "x-exception-fqcn": "E"})
    numbers: Headers = [
        ("x-original-partition", bytes(4)),
        ("x-original-offset", offset.to_bytes(8, "big")),
    ]
    return letter._replace(headers=[*(letter.headers or []), *numbers])


def delayed_retry(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    """Quarkus: the delayed-retry-topic."""
    failure = {"reason": "it failed", "topic": record.topic, "partition": 0, "offset": offset}
    return _with(record, now, {f"delayed-retry-{name}": value for name, value in failure.items()})


def watermill(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    """Watermill: the record that failed has no offset."""
    return _with(record, now, {"reason_poisoned": "it failed", "topic_poisoned": record.topic})


def wolverine(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    """Wolverine: the record that failed has no offset."""
    topic = f"kafka://topic/{record.topic}"
    return _with(record, now, {"exception-type": "E", "original-destination": topic})


def uforwarder(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    """uForwarder: a protobuf message in the place of the key."""
    letter = _with(record, now, {"original_cluster": "c"})
    topic, key = record.topic.encode(), record.key or b""
    fields = b"\x12%c%b\x20%c\x32%c%b" % (len(topic), topic, offset, len(key), key)
    return letter._replace(key=fields)


def rabbitmq(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    """A bridge from RabbitMQ."""
    return _with(record, now, {"x-first-death-queue": record.topic, "x-first-death-reason": "r"})


def azure(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    """A bridge from Azure Service Bus."""
    return _with(record, now, {"DeadLetterReason": "r", "DeadLetterSource": record.topic})


def mqdlh_headers(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    """MQ's dead-letter header as headers."""
    return _with(record, now, {"mqdlh.Reason": 2053, "mqdlh.DestQName": record.topic})


def mqdlh(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    """MQ's dead-letter header in front of the body."""
    header = encode_header(DeadLetterHeader(reason=2053, dest_q_name=record.topic))
    letter = _with(record, now, {})
    return letter._replace(value=header + (record.value or b""))


ENVELOPE: Final = OwnScheme(
    name="envelope",
    recognise="$.failed",
    payload="$.payload",
    parts={"origin.topic": "$.topic", "origin.partition": "$.partition", "origin.offset": "$.at"},
)
"""A JSON envelope."""
NAMELESS: Final = OwnScheme(
    name="nameless",
    recognise="$.nameless",
    payload="$.payload",
    parts={"origin.topic": "$.topic"},
)
"""A JSON envelope that does not say which record of the topic failed."""


def envelope(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    failure = {"failed": True, "topic": record.topic, "partition": 0, "at": offset}
    value = orjson.dumps({**failure, "payload": (record.value or b"").decode()})
    return OutputRecord("DLQ", record.key, value, record.headers, now)


def nameless(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    failure = {"nameless": True, "topic": record.topic}
    value = orjson.dumps({**failure, "payload": (record.value or b"").decode()})
    return OutputRecord("DLQ", record.key, value, record.headers, now)


def dropping(fail: Fail) -> Fail:
    """The same without the headers of the record."""

    def drop(record: OutputRecord, offset: int, now: int) -> OutputRecord:
        return fail(record._replace(headers=[]), offset, now)

    drop.__name__ = f"{fail.__name__}-dropping"
    return drop


SCHEMES = (connect, spring, spring_retry_topic, smallrye, streams, share_group)
EVERY = (
    *SCHEMES,
    *(spring_cloud_stream, delayed_retry, karafka, watermill, wolverine, uforwarder, rabbitmq),
    *(azure, mqdlh_headers, mqdlh, envelope, nameless),
)
"""Every known scheme, and a user's own."""
GROUPS = {
    connect: "connect-sink",
    spring: "billing",
    spring_retry_topic: "billing",
    karafka: "billing",
    share_group: "billing",
}
"""The consumer group that failed, of the schemes that tell it."""

LATE = (connect, streams)
"""Their dead letters have the time of the record, not that of the failure."""

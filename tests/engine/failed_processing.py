"""Dead letters as the libraries of consumers write them.

Each function makes the dead letter of a record whose processing failed. Its arguments are the
record, the offset of the record, and the time of the failure in milliseconds.
"""

from __future__ import annotations

from redrive.messages import Headers, OutputRecord


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
    """Kafka Streams: the headers of the record are gone, and its time stays."""
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


SCHEMES = (connect, spring, spring_retry_topic, smallrye, streams, share_group)
GROUPS = {
    connect: "connect-sink",
    spring: "billing",
    spring_retry_topic: "billing",
    karafka: "billing",
    share_group: "billing",
}
"""The consumer group that failed, of the schemes that tell it."""

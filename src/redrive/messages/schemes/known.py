"""The schemes of other programs: their headers, and the attribute in each.

All values are text unless noted. Each scheme names its source.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Final, NamedTuple

import orjson

from redrive.messages.schemes.scheme import (
    BITS,
    LastHeaders,
    Newest,
    Parts,
    Reader,
    RecordPart,
    Scheme,
    SchemePart,
    Stamp,
    class_name,
    decimal,
    int32be,
    int64be,
    minimal_integer,
    root_cause,
    text,
    time,
    varint,
)

# Headers that Spring Cloud Stream writes into a value with headerMode=embeddedHeaders
# (EmbeddedHeaderUtils), as before Kafka had headers. The value begins with 0xff and the number of
# headers. Each header has the length of its name in a byte, its name, the length of its value in
# four bytes, and its value as JSON. The payload follows.

MARK: Final = b"\xff"
"""Prefix of a value with embedded headers."""
_SIZE: Final = struct.Struct(">i")
_LONG: Final = 2**63


class _Embedded(NamedTuple):
    headers: Mapping[bytes, bytes]
    """JSON by name; the last of repeated names counts, as in Spring."""
    payload: bytes


@lru_cache(maxsize=2)
def _parse_embedded(value: bytes) -> _Embedded | None:
    """A value with the prefix, parsed; None if it has another form after all."""
    headers: dict[bytes, bytes] = {}
    at = len(MARK) + 1
    try:
        for _ in range(value[len(MARK)]):
            end = at + 1 + value[at]
            name = value[at + 1 : end]
            (size,) = _SIZE.unpack_from(value, end)
            at = end + _SIZE.size + size
            if size < 0 or at > len(value):
                return None
            headers[name] = value[at - size : at]
    except (IndexError, struct.error):
        return None
    return _Embedded(headers, value[at:])


def _embedded(value: bytes) -> _Embedded | None:
    return _parse_embedded(value) if value.startswith(MARK) else None


def has_embedded(value: bytes, names: frozenset[str]) -> bool:
    """Whether any of some headers is embedded in a value."""
    embedded = _embedded(value)
    return embedded is not None and any(name.encode() in embedded.headers for name in names)


def embedded_text(name: str, read: Reader = text) -> SchemePart:
    """A part of a scheme in an embedded header with a JSON text."""

    def read_value(value: bytes) -> str | int | None:
        content = _embedded_content(value, name)
        return read(content.encode()) if isinstance(content, str) else None

    return SchemePart("", read_value, RecordPart.VALUE)


def embedded_number(name: str) -> SchemePart:
    """A part of a scheme in an embedded header with a JSON number."""

    def read_value(value: bytes) -> int | None:
        number = _embedded_content(value, name)
        is_number = isinstance(number, int) and not isinstance(number, bool)
        return number if is_number and -_LONG <= number < _LONG else None

    return SchemePart("", read_value, RecordPart.VALUE)


def _embedded_content(value: bytes, name: str) -> Any:  # noqa: ANN401 - any JSON
    embedded = _embedded(value)
    raw = None if embedded is None else embedded.headers.get(name.encode())
    try:
        return None if raw is None else orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None


def without_embedded(value: bytes, names: frozenset[str]) -> bytes:
    """A value without some of its embedded headers; the payload alone if none are left.

    Raises:
        LookupError: No header is embedded in it.
    """
    embedded = _embedded(value)
    if embedded is None:
        raise LookupError("the value has no embedded headers")
    kept = [
        (name, raw)
        for name, raw in embedded.headers.items()
        if name.decode(errors="replace") not in names
    ]
    if not kept:
        return embedded.payload
    written = [bytes([len(name)]) + name + _SIZE.pack(len(raw)) + raw for name, raw in kept]
    return b"".join([MARK, bytes([len(kept)]), *written, embedded.payload])


# uForwarder's dead-letter topics (dlq_metadata.proto): a protobuf message as the record's key. The
# record's own key is a field of that message. Only the header original_cluster identifies such a
# record, as nearly any bytes may be a key.

_ATTEMPTS, _TOPIC, _PARTITION, _OFFSET, _NANOSECONDS, _KEY = range(1, 7)
"""Numbers of the fields."""
_VARINT, _BYTES = 0, 2
"""Protobuf's wire types."""


@lru_cache(maxsize=64)
def _uforwarder_fields(key: bytes) -> dict[int, int | bytes] | None:
    fields: dict[int, int | bytes] = {}
    at = 0
    try:
        while at < len(key):
            tag, at = varint(key, at)
            number, at = varint(key, at)
            if tag & 7 == _VARINT:
                fields[tag >> 3] = number - (1 << BITS) if number >> (BITS - 1) else number
            elif tag & 7 == _BYTES and at + number <= len(key):
                fields[tag >> 3] = key[at : at + number]
                at += number
            else:
                return None
    except (IndexError, ValueError):
        return None
    return fields if isinstance(fields.get(_TOPIC), bytes) else None


def _uforwarder_number(field: int) -> Reader:
    # Protobuf leaves out fields with 0.
    def read(key: bytes) -> int | None:
        fields = _uforwarder_fields(key)
        number = None if fields is None else fields.get(field, 0)
        return number if isinstance(number, int) else None

    return read


def _uforwarder_topic(key: bytes) -> str | None:
    topic = (_uforwarder_fields(key) or {}).get(_TOPIC)
    return topic.decode("utf-8", "replace") if isinstance(topic, bytes) else None


def _uforwarder_timestamp(key: bytes) -> int | None:
    nanoseconds = (_uforwarder_fields(key) or {}).get(_NANOSECONDS)
    return nanoseconds // 1_000_000 if isinstance(nanoseconds, int) else None


def _uforwarder_key(key: bytes | None, _headers: LastHeaders) -> bytes | None:
    fields = _uforwarder_fields(key) if key is not None else None
    if fields is None:
        return key
    original = fields.get(_KEY)
    return original if isinstance(original, bytes) and original else None


UFORWARDER: Final = Scheme(
    name="uforwarder",
    leading=("original_cluster",),
    names=frozenset({"original_cluster"}),
    original_key=_uforwarder_key,
    parts={
        "origin.topic": (SchemePart("", _uforwarder_topic, RecordPart.KEY),),
        "origin.partition": (SchemePart("", _uforwarder_number(_PARTITION), RecordPart.KEY),),
        "origin.offset": (SchemePart("", _uforwarder_number(_OFFSET), RecordPart.KEY),),
        "origin.timestamp": (SchemePart("", _uforwarder_timestamp, RecordPart.KEY),),
        "attempts": (SchemePart("", _uforwarder_number(_ATTEMPTS), RecordPart.KEY),),
    },
)
"""uForwarder."""


def _parts(prefix: str, headers: Mapping[str, str]) -> dict[str, tuple[SchemePart, ...]]:
    """Parts that are the text of one header each, by its name after the prefix."""
    return {part: (SchemePart(prefix + name),) for part, name in headers.items()}


def _origin(
    prefix: str, *, partition: Reader = decimal, offset: Reader = decimal
) -> dict[str, tuple[SchemePart, ...]]:
    """The three origin headers that nearly every scheme has, with a common prefix."""
    return {
        "origin.topic": (SchemePart(f"{prefix}topic"),),
        "origin.partition": (SchemePart(f"{prefix}partition", partition),),
        "origin.offset": (SchemePart(f"{prefix}offset", offset),),
    }


def _names(prefix: str, names: str) -> frozenset[str]:
    return frozenset(prefix + name for name in names.split())


# Kafka Connect's sink connectors with errors.deadletterqueue.context.headers.enable (KIP-298,
# DeadLetterQueueReporter). The message is null if the exception has none; a stack trace that
# cannot be rendered is left out.

_ERRORS: Final = "__connect.errors."
CONNECT: Final = Scheme(
    name="connect",
    stamp=Stamp.RECORD,
    leading=(f"{_ERRORS}topic",),
    prefixes=(_ERRORS,),
    parts={
        **_origin(_ERRORS),
        **_parts(
            _ERRORS,
            {
                "connector": "connector.name",
                "task": "task.id",
                "stage": "stage",
                "error.class": "exception.class.name",
                "error.message": "exception.message",
                "error.stack": "exception.stacktrace",
            },
        ),
        "error.root_class": (
            SchemePart(f"{_ERRORS}exception.stacktrace", root_cause, is_wordy=True),
        ),
    },
)

# Spring for Apache Kafka (KafkaHeaders, DeadLetterPublishingRecoverer). Partition, offset and
# timestamp are numbers in bytes. The headers about the original record are appended at every
# failure, those about the exception replaced. If a key cannot be read, the exception has its own
# headers.

_GROUP: Final = "kafka_dlt-original-consumer-group"
"""The header of the consumer group; ``@RetryableTopic`` has it under the same name."""


def _spring_leading(prefix: str) -> tuple[str, ...]:
    names = ("original-topic", "exception-fqcn", "key-exception-fqcn")
    return tuple(prefix + name for name in names)


def _spring_parts(prefix: str) -> Parts:
    def of_exception(name: str) -> tuple[SchemePart, ...]:
        return SchemePart(f"{prefix}exception-{name}"), SchemePart(f"{prefix}key-exception-{name}")

    return {
        **_origin(f"{prefix}original-", partition=int32be, offset=int64be),
        "origin.timestamp": (SchemePart(f"{prefix}original-timestamp", int64be),),
        "group": (SchemePart(_GROUP),),
        "error.class": of_exception("fqcn"),
        # The listener's wrapper is useless, its cause is not.
        "error.root_class": (SchemePart(f"{prefix}exception-cause-fqcn"),),
        "error.message": of_exception("message"),
        "error.stack": of_exception("stacktrace"),
    }


_SPRING_COPIES: Final = _names("springDeserializerException", "Key Value")
"""A recoverer may keep these: the exception as Java serialises it, with the bytes that failed."""

SPRING_DLT: Final = Scheme(
    name="spring-dlt",
    stamp=Stamp.FAILURE,
    leading=_spring_leading("kafka_dlt-"),
    names=_SPRING_COPIES,
    prefixes=("kafka_dlt-",),
    copies=_SPRING_COPIES,
    parts=_spring_parts("kafka_dlt-"),
)

# The retry and dead-letter topics of @RetryableTopic (DeadLetterPublishingRecovererFactory,
# RetryTopicHeaders). The recoverer uses other names here, except for the consumer group. The
# first headers about the original record are kept, so that they name the main topic. Attempts have
# four bytes, one in old versions; timestamps are written by BigInteger.toByteArray.

_MOST_ATTEMPTS: Final = 32767
"""Spring's maximum number of attempts."""


def _attempts(raw: bytes) -> int | None:
    number = raw[0] if len(raw) == 1 else int32be(raw)
    return None if number is None or number < 0 else min(number, _MOST_ATTEMPTS)


SPRING_RETRY_TOPIC: Final = Scheme(
    name="spring-retry-topic",
    stamp=Stamp.FAILURE,
    leading=_spring_leading("kafka_"),
    names=_SPRING_COPIES | {_GROUP},
    copies=_SPRING_COPIES,
    prefixes=("kafka_original-", "kafka_exception-", "kafka_key-exception-", "retry_topic-"),
    parts={
        **_spring_parts("kafka_"),
        "origin.timestamp": (
            SchemePart("kafka_original-timestamp", int64be),
            SchemePart("retry_topic-original-timestamp", minimal_integer),
        ),
        "attempts": (SchemePart("retry_topic-attempts", _attempts),),
        "first_failed_at": (SchemePart("retry_topic-original-timestamp", minimal_integer),),
    },
)

# Spring Cloud Stream's Kafka binder with enableDlq (KafkaMessageChannelBinder). Partition, offset
# and timestamp are numbers in bytes. With headerMode=embeddedHeaders the same names are in the
# value, and replaced each time. Others write headers that begin with x-original-, so each is named,
# and one of them alone is not enough.

_CLOUD_LEADING: Final = ("x-original-topic", "x-exception-fqcn")
_CLOUD_HEADERS: Final = _names(
    "x-original-", "topic partition offset timestamp timestamp-type"
) | _names("x-exception-", "fqcn message stacktrace")
_CLOUD_ERRORS: Final = {
    "error.class": "x-exception-fqcn",
    "error.message": "x-exception-message",
    "error.stack": "x-exception-stacktrace",
}
SPRING_CLOUD_STREAM: Final = Scheme(
    name="spring-cloud-stream",
    stamp=Stamp.FAILURE,
    leading=_CLOUD_LEADING,
    least_headers=2,
    names=_CLOUD_HEADERS,
    parts={
        **_origin("x-original-", partition=int32be, offset=int64be),
        "origin.timestamp": (SchemePart("x-original-timestamp", int64be),),
        "error.root_class": (SchemePart("x-exception-stacktrace", root_cause, is_wordy=True),),
        **_parts("", _CLOUD_ERRORS),
    },
)
SPRING_CLOUD_STREAM_EMBEDDED: Final = Scheme(
    name="spring-cloud-stream",
    stamp=Stamp.FAILURE,
    parts={
        "origin.topic": (embedded_text("x-original-topic"),),
        "origin.partition": (embedded_number("x-original-partition"),),
        "origin.offset": (embedded_number("x-original-offset"),),
        "origin.timestamp": (embedded_number("x-original-timestamp"),),
        "error.root_class": (embedded_text("x-exception-stacktrace", root_cause),),
        **{part: (embedded_text(name),) for part, name in _CLOUD_ERRORS.items()},
    },
    begins=MARK,
    is_in_value=partial(has_embedded, names=frozenset(_CLOUD_LEADING)),
    original_value=partial(without_embedded, names=_CLOUD_HEADERS),
)

# Kafka Streams (KIP-1034, ExceptionHandlerUtils). exception is the class alone in 4.2, what
# Throwable.toString gives in the KIP. The record's headers come first. If other handlers add the
# processor node and the task, they are read too. If a result could not be produced, key and value
# are missing, as the record was freed before (RecordCollectorImpl.send).

_STREAMS: Final = "__streams.errors."
KAFKA_STREAMS: Final = Scheme(
    name="kafka-streams",
    stamp=Stamp.RECORD,
    can_point=True,
    drops_headers=True,  # they are copied as the application's processors left them
    leading=(f"{_STREAMS}exception", f"{_STREAMS}topic"),
    prefixes=(_STREAMS,),
    parts={
        **_origin(_STREAMS),
        "task": (SchemePart(f"{_STREAMS}task.id"),),
        "stage": (SchemePart(f"{_STREAMS}processor.node.id"),),
        "error.class": (SchemePart(f"{_STREAMS}exception", class_name, is_wordy=True),),
        "error.message": (SchemePart(f"{_STREAMS}message"),),
        "error.stack": (SchemePart(f"{_STREAMS}stacktrace"),),
    },
)

# Share groups' dead-letter topics, which the broker writes (KIP-1191, ShareGroupDLQStateManager).
# The topic is a topic id if the name is unknown. Key and value exist only if the group copies
# them; else the dead letter refers to its original.

_SHARE: Final = "__dlq.errors."
SHARE_GROUP: Final = Scheme(
    name="share-group",
    leading=(f"{_SHARE}topic",),
    prefixes=(_SHARE,),
    can_point=True,
    drops_headers=True,
    parts={
        **_origin(_SHARE),
        "group": (SchemePart(f"{_SHARE}group"),),
        "attempts": (SchemePart(f"{_SHARE}delivery.count", decimal),),
        "error.message": (SchemePart(f"{_SHARE}message"),),
    },
)

# SmallRye Reactive Messaging (Quarkus): dead-letter-queue (KafkaDeadLetterQueue) and
# delayed-retry-topic (KafkaDelayedRetryTopic). New headers come before those that the record had,
# so that the first of repeated ones is the newest, except for the count of retries: it is appended
# each time, so the largest counts. Old versions write only the reason and its cause. What cannot be
# deserialised has headers about that too, with the bytes, which would be added again each time.

_SMALLRYE_DESERIALIZATION: Final = "deserialization-failure-"
_SMALLRYE_COPIES: Final = _names(_SMALLRYE_DESERIALIZATION, "data key-data value-data")
_SMALLRYE: Final = "reason cause exception-class-name cause-class-name topic partition offset"


def _smallrye_parts(prefix: str) -> dict[str, tuple[SchemePart, ...]]:
    return {
        **_origin(prefix),
        "error.class": (SchemePart(f"{prefix}exception-class-name"),),
        "error.root_class": (SchemePart(f"{prefix}cause-class-name"),),
        "error.message": (SchemePart(f"{prefix}reason"),),
    }


SMALLRYE_DEAD_LETTER: Final = Scheme(
    name="smallrye-dead-letter",
    stamp=Stamp.FAILURE,
    leading=("dead-letter-reason", "dead-letter-topic"),
    names=_names("dead-letter-", _SMALLRYE),
    prefixes=(_SMALLRYE_DESERIALIZATION,),
    copies=_SMALLRYE_COPIES,
    newest=Newest.FIRST,
    parts=_smallrye_parts("dead-letter-"),
)
SMALLRYE_DELAYED_RETRY: Final = Scheme(
    name="smallrye-delayed-retry",
    stamp=Stamp.FAILURE,
    leading=("delayed-retry-topic", "delayed-retry-reason"),
    names=_names(
        "delayed-retry-", f"{_SMALLRYE} count original-timestamp first-processing-timestamp"
    ),
    prefixes=(_SMALLRYE_DESERIALIZATION,),
    copies=_SMALLRYE_COPIES,
    newest=Newest.FIRST,
    parts={
        **_smallrye_parts("delayed-retry-"),
        "origin.timestamp": (SchemePart("delayed-retry-original-timestamp", decimal),),
        "attempts": (SchemePart("delayed-retry-count", decimal, is_count=True),),
        "first_failed_at": (SchemePart("delayed-retry-first-processing-timestamp", decimal),),
    },
)

# Karafka Pro's dead-letter topics (Ruby: Dlq::Default and its change log). Headers are a map, so
# none is repeated. The names started with original-, then with original_, now with source_. If the
# key of the record is the number of the partition, a header has the original. Other programs use
# these names too, so one of them alone is not enough.


def _spellings(name: str) -> tuple[str, ...]:
    return f"source_{name}", f"original_{name}", f"original-{name.replace('_', '-')}"


def _karafka(name: str, read: Reader = text) -> tuple[SchemePart, ...]:
    return tuple(SchemePart(header, read) for header in _spellings(name))


def _karafka_key(key: bytes | None, headers: LastHeaders) -> bytes | None:
    # A record without a key has an empty header.
    original = next((headers[name] for name in _spellings("key") if name in headers), key)
    return original or None


_KARAFKA: Final = ("topic", "partition", "offset", "consumer_group", "attempts", "key", "trace_id")
KARAFKA: Final = Scheme(
    name="karafka",
    stamp=Stamp.FAILURE,
    leading=_spellings("topic"),
    least_headers=2,
    names=frozenset(chain.from_iterable(map(_spellings, _KARAFKA))),
    original_key=_karafka_key,
    parts={
        "origin.topic": _karafka("topic"),
        "origin.partition": _karafka("partition", decimal),
        "origin.offset": _karafka("offset", decimal),
        "group": _karafka("consumer_group"),
        "attempts": _karafka("attempts", decimal),
    },
)

# Watermill's poison queue (Go: middleware/poison.go).

WATERMILL: Final = Scheme(
    name="watermill",
    stamp=Stamp.FAILURE,
    leading=("reason_poisoned", "topic_poisoned"),
    names=frozenset(
        {"reason_poisoned", "topic_poisoned", "handler_poisoned", "subscriber_poisoned"}
    ),
    parts={
        "origin.topic": (SchemePart("topic_poisoned"),),
        "stage": (SchemePart("handler_poisoned"),),
        "task": (SchemePart("subscriber_poisoned"),),
        "error.message": (SchemePart("reason_poisoned"),),
    },
)

# Wolverine's dead-letter topics (.NET, its documentation of dead-letter queues). The time is a date
# or milliseconds. The destination is an address such as kafka://topic/orders. Other programs use
# its names too, so one of them alone is not enough.

WOLVERINE: Final = Scheme(
    name="wolverine",
    leading=("exception-type",),
    least_headers=2,
    names=_names("exception-", "type message stack")
    | {"failed-at", "original-destination", "attempts"},
    parts={
        "origin.topic": (
            SchemePart(
                "original-destination", lambda raw: text(raw).removeprefix("kafka://topic/")
            ),
        ),
        "error.class": (SchemePart("exception-type"),),
        "error.message": (SchemePart("exception-message"),),
        "error.stack": (SchemePart("exception-stack"),),
        "attempts": (SchemePart("attempts", decimal),),
        "failed_at": (SchemePart("failed-at", time),),
    },
)

# Dead letters of RabbitMQ that a bridge put on Kafka (its documentation of dead-letter exchanges).
# x-death is a list with an entry for each queue and reason, the newest first; bridges write it as
# JSON or not at all.


@lru_cache(maxsize=64)
def _newest_death(raw: bytes) -> Mapping[str, Any]:
    try:
        deaths = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    newest = deaths[0] if isinstance(deaths, list) and deaths else deaths
    return newest if isinstance(newest, dict) else {}


def _death_text(member: str) -> Reader:
    def read(raw: bytes) -> str | None:
        value = _newest_death(raw).get(member)
        return value if isinstance(value, str) else None

    return read


def _death_time(raw: bytes) -> int | None:
    """The time of the death: a date, or the seconds of an AMQP timestamp."""
    value = _newest_death(raw).get("time")
    if isinstance(value, int) and not isinstance(value, bool):
        return value * 1000
    return time(value.encode(errors="replace")) if isinstance(value, str) else None


def _death(read: Reader, *others: str) -> tuple[SchemePart, ...]:
    return SchemePart("x-death", read, is_wordy=True), *map(SchemePart, others)


RABBITMQ: Final = Scheme(
    name="rabbitmq",
    leading=("x-death", "x-first-death-queue", "x-first-death-reason"),
    names=frozenset({"x-death"}),
    prefixes=("x-first-death-", "x-last-death-"),
    parts={
        "origin.topic": _death(_death_text("queue"), "x-last-death-queue", "x-first-death-queue"),
        "first_origin.topic": (SchemePart("x-first-death-queue"),),
        "error.message": _death(
            _death_text("reason"), "x-last-death-reason", "x-first-death-reason"
        ),
        "attempts": _death(lambda raw: decimal(str(_newest_death(raw).get("count", "")).encode())),
        "failed_at": _death(_death_time),
    },
)

# Dead letters of Azure Service Bus that a bridge put on Kafka: the application properties that it
# adds. The reason is a code such as MaxDeliveryCountExceeded; the description is for people.

AZURE_SERVICE_BUS: Final = Scheme(
    name="azure-service-bus",
    leading=("DeadLetterReason",),
    names=_names("DeadLetter", "Reason ErrorDescription Source"),
    parts={
        "origin.topic": (SchemePart("DeadLetterSource"),),
        "error.class": (SchemePart("DeadLetterReason"),),
        "error.message": (SchemePart("DeadLetterErrorDescription"),),
    },
)

SCHEMES: Final = (
    *(CONNECT, SPRING_DLT, SPRING_RETRY_TOPIC, SPRING_CLOUD_STREAM, KAFKA_STREAMS, SHARE_GROUP),
    *(SMALLRYE_DEAD_LETTER, SMALLRYE_DELAYED_RETRY, KARAFKA, WATERMILL, WOLVERINE, UFORWARDER),
    *(RABBITMQ, AZURE_SERVICE_BUS),
)
"""Every known scheme of other programs, besides MQ's two forms."""

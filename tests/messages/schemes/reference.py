"""A naive reading of dead letters, written from the table of the specification, and samples for it.

It looks at one message at a time, one name at a time, and knows no layouts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from hypothesis import strategies as st

from redrive.messages import Headers

Decode = Callable[[bytes], Any]
LONG = 2**63


def text(raw: bytes) -> str:
    """UTF-8 with U+FFFD."""
    return raw.decode("utf-8", errors="replace")


def decimal(raw: bytes) -> int | None:
    """Digits of a number of 64 bits."""
    if not re.fullmatch(rb" *[+-]?[0-9]{1,19} *", raw):
        return None
    number = int(raw.decode())
    return number if -LONG <= number < LONG else None


def partition(raw: bytes) -> int | None:
    """Digits of a number of a partition."""
    number = decimal(raw)
    return number if number is not None and -1 <= number < 2**31 else None


def fixed(length: int) -> Decode:
    """Big-endian, exactly so many bytes."""
    return lambda raw: int.from_bytes(raw, "big", signed=True) if len(raw) == length else None


def partition_in_bytes(raw: bytes) -> int | None:
    """Four bytes that are the number of a partition."""
    number = fixed(4)(raw)
    return number if number is not None and number >= -1 else None


def minimal(raw: bytes) -> int | None:
    """A number that Java's BigInteger wrote."""
    return int.from_bytes(raw, "big", signed=True) if 1 <= len(raw) <= 8 else None


def attempts(raw: bytes) -> int | None:
    """Spring's attempts: one byte or four, capped."""
    if len(raw) == 1:
        return raw[0]
    number = fixed(4)(raw)
    return None if number is None or number < 0 else min(number, 32767)


def before_colon(raw: bytes) -> str | None:
    """The class in what toString gives."""
    return raw[:1024].decode("utf-8", errors="replace").split(":")[0].strip() or None


def last_cause(raw: bytes) -> str | None:
    """The class of the last line that begins with ``Caused by:``."""
    whole = raw.decode("utf-8", errors="replace")
    if "\n" not in whole:
        whole = whole.replace("Caused by: ", "\nCaused by: ")
    lines = whole.split("\n")[1:]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    if not causes:
        return None
    return re.split(r"[:\s]", causes[-1].removeprefix("Caused by: ")[:1024])[0] or None


def instant(raw: bytes) -> int | None:
    """Milliseconds or a date."""
    if decimal(raw) is not None:
        return decimal(raw)
    try:
        moment = datetime.fromisoformat(raw.decode("ascii").strip())
        return round(moment.timestamp() * 1000) if moment.tzinfo else None
    except ValueError:
        return None


class Naive(NamedTuple):
    """A scheme as the specification has it."""

    leading: str
    names: dict[str, tuple[tuple[str, Decode], ...]]
    """Part -> headers that tell it, in order of preference."""
    newest: int = -1
    """Which of several occurrences: the last or the first."""


def _origin(prefix: str, one: Decode = partition, two: Decode = decimal) -> dict[str, Any]:
    return {
        "origin.topic": ((f"{prefix}topic", text),),
        "origin.partition": ((f"{prefix}partition", one),),
        "origin.offset": ((f"{prefix}offset", two),),
    }


def _spring(prefix: str) -> dict[str, Any]:
    return {
        **_origin(f"{prefix}original-", partition_in_bytes, fixed(8)),
        "origin.timestamp": ((f"{prefix}original-timestamp", fixed(8)),),
        "group": (("kafka_dlt-original-consumer-group", text),),
        "error_class": ((f"{prefix}exception-fqcn", text),),
        "error_root_class": (
            (f"{prefix}exception-cause-fqcn", text),
            (f"{prefix}exception-fqcn", text),
        ),
        "error_message": ((f"{prefix}exception-message", text),),
        "error_stack": ((f"{prefix}exception-stacktrace", text),),
    }


C, K, S = "__connect.errors.", "__streams.errors.", "__dlq.errors."
SCHEMES = {
    "connect": Naive(
        f"{C}topic",
        {
            **_origin(C),
            "connector": ((f"{C}connector.name", text),),
            "task": ((f"{C}task.id", text),),
            "stage": ((f"{C}stage", text),),
            "error_class": ((f"{C}exception.class.name", text),),
            "error_root_class": (
                (f"{C}exception.stacktrace", last_cause),
                (f"{C}exception.class.name", text),
            ),
            "error_message": ((f"{C}exception.message", text),),
            "error_stack": ((f"{C}exception.stacktrace", text),),
        },
    ),
    "spring-dlt": Naive("kafka_dlt-original-topic", _spring("kafka_dlt-")),
    "spring-retry-topic": Naive(
        "kafka_original-topic",
        {
            **_spring("kafka_"),
            "attempts": (("retry_topic-attempts", attempts),),
            "first_failed_at": (("retry_topic-original-timestamp", minimal),),
        },
    ),
    "spring-cloud-stream": Naive(
        "x-original-topic",
        {
            **_origin("x-original-", partition_in_bytes, fixed(8)),
            "origin.timestamp": (("x-original-timestamp", fixed(8)),),
            "error_class": (("x-exception-fqcn", text),),
            "error_root_class": (
                ("x-exception-stacktrace", last_cause),
                ("x-exception-fqcn", text),
            ),
            "error_message": (("x-exception-message", text),),
            "error_stack": (("x-exception-stacktrace", text),),
        },
    ),
    "kafka-streams": Naive(
        f"{K}exception",
        {
            **_origin(K),
            "error_class": ((f"{K}exception", before_colon),),
            "error_root_class": ((f"{K}exception", before_colon),),
            "error_message": ((f"{K}message", text),),
            "error_stack": ((f"{K}stacktrace", text),),
        },
    ),
    "share-group": Naive(
        f"{S}topic",
        {
            **_origin(S),
            "group": ((f"{S}group", text),),
            "attempts": ((f"{S}delivery.count", decimal),),
            "error_message": ((f"{S}message", text),),
        },
    ),
    "smallrye-dead-letter": Naive(
        "dead-letter-reason",
        {
            **_origin("dead-letter-"),
            "error_class": (("dead-letter-exception-class-name", text),),
            "error_root_class": (
                ("dead-letter-cause-class-name", text),
                ("dead-letter-exception-class-name", text),
            ),
            "error_message": (("dead-letter-reason", text),),
        },
        0,
    ),
    "karafka": Naive(
        "source_topic",
        {
            **_origin("source_"),
            "group": (("source_consumer_group", text),),
            "attempts": (("source_attempts", decimal),),
        },
    ),
    "watermill": Naive(
        "reason_poisoned",
        {
            "origin.topic": (("topic_poisoned", text),),
            "stage": (("handler_poisoned", text),),
            "error_message": (("reason_poisoned", text),),
        },
    ),
    "wolverine": Naive(
        "exception-type",
        {
            "origin.topic": (("original-destination", text),),
            "error_class": (("exception-type", text),),
            "error_root_class": (("exception-type", text),),
            "error_message": (("exception-message", text),),
            "error_stack": (("exception-stack", text),),
            "attempts": (("attempts", decimal),),
            "failed_at": (("failed-at", instant),),
        },
    ),
}
"""Schemes that tell everything by headers."""


def read(scheme: str, headers: Headers, newest: int | None = None) -> dict[str, Any]:
    """What the headers of one scheme tell, by part."""
    naive = SCHEMES[scheme]
    newest = naive.newest if newest is None else newest
    told: dict[str, Any] = {}
    for part, places in naive.names.items():
        told[part] = None
        for name, decode in places:
            found = [raw for header, raw in headers if header == name]
            raw = found[newest] if found else None
            if raw is not None and told[part] is None:
                told[part] = decode(raw)
    return told


_raws = st.one_of(
    st.none(),
    st.sampled_from(
        [
            b"",
            b"orders",
            b"a.B: c",
            b"a.B\n\tat x.Y(Z.java:1)\nCaused by: c.D: e\nCaused by: f.G\n\t... 5 more",
            b"a.B\n\tSuppressed: x\n\tCaused by: y",
            b"a.B: x Caused by: c.D: y",
            b"2026-01-15T12:34:56Z",
            b"\xff\xfe",
            b"-1",
            b" 7 ",
            b"3000000000",
            b"99999999999999999999",
        ]
    ),
    st.integers(-(2**63), 2**63 - 1).map(lambda number: str(number).encode()),
    st.integers(0, 2**31 - 1).map(lambda number: number.to_bytes(4, "big")),
    st.integers(0, 2**63 - 1).map(lambda number: number.to_bytes(8, "big")),
    st.integers(-(2**47), 2**47 - 1).map(lambda number: number.to_bytes(6, "big", signed=True)),
    st.binary(max_size=9),
)


@st.composite
def headers_of(draw: st.DrawFn, scheme: str) -> Headers:
    """Headers of one scheme, repeated and malformed, the leading one, and some others."""
    naive = SCHEMES[scheme]
    names = sorted({name for places in naive.names.values() for name, _ in places})
    chosen = draw(st.lists(st.sampled_from([*names, "trace", "content-type"]), max_size=12))
    chosen.insert(draw(st.integers(0, len(chosen))), naive.leading)
    return [(name, draw(_raws)) for name in chosen]

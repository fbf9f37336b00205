"""Dead letters of RabbitMQ that a bridge put on Kafka.

Source: RabbitMQ's documentation of dead-letter exchanges. ``x-death`` is a list with an entry for
each queue and reason, the newest first; bridges write it as JSON or not at all. The headers
``x-first-death-*`` and ``x-last-death-*`` are text.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from redrive.messages.schemes.encodings import Reader, decimal, time
from redrive.messages.schemes.scheme import Part, Scheme

__all__ = ["RABBITMQ"]

_DEATHS: Final = "x-death"


@lru_cache(maxsize=64)
def _newest(raw: bytes) -> Mapping[str, Any]:
    """The newest entry of ``x-death``; empty if it can't be read."""
    try:
        deaths = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    newest = deaths[0] if isinstance(deaths, list) and deaths else deaths
    return newest if isinstance(newest, dict) else {}


def _text(member: str) -> Reader:
    def read(raw: bytes) -> str | None:
        told = _newest(raw).get(member)
        return told if isinstance(told, str) else None

    return read


def _count(raw: bytes) -> int | None:
    return decimal(str(_newest(raw).get("count", "")).encode())


def _time(raw: bytes) -> int | None:
    """The time of the death: a date, or the seconds of an AMQP timestamp."""
    told = _newest(raw).get("time")
    if isinstance(told, int) and not isinstance(told, bool):
        return told * 1000
    return time(told.encode(errors="replace")) if isinstance(told, str) else None


def _death(read: Reader) -> Part:
    return Part(_DEATHS, read, is_wordy=True)


RABBITMQ: Final = Scheme(
    name="rabbitmq",
    leading=(_DEATHS, "x-first-death-queue", "x-first-death-reason"),
    names=frozenset({_DEATHS}),
    prefixes=("x-first-death-", "x-last-death-"),
    parts={
        "origin.topic": (
            _death(_text("queue")),
            Part("x-last-death-queue"),
            Part("x-first-death-queue"),
        ),
        "first_origin.topic": (Part("x-first-death-queue"),),
        "error.message": (
            _death(_text("reason")),
            Part("x-last-death-reason"),
            Part("x-first-death-reason"),
        ),
        "attempts": (_death(_count),),
        "failed_at": (_death(_time),),
    },
)
"""RabbitMQ."""

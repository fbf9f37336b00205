"""Wolverine's dead-letter topics (.NET).

Source: Wolverine's documentation of dead-letter queues. All values are text; the time is a date or
milliseconds. The destination is an address such as ``kafka://topic/orders``.
"""

from __future__ import annotations

from typing import Final

from redrive.messages.schemes.encodings import decimal, text, time
from redrive.messages.schemes.scheme import Part, Scheme

__all__ = ["WOLVERINE"]


def _topic(raw: bytes) -> str:
    return text(raw).removeprefix("kafka://topic/")


WOLVERINE: Final = Scheme(
    name="wolverine",
    leading=("exception-type",),
    names=frozenset(
        {
            "exception-type",
            "exception-message",
            "exception-stack",
            "failed-at",
            "original-destination",
            "attempts",
        }
    ),
    parts={
        "origin.topic": (Part("original-destination", _topic),),
        "error.class": (Part("exception-type"),),
        "error.message": (Part("exception-message"),),
        "error.stack": (Part("exception-stack"),),
        "attempts": (Part("attempts", decimal),),
        "failed_at": (Part("failed-at", time),),
    },
)
"""Wolverine."""

"""Watermill's poison queue (Go).

Source: Watermill's ``middleware/poison.go``. All values are text.
"""

from __future__ import annotations

from typing import Final

from redrive.messages.schemes.scheme import Part, Scheme

__all__ = ["WATERMILL"]

WATERMILL: Final = Scheme(
    name="watermill",
    leading=("reason_poisoned", "topic_poisoned"),
    names=frozenset(
        {"reason_poisoned", "topic_poisoned", "handler_poisoned", "subscriber_poisoned"}
    ),
    parts={
        "origin.topic": (Part("topic_poisoned"),),
        "stage": (Part("handler_poisoned"),),
        "task": (Part("subscriber_poisoned"),),
        "error.message": (Part("reason_poisoned"),),
    },
)
"""Watermill."""

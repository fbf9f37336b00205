"""SmallRye Reactive Messaging (Quarkus) with the failure strategy ``dead-letter-queue``.

Source: SmallRye's ``KafkaDeadLetterQueue``. All values are text. New headers come before those that
the record had, so that of repeated ones the first is the newest. Old versions write the reason and
its cause alone.
"""

from __future__ import annotations

from typing import Final

from redrive.messages.schemes.scheme import Newest, Part, Scheme, origin_headers

__all__ = ["SMALLRYE_DEAD_LETTER"]

_PREFIX: Final = "dead-letter-"

SMALLRYE_DEAD_LETTER: Final = Scheme(
    name="smallrye-dead-letter",
    leading=(f"{_PREFIX}reason", f"{_PREFIX}topic"),
    names=frozenset(
        _PREFIX + name
        for name in (
            "reason",
            "cause",
            "exception-class-name",
            "cause-class-name",
            "topic",
            "partition",
            "offset",
        )
    ),
    newest=Newest.FIRST,
    parts={
        **origin_headers(_PREFIX),
        "error.class": (Part(f"{_PREFIX}exception-class-name"),),
        "error.root_class": (Part(f"{_PREFIX}cause-class-name"),),
        "error.message": (Part(f"{_PREFIX}reason"),),
    },
)
"""SmallRye's dead-letter topics."""

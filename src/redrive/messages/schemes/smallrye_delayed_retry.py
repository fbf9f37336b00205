"""SmallRye Reactive Messaging (Quarkus) with the failure strategy ``delayed-retry-topic``.

Source: SmallRye's ``KafkaDelayedRetryTopic``. As with its dead letters the first of repeated
headers is the newest, but for the count: it is appended anew each time, so the largest holds.
"""

from __future__ import annotations

from typing import Final

from redrive.messages.schemes.encodings import decimal
from redrive.messages.schemes.scheme import Newest, Part, Scheme, origin_headers

__all__ = ["SMALLRYE_DELAYED_RETRY"]

_PREFIX: Final = "delayed-retry-"

SMALLRYE_DELAYED_RETRY: Final = Scheme(
    name="smallrye-delayed-retry",
    leading=(f"{_PREFIX}topic", f"{_PREFIX}reason"),
    names=frozenset(
        _PREFIX + name
        for name in (
            "count",
            "original-timestamp",
            "first-processing-timestamp",
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
        "origin.timestamp": (Part(f"{_PREFIX}original-timestamp", decimal),),
        "error.class": (Part(f"{_PREFIX}exception-class-name"),),
        "error.root_class": (Part(f"{_PREFIX}cause-class-name"),),
        "error.message": (Part(f"{_PREFIX}reason"),),
        "attempts": (Part(f"{_PREFIX}count", decimal, is_count=True),),
        "first_failed_at": (Part(f"{_PREFIX}first-processing-timestamp", decimal),),
    },
)
"""SmallRye's delayed retries."""

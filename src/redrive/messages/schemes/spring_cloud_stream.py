"""Spring Cloud Stream's Kafka binder with ``enableDlq``.

Source: the binder's ``KafkaMessageChannelBinder``. Partition, offset and timestamp are numbers in
bytes. With ``headerMode=embeddedHeaders`` the same names are in the value, and replaced each time.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from redrive.messages.schemes.embedded_headers import (
    MARK,
    embedded_number,
    embedded_text,
    has_embedded,
    without_embedded,
)
from redrive.messages.schemes.encodings import int32be, int64be, root_cause
from redrive.messages.schemes.scheme import Part, Scheme, origin_headers

__all__ = ["SPRING_CLOUD_STREAM", "SPRING_CLOUD_STREAM_EMBEDDED"]

_NAME: Final = "spring-cloud-stream"
_LEADING: Final = ("x-original-topic", "x-exception-fqcn")
_STACK: Final = "x-exception-stacktrace"
# Others write headers that begin with x-original-, so each is named.
_NAMES: Final = frozenset(
    {
        "x-original-topic",
        "x-original-partition",
        "x-original-offset",
        "x-original-timestamp",
        "x-original-timestamp-type",
        "x-exception-fqcn",
        "x-exception-message",
        _STACK,
    }
)

SPRING_CLOUD_STREAM: Final = Scheme(
    name=_NAME,
    leading=_LEADING,
    names=_NAMES,
    parts={
        **origin_headers("x-original-", partition=int32be, offset=int64be),
        "origin.timestamp": (Part("x-original-timestamp", int64be),),
        "error.class": (Part("x-exception-fqcn"),),
        "error.root_class": (Part(_STACK, root_cause, is_wordy=True),),
        "error.message": (Part("x-exception-message"),),
        "error.stack": (Part(_STACK),),
    },
)
"""Spring Cloud Stream."""

SPRING_CLOUD_STREAM_EMBEDDED: Final = Scheme(
    name=_NAME,
    parts={
        "origin.topic": (embedded_text("x-original-topic"),),
        "origin.partition": (embedded_number("x-original-partition"),),
        "origin.offset": (embedded_number("x-original-offset"),),
        "origin.timestamp": (embedded_number("x-original-timestamp"),),
        "error.class": (embedded_text("x-exception-fqcn"),),
        "error.root_class": (embedded_text(_STACK, root_cause),),
        "error.message": (embedded_text("x-exception-message"),),
        "error.stack": (embedded_text(_STACK),),
    },
    begins=MARK,
    is_in_value=partial(has_embedded, names=frozenset(_LEADING)),
    original_value=partial(without_embedded, names=_NAMES),
)
"""The same with ``headerMode=embeddedHeaders``."""

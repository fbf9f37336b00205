"""Spring Cloud Stream's Kafka binder with ``enableDlq``.

Source: the binder's ``KafkaMessageChannelBinder``. Partition, offset and timestamp are numbers in
bytes. With ``headerMode=embeddedHeaders`` there are no such headers.
"""

from __future__ import annotations

from typing import Final

from redrive.messages.schemes.encodings import int32be, int64be, root_cause
from redrive.messages.schemes.scheme import Part, Scheme, origin_headers

__all__ = ["SPRING_CLOUD_STREAM"]

_STACK: Final = "x-exception-stacktrace"

SPRING_CLOUD_STREAM: Final = Scheme(
    name="spring-cloud-stream",
    leading=("x-original-topic", "x-exception-fqcn"),
    # Others write headers that begin with x-original-, so each is named.
    names=frozenset(
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
    ),
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

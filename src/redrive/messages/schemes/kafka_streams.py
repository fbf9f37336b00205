"""Kafka Streams' dead-letter topic.

Source: KIP-1034 and Streams' ``ExceptionHandlerUtils``. All values are text. ``exception`` is what
``Throwable.toString`` gives, class and message. Where other handlers add the processor node and the
task, they are read too.
"""

from __future__ import annotations

from typing import Final

from redrive.messages.schemes.encodings import class_name
from redrive.messages.schemes.scheme import Part, Scheme, origin_headers

__all__ = ["KAFKA_STREAMS"]

_PREFIX: Final = "__streams.errors."
_EXCEPTION: Final = f"{_PREFIX}exception"

KAFKA_STREAMS: Final = Scheme(
    name="kafka-streams",
    leading=(_EXCEPTION, f"{_PREFIX}topic"),
    prefixes=(_PREFIX,),
    parts={
        **origin_headers(_PREFIX),
        "task": (Part(f"{_PREFIX}task.id"),),
        "stage": (Part(f"{_PREFIX}processor.node.id"),),
        "error.class": (Part(_EXCEPTION, class_name, is_wordy=True),),
        "error.message": (Part(f"{_PREFIX}message"),),
        "error.stack": (Part(f"{_PREFIX}stacktrace"),),
    },
)
"""Kafka Streams."""

"""Kafka Connect's sink connectors with ``errors.deadletterqueue.context.headers.enable``.

Source: KIP-298 and Connect's ``DeadLetterQueueReporter``. All values are text. The message is null
where the exception has none; a stack trace that can't be rendered is left out.
"""

from __future__ import annotations

from typing import Final

from redrive.messages.schemes.encodings import root_cause
from redrive.messages.schemes.scheme import Part, Scheme, origin_headers

__all__ = ["CONNECT"]

_PREFIX: Final = "__connect.errors."
_STACK: Final = f"{_PREFIX}exception.stacktrace"

CONNECT: Final = Scheme(
    name="connect",
    leading=(f"{_PREFIX}topic",),
    prefixes=(_PREFIX,),
    parts={
        **origin_headers(_PREFIX),
        "connector": (Part(f"{_PREFIX}connector.name"),),
        "task": (Part(f"{_PREFIX}task.id"),),
        "stage": (Part(f"{_PREFIX}stage"),),
        "error.class": (Part(f"{_PREFIX}exception.class.name"),),
        "error.root_class": (Part(_STACK, root_cause, is_wordy=True),),
        "error.message": (Part(f"{_PREFIX}exception.message"),),
        "error.stack": (Part(_STACK),),
    },
)
"""Kafka Connect."""

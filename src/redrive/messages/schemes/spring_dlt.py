"""Spring for Apache Kafka: ``DeadLetterPublishingRecoverer`` with its own names of headers.

Source: Spring's ``KafkaHeaders`` and ``DeadLetterPublishingRecoverer``. Partition, offset and
timestamp are numbers in bytes. The headers about the original record are appended at every failure,
those about the exception replaced. Where a key can't be read, the exception has headers of its own.
"""

from __future__ import annotations

from typing import Final

from redrive.messages.schemes.encodings import int32be, int64be
from redrive.messages.schemes.scheme import Part, Parts, Scheme, origin_headers

__all__ = ["GROUP", "SPRING_DLT", "spring_parts"]

GROUP: Final = "kafka_dlt-original-consumer-group"
"""The header of the consumer group; ``@RetryableTopic`` has it under the same name."""
_PREFIX: Final = "kafka_dlt-"


def spring_parts(prefix: str) -> Parts:
    """What the recoverer writes, with the prefix that its headers have.

    Args:
        prefix: What comes before ``original-topic`` and ``exception-fqcn``.
    """
    return {
        **origin_headers(f"{prefix}original-", partition=int32be, offset=int64be),
        "origin.timestamp": (Part(f"{prefix}original-timestamp", int64be),),
        "group": (Part(GROUP),),
        "error.class": (
            Part(f"{prefix}exception-fqcn"),
            Part(f"{prefix}key-exception-fqcn"),
        ),
        # The listener's wrapper says nothing, its cause does.
        "error.root_class": (Part(f"{prefix}exception-cause-fqcn"),),
        "error.message": (
            Part(f"{prefix}exception-message"),
            Part(f"{prefix}key-exception-message"),
        ),
        "error.stack": (
            Part(f"{prefix}exception-stacktrace"),
            Part(f"{prefix}key-exception-stacktrace"),
        ),
    }


SPRING_DLT: Final = Scheme(
    name="spring-dlt",
    leading=(
        f"{_PREFIX}original-topic",
        f"{_PREFIX}exception-fqcn",
        f"{_PREFIX}key-exception-fqcn",
    ),
    prefixes=(_PREFIX,),
    parts=spring_parts(_PREFIX),
)
"""Spring's dead-letter topics."""

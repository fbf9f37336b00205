"""Spring for Apache Kafka: the retry and dead-letter topics of ``@RetryableTopic``.

Source: Spring's ``DeadLetterPublishingRecovererFactory`` and ``RetryTopicHeaders``. The recoverer
writes under other names here, all but the consumer group. The first headers about the original
record are kept, so that they name the main topic. Attempts have four bytes, one in old versions;
timestamps are written by ``BigInteger.toByteArray``.
"""

from __future__ import annotations

from typing import Final

from redrive.messages.schemes.encodings import int32be, minimal_integer
from redrive.messages.schemes.scheme import Part, Scheme
from redrive.messages.schemes.spring_dlt import GROUP, spring_parts

__all__ = ["SPRING_RETRY_TOPIC"]

_MOST_ATTEMPTS: Final = 32767
"""Spring reads no larger number of attempts."""
_PREFIX: Final = "kafka_"


def _attempts(raw: bytes) -> int | None:
    number = raw[0] if len(raw) == 1 else int32be(raw)
    return None if number is None or number < 0 else min(number, _MOST_ATTEMPTS)


SPRING_RETRY_TOPIC: Final = Scheme(
    name="spring-retry-topic",
    leading=(
        f"{_PREFIX}original-topic",
        f"{_PREFIX}exception-fqcn",
        f"{_PREFIX}key-exception-fqcn",
    ),
    names=frozenset({GROUP}),
    prefixes=(
        f"{_PREFIX}original-",
        f"{_PREFIX}exception-",
        f"{_PREFIX}key-exception-",
        "retry_topic-",
    ),
    parts={
        **spring_parts(_PREFIX),
        "attempts": (Part("retry_topic-attempts", _attempts),),
        "first_failed_at": (Part("retry_topic-original-timestamp", minimal_integer),),
    },
)
"""Spring's non-blocking retries."""

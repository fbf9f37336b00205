"""The normalised view: what a dead letter says of its failure, the same for every scheme.

Source: the table "What every scheme gives" of the specification of dead-letter schemes. What a
scheme does not tell, or tells so that it can't be read, is None: absent is not blank and not 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Origin:
    """The record that failed, as far as a scheme names it."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    """Milliseconds since 1970."""


UNKNOWN_ORIGIN: Final = Origin()
"""No scheme names the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterView:
    """What one message says of its failure."""

    scheme: str | None = None
    """Name of the outermost scheme, such as ``connect``; None if the message has none."""
    origin: Origin = UNKNOWN_ORIGIN
    """Where it failed last."""
    first_origin: Origin = UNKNOWN_ORIGIN
    """Where it failed first; equal to ``origin`` if it failed once."""
    group: str | None = None
    """Consumer group that could not process it."""
    connector: str | None = None
    """Kafka Connect's connector."""
    task: str | None = None
    """Task within the connector or the application."""
    stage: str | None = None
    """Step at which it failed, such as ``VALUE_CONVERTER``, or the handler that failed."""
    error_class: str | None = None
    """Class of the exception, as written."""
    error_root_class: str | None = None
    """Class of the innermost cause that is named."""
    error_message: str | None = None
    """What the exception said."""
    error_stack: str | None = None
    """Stack trace. Never matched, never copied into outcomes."""
    attempts: int | None = None
    """How often the failed program tried."""
    first_failed_at: int | None = None
    """When it failed first, in milliseconds since 1970."""
    failed_at: int | None = None
    """When it failed last, in milliseconds since 1970."""
    hop: int | None = None
    """How often a program has made a dead letter of it."""
    disposition: str | None = None
    """What the failed program did with it, where a scheme tells that."""
    pointer: bool = False
    """Whether the payload is missing and has to be fetched from ``origin``."""

    @property
    def consumer_group(self) -> str:
        """The consumer group that failed, see ``consumer_group``; empty if unknown."""
        return consumer_group(self.group, self.connector)


CONNECT_GROUP: Final = "connect-"
"""How the consumer groups of sink connectors begin."""


def consumer_group(group: str | None, connector: str | None) -> str:
    """The consumer group that failed; empty if unknown.

    Dead letters of Connect name only the connector. Its group is ``connect-<connector>``, unless
    its settings override that.
    """
    return group or (f"{CONNECT_GROUP}{connector}" if connector else "")


NO_SCHEME: Final = DeadLetterView()
"""The view of a message that is not a dead letter of any scheme."""

"""The normalised view: a dead letter's failure in the same form for every scheme.

docs/messages.md, "The normalised view", has its parts. Missing or unreadable parts are None, never
blank or 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Origin:
    """The failed record, as far as a scheme names it."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    """Milliseconds since 1970."""


UNKNOWN_ORIGIN: Final = Origin()
"""No scheme names the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterView:
    """One message's failure."""

    scheme: str | None = None
    """Name of the outermost scheme, such as ``connect``; None if the message has none."""
    origin: Origin = UNKNOWN_ORIGIN
    """Where it last failed."""
    first_origin: Origin = UNKNOWN_ORIGIN
    """Where it first failed; equal to ``origin`` if it failed once."""
    group: str | None = None
    """Consumer group that could not process it."""
    connector: str | None = None
    """Kafka Connect's connector."""
    task: str | None = None
    """Task within the connector or the application."""
    stage: str | None = None
    """Step that failed, such as ``VALUE_CONVERTER``, or the handler."""
    error_class: str | None = None
    """Class of the exception, as written."""
    error_root_class: str | None = None
    """Class of the innermost named cause."""
    error_message: str | None = None
    """Message of the exception."""
    error_stack: str | None = None
    """Stack trace. Never matched, never copied into outcomes."""
    attempts: int | None = None
    """How often the failed program tried."""
    first_failed_at: int | None = None
    """When it first failed, in milliseconds since 1970."""
    failed_at: int | None = None
    """When it last failed, in milliseconds since 1970."""
    hop: int | None = None
    """How often it was dead-lettered."""
    disposition: str | None = None
    """What the failed program did with it, if a scheme says so."""
    pointer: bool = False
    """Whether the payload is missing and must be fetched from ``origin``."""

    @property
    def consumer_group(self) -> str:
        """The consumer group that failed, see ``consumer_group``; empty if unknown."""
        return consumer_group(self.group, self.connector)


CONNECT_GROUP: Final = "connect-"
"""Prefix of the consumer groups of sink connectors."""


def consumer_group(group: str | None, connector: str | None) -> str:
    """The consumer group that failed; empty if unknown.

    Dead letters of Connect name only the connector. Its group is ``connect-<connector>``, unless
    its settings override that.
    """
    return group or (f"{CONNECT_GROUP}{connector}" if connector else "")


NO_SCHEME: Final = DeadLetterView()
"""The view of a message that is not a dead letter of any scheme."""

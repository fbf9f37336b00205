"""When a home-server queue looks for messages on its home server (specification A.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    """The polling of one home-server queue: a value that each poll replaces.

    Times are milliseconds on any clock that never goes back.
    """

    interval: int
    """Milliseconds between polls; 0: only triggerTransmission polls."""
    next_poll: int | None = None
    """When the next poll is due; None if only triggerTransmission starts one."""

    @classmethod
    def started(cls, interval: int, now: int) -> Polling:
        """The polling of a queue that is activated now.

        Args:
            interval: Milliseconds between polls.
            now: The time.
        """
        return cls(interval=interval, next_poll=now + interval if interval > 0 else None)

    def is_due(self, now: int) -> bool:
        """Whether the interval has passed."""
        return self.next_poll is not None and now >= self.next_poll

    def after_poll(self, now: int, *, connected: bool) -> Polling:
        """The polling after a poll, whether the interval or triggerTransmission started it.

        Args:
            now: The time.
            connected: Whether the home server was reached; after a failure polling stops until
                the next triggerTransmission.
        """
        goes_on = connected and self.interval > 0
        return replace(self, next_poll=now + self.interval if goes_on else None)

"""WAIT: when a handler that does not run forever ends.

Useful events are the start, an attempt, a discard, and the first time that a message is left. The
handler ends once nothing that can be processed is left, including outstanding retries, and WAIT
seconds have passed since the last useful event.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import sources_of, table_of


class WaitRule:
    """Decides when the handlers of one job may end together."""

    def __init__(self, waits: Mapping[str, float | None], now: float) -> None:
        """Start to wait.

        Args:
            waits: Seconds to wait by handler name; None for WAIT(YES).
            now: Seconds; the start, which is a useful event.
        """
        self._waits = dict(waits)
        self._last = dict.fromkeys(waits, now)

    @property
    def ends(self) -> bool:
        """Whether the job can end by itself: no handler has WAIT(YES)."""
        return all(wait is not None for wait in self._waits.values())

    def useful(self, handlers: Iterable[str], now: float) -> None:
        """Notes a useful event of some handlers."""
        for handler in handlers:
            if handler in self._last:
                self._last[handler] = max(now, self._last[handler])

    def is_over(self, now: float) -> bool:
        """Whether every handler has waited long enough, if nothing is left to process."""
        return self.ends and all(
            now - self._last[handler] >= (wait or 0) for handler, wait in self._waits.items()
        )


def wait_rule(configuration: JobConfiguration) -> WaitRule:
    """The WAIT of a job's tables, beginning now."""
    waits: dict[str, float | None] = {}
    subscribed = (
        subscription.handler for subscription in configuration.subscriptions
    )  # topics may appear later
    for handler in (*configuration.handlers, *subscribed):
        seconds = table_of(handler).control.seconds_to_wait
        waits[handler.identity.name] = None if seconds is None else float(seconds)
    if sources_of(configuration):
        waits["puts"] = None  # applications can put at any time
    return WaitRule(waits, time.time())

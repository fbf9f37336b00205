"""What the job has done so far, as it reports: the figures of the live view.

The report at the end does not use them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from redrive.configuration import JobConfiguration
from redrive.streaming.lifecycle import BatchSummary, JobObserver

__all__ = ["Progress", "Snapshot", "notice_text"]

_RATE_WINDOW: Final = 5.0
"""Seconds over which the rate is taken."""
_NOTICES: Final = 3
"""Notices that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """How far the job is at one time."""

    elapsed: float | None
    """Seconds since the job runs; None before."""
    results: Mapping[tuple[int, str], int]
    """Inputs by line of the rule and result; a message counts once for each attempt."""
    ended: int
    """Messages with which the job has nothing more to do."""
    rate: float
    """Inputs a second, due retries included."""
    parked: int
    """Messages that wait for their next attempt."""
    next_due: float | None
    """Seconds until the next of them is due; None if none waits."""
    notices: tuple[str, ...] = field(default=())
    """What else the job said last."""


class Progress(JobObserver):
    """Adds up what the job reports."""

    def __init__(
        self,
        retry_interval: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Start with nothing done.

        Args:
            retry_interval: RETRYINT of the table, in seconds.
            clock: Seconds since 1970.
        """
        self._retry_interval = retry_interval
        self._clock = clock
        self._lock = threading.Lock()
        self._started_at: float | None = None
        self._results: Counter[tuple[int, str]] = Counter()
        self._recent: deque[tuple[float, int]] = deque()
        self._parked: deque[tuple[float, int]] = deque()
        self._notices: deque[str] = deque(maxlen=_NOTICES)

    def started(self, configuration: JobConfiguration) -> None:
        """See ``JobObserver.started``."""
        del configuration
        with self._lock:
            self._started_at = self._clock()

    def batch(self, summary: BatchSummary) -> None:
        """See ``JobObserver.batch``."""
        with self._lock:
            for (_, line, result), count in summary.results.items():
                self._results[line, result] += count
            self._recent.append((self._clock(), summary.records))
            if parked := summary.by_result.get("parked", 0):
                due = summary.time / 1000 + self._retry_interval
                self._parked.append((due, parked))

    def notice(self, message: str, /, **facts: object) -> None:
        """See ``JobObserver.notice``."""
        with self._lock:
            self._notices.append(notice_text(message, facts))

    def warning(self, message: str, /, **facts: object) -> None:
        """See ``JobObserver.warning``."""
        self.notice(message, **facts)

    @property
    def has_parked(self) -> bool:
        """Whether any message has been refused, and waits or waited for its next attempt."""
        with self._lock:
            return any(result == "parked" for _, result in self._results)

    def snapshot(self) -> Snapshot:
        """How far the job is now."""
        with self._lock:
            now = self._clock()
            _drop_before(self._recent, now - _RATE_WINDOW)
            # What is due is taken back at once, so the parked are those that are not due yet.
            _drop_before(self._parked, now)
            elapsed = None if self._started_at is None else now - self._started_at
            window = max(1.0, min(_RATE_WINDOW, elapsed or 0.0))
            return Snapshot(
                elapsed=elapsed,
                results=dict(self._results),
                ended=sum(n for (_, result), n in self._results.items() if result != "parked"),
                rate=sum(count for _, count in self._recent) / window,
                parked=sum(count for _, count in self._parked),
                next_due=self._parked[0][0] - now if self._parked else None,
                notices=tuple(self._notices),
            )


def notice_text(message: str, facts: Mapping[str, object]) -> str:
    """What a job wants an operator to know, in one line."""
    details = ", ".join(f"{name} {value}" for name, value in facts.items())
    return f"{message} ({details})" if details else message


def _drop_before(entries: deque[tuple[float, int]], limit: float) -> None:
    while entries and entries[0][0] < limit:
        entries.popleft()

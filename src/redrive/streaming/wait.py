"""WAIT: when a handler that is not to run for ever has nothing left to do.

Rules-table specification 6.6: let A be the time of the last useful event - the start, an attempt,
a discard, the first sight of a message that is then left. The handler ends once nothing that can be
processed is left, outstanding retries included, and WAIT seconds have passed since A.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from redrive.configuration import JobConfiguration
    from redrive.kafka.cluster import Cluster
    from redrive.messages import TopicPartition
    from redrive.streaming.start import Start

_READING: Final = 30.0
"""Seconds that looking for a record may take."""


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
        """Whether the job can end by itself at all: no handler says WAIT(YES)."""
        return all(wait is not None for wait in self._waits.values())

    def useful(self, handlers: Iterable[str], now: float) -> None:
        """Notes a useful event of some handlers."""
        for handler in handlers:
            if handler in self._last:
                self._last[handler] = max(now, self._last[handler])

    def is_over(self, now: float) -> bool:
        """Whether every handler has waited long enough, given that nothing is left to process."""
        return self.ends and all(
            now - self._last[handler] >= (wait or 0) for handler, wait in self._waits.items()
        )


class Completion:
    """Tells when a run has nothing left that can be processed (specification 6.6)."""

    def __init__(self, configuration: JobConfiguration, cluster: Cluster, start: Start) -> None:
        """Take the run.

        Args:
            configuration: The job.
            cluster: Answers questions; used by this class alone.
            start: Where the run began.
        """
        self._group = configuration.application
        self._cluster = cluster
        # What waits for its time counts as work; what remains does not, unless it was set free.
        self._limits: dict[TopicPartition, int | None] = dict.fromkeys(start.positions)
        for held in start.held:
            is_attempt = held.interval is not None and held.channel is None
            counts = is_attempt or held.behind is not None
            self._limits[held.lane] = None if counts else held.release

    def has_work(self) -> bool:
        """Whether any lane holds a record that is not handled yet.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        committed = self._cluster.committed(self._group, self._limits)
        ends = self._cluster.ends(self._limits)
        for lane, limit in self._limits.items():
            end = ends[lane] if limit is None else min(limit, ends[lane])
            if self._has_records(lane, committed[lane] or 0, end):
                return True
        return False

    def _has_records(self, lane: TopicPartition, start: int, end: int) -> bool:
        """Whether some record with a value lies in ``[start, end)``, beyond markers."""
        if start >= end:
            return False
        for message in self._cluster.read({lane: start}, seconds=_READING):
            if (message.offset() or 0) >= end:
                return False
            if message.value() is not None:
                return True
        return False

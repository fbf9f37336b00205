"""WAIT: when a handler that is not to run for ever has nothing left to do.

Rules-table specification 6.6: let A be the time of the last useful event - the start, an attempt,
a discard, the first sight of a message that is then left. The handler ends once nothing that can be
processed is left, outstanding retries included, and WAIT seconds have passed since A.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from redrive.configuration.deciders import sources_of, table_of

if TYPE_CHECKING:
    from redrive.configuration import JobConfiguration
    from redrive.kafka.cluster import Cluster
    from redrive.messages import TopicPartition
    from redrive.streaming.start import Start


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


def wait_rule(configuration: JobConfiguration) -> WaitRule:
    """What the tables of a job say of WAIT, beginning now."""
    waits: dict[str, float | None] = {}
    for handler in configuration.handlers:
        seconds = table_of(handler).control.wait.seconds
        waits[handler.identity.name] = None if seconds is None else float(seconds)
    if sources_of(configuration):
        waits["puts"] = None  # applications may always put
    return WaitRule(waits, time.time())


class Completion:
    """Tells when a run has nothing left that can be processed (specification 6.6)."""

    def __init__(self, configuration: JobConfiguration, cluster: Cluster, start: Start) -> None:
        """Take the run.

        Args:
            configuration: The job.
            cluster: Answers questions; used by the thread alone that looks after the run.
            start: Where the run began.
        """
        self._group = configuration.application
        self._cluster = cluster
        self._leaves_out = bool(start.leaderless)
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
        if self._leaves_out:
            return True  # nobody can tell what partitions without a leader hold
        committed = self._cluster.committed(self._group, self._limits)
        ends = self._cluster.ends(self._limits)
        ranges = {
            lane: (committed[lane] or 0, ends[lane] if limit is None else min(limit, ends[lane]))
            for lane, limit in self._limits.items()
        }
        return lane_with_records(self._cluster, ranges) is not None


def lane_with_records(
    cluster: Cluster,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    *,
    seconds: float | None = None,
) -> TopicPartition | None:
    """A lane with some record that has a value, beyond markers; None if there is none.

    Args:
        cluster: Reads them.
        ranges: The first offset to look at in each lane, and the one behind the last.
        seconds: How long reading may take; None for as long as anything comes.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    starts = {lane: start for lane, (start, _) in ranges.items()}
    found = cluster.read(starts, {lane: end for lane, (_, end) in ranges.items()}, seconds=seconds)
    return next((record.lane for record in found if record.value is not None), None)

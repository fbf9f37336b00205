"""Statistics of committed slices: outcomes, failures, ages of dead letters, late retries.

Seconds are counted in buckets: a batch has many records, and only counts are sent.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from redrive.engine.breaker import BreakerCounts, BreakerKey
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.sources import PartitionRecords, SourceKind
from redrive.messages import own_headers as own
from redrive.messages.fields import Headers

AGE_BOUNDS: Final = (
    0.1, 1.0, 5.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0,
)  # fmt: skip
"""Upper bounds of the buckets for ages, in seconds."""
LATENESS_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets for lateness, in seconds."""


@dataclass(slots=True)
class Distribution:
    """Counts of seconds by bucket."""

    bounds: tuple[float, ...]
    """Inclusive upper bounds; the last bucket has none."""
    counts: list[int] = field(default_factory=list)
    """One count for each bucket, not cumulative."""
    total: float = 0.0
    """Sum of all seconds."""

    def __post_init__(self) -> None:
        if not self.counts:
            self.counts = [0] * (len(self.bounds) + 1)

    def count(self, seconds: np.ndarray[Any, np.dtype[np.float64]]) -> None:
        """Add values."""
        places = np.searchsorted(self.bounds, seconds, side="left")
        for place, number in enumerate(np.bincount(places, minlength=len(self.counts)).tolist()):
            self.counts[place] += number
        self.total += float(seconds.sum())

    def add(self, other: Distribution) -> None:
        """Adds another distribution with the same bounds."""
        self.counts = [count + more for count, more in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


@dataclass(slots=True)
class Ages:
    """Ages and lateness of the attempts of some slices, by handler."""

    ages: dict[str, Distribution] = field(default_factory=dict)
    """Seconds from a dead letter's own timestamp to an attempt on it."""
    lateness: dict[str, Distribution] = field(default_factory=dict)
    """Seconds from the due time of a retry to its attempt."""

    def note(self, part: PartitionRecords, done: int, now: int) -> None:
        """Add the attempts on records from an offset on, made at a time in milliseconds.

        Only dead letters and due retries count.
        """
        decider, records = part.decider, part.records
        if not isinstance(decider, RulesDecider) or part.kind not in _ATTEMPTED:
            return
        first = bisect_left(records.offsets, done)
        timestamps = records.timestamps[first:]
        if not timestamps:
            return
        name = decider.identity.name
        if part.kind is SourceKind.RETRIES:
            due = now - 1000 * decider.interval(part.lane)
            _count(self.lateness, name, LATENESS_BOUNDS, due, timestamps)
            timestamps = list(_own_times(records.headers[first:], timestamps))
        _count(self.ages, name, AGE_BOUNDS, now, timestamps)

    def add(self, other: Ages) -> None:
        """Adds the timing of another slice or process."""
        for totals, more in ((self.ages, other.ages), (self.lateness, other.lateness)):
            for name, distribution in more.items():
                totals.setdefault(name, Distribution(distribution.bounds)).add(distribution)


_ATTEMPTED: Final = (SourceKind.DEAD_LETTERS, SourceKind.RETRIES)


def _own_times(headers: Iterable[Headers], copied: Iterable[int]) -> Iterator[int]:
    """The timestamps in milliseconds of the dead letters in parked copies."""
    for some, timestamp in zip(headers, copied, strict=True):
        raw = next((value for name, value in some if name == own.TIMESTAMP), None)
        yield own.own_timestamp(raw, timestamp)


def _count(
    distributions: dict[str, Distribution],
    name: str,
    bounds: tuple[float, ...],
    until: float,
    since: Sequence[int],
) -> None:
    times = np.asarray(since, dtype=np.float64)
    # A record without a timestamp has -1. A wrong clock must not give negative seconds.
    seconds = np.maximum(0, until - times[times >= 0]) / 1000
    distributions.setdefault(name, Distribution(bounds)).count(seconds)


class Failure(NamedTuple):
    """A failed attempt worth a line in the log, similar to AMQ8722."""

    handler: str
    rule_line: int
    reason: int
    target: str
    detail: str


class OutcomeKind(NamedTuple):
    """The key under which inputs are counted."""

    handler: str
    rule_line: int
    """Line of the rule; 0 for none."""
    result: str
    reason: int
    """Why the attempt failed, or 0."""


@dataclass(slots=True)
class SliceSummary:
    """Statistics of committed slices."""

    inputs: Counter[OutcomeKind] = field(default_factory=Counter)
    """Inputs by their result."""
    failures: Counter[Failure] = field(default_factory=Counter)
    """Failed attempts worth reporting, with their number."""
    invalid: Counter[str] = field(default_factory=Counter)
    """Inputs without a valid dead-letter header, by handler."""
    ages: Ages = field(default_factory=Ages)
    """Ages of dead letters, and lateness of retries."""
    breakers: dict[BreakerKey, BreakerCounts] = field(default_factory=dict)
    """What was done with messages of breakers."""
    probed: set[BreakerKey] = field(default_factory=set)
    """Breakers for which a probe was put."""
    rounds: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Puts that began a round, by handler and the round's number for its message."""

    @property
    def active(self) -> set[str]:
        """The handlers that had an input besides what has no valid dead-letter header.

        WAIT counts from such an input (rules table 6.5 and 6.6).
        """
        inputs: Counter[str] = Counter()
        for kind, count in self.inputs.items():
            inputs[kind.handler] += count
        return set(inputs - self.invalid)

    def add(self, other: SliceSummary) -> None:
        """Adds the statistics of another slice or process."""
        self.inputs.update(other.inputs)
        self.failures.update(other.failures)
        self.invalid.update(other.invalid)
        self.ages.add(other.ages)
        for key, counts in other.breakers.items():
            self.breakers.setdefault(key, BreakerCounts()).add(counts)
        self.probed |= other.probed
        self.rounds.update(other.rounds)

"""Rate limits: how many records of a lane may be read now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from redrive.messages import TopicPartition

_SAVED: Final = 1.0
"""Seconds of a rate that a lane may catch up after it could not be read: more would be a burst on a
target that just recovered."""


@dataclass(slots=True)
class _Lane:
    """The position of a lane, and the number of records that may be read now."""

    begin: int
    at: float
    saved: float = 0.0


class Pace:
    """Limits how far lanes are read, each to its own rate (a token bucket).

    A lane starts with an empty bucket, so that a rate also holds right after a start, unless an
    upper bound is asked for.
    """

    def __init__(self, clock: Callable[[], float], *, at_most: bool = False) -> None:
        """Know no lane yet.

        Args:
            clock: Seconds from an arbitrary start, never set back.
            at_most: Whether the answers must be an upper bound of another pace, which began
                earlier.
        """
        self._clock = clock
        self._saved = _SAVED if at_most else 0.0
        self._lanes: dict[TopicPartition, _Lane] = {}

    def limit(self, lane: TopicPartition, begin: int, end: int, rate: float | None) -> int:
        """The offset up to which a lane may be read now.

        Args:
            lane: The lane.
            begin: The offset up to which it was read.
            end: Where it ends.
            rate: Records per second; None for no limit.
        """
        now = self._clock()
        if rate is None or begin >= end:
            self._lanes.pop(lane, None)
            return end
        known = self._lanes.setdefault(lane, _Lane(begin, now, self._saved * (1.0 + rate)))
        most = 1.0 + rate * _SAVED
        earned = known.saved - (begin - known.begin) + rate * (now - known.at)
        known.begin, known.at, known.saved = begin, now, min(most, earned)
        return min(end, begin + int(known.saved))

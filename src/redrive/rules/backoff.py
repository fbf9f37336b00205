"""BACKOFF: delays that grow from one failed attempt to the next, and where messages wait.

A partition of parked messages is read in order, so all messages on it must wait equally long. The
topic of messages that wait by BACKOFF therefore has a partition for each delay of the table, and
one for RETRYINT, whatever the number of partitions of the dead-letter queue. A few delays have
several partitions each: on each, messages wait slightly less. So messages that failed together do
not return together, and yet the time of each is known when it is parked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Self
from zlib import crc32

PARTITIONS: Final = 16
"""Maximum partitions of the topic, and so the maximum number of distinct delays of a table. Earlier
versions had as many for each partition of a dead-letter queue."""

_SPREAD: Final = 6
"""Partitions that a table with few delays gets, so that each delay has several."""

JITTER: Final = 0.2
"""Maximum share of a delay by which jitter shortens a wait."""

HOLDS: Final = (1, 4, 15, 60)
"""Under ORDER(KEY), the seconds after which a message that waits behind another of its key is
checked; they have their own partitions, like the delays of the table."""

_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_GOLDEN: Final = (5**0.5 - 1) / 2
"""The fractional parts of its multiples are evenly spread."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a message waits after each failed attempt of a rule: ``BACKOFF(30s,2,1h)``."""

    initial: int
    """Seconds after the first one, at least 1."""
    factor: float
    """Factor of each further delay: 1, or at least 1.1, so that the cap is reached."""
    cap: int
    """The longest delay in seconds."""

    def __str__(self) -> str:
        return f"{_format_seconds(self.initial)},{self.factor:g},{_format_seconds(self.cap)}"

    def delay(self, failures: int) -> int:
        """Seconds that a message waits after a number of failed attempts, without jitter."""
        try:
            grown = self.initial * self.factor ** (failures - 1)
        except OverflowError:
            return self.cap
        return min(self.cap, round(min(grown, float(self.cap))))

    def distinct(self, failures: int) -> tuple[int, ...]:
        """The distinct delays after a number of failed attempts, in ascending order."""
        return tuple(dict.fromkeys(self._growing_delays(failures)))

    def total(self, failures: int) -> int:
        """The sum in seconds of the delays after a number of failed attempts."""
        growing = list(self._growing_delays(failures))
        return sum(growing) + (failures - len(growing)) * growing[-1] if growing else 0

    def _growing_delays(self, failures: int) -> Iterator[int]:
        """The delays up to the first that no longer changes."""
        for failure in range(1, failures + 1):
            delay = self.delay(failure)
            yield delay
            if delay == self.cap or self.factor == 1:
                return


class BackoffPartitions:
    """Where messages wait for the delays of a table, at most ``PARTITIONS`` distinct ones."""

    def __init__(
        self, delays: Iterable[int], *, interval: int | None = None, is_exact: bool = False
    ) -> None:
        """Distribute the delays among partitions.

        Args:
            delays: The delays in seconds.
            interval: RETRYINT in seconds, for messages without a delay; None if none has to wait.
            is_exact: Whether there is no jitter, and ``HOLDS`` are among the delays: ORDER(KEY).
        """
        self._delays: list[int] = sorted({*delays, *(HOLDS if is_exact else ())})
        count = max(1, len(self._delays))
        self._each = 1 if is_exact else max(1, _SPREAD // count)
        self._earlier_each = 1 if is_exact else PARTITIONS // count
        self._earlier_jitter = 0.0 if is_exact else JITTER
        self._seconds = [
            delay * (1 - JITTER * part / self._each)
            for delay in self._delays
            for part in range(self._each)
        ]
        self._interval = 0 if interval is None else self._place_interval(interval)

    @classmethod
    def of(
        cls,
        backoffs: Iterable[tuple[Backoff, int]],
        *,
        interval: int | None = None,
        is_exact: bool = False,
    ) -> Self:
        """The partitions for some rules, each with its RETRY; other arguments as for the class."""
        delays = (delay for one, retry in backoffs for delay in one.distinct(retry))
        return cls(delays, interval=interval, is_exact=is_exact)

    def _place_interval(self, interval: int) -> int:
        """The partition for RETRYINT, exact, or of a longer delay if no other is left."""
        exact = [n for n, seconds in enumerate(self._seconds) if seconds == interval]
        if exact and self._each == 1:
            return exact[0]
        if len(self._seconds) < PARTITIONS:
            self._seconds.append(float(interval))
            return len(self._seconds) - 1
        longer = (number for number, seconds in enumerate(self._seconds) if seconds >= interval)
        number = next(longer, PARTITIONS - 1)
        self._seconds[number] = max(self._seconds[number], float(interval))
        return number

    @property
    def count(self) -> int:
        """The number of partitions."""
        return len(self._seconds)

    def partition(self, delay: int | None, jitter: int) -> int:
        """The partition on which a message waits for a delay in seconds; None for RETRYINT.

        ``jitter`` is its ``jitter_of``.
        """
        if delay is None:
            return self._interval
        return self._delays.index(delay) * self._each + jitter % self._each

    def longest_within(self, seconds: float) -> int:
        """The longest delay up to a limit; the shortest one if all are longer."""
        return max((one for one in self._delays if one <= seconds), default=self._delays[0])

    def seconds(self, partition: int) -> float:
        """How long messages wait on a partition; 0 on an unused one."""
        return self._seconds[partition] if partition < len(self._seconds) else 0.0

    def earlier_seconds(self, partition: int) -> float:
        """How long messages wait on a partition of an earlier version's topic."""
        source, place = divmod(partition, PARTITIONS)
        each = self._earlier_each
        if place >= len(self._delays) * each:
            return 0.0
        number, part = divmod(place, each)
        shift = (part + source * _GOLDEN % 1) / each
        return self._delays[number] * (1 - self._earlier_jitter * shift)


def jitter_of(identity: str, failures: int) -> int:
    """A number that chooses among the partitions of a delay.

    It depends on ``identity``, the ``topic:partition:offset`` where Redrive first saw the message,
    and on the number of failed attempts, so that a message waits with different ones each time.
    """
    return crc32(f"{identity}#{failures}".encode())


def _format_seconds(seconds: int) -> str:
    unit = next(unit for unit, factor in _UNITS.items() if seconds % factor == 0)
    return f"{seconds // _UNITS[unit]}{unit}"

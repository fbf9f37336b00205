"""BACKOFF: delays that grow from one failed attempt to the next, and where messages wait.

A partition of parked messages is read in order, so all messages on it must wait equally long. The
topic of messages that wait by BACKOFF therefore has ``PARTITIONS`` partitions for each partition of
the dead-letter queue, and the delays of a table are distributed among them. A delay with several of
them is split: on each, messages wait slightly less, and differently for each partition of the
queue. So messages that failed together do not return together, and yet the time of each is known
when it is parked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from zlib import crc32

PARTITIONS: Final = 16
"""Partitions for each partition of a dead-letter queue, and so the maximum number of distinct
delays of a table. It must never change: parked messages would get another delay."""

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

    def __str__(self) -> str:
        return f"{format_seconds(self.initial)},{self.factor:g},{format_seconds(self.cap)}"

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
    """Where messages wait for the delays of a table, at most ``PARTITIONS`` distinct ones.

    Under ORDER(KEY) the delays are exact, with no jitter, and ``HOLDS`` are among them.
    """

    def __init__(self, delays: Iterable[int], *, is_exact: bool = False) -> None:
        self._delays: list[int] = sorted({*delays, *(HOLDS if is_exact else ())})
        most = 1 if is_exact else PARTITIONS
        self._each = min(most, PARTITIONS // len(self._delays)) if self._delays else 0
        self._jitter = 0.0 if is_exact else JITTER

    def partition(self, source: int, delay: int, jitter: int) -> int:
        """The partition on which a message waits for a delay in seconds.

        ``source`` is its partition on the dead-letter queue, ``jitter`` its ``jitter_of``.
        """
        first = self._delays.index(delay) * self._each
        return source * PARTITIONS + first + jitter % self._each

    def longest_within(self, seconds: float) -> int:
        """The longest delay up to a limit; the shortest one if all are longer."""
        return max((delay for delay in self._delays if delay <= seconds), default=self._delays[0])

    def seconds(self, partition: int) -> float:
        """How long messages wait on a partition; 0 on an unused one."""
        source, place = divmod(partition, PARTITIONS)
        if not self._each or place >= len(self._delays) * self._each:
            return 0.0
        number, part = divmod(place, self._each)
        shift = (part + source * _GOLDEN % 1) / self._each
        return self._delays[number] * (1 - self._jitter * shift)


def jitter_of(identity: str, failures: int) -> int:
    """A number that chooses among the partitions of a delay.

    It depends on ``identity``, the ``topic:partition:offset`` where Redrive first saw the message,
    and on the number of failed attempts, so that a message waits with different ones each time.
    """
    return crc32(f"{identity}#{failures}".encode())


def format_seconds(seconds: int) -> str:
    """Whole seconds in the largest unit that expresses them exactly, such as ``7d`` or ``90s``."""
    unit = next(unit for unit, factor in _UNITS.items() if seconds % factor == 0)
    return f"{seconds // _UNITS[unit]}{unit}"

"""BACKOFF: delays that grow from one failed attempt to the next, and where messages wait for them.

A partition of parked messages is read in its order, so all that wait on one have to wait equally
long. The topic of messages that wait by BACKOFF therefore has ``PARTITIONS`` partitions for each
partition of the dead-letter queue, and the delays of a table are dealt out to them. A delay that
gets several of them is split: on each of them messages wait a bit less long, and a bit differently
from partition to partition of the queue. So messages that failed together do not come back
together, and yet each comes at a time that is known when it is parked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Self
from zlib import crc32

PARTITIONS: Final = 16
"""Partitions for each partition of a dead-letter queue, and so the most delays that the rules of a
table have between them. It must never change: what is parked would be read as another delay."""

JITTER: Final = 0.2
"""The share of a delay by which a wait is shorter at most."""

HOLDS: Final = (1, 4, 15, 60)
"""Under ORDER(KEY), the seconds after which it is looked whether a message can go on that waits
behind another of its key; they have partitions of their own, as the delays of the table have."""

_UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_GOLDEN: Final = (5**0.5 - 1) / 2
"""Its multiples, less their whole part, never come close to each other."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a message waits after each failed attempt of a rule: ``BACKOFF(30s,2,1h)``."""

    initial: int
    """Seconds after the first one, at least 1."""
    factor: float
    """What each further delay is multiplied by: 1, or at least 1.1, so that the cap is reached."""
    cap: int
    """Seconds of the longest delay."""

    def __str__(self) -> str:
        return f"{_format_seconds(self.initial)},{self.factor:g},{_format_seconds(self.cap)}"

    def delay(self, failures: int) -> int:
        """Seconds that a message waits after so many failed attempts, jitter left out."""
        try:
            grown = self.initial * self.factor ** (failures - 1)
        except OverflowError:
            return self.cap
        return min(self.cap, round(min(grown, float(self.cap))))

    def distinct(self, failures: int) -> tuple[int, ...]:
        """The delays after so many failed attempts, each of them once, in rising order."""
        return tuple(dict.fromkeys(self._growing_delays(failures)))

    def total(self, failures: int) -> int:
        """Seconds of the delays after so many failed attempts taken together."""
        growing = list(self._growing_delays(failures))
        return sum(growing) + (failures - len(growing)) * growing[-1] if growing else 0

    def _growing_delays(self, failures: int) -> Iterator[int]:
        """The delays up to the first of those that are all alike."""
        for failure in range(1, failures + 1):
            delay = self.delay(failure)
            yield delay
            if delay == self.cap or self.factor == 1:
                return


class BackoffPartitions:
    """Where messages wait for the delays of a table, of which at most ``PARTITIONS`` differ."""

    def __init__(self, delays: Iterable[int], *, is_exact: bool = False) -> None:
        self._delays: list[int] = sorted({*delays, *(HOLDS if is_exact else ())})
        most = 1 if is_exact else PARTITIONS
        self._each = min(most, PARTITIONS // len(self._delays)) if self._delays else 0
        self._jitter = 0.0 if is_exact else JITTER

    @classmethod
    def of(cls, backoffs: Iterable[tuple[Backoff, int]], *, is_exact: bool = False) -> Self:
        """The partitions for some rules, each with its RETRY.

        Under ORDER(KEY) the delays are exact, with no jitter, and ``HOLDS`` are among them.
        """
        delays = (delay for one, retry in backoffs for delay in one.distinct(retry))
        return cls(delays, is_exact=is_exact)

    def partition(self, source: int, delay: int, jitter: int) -> int:
        """The partition on which a message waits for so many seconds.

        ``source`` is its partition on the dead-letter queue, ``jitter`` its ``jitter_of``.
        """
        first = self._delays.index(delay) * self._each
        return source * PARTITIONS + first + jitter % self._each

    def longest_within(self, seconds: float) -> int:
        """The longest delay that is not longer; the shortest one if all are longer."""
        return max((one for one in self._delays if one <= seconds), default=self._delays[0])

    def seconds(self, partition: int) -> float:
        """How long messages wait on a partition; 0 on one that no delay has."""
        source, place = divmod(partition, PARTITIONS)
        if not self._each or place >= len(self._delays) * self._each:
            return 0.0
        number, part = divmod(place, self._each)
        shift = (part + source * _GOLDEN % 1) / self._each
        return self._delays[number] * (1 - self._jitter * shift)


def jitter_of(identity: str, failures: int) -> int:
    """A number that chooses among the partitions of a delay.

    It differs with ``identity``, the ``topic:partition:offset`` where Redrive saw the message
    first, and with each failed attempt, so that a message always meets others.
    """
    return crc32(f"{identity}#{failures}".encode())


def _format_seconds(seconds: int) -> str:
    unit = next(unit for unit, factor in _UNITS.items() if seconds % factor == 0)
    return f"{seconds // _UNITS[unit]}{unit}"

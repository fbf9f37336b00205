"""Whether retries were on time: never early, and how late."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from redrive.demo.expectation import Outcome

__all__ = ["Punctuality"]


@dataclass(frozen=True, slots=True)
class Punctuality:
    """The due-time errors of retries: the time of an attempt minus the time it was due."""

    errors: Sequence[float]
    """In seconds, in ascending order; below 0 is early."""

    @classmethod
    def of(cls, outcomes: Iterable[Outcome], retry_interval: float) -> Self:
        """Measure every attempt that follows a failed one.

        Args:
            outcomes: Outcomes of any messages, in the order of time.
            retry_interval: RETRYINT of the table, in seconds.
        """
        parked: dict[str, int] = {}
        errors = []
        for outcome in outcomes:
            failed = parked.pop(outcome.origin, None)
            if failed is not None:
                errors.append((outcome.time - failed) / 1000 - retry_interval)
            if outcome.result == "parked":
                parked[outcome.origin] = outcome.time
        return cls(sorted(errors))

    @property
    def early(self) -> int:
        """How many retries came before they were due."""
        return sum(error < 0 for error in self.errors)

    def percentile(self, percent: float) -> float:
        """The error that so many of a hundred retries do not exceed (nearest rank).

        Args:
            percent: More than 0, at most 100.

        Raises:
            ValueError: There was no retry.
        """
        if not self.errors:
            raise ValueError("there was no retry")
        return self.errors[math.ceil(len(self.errors) * percent / 100) - 1]

    def __str__(self) -> str:
        if not self.errors:
            return "no retries"
        early = f"{self.early} EARLY" if self.early else "none early"
        return (
            f"{len(self.errors)} retries, {early}, after their due time by"
            f" {self.errors[0]:.2f} s (least), {self.percentile(50):.2f} s (p50),"
            f" {self.percentile(99):.2f} s (p99)"
        )

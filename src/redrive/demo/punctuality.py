"""Whether retries were on time: never early, and how late."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from redrive.demo.reconciliation import Trace

__all__ = ["Punctuality"]


@dataclass(frozen=True, slots=True)
class Punctuality:
    """The due-time errors of retries: the time of an attempt minus the time it was due."""

    errors: Sequence[float]
    """In seconds, in ascending order; below 0 is early."""

    @classmethod
    def of(cls, traces: Iterable[Trace], retry_interval: float) -> Self:
        """Measure every attempt that follows a failed one; the interval is in seconds."""
        return cls(
            sorted(
                (after.time - before.time) / 1000 - retry_interval
                for one in traces
                for before, after in pairwise(one.outcomes)
                if before.result == "parked"
            )
        )

    @property
    def early(self) -> int:
        """How many retries came before they were due."""
        return sum(error < 0 for error in self.errors)

    def percentile(self, percent: float) -> float:
        """The error that ``percent`` of the retries do not exceed (nearest rank)."""
        if not self.errors:
            raise ValueError("there was no retry")
        return self.errors[math.ceil(len(self.errors) * percent / 100) - 1]

    def document(self) -> dict[str, Any]:
        """The figures for programs."""
        if not self.errors:
            return {"count": 0, "early": 0, "due_time_error": None}
        middle = {"p50": self.percentile(50), "p99": self.percentile(99)}
        error = {"min": self.errors[0], **middle, "max": self.errors[-1]}
        return {"count": len(self.errors), "early": self.early, "due_time_error": error}

    def __str__(self) -> str:
        if not self.errors:
            return "no retries"
        early = f"{self.early} EARLY" if self.early else "none early"
        return (
            f"{len(self.errors)} retries, {early}, after their due time by"
            f" {self.errors[0]:.2f} s (least), {self.percentile(50):.2f} s (p50),"
            f" {self.percentile(99):.2f} s (p99)"
        )

"""What some batches did together, in words and for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from redrive.streaming.lifecycle import BatchSummary

__all__ = ["FailureKind", "Work", "counted"]

_RATE_FROM: Final = 1000
"""Messages below which a rate says nothing."""


def counted(count: int, noun: str) -> str:
    """A number with its noun: ``1 message``, ``1,234 messages``; ``1 try``, ``2 tries``."""
    if count == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {plural}"


class FailureKind(NamedTuple):
    """Failed attempts that deserve one line together."""

    handler: str
    rule_line: int
    reason: int
    target: str


@dataclass(slots=True)
class Work:
    """What several batches did."""

    last: BatchSummary
    """The latest of them."""
    batches: int = 0
    records: int = 0
    rows: int = 0
    """Rows that Spark read; more than records where some had their effects before."""
    seconds: float = 0.0
    results: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    """Inputs by handler, line of the rule and result."""
    failures: Counter[FailureKind] = field(default_factory=Counter)
    details: dict[FailureKind, str] = field(default_factory=dict)
    """What the last failure of a kind said; it may hold numbers that change."""

    def add(self, summary: BatchSummary) -> None:
        """Takes one more batch in."""
        self.last = summary
        self.batches += 1
        self.records += summary.records
        self.rows += summary.rows
        self.seconds += summary.seconds
        self.results.update(summary.results)
        for failure, count in summary.failures.items():
            kind = FailureKind(*failure[:4])
            self.failures[kind] += count
            self.details[kind] = failure.detail

    def by_result(self) -> Counter[str]:
        """Inputs by result, whatever the handler and the rule."""
        totals: Counter[str] = Counter()
        for (_, _, result), count in self.results.items():
            totals[result] += count
        return totals

    def sentence(self) -> str:
        """The work in words, such as ``12 messages in 0.08 s: 10 retried, 2 parked``."""
        totals = self.by_result().most_common()
        done = ", ".join(
            f"{count:,} {result if count == 1 else result.replace('remains', 'remain')}"
            for result, count in totals
        )
        rate = f" ({self.records / self.seconds:,.0f}/s)" if self.records >= _RATE_FROM else ""
        messages = counted(self.records, "message")
        return f"{messages} in {self.seconds:.2f} s{rate}: {done}"

    def facts(self) -> dict[str, Any]:
        """The work for programs."""
        return {
            "batch": self.last.batch,
            "batches": self.batches,
            "records": self.records,
            "rows": self.rows,
            "seconds": round(self.seconds, 6),
            "emitter": self.last.emitter.value,
            "results": [
                {"handler": handler, "rule_line": line, "result": result, "count": count}
                for (handler, line, result), count in self.results.items()
            ],
        }

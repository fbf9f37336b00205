"""The report at the end: outcomes per rule and result, punctuality, and the sum."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from redrive.demo.expectation import Outcome
from redrive.demo.punctuality import Punctuality
from redrive.demo.reconciliation import Reconciliation
from redrive.demo.scenario import Scenario
from redrive.demo.view import rule_text
from redrive.messages import reason_name
from redrive.rules import RulesTable

__all__ = ["Report"]

_RESULTS: Final = ("retried", "forwarded", "discarded", "remains")
_SHOWN_PROBLEMS: Final = 20
_RULE_WIDTH: Final = 32
"""Columns for a rule: the longest clause fits, and the table into 80."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of a demo."""

    scenario: Scenario
    table: RulesTable
    outcomes: Sequence[Outcome]
    """All of them, in the order of time."""
    punctuality: Punctuality
    reconciliation: Reconciliation
    seconds: float
    """How long the job ran."""

    @property
    def adds_up(self) -> bool:
        """Whether every message has become what it had to, exactly once."""
        return self.reconciliation.adds_up

    def show(self, console: Console) -> None:
        """Print the report.

        Args:
            console: Where to.
        """
        console.print(self._outcomes())
        console.print(
            f"RETRYINT({self.scenario.retry_interval}): {self.punctuality}", soft_wrap=True
        )
        problems = self.reconciliation.problems
        for problem in problems[:_SHOWN_PROBLEMS]:
            console.print(problem, style="red", markup=False, soft_wrap=True)
        if len(problems) > _SHOWN_PROBLEMS:
            console.print(f"and {len(problems) - _SHOWN_PROBLEMS} more", style="red")
        style = "bold green" if self.reconciliation.adds_up else "bold red"
        console.print(str(self.reconciliation), style=style, soft_wrap=True)
        if self.reconciliation.adds_up:
            console.print(
                "Each message was followed by its number: every attempt, in its order, and every"
                " byte that was written are what the table says.",
                style="dim",
            )

    def document(self) -> Mapping[str, Any]:
        """The report for programs."""
        sums = self.reconciliation
        errors = self.punctuality
        return {
            "seed": self.scenario.seed,
            "messages": self.scenario.messages,
            "seconds": round(self.seconds, 1),
            "in": sums.inputs,
            **sums.ends,
            "lost": sums.lost,
            "duplicated": sums.duplicated,
            "problems": list(sums.problems),
            "adds_up": sums.adds_up,
            "rules": [
                {"line": line, "rule": text, "results": dict(counts), "failures": dict(failures)}
                for line, text, counts, failures in self._rows()
            ],
            "retries": {
                "count": len(errors.errors),
                "early": errors.early,
                "due_time_error": {
                    "min": errors.errors[0],
                    "p50": errors.percentile(50),
                    "p99": errors.percentile(99),
                    "max": errors.errors[-1],
                }
                if errors.errors
                else None,
            },
        }

    def _outcomes(self) -> Table:
        table = Table(
            title="What became of the dead letters",
            title_justify="left",
            box=None,
            pad_edge=False,
            header_style="dim",
        )
        table.add_column("line", justify="right")
        table.add_column("rule", min_width=_RULE_WIDTH)
        for name in _RESULTS:
            table.add_column(name, justify="right", no_wrap=True)
        for line, text, counts, failures in self._rows():
            cells = [str(counts[name] or "") for name in _RESULTS]
            table.add_row(str(line or ""), Group(text, *_told(failures)), *cells)
        return table

    def _rows(self) -> Iterator[tuple[int, str, Counter[str], Counter[str]]]:
        """Line, rule, results and reasons of failed attempts, for each rule and for no rule."""
        results: dict[int, Counter[str]] = defaultdict(Counter)
        failures: dict[int, Counter[str]] = defaultdict(Counter)
        for outcome in self.outcomes:
            results[outcome.rule_line][outcome.result] += 1
            if outcome.reason:
                failures[outcome.rule_line][reason_name(outcome.reason)] += 1
        rules = {rule.line: rule_text(rule) for rule in self.table.rules}
        for line, text in {**rules, 0: "no rule, or no valid header"}.items():
            yield line, text, results[line], failures[line]


def _told(failures: Mapping[str, int]) -> Iterator[Text]:
    """Failed attempts, a line for each reason."""
    for reason, count in failures.items():
        yield Text(f"{count} failed: {reason.removeprefix('MQRC_')}", style="dim")

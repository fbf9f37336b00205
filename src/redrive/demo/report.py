"""The report at the end: what the script shows, and the sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from redrive.demo.reconciliation import Reconciliation, Trace
from redrive.demo.script import Script

__all__ = ["Report", "titled_table"]

_SHOWN_PROBLEMS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of a demo."""

    script: Script
    traces: Sequence[Trace]
    """Every message."""
    reconciliation: Reconciliation
    seconds: float
    """How long the job ran."""

    @property
    def adds_up(self) -> bool:
        """Whether every message ended where it had to, exactly once."""
        return self.reconciliation.adds_up

    def show(self, console: Console) -> None:
        """Print the report.

        Args:
            console: Where to.
        """
        self.script.show(self.traces, console)
        problems = self.reconciliation.problems
        for problem in problems[:_SHOWN_PROBLEMS]:
            console.print(problem, style="red", markup=False, soft_wrap=True)
        if len(problems) > _SHOWN_PROBLEMS:
            console.print(f"and {len(problems) - _SHOWN_PROBLEMS} more", style="red")
        style = "bold green" if self.adds_up else "bold red"
        console.print(str(self.reconciliation), style=style, soft_wrap=True)
        if self.adds_up:
            console.print(self.script.verdict, style="dim", soft_wrap=True)

    def document(self) -> Mapping[str, Any]:
        """The report for programs."""
        sums = self.reconciliation
        return {
            sums.counted: sums.inputs,
            **self.script.document(self.traces, sums.ends),
            "seconds": round(self.seconds, 1),
            "lost": sums.lost,
            "duplicated": sums.duplicated,
            "problems": list(sums.problems),
            "adds_up": sums.adds_up,
        }


def titled_table(title: str) -> Table:
    """An empty table in the style of reports."""
    return Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="dim")

"""The live view: a table that changes on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from redrive.demo.progress import Progress, Snapshot, notice_text
from redrive.demo.queues import INVOICES, ORDERS
from redrive.demo.scenario import Scenario
from redrive.demo.surroundings import Surroundings
from redrive.rules import Rule, RulesTable, write_action, write_clause
from redrive.streaming.lifecycle import JobObserver

__all__ = ["LiveView", "rule_text"]

_LINE_EVERY: Final = 5.0
"""Seconds between two lines where the view is not a table."""
_FRAMES: Final = 2
"""Pictures a second: drawing takes time from the job, which runs in the same process."""
_COLUMNS: Final = ("retried", "forwarded", "discarded", "remains", "parked")


def rule_text(rule: Rule) -> str:
    """A rule in one line, as the table writes it."""
    clauses = [write_clause(name, pattern) for name, pattern in rule.patterns.items()]
    return " ".join([*clauses, write_action(rule)])


class LiveView(JobObserver):
    """Shows how the job gets on."""

    def __init__(
        self,
        console: Console,
        scenario: Scenario,
        table: RulesTable,
        progress: Progress,
        surroundings: Surroundings,
    ) -> None:
        """Take what is to be shown.

        Args:
            console: Where to show it.
            scenario: The demo.
            table: The rules table.
            progress: What the job does.
            surroundings: What happens around it.
        """
        self._console = console
        self._scenario = scenario
        self._table = table
        self._progress = progress
        self._surroundings = surroundings

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Shows the view as long as the context lasts."""
        if self._console.is_terminal:
            with Live(
                console=self._console,
                get_renderable=self.picture,
                refresh_per_second=_FRAMES,
                redirect_stdout=False,
                redirect_stderr=False,
            ):
                yield
            return
        ended = Event()
        thread = Thread(target=self._write_lines, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def notice(self, message: str, /, **facts: object) -> None:
        """See ``JobObserver.notice``; the picture has its own place for notices."""
        if not self._console.is_terminal:
            self._console.print(notice_text(message, facts))

    def picture(self) -> RenderableType:
        """The whole view as it is now."""
        snapshot = self._progress.snapshot()
        parts: list[RenderableType] = [
            Text(self.line(snapshot), style="bold"),
            self._rules(snapshot),
            Text(self._around(snapshot)),
        ]
        parts += [Text(notice, style="yellow") for notice in snapshot.notices]
        return Group(*parts)

    def line(self, snapshot: Snapshot) -> str:
        """The most important figures in one line."""
        if snapshot.elapsed is None:
            return "the job is starting ..."
        due = "" if snapshot.next_due is None else f", next due in {snapshot.next_due:.1f} s"
        return (
            f"{snapshot.elapsed:5.1f} s: {snapshot.ended} of {self._scenario.messages} done,"
            f" {snapshot.rate:.0f} a second, {snapshot.parked} parked{due}"
        )

    def _rules(self, snapshot: Snapshot) -> Table:
        table = Table(box=None, padding=(0, 1), header_style="dim", expand=True)
        table.add_column("line", justify="right", min_width=4)
        table.add_column("rule", no_wrap=True, ratio=1, overflow="ellipsis")
        for name in _COLUMNS:
            table.add_column(name, justify="right", min_width=len(name))
        rules = {rule.line: rule_text(rule) for rule in self._table.rules}
        for line, text in {**rules, 0: "no rule"}.items():
            counts = [snapshot.results.get((line, name), 0) for name in _COLUMNS]
            table.add_row(str(line or ""), text, *(str(count or "") for count in counts))
        return table

    def _around(self, snapshot: Snapshot) -> str:
        late = self._scenario.late_by - (snapshot.elapsed or 0.0)
        invoices = f"appears in {max(0.0, late):.0f} s"
        if self._surroundings.late_queue_exists:
            invoices = "exists now"
        return (
            f"{self._surroundings.written} dead letters written; the slow consumer has read"
            f" {self._surroundings.consumed} of {ORDERS}; {INVOICES} {invoices}"
        )

    def _write_lines(self, ended: Event) -> None:
        last = ""
        while not ended.wait(_LINE_EVERY):
            snapshot = self._progress.snapshot()
            line = f"{self.line(snapshot)}; {self._around(snapshot)}"
            if line != last:
                self._console.print(line)
            last = line

"""The live view: a table that changes on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from redrive.demo.progress import Progress, Snapshot, notice_text
from redrive.demo.script import View
from redrive.kafka.deadline import CLOSE
from redrive.rules import RulesTable, write_action, write_clause

__all__ = ["LiveView", "rule_texts"]

_LINE_EVERY: Final = 5.0
"""Seconds between two lines where the view is not a table."""
_FRAMES: Final = 2
"""Pictures a second: drawing takes time from the job, which runs in the same process."""
_COLUMNS: Final = ("retried", "forwarded", "discarded", "remains", "parked")


def rule_texts(table: RulesTable, *, no_rule: str) -> dict[int, str]:
    """The rules of a table, each in one line as the table writes it, by line; 0 is for none.

    Args:
        table: The table.
        no_rule: What to call it if there is no rule.
    """
    texts = {}
    for rule in table.rules:
        clauses = [write_clause(name, pattern) for name, pattern in rule.patterns.items()]
        texts[rule.line] = " ".join([*clauses, write_action(rule)])
    return {**texts, 0: no_rule}


class LiveView(View):
    """Shows what each rule of a table has done."""

    def __init__(
        self,
        console: Console,
        progress: Progress,
        table: RulesTable,
        messages: int,
        load: Callable[[float], str],
    ) -> None:
        """Take what is to be shown.

        Args:
            console: Where to show it.
            progress: What the job does.
            table: The rules table.
            messages: How many messages there are to handle.
            load: Describes what happens around the job, so many seconds after its start.
        """
        super().__init__(console)
        self._progress = progress
        self._table = table
        self._messages = messages
        self._load = load

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
            thread.join(CLOSE)

    def notice(self, message: str, /, **facts: object) -> None:
        """See ``JobObserver.notice``; the picture has its own place for notices."""
        if not self._console.is_terminal:
            self._console.print(notice_text(message, facts), markup=False)

    def warning(self, message: str, /, **facts: object) -> None:
        """See ``JobObserver.warning``; shown as notices are."""
        self.notice(message, **facts)

    def picture(self) -> RenderableType:
        """The whole view as it is now."""
        snapshot = self._progress.snapshot()
        parts: list[RenderableType] = [
            Text(self.line(snapshot), style="bold"),
            self._rules(snapshot),
            Text(self._load(snapshot.elapsed or 0.0)),
        ]
        parts += [Text(notice, style="yellow") for notice in snapshot.notices]
        return Group(*parts)

    def line(self, snapshot: Snapshot) -> str:
        """The most important figures in one line."""
        if snapshot.elapsed is None:
            return "the job is starting ..."
        due = "" if snapshot.next_due is None else f", next due in {snapshot.next_due:.1f} s"
        return (
            f"{snapshot.elapsed:5.1f} s: {snapshot.ended} of {self._messages} done,"
            f" {snapshot.rate:.0f} a second, {snapshot.parked} parked{due}"
        )

    def _rules(self, snapshot: Snapshot) -> Table:
        table = Table(box=None, padding=(0, 1), header_style="dim", expand=True)
        table.add_column("line", justify="right", min_width=4)
        table.add_column("rule", no_wrap=True, ratio=1, overflow="ellipsis")
        for name in _COLUMNS:
            table.add_column(name, justify="right", min_width=len(name))
        for line, text in rule_texts(self._table, no_rule="no rule").items():
            counts = [snapshot.results.get((line, name), 0) for name in _COLUMNS]
            table.add_row(str(line or ""), text, *(str(count or "") for count in counts))
        return table

    def _write_lines(self, ended: Event) -> None:
        last = ""
        while not ended.wait(_LINE_EVERY):
            snapshot = self._progress.snapshot()
            line = f"{self.line(snapshot)}; {self._load(snapshot.elapsed or 0.0)}"
            if line != last:
                self._console.print(line)
            last = line

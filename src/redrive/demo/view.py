"""The live view: a changing table on a terminal, a line every few seconds elsewhere.

It shows what the job reports; the report at the end does not use these figures.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from redrive.configuration import JobConfiguration
from redrive.demo.script import View, notice_text
from redrive.kafka.deadline import CLOSE
from redrive.rules import RulesTable, write_action, write_clause
from redrive.streaming.lifecycle import BatchSummary

_RATE_WINDOW: Final = 5.0
"""Seconds over which the rate is measured."""
_NOTICES: Final = 3
_LINE_EVERY: Final = 5.0
"""Seconds between two lines when the view is not a table."""
_FRAMES: Final = 2
"""Updates a second; drawing takes time from the job, which runs in the same process."""
_COLUMNS: Final = ("retried", "forwarded", "discarded", "remains", "parked")


def rule_texts(table: RulesTable, *, no_rule: str) -> dict[int, str]:
    """The rules of a table, each in one line, by its line in the table; ``no_rule`` for 0."""
    texts = {}
    for rule in table.rules:
        clauses = [write_clause(name, pattern) for name, pattern in rule.patterns.items()]
        texts[rule.line] = " ".join([*clauses, write_action(rule)])
    return {**texts, 0: no_rule}


class LiveView(View):
    """Adds up the job's reports, and shows the results of each rule of a table.

    ``load`` describes the load, given the seconds since the start of the job.
    """

    def __init__(
        self,
        console: Console,
        table: RulesTable,
        messages: int,
        load: Callable[[float], str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(console)
        self._table, self._messages, self._load, self._clock = table, messages, load, clock
        # The job reports from its own threads.
        self._lock = threading.Lock()
        self._started_at: float | None = None
        self._results: Counter[tuple[int, str]] = Counter()
        """Inputs by line of the rule and result; a message counts once for each attempt."""
        self._recent: deque[tuple[float, int]] = deque()
        self._parked: deque[tuple[float, int]] = deque()
        self._notices: deque[str] = deque(maxlen=_NOTICES)

    def started(self, configuration: JobConfiguration) -> None:
        """See ``JobObserver.started``."""
        del configuration
        self._started_at = self._clock()

    def batch(self, summary: BatchSummary) -> None:
        """See ``JobObserver.batch``."""
        with self._lock:
            for (_, line, result), count in summary.results.items():
                self._results[line, result] += count
            self._recent.append((self._clock(), summary.records))
            if parked := summary.by_result.get("parked", 0):
                due = summary.time / 1000 + self._table.control.retry_interval
                self._parked.append((due, parked))

    def notice(self, message: str, /, **facts: object) -> None:
        """See ``JobObserver.notice``; notices have their own place in the view."""
        if self._console.is_terminal:
            self._notices.append(notice_text(message, facts))
        else:
            self._console.print(notice_text(message, facts), markup=False)

    def warning(self, message: str, /, **facts: object) -> None:
        """See ``JobObserver.warning``; shown as notices are."""
        self.notice(message, **facts)

    @property
    def has_parked(self) -> bool:
        """Whether any message has been refused, and waits or waited for its next attempt."""
        with self._lock:
            return any(result == "parked" for _, result in self._results)

    @property
    def elapsed(self) -> float:
        """Seconds since the start of the job; 0 before."""
        return 0.0 if self._started_at is None else self._clock() - self._started_at

    def line(self) -> str:
        """The most important figures in one line."""
        if self._started_at is None:
            return "the job is starting ..."
        with self._lock:
            now = self._clock()
            _drop_before(self._recent, now - _RATE_WINDOW)
            # A due message is read at once, so the parked ones are not due yet.
            _drop_before(self._parked, now)
            ended = sum(count for (_, result), count in self._results.items() if result != "parked")
            rate = sum(n for _, n in self._recent) / max(1.0, min(_RATE_WINDOW, self.elapsed))
            parked = sum(count for _, count in self._parked)
            due = f", next due in {self._parked[0][0] - now:.1f} s" if self._parked else ""
        return (
            f"{self.elapsed:5.1f} s: {ended} of {self._messages} done,"
            f" {rate:.0f} a second, {parked} parked{due}"
        )

    def picture(self) -> RenderableType:
        """The whole view as it is now."""
        notices = [Text(notice, style="yellow") for notice in list(self._notices)]
        load = Text(self._load(self.elapsed))
        return Group(Text(self.line(), style="bold"), self._rules(), load, *notices)

    def _rules(self) -> Table:
        table = Table(box=None, padding=(0, 1), header_style="dim", expand=True)
        table.add_column("line", justify="right", min_width=4)
        table.add_column("rule", no_wrap=True, ratio=1, overflow="ellipsis")
        for name in _COLUMNS:
            table.add_column(name, justify="right", min_width=len(name))
        with self._lock:
            results = dict(self._results)
        for line, text in rule_texts(self._table, no_rule="no rule").items():
            counts = (str(results.get((line, name)) or "") for name in _COLUMNS)
            table.add_row(str(line or ""), text, *counts)
        return table

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the view while the context lasts."""
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
        ended = threading.Event()
        thread = threading.Thread(target=self._write_lines, args=(ended,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(CLOSE)

    def _write_lines(self, ended: threading.Event) -> None:
        last = ""
        while not ended.wait(_LINE_EVERY):
            line = f"{self.line()}; {self._load(self.elapsed)}"
            if line != last:
                self._console.print(line)
            last = line


def _drop_before(entries: deque[tuple[float, int]], limit: float) -> None:
    while entries and entries[0][0] < limit:
        entries.popleft()

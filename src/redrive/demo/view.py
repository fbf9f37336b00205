"""The live view: a table that changes on a terminal, a line every few seconds elsewhere.

It shows what the job reports; the report at the end does not use these figures.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from redrive.configuration import JobConfiguration
from redrive.demo.script import View, notice_text
from redrive.kafka.deadline import CLOSE
from redrive.rules import RulesTable, write_action, write_clause
from redrive.streaming.lifecycle import BatchSummary, JobObserver

__all__ = ["LiveView", "Progress", "Snapshot", "rule_texts"]

_RATE_WINDOW: Final = 5.0
"""Seconds over which the rate is taken."""
_NOTICES: Final = 3
"""Notices that are kept."""
_LINE_EVERY: Final = 5.0
"""Seconds between two lines where the view is not a table."""
_FRAMES: Final = 2
"""Pictures a second: drawing takes time from the job, which runs in the same process."""
_COLUMNS: Final = ("retried", "forwarded", "discarded", "remains", "parked")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The figures of the job at one time."""

    elapsed: float | None
    """Seconds since the job runs; None before."""
    results: Mapping[tuple[int, str], int]
    """Inputs by line of the rule and result; a message counts once for each attempt."""
    ended: int
    """Messages that have reached their end."""
    rate: float
    """Inputs a second, due retries included."""
    parked: int
    next_due: float | None
    """Seconds until the next parked message is due; None if there is none."""
    notices: tuple[str, ...] = ()
    """The last notices of the job."""


class Progress(JobObserver):
    """Adds up what the job reports.

    Args:
        retry_interval: RETRYINT of the table, in seconds.
        clock: Seconds since 1970.
    """

    def __init__(self, retry_interval: float, clock: Callable[[], float] = time.time) -> None:
        self._retry_interval = retry_interval
        self._clock = clock
        self._lock = threading.Lock()
        self._started_at: float | None = None
        self._results: Counter[tuple[int, str]] = Counter()
        self._recent: deque[tuple[float, int]] = deque()
        self._parked: deque[tuple[float, int]] = deque()
        self._notices: deque[str] = deque(maxlen=_NOTICES)

    def started(self, configuration: JobConfiguration) -> None:
        """See ``JobObserver.started``."""
        del configuration
        with self._lock:
            self._started_at = self._clock()

    def batch(self, summary: BatchSummary) -> None:
        """See ``JobObserver.batch``."""
        with self._lock:
            for (_, line, result), count in summary.results.items():
                self._results[line, result] += count
            self._recent.append((self._clock(), summary.records))
            if parked := summary.by_result.get("parked", 0):
                due = summary.time / 1000 + self._retry_interval
                self._parked.append((due, parked))

    def notice(self, message: str, /, **facts: object) -> None:
        """See ``JobObserver.notice``."""
        with self._lock:
            self._notices.append(notice_text(message, facts))

    def warning(self, message: str, /, **facts: object) -> None:
        """See ``JobObserver.warning``."""
        self.notice(message, **facts)

    @property
    def has_parked(self) -> bool:
        """Whether any message has been refused, and waits or waited for its next attempt."""
        with self._lock:
            return any(result == "parked" for _, result in self._results)

    def snapshot(self) -> Snapshot:
        """The figures now."""
        with self._lock:
            now = self._clock()
            _drop_before(self._recent, now - _RATE_WINDOW)
            # A due message is read again at once, so the parked are those that are not due yet.
            _drop_before(self._parked, now)
            elapsed = None if self._started_at is None else now - self._started_at
            window = max(1.0, min(_RATE_WINDOW, elapsed or 0.0))
            return Snapshot(
                elapsed=elapsed,
                results=dict(self._results),
                ended=sum(n for (_, result), n in self._results.items() if result != "parked"),
                rate=sum(count for _, count in self._recent) / window,
                parked=sum(count for _, count in self._parked),
                next_due=self._parked[0][0] - now if self._parked else None,
                notices=tuple(self._notices),
            )


def _drop_before(entries: deque[tuple[float, int]], limit: float) -> None:
    while entries and entries[0][0] < limit:
        entries.popleft()


def rule_texts(table: RulesTable, *, no_rule: str) -> dict[int, str]:
    """The rules of a table, each in one line, by its line in the table; ``no_rule`` for 0."""
    texts = {}
    for rule in table.rules:
        clauses = [write_clause(name, pattern) for name, pattern in rule.patterns.items()]
        texts[rule.line] = " ".join([*clauses, write_action(rule)])
    return {**texts, 0: no_rule}


class LiveView(View):
    """Shows the results of each rule of a table.

    Args:
        console: Where to show them.
        progress: The job's figures.
        table: The rules table.
        messages: How many messages there are to handle.
        load: Describes the load, so many seconds after the start of the job.
    """

    def __init__(
        self,
        console: Console,
        progress: Progress,
        table: RulesTable,
        messages: int,
        load: Callable[[float], str],
    ) -> None:
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
        ended = threading.Event()
        thread = threading.Thread(target=self._write_lines, args=(ended,), daemon=True)
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

    def _write_lines(self, ended: threading.Event) -> None:
        last = ""
        while not ended.wait(_LINE_EVERY):
            snapshot = self._progress.snapshot()
            line = f"{self.line(snapshot)}; {self._load(snapshot.elapsed or 0.0)}"
            if line != last:
                self._console.print(line)
            last = line

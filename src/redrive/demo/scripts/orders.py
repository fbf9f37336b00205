"""The demo with dead letters: a rules table, a slow consumer, and a queue that is created late."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

from rich.console import Console, Group

from redrive.demo.environment import Environment
from redrive.demo.reconciliation import Trace
from redrive.demo.script import Operator, View, titled_table
from redrive.demo.scripts.dead_letters import DeadLetterScript, failed_lines
from redrive.demo.scripts.load import (
    DEAD_LETTER_QUEUE,
    MAX_MESSAGE_LENGTH,
    ORDERS,
    SLOW_CONSUMER,
    Load,
)
from redrive.demo.scripts.samples import KINDS, generate
from redrive.demo.view import LiveView, rule_texts
from redrive.messages import reason_name

_FULL_PARTS: Final = 8
"""The full queue has room for only this share of its messages, so that they need many retries."""
_RESULTS: Final = ("retried", "forwarded", "discarded", "remains")
_RULE_WIDTH: Final = 32
"""Columns for a rule: the longest clause fits, and the table fits into 80."""


class Orders(DeadLetterScript):
    """Dead letters of many kinds; the job ends by itself, because the table says WAIT(NO)."""

    verdict = (
        "Each message was traced by its number: it is in one place, where the table puts it, and"
        " every byte is unchanged."
    )

    def __init__(self, messages: int, seed: int, *, fast: bool = False) -> None:
        self.title = f"with {messages} dead letters, seed {seed}"
        self._retry_interval = 1 if fast else 6
        samples = list(generate(messages, seed, int(time.time() * 1000)))
        super().__init__(samples, seed, "sample.rul", f"RETRYINT({self._retry_interval})")
        [share] = [kind.share for kind in KINDS if kind.queues == (ORDERS,)]
        orders = max(1, messages * share // sum(kind.share for kind in KINDS))
        self.max_depth = max(5, orders // _FULL_PARTS)
        """MAXDEPTH of the full queue."""
        feeding, draining, late_by = (2, 4, 3) if fast else (40, 45, 60)
        self._load = Load(self.messages, self.max_depth, orders / draining, feeding, late_by)

    def write_files(self, folder: Path, bootstrap_servers: str) -> None:
        """See ``Script.write_files``."""
        limits = "".join(
            f'[queues."{name}"]\nmax_message_length = {length}\n\n'
            for name, length in MAX_MESSAGE_LENGTH.items()
        )
        full = (
            f'[queues."{ORDERS}"]\nmax_depth = {self.max_depth}\n'
            f'consumer_group = "{SLOW_CONSUMER}"\n\n'
        )
        self._write_files(folder, bootstrap_servers, [DEAD_LETTER_QUEUE], full + limits)

    def prepare(self, environment: Environment, operator: Operator) -> None:
        """See ``Script.prepare``."""
        with environment.step("Dead letters") as progress:
            self._load.prepare(operator)
            progress(f"{self._load.written} on {DEAD_LETTER_QUEUE}, the others follow")

    def play(self, operator: Operator) -> None:
        """See ``Script.play``."""
        self._load.move(operator, lambda: self._view.has_parked)

    def view(self, console: Console) -> View:
        """See ``Script.view``."""
        self._view = LiveView(console, self.table, len(self.messages), self._load.describe)
        return self._view

    def show(self, traces: Sequence[Trace], console: Console) -> None:
        """See ``Script.show``."""
        table = titled_table("Results of the dead letters")
        table.add_column("line", justify="right")
        table.add_column("rule", min_width=_RULE_WIDTH)
        for name in _RESULTS:
            table.add_column(name, justify="right", no_wrap=True)
        for line, text, results, failures in self._rows(traces):
            cells = [str(results[name] or "") for name in _RESULTS]
            table.add_row(str(line or ""), Group(text, *failed_lines(failures)), *cells)
        console.print(table)
        errors = Punctuality.of(traces, self._retry_interval)
        console.print(f"RETRYINT({self._retry_interval}): {errors}", soft_wrap=True)

    def document(self, traces: Sequence[Trace], ends: Mapping[str, int]) -> dict[str, Any]:
        """See ``Script.document``."""
        rules = [
            {"line": line, "rule": text, "results": dict(results), "failures": dict(failures)}
            for line, text, results, failures in self._rows(traces)
        ]
        retries = Punctuality.of(traces, self._retry_interval).document()
        return self._document(ends, rules=rules, retries=retries)

    def _rows(
        self, traces: Sequence[Trace]
    ) -> Iterator[tuple[int, str, Counter[str], Counter[str]]]:
        """Line, rule, results and reasons of failed attempts, for each rule and for no rule."""
        results: dict[int, Counter[str]] = defaultdict(Counter)
        failures: dict[int, Counter[str]] = defaultdict(Counter)
        for outcome in (outcome for one in traces for outcome in one.outcomes):
            results[outcome.rule_line][outcome.result] += 1
            if outcome.reason:
                failures[outcome.rule_line][reason_name(outcome.reason)] += 1
        for line, text in rule_texts(self.table, no_rule="no rule, or no valid header").items():
            yield line, text, results[line], failures[line]


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
        """How many retries were early."""
        return sum(error < 0 for error in self.errors)

    def percentile(self, percent: float) -> float:
        """The error that ``percent`` of the retries do not exceed (nearest rank)."""
        if not self.errors:
            raise ValueError("no retries")
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

"""Logs the events and batches of a job."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from redrive.configuration import JobConfiguration
from redrive.errors import ConfigurationError, RedriveError
from redrive.logs.lines import log_findings
from redrive.messages.constants import reason_name
from redrive.printable import counted
from redrive.streaming.lifecycle import BatchSummary, JobObserver

_BATCH_INTERVAL: Final = 1.0
"""Seconds between two lines about batches, for a reader to follow."""
_INVALID_INTERVAL: Final = 60.0
"""Seconds between two lines about messages without a valid dead-letter header."""

_LONG_AGO: Final = -float("inf")
_SHOWN: Final = 10
"""Maximum queues in the line about the start."""
_RATE_FROM: Final = 1000
"""With fewer messages a rate is meaningless."""


class _FailureKind(NamedTuple):
    """Failed attempts that share one line."""

    handler: str
    rule_line: int
    reason: int
    target: str


@dataclass(slots=True)
class _BatchStatistics:
    """Statistics of several batches."""

    last: BatchSummary
    batches: int = 0
    rows: int = 0
    """Rows that Spark read; more than inputs if some were already committed."""
    seconds: float = 0.0
    results: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    """Inputs by handler, line of the rule (0 for none) and result, regardless of the reason."""
    failures: Counter[_FailureKind] = field(default_factory=Counter)
    details: dict[_FailureKind, str] = field(default_factory=dict)
    """The last detail of each kind of failure."""

    def add(self, summary: BatchSummary) -> None:
        self.last = summary
        self.batches += 1
        self.rows += summary.rows
        self.seconds += summary.seconds
        for kind, count in summary.inputs.items():
            self.results[kind[:3]] += count
        for failure, count in summary.failures.items():
            failure_kind = _FailureKind(*failure[:4])
            self.failures[failure_kind] += count
            self.details[failure_kind] = failure.detail

    def sentence(self) -> str:
        """``12 messages in 0.08 s: 10 retried, 2 parked``."""
        totals: Counter[str] = Counter()
        for (_, _, result), count in self.results.items():
            totals[result] += count
        done = ", ".join(
            f"{count:,} {result if count == 1 else result.replace('remains', 'remain')}"
            for result, count in totals.most_common()
        )
        records = self.results.total()
        rate = f" ({records / self.seconds:,.0f}/s)" if records >= _RATE_FROM else ""
        messages = counted(records, "message")
        return f"{messages} in {self.seconds:.2f} s{rate}: {done}"

    def facts(self) -> dict[str, Any]:
        return {
            "batch": self.last.batch,
            "batches": self.batches,
            "records": self.results.total(),
            "rows": self.rows,
            "seconds": round(self.seconds, 6),
            "emitter": self.last.emitter.value,
            "results": [
                {"handler": handler, "rule_line": line, "result": result, "count": count}
                for (handler, line, result), count in self.results.items()
            ],
        }


class LogObserver(JobObserver):
    """Logs batches: at once when the job is quiet, in summary when it is busy.

    Args:
        interval: Seconds between two lines about batches.
    """

    def __init__(self, *, interval: float = _BATCH_INTERVAL) -> None:
        self._logger = logging.getLogger("redrive.job")
        self._interval = interval
        self._lock = threading.Lock()
        self._statistics: _BatchStatistics | None = None
        self._timer: threading.Timer | None = None
        self._next_line = _LONG_AGO
        self._next_invalid = _LONG_AGO
        self._invalid = 0
        self._invalid_in_all = 0

    def started(self, configuration: JobConfiguration) -> None:
        """Log that new records are handled."""
        parts = []
        if configuration.handlers:
            queues = [handler.identity.queue for handler in configuration.handlers]
            names = ", ".join(queues[:_SHOWN])
            if len(queues) > _SHOWN:
                names = f"{len(queues)} queues, {names}, ..."
            parts.append(f"handling the dead letters of {names}")
        if configuration.topology and configuration.routes_puts:
            files = ", ".join(Path(source.name).name for source in configuration.topology)
            parts.append(f"carrying out puts by {files}")
        self._logger.info("%s", "; ".join(parts), extra=_event("started"))

    def batch(self, summary: BatchSummary) -> None:
        """Log a committed batch."""
        with self._lock:
            self._statistics = self._statistics or _BatchStatistics(summary)
            self._statistics.add(summary)
            self._invalid += summary.invalid
            wait = self._next_line - time.monotonic()
            if wait <= 0:
                self._write()
            elif self._timer is None:
                self._timer = threading.Timer(wait, self._write_later)
                self._timer.daemon = True
                self._timer.start()

    def notice(self, message: str, /, **facts: object) -> None:
        """Log information for an operator."""
        self._logger.info("%s", message, extra={"facts": facts, **_event("notice")})

    def warning(self, message: str, /, **facts: object) -> None:
        """Log a problem that blocks the job."""
        self._logger.warning("%s", message, extra={"facts": facts, **_event("warning")})

    def restarted(self, configuration: JobConfiguration, *, is_new_run: bool) -> None:
        """Log that the job continues with new settings and tables."""
        rules = dict.fromkeys(handler.rules_name for handler in configuration.handlers)
        names = ", ".join([*rules, *(source.name for source in configuration.topology)])
        extra = {"facts": {"new_run": is_new_run}, **_event("restarted")}
        self._logger.info("restarted with %s", names, extra=extra)

    def restart_refused(self, error: RedriveError) -> None:
        """Log why the job keeps its old settings and tables."""
        if isinstance(error, ConfigurationError):
            log_findings(self._logger, error.diagnostics)
        message = "not restarted, the job continues with the old settings: %s"
        facts = {"hint": error.hint} if error.hint else {}
        extra = {"facts": facts, **_event("restart refused")}
        self._logger.error(message, error.message, extra=extra)

    def stopped(self, reason: str) -> None:
        """Log that the job has stopped, and why."""
        with self._lock:
            self._next_invalid = _LONG_AGO
            self._write()
        self._logger.info("stopped: %s", reason, extra=_event("stopped"))

    def _write_later(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._write()

    def _write(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        statistics, self._statistics = self._statistics, None
        if statistics is not None:
            extra = _event("batches", **statistics.facts())
            self._logger.info("%s", statistics.sentence(), extra=extra)
            for kind, count in statistics.failures.items():
                self._write_failure(kind, count, statistics.details[kind])
        now = time.monotonic()
        self._next_line = now + self._interval
        if self._invalid and now >= self._next_invalid:
            self._write_invalid()
            self._next_invalid = now + _INVALID_INTERVAL

    def _write_failure(self, kind: _FailureKind, count: int, detail: str) -> None:
        rule = f"the rule at line {kind.rule_line}" if kind.rule_line else kind.handler
        self._logger.warning(
            "%s could not put %s on %s: %s (%d), %s",
            rule,
            counted(count, "message"),
            kind.target or "a queue without a name",
            reason_name(kind.reason),
            kind.reason,
            detail,
            extra={
                "facts": {"handler": kind.handler},
                **_event("failures", **kind._asdict(), count=count, detail=detail),
            },
        )

    def _write_invalid(self) -> None:
        self._invalid_in_all += self._invalid
        self._logger.warning(
            "%s without a valid dead-letter header: kept, as no rule can match",
            counted(self._invalid, "message"),
            extra={
                "facts": {"in_all": self._invalid_in_all},
                **_event("invalid", count=self._invalid),
            },
        )
        self._invalid = 0


def _event(name: str, **details: Any) -> dict[str, Any]:  # noqa: ANN401 - what JSON takes
    return {"details": {"event": name, **details}}

"""The log: lines for people or JSON for programs, and the events of a job.

All of Redrive logs through ``logging.getLogger("redrive...")``. Values may accompany the
message, so that programs need not parse sentences::

    logger.info("topic is not there yet", extra={"facts": {"topic": "ORDERS.DLQ"}})

``facts`` are shown in both forms; ``details`` only in JSON, when the message contains them.
"""

from __future__ import annotations

import atexit
import faulthandler
import logging
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple, TextIO

import orjson

from redrive.configuration import JobConfiguration
from redrive.diagnostics import Diagnostic, Severity
from redrive.errors import ConfigurationError, EnvironmentFault, RedriveError
from redrive.masking import Mask
from redrive.messages.constants import reason_name
from redrive.printable import counted
from redrive.settings import LogFormat, LogSettings
from redrive.streaming.lifecycle import BatchSummary, JobObserver
from redrive.text_log import TextFormatter, extra_of

_HANDLER: Final = "redrive"
"""Name of our only handler."""
_NOISY: Final = {"py4j": logging.CRITICAL, "kafka": logging.ERROR}
"""Libraries that log handled errors, with their minimum level."""

_OUTPUTS: Final = (1, 2)
"""The descriptors of standard output and standard error, which children inherit."""
_LAST: Final = "\0\n"
"""Marks the end of the printed output."""
_PANIC: Final = re.compile(r"thread '.*' .*panicked at .*:$")
"""The first of two lines that a failure in a library in Rust prints: its place, then its cause."""
_ADVICE: Final = "note: run with `RUST_BACKTRACE="
"""Its last line, for developers of the library."""
_LAST_LINES: Final = 2.0
"""Seconds for the last lines at the end of the process."""
_consoles: Final[list[TextIO]] = []
"""The original standard error before ``log_all_output``; empty without it."""


def configure_logging(settings: LogSettings) -> None:
    """Configure, or reconfigure, the log.

    Raises:
        EnvironmentFault: The file cannot be written.
    """
    root = logging.getLogger()
    handler = _handler(settings)
    formatter = _JsonFormatter if settings.format is LogFormat.JSON else _MaskedFormatter
    handler.setFormatter(formatter(settings.mask))
    for old in [old for old in root.handlers if old.name == _HANDLER]:
        root.removeHandler(old)
        old.close()
    handler.set_name(_HANDLER)
    # The bridge to Java also logs what it raises, by the root logger.
    handler.addFilter(
        lambda record: record.name != "root" or Path(record.pathname).parent.name != "py4j"
    )
    root.addHandler(handler)
    logging.getLogger("redrive").setLevel(settings.level.value.upper())
    for name, level in _NOISY.items():
        logging.getLogger(name).setLevel(level)


def _handler(settings: LogSettings) -> logging.Handler:
    if not settings.file:
        return logging.StreamHandler(_consoles[0] if _consoles else sys.stderr)
    try:
        Path(settings.file).parent.mkdir(parents=True, exist_ok=True)
        # It reopens the file after logrotate.
        return WatchedFileHandler(settings.file, encoding="utf-8")
    except OSError as error:
        raise EnvironmentFault(
            f"the log {settings.file} cannot be written: {error.strerror}",
            hint="set another file in [log], or leave it out for standard error",
        ) from error


def log_all_output() -> None:
    """Log every line that this process and its children print.

    Java, Spark's Python workers and libraries in C print to the descriptors that they inherit, so
    these become a pipe, which a thread reads until the process ends. Call it before
    ``configure_logging``, for a log on standard error.
    """
    if _consoles:
        return
    before = {number: os.dup(number) for number in _OUTPUTS}
    console = os.fdopen(
        before[2], "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )
    _consoles.append(console)
    reader, writer = os.pipe()
    for number in _OUTPUTS:
        os.dup2(writer, number)
    os.close(writer)
    thread = Thread(target=_log_lines, args=(reader,), name="redrive-output", daemon=True)
    thread.start()
    faulthandler.enable(console)  # a crashed process no longer reads its pipe
    logging.raiseExceptions = False  # lines that the log cannot write would return to it forever
    atexit.register(_end_of_output, before, thread)


def _log_lines(reader: int) -> None:
    logger = logging.getLogger("redrive.output")
    logger.setLevel(logging.WARNING)  # at any level of the log, as it may be an error
    with os.fdopen(reader, encoding="utf-8", errors="replace") as lines:
        panic = ""
        for line in lines:
            text = line.rstrip("\0\n")
            if panic:
                text, panic = f"{panic} {text}", ""
            elif _PANIC.match(text):
                panic = text
                continue
            if text and not text.startswith(_ADVICE):
                logger.warning("%s", text, extra={"details": {"event": "output"}})
            if line.endswith(_LAST):
                return


def _end_of_output(before: Mapping[int, int], thread: Thread) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(2, _LAST.encode())
    for number, descriptor in before.items():
        os.dup2(descriptor, number)
    thread.join(_LAST_LINES)


class _MaskedFormatter(TextFormatter):
    """Formats masked lines of text."""

    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        return self._mask.text(super().format(record))


class _JsonFormatter(logging.Formatter):
    """Formats one masked JSON object a line; time in UTC."""

    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC)
        entry = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **extra_of(record, "facts"),
            **extra_of(record, "details"),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        # Before encoding: a pattern with a quotation mark would not match an escaped one.
        masked = self._mask.plain(entry) if self._mask else entry
        return orjson.dumps(
            masked,
            default=lambda value: self._mask.text(str(value)),
            option=orjson.OPT_NON_STR_KEYS,
        ).decode()


def log_findings(logger: logging.Logger, findings: Sequence[Diagnostic]) -> None:
    """Log a line for each finding."""
    for finding in findings:
        facts = {"hint": finding.hint} if finding.hint else {}
        message = f"{finding}: {finding.message} [{finding.code}]"
        level = logging.ERROR if finding.severity is Severity.ERROR else logging.WARNING
        logger.log(level, "%s", message, extra={"facts": facts})


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
            self._invalid += summary.invalid.total()
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

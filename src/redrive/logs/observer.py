"""What a job does, as lines of the log."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from redrive.errors import ConfigurationError, RedriveError
from redrive.logs.lines import log_findings
from redrive.logs.work import FailureKind, Work, counted
from redrive.messages.constants import reason_name
from redrive.streaming.lifecycle import BatchSummary, JobObserver

if TYPE_CHECKING:
    from redrive.configuration import JobConfiguration

__all__ = ["LogObserver"]

_BATCH_INTERVAL: Final = 1.0
"""Seconds between two lines about batches: more is more than a person can follow."""

_INVALID_INTERVAL: Final = 60.0
"""Seconds between two lines about messages without a valid dead-letter header."""

_LONG_AGO: Final = -float("inf")


class LogObserver(JobObserver):
    """Writes what a job does to the log: at once when it is quiet, summed up when it is busy."""

    def __init__(
        self,
        logger: logging.Logger | None = None,
        *,
        interval: float = _BATCH_INTERVAL,
        invalid_interval: float = _INVALID_INTERVAL,
    ) -> None:
        """Start with nothing to report.

        Args:
            logger: Takes the lines.
            interval: Seconds between two lines about batches.
            invalid_interval: Seconds between two about messages without a dead-letter header.
        """
        self._logger = logger or logging.getLogger("redrive.job")
        self._interval = interval
        self._invalid_interval = invalid_interval
        self._lock = threading.Lock()
        self._work: Work | None = None
        self._timer: threading.Timer | None = None
        self._next_line = _LONG_AGO
        self._next_invalid = _LONG_AGO
        self._invalid = 0
        self._invalid_in_all = 0

    def started(self, configuration: JobConfiguration) -> None:
        """See ``JobObserver.started``."""
        parts = []
        if configuration.handlers:
            queues = ", ".join(handler.identity.queue for handler in configuration.handlers)
            parts.append(f"handling the dead letters of {queues}")
        if configuration.topology and configuration.routes_puts:
            files = ", ".join(Path(source.name).name for source in configuration.topology)
            parts.append(f"routing puts by {files}")
        self._logger.info("%s", "; ".join(parts), extra=_event("started"))

    def batch(self, summary: BatchSummary) -> None:
        """See ``JobObserver.batch``."""
        with self._lock:
            self._work = self._work or Work(summary)
            self._work.add(summary)
            self._invalid += summary.invalid
            wait = self._next_line - time.monotonic()
            if wait <= 0:
                self._write()
            elif self._timer is None:
                self._timer = threading.Timer(wait, self._write_later)
                self._timer.daemon = True
                self._timer.start()

    def notice(self, message: str, /, **facts: object) -> None:
        """See ``JobObserver.notice``."""
        self._logger.info("%s", message, extra={"facts": facts, **_event("notice")})

    def warning(self, message: str, /, **facts: object) -> None:
        """See ``JobObserver.warning``."""
        self._logger.warning("%s", message, extra={"facts": facts, **_event("warning")})

    def restarted(self, configuration: JobConfiguration) -> None:
        """See ``JobObserver.restarted``."""
        rules = [handler.rules_name for handler in configuration.handlers]
        names = ", ".join([*rules, *(source.name for source in configuration.topology)])
        self._logger.info("restarted with %s", names, extra=_event("restarted"))

    def restart_refused(self, error: RedriveError) -> None:
        """See ``JobObserver.restart_refused``."""
        if isinstance(error, ConfigurationError):
            log_findings(self._logger, error.diagnostics)
        message = "not restarted, the job goes on as before: %s"
        self._logger.error(message, error.message, extra=_event("restart refused"))

    def stopped(self, reason: str) -> None:
        """See ``JobObserver.stopped``."""
        with self._lock:
            self._next_invalid = _LONG_AGO
            self._write()
        self._logger.info("stopped: %s", reason, extra=_event("stopped"))

    def _write_later(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._write()

    def _write(self) -> None:
        """Writes what has come together; the lock is held."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        work, self._work = self._work, None
        if work is not None:
            self._logger.info("%s", work.sentence(), extra=_event("batches", **work.facts()))
            for kind, count in work.failures.items():
                self._write_failure(kind, count, work.details[kind])
        now = time.monotonic()
        self._next_line = now + self._interval
        if self._invalid and now >= self._next_invalid:
            self._write_invalid()
            self._next_invalid = now + self._invalid_interval

    def _write_failure(self, kind: FailureKind, count: int, detail: str) -> None:
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

"""The lines of the log: their destination and format."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Final

import orjson

from redrive.diagnostics import Diagnostic, Severity
from redrive.errors import EnvironmentFault
from redrive.masking import Mask
from redrive.settings.values import LogFormat, LogSettings
from redrive.text_log import TextFormatter, extra_of

_HANDLER: Final = "redrive"
"""Name of our only handler."""
_NOISY: Final = {"py4j": logging.CRITICAL, "kafka": logging.ERROR}
"""Libraries that log errors which their callers handle, with their minimum level."""


def configure_logging(settings: LogSettings) -> None:
    """Configure, or reconfigure, the log.

    Raises:
        EnvironmentFault: The file can't be written.
    """
    root = logging.getLogger()
    handler = _handler(settings)
    formatter = _JsonFormatter if settings.format is LogFormat.JSON else _MaskedFormatter
    handler.setFormatter(formatter(settings.mask))
    for old in [old for old in root.handlers if old.name == _HANDLER]:
        root.removeHandler(old)
        old.close()
    handler.set_name(_HANDLER)
    # The bridge to Java logs by the root logger what it raises too.
    handler.addFilter(lambda it: it.name != "root" or Path(it.pathname).parent.name != "py4j")
    root.addHandler(handler)
    logging.getLogger("redrive").setLevel(settings.level.value.upper())
    for name, level in _NOISY.items():
        logging.getLogger(name).setLevel(level)


def _handler(settings: LogSettings) -> logging.Handler:
    if settings.file is None:
        return logging.StreamHandler(sys.stderr)
    try:
        settings.file.parent.mkdir(parents=True, exist_ok=True)
        # It reopens the file after logrotate.
        return WatchedFileHandler(settings.file, encoding="utf-8")
    except OSError as error:
        raise EnvironmentFault(
            f"the log {settings.file} can't be written: {error.strerror}",
            hint="name another file in [log], or leave it out for standard error",
        ) from error


class _MaskedFormatter(TextFormatter):
    """Lines of text without secrets."""

    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        return self._mask.text(super().format(record))


class _JsonFormatter(logging.Formatter):
    """One JSON object a line without secrets; time in UTC."""

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
        # Before it is JSON: a pattern with a quotation mark would not match an escaped one.
        masked = self._mask.plain(entry) if self._mask else entry
        return orjson.dumps(
            masked, default=lambda it: self._mask.text(str(it)), option=orjson.OPT_NON_STR_KEYS
        ).decode()


def log_findings(logger: logging.Logger, findings: Sequence[Diagnostic]) -> None:
    """Log a line for each finding."""
    for finding in findings:
        facts = {"hint": finding.hint} if finding.hint else {}
        message = f"{finding.location}: {finding.message} [{finding.code}]"
        level = logging.ERROR if finding.severity is Severity.ERROR else logging.WARNING
        logger.log(level, "%s", message, extra={"facts": facts})

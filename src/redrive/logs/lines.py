"""The lines of the log: their destination and format."""

from __future__ import annotations

import atexit
import faulthandler
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from threading import Thread
from typing import Final, TextIO

import orjson

from redrive.diagnostics import Diagnostic, Severity
from redrive.errors import EnvironmentFault
from redrive.masking import Mask
from redrive.settings.values import LogFormat, LogSettings
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
        message = f"{finding.location}: {finding.message} [{finding.code}]"
        level = logging.ERROR if finding.severity is Severity.ERROR else logging.WARNING
        logger.log(level, "%s", message, extra={"facts": facts})

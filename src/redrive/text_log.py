"""The text format of a log line, in every process of a job."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from redrive.printable import printable

_HANDLER: Final = "redrive-process"
_LINE_END: Final = "\u240a"
"""The symbol of a line end."""


class TextFormatter(logging.Formatter):
    """``2025-01-31 12:00:00.000 INFO    message  name=value``."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        when = datetime.fromtimestamp(record.created).astimezone()
        stamp = when.strftime("%Y-%m-%d %H:%M:%S.") + f"{when.microsecond // 1000:03d}"
        facts = "".join(
            f"  {name}={_readable(value)}" for name, value in extra_of(record, "facts").items()
        )
        # One line, whatever name a message gave its queue: no cursor moves and no forged lines.
        message = printable(f"{record.getMessage()}{facts}").replace("\n", _LINE_END)
        line = f"{stamp} {record.levelname:<7} {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def extra_of(record: logging.LogRecord, name: str) -> Mapping[str, Any]:
    """An extra value of a log record, by name."""
    return getattr(record, name, None) or {}


def log_to_standard_error(level: int) -> None:
    """Make a process started by Spark log in the same form as the job, from this level on."""
    logger = logging.getLogger("redrive")
    if any(handler.name == _HANDLER for handler in logger.handlers):
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter())
    handler.set_name(_HANDLER)
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False


def _readable(value: object) -> str:
    text = str(value)
    return text if text and " " not in text else f'"{text}"'

"""The folder of one broker: its configuration, its log, its data and a note of its process.

The note alone is not trusted: the operating system and the port show whether the broker runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import orjson

from redrive.broker.configuration import LOGGING
from redrive.errors import EnvironmentFault

_LOG_TAIL: Final = 64 * 1024  # bytes of the log that are searched for the reason of a failure
_COMPLAINT: Final = re.compile(
    r"^(?:.* (?:ERROR|FATAL) .*|\S+Exception: .*|.*in thread .*)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Note:
    """The record of the last start."""

    port: int
    pid: int
    """0 after an orderly stop."""


class BrokerFolder:
    """The folder of one broker."""

    def __init__(self, directory: Path) -> None:
        self.path = directory.resolve()
        self.configuration = self.path / "broker.properties"
        self.logging = self.path / "log4j2.properties"
        self.data = self.path / "data"
        self.log = self.path / "broker.log"
        self.old_log = self.path / "broker.log.1"
        self._note = self.path / "broker.json"
        self._lock = self.path / ".lock"

    @property
    def mark(self) -> str:
        """The text in its command line that identifies this broker's process."""
        return f"-Dredrive.broker={self.path}"

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[None]:
        """Allow only one process at a time to start the broker of this folder, created if missing.

        Raises:
            EnvironmentFault: The folder cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = self._lock.open("w")
        except OSError as error:
            message = f"cannot write to {self.path}: {error.strerror}"
            raise EnvironmentFault(message, hint="name another folder") from error
        with handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def configure(self, properties: str) -> None:
        """Write Kafka's configuration, and rotate the log of the last start."""
        self.configuration.write_text(properties)
        self.logging.write_text(LOGGING)
        if self.log.exists():
            self.log.replace(self.old_log)

    def note(self) -> Note | None:
        """The record of the last start; None if there was none."""
        try:
            values = orjson.loads(self._note.read_bytes())
        except FileNotFoundError:
            return None
        return Note(values["port"], values["pid"])  # earlier versions wrote more

    def remember(self, note: Note) -> None:
        """Write a note atomically."""
        scratch = self._note.with_suffix(".tmp")
        scratch.write_bytes(orjson.dumps(asdict(note)))
        scratch.replace(self._note)

    def failure(self, what: str) -> EnvironmentFault:
        """An error that quotes the last error in the log."""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - _LOG_TAIL))
            complaints = _COMPLAINT.findall(log.read().decode(errors="replace"))
        reason = f": {complaints[-1]}" if complaints else ""
        return EnvironmentFault(what + reason, hint=f"see {self.log}")

    def wipe(self) -> None:
        """Delete the broker's files; a folder with other files stays."""
        shutil.rmtree(self.data, ignore_errors=True)
        files = (self.configuration, self.logging, self._note, self.log, self.old_log, self._lock)
        for path in files:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.path.rmdir()

"""Replacing the text of a rules table's file, and restoring it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from redrive.errors import EnvironmentFault


class RulesFile:
    """A file whose table is replaced; the old one is kept beside it.

    The new text is first written to another file in the same folder, where it can be checked; then
    that file replaces the old one atomically, so that no reader sees half a table.
    """

    def __init__(self, path: Path) -> None:
        """Name the files; a symbolic link is followed."""
        self.path = path
        self._file = path.resolve()
        moment = datetime.now(UTC)
        self.candidate = self._file.with_name(f"{self._file.name}.new")
        """Holds the new text until it replaces the old one."""
        self.saved = self._file.with_name(f"{self._file.name}.{moment:%Y%m%dT%H%M%SZ}")
        """Holds the old text from then on."""

    @property
    def is_writable(self) -> bool:
        """Whether this user may replace it; false for a file of a ConfigMap."""
        places = [self._file.parent, *([self._file] if self._file.exists() else [])]
        return all(os.access(place, os.W_OK) for place in places)

    def holds(self, text: str) -> bool:
        """Whether the file already holds a text."""
        try:
            return self._file.read_bytes() == text.encode()
        except OSError:
            return False

    @contextmanager
    def prepared(self, text: str) -> Iterator[Path]:
        """The new text in a file while the context lasts; raises ``EnvironmentFault``."""
        try:
            self.candidate.write_bytes(text.encode())
            if self._file.exists():
                shutil.copymode(self._file, self.candidate)
        except OSError as error:
            raise self._fault(error) from error
        try:
            yield self.candidate
        finally:
            self.candidate.unlink(missing_ok=True)

    def replace(self) -> None:
        """Save the old text and replace it; raises ``EnvironmentFault``."""
        try:
            if self._file.exists():
                shutil.copy2(self._file, self.saved)
            self.candidate.replace(self._file)
        except OSError as error:
            raise self._fault(error) from error

    def put_back(self) -> None:
        """Restore the content from before ``replace``; errors as there."""
        try:
            if self.saved.exists():
                self.saved.replace(self._file)
            else:
                self._file.unlink(missing_ok=True)
        except OSError as error:
            raise self._fault(error) from error

    def _fault(self, error: OSError) -> EnvironmentFault:
        return EnvironmentFault(
            f"{self.path} cannot be written: {error.strerror}",
            hint="print the table by redrive tables show HASH --raw, have it written there by"
            " a user who may, then run redrive restart",
        )

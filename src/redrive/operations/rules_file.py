"""Replacing the text of a rules table's file, and restoring it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from redrive.errors import EnvironmentFault


class RulesFile:
    """A file whose table is replaced; the old one is kept beside it.

    The new text is first written to a file of its own in the same folder, where it can be checked;
    then that takes the place of the old one in one step, so that no reader ever sees half a table.
    """

    def __init__(self, path: Path) -> None:
        """Name the files; of a symbolic link, the file that it points to is replaced."""
        self.path = path
        self._file = path.resolve()
        moment = datetime.now(UTC)
        self.candidate = self._file.with_name(f"{self._file.name}.new")
        """Holds the new text until it takes the old one's place."""
        self.saved = self._file.with_name(f"{self._file.name}.{moment:%Y%m%dT%H%M%SZ}")
        """Holds the old text from then on."""

    def holds(self, text: str) -> bool:
        """Whether the file holds a text already."""
        try:
            return self._file.read_bytes() == text.encode()
        except OSError:
            return False

    @contextmanager
    def prepared(self, text: str) -> Iterator[Path]:
        """The new text in a file for the time of the context; errors as for ``replace``."""
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
        """Replaces the old text, which is saved first; raises ``EnvironmentFault``."""
        try:
            if self._file.exists():
                shutil.copy2(self._file, self.saved)
            self.candidate.replace(self._file)
        except OSError as error:
            raise self._fault(error) from error

    def put_back(self) -> None:
        """Restores what the file held before ``replace``; errors as there."""
        try:
            if self.saved.exists():
                self.saved.replace(self._file)
            else:
                self._file.unlink(missing_ok=True)
        except OSError as error:
            raise self._fault(error) from error

    def _fault(self, error: OSError) -> EnvironmentFault:
        return EnvironmentFault(
            f"{self.path} can't be written: {error.strerror}",
            hint="print the table with redrive tables show HASH --raw, let whoever may write the"
            " file put it there, then: redrive restart",
        )

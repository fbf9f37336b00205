"""Archives of a program's Java classes, which save seconds at each start.

Java reads and verifies thousands of classes whenever Spark or the embedded broker starts. An
application class-data archive (JEP 350) keeps them in their memory layout. Java accepts an archive
only with the version and files that it was made with, and silently starts without it otherwise, so
an archive's name identifies all of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from redrive.cache import cache_directory, exclusively
from redrive.errors import EnvironmentFault
from redrive.java import Java

_PATIENCE: Final = 900.0
"""Seconds that a training run may take: half a minute, but more than three on a busy machine."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive for a program, which also starts without it."""

    program: str
    """Name of the program in messages: ``Spark``."""
    java: Java
    jars: Sequence[Path]
    """The program's class path, in its order."""
    installation: Path
    """Folder of the program: only the newest archive of an installation is kept."""
    training: str
    """A module: ``python -m TRAINING FILE`` runs the program with ``training_options(FILE)``."""

    @property
    def path(self) -> Path:
        """Path of the archive for the Java and the jars."""
        digest = sha256(self.java.release.encode())
        for jar in self.jars:
            file = jar.stat()
            digest.update(f"\0{jar}\0{file.st_size}\0{int(file.st_mtime)}".encode())
        name = f"{self._prefix}-{digest.hexdigest()[:16]}.jsa"
        return cache_directory() / "class-archives" / name

    def options(self) -> list[str]:
        """Java's options to use the archive; empty if it does not exist."""
        path = self.path
        if not path.exists():
            return []
        # Java ignores an archive that no longer fits; users need no warning.
        quiet = ["-Xlog:disable", "-Xlog:all=error:stderr"]
        return [f"-XX:SharedArchiveFile={path}", "-Xshare:auto", *quiet]

    def make(self) -> Path:
        """Make the archive by a training run of the program, unless it exists.

        Several processes may call this at once: one makes the archive, the others wait.

        Returns:
            The path of the archive.

        Raises:
            EnvironmentFault: The run failed; the program works without an archive.
        """
        path = self.path
        with exclusively(path.parent):
            if not path.exists():
                self._make(path)
                for older in path.parent.glob(f"{self._prefix}-*.jsa"):
                    if older != path:
                        older.unlink()
        return path

    @property
    def _prefix(self) -> str:
        """Common prefix of an installation's archives, of which only the newest fits."""
        return sha256(f"{self.java.home}\0{self.installation}".encode()).hexdigest()[:16]

    def _make(self, path: Path) -> None:
        scratch = path.with_suffix(".new")
        scratch.unlink(missing_ok=True)
        problem = _write_archive(scratch, self.training)
        if problem:
            scratch.unlink(missing_ok=True)
            raise EnvironmentFault(
                f"no archive of the classes of {self.program} could be made: {problem}",
                hint=f"{self.program} also starts without one, a few seconds later",
            )
        scratch.replace(path)


def training_options(path: Path) -> list[str]:
    """The options with which Java writes an archive as it ends, to a file that does not exist."""
    return [f"-XX:ArchiveClassesAtExit={path}", "-Xlog:disable"]


def _write_archive(path: Path, module: str) -> str:
    """Writes the archive in a separate process; returns the error, or an empty text."""
    # A separate session, so that Java ends with the process.
    with subprocess.Popen(
        [sys.executable, "-m", module, str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            _, errors = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"it took longer than {_PATIENCE:g} s"
    if process.returncode or not path.exists():
        return "\n".join(errors.splitlines()[-3:]) or f"exit code {process.returncode}"
    return ""

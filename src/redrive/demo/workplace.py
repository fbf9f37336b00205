"""Where a demo works: its folder, its output, and the signals that end it."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, TextIO

from redrive.errors import UsageError

__all__ = ["Interruption", "folder_for", "output_to"]

_OUTPUTS: Final = (1, 2)
"""The file descriptors of standard output and standard error."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def folder_for(directory: Path | None) -> Iterator[Path]:
    """The folder of one demo, for the time of the context.

    Args:
        directory: A folder that is made and stays; None for one that goes.

    Raises:
        UsageError: The folder holds something already, or can't be made.
    """
    if directory is not None:
        yield _made(directory.absolute())
        return
    folder = Path(tempfile.mkdtemp(prefix="redrive-demo-"))
    try:
        yield folder
    finally:
        # Java may still be writing a last line.
        shutil.rmtree(folder, ignore_errors=True)


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_used = any(folder.iterdir())
    except OSError as error:
        message = f"{folder} can't be used: {error.strerror}"
        raise UsageError(message, hint="name another folder") from error
    if is_used:
        raise UsageError(f"{folder} is not empty", hint="name a new folder for each demo")
    return folder


@contextmanager
def output_to(log: Path) -> Iterator[TextIO]:
    """Lets all output go to a file, that of Java's processes too, and gives the old standard error.

    What Spark says would spoil a picture that is drawn in place, and a result that programs read.

    Args:
        log: The file.
    """
    _flush()
    old = [os.dup(number) for number in _OUTPUTS]
    with log.open("ab") as file, os.fdopen(os.dup(2), "w", encoding="utf-8") as stream:
        for number in _OUTPUTS:
            os.dup2(file.fileno(), number)
        try:
            yield stream
        finally:
            _flush()
            for number, before in zip(_OUTPUTS, old, strict=True):
                os.dup2(before, number)
                os.close(before)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


class Interruption:
    """The wish of a user or of the system that the demo ends: Ctrl+C, SIGTERM, SIGHUP.

    It is raised as ``KeyboardInterrupt``, except while something runs that can be asked to end.
    One wish is enough: what comes after it changes nothing.
    """

    def __init__(self) -> None:
        self._ask: Callable[[str], None] | None = None
        self._is_deaf = False
        self.came = False
        """Whether there was one."""

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Catches the signals, unless they were ignored before, as with ``nohup``."""
        old = {number: signal.getsignal(number) for number in _SIGNALS}
        caught = {n: handler for n, handler in old.items() if handler is not signal.SIG_IGN}
        for number in caught:
            signal.signal(number, self._handle)
        try:
            yield
        finally:
            for number, handler in caught.items():
                signal.signal(number, handler)

    @contextmanager
    def asking(self, ask: Callable[[str], None]) -> Iterator[None]:
        """For the time of the context, asks instead of raising; raises at its end.

        Args:
            ask: Asks what runs to end; gets the name of the signal.
        """
        self._ask = ask
        try:
            yield
        finally:
            self._ask = None
            if self.came:
                # Also if what was asked did not end well: that is not what matters now.
                raise KeyboardInterrupt

    def ignore(self) -> None:
        """From now on nothing is interrupted: what is left is cleaning up."""
        self._is_deaf = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._is_deaf or self.came:
            return
        self.came = True
        if self._ask is None:
            raise KeyboardInterrupt
        self._ask(signal.Signals(number).name)

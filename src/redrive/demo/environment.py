"""The environment of a demo: its folder, its output, its broker, and the process of the job."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, TextIO, TypeAlias

from rich.console import Console

from redrive.broker import EmbeddedBroker
from redrive.configuration import JobConfiguration
from redrive.errors import EnvironmentFault, RedriveError, UsageError
from redrive.jars import fetch_jars, locked_jars
from redrive.java import find_java
from redrive.streaming.lifecycle import JobControl

ShowProgress: TypeAlias = Callable[[str], None]
_JOB_LOG: Final = "job.log"

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OUTPUTS: Final = (1, 2)
_START_TIMEOUT: Final = 300.0
"""Seconds for the broker to start, which takes 3 on an idle machine."""


@contextmanager
def folder_for(directory: Path | None) -> Iterator[Path]:
    """A folder for a demo: a new or empty one, or a temporary one; raises ``UsageError``."""
    if directory is not None:
        yield _make_folder(directory.absolute())
        return
    folder = Path(tempfile.mkdtemp(prefix="redrive-demo-"))
    try:
        yield folder
    finally:
        # Java may still be writing a last line.
        shutil.rmtree(folder, ignore_errors=True)


def _make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_used = any(folder.iterdir())
    except OSError as error:
        message = f"{folder} cannot be used: {error.strerror}"
        raise UsageError(message, hint="name another folder") from error
    if is_used:
        raise UsageError(f"{folder} is not empty", hint="name a new folder for each demo")
    return folder


@contextmanager
def output_to(log: Path) -> Iterator[TextIO]:
    """Redirect all output, including Java's, to a file; yields the old standard error.

    Output of Spark would disturb a live view, and a result for programs.
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


class Environment:
    """What every demo needs: a folder, a console, Java, jars, a broker, and the job."""

    def __init__(
        self, folder: Path, console: Console, interruption: Interruption, stack: ExitStack
    ) -> None:
        self.folder = folder
        self.console = console
        self._interruption = interruption
        self._stack = stack

    @classmethod
    @contextmanager
    def opened(cls, directory: Path | None, *, keep: bool) -> Iterator[Environment]:
        """An environment for the context; arguments and errors of ``Demonstration``."""
        interruption = Interruption()
        with (
            folder_for(directory) as folder,
            interruption.caught(),
            output_to(folder / _JOB_LOG) as stream,
            ExitStack() as stack,
        ):
            try:
                console = Console(file=stream, highlight=False, soft_wrap=True)
                yield cls(folder, console, interruption, stack)
                if keep:
                    stack.pop_all()
            finally:
                # Cleanup must not be interrupted.
                interruption.ignore()

    @contextmanager
    def step(self, name: str) -> Iterator[ShowProgress]:
        """Show that a step is running, and finally its result and duration."""
        began, result = time.monotonic(), ""
        if not self.console.is_terminal:
            self.console.print(f"{name} ...")
        with self.console.status(f"{name} ...") as status:

            def progress(text: str) -> None:
                nonlocal result
                result = text
                status.update(f"{name}: {text}")

            yield progress
        self.console.print(f"{name}: {result} ({time.monotonic() - began:.1f} s)")

    def start_broker(self) -> str:
        """Start an embedded broker, with the jars that it and Spark need; returns host:port."""
        with self.step("Java and jars") as progress:
            fetch_jars(progress=lambda done, of: progress(f"{done} of {of} steps"))
            progress(f"{find_java()}, {len(locked_jars())} jars")
        broker = EmbeddedBroker(self.folder / "broker")
        # Before the start, which may be interrupted: stop() also stops a starting broker.
        self._stack.callback(broker.stop)
        with self.step("Broker") as progress:
            broker.start(timeout=_START_TIMEOUT)
            progress(broker.bootstrap_servers)
        return broker.bootstrap_servers

    def asking(self, control: JobControl) -> AbstractContextManager[None]:
        """For the context, make a signal stop the job cleanly."""
        return self._interruption.asking(control.request_stop)

    @staticmethod
    def run_job(configuration: JobConfiguration, control: JobControl) -> None:
        """Run the job as ``redrive run`` would, until it ends; raises ``RedriveError``."""
        from redrive.streaming.job import run  # noqa: PLC0415 - needs pyspark, slow to import

        try:
            run(configuration, control)
        except RedriveError:
            raise
        except Exception as error:
            first_line = next(iter(str(error).splitlines()), "")[:300]
            message = f"the job failed: {type(error).__name__}: {first_line}"
            hint = f"run the demo again with --directory DIR and see DIR/{_JOB_LOG}"
            raise EnvironmentFault(message, hint=hint) from error


class Interruption:
    """Raises ``KeyboardInterrupt`` on a signal, except while something can be asked to end.

    Only the first signal counts.
    """

    def __init__(self) -> None:
        self._ask: Callable[[str], None] | None = None
        self._is_ignored = False
        self.came = False

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Catch the signals, unless they were ignored before, as with ``nohup``."""
        old = {number: signal.getsignal(number) for number in _SIGNALS}
        taken = {n: handler for n, handler in old.items() if handler is not signal.SIG_IGN}
        for number in taken:
            signal.signal(number, self._handle)
        try:
            yield
        finally:
            for number, handler in taken.items():
                signal.signal(number, handler)

    @contextmanager
    def asking(self, ask: Callable[[str], None]) -> Iterator[None]:
        """For the context, call ``ask(signal name)`` on a signal; raises at its end."""
        self._ask = ask
        try:
            yield
        finally:
            self._ask = None
            if self.came:
                # Even instead of an error, which the interruption may have caused.
                raise KeyboardInterrupt

    def ignore(self) -> None:
        """Ignore signals from now on: only cleanup is left."""
        self._is_ignored = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._is_ignored or self.came:
            return
        self.came = True
        if self._ask is None:
            raise KeyboardInterrupt
        self._ask(signal.Signals(number).name)

"""One process that runs a job: its folder, its pid file and its signals."""

from __future__ import annotations

import fcntl
import getpass
import itertools
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, Self

from redrive.checkpoints import machine
from redrive.checkpoints.instances import Share
from redrive.configuration import Conflict, JobConfiguration
from redrive.errors import AlreadyRunningError, EnvironmentFault
from redrive.kafka.deadline import CLOSE

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_NO_SIGNALS: Final = "takes no signals"


def this_user() -> str:
    """The user of this process, ``user@host``; the user's number if it has no name."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"


def process_file(directory: Path, share: Share, ending: str) -> Path:
    """The path of a file of one instance's process; ``ending`` such as ``.pid``."""
    name = "redrive" if share.total == 1 else f"redrive-{share.number}-of-{share.total}"
    return directory / f"{name}{ending}"


class PidFile:
    """The file that names the process that runs a job in a folder.

    The process keeps the file locked. So a file that a killed process left behind does not matter,
    and a process that was given the same number later is never signalled. A reader takes a shared
    lock, which many may hold at once.
    """

    def __init__(self, directory: Path, share: Share) -> None:
        self.path = process_file(directory, share, ".pid")
        self._file: IO[str] | None = None
        self.takes_signals = True
        """Whether the owner found last takes signals; a program that has a job as a library does
        not."""

    @classmethod
    @contextmanager
    def held(cls, configuration: JobConfiguration, *, takes_signals: bool = True) -> Iterator[Self]:
        """The file of a job that runs in this process, for as long as it does.

        The file says whether the process takes SIGHUP as a request to restart the job.
        With ``on_conflict = "take over"`` another process keeps the file until it is fenced and
        ends.

        Raises:
            AlreadyRunningError: Another process runs a job with this share in this folder.
        """
        pid_file = cls(configuration.directory, configuration.share)
        if configuration.on_conflict is not Conflict.TAKE_OVER:
            pid_file.check()
        pid_file.takes_signals = takes_signals
        pid_file._acquire()
        try:
            yield pid_file
        finally:
            pid_file._release()

    def owner(self) -> int | None:
        """The process that runs the job; None if there is none."""
        try:
            with self.path.open("r") as file:
                if _lock(file, fcntl.LOCK_SH):
                    return None
                number, _, rest = file.read().strip().partition(" ")
                pid, self.takes_signals = int(number or 0), not rest
                # A child of a killed process may have inherited its lock.
                return pid if pid > 0 and machine.runs(pid) else None
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None

    def check(self) -> None:
        """Raise ``AlreadyRunningError`` if another process runs the job."""
        owner = self.owner()
        if owner is not None:
            raise AlreadyRunningError(
                f"process {owner} already runs this job in {self.path.parent}",
                hint="stop it, or give this one another share: --instance 2/2 beside 1/2; "
                'with on_conflict = "take over" this one would replace it',
            )

    def _acquire(self) -> None:
        # Lock the file before it gets its name, so that it never exists without its owner.
        scratch = self.path.with_suffix(f".pid.{os.getpid()}")
        try:
            file = scratch.open("w")
            _lock(file, fcntl.LOCK_EX)
            file.write(f"{os.getpid()}{'' if self.takes_signals else f' {_NO_SIGNALS}'}\n")
            file.flush()
            scratch.replace(self.path)
        except OSError as error:
            raise EnvironmentFault(
                f"{self.path} cannot be written: {error.strerror}",
                hint="free disk space there, or give the job another folder",
            ) from error
        self._file = file

    def _release(self) -> None:
        if self._file is None:
            return
        with suppress(OSError):
            # The name may belong to a process that took over.
            if os.path.samestat(self.path.stat(), os.fstat(self._file.fileno())):
                self.path.unlink()
        self._file.close()
        self._file = None


@contextmanager
def free_directory(directory: Path) -> Iterator[Path]:
    """A folder for one of several instances of a job on this machine, until the context ends.

    It is the job's folder, or a numbered one in it if other processes have that.
    """
    for number in itertools.count(1):
        folder = directory if number == 1 else directory / str(number)
        check_directory(folder)
        with (folder / "redrive.lock").open("w") as file:
            if _lock(file, fcntl.LOCK_EX) and PidFile(folder, Share(1, 1)).owner() is None:
                yield folder
                return


def _lock(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def check_directory(directory: Path) -> None:
    """Create the job's folder; raises ``EnvironmentFault`` if it cannot be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(directory, os.W_OK | os.X_OK) else "permission denied"
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    if reason:
        raise EnvironmentFault(
            f"the job's folder {directory} cannot be written: {reason}",
            hint="set another directory in [application], or by --directory",
        )


@contextmanager
def handling_signals(
    stop: Callable[[str], None], restart: Callable[[], None] | None
) -> Iterator[None]:
    """Turn signals into requests to the job: SIGTERM and SIGINT stop it, SIGHUP restarts it.

    A second signal changes nothing: the running batch ends, then the process. Signals after the end
    of the job are ignored. Without ``restart`` SIGHUP stops the job too.

    A thread makes the requests, because Python runs signal handlers in the main thread only, and
    not while a client's call blocks it.
    """
    asked: list[int] = []
    listening, hearing = os.pipe()
    os.set_blocking(hearing, False)

    def listen() -> None:
        for number in iter(lambda: os.read(listening, 1), b""):
            if number[0] == signal.SIGHUP and restart is not None:
                restart()
            elif number[0] in before:
                asked.append(number[0])
                stop(signal.Signals(number[0]).name)
        os.close(listening)

    thread = threading.Thread(target=listen, name="redrive-signals", daemon=True)
    # Python writes a signal to the wake-up pipe only if it has a handler.
    signals = (*_STOP_SIGNALS, signal.SIGHUP)
    before = {signum: signal.signal(signum, lambda *_: None) for signum in signals}
    before_fd = signal.set_wakeup_fd(hearing, warn_on_full_buffer=False)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before_fd)
        os.close(hearing)
        thread.join(CLOSE)
        for signum, handler in before.items():
            signal.signal(signum, signal.SIG_IGN if asked else handler)

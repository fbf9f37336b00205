"""One process that runs a job: its pid file, its signals, and what became of its last restart."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final, Self

from redrive.checkpoints.instances import Share
from redrive.configuration import Conflict, JobConfiguration
from redrive.errors import AlreadyRunningError, ConfigurationError, EnvironmentFault, RedriveError
from redrive.streaming.lifecycle import JobControl, JobObserver

__all__ = ["PidFile", "RestartRecord", "handling_signals"]

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def _stem(directory: Path, share: Share) -> Path:
    """Where the files of one instance are, without their endings."""
    name = "redrive" if share.total == 1 else f"redrive-{share.number}-of-{share.total}"
    return directory / name


class PidFile:
    """The file that tells which process runs a job in a folder.

    The process keeps the file locked, so a file that a killed process left behind is no obstacle,
    and a number that now belongs to some other process is never signalled.
    """

    def __init__(self, directory: Path, share: Share) -> None:
        """Name the file; nothing is read or written yet.

        Args:
            directory: The job's folder.
            share: The instance's share of the partitions.
        """
        self.path = _stem(directory, share).with_suffix(".pid")
        self._file: IO[str] | None = None

    @classmethod
    @contextmanager
    def held(cls, configuration: JobConfiguration) -> Iterator[Self]:
        """The file of a job that runs in this process, for as long as it does.

        Args:
            configuration: The job. If it is to take over, a process that holds the file keeps it
                and ends by itself once it is fenced.

        Raises:
            AlreadyRunningError: Another process runs a job with this share in this folder.
        """
        pid_file = cls(configuration.directory, configuration.share)
        pid_file._take(replace=configuration.conflict is Conflict.TAKE_OVER)
        try:
            yield pid_file
        finally:
            pid_file._let_go()

    def owner(self) -> int | None:
        """The process that runs the job; None if none does."""
        try:
            with self.path.open("r") as file:
                if _lock(file):
                    return None
                return int(file.read().strip() or 0) or None
        except (FileNotFoundError, ValueError):
            return None

    def _take(self, *, replace: bool) -> None:
        owner = self.owner()
        if owner is not None and not replace:
            raise AlreadyRunningError(
                f"process {owner} already runs this job in {self.path.parent}",
                hint="stop it, or give this one another share: --instance 2/2 beside 1/2; "
                'with on_conflict = "take over" it would end in favour of this one',
            )
        try:
            self._file = self._written()
        except OSError as error:
            raise EnvironmentFault(f"{self.path} can't be written: {error.strerror}") from error

    def _written(self) -> IO[str]:
        # Locked before it gets its name: nobody can meet the file without its owner.
        scratch = self.path.with_suffix(f".pid.{os.getpid()}")
        file = scratch.open("w")
        _lock(file)
        file.write(f"{os.getpid()}\n")
        file.flush()
        scratch.replace(self.path)
        return file

    def _let_go(self) -> None:
        if self._file is None:
            return
        with suppress(OSError):
            # The name may belong to a process that has taken over.
            if os.path.samestat(self.path.stat(), os.fstat(self._file.fileno())):
                self.path.unlink()
        self._file.close()
        self._file = None


def _lock(file: IO[str]) -> bool:
    """Whether the file could be locked at once."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class RestartRecord(JobObserver):
    """Tells other processes what became of the last restart, in a file beside the pid file."""

    def __init__(self, directory: Path, share: Share) -> None:
        """Name the file; nothing is read or written yet.

        Args:
            directory: The job's folder.
            share: The instance's share of the partitions.
        """
        self.path = _stem(directory, share).with_suffix(".restart.json")
        self._number = 0

    def read(self) -> Mapping[str, Any]:
        """The record; ``{"number": 0}`` before the first restart."""
        try:
            record: Mapping[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {"number": 0}
        return record

    def forget(self) -> None:
        """Removes what an earlier process left."""
        self.path.unlink(missing_ok=True)

    def restarted(self, configuration: JobConfiguration) -> None:  # noqa: ARG002 - as the base class
        """Notes that the job goes on with new settings."""
        self._write(restarted=True, message="", hint="", findings=[])

    def restart_refused(self, error: RedriveError) -> None:
        """Notes why it goes on with the old ones."""
        findings = error.diagnostics if isinstance(error, ConfigurationError) else ()
        self._write(
            restarted=False,
            message=error.message,
            hint=error.hint,
            findings=[finding.render() for finding in findings],
        )

    def _write(self, **record: object) -> None:
        self._number += 1
        text = json.dumps({"number": self._number, **record}, indent=2)
        scratch = self.path.with_suffix(".new")
        scratch.write_text(f"{text}\n", encoding="utf-8")
        scratch.replace(self.path)


@contextmanager
def handling_signals(
    control: JobControl, load: Callable[[], JobConfiguration] | None
) -> Iterator[None]:
    """Turns signals into requests to the job: SIGTERM and SIGINT stop it, SIGHUP restarts it.

    A second signal changes nothing: the running batch ends, then the process. Signals that come
    while the process ends, after the job, are ignored: they ask for what is happening.

    Args:
        control: The job.
        load: Reads the settings again; None if there is nothing to read again, then SIGHUP stops
            the job too.
    """
    is_ending = False

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal is_ending
        is_ending = True
        control.request_stop(signal.Signals(number).name)

    def restart(_number: int, _frame: FrameType | None) -> None:
        if load is not None:
            control.request_restart(load, "SIGHUP")

    handlers: dict[signal.Signals, Any] = dict.fromkeys(_STOP_SIGNALS, stop)
    handlers[signal.SIGHUP] = stop if load is None else restart
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if is_ending else handler)

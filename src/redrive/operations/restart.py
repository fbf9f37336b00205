"""Reload settings and rules of a running job, on request or whenever its files change.

The request is a signal to the process; the answer is a file next to its pid file. A rules table can
be replaced in its file, and restored if the job refuses it.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, Self

import orjson

from redrive.checkpoints.instances import Share
from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.configuration.deciders import table_of
from redrive.errors import ConfigurationError, EnvironmentFault, RedriveError
from redrive.kafka.deadline import PATIENCE, PAUSE
from redrive.operations.process import PidFile, process_file, this_user

_LOOK: Final = 2.0
"""Seconds between two checks. A change applies once two checks saw the same content, so that files
written one after the other are one change. The kubelet takes a minute to write them."""

_LOGGER: Final = logging.getLogger("redrive.watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartAnswer:
    """The result of one request to restart."""

    number: int
    """How many requests this process has answered, including this one."""
    pid: int
    message: str = ""
    """Why the job keeps its old settings; empty if it took the new ones."""
    hint: str = ""
    findings: Sequence[str] = field(default_factory=list)
    changed: Sequence[str] = field(default_factory=list)
    """Handlers that are new, or whose table or schemes changed in meaning."""
    unchanged: Sequence[str] = field(default_factory=list)
    """Handlers whose table and schemes have the same meaning as before."""
    is_new_run: bool = False
    """Whether the query was restarted, as not only rules tables changed, or nothing."""


class RestartRecord:
    """Publishes the result of the last restart, in a file next to the pid file."""

    def __init__(self, directory: Path, share: Share) -> None:
        self.path = process_file(directory, share, ".restart.json")
        self._asking = process_file(directory, share, ".restart-by")
        self._number = 0

    def ask(self, operator: str) -> None:
        """Record who is about to request a restart, for the log and the kept tables."""
        with suppress(OSError):  # a user who may signal the job may lack the right to write here
            self._asking.write_text(operator)

    def asked_by(self) -> str:
        """The user who requested the coming restart; empty for a plain signal."""
        try:
            name = self._asking.read_text()
            self._asking.unlink()
        except (OSError, UnicodeDecodeError):
            return ""
        return name

    def read(self) -> RestartAnswer | None:
        """The last answer; None before the first restart."""
        try:
            return RestartAnswer(**orjson.loads(self.path.read_bytes()))
        except (OSError, TypeError, ValueError):
            return None

    def forget(self) -> None:
        """Remove the answer of an earlier process."""
        self.path.unlink(missing_ok=True)
        self._asking.unlink(missing_ok=True)

    def write(
        self,
        refusal: RedriveError | None,
        *,
        changed: Sequence[str] = (),
        unchanged: Sequence[str] = (),
        is_new_run: bool = False,
    ) -> None:
        """Answer a request, with a refusal or with what changed: see ``RestartAnswer``."""
        self._number += 1
        diagnostics = refusal.diagnostics if isinstance(refusal, ConfigurationError) else ()
        answer = RestartAnswer(
            number=self._number,
            pid=os.getpid(),
            message=refusal.message if refusal else "",
            hint=refusal.hint if refusal else "",
            findings=[finding.render() for finding in diagnostics],
            changed=changed,
            unchanged=unchanged,
            is_new_run=is_new_run,
        )
        scratch = self.path.with_suffix(".new")
        scratch.write_bytes(orjson.dumps(asdict(answer), option=orjson.OPT_INDENT_2))
        scratch.replace(self.path)


def changed_tables(
    before: JobConfiguration, after: JobConfiguration
) -> tuple[list[str], list[str]]:
    """Names of handlers that are new or changed in meaning (table, schemes), and of the rest."""
    known = {handler.identity.name: meaning_of(handler, before) for handler in before.handlers}
    changed: list[str] = []
    unchanged: list[str] = []
    for handler in after.handlers:
        name = handler.identity.name
        is_same = known.get(name) == meaning_of(handler, after)
        (unchanged if is_same else changed).append(name)
    return changed, unchanged


def meaning_of(handler: HandlerConfiguration, job: JobConfiguration) -> str:
    """The meaning of a handler's table and schemes, as the control topic has it: their hashes.

    Raises:
        ConfigurationError: The table has errors.
    """
    return table_of(handler).hash + job.schemes_id(handler)


def running_process(job: JobConfiguration) -> int:
    """The process that runs a job and takes signals; raises ``EnvironmentFault`` for none."""
    pid_file = PidFile(job.directory, job.share)
    pid = pid_file.owner()
    if pid is None:
        raise EnvironmentFault(
            f"no job runs in {job.directory}", hint="start it: redrive run with the same settings"
        )
    if not pid_file.takes_signals:
        raise EnvironmentFault(
            f"process {pid} runs the job in a Spark session of its own and takes no signals",
            hint="call restart() of the job there",
        )
    return pid


def restart(job: JobConfiguration, *, timeout: float, operator: str = "") -> RestartAnswer:
    """Ask a running job to read its settings and tables again.

    It waits up to ``timeout`` seconds for the answer. ``operator`` says who asks, and may say why;
    by default the user of this process.

    Raises:
        EnvironmentFault: No job runs, it ended, or it has not answered in time.
    """
    record, owner = RestartRecord(job.directory, job.share), PidFile(job.directory, job.share)
    pid = running_process(job)
    before = record.read()
    record.ask(operator or this_user())
    try:
        os.kill(pid, signal.SIGHUP)
    except OSError as error:
        raise EnvironmentFault(f"process {pid} cannot be signalled: {error.strerror}") from error
    deadline = time.monotonic() + timeout
    while True:
        answer = record.read()
        if answer is not None and answer != before:
            return answer
        if owner.owner() is None:
            raise EnvironmentFault("the job ended", hint="its log says why")
        if time.monotonic() > deadline:
            raise EnvironmentFault(
                f"the job has not answered within {timeout:g} s",
                hint="a long batch may still be running; see the log for the result",
            )
        time.sleep(PAUSE)


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
        with self._explained():
            self.candidate.write_bytes(text.encode())
            if self._file.exists():
                shutil.copymode(self._file, self.candidate)
        try:
            yield self.candidate
        finally:
            self.candidate.unlink(missing_ok=True)

    def replace(self) -> None:
        """Save the old text and replace it; raises ``EnvironmentFault``."""
        with self._explained():
            if self._file.exists():
                shutil.copy2(self._file, self.saved)
            self.candidate.replace(self._file)

    def put_back(self) -> None:
        """Restore the content from before ``replace``; errors as there."""
        with self._explained():
            if self.saved.exists():
                self.saved.replace(self._file)
            else:
                self._file.unlink(missing_ok=True)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise EnvironmentFault(
                f"{self.path} cannot be written: {error.strerror}",
                hint="print the table by redrive tables show HASH --raw, have it written there by"
                " a user who may, then run redrive restart",
            ) from error


@dataclass(eq=False)
class FileWatch:
    """Requests one restart of a job for each complete change of its files.

    The job checks the files, and reports what it refuses.
    """

    digest: Callable[[], bytes]
    taken: bytes
    """The digest of the files that the job started with."""
    restart: Callable[[], object]

    def __post_init__(self) -> None:
        self._seen = self.taken
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="redrive-watch", daemon=True)

    @classmethod
    def of(cls, job: JobConfiguration, digest: Callable[[], bytes], taken: bytes) -> FileWatch:
        """A watch for a job that runs in this process."""
        return cls(digest, taken, partial(restart, job, timeout=PATIENCE))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def look(self) -> None:
        """Request a restart if the files have changed, but not since the last check."""
        before, self._seen = self._seen, self.digest()
        if self._seen == self.taken or self._seen != before:
            return
        self.taken = self._seen
        _LOGGER.info("settings, tables or definitions changed: reloading")
        try:
            self.restart()
        except RedriveError as error:
            # The answer is late; the job itself logs what it accepts or refuses.
            _LOGGER.info("%s", error.message)

    def _run(self) -> None:
        while not self._ended.wait(_LOOK):
            self.look()

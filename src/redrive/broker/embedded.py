"""A single-node Kafka as a background process with all it needs in one folder.

The folder holds the configuration, the log file, the data and a note of the process. The note is
never believed alone: whether the broker runs is asked of the operating system and of its port.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from random import randrange
from types import TracebackType
from typing import Self

import orjson

from redrive.broker.configuration import HOST, logging_properties, server_properties
from redrive.broker.process import is_alive, send_signal, spawn, wait_until_gone
from redrive.broker.warm_up import warm_up
from redrive.errors import EnvironmentFault, UsageError
from redrive.jars import JarGroup, jar_files
from redrive.java import find_java

__all__ = ["BrokerState", "BrokerStatus", "EmbeddedBroker"]

_START_TIMEOUT = 90.0  # seconds; a start takes 3 s on an idle machine with 2 cores
_STOP_TIMEOUT = 30.0  # seconds; an orderly stop takes 0.5 s
_POLL_INTERVAL = 0.05  # seconds
_ANSWER_TIMEOUT = 1.0  # seconds; an answer takes milliseconds, also while the broker works hard
_LOG_TAIL = 64 * 1024  # bytes of the log that are searched for the reason of a failure

_API_VERSIONS = bytes.fromhex("0000000a0012000000000000ffff")
"""The smallest request of Kafka's protocol: length, ApiVersions, version 0, number, no client id.

The operating system takes connections for a process that stands still: only an answer tells."""

_COMPLAINT = re.compile(
    r"^(?:.* (?:ERROR|FATAL) .*|\S+Exception: .*|.*in thread .*)$", re.MULTILINE
)


class BrokerState(StrEnum):
    """What is known of the broker of a folder."""

    RUNNING = "running"
    UNREACHABLE = (
        "unreachable"  # the process is there, but does not answer: it starts, or is paused
    )
    STOPPED = "stopped"
    DIED = "died"  # it was started and never stopped, and its process is gone


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """The broker of a folder at one moment."""

    state: BrokerState
    directory: Path
    bootstrap_servers: str
    """Where clients connect; empty if it was never started."""
    pid: int
    """0 unless the process exists."""
    log: Path


@dataclass(frozen=True, slots=True)
class _Note:
    """What is remembered of the last start."""

    port: int
    controller_port: int
    pid: int
    """0 after an orderly stop."""


class EmbeddedBroker:
    """A real Kafka broker on this machine, for trying and for testing.

    As a context manager it is started on entry and stopped on exit; its data stays in the folder.

    Example:
        >>> with EmbeddedBroker(Path("broker")) as broker:
        ...     print(broker.bootstrap_servers)

    Args:
        directory: Where it keeps everything; made if missing. A later start goes on with the data.
        port: Where clients connect; None for the port of the last start or else any free one.
        properties: Broker properties beyond, or instead of, the ones that a single node needs.
        heap: Size of the Java heap as Java writes it.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        heap: str = "512m",
    ) -> None:
        self._directory = directory.resolve()
        self._port = port
        self._extra = dict(properties or {})
        self._heap = heap

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect: ``host:port``.

        Raises:
            UsageError: The broker of this folder was never started.
        """
        note = self._note()
        if note is None:
            message = f"no broker was ever started in {self._directory}"
            raise UsageError(message, hint="start it with `redrive broker start`")
        return f"{HOST}:{note.port}"

    @property
    def log(self) -> Path:
        """The broker's log file; the one of the start before is beside it, ending in ``.1``."""
        return self._directory / "broker.log"

    def start(self, *, timeout: float = _START_TIMEOUT) -> bool:
        """Start the broker and wait until it can serve a transaction.

        Args:
            timeout: Seconds to wait for it.

        Returns:
            False if it was running already.

        Raises:
            EnvironmentFault: No jars, the port is in use, or the broker did not come up.
            UsageError: It runs already on another port than the one asked for.
        """
        deadline = time.monotonic() + timeout
        with self._exclusively():
            if self._is_up_already():
                return False
            ports = self._choose_ports()
            self._configure(ports)
            self._format()
            command = self._java_command("kafka.Kafka", self._configuration.name)
            pid = spawn(command, self.log, folder=self._directory)
            self._write_note(_Note(ports.port, ports.controller_port, pid))
            self._await_ready(pid, deadline)
        return True

    def stop(self, *, timeout: float = _STOP_TIMEOUT) -> bool:
        """Stop the broker in an orderly way and wait until it is gone.

        Returns:
            False if it was not running.

        Raises:
            EnvironmentFault: It did not end in time; it is left alone.
        """
        note = self._note()
        if note is None:
            return False
        was_alive = self._is_process(note.pid)
        send_signal(note.pid, self._mark, signal.SIGTERM)
        self.resume()  # a paused process would never see the signal
        if not wait_until_gone(note.pid, self._mark, timeout):
            message = f"the broker (process {note.pid}) has not stopped within {timeout:.0f} s"
            raise EnvironmentFault(message, hint=f"see {self.log}")
        self._write_note(_Note(note.port, note.controller_port, 0))
        return was_alive

    def kill(self) -> None:
        """End the broker's process at once, as a power cut would."""
        note = self._note()
        if note is not None:
            send_signal(note.pid, self._mark, signal.SIGKILL)
            wait_until_gone(note.pid, self._mark, _STOP_TIMEOUT)

    def pause(self) -> None:
        """Stop the broker's process where it is (SIGSTOP): connections stay, nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused broker go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def status(self) -> BrokerStatus:
        """What the operating system and the broker itself say about it now."""
        note = self._note()
        if note is None:
            return BrokerStatus(BrokerState.STOPPED, self._directory, "", 0, self.log)
        alive = self._is_process(note.pid)
        return BrokerStatus(
            state=self._state(note, alive=alive),
            directory=self._directory,
            bootstrap_servers=f"{HOST}:{note.port}",
            pid=note.pid if alive else 0,
            log=self.log,
        )

    def wipe(self) -> None:
        """Delete the broker's data, configuration and logs.

        Raises:
            UsageError: The broker runs.
        """
        if self.status().pid:
            message = f"the broker in {self._directory} is running"
            raise UsageError(message, hint="stop it first: `redrive broker stop`")
        shutil.rmtree(self._data, ignore_errors=True)
        for path in (self._configuration, self._logging, self._note_file, self.log, self._old_log):
            path.unlink(missing_ok=True)
        (self._directory / ".lock").unlink(missing_ok=True)
        # A folder that holds something else is not ours to remove.
        with contextlib.suppress(OSError):
            self._directory.rmdir()

    @property
    def _configuration(self) -> Path:
        return self._directory / "broker.properties"

    @property
    def _mark(self) -> str:
        """What tells this broker's process from any other, in its command line."""
        return f"-Dredrive.broker={self._directory}"

    @property
    def _logging(self) -> Path:
        return self._directory / "log4j2.properties"

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    @property
    def _note_file(self) -> Path:
        return self._directory / "broker.json"

    @property
    def _old_log(self) -> Path:
        return self.log.with_name(self.log.name + ".1")

    @contextlib.contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Let only one process at a time start the broker of this folder."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            handle = (self._directory / ".lock").open("w")
        except OSError as error:
            message = f"cannot write to {self._directory}: {error.strerror}"
            raise EnvironmentFault(message, hint="name another folder") from error
        with handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _is_up_already(self) -> bool:
        status = self.status()
        if not status.pid:
            return False
        if self._port and status.bootstrap_servers != f"{HOST}:{self._port}":
            message = f"the broker runs already, on {status.bootstrap_servers}"
            raise UsageError(message, hint="stop it first: `redrive broker stop`")
        if status.state is BrokerState.UNREACHABLE:
            message = f"the broker's process {status.pid} is there but does not answer"
            raise EnvironmentFault(message, hint=f"stop it and start it again; see {self.log}")
        return True

    def _choose_ports(self) -> _Note:
        """The port asked for, or else the one of the last start, or else a free one."""
        last = self._note()
        if self._port:
            if not _is_free(self._port):
                message = f"port {self._port} is in use"
                raise EnvironmentFault(message, hint="name another one, or none for a free one")
            return _Note(self._port, _free_port(), 0)
        if last and _is_free(last.port):
            return _Note(last.port, _free_port(), 0)
        return _Note(_free_port(), _free_port(), 0)

    def _configure(self, ports: _Note) -> None:
        self._configuration.write_text(
            server_properties(
                self._data.name,
                port=ports.port,
                controller_port=ports.controller_port,
                extra=self._extra,
            )
        )
        self._logging.write_text(logging_properties())
        if self.log.exists():
            self.log.replace(self._old_log)

    def _format(self) -> None:
        """Make a fresh data folder one of Kafka's; one that has been used stays as it is."""
        if (self._data / "meta.properties").exists():
            return
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        arguments = ["format", f"--cluster-id={cluster_id}", "-c", self._configuration.name]
        with self.log.open("ab") as output:
            result = subprocess.run(
                self._java_command("kafka.tools.StorageTool", *arguments),
                cwd=self._directory,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if result.returncode:
            raise self._failure(f"the data folder {self._data} could not be made")

    def _java_command(self, main_class: str, *arguments: str) -> list[str]:
        """A program of Kafka's, to be run in the folder: so no path depends on a character set."""
        class_path = os.pathsep.join(map(str, jar_files(JarGroup.BROKER)))
        return [
            str(find_java().executable),
            f"-Xmx{self._heap}",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self._logging.name}",
            self._mark,
            *("-cp", class_path),
            main_class,
            *arguments,
        ]

    def _await_ready(self, pid: int, deadline: float) -> None:
        """Wait for an answer, then for the coordinators behind it."""
        while not self._answers():
            if not self._is_process(pid):
                raise self._failure("the broker ended while it was starting")
            if time.monotonic() > deadline:
                self.kill()
                raise self._failure("the broker did not answer in time")
            time.sleep(_POLL_INTERVAL)
        if not warm_up(self.bootstrap_servers, deadline):
            self.kill()
            raise self._failure("the broker did not become ready in time")

    def _failure(self, what: str) -> EnvironmentFault:
        """An error that quotes the last complaint in the log."""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - _LOG_TAIL))
            complaints = _COMPLAINT.findall(log.read().decode(errors="replace"))
        reason = f": {complaints[-1]}" if complaints else ""
        return EnvironmentFault(what + reason, hint=f"the whole story is in {self.log}")

    def _answers(self) -> bool:
        host, _, port = self.bootstrap_servers.partition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=_ANSWER_TIMEOUT) as connection:
                connection.sendall(_API_VERSIONS)
                return bool(connection.recv(1))
        except OSError:
            return False

    def _signal(self, number: signal.Signals) -> None:
        note = self._note()
        if note is not None:
            send_signal(note.pid, self._mark, number)

    def _state(self, note: _Note, *, alive: bool) -> BrokerState:
        if alive:
            return BrokerState.RUNNING if self._answers() else BrokerState.UNREACHABLE
        return BrokerState.DIED if note.pid else BrokerState.STOPPED

    def _is_process(self, pid: int) -> bool:
        return pid != 0 and is_alive(pid, self._mark)

    def _note(self) -> _Note | None:
        try:
            return _Note(**orjson.loads(self._note_file.read_bytes()))
        except FileNotFoundError:
            return None

    def _write_note(self, note: _Note) -> None:
        scratch = self._note_file.with_suffix(".tmp")
        scratch.write_bytes(orjson.dumps(asdict(note)))
        scratch.replace(self._note_file)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # A port whose last connections are still being closed can be listened on.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    # Below the ports that systems give to outgoing connections: one of those could otherwise
    # sit on the broker's port while the broker is down.
    while not _is_free(port := randrange(20_000, 32_000)):  # noqa: S311 - a port is no secret
        pass
    return port

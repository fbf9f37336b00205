"""A real Kafka broker as a background process with all it needs in one folder."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from redrive.broker.configuration import HOST, Quorum, free_port, is_free, server_properties
from redrive.broker.folder import BrokerFolder, Note
from redrive.broker.kafka_programs import format_data, start_kafka
from redrive.broker.process import is_alive, send_signal, wait_until_gone
from redrive.errors import EnvironmentFault, UsageError

START_TIMEOUT: Final = 240.0  # seconds; a start takes 3 s on an idle machine with 2 cores
STOP_TIMEOUT: Final = 30.0  # seconds; an orderly stop takes 0.5 s
_POLL_INTERVAL: Final = 0.05  # seconds
_COORDINATOR: Final = 10.0  # seconds
_WARM_UP: Final = "redrive-broker-warm-up"
_ANSWER_TIMEOUT: Final = 5.0  # seconds; an answer takes milliseconds, on a busy machine longer

_API_VERSIONS: Final = bytes.fromhex("0000000a0012000000000000ffff")
"""The smallest request of Kafka's protocol: length, ApiVersions, version 0, number, no client id.

The operating system accepts connections for a stopped process: only an answer is conclusive."""


class BrokerState(StrEnum):
    """The state of a folder's broker."""

    RUNNING = "running"
    UNREACHABLE = (
        "unreachable"  # the process exists, but does not answer: it is starting, or paused
    )
    STOPPED = "stopped"
    DIED = "died"  # it was started and never stopped, and its process has ended


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


class EmbeddedBroker:
    """A real Kafka broker on this machine, for trials and tests.

    As a context manager it is started on entry and stopped on exit; its data stays in the folder.

    Example:
        >>> with EmbeddedBroker(Path("broker")) as broker:
        ...     print(broker.bootstrap_servers)

    Args:
        directory: Folder for everything, created if missing. A later start continues with the data.
        port: Port for clients; None for that of the last start, or any free one.
        properties: Broker properties in addition to, or instead of, those of a single node.
        heap: Size of the Java heap as Java writes it.
        quorum: Its place in a cluster of several brokers; None for a single broker.
        java_options: More options for the broker's Java; by default those for a fast start.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        heap: str = "512m",
        quorum: Quorum | None = None,
        java_options: Sequence[str] | None = None,
    ) -> None:
        self._folder = BrokerFolder(directory)
        self._port = port
        self._extra = dict(properties or {})
        self._heap = heap
        self._quorum = quorum
        self._java_options = java_options

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect: ``host:port``.

        Raises:
            UsageError: The broker of this folder was never started.
        """
        note = self._folder.note()
        if note is None:
            message = f"no broker was ever started in {self._folder.path}"
            raise UsageError(message, hint="start it with `redrive broker start`")
        return f"{HOST}:{note.port}"

    @property
    def log(self) -> Path:
        """The broker's log file; the one of the start before is beside it, ending in ``.1``."""
        return self._folder.log

    def start(self, *, timeout: float = START_TIMEOUT) -> bool:
        """Start the broker and wait until it can serve a transaction.

        Args:
            timeout: Seconds to wait for it.

        Returns:
            False if it was already running.

        Raises:
            EnvironmentFault: No jars, the port is in use, or the broker did not come up.
            UsageError: It already runs on another port.
        """
        deadline = time.monotonic() + timeout
        with self._folder.exclusively():
            started = self._launch()
            if started:
                self._await_ready(deadline)
        return started

    def stop(self, *, timeout: float = STOP_TIMEOUT) -> bool:
        """Stop the broker cleanly and wait until it has ended.

        After ``timeout`` it is killed: acknowledged records are on the disk.

        Returns:
            False if it was not running.
        """
        note = self._folder.note()
        if note is None:
            return False
        was_alive = self._is_alive(note.pid)
        self.terminate()
        if not self.await_gone(timeout):
            self.kill()
        self._folder.remember(Note(note.port, 0))
        return was_alive

    def terminate(self) -> None:
        """Ask the broker to shut down cleanly, without waiting."""
        self._signal(signal.SIGTERM)
        self.resume()  # a paused process would never see the signal

    def await_gone(self, timeout: float) -> bool:
        """Wait ``timeout`` seconds for the broker's process to end; False if it still runs."""
        note = self._folder.note()
        return note is None or wait_until_gone(note.pid, self._folder.mark, timeout)

    def kill(self) -> None:
        """End the broker's process at once, as a power cut would."""
        self._signal(signal.SIGKILL)
        self.await_gone(STOP_TIMEOUT)

    def pause(self) -> None:
        """Pause the broker's process (SIGSTOP): connections stay, nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused broker (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def status(self) -> BrokerStatus:
        """The state according to the operating system and the broker itself."""
        note = self._folder.note()
        if note is None:
            return BrokerStatus(BrokerState.STOPPED, self._folder.path, "", 0, self.log)
        alive = self._is_alive(note.pid)
        return BrokerStatus(
            state=self._state(note, alive=alive),
            directory=self._folder.path,
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
            message = f"the broker in {self._folder.path} is running"
            raise UsageError(message, hint="stop it first: `redrive broker stop`")
        self._folder.wipe()

    def _is_up_already(self) -> bool:
        status = self.status()
        if not status.pid:
            return False
        if self._port and status.bootstrap_servers != f"{HOST}:{self._port}":
            message = f"the broker already runs on {status.bootstrap_servers}"
            raise UsageError(message, hint="stop it first: `redrive broker stop`")
        if status.state is BrokerState.UNREACHABLE:
            message = f"the broker's process {status.pid} exists but does not answer"
            raise EnvironmentFault(message, hint=f"stop it and start it again; see {self.log}")
        return True

    def _launch(self) -> bool:
        if self._is_up_already():
            return False
        port = self._choose_port()
        quorum = self._quorum or Quorum.of_one(free_port())
        self._folder.configure(
            server_properties(self._folder.data.name, port, quorum, extra=self._extra)
        )
        format_data(self._folder, quorum.cluster_id)
        pid = start_kafka(self._folder, self._heap, self._java_options)
        self._folder.remember(Note(port, pid))
        return True

    def _choose_port(self) -> int:
        last = self._folder.note()
        if self._port:
            if not is_free(self._port):
                message = f"port {self._port} is in use"
                raise EnvironmentFault(message, hint="choose another port, or none for a free one")
            return self._port
        return last.port if last and is_free(last.port) else free_port()

    def _await_ready(self, deadline: float) -> None:
        while not self._is_answering():
            if not self.status().pid:
                raise self._folder.failure("the broker ended while it was starting")
            if time.monotonic() > deadline:
                self.kill()
                raise self._folder.failure("the broker did not answer in time")
            time.sleep(_POLL_INTERVAL)
        if not _warm_up(self.bootstrap_servers, deadline):
            self.kill()
            raise self._folder.failure("the broker did not become ready in time")

    def _is_answering(self) -> bool:
        host, _, port = self.bootstrap_servers.partition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=_ANSWER_TIMEOUT) as connection:
                connection.sendall(_API_VERSIONS)
                return bool(connection.recv(1))
        except OSError:
            return False

    def _signal(self, number: signal.Signals) -> None:
        note = self._folder.note()
        if note is not None:
            send_signal(note.pid, self._folder.mark, number)

    def _state(self, note: Note, *, alive: bool) -> BrokerState:
        if alive:
            return BrokerState.RUNNING if self._is_answering() else BrokerState.UNREACHABLE
        return BrokerState.DIED if note.pid else BrokerState.STOPPED

    def _is_alive(self, pid: int) -> bool:
        return pid != 0 and is_alive(pid, self._folder.mark)


def _warm_up(bootstrap_servers: str, deadline: float) -> bool:
    """Ask for a transaction and for committed offsets until both are served.

    A broker answers on its port before the coordinators of the internal topics are ready. Until
    then a client gets NOT_COORDINATOR, which librdkafka does not always retry, and the very first
    transaction pays a second for the creation of the internal topic.

    Returns:
        Whether both were served before the deadline, a point of ``time.monotonic()``.
    """
    client = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
    while time.monotonic() < deadline:
        try:
            Producer({**client, "transactional.id": _WARM_UP}).init_transactions(_COORDINATOR)
            with closing(Consumer({**client, "group.id": _WARM_UP})) as consumer:
                consumer.committed([TopicPartition(_WARM_UP, 0)], timeout=_COORDINATOR)
        except KafkaException:
            time.sleep(_POLL_INTERVAL)
        else:
            return True
    return False

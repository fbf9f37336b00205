"""Several brokers on this machine as one cluster, which survives the loss of one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

import orjson

from redrive.broker.configuration import Quorum, new_cluster_id
from redrive.broker.embedded import START_TIMEOUT, BrokerStatus, EmbeddedBroker
from redrive.broker.ports import free_port
from redrive.errors import UsageError

_HEAP: Final = "384m"
_STOP_TOGETHER: Final = 8.0
"""Seconds for all brokers together to shut down cleanly."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The common parameters of a cluster's brokers, kept between starts."""

    cluster_id: str
    ports: list[int]
    controller_ports: list[int]


class EmbeddedCluster:
    """Brokers that are also controllers, each with its own folder inside the cluster's.

    With three brokers every topic has three replicas, of which two have to be in sync: one broker
    may be killed without loss. As a context manager it is started on entry and stopped on exit; its
    data stays in the folder.

    Args:
        directory: Folder for everything, created if missing. A later start continues with the data.
        brokers: Number of brokers; later starts have the same number.
        properties: Broker properties in addition to, or instead of, the defaults.
    """

    def __init__(
        self, directory: Path, brokers: int = 3, *, properties: Mapping[str, str] | None = None
    ) -> None:
        self._directory = directory.resolve()
        self._plan = _read_plan(self._directory) or _new_plan(brokers)
        if len(self._plan.ports) != brokers:
            message = f"the cluster in {self._directory} has {len(self._plan.ports)} brokers"
            raise UsageError(message, hint="wipe it first: `redrive broker wipe`")
        controllers = dict(enumerate(self._plan.controller_ports, start=1))
        self.brokers = tuple(
            EmbeddedBroker(
                self._directory / f"broker-{node}",
                port=port,
                properties=properties,
                heap=_HEAP,
                quorum=Quorum(node, controllers, self._plan.cluster_id),
            )
            for node, port in enumerate(self._plan.ports, start=1)
        )
        """The single brokers, to stop, kill, pause and start."""

    @classmethod
    def found(cls, directory: Path) -> Self | None:
        """The cluster that was started in a folder; None if there is none."""
        plan = _read_plan(directory.resolve())
        return None if plan is None else cls(directory, len(plan.ports))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect: ``host:port`` of every broker."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def start(self, *, timeout: float = START_TIMEOUT) -> bool:
        """Start every broker that does not run, and wait until all can serve a transaction.

        Args:
            timeout: Seconds to wait for them.

        Returns:
            False if all of them were running already.

        Raises:
            EnvironmentFault: No jars, a port is in use, or a broker did not come up.
        """
        deadline = time.monotonic() + timeout
        self._directory.mkdir(parents=True, exist_ok=True)
        _file(self._directory).write_bytes(orjson.dumps(asdict(self._plan)))
        # Start all before waiting for the first: one alone has no quorum.
        launched = [broker for broker in self.brokers if broker.launch()]
        for broker in launched:
            broker.await_ready(deadline)
        return bool(launched)

    def stop(self) -> bool:
        """Stop the brokers, cleanly as far as possible.

        A broker asks the controllers before it ends; the last ones have none left to ask. They are
        killed after the timeout: acknowledged records are on the disk.

        Returns:
            False if none was running.
        """
        running = [broker for broker in self.brokers if broker.status().pid]
        for broker in running:
            broker.terminate()
        deadline = time.monotonic() + _STOP_TOGETHER
        for broker in running:
            if not broker.await_gone(max(0.0, deadline - time.monotonic())):
                broker.kill()
        for broker in running:
            broker.stop()  # so that none counts as crashed
        return bool(running)

    def status(self) -> list[BrokerStatus]:
        """The status of each broker."""
        return [broker.status() for broker in self.brokers]

    def wipe(self) -> None:
        """Delete the data, configurations and logs.

        Raises:
            UsageError: A broker runs.
        """
        for broker in self.brokers:
            broker.wipe()
        _file(self._directory).unlink(missing_ok=True)


def _file(directory: Path) -> Path:
    return directory / "cluster.json"


def _read_plan(directory: Path) -> _Plan | None:
    try:
        return _Plan(**orjson.loads(_file(directory).read_bytes()))
    except FileNotFoundError:
        return None


def _new_plan(brokers: int) -> _Plan:
    ports: list[int] = []
    while len(ports) < 2 * brokers:
        if (port := free_port()) not in ports:
            ports.append(port)
    return _Plan(new_cluster_id(), ports[:brokers], ports[brokers:])

"""Several brokers on this machine as one cluster, which survives the loss of one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

from redrive.broker import EmbeddedBroker
from redrive.broker.configuration import Quorum, free_port, new_cluster_id

_STOP_TOGETHER: Final = 8.0
"""Seconds for all brokers together to shut down cleanly."""


class SeveralBrokers:
    """Brokers that are also controllers, each with its own folder; started as a context.

    With three brokers every topic has three replicas, of which two have to be in sync: one broker
    may be killed without loss.

    Args:
        directory: Folder for everything, created if missing.
        brokers: Number of brokers.
        properties: Broker properties in addition to, or instead of, the defaults.
        heap: Size of each Java heap as Java writes it.
    """

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        *,
        properties: Mapping[str, str] | None = None,
        heap: str = "384m",
    ) -> None:
        cluster_id, nodes = new_cluster_id(), range(1, brokers + 1)
        ports = [free_port() for _ in range(2 * brokers)]
        controllers = dict(zip(nodes, ports[brokers:], strict=True))
        self.brokers = tuple(
            EmbeddedBroker(
                directory.resolve() / f"broker-{node}",
                port=port,
                properties=properties,
                heap=heap,
                quorum=Quorum(node, controllers, cluster_id),
            )
            for node, port in zip(nodes, ports, strict=False)
        )
        """The single brokers, to stop, kill, pause and start."""

    def __enter__(self) -> Self:
        # All at once: none is ready before the others are a quorum with it.
        with ThreadPoolExecutor(len(self.brokers)) as pool:
            list(pool.map(EmbeddedBroker.start, self.brokers))
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers:
            broker.terminate()
        # A broker asks the controllers before it ends; the last ones have none left to ask. They
        # are killed after the timeout: acknowledged records are on the disk.
        deadline = time.monotonic() + _STOP_TOGETHER
        for broker in self.brokers:
            broker.stop(timeout=max(0.0, deadline - time.monotonic()))

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect: ``host:port`` of every broker."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

"""Lookup tables of the definitions of a network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from redrive.topology.mqe import objects as mqe
from redrive.topology.names import Names

Addressable: TypeAlias = mqe.LocalQueue | mqe.RemoteQueue | mqe.BridgeQueue
"""Queues that a put can name."""


class Tables:
    """Lookup tables of one queue manager's definitions.

    Definitions that the manager's code base does not support are left out: C has neither
    store-and-forward nor bridge queues.

    Attributes:
        queues: Addressable queues by identity.
        queue_aliases: Addressable queues by alias and queue manager name.
        store_and_forward: Store-and-forward queues by the managers they list.
        aliases: Queue manager aliases: the name that replaces them, and the definition.
    """

    def __init__(self, manager: mqe.QueueManager) -> None:
        """Index a manager's definitions; the first of contradicting ones counts."""
        self.manager = manager
        self.queues: dict[Names, Addressable] = {}
        self.queue_aliases: dict[Names, Addressable] = {}
        self.store_and_forward: dict[str, mqe.StoreAndForwardQueue] = {}
        self.home_servers: list[mqe.HomeServerQueue] = []
        self.dead_letter_queue = next(iter(manager.dead_letter_queues), None)
        self.connections: dict[str, mqe.Connection] = {}
        self.aliases: dict[str, tuple[str, mqe.Definition]] = {}
        for queue in manager.queues:
            match queue:
                case mqe.BridgeQueue() | mqe.StoreAndForwardQueue() if (
                    manager.code_base is mqe.CodeBase.C
                ):
                    pass
                case mqe.LocalQueue() | mqe.RemoteQueue() | mqe.BridgeQueue():
                    self._add(queue)
                case mqe.StoreAndForwardQueue():
                    for target in queue.targets:
                        self.store_and_forward.setdefault(target, queue)
                case mqe.HomeServerQueue():
                    self.home_servers.append(queue)
        for connection in manager.connections:
            self.connections.setdefault(connection.name, connection)
        for alias, name, definition in manager_aliases(manager):
            self.aliases.setdefault(alias, (name, definition))

    def _add(self, queue: Addressable) -> None:
        names = mqe.identity(queue, self.manager.name)
        self.queues.setdefault(names, queue)
        for alias in queue.aliases:
            self.queue_aliases.setdefault(
                Names(queue=alias, queue_manager=names.queue_manager), queue
            )


def manager_aliases(manager: mqe.QueueManager) -> Iterator[tuple[str, str, mqe.Definition]]:
    """Every queue manager alias of a manager, in all forms.

    Yields:
        The alias, the name that replaces it, and its definition. A "null"
        connection with the manager's own name has no effect and is left out.
    """
    for alias in manager.aliases:
        yield alias.name, alias.of, alias
    for connection in manager.connections:
        for name in connection.aliases:
            yield name, connection.name, connection
        if isinstance(connection, mqe.AliasConnection):
            yield connection.name, connection.of, connection
        elif isinstance(connection, mqe.NullConnection) and connection.name != manager.name:
            yield connection.name, manager.name, connection


class NetworkTables:
    """The tables of every queue manager, created on first use."""

    def __init__(self, network: mqe.Network) -> None:
        self.network = network
        self.options = network.options
        self._managers = {one.name: one for one in reversed(network.queue_managers)}
        self._tables: dict[str, Tables] = {}
        self._answering: dict[str, set[str]] | None = None

    def of(self, queue_manager: str) -> Tables | None:
        """The tables of a manager, or None if the network does not contain it."""
        tables = self._tables.get(queue_manager)
        if tables is None and (manager := self._managers.get(queue_manager)) is not None:
            tables = self._tables[queue_manager] = Tables(manager)
        return tables

    def receiver(self, name: str) -> str | None:
        """The manager at the end of a direct connection of this name; None outside the network.

        A connection is named after its manager. If no manager has the name, it is the only one that
        has the name by a "null" connection or an alias (reading O8).
        """
        if name in self._managers:
            return name
        if self._answering is None:
            self._answering = {}
            for manager in self._managers.values():
                for alias, real, _ in manager_aliases(manager):
                    if real == manager.name:
                        self._answering.setdefault(alias, set()).add(manager.name)
        answering = self._answering.get(name, set())
        return next(iter(answering)) if len(answering) == 1 else None

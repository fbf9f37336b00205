"""What moves stored messages: what sends when triggered, and home-server queues that pull (A.4)."""

from __future__ import annotations

from collections.abc import Mapping

from redrive.topology.mqe.conditions import Conditions
from redrive.topology.mqe.objects import (
    HomeServerQueue,
    Mode,
    RemoteQueue,
    StoreAndForwardQueue,
    identity,
)
from redrive.topology.mqe.results import Stored
from redrive.topology.mqe.routes import find_link
from redrive.topology.mqe.rules import Rules, ask
from redrive.topology.mqe.tables import NetworkTables, Tables
from redrive.topology.names import Names


class Trigger:
    """Which asynchronous definitions send on ``triggerTransmission``, as the rules decide."""

    def __init__(self, tables: NetworkTables, rules: Rules) -> None:
        """Take the network and its rules."""
        self._tables = tables
        self._rules = rules

    def transmitting(
        self, queue_manager: str, waiting: Mapping[Names, int]
    ) -> tuple[RemoteQueue, ...]:
        """Which asynchronous definitions send when transmission is triggered.

        The manager's rule is asked first, for everything or nothing; the rules of the queues are
        asked only if it agreed (specification A.4).

        Args:
            queue_manager: The manager on which transmission is triggered.
            waiting: Numbers of waiting messages, by the identity of the definition.

        Returns:
            The definitions that send.
        """
        tables = self._tables.of(queue_manager)
        if tables is None or not self.is_agreed(tables, sum(waiting.values())):
            return ()
        queues = (tables.queues.get(names) for names, count in waiting.items() if count)
        return tuple(
            queue
            for queue in queues
            if isinstance(queue, RemoteQueue)
            and queue.mode is Mode.ASYNC
            and self._queue_transmits(queue)
        )

    def is_agreed(self, tables: Tables, waiting: int) -> bool:
        """Whether the rule of a manager lets transmission be triggered: everything or nothing.

        Args:
            tables: The manager.
            waiting: Messages that wait there.
        """
        name = tables.manager.name
        rule = self._rules.of_queue_manager(tables.manager.rule)
        return ask(lambda: rule.trigger_transmission(name, waiting), default=True)

    def _queue_transmits(self, queue: RemoteQueue) -> bool:
        rule, of = self._rules.of_queue(queue.rule), identity(queue, queue.queue_manager)
        return ask(lambda: rule.transmit(of), default=True)


def collects(
    tables: NetworkTables,
    client: Tables,
    home_server: HomeServerQueue,
    stored: Stored,
    conditions: Conditions,
) -> bool:
    """Whether a home-server queue takes a stored message: one hop, own messages only (A.4).

    Args:
        tables: The network.
        client: The manager of the home-server queue.
        home_server: It.
        stored: Where the message waits.
        conditions: The state of the network.
    """
    here, options = client.manager.name, tables.options
    if not isinstance(stored.queue, StoreAndForwardQueue) or stored.names.queue_manager != here:
        return False
    # Names of the two queues count in the strict reading only (reading O5).
    if options.home_server_names and home_server.name != stored.queue.name:
        return False
    link = find_link(tables, here, home_server.queue_manager, stored.names, conditions)
    return link.is_one_hop and link.receiver == stored.queue_manager

"""A second resolver, written straight from the text of the procedure, slow and without indexes.

It shares with the library only the definitions. It walks lists where the library looks tables up,
recurses where the library loops, and says steps as text.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from redrive.topology.mqe import (
    AliasConnection,
    BridgeQueue,
    CodeBase,
    Connection,
    DirectConnection,
    Discovery,
    LocalQueue,
    Mode,
    Network,
    NullConnection,
    Queue,
    QueueManager,
    RemoteQueue,
    StoreAndForwardQueue,
    ViaConnection,
)


@dataclass
class Reference:
    """Resolves puts on one network; the links in ``down`` cannot be used."""

    network: Network
    down: frozenset[tuple[str, str]] = frozenset()
    steps: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)

    def put(self, at: str, queue: str, queue_manager: str) -> str:
        """The end of a put: ``final``, ``stored`` or ``error`` with its place or text."""
        return self._put(at, queue, queue_manager or at, [])

    # One manager

    def manager(self, name: str) -> QueueManager | None:
        named = [one for one in self.network.queue_managers if one.name == name]
        return named[0] if named else None

    def _alias(self, manager: QueueManager, name: str) -> str | None:
        """What an alias stands for on a manager."""
        for alias in manager.aliases:
            if alias.name == name:
                return alias.of
        for connection in manager.connections:
            if name in connection.aliases:
                return connection.name
            if connection.name == name:
                if isinstance(connection, AliasConnection):
                    return connection.of
                if isinstance(connection, NullConnection) and name != manager.name:
                    return manager.name
        return None

    def _substituted(self, manager: QueueManager, name: str) -> tuple[list[str], str, bool]:
        """Step 1: steps, the name afterwards, and whether it went round in a circle."""
        steps: list[str] = []
        names = [name]
        once = manager.code_base is CodeBase.C or not self.network.options.alias_chains
        while (real := self._alias(manager, names[-1])) is not None:
            steps.append(f"{manager.name} qm-alias {names[-1]}->{real}")
            if once:
                return steps, real, False
            if real in names:
                return steps, real, True
            names.append(real)
        return steps, names[-1], False

    def _addressable(self, manager: QueueManager) -> list[tuple[Queue, str, tuple[str, ...]]]:
        """Queues that a put can name: with their queue manager name and their aliases."""
        found: list[tuple[Queue, str, tuple[str, ...]]] = []
        for queue in manager.queues:
            if isinstance(queue, LocalQueue):
                found.append((queue, manager.name, queue.aliases))
            elif isinstance(queue, RemoteQueue) or (
                isinstance(queue, BridgeQueue) and manager.code_base is CodeBase.JAVA
            ):
                found.append((queue, queue.queue_manager, queue.aliases))
        return found

    def _search(
        self, manager: QueueManager, queue: str, queue_manager: str
    ) -> tuple[list[str], str, str, Queue | None, bool]:
        """Steps 1 to 4: steps, names afterwards, the queue, and whether aliases form a circle."""
        steps, queue_manager, circle = self._substituted(manager, queue_manager)
        if circle:
            return steps, queue, queue_manager, None, True
        for one, its_manager, _ in self._addressable(manager):
            if one.name == queue and its_manager == queue_manager:
                step = f"{manager.name} exact {_told(one)}"
                return [*steps, step], queue, queue_manager, one, False
        for one, its_manager, aliases in self._addressable(manager):
            if queue in aliases and its_manager == queue_manager:
                step = f"{manager.name} queue-alias {_told(one)}"
                return [*steps, step], one.name, queue_manager, one, False
        if manager.code_base is CodeBase.JAVA:
            for keeper in manager.queues:
                if isinstance(keeper, StoreAndForwardQueue) and queue_manager in keeper.targets:
                    step = f"{manager.name} s&f {keeper.name} (stores {queue}@{queue_manager})"
                    return [*steps, step], queue, queue_manager, keeper, False
        return steps, queue, queue_manager, None, False

    # The way between managers

    def way(
        self, manager: QueueManager, name: str, seen: tuple[str, ...] = ()
    ) -> tuple[list[str], str, str]:
        """Steps of a connection, the manager at its end, and the error if there is none."""
        if name in seen:
            return [], "", "config: via loop"
        step, following = self._leads(manager, name)
        if step is None:
            return [], "", "no connection"
        if (manager.name, name) in self.down:
            return [step], "", "link down"
        if following is not None:
            steps, receiver, error = self.way(manager, following, (*seen, name))
            return [step, *steps], receiver, error
        receiver = self._receiver(name)
        return [step], receiver, "" if receiver else "unknown queue manager"

    def _leads(self, manager: QueueManager, name: str) -> tuple[str | None, str | None]:
        """The step of a connection, or None, and the connection it leads on to, if any."""
        named = [one for one in manager.connections if one.name == name]
        if named:
            carries = not isinstance(named[0], NullConnection)
            return (self._told(manager, named[0]) if carries else None), _following(named[0])
        real = self._alias(manager, name)
        if real is None or real == manager.name:
            return None, None
        if any(one.name == name for one in manager.aliases):
            return f"{manager.name} conn {name} alias {real}", real
        carrier = next(one for one in manager.connections if name in one.aliases)
        return self._told(manager, carrier), real

    def _told(self, manager: QueueManager, connection: Connection) -> str:
        prefix = f"{manager.name} conn {connection.name}"
        if isinstance(connection, ViaConnection):
            return f"{prefix} via {connection.via}"
        if isinstance(connection, AliasConnection):
            return f"{prefix} alias {connection.of}"
        return f"{prefix} direct"

    def _receiver(self, name: str) -> str:
        if self.manager(name) is not None:
            return name
        answering = [one.name for one in self.network.queue_managers if self._answers(one, name)]
        return answering[0] if len(answering) == 1 else ""

    def _answers(self, manager: QueueManager, name: str) -> bool:
        direct = any(one.name == name and one.of == manager.name for one in manager.aliases)
        attached = any(
            name in one.aliases and one.name == manager.name for one in manager.connections
        )
        own = any(
            one.name == name
            and (
                isinstance(one, NullConnection)
                or (isinstance(one, AliasConnection) and one.of == manager.name)
            )
            for one in manager.connections
        )
        return direct or attached or own

    # Discovery

    def _discovers(
        self, manager: QueueManager, queue: str, queue_manager: str, asked: list[tuple[str, ...]]
    ) -> bool:
        named = [one for one in manager.connections if one.name == queue_manager]
        if (
            queue_manager == manager.name
            or manager.code_base is CodeBase.C
            or self.network.options.discovery is Discovery.OFF
            or not named
            or not isinstance(named[0], DirectConnection | ViaConnection)
            or (manager.name, queue, queue_manager) in asked
        ):
            return False
        _, receiver, error = self.way(manager, queue_manager)
        far = self.manager(receiver)
        if error or far is None:
            return False
        _, far_queue, far_manager, found, circle = self._search(far, queue, queue_manager)
        if found is not None:
            return True
        asked = [*asked, (manager.name, queue, queue_manager)]
        return not circle and self._discovers(far, far_queue, far_manager, asked)

    # A put

    def _put(self, at: str, queue: str, queue_manager: str, been: list[tuple[str, ...]]) -> str:
        manager = self.manager(at)
        if manager is None:
            return "error unknown queue manager"
        if (at, queue, queue_manager) in been:
            return "error config: route loop"
        been.append((at, queue, queue_manager))
        steps, queue, queue_manager, found, circle = self._search(manager, queue, queue_manager)
        self.steps += steps
        if circle:
            return "error config: alias loop"
        if found is None:
            if not self._discovers(manager, queue, queue_manager, []):
                return "error fail: no queue accepts"
            self.steps.append(f"{at} discovery creates RQD {queue}@{queue_manager} sync")
            self.created.append(f"{queue}@{queue_manager} on {at}")
            found = RemoteQueue(name=queue, queue_manager=queue_manager)
        if not isinstance(found, RemoteQueue) or found.mode is Mode.ASYNC:
            return _kept(found, at, queue_manager)
        way, receiver, error = self.way(manager, queue_manager)
        self.steps += way
        return f"error {error}" if error else self._put(receiver, queue, queue_manager, been)


def _following(connection: Connection) -> str | None:
    if isinstance(connection, ViaConnection):
        return connection.via
    return connection.of if isinstance(connection, AliasConnection) else None


def _kept(queue: Queue, at: str, queue_manager: str) -> str:
    """The end of a put that a queue takes and does not pass on at once."""
    if isinstance(queue, LocalQueue):
        return f"final {queue.name}@{at}"
    if isinstance(queue, BridgeQueue):
        return f"final {queue.name}@{queue_manager} (over the bridge)"
    if isinstance(queue, StoreAndForwardQueue):
        return f"stored SAF {queue.name} on {at}"
    return f"stored RQD {queue.name}@{queue_manager} on {at}"


def _told(queue: Queue) -> str:
    if isinstance(queue, RemoteQueue):
        return f"RQD {queue.name}@{queue.queue_manager} {queue.mode}"
    if isinstance(queue, BridgeQueue):
        return f"BRIDGE {queue.name}@{queue.queue_manager}"
    return f"LQ {queue.name}"

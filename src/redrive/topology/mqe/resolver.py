"""Where a put ends: resolution over all managers it reaches.

A put is resolved on its manager; a synchronous remote definition passes it on at once, and the
receiver resolves it again with its own objects. It ends on a queue, in the store of an asynchronous
definition or of a store-and-forward queue, or with an error for the application. A stored message
moves when it is pushed, transmitted or pulled; each of these is another put.

On each manager its tables find the queue of the put's names, then the connection to the next
manager: "The procedure" and "Connections" in docs/resolution-mqe.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from redrive.printable import counted
from redrive.topology.mqe.objects import (
    AliasConnection,
    BridgeQueue,
    CodeBase,
    DirectConnection,
    Discovery,
    HomeServerQueue,
    Mode,
    MqConnection,
    MqeConnection,
    MqeDefinition,
    MqeLocalQueue,
    MqeNetwork,
    MqeQueue,
    MqeQueueManager,
    MqeRemoteQueue,
    NullConnection,
    Options,
    Security,
    StoreAndForwardQueue,
    ViaConnection,
    identity,
)
from redrive.topology.mqe.results import (
    NORMAL,
    Conditions,
    Delivered,
    End,
    Expired,
    Failed,
    MqeResolution,
    MqeStep,
    PutFailure,
    PutMessage,
    StepKind,
    Stored,
    is_expired,
)
from redrive.topology.names import Names
from redrive.topology.put import Discovered

Addressable: TypeAlias = MqeLocalQueue | MqeRemoteQueue | BridgeQueue
"""Queues that a put can name."""


class ManagerTables:
    """Lookup tables of one queue manager's definitions.

    Definitions that the manager's code base does not support are left out: C has neither
    store-and-forward nor bridge queues.

    Attributes:
        queues: Addressable queues by identity.
        queue_aliases: Addressable queues by alias and queue manager name.
        store_and_forward: Store-and-forward queues by the managers they list.
        aliases: Queue manager aliases: the name that replaces them, and the definition.
    """

    def __init__(self, manager: MqeQueueManager) -> None:
        """Index a manager's definitions; the first of contradicting ones counts."""
        self.manager = manager
        self.queues: dict[Names, Addressable] = {}
        self.queue_aliases: dict[Names, Addressable] = {}
        self.store_and_forward: dict[str, StoreAndForwardQueue] = {}
        self.home_servers: list[HomeServerQueue] = []
        self.dead_letter_queue = next(iter(manager.dead_letter_queues), None)
        self.connections: dict[str, MqeConnection] = {}
        self.aliases: dict[str, tuple[str, MqeDefinition]] = {}
        for queue in manager.queues:
            match queue:
                case BridgeQueue() | StoreAndForwardQueue() if manager.code_base is CodeBase.C:
                    pass
                case MqeLocalQueue() | MqeRemoteQueue() | BridgeQueue():
                    names = identity(queue, manager.name)
                    self.queues.setdefault(names, queue)
                    for alias in queue.aliases:
                        known_as = Names(queue=alias, queue_manager=names.queue_manager)
                        self.queue_aliases.setdefault(known_as, queue)
                case StoreAndForwardQueue():
                    for target in queue.targets:
                        self.store_and_forward.setdefault(target, queue)
                case HomeServerQueue():
                    self.home_servers.append(queue)
        for connection in manager.connections:
            self.connections.setdefault(connection.name, connection)
        for alias, name, definition in manager_aliases(manager):
            self.aliases.setdefault(alias, (name, definition))


def manager_aliases(manager: MqeQueueManager) -> Iterator[tuple[str, str, MqeDefinition]]:
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
        if isinstance(connection, AliasConnection):
            yield connection.name, connection.of, connection
        elif isinstance(connection, NullConnection) and connection.name != manager.name:
            yield connection.name, manager.name, connection


class NetworkTables:
    """The tables of every queue manager, created on first use."""

    def __init__(self, network: MqeNetwork) -> None:
        self.network = network
        self.options = network.options
        self._managers = {manager.name: manager for manager in reversed(network.queue_managers)}
        self._tables: dict[str, ManagerTables] = {}
        self._answering: dict[str, set[str]] | None = None

    def of(self, queue_manager: str) -> ManagerTables | None:
        """The tables of a manager, or None if the network does not contain it."""
        tables = self._tables.get(queue_manager)
        if tables is None and (manager := self._managers.get(queue_manager)) is not None:
            tables = self._tables[queue_manager] = ManagerTables(manager)
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


@dataclass(frozen=True, slots=True)
class Match:
    """The result of matching a put against one manager's own objects."""

    steps: tuple[MqeStep, ...]
    names: Names
    """The put's current names, without earlier ones."""
    queue: Addressable | StoreAndForwardQueue | None
    """The queue that takes the put; None if steps 1 to 4 found none."""
    alias_loop: bool = False


def match(tables: ManagerTables, names: Names, options: Options) -> Match:
    """Find the queue of a put among the objects of one manager: steps 1 to 4."""
    here = tables.manager.name
    steps, names, looping = _substitute_manager_aliases(tables, names, options)
    if looping:
        return Match(steps, names, None, alias_loop=True)
    if (exact := tables.queues.get(names)) is not None:
        step = MqeStep(here, StepKind.EXACT, exact, names, names)
        return Match((*steps, step), names, exact)
    if (aliased := tables.queue_aliases.get(names)) is not None:
        real = Names(queue=aliased.name, queue_manager=names.queue_manager)
        step = MqeStep(here, StepKind.QUEUE_ALIAS, aliased, names, real)
        return Match((*steps, step), real, aliased)
    if (keeping := tables.store_and_forward.get(names.queue_manager)) is not None:
        step = MqeStep(here, StepKind.STORE_AND_FORWARD, keeping, names, names)
        return Match((*steps, step), names, keeping)
    return Match(steps, names, None)


def _substitute_manager_aliases(
    tables: ManagerTables, names: Names, options: Options
) -> tuple[tuple[MqeStep, ...], Names, bool]:
    """Step 1; the last value says whether the aliases form a loop."""
    steps: list[MqeStep] = []
    seen = {names.queue_manager}
    while (alias := tables.aliases.get(names.queue_manager)) is not None:
        name, definition = alias
        after = Names(queue=names.queue, queue_manager=name)
        steps.append(
            MqeStep(tables.manager.name, StepKind.QUEUE_MANAGER_ALIAS, definition, names, after)
        )
        names = after
        # By the Java documentation an alias of an alias is followed; the C reference says that
        # aliases cannot be chained (reading O1).
        if not options.alias_chains or tables.manager.code_base is not CodeBase.JAVA:
            break
        if name in seen:
            return tuple(steps), names, True
        seen.add(name)
    return tuple(steps), names, False


# Connections


@dataclass(frozen=True, slots=True)
class MqeLink:
    """The connection from one manager to another."""

    steps: tuple[MqeStep, ...]
    """The connections, from the named one to the direct one."""
    receiver: str
    """The manager at the end; empty if there is none."""
    failed: Failed | None = None

    @property
    def is_defined(self) -> bool:
        """Whether a connection of the name exists, which decides between push and pull."""
        return bool(self.steps)

    @property
    def is_one_hop(self) -> bool:
        """Whether it is a usable direct connection, perhaps under an alias."""
        return self.failed is None and not any(
            isinstance(step.definition, ViaConnection) for step in self.steps
        )


def find_link(
    network: NetworkTables, here: str, name: str, names: Names, conditions: Conditions
) -> MqeLink:
    """Follow the connection of a name: via connections are folded, aliases replaced.

    The put's names do not change; the steps show them. A "null" connection and the bridge's own
    connection carry no puts (reading O7). A connection is named after the target manager, or after
    a store-and-forward queue's next hop.
    """
    tables = network.of(here)
    steps: list[MqeStep] = []
    seen: set[str] = set()
    while tables is not None and name not in seen:
        seen.add(name)
        definition, following = _follow_connection(tables, name)
        if definition is None:
            detail = f"no connection leads to {name!r}"
            return _failed_link(steps, PutFailure.NO_CONNECTION, here, detail)
        steps.append(MqeStep(here, StepKind.CONNECTION, definition, names, names))
        if (here, name) in conditions.down:
            detail = f"connection {name!r} of {here!r} is stopped or down"
            failed = Failed(PutFailure.LINK_DOWN, here, detail, stopped=(here, name))
            return MqeLink(tuple(steps), "", failed)
        if following is None:
            if (receiver := network.receiver(name)) is not None:
                return MqeLink(tuple(steps), receiver)
            detail = f"connection {name!r} leads to a queue manager outside the network"
            return _failed_link(steps, PutFailure.UNKNOWN_QUEUE_MANAGER, here, detail)
        name = following
    detail = f"via connections form a loop at {name!r}"
    return _failed_link(steps, PutFailure.VIA_LOOP, here, detail)


def link_to(network: NetworkTables, here: str, name: str) -> MqeLink:
    """The link over the connection of a name, if every link is up."""
    return find_link(network, here, name, Names(queue_manager=name), NORMAL)


def _follow_connection(tables: ManagerTables, name: str) -> tuple[MqeDefinition | None, str | None]:
    connection = tables.connections.get(name)
    match connection:
        case DirectConnection():
            return connection, None
        case ViaConnection():
            return connection, connection.via
        case AliasConnection():
            return connection, connection.of
        case NullConnection() | MqConnection():
            return None, None
    if name not in tables.aliases:
        return None, None
    real, definition = tables.aliases[name]
    return (None, None) if real == tables.manager.name else (definition, real)


def connections_on_way(network: NetworkTables, here: str, name: str) -> tuple[tuple[str, str], ...]:
    """A connection of a manager, and the further ones that a put over it uses: manager and name."""
    tables, way = network.of(here), [name]
    while tables is not None:
        _, following = _follow_connection(tables, way[-1])
        if following is None or following in way:
            break
        way.append(following)
    return tuple((here, connection) for connection in way)


def _failed_link(steps: list[MqeStep], failure: PutFailure, here: str, detail: str) -> MqeLink:
    return MqeLink(tuple(steps), "", Failed(failure, here, detail))


# Discovery


def discovery_link(
    network: NetworkTables, here: ManagerTables, found: Match, conditions: Conditions
) -> MqeLink | None:
    """The link over which a manager asks for a queue, usable or not; None if it does not ask."""
    names, manager = found.names, here.manager
    connection = here.connections.get(names.queue_manager)
    may_discover = (
        (found.queue is None and not found.alias_loop)  # D1: steps 2 to 4 found nothing
        and names.queue_manager != manager.name  # D2: the target is not the local manager
        and manager.code_base is CodeBase.JAVA  # D3: the C code base has no discovery
        and network.options.discovery is Discovery.JAVA
        and isinstance(connection, DirectConnection | ViaConnection)  # D5: a connection so named
    )
    if not may_discover:
        return None
    # D4: the target is accessible; D5: a via connection leads to a direct one.
    return find_link(network, manager.name, names.queue_manager, names, conditions)


@dataclass(slots=True)
class PutTrace:
    """One message on its way: what is known of it, and its steps so far."""

    message: PutMessage
    conditions: Conditions
    steps: list[MqeStep] = field(default_factory=list)
    discovered: list[Discovered] = field(default_factory=list)
    passed: set[tuple[str, Names]] = field(default_factory=set)

    def result(self, end: End) -> MqeResolution:
        """The resolution with this end."""
        accepted = not isinstance(end, Failed)
        return MqeResolution(tuple(self.steps), end, tuple(self.discovered), accepted)


def accept(
    tables: ManagerTables, queue: Addressable | StoreAndForwardQueue, names: Names, trace: PutTrace
) -> End:
    """Add a message to a queue that is not synchronous: limits, expiry, then store.

    The order of these checks is ours (reading O10 in docs/resolution-mqe.md).
    """
    here = tables.manager.name
    if isinstance(queue, BridgeQueue):
        return Delivered(names, queue)
    refused = _refused_by_queue(here, queue, trace)
    if refused is not None:
        return refused
    if (end := expired(here, queue, trace)) is not None:
        return end
    if isinstance(queue, MqeLocalQueue):
        return Delivered(names, queue)
    return Stored(here, queue, names)


def expired(here: str, queue: MqeQueue, trace: PutTrace) -> Expired | None:
    """The end of a message that has expired when added to a queue or removed; else None."""
    now = trace.conditions.now
    if now is None or not is_expired(trace.message, queue.expiry, now):
        return None
    return Expired(here, queue)


def _refused_by_queue(here: str, queue: MqeQueue, trace: PutTrace) -> Failed | None:
    """Duplicates and limits of a queue that keeps messages."""
    of, message = identity(queue, here), trace.message
    known = bool(message.identity) and (here, message.identity) in trace.conditions.received
    if known and not message.resend:
        detail = f"message {message.identity!r} was already put on {here!r}"
        return Failed(PutFailure.DUPLICATE, here, detail)
    longest, most = queue.maximum_message_size, queue.maximum_messages
    if longest is not None and message.length > longest:
        detail = f"{message.length} bytes are more than the {longest} of {of}"
        return Failed(PutFailure.MESSAGE_TOO_BIG, here, detail)
    if most is not None and trace.conditions.depths.get((here, of), 0) >= most:
        return Failed(PutFailure.QUEUE_FULL, here, f"{of} holds its {counted(most, 'message')}")
    return None


ANY_MESSAGE = PutMessage()
"""An empty message, which no limit refuses and which has no expiry."""


class Move(StrEnum):
    """What moves a stored message."""

    PUSH = "push"
    """Store-and-forward queues push it, hop after hop, as far as possible."""
    PULL = "pull"
    """The home-server queues of a manager pull it."""
    TRIGGER = "trigger"
    """``triggerTransmission``: asynchronous definitions send, home-server queues pull."""


class MqeResolver:
    """Resolves puts in an MQ Everyplace network.

    A resolver is immutable: definitions that a put discovers are part of its result, and
    ``MqeNetwork.with_discovered`` makes a network with them. It terminates on every network; an
    error that the check of the network reports is a failure here.
    """

    def __init__(self, network: MqeNetwork) -> None:
        self.network = network
        self._tables = NetworkTables(network)

    def resolve(
        self,
        at: str,
        names: Names,
        message: PutMessage = ANY_MESSAGE,
        conditions: Conditions = NORMAL,
    ) -> MqeResolution:
        """Resolve one put on a manager, until it is delivered, stored or refused."""
        trace = PutTrace(message, conditions)
        names = Names(queue=names.queue, queue_manager=names.queue_manager or at)
        return trace.result(self._put(at, names, trace))

    def follow(
        self,
        resolution: MqeResolution,
        move: Move,
        at: str = "",
        message: PutMessage = ANY_MESSAGE,
        conditions: Conditions = NORMAL,
    ) -> MqeResolution:
        """Follow a stored message; the new steps follow the earlier ones.

        ``at`` is the manager that pulls, or on which ``triggerTransmission`` is called; empty for
        every manager where the message waits.
        """
        trace = PutTrace(message, conditions)
        rests: set[tuple[str, Names]] = set()
        end = resolution.end
        while isinstance(end, Stored) and (end.queue_manager, end.names) not in rests:
            rests.add((end.queue_manager, end.names))
            moved = self._follow_once(end, move, at, trace)
            if moved is None:
                break
            end = moved
        steps = (*resolution.steps, *trace.steps)
        discovered = (*resolution.discovered, *trace.discovered)
        return replace(resolution, steps=steps, end=end, discovered=discovered)

    def transmit(self, stored: Stored, conditions: Conditions = NORMAL) -> MqeResolution:
        """Pass a stored message on over its queue's connection once, as a running channel does.

        A message that the next manager refuses stays where it is, with the reason (reading O3).
        """
        trace = PutTrace(ANY_MESSAGE, conditions)
        return trace.result(self._pass_on(stored, trace) or _unmoved(stored))

    def pull(self, stored: Stored, queue_manager: str, conditions: Conditions) -> MqeResolution:
        """Pull a stored message to a manager; without steps if none of its queues pulls it."""
        trace = PutTrace(ANY_MESSAGE, conditions)
        return trace.result(self._pull(stored, queue_manager, trace) or _unmoved(stored))

    # A put and its hops

    def _put(self, here: str, names: Names, trace: PutTrace) -> End:
        """Resolve on ``here`` and on every manager that synchronous definitions lead to."""
        while True:
            tables = self._tables.of(here)
            if tables is None:
                detail = f"the network has no queue manager {here!r}"
                return Failed(PutFailure.UNKNOWN_QUEUE_MANAGER, here, detail)
            if (here, names) in trace.passed:
                detail = f"a message for {names} returns to {here!r}"
                return Failed(PutFailure.ROUTE_LOOP, here, detail)
            trace.passed.add((here, names))
            found = match(tables, names, self.network.options)
            trace.steps.extend(found.steps)
            queue = found.queue or self._discover(tables, found, trace)
            if isinstance(queue, Failed):
                return queue
            if not (isinstance(queue, MqeRemoteQueue) and queue.mode is Mode.SYNC):
                return accept(tables, queue, found.names, trace)
            link = find_link(self._tables, here, queue.queue_manager, found.names, trace.conditions)
            trace.steps.extend(link.steps)
            if link.failed is not None:
                return link.failed
            here, names = link.receiver, found.names

    def _discover(
        self, tables: ManagerTables, found: Match, trace: PutTrace
    ) -> MqeRemoteQueue | Failed:
        """Create the remote definition that a put needs, or fail if it cannot be discovered.

        It is always synchronous, and it has the security attribute of the far queue.
        """
        here, names = tables.manager.name, found.names
        far = self._far_queue(tables, found, trace.conditions)
        if isinstance(far, Security):
            definition = MqeRemoteQueue(
                name=names.queue, queue_manager=names.queue_manager, security=far
            )
            trace.discovered.append(Discovered(here, names.queue, names.queue_manager))
            trace.steps.append(MqeStep(here, StepKind.DISCOVERY, definition, names, names))
            return definition
        if found.alias_loop:
            detail = f"queue manager aliases of {here!r} form a loop at {names.queue_manager!r}"
            return Failed(PutFailure.ALIAS_LOOP, here, detail)
        detail = f"no queue of {here!r} accepts a message for {names}"
        if far is None or far.stopped is None:
            return Failed(PutFailure.NO_QUEUE_ACCEPTS, here, detail)
        detail = f"{detail}, and it cannot be discovered: {far.detail}"
        return Failed(PutFailure.NO_QUEUE_ACCEPTS, here, detail, stopped=far.stopped)

    def _far_queue(
        self, tables: ManagerTables, found: Match, conditions: Conditions
    ) -> Security | Failed | None:
        """The security attribute of a queue to discover, or why no link leads to it, if known.

        It is the first queue on the way to which the remote put would resolve (D6). D5 and D6
        replace a list of conditions that is missing in all copies of the product's documentation
        (reading O2).
        """
        asked: set[tuple[str, Names]] = set()
        while (question := (tables.manager.name, found.names)) not in asked:
            asked.add(question)
            link = discovery_link(self._tables, tables, found, conditions)
            if link is None or link.failed is not None:
                return link.failed if link else None
            receiver = self._tables.of(link.receiver)
            if receiver is None:
                return None
            tables, found = receiver, match(receiver, found.names, self.network.options)
            if found.queue is not None:
                return found.queue.security
        return None

    # Moves of stored messages

    def _follow_once(self, stored: Stored, move: Move, at: str, trace: PutTrace) -> End | None:
        """One move; None if the message does not move at all."""
        is_here = at in {"", stored.queue_manager}
        if move is Move.PULL or (move is Move.TRIGGER and not is_here):
            return self._pull(stored, at, trace)
        sends = StoreAndForwardQueue if move is Move.PUSH else MqeRemoteQueue
        return self._pass_on(stored, trace) if isinstance(stored.queue, sends) else None

    def _pass_on(self, stored: Stored, trace: PutTrace) -> End | None:
        """Send over the connection of the queue's manager name; None if there is none."""
        here, names = stored.queue_manager, stored.names
        if not trace.message.is_movable:
            return None
        next_hop = stored.queue.queue_manager
        link = find_link(self._tables, here, next_hop, names, trace.conditions)
        if isinstance(stored.queue, StoreAndForwardQueue) and not link.is_defined:
            return None
        if (late := expired(here, stored.queue, trace)) is not None:
            return late
        trace.steps.extend(link.steps)
        end = link.failed or self._put_again(link.receiver, stored, trace)
        return replace(stored, refused=end) if isinstance(end, Failed) else end

    def _pull(self, stored: Stored, client: str, trace: PutTrace) -> End | None:
        """Pull to a client that has a home-server queue for it; None if it has none."""
        is_own = client == stored.names.queue_manager and trace.message.is_movable
        tables = self._tables.of(client) if is_own else None
        home_server = collecting_queue(self._tables, stored, trace.conditions)
        if tables is None or home_server is None:
            return None
        if (late := expired(stored.queue_manager, stored.queue, trace)) is not None:
            return late
        trace.steps.append(MqeStep(client, StepKind.PULL, home_server, stored.names, stored.names))
        end = self._put_again(client, stored, trace)
        return (
            self._handle_undelivered(tables, stored, end, trace) if isinstance(end, Failed) else end
        )

    def _put_again(self, here: str, stored: Stored, trace: PutTrace) -> End:
        """Put a message that leaves its store; one that comes back to it fails (reading O6)."""
        end = self._put(here, stored.names, trace)
        if end != replace(stored, refused=None):
            return end
        detail = f"a message for {stored.names} returns to {stored}"
        return Failed(PutFailure.ROUTE_LOOP, stored.queue_manager, detail)

    def _handle_undelivered(
        self, client: ManagerTables, stored: Stored, failed: Failed, trace: PutTrace
    ) -> End:
        """A pulled message that no queue accepted: it becomes a dead letter.

        Without a dead-letter queue it stays on the home server (reading O4). So does a duplicate,
        which must not be created a second time.
        """
        stays = replace(stored, refused=failed)
        dead_letters = client.dead_letter_queue
        if dead_letters is None or failed.failure is PutFailure.DUPLICATE:
            return stays
        names = identity(dead_letters, client.manager.name)
        # Resend, as the message may have been put here before.
        dead = replace(trace, message=replace(trace.message, resend=True))
        end = accept(client, dead_letters, names, dead)
        if isinstance(end, Delivered):
            return replace(end, dead_letter=True)
        return stays if isinstance(end, Failed) else end


def _unmoved(stored: Stored) -> Stored:
    detail = f"nothing moves a message for {stored.names}"
    failed = Failed(PutFailure.NO_CONNECTION, stored.queue_manager, detail)
    return replace(stored, refused=failed)


def collecting_queue(
    network: NetworkTables, stored: Stored, conditions: Conditions = NORMAL
) -> HomeServerQueue | None:
    """The home-server queue that pulls a stored message to its manager: one hop, own ones only."""
    here, is_strict = stored.names.queue_manager, network.options.home_server_names
    client = network.of(here) if isinstance(stored.queue, StoreAndForwardQueue) else None
    for queue in client.home_servers if client else ():
        # Names of the two queues count in the strict reading only (reading O5).
        if not is_strict or queue.name == stored.queue.name:
            link = find_link(network, here, queue.queue_manager, stored.names, conditions)
            if link.is_one_hop and link.receiver == stored.queue_manager:
                return queue
    return None

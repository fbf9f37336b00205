"""From names to a queue, on one manager and on to the next: matching, connections, discovery.

Steps 1 to 5 of "The procedure" in docs/resolution-mqe.md, and "Connections" there.
"""

from __future__ import annotations

from dataclasses import dataclass

from redrive.topology.mqe import objects as mqe
from redrive.topology.mqe.message import NORMAL, Conditions
from redrive.topology.mqe.results import Failed, Failure, Step, StepKind
from redrive.topology.mqe.tables import Addressable, NetworkTables, Tables
from redrive.topology.names import Names


@dataclass(frozen=True, slots=True)
class Match:
    """The result of matching a put against one manager's own objects."""

    steps: tuple[Step, ...]
    names: Names
    """The put's current names, without earlier ones."""
    queue: Addressable | mqe.StoreAndForwardQueue | None
    """The queue that takes the put; None if steps 1 to 4 found none."""
    alias_loop: bool = False


def match(tables: Tables, names: Names, options: mqe.Options) -> Match:
    """Find the queue of a put among the objects of one manager: steps 1 to 4."""
    here = tables.manager.name
    steps, names, looping = _substitute_manager_aliases(tables, names, options)
    if looping:
        return Match(steps, names, None, alias_loop=True)
    if (exact := tables.queues.get(names)) is not None:
        step = Step(here, StepKind.EXACT, exact, names, names)
        return Match((*steps, step), names, exact)
    if (aliased := tables.queue_aliases.get(names)) is not None:
        real = Names(queue=aliased.name, queue_manager=names.queue_manager)
        step = Step(here, StepKind.QUEUE_ALIAS, aliased, names, real)
        return Match((*steps, step), real, aliased)
    if (keeping := tables.store_and_forward.get(names.queue_manager)) is not None:
        step = Step(here, StepKind.STORE_AND_FORWARD, keeping, names, names)
        return Match((*steps, step), names, keeping)
    return Match(steps, names, None)


def _substitute_manager_aliases(
    tables: Tables, names: Names, options: mqe.Options
) -> tuple[tuple[Step, ...], Names, bool]:
    """Step 1; the last value says whether the aliases form a loop."""
    steps: list[Step] = []
    seen = {names.queue_manager}
    while (alias := tables.aliases.get(names.queue_manager)) is not None:
        name, definition = alias
        after = Names(queue=names.queue, queue_manager=name)
        steps.append(
            Step(tables.manager.name, StepKind.QUEUE_MANAGER_ALIAS, definition, names, after)
        )
        names = after
        if not chains_aliases(tables, options):
            break
        if name in seen:
            return tuple(steps), names, True
        seen.add(name)
    return tuple(steps), names, False


def chains_aliases(tables: Tables, options: mqe.Options) -> bool:
    """Whether an alias of an alias is followed on a manager.

    By the Java documentation it is; the C reference says that aliases cannot be chained (reading
    O1).
    """
    return options.alias_chains and tables.manager.code_base is mqe.CodeBase.JAVA


# Connections


@dataclass(frozen=True, slots=True)
class Link:
    """The connection from one manager to another."""

    steps: tuple[Step, ...]
    """The connections, from the named one to the direct one."""
    receiver: str
    """The manager at the end; empty if there is none."""
    failed: Failed | None = None
    """Why the put cannot use it."""

    @property
    def is_defined(self) -> bool:
        """Whether a connection of the name exists, which decides between push and pull."""
        return bool(self.steps)

    @property
    def is_one_hop(self) -> bool:
        """Whether it is a usable direct connection, perhaps under an alias."""
        return self.failed is None and not any(
            isinstance(step.definition, mqe.ViaConnection) for step in self.steps
        )


def find_link(
    network: NetworkTables, here: str, name: str, names: Names, conditions: Conditions
) -> Link:
    """Follow the connection of a name: via connections are folded, aliases replaced.

    The put's names do not change; the steps show them. A "null" connection and the bridge's own
    connection carry no puts (reading O7). A connection is named after the target manager, or after
    a store-and-forward queue's next hop.
    """
    tables = network.of(here)
    steps: list[Step] = []
    seen: set[str] = set()
    while tables is not None and name not in seen:
        seen.add(name)
        definition, following = _follow_connection(tables, name)
        if definition is None:
            return _failed_link(
                steps, Failure.NO_CONNECTION, here, f"no connection leads to {name!r}"
            )
        steps.append(Step(here, StepKind.CONNECTION, definition, names, names))
        if (here, name) in conditions.down:
            detail = f"connection {name!r} of {here!r} is stopped or down"
            failed = Failed(Failure.LINK_DOWN, here, detail, stopped=(here, name))
            return Link(tuple(steps), "", failed)
        if following is None:
            if (receiver := network.receiver(name)) is not None:
                return Link(tuple(steps), receiver)
            detail = (
                f"connection {name!r} leads to a queue manager that the network does not contain"
            )
            return _failed_link(steps, Failure.UNKNOWN_QUEUE_MANAGER, here, detail)
        name = following
    return _failed_link(steps, Failure.VIA_LOOP, here, f"via connections form a loop at {name!r}")


def link_to(network: NetworkTables, here: str, name: str) -> Link:
    """The link over the connection of a name, if every link is up."""
    return find_link(network, here, name, Names(queue_manager=name), NORMAL)


def _follow_connection(tables: Tables, name: str) -> tuple[mqe.Definition | None, str | None]:
    connection = tables.connections.get(name)
    match connection:
        case mqe.DirectConnection():
            return connection, None
        case mqe.ViaConnection():
            return connection, connection.via
        case mqe.AliasConnection():
            return connection, connection.of
        case mqe.NullConnection() | mqe.MqConnection():
            return None, None
    if name not in tables.aliases:
        return None, None
    real, definition = tables.aliases[name]
    return (None, None) if real == tables.manager.name else (definition, real)


def connections_on_way(tables: Tables, name: str) -> tuple[str, ...]:
    """The connections of a manager that a put over one of them uses, starting with that one."""
    way: list[str] = []
    following: str | None = name
    while following is not None and following not in way:
        way.append(following)
        _, following = _follow_connection(tables, following)
    return tuple(way)


def _failed_link(steps: list[Step], failure: Failure, here: str, detail: str) -> Link:
    return Link(tuple(steps), "", Failed(failure, here, detail))


# Discovery


def discover(
    network: NetworkTables, here: Tables, found: Match, conditions: Conditions
) -> mqe.RemoteQueue | None:
    """Create the remote definition that a put needs, or None if discovery is not possible.

    The definition is always synchronous, and it has the security attribute of the far queue.
    """
    security = far_security(network, here, found, conditions, frozenset())
    if security is None:
        return None
    names = found.names
    return mqe.RemoteQueue(
        name=names.queue, queue_manager=names.queue_manager, mode=mqe.Mode.SYNC, security=security
    )


def far_security(
    network: NetworkTables,
    here: Tables,
    found: Match,
    conditions: Conditions,
    asked: frozenset[tuple[str, Names]],
) -> mqe.Security | None:
    """The conditions of discovery, D1 to D6: the security attribute of the far queue, or None.

    D5 and D6 replace a list of conditions that is missing in all copies of the product's
    documentation (reading O2). ``asked`` are the managers and names already in question.
    """
    names, question = found.names, (here.manager.name, found.names)
    link = discovery_link(network, here, found, conditions)
    if link is None or question in asked:
        return None
    receiver = network.of(link.receiver)
    if receiver is None or link.failed is not None:
        return None
    # D6: the remote put would resolve, by a queue of the receiver or by its own discovery.
    far = match(receiver, names, network.options)
    if far.queue is not None:
        return far.queue.security
    return far_security(network, receiver, far, conditions, asked | {question})


def discovery_link(
    network: NetworkTables, here: Tables, found: Match, conditions: Conditions
) -> Link | None:
    """The link over which a manager asks for a queue, usable or not; None if it does not ask."""
    names, manager = found.names, here.manager
    connection = here.connections.get(names.queue_manager)
    may_discover = (
        (found.queue is None and not found.alias_loop)  # D1: steps 2 to 4 found nothing
        and names.queue_manager != manager.name  # D2: the target is not the local manager
        and manager.code_base is mqe.CodeBase.JAVA  # D3: the C code base has no discovery
        and network.options.discovery is mqe.Discovery.JAVA
        and isinstance(
            connection, mqe.DirectConnection | mqe.ViaConnection
        )  # D5: a connection so named
    )
    if not may_discover:
        return None
    # D4: the target is accessible; D5: a via connection leads to a direct one.
    return find_link(network, manager.name, names.queue_manager, names, conditions)

"""Queue discovery: when a manager creates a remote definition on its own (specification A.5)."""

from __future__ import annotations

from redrive.topology.mqe.conditions import Conditions
from redrive.topology.mqe.matching import Match, match
from redrive.topology.mqe.objects import (
    CodeBase,
    DirectConnection,
    Discovery,
    Mode,
    RemoteQueue,
    Security,
    ViaConnection,
)
from redrive.topology.mqe.routes import find_link
from redrive.topology.mqe.tables import NetworkTables, Tables
from redrive.topology.names import Names


def discover(
    network: NetworkTables, here: Tables, found: Match, conditions: Conditions
) -> RemoteQueue | None:
    """Create the remote definition that a put needs, if discovery is possible.

    The definition is always synchronous, and it has the security attribute of the far queue.

    Args:
        network: The tables of the network.
        here: Those of the manager on which steps 1 to 4 were taken.
        found: What those steps gave.
        conditions: Which links are down.

    Returns:
        The definition, or None if any condition of ``far_security`` does not hold.
    """
    security = far_security(network, here, found, conditions, frozenset())
    if security is None:
        return None
    names = found.names
    return RemoteQueue(
        name=names.queue, queue_manager=names.queue_manager, mode=Mode.SYNC, security=security
    )


def far_security(
    network: NetworkTables,
    here: Tables,
    found: Match,
    conditions: Conditions,
    asked: frozenset[tuple[str, Names]],
) -> Security | None:
    """The predicate of discovery, D1 to D6; the only place that knows them.

    D5 and D6 stand in for a list of conditions that no copy of the product's documentation still
    contains (reading O2).

    Args:
        network: The tables of the network.
        here: Those of the manager that would discover.
        found: What steps 1 to 4 gave there.
        conditions: Which links are down.
        asked: Managers and names for which the question is open already.

    Returns:
        The security attribute of the far queue if discovery is possible, else None.
    """
    names, manager = found.names, here.manager
    connection = here.connections.get(names.queue_manager)
    may_discover = (
        (found.queue is None and not found.alias_loop)  # D1: steps 2 to 4 found nothing
        and names.queue_manager != manager.name  # D2: the target is not the local manager
        and manager.code_base is CodeBase.JAVA  # D3: the C code base has no discovery
        and network.options.discovery is Discovery.JAVA
        and isinstance(connection, DirectConnection | ViaConnection)  # D5: a connection so named
    )
    question = (manager.name, names)
    if not may_discover or question in asked:
        return None
    # D4: the target is accessible; D5: a via connection leads to a direct one.
    link = find_link(network, manager.name, names.queue_manager, names, conditions)
    receiver = network.of(link.receiver)
    if receiver is None or link.failed is not None:
        return None
    # D6: the remote put would resolve, by a queue of the receiver or by its own discovery.
    far = match(receiver, names, network.options)
    if far.queue is not None:
        return far.queue.security
    return far_security(network, receiver, far, conditions, asked | {question})

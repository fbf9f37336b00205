"""From a manager to the next: which connection a put takes (resolution specification A.4)."""

from __future__ import annotations

from dataclasses import dataclass

from redrive.topology.mqe.conditions import Conditions
from redrive.topology.mqe.failures import Failure
from redrive.topology.mqe.objects import (
    AliasConnection,
    Definition,
    DirectConnection,
    MqConnection,
    NullConnection,
    ViaConnection,
)
from redrive.topology.mqe.results import Failed, Step, StepKind
from redrive.topology.mqe.tables import NetworkTables, Tables
from redrive.topology.names import Names


@dataclass(frozen=True, slots=True)
class Link:
    """The way from one manager to another."""

    steps: tuple[Step, ...]
    """The connections, from the one that was asked for to the direct one."""
    receiver: str
    """The manager at the end; empty if there is none."""
    failed: Failed | None = None
    """Why the put cannot take this way."""

    @property
    def is_defined(self) -> bool:
        """Whether a connection of the name exists; it decides between push and pull."""
        return bool(self.steps)

    @property
    def is_one_hop(self) -> bool:
        """Whether the way is a direct connection, perhaps under an alias, and usable."""
        return self.failed is None and not any(
            isinstance(step.definition, ViaConnection) for step in self.steps
        )


def find_link(
    network: NetworkTables, here: str, name: str, names: Names, conditions: Conditions
) -> Link:
    """Follow the connection of a name: via connections are folded, aliases replaced.

    The put's names never change on the way. A "null" connection and the bridge's own connection
    carry no put (reading O7).

    Args:
        network: The tables of the network, which contain ``here``.
        here: The manager that sends.
        name: The connection's name: the target manager, or a store-and-forward queue's next hop.
        names: The names that travel, for the steps.
        conditions: Which links are down.

    Returns:
        The link; with ``failed`` set if there is no usable one.
    """
    tables = network.of(here)
    steps: list[Step] = []
    seen: set[str] = set()
    while tables is not None and name not in seen:
        seen.add(name)
        definition, following = _next(tables, name)
        if definition is None:
            return _broken(steps, Failure.NO_CONNECTION, here, f"no connection leads to {name!r}")
        steps.append(Step(here, StepKind.CONNECTION, definition, names, names))
        if (here, name) in conditions.down:
            return _broken(steps, Failure.LINK_DOWN, here, f"connection {name!r} cannot be used")
        if following is None:
            return _arrive(network, steps, here, name)
        name = following
    return _broken(steps, Failure.VIA_LOOP, here, f"via connections lead back to {name!r}")


def _next(tables: Tables, name: str) -> tuple[Definition | None, str | None]:
    """The definition a name stands for among connections, and the name it leads on to."""
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


def _arrive(network: NetworkTables, steps: list[Step], here: str, name: str) -> Link:
    receiver = network.receiver(name)
    if receiver is None:
        detail = f"connection {name!r} leads to a queue manager that the network does not contain"
        return _broken(steps, Failure.UNKNOWN_QUEUE_MANAGER, here, detail)
    return Link(tuple(steps), receiver)


def _broken(steps: list[Step], failure: Failure, here: str, detail: str) -> Link:
    return Link(tuple(steps), "", Failed(failure, here, detail))

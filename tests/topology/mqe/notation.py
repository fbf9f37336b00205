"""The short notation of MQ Everyplace topologies in test vectors, read into a network.

One line is ``manager: OBJECT(name) ATTRIBUTE(value) ...``: ``LQ``, ``RQD``, ``SAF``, ``HSQ``,
``BRIDGE``, ``CONN``, ``QMALIAS``, ``LISTENER`` define objects; ``CODE`` sets the code base and
``DOWN`` names a link that cannot be used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from redrive.topology.mqe.objects import (
    AliasConnection,
    AnyConnection,
    AnyQueue,
    BridgeQueue,
    CodeBase,
    DirectConnection,
    HomeServerQueue,
    Mode,
    MqeListener,
    MqeLocalQueue,
    MqeNetwork,
    MqeQueueManager,
    MqeRemoteQueue,
    NullConnection,
    QueueManagerAlias,
    QueuePurpose,
    StoreAndForwardQueue,
    ViaConnection,
)
from redrive.topology.mqe.results import Conditions

_WORD = re.compile(r"\s*([A-Za-z&]+)\s*(?:\(([^)]*)\))?")
_ROLES = {"deadletter": QueuePurpose.DEAD_LETTER, "admin": QueuePurpose.ADMINISTRATION}
_COUNTS = ("MAXMSGS", "MAXCOUNT", "MAXDEPTH", "MAXNUM")
_SIZES = ("MAXMSG", "MAXMSGL", "MAXSIZE")


@dataclass(frozen=True)
class Topology:
    """What the lines of a topology say."""

    network: MqeNetwork
    conditions: Conditions
    first: str
    """The first manager named, on which a put is made unless it says otherwise."""


@dataclass
class _Reader:
    managers: dict[str, MqeQueueManager] = field(default_factory=dict)
    down: set[tuple[str, str]] = field(default_factory=set)
    maxmsg_counts: bool = False

    def manager(self, name: str) -> MqeQueueManager:
        return self.managers.setdefault(name, MqeQueueManager(name=name))

    def line(self, line: str) -> None:
        name, _, text = line.partition(":")
        manager = self.manager(name.strip())
        words = [(word.upper(), value) for word, value in _WORD.findall(text)]
        (kind, value), attributes = words[0], dict(words[1:])
        value = value.strip()
        if kind in _QUEUES:
            queue = self._limited(_QUEUES[kind](value, attributes), attributes)
            manager = replace(manager, queues=(*manager.queues, queue))
        elif kind == "CONN":
            connection = _connection(value, attributes)
            manager = replace(manager, connections=(*manager.connections, connection))
        elif kind == "QMALIAS":
            alias = QueueManagerAlias(name=value, of=attributes["IS"].strip())
            manager = replace(manager, aliases=(*manager.aliases, alias))
        elif kind == "LISTENER":
            manager = replace(manager, listeners=(*manager.listeners, MqeListener(name=value)))
        elif kind == "CODE":
            manager = replace(manager, code_base=CodeBase(value.lower()))
        elif kind == "DOWN":
            self.down.add((manager.name, value))
        else:
            raise ValueError(f"object {kind!r} is not known: {line!r}")
        self.managers[manager.name] = manager

    def _limited(self, queue: AnyQueue, attributes: Mapping[str, str]) -> AnyQueue:
        for word, value in attributes.items():
            if word in _COUNTS or (word in _SIZES and self.maxmsg_counts):
                queue = replace(queue, maximum_messages=int(value))
            elif word in _SIZES:
                queue = replace(queue, maximum_message_size=int(value))
        return queue


def _names(text: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[,\s]+", text.strip()) if part)


def _pair(text: str) -> dict[str, Any]:
    name, _, queue_manager = text.partition("@")
    return {"name": name.strip(), "queue_manager": queue_manager.strip()}


def _local(text: str, attributes: Mapping[str, str]) -> AnyQueue:
    role = _ROLES.get(attributes.get("ROLE", "").lower(), QueuePurpose.ORDINARY)
    return MqeLocalQueue(name=text, aliases=_names(attributes.get("ALIAS", "")), role=role)


def _remote(text: str, attributes: Mapping[str, str]) -> AnyQueue:
    mode = Mode(attributes.get("MODE", "sync").strip().lower())
    return MqeRemoteQueue(**_pair(text), mode=mode, aliases=_names(attributes.get("ALIAS", "")))


def _store_and_forward(text: str, attributes: Mapping[str, str]) -> AnyQueue:
    targets = _names(attributes["QME"])
    pair = _pair(text)
    pair["queue_manager"] = pair["queue_manager"] or targets[0]
    return StoreAndForwardQueue(**pair, targets=targets)


def _home_server(text: str, _attributes: Mapping[str, str]) -> AnyQueue:
    return HomeServerQueue(**_pair(text))


def _bridge(text: str, attributes: Mapping[str, str]) -> AnyQueue:
    return BridgeQueue(**_pair(text), aliases=_names(attributes.get("ALIAS", "")))


_QUEUES: Mapping[str, Callable[[str, Mapping[str, str]], AnyQueue]] = {
    "LQ": _local,
    "RQD": _remote,
    "SAF": _store_and_forward,
    "HSQ": _home_server,
    "BRIDGE": _bridge,
}


def _connection(name: str, attributes: Mapping[str, str]) -> AnyConnection:
    common: dict[str, Any] = {"name": name, "aliases": _names(attributes.get("ALIAS", ""))}
    if "VIA" in attributes:
        return ViaConnection(**common, via=attributes["VIA"].strip())
    if "NULL" in attributes:
        return NullConnection(**common)
    if "IS" in attributes:
        return AliasConnection(**common, of=attributes["IS"].strip())
    return DirectConnection(**common)


def read_topology(lines: Iterable[str], *, maxmsg_counts: bool = False) -> Topology:
    """Read the lines of a topology.

    Args:
        lines: The lines.
        maxmsg_counts: Whether MAXMSG is a number of messages; by default it is a size in bytes.

    Returns:
        The network, the links that are down, and the first manager. A manager that only a direct
        connection names exists too: the notation has no way to write one without objects.
    """
    reader = _Reader(maxmsg_counts=maxmsg_counts)
    for line in lines:
        reader.line(line)
    first = next(iter(reader.managers))
    answered = {name for manager in reader.managers.values() for name in _answers_to(manager)}
    for manager in list(reader.managers.values()):
        for connection in manager.connections:
            if isinstance(connection, DirectConnection) and connection.name not in answered:
                reader.manager(connection.name)
    network = MqeNetwork(queue_managers=tuple(reader.managers.values()))
    return Topology(network, Conditions(down=frozenset(reader.down)), first)


def _answers_to(manager: MqeQueueManager) -> set[str]:
    nulls = {
        connection.name
        for connection in manager.connections
        if isinstance(connection, NullConnection)
    }
    return nulls | {alias.name for alias in manager.aliases if alias.of == manager.name}

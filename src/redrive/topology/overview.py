"""The content of a topology, as plain values to show and as a graph to draw."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import cycle
from typing import Final, TypeAlias

from redrive.topology.layout import Resting, Topology, topics_of
from redrive.topology.mq import objects as mq
from redrive.topology.mq.network import MqNetwork
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mqe.objects import (
    AliasConnection,
    AnyConnection,
    BridgeQueue,
    DirectConnection,
    HomeServerQueue,
    MqConnection,
    MqeDefinition,
    MqeQueue,
    MqeQueueManager,
    MqeRemoteQueue,
    StoreAndForwardQueue,
    ViaConnection,
)
from redrive.topology.mqe.resolver import NetworkTables, link_to

_NOT_RESTING: Final = Resting("", "")
_Topics: TypeAlias = Mapping[tuple[str, str], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class DefinitionTarget:
    """The target of a definition."""

    queue: str
    """Name of the queue; empty for any queue of the manager."""
    queue_manager: str
    """Name of the queue manager; empty for the one that workload management chooses."""

    def __str__(self) -> str:
        return f"{self.queue or '*'}@{self.queue_manager}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOverview:
    """A queue of any kind."""

    name: str
    kind: str
    targets: tuple[DefinitionTarget, ...] = ()
    topics: tuple[str, ...] = ()
    """Topics that hold its messages; several if it keeps them by receiving manager."""
    maximum_messages: int | None = None
    """Maximum number of messages; None for no limit, or if it cannot hold messages."""
    maximum_length: int | None = None
    put_enabled: bool = True
    clusters: tuple[str, ...] = ()
    location: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOverview:
    """A channel of IBM MQ, or a connection of MQ Everyplace."""

    name: str
    kind: str
    queue_manager: str = ""
    """The manager to which it leads; empty if none of the topology, or for a receiving end."""
    state: str = ""
    """``retrying``, ``stopped`` or ``inactive`` for a channel without a partner; else empty."""
    because: str = ""
    transmission_queue: str = ""
    address: str = ""
    """The address of the other end, or the connection it goes via."""
    clusters: tuple[str, ...] = ()
    location: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueManagerOverview:
    """A queue manager."""

    name: str
    kind: str
    """``mq`` or ``mqe``."""
    dead_letter_queue: str = ""
    default_transmission_queue: str = ""
    clusters: tuple[str, ...] = ()
    queues: tuple[QueueOverview, ...] = ()
    connections: tuple[ConnectionOverview, ...] = ()

    @property
    def queues_by_kind(self) -> Mapping[str, int]:
        """How many queues of each kind it has."""
        return Counter(queue.kind for queue in self.queues)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOverview:
    """A cluster of IBM MQ."""

    name: str
    queue_managers: tuple[str, ...]
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A whole topology, or a part of it."""

    queue_managers: tuple[QueueManagerOverview, ...]
    clusters: tuple[ClusterOverview, ...] = ()

    def of(self, patterns: Collection[str]) -> Overview:
        """The part with the queue managers that match one of the patterns with ``*`` and ``?``."""
        if not patterns:
            return self
        chosen = tuple(
            manager
            for manager in self.queue_managers
            if any(fnmatchcase(manager.name, pattern) for pattern in patterns)
        )
        joined = {cluster for manager in chosen for cluster in manager.clusters}
        clusters = tuple(cluster for cluster in self.clusters if cluster.name in joined)
        return replace(self, queue_managers=chosen, clusters=clusters)


def overview_of(topology: Topology) -> Overview:
    """Describe the queue managers of a topology, those of IBM MQ first, and its clusters."""
    topics: dict[tuple[str, str], tuple[str, ...]] = {}
    resting: dict[tuple[str, str], Resting] = {}
    for topic in topics_of(topology):
        if topic.resting is not None:
            resting[topic.channel] = topic.resting
        if topic.queue:
            key = (topic.queue_manager, topic.queue)
            topics[key] = (*topics.get(key, ()), topic.topic)
    managers = [
        _in_mq(topology.mq, manager, topics, resting)
        for manager in topology.mq.queue_managers.values()
    ]
    tables = NetworkTables(topology.mqe)
    managers += [_in_mqe(tables, manager, topics) for manager in topology.mqe.queue_managers]
    return Overview(queue_managers=tuple(managers), clusters=tuple(_clusters(managers)))


def _clusters(managers: Collection[QueueManagerOverview]) -> Iterator[ClusterOverview]:
    for name in sorted({cluster for manager in managers for cluster in manager.clusters}):
        queues = {
            queue.name for manager in managers for queue in manager.queues if name in queue.clusters
        }
        yield ClusterOverview(
            name=name,
            queue_managers=tuple(manager.name for manager in managers if name in manager.clusters),
            queues=tuple(sorted(queues)),
        )


# IBM MQ


def _in_mq(
    network: MqNetwork,
    manager: QueueManager,
    topics: _Topics,
    resting: Mapping[tuple[str, str], Resting],
) -> QueueManagerOverview:
    attributes = manager.attributes
    return QueueManagerOverview(
        name=manager.name,
        kind="mq",
        dead_letter_queue=attributes.dead_letter_queue,
        default_transmission_queue=attributes.default_transmission_queue,
        clusters=network.joined(manager),
        queues=tuple(_mq_queue(manager, queue, topics) for queue in manager.every_queue.values()),
        connections=tuple(
            _channel(
                network, manager, channel, resting.get((manager.name, channel.name), _NOT_RESTING)
            )
            for channel in manager.channels.values()
        ),
    )


def _mq_queue(manager: QueueManager, queue: mq.Queue, topics: _Topics) -> QueueOverview:
    holds = queue if isinstance(queue, mq.HoldingQueue) else None
    is_transmission = isinstance(queue, mq.LocalQueue) and queue.is_transmission_queue
    targets: tuple[DefinitionTarget, ...] = ()
    if isinstance(queue, mq.AliasQueue):
        targets = (DefinitionTarget(queue.target, manager.name),)
    elif isinstance(queue, mq.RemoteQueue):
        targets = (DefinitionTarget(queue.remote_queue, queue.remote_queue_manager),)
    return QueueOverview(
        name=queue.name,
        kind=f"{queue.keyword} XMITQ" if is_transmission else queue.keyword,
        targets=targets,
        topics=topics.get((manager.holder_of(queue.name), queue.name), ()),
        maximum_messages=holds.max_depth if holds else None,
        maximum_length=holds.max_message_length if holds else None,
        put_enabled=queue.put_enabled,
        clusters=manager.clusters_of(queue.cluster, queue.cluster_namelist),
        location=str(queue.location),
    )


def _channel(
    network: MqNetwork, manager: QueueManager, channel: mq.Channel, resting: Resting
) -> ConnectionOverview:
    return ConnectionOverview(
        name=channel.name,
        kind=channel.channel_type.value,
        queue_manager=_far_end(network, manager, channel),
        state=resting.state,
        because=resting.because,
        transmission_queue=channel.transmission_queue,
        address=channel.connection,
        clusters=manager.clusters_of(channel.cluster, channel.cluster_namelist),
        location=str(channel.location),
    )


def _far_end(network: MqNetwork, manager: QueueManager, channel: mq.Channel) -> str:
    if channel.channel_type is mq.ChannelType.CLUSSDR:
        for name, far in network.queue_managers.items():
            receiver = far.channels.get(channel.name) if name != manager.name else None
            if receiver is not None and receiver.channel_type is mq.ChannelType.CLUSRCVR:
                return name
        return ""
    if not channel.transmission_queue:
        return ""
    link = network.link(queue=channel.transmission_queue, queue_manager=manager.name)
    return link.queue_manager if link and link.sender == channel else ""


# MQ Everyplace


def _in_mqe(
    tables: NetworkTables, manager: MqeQueueManager, topics: _Topics
) -> QueueManagerOverview:
    own = tables.of(manager.name)
    dead = own.dead_letter_queue if own else None
    return QueueManagerOverview(
        name=manager.name,
        kind="mqe",
        dead_letter_queue=dead.name if dead else "",
        queues=tuple(_mqe_queue(manager, queue, topics) for queue in manager.queues),
        connections=tuple(
            _connection(tables, manager, connection) for connection in manager.connections
        ),
    )


def _mqe_queue(manager: MqeQueueManager, queue: MqeQueue, topics: _Topics) -> QueueOverview:
    kind, targets = _mqe_kind(queue)
    owner = queue.queue_manager if isinstance(queue, BridgeQueue) else manager.name
    return QueueOverview(
        name=queue.name,
        kind=kind,
        targets=targets,
        topics=topics.get((owner, queue.name), ()) if kind in _HOLDING else (),
        maximum_messages=queue.maximum_messages,
        maximum_length=queue.maximum_message_size,
        location=_location(queue),
    )


_HOLDING = frozenset({"local", "remote async", "store-and-forward", "bridge"})


def _mqe_kind(queue: MqeQueue) -> tuple[str, tuple[DefinitionTarget, ...]]:
    match queue:
        case MqeRemoteQueue() | BridgeQueue():
            kind = f"remote {queue.mode}" if isinstance(queue, MqeRemoteQueue) else "bridge"
            return kind, (DefinitionTarget(queue.name, queue.queue_manager),)
        case HomeServerQueue():
            return "home server", (DefinitionTarget("", queue.queue_manager),)
        case StoreAndForwardQueue():
            return "store-and-forward", tuple(DefinitionTarget("", name) for name in queue.targets)
    return "local", ()


def _connection(
    tables: NetworkTables, manager: MqeQueueManager, connection: AnyConnection
) -> ConnectionOverview:
    return ConnectionOverview(
        name=connection.name,
        kind=connection.kind,
        queue_manager=link_to(tables, manager.name, connection.name).receiver,
        address=_address(connection),
        location=_location(connection),
    )


def _address(connection: AnyConnection) -> str:
    match connection:
        case ViaConnection():
            return connection.via
        case AliasConnection():
            return connection.of
        case MqConnection() | DirectConnection():
            port = f"({connection.port})" if connection.port is not None else ""
            return f"{connection.address}{port}"
    return ""


def _location(definition: MqeDefinition) -> str:
    return str(definition.location) if definition.location.line else ""


# Graphs in DOT, the language of Graphviz (``dot -Tsvg``): each queue manager is a table with a row
# for each queue and channel, and an edge leads from the row of a definition to its target.

DEFAULT_QUEUES = 15
"""Default for the maximum queues to list in one queue manager."""

_HEAD = """digraph topology {
  rankdir=LR
  node [shape=plain, fontname=monospace, fontsize=11]
  edge [color="#37474f"]"""
# Colours that colour-blind people can distinguish (Okabe and Ito).
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442")
_UNPRINTABLE = re.compile("[^\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def dot(overview: Overview, *, queues: int = DEFAULT_QUEUES) -> str:
    """Write a topology as a graph.

    Channels and connections are solid edges, definitions that name another queue manager dashed
    ones, aliases dotted ones. A cluster is a node with an edge to each member.
    """
    nodes = {manager.name: f"m{at}" for at, manager in enumerate(overview.queue_managers)}
    lines = [_HEAD]
    for manager in overview.queue_managers:
        lines += _node(nodes[manager.name], manager, queues)
    for manager in overview.queue_managers:
        lines += _edges(nodes, manager, manager.queues[:queues])
    for at, (cluster, colour) in enumerate(zip(overview.clusters, cycle(_COLOURS), strict=False)):
        style = f'shape=ellipse, color="{colour}"'
        lines.append(f"  c{at} [label=<cluster {_text(cluster.name)}>, {style}]")
        members = (
            manager.name for manager in overview.queue_managers if cluster.name in manager.clusters
        )
        lines += (f'  c{at} -> {nodes[name]} [dir=none, color="{colour}"]' for name in members)
    return "\n".join([*lines, "}\n"])


def _node(node: str, manager: QueueManagerOverview, most: int) -> Iterator[str]:
    about = [manager.kind]
    if manager.dead_letter_queue:
        about.append(f"dead letters: {manager.dead_letter_queue}")
    if manager.clusters:
        about.append(f"clusters: {', '.join(manager.clusters)}")
    yield f'  {node} [label=<<table border="0" cellborder="1" cellspacing="0">'
    title = f"<b>{_text(manager.name)}</b><br/>{_text(' · '.join(about))}"
    yield f'    <tr><td port="head" bgcolor="#eceff1">{title}</td></tr>'
    for at, queue in enumerate(manager.queues[:most]):
        yield _row(f"q{at}", _queue(queue, manager.name))
    if len(manager.queues) > most:
        yield _row("more", f"... and {len(manager.queues) - most} more queues")
    for at, connection in enumerate(manager.connections):
        leads = f" → {connection.queue_manager}" if connection.queue_manager else ""
        yield _row(f"c{at}", f"{connection.name} · {connection.kind}{leads}")
    yield "  </table>>]"


def _row(port: str, text: str) -> str:
    return f'    <tr><td port="{port}" align="left">{_text(text)}</td></tr>'


def _queue(queue: QueueOverview, owner: str) -> str:
    targets = (
        target.queue if target.queue_manager == owner and target.queue else str(target)
        for target in queue.targets
    )
    leads = f" → {', '.join(targets)}" if queue.targets else ""
    return f"{queue.name} · {queue.kind}{leads}" + ("" if queue.put_enabled else " · PUT(DISABLED)")


def _edges(
    nodes: Mapping[str, str], manager: QueueManagerOverview, listed: Sequence[QueueOverview]
) -> Iterator[str]:
    here = nodes[manager.name]
    for at, connection in enumerate(manager.connections):
        there = nodes.get(connection.queue_manager, here)
        if there != here:
            yield f"  {here}:c{at} -> {there}:head"
    ports = {queue.name: f"q{at}" for at, queue in enumerate(listed)}
    for at, queue in enumerate(listed):
        for target in queue.targets:
            there = nodes.get(target.queue_manager, "")
            if there == here and target.queue in ports and target.queue != queue.name:
                yield f"  {here}:q{at} -> {here}:{ports[target.queue]} [style=dotted]"
            elif there not in {here, ""}:
                yield f"  {here}:q{at} -> {there}:head [style=dashed]"


def _text(text: str) -> str:
    return html.escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)) or " "

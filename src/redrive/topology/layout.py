"""A topology, and its topics: which it needs, and which the job reads.

Local queues, transmission queues and the intakes of queue managers have topics. Aliases and remote
definitions have none, since no message stays there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, TypeAlias

from redrive.topology.bindings import NO_BINDINGS, Bindings
from redrive.topology.mq import objects as mq
from redrive.topology.mq.network import MqNetwork, senders
from redrive.topology.mq.queue_manager import ClusterRoute, QueueManager
from redrive.topology.mqe.objects import (
    NO_NETWORK,
    BridgeQueue,
    Mode,
    MqeLocalQueue,
    MqeNetwork,
    MqeQueue,
    MqeQueueManager,
    MqeRemoteQueue,
    StoreAndForwardQueue,
    identity,
)
from redrive.topology.mqe.resolver import (
    NetworkTables,
    collecting_queue,
    connections_on_way,
    link_to,
)
from redrive.topology.mqe.results import Stored
from redrive.topology.names import Names, put_topic, transmission_topic
from redrive.topology.put import Discovered, DynamicQueue


@dataclass(frozen=True, slots=True)
class SourceText:
    """The text of one file of a topology, enough for other processes to read it again."""

    name: str
    """Its name in findings and locations; the suffix is its kind."""
    data: bytes
    queue_manager: str = ""

    @property
    def suffix(self) -> str:
        """The suffix of its name, in lower case."""
        return Path(self.name).suffix.lower()


_LocalQueue: TypeAlias = mq.LocalQueue | MqeLocalQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Everything that the files define."""

    mq: MqNetwork
    mqe: MqeNetwork = NO_NETWORK
    bindings: Bindings = NO_BINDINGS
    sources: tuple[SourceText, ...] = field(default=(), compare=False, repr=False)
    """The texts that were read, for other processes."""

    @property
    def manager_names(self) -> tuple[str, ...]:
        """Every queue manager, in the order of the definitions, those of IBM MQ first."""
        return (*self.mq.queue_managers, *(manager.name for manager in self.mqe.queue_managers))

    def local_queues(self) -> Mapping[tuple[str, str], _LocalQueue]:
        """The local queues by owner and name.

        The owner is their manager; a shared queue is one queue, that of its group.
        """
        definitions: list[tuple[str, Iterable[mq.Queue | MqeQueue]]] = []
        for manager in self.mq.queue_managers.values():
            group = manager.queue_sharing_group
            definitions.append((manager.name, manager.queues.values()))
            definitions.append(
                (group.name if group else manager.name, manager.shared_queues.values())
            )
        definitions += [
            (manager.name, manager.queues)
            for manager in self.mqe.queue_managers
            if manager.name not in self.mq  # reported as a duplicate
        ]
        queues: dict[tuple[str, str], _LocalQueue] = {}
        for owner, owned in definitions:
            for queue in owned:
                if isinstance(queue, _LocalQueue):
                    queues.setdefault((owner, queue.name), queue)
        return queues

    def topic(self, *, queue: str, queue_manager: str) -> str:
        """The topic of a local queue; that of a shared queue belongs to its group."""
        manager = self.mq.queue_managers.get(queue_manager)
        holder = manager.holder_of(queue) if manager else queue_manager
        return self.bindings.topic(queue=queue, queue_manager=holder)

    def with_dynamic_queues(self, opened: Collection[DynamicQueue]) -> Topology:
        """The topology with dynamic queues that opens created."""
        return replace(self, mq=self.mq.with_dynamic_queues(opened)) if opened else self

    def with_discovered(self, discovered: Iterable[Discovered]) -> Topology:
        """The topology with remote definitions that queue discovery created."""
        return replace(self, mqe=self.mqe.with_discovered(discovered))


class TopicRole(StrEnum):
    """The role of a topic in the topology."""

    PUTS = "puts"
    """Intake: applications put to the queue manager by writing to it."""
    QUEUE = "queue"
    TRANSMISSION = "transmission"
    """Messages on their way to another queue manager."""


class Resting(NamedTuple):
    """Why the messages of a transmission topic do not move."""

    state: str
    """``retrying`` for a channel without a receiver, ``stopped`` for one without retries left,
    ``inactive`` if no channel of the job is involved."""
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTopic:
    """One topic of a topology."""

    topic: str
    role: TopicRole
    queue: str = ""
    """The queue whose messages it holds; empty for an intake."""
    queue_manager: str
    to: str = ""
    """The next manager of a transmission topic's messages; empty if none."""
    resting: Resting | None = None
    channel: tuple[str, str] = ("", "")
    """The manager and the channel (or connection) that empties a transmission topic."""
    via: tuple[tuple[str, str], ...] = ()
    """The further connections of its messages: a via connection uses others."""
    is_running: bool = True
    """Whether that channel runs unless an operator started or stopped it."""
    is_pulled: bool = False
    """Whether the receiving manager pulls (a home-server queue)."""
    is_of_cluster: bool = False
    by_priority: bool = False
    message_retries: int = 0
    message_retry_interval: int = 0
    """Milliseconds before each retry (MRTMR)."""

    @property
    def is_read(self) -> bool:
        """Whether the job reads it: intakes, and topics with a receiving manager."""
        return self.role is TopicRole.PUTS or bool(self.to)

    @property
    def place(self) -> str:
        """``QUEUE@QM``, or the intake's manager."""
        if self.role is TopicRole.PUTS:
            return f"the intake of {self.queue_manager}"
        return str(Names(queue=self.queue, queue_manager=self.queue_manager))


def topics_of(topology: Topology) -> tuple[QueueTopic, ...]:
    """Every topic that a topology needs, each once, by queue manager.

    Queues whose manager is bound to another Kafka cluster are left out: the job neither creates nor
    reads them.
    """
    bound = topology.bindings.queue_managers.items()
    on_other_cluster = {name for name, binding in bound if binding.bootstrap_servers}
    topics: dict[str, QueueTopic] = {}
    for manager in topology.mq.queue_managers.values():
        if manager.name not in on_other_cluster:
            for topic in _topics_in_mq(topology, manager):
                kept = topics.setdefault(topic.topic, topic)
                if kept.to in on_other_cluster:
                    messages = f"messages of {topic.queue} of {topic.queue_manager}"
                    resting = Resting("inactive", f"{messages} go to another Kafka cluster")
                    topics[topic.topic] = replace(
                        kept, to="", resting=resting, message_retries=0, message_retry_interval=0
                    )
    tables = NetworkTables(topology.mqe)
    for manager_of_mqe in topology.mqe.queue_managers:
        if manager_of_mqe.name not in on_other_cluster:
            for topic in _topics_in_mqe(topology, tables, manager_of_mqe):
                topics.setdefault(topic.topic, topic)
    return tuple(topics.values())


# IBM MQ


def _topics_in_mq(topology: Topology, manager: QueueManager) -> Iterator[QueueTopic]:
    name = manager.name
    yield QueueTopic(topic=put_topic(name), role=TopicRole.PUTS, queue_manager=name)
    remote = (queue for queue in manager.queues.values() if isinstance(queue, mq.RemoteQueue))
    named = dict.fromkeys(queue.transmission_queue for queue in remote)
    # The product's own queues need no DEFINE; those that DEADQ and XMITQ name are used.
    for queue_name in {**manager.every_queue, manager.attributes.dead_letter_queue: None, **named}:
        queue = manager.queue(queue_name)
        if not isinstance(queue, mq.LocalQueue):
            continue
        if queue.serves_clusters and queue_name not in named:
            continue  # each receiving manager has its own topic
        if queue.is_transmission_queue:
            yield _transmission(topology, name, queue)
        else:
            yield QueueTopic(
                topic=topology.topic(queue=queue.name, queue_manager=name),
                role=TopicRole.QUEUE,
                queue_manager=manager.holder_of(queue.name),
                queue=queue.name,
                by_priority=queue.by_priority,
            )
    for route in topology.mq.routes_from(manager):
        yield _cluster_transmission(topology, manager, route)
    if manager.attributes.intra_group_queuing:
        for member in topology.mq.group_of(manager):
            common = mq.SHARED_TRANSMISSION_QUEUE
            yield QueueTopic(
                topic=transmission_topic(queue=common, queue_manager=name, to=member),
                role=TopicRole.TRANSMISSION,
                queue_manager=name,
                queue=common,
                to=member,
                by_priority=True,
            )


def _transmission(topology: Topology, name: str, queue: mq.LocalQueue) -> QueueTopic:
    link = topology.mq.link(queue=queue.name, queue_manager=name)
    channels = senders(topology.mq.queue_managers[name])
    serving = (link.sender if link else None) or next(
        (channel for channel in channels if channel.transmission_queue == queue.name), None
    )
    resting = None
    if link is None:
        because = topology.mq.why_held(queue=queue.name, queue_manager=name)
        resting = _without_receiver(serving, because)
    return _with_retries(
        QueueTopic(
            topic=topology.topic(queue=queue.name, queue_manager=name),
            role=TopicRole.TRANSMISSION,
            queue_manager=name,
            queue=queue.name,
            to=link.queue_manager if link else "",
            resting=resting,
            channel=(name, serving.name if serving else ""),
            is_running=queue.get_enabled,
            by_priority=queue.by_priority,
        ),
        link.receiver if link else None,
    )


def _without_receiver(serving: mq.Channel | None, because: str) -> Resting:
    """The state of a channel whose partner has no channel of its name (CHSTATUS, AMQ9519)."""
    if serving is None:
        return Resting("inactive", because)
    retries = f"SHORTRTY({serving.short_retries}), LONGRTY({serving.long_retries})"
    is_retrying = serving.short_retries or serving.long_retries
    return Resting("retrying" if is_retrying else "stopped", f"{because}; {retries}")


def _with_retries(topic: QueueTopic, receiver: mq.Channel | None) -> QueueTopic:
    if receiver is None:
        return topic
    return replace(
        topic,
        message_retries=receiver.message_retries,
        message_retry_interval=receiver.message_retry_interval,
    )


def _cluster_transmission(
    topology: Topology, manager: QueueManager, route: ClusterRoute
) -> QueueTopic:
    queue = topology.mq.transmission_queue(manager, route)
    definition = manager.queue(queue)
    is_running = not isinstance(definition, mq.LocalQueue) or definition.get_enabled
    receiving = topology.mq.queue_managers.get(route.queue_manager)
    return _with_retries(
        QueueTopic(
            topic=transmission_topic(
                queue=queue, queue_manager=manager.name, to=route.queue_manager
            ),
            role=TopicRole.TRANSMISSION,
            queue_manager=manager.name,
            queue=queue,
            to=route.queue_manager,
            channel=(manager.name, route.channel),
            is_running=is_running,
            is_of_cluster=True,
            by_priority=isinstance(definition, mq.LocalQueue) and definition.by_priority,
        ),
        receiving.channels.get(route.channel) if receiving else None,
    )


# MQ Everyplace


def _topics_in_mqe(
    topology: Topology, tables: NetworkTables, manager: MqeQueueManager
) -> Iterator[QueueTopic]:
    name = manager.name
    yield QueueTopic(topic=put_topic(name), role=TopicRole.PUTS, queue_manager=name)
    for queue in manager.queues:
        match queue:
            case MqeLocalQueue() | BridgeQueue():
                owner = identity(queue, name).queue_manager
                if owner not in topology.mq:
                    topic = topology.bindings.topic(queue=queue.name, queue_manager=owner)
                    yield QueueTopic(
                        topic=topic, role=TopicRole.QUEUE, queue_manager=owner, queue=queue.name
                    )
            case MqeRemoteQueue(mode=Mode.ASYNC):
                yield _store_topic(tables, name, queue, queue.queue_manager)
            case StoreAndForwardQueue():
                for target in queue.targets:
                    yield _store_and_forward_topic(tables, name, queue, target)


def _store_topic(
    tables: NetworkTables, name: str, queue: MqeRemoteQueue | StoreAndForwardQueue, to: str
) -> QueueTopic:
    channel, *via = connections_on_way(tables, name, queue.queue_manager)
    return QueueTopic(
        topic=transmission_topic(queue=queue.name, queue_manager=name, to=to),
        role=TopicRole.TRANSMISSION,
        queue_manager=name,
        queue=queue.name,
        to=to,
        channel=channel,
        via=tuple(via),
    )


def _store_and_forward_topic(
    tables: NetworkTables, name: str, queue: StoreAndForwardQueue, target: str
) -> QueueTopic:
    """The messages of a store-and-forward queue for one target: pushed if possible, else pulled."""
    pushed = _store_topic(tables, name, queue, target)
    if link_to(tables, name, queue.queue_manager).is_defined:
        return pushed
    pulling = collecting_queue(tables, Stored(name, queue, Names(queue_manager=target)))
    if pulling is None:
        resting = Resting("inactive", f"nothing moves the messages of {queue.name} of {name}")
        return replace(pushed, to="", channel=("", ""), via=(), resting=resting)
    channel, *via = connections_on_way(tables, target, pulling.queue_manager)
    is_running = pulling.interval > 0
    return replace(pushed, channel=channel, via=tuple(via), is_running=is_running, is_pulled=True)

"""The topics of a topology: which it needs, and which the job reads.

Local queues, transmission queues and the intakes of queue managers have topics. Aliases and remote
definitions have none, since no message stays there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from redrive.topology.files import Topology
from redrive.topology.mq import objects as mq
from redrive.topology.mq.network import senders
from redrive.topology.mq.queue_manager import ClusterRoute, QueueManager
from redrive.topology.mqe import objects as mqe
from redrive.topology.mqe.routes import connections_on_way
from redrive.topology.mqe.tables import Tables
from redrive.topology.names import Names, put_topic, transmission_topic


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
    """Why the messages of a transmission topic reach no manager."""
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
    """How often the receiving end retries a failed put (MRRTY)."""
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
    found: dict[str, QueueTopic] = {}
    for manager in topology.mq.queue_managers.values():
        if manager.name not in on_other_cluster:
            for one in _topics_in_mq(topology, manager):
                is_received = one.to not in on_other_cluster
                found.setdefault(one.topic, one if is_received else _held_for_other_cluster(one))
    for manager_of_mqe in topology.mqe_managers:
        if manager_of_mqe.name not in on_other_cluster:
            for one in _topics_in_mqe(topology, manager_of_mqe):
                found.setdefault(one.topic, one)
    return tuple(found.values())


def _held_for_other_cluster(topic: QueueTopic) -> QueueTopic:
    because = f"messages of {topic.queue} of {topic.queue_manager} go to another Kafka cluster"
    resting = Resting("inactive", because)
    return replace(topic, to="", resting=resting, message_retries=0, message_retry_interval=0)


# IBM MQ


def _topics_in_mq(topology: Topology, manager: QueueManager) -> Iterator[QueueTopic]:
    name = manager.name
    yield QueueTopic(topic=put_topic(name), role=TopicRole.PUTS, queue_manager=name)
    queues = dict(manager.every_queue)
    # The product's own dead-letter queue needs no DEFINE; its other queues are not used.
    dead_letter_queue = manager.queue(manager.attributes.dead_letter_queue)
    if dead_letter_queue is not None:
        queues[dead_letter_queue.name] = dead_letter_queue
    for queue in queues.values():
        if not isinstance(queue, mq.LocalQueue):
            continue
        if queue.is_transmission_queue and (
            queue.cluster_channels or queue.name == mq.CLUSTER_TRANSMISSION_QUEUE
        ):
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
        (one for one in channels if one.transmission_queue == queue.name), None
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


def _topics_in_mqe(topology: Topology, manager: mqe.QueueManager) -> Iterator[QueueTopic]:
    name = manager.name
    yield QueueTopic(topic=put_topic(name), role=TopicRole.PUTS, queue_manager=name)
    for queue in manager.queues:
        match queue:
            case mqe.LocalQueue():
                topic = topology.bindings.topic(queue=queue.name, queue_manager=name)
                yield QueueTopic(
                    topic=topic, role=TopicRole.QUEUE, queue_manager=name, queue=queue.name
                )
            case mqe.BridgeQueue() if queue.queue_manager not in topology.mq:
                topic = topology.bindings.topic(queue=queue.name, queue_manager=queue.queue_manager)
                yield QueueTopic(
                    topic=topic,
                    role=TopicRole.QUEUE,
                    queue_manager=queue.queue_manager,
                    queue=queue.name,
                )
            case mqe.RemoteQueue(mode=mqe.Mode.ASYNC):
                yield _store_topic(manager, queue.name, queue.queue_manager, queue.queue_manager)
            case mqe.StoreAndForwardQueue():
                for target in queue.targets:
                    yield _store_and_forward_topic(topology, manager, queue, target)


def _store_topic(manager: mqe.QueueManager, queue: str, to: str, connection: str) -> QueueTopic:
    name = manager.name
    return QueueTopic(
        topic=transmission_topic(queue=queue, queue_manager=name, to=to),
        role=TopicRole.TRANSMISSION,
        queue_manager=name,
        queue=queue,
        to=to,
        channel=(name, connection),
        via=_via(manager, connection),
    )


def _via(manager: mqe.QueueManager, connection: str) -> tuple[tuple[str, str], ...]:
    _, *further = connections_on_way(Tables(manager), connection)
    return tuple((manager.name, one) for one in further)


def _store_and_forward_topic(
    topology: Topology, manager: mqe.QueueManager, queue: mqe.StoreAndForwardQueue, target: str
) -> QueueTopic:
    """The messages of a store-and-forward queue for one target: pushed if possible, else pulled."""
    pushed = _store_topic(manager, queue.name, target, queue.queue_manager)
    if any(one.name == queue.queue_manager for one in manager.connections):
        return pushed
    puller = topology.mqe.queue_manager(target) if topology.mqe else None
    for pulling in puller.queues if puller else ():
        if isinstance(pulling, mqe.HomeServerQueue) and pulling.queue_manager == manager.name:
            channel, is_running = (target, manager.name), pulling.interval > 0
            assert puller is not None, "its kind was checked"
            return replace(
                pushed,
                channel=channel,
                via=_via(puller, manager.name),
                is_running=is_running,
                is_pulled=True,
            )
    resting = Resting("inactive", f"nothing moves the messages of {queue.name} of {manager.name}")
    return replace(pushed, to="", channel=("", ""), via=(), resting=resting)

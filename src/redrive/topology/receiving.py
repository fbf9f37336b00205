"""Receiving queue managers, which put the messages of one topic each.

Every topic that the job reads has one ``ReceivingQueueManager``. For an intake it is the queue
manager to which the application is connected; for a transmission queue it is the receiving end of
the channel, which opens the queue like an application that sets both names; in MQ Everyplace it is
the manager at the end of the connection, or the one that pulls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol, TypeGuard

from redrive.messages.reasons import Reason
from redrive.topology.bindings import Bindings
from redrive.topology.layout import QueueTopic, TopicRole, Topology
from redrive.topology.mq.network import Link, MqNetwork
from redrive.topology.mq.objects import LocalQueue
from redrive.topology.mq.resolution import open_queue
from redrive.topology.mq.resolver import (
    names_as_headers,
    reply_to_names,
    topic_of_put,
    transmission_headers,
)
from redrive.topology.mq.results import Persistence, Resolution, TargetKind, job_request
from redrive.topology.mqe.objects import Mode, MqeQueue, MqeRemoteQueue, StoreAndForwardQueue
from redrive.topology.mqe.resolver import MqeResolver
from redrive.topology.mqe.results import (
    Conditions,
    Delivered,
    End,
    Failed,
    MqeResolution,
    PutFailure,
    Stored,
)
from redrive.topology.names import Names, transmission_topic
from redrive.topology.put import Destination, QueueLimits, Refusal, Resolver

BINARY: Final = "binary"
"""Dead letters are written with an MQDLH in front of the body."""
HEADERS: Final = "headers"
"""Dead letters are written with record headers ``mqdlh.*``."""

_REASONS: Final = {
    PutFailure.NO_QUEUE_ACCEPTS: Reason.UNKNOWN_OBJECT_NAME,
    PutFailure.MESSAGE_TOO_BIG: Reason.MSG_TOO_BIG_FOR_Q,
    PutFailure.QUEUE_FULL: Reason.Q_FULL,
}
"""The closest reason codes for failures of MQ Everyplace, which have no numbers; else 2087."""


class ReceivingQueueManager(Protocol):
    """Puts the messages of one topic, and determines where undeliverable ones go."""

    queue_manager: str
    dead_letters: Destination | Refusal
    """Its dead-letter queue, or why there is none."""
    dead_letter_form: str
    """``binary`` or ``headers``."""
    keeps_refused: bool
    """Whether a refused message stays where it waits, whatever the reason."""
    takes_puts: bool
    """Whether IBM MQ applications put here, so that MQPUT completes their messages."""

    def resolve(self, *, queue: str, queue_manager: str, seed: int = 0) -> Destination | Refusal:
        """Where the message with these names goes, or why it is refused."""

    def opened(
        self, *, queue: str, queue_manager: str, seed: int = 0
    ) -> Resolution | MqeResolution:
        """The resolution behind ``resolve``, step by step."""

    def reply_to(self, names: Names) -> Names:
        """The reply-to names of a message as it travels on."""

    def is_lost(self, persistence: int) -> bool:
        """Whether an undeliverable message without a dead-letter queue is discarded."""


def receiving_queue_managers(
    topology: Topology,
    sources: Mapping[str, QueueTopic],
    *,
    stopped: frozenset[tuple[str, str]] = frozenset(),
) -> Mapping[str, MqReceivingQueueManager | MqeReceivingQueueManager]:
    """The receiver of each topic in ``sources`` that is read, by topic name.

    ``stopped`` are stopped connections of MQ Everyplace: manager and name.
    """
    resolver = MqeResolver(topology.mqe)
    receivers: dict[str, MqReceivingQueueManager | MqeReceivingQueueManager] = {}
    for name, source in sources.items():
        if _receiver_name(source) in topology.mq:
            receivers[name] = MqReceivingQueueManager(topology, source)
        elif topology.mqe.queue_managers:
            receivers[name] = MqeReceivingQueueManager(resolver, topology, source, stopped)
    return receivers


def resolver_of(
    topology: Topology,
    queue_manager: str,
    *,
    stopped: frozenset[tuple[str, str]] = frozenset(),
) -> Resolver:
    """The resolver of puts on one manager; raises ``KeyError`` if it does not exist.

    ``stopped`` is as for ``receiving_queue_managers``.
    """
    is_of_mqe = topology.mqe.queue_manager(queue_manager) is not None
    if queue_manager not in topology.mq and not is_of_mqe:
        raise KeyError(queue_manager)
    put = QueueTopic(topic="", role=TopicRole.PUTS, queue_manager=queue_manager)
    return receiving_queue_managers(topology, {put.topic: put}, stopped=stopped)[put.topic]


def _receiver_name(source: QueueTopic) -> str:
    return source.to if source.role is TopicRole.TRANSMISSION else source.queue_manager


def _dead_letter_form(bindings: Bindings, queue_manager: str, default: str) -> str:
    bound = bindings.queue_managers.get(queue_manager)
    return (bound and bound.dead_letter_header) or default


def _on_queue(
    bindings: Bindings, queue: str, queue_manager: str, limits: QueueLimits
) -> Destination:
    group = bindings.consumer_group(queue=queue, queue_manager=queue_manager)
    return Destination(
        topic=bindings.topic(queue=queue, queue_manager=queue_manager),
        queue=queue,
        queue_manager=queue_manager,
        limits=replace(limits, consumer_group=group),
    )


class MqReceivingQueueManager:
    """A queue manager of kind ``mq`` that receives puts or a channel's messages.

    Puts are opened as MQPUT1 opens them: names and message come together.
    """

    def __init__(self, topology: Topology, source: QueueTopic) -> None:
        self.queue_manager = _receiver_name(source)
        self._network, self._bindings = topology.mq, topology.bindings
        self._manager = topology.mq.queue_managers[self.queue_manager]
        self._from_cluster_channel = source.is_of_cluster
        self.dead_letter_form = _dead_letter_form(self._bindings, self.queue_manager, BINARY)
        self.keeps_refused = False
        self.takes_puts = source.role is TopicRole.PUTS
        self._link = None if self.takes_puts else _link(self._network, source)
        self.dead_letters = self._dead_letters()

    def resolve(self, *, queue: str, queue_manager: str, seed: int = 0) -> Destination | Refusal:
        """The topic of the queue or of the transmission queue that a put is for, or its refusal."""
        opened = self.opened(queue=queue, queue_manager=queue_manager, seed=seed)
        if opened.is_failed:
            return Refusal(opened.reason, opened.detail)
        if (unsupported := self._unsupported(opened)) is not None:
            return unsupported
        queue = opened.put_queue
        holder = self._manager.holder_of(queue)
        group = self._bindings.consumer_group(queue=queue, queue_manager=holder)
        return Destination(
            topic=topic_of_put(opened, self._manager, self._bindings),
            queue=opened.destination.queue,
            queue_manager=opened.destination.queue_manager,
            headers=transmission_headers(opened),
            limits=replace(opened.limits, consumer_group=group) if group else opened.limits,
            is_arrival=opened.target is TargetKind.LOCAL,
            is_choice=opened.is_choice,
            binds_groups=opened.binds_groups,
            persistence=int(Persistence(opened.default_persistence)),
            priority=opened.default_priority,
            cap_expiry=opened.cap_expiry,
        )

    def opened(self, *, queue: str, queue_manager: str, seed: int = 0) -> Resolution:
        """The open of a put, step by step."""
        from_cluster = self._from_cluster_channel
        request = job_request(queue, queue_manager, seed=seed, from_cluster_channel=from_cluster)
        return open_queue(self._network, self._manager.name, request)

    def _unsupported(self, opened: Resolution) -> Refusal | None:
        """Why no put follows an open, whatever the message: it would need copies.

        A put to a topic would publish; one to a queue with STRMQOS(MUSTDUP) needs its copy on
        STREAMQ. Without MUSTDUP the message is put, and has no copy.
        """
        if opened.target is TargetKind.TOPIC:
            detail = f"{opened.path[-1]} is an alias for a topic, and nothing is published"
            return Refusal(Reason.FUNCTION_NOT_SUPPORTED, detail)
        queue = self._manager.queue(opened.destination.queue)
        if (
            opened.target is TargetKind.LOCAL
            and isinstance(queue, LocalQueue)
            and queue.stream_queue
            and queue.must_duplicate
        ):
            detail = f"{queue} has STRMQOS(MUSTDUP), and no copy is put to {queue.stream_queue}"
            return Refusal(Reason.FUNCTION_NOT_SUPPORTED, detail)
        return None

    def reply_to(self, names: Names) -> Names:
        """The names for a reply, which only the first put replaces."""
        return reply_to_names(self._manager, names) if self.takes_puts else names

    def is_lost(self, persistence: int) -> bool:
        """Whether a fast channel discards the message, as nonpersistent ones."""
        return self._link is not None and self._link.is_fast and persistence == 0

    def _dead_letters(self) -> Destination | Refusal:
        name = self._manager.attributes.dead_letter_queue
        problem = self._manager.dead_letter_queue_problem
        if self._link is not None and not self._link.receiver.use_dead_letter_queue:
            problem = f"channel {self._link.receiver.name} has USEDLQ(NO)"
        if problem:
            return Refusal(Reason.UNKNOWN_OBJECT_NAME, problem)
        queue = self._manager.queue(name)
        assert isinstance(queue, LocalQueue), "anything else is a problem"
        limits = QueueLimits(
            put_enabled=queue.put_enabled,
            max_message_length=queue.max_message_length,
            max_depth=queue.max_depth,
            queue_manager_max_message_length=self._manager.attributes.max_message_length,
        )
        return replace(
            _on_queue(self._bindings, name, self._manager.holder_of(name), limits),
            queue_manager=self.queue_manager,
            persistence=int(queue.default_persistence),
            priority=queue.default_priority,
        )


def _link(network: MqNetwork, source: QueueTopic) -> Link:
    if not source.is_of_cluster:
        link = network.link(queue=source.queue, queue_manager=source.queue_manager)
        if link is not None:
            return link
    receiver = network.queue_managers[source.to].channels.get(source.channel[1])
    link = Link(queue_manager=source.to)
    return replace(link, receiver=receiver) if receiver else link


class MqeReceivingQueueManager:
    """A queue manager of kind ``mqe`` that receives puts, or whose store is emptied."""

    def __init__(
        self,
        resolver: MqeResolver,
        topology: Topology,
        source: QueueTopic,
        stopped: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        self._resolver = resolver
        # A store's messages have passed its own connections, which hold them unless triggered.
        self._conditions = Conditions(down=stopped - {source.channel, *source.via})
        self._topology, self._bindings, self._source = topology, topology.bindings, source
        self.queue_manager = source.queue_manager
        self.takes_puts = False
        self.dead_letter_form = _dead_letter_form(self._bindings, self.queue_manager, HEADERS)
        manager = resolver.network.queue_manager(source.queue_manager)
        queues = manager.queues if manager else ()
        self._store = next((queue for queue in queues if _stores_for(queue, source)), None)
        # What a store cannot pass on stays there (reading O3); a pulled message is the puller's.
        self.keeps_refused = self._store is not None and not source.is_pulled
        self.dead_letters = self._dead_letters()

    def resolve(
        self,
        *,
        queue: str,
        queue_manager: str,
        seed: int = 0,  # noqa: ARG002 - nothing is chosen among equals here
    ) -> Destination | Refusal:
        """See ``ReceivingQueueManager``."""
        resolution = self.opened(queue=queue, queue_manager=queue_manager)
        names = Names(queue=queue, queue_manager=queue_manager)
        answer = self._destination(resolution.end, names)
        if isinstance(answer, Refusal) or not resolution.discovered:
            return answer
        return replace(answer, discovered=resolution.discovered)

    def opened(
        self,
        *,
        queue: str,
        queue_manager: str,
        seed: int = 0,  # noqa: ARG002 - as above
    ) -> MqeResolution:
        """The resolution of a message's put or transmission, step by step."""
        names, conditions = Names(queue=queue, queue_manager=queue_manager), self._conditions
        if self._store is None:
            return self._resolver.resolve(self.queue_manager, names, conditions=conditions)
        stored = Stored(self.queue_manager, self._store, names)
        if self._source.is_pulled:
            return self._resolver.pull(stored, self._source.to, conditions)
        return self._resolver.transmit(stored, conditions)

    def _destination(self, end: End, names: Names) -> Destination | Refusal:
        match end:
            case Delivered(dead_letter=True):
                detail = f"no queue of {self._source.to} accepts a message for {names}"
                return Refusal(Reason.UNKNOWN_OBJECT_NAME, detail)
            case Delivered():
                return self._delivery_destination(end)
            case Stored(refused=Failed() as failed):
                detail = f"{failed.detail}; it stays on {end}"
                return Refusal(_reason(failed.failure), detail, is_kept=True)
            case Stored():
                return self._store_destination(end)
            case Failed():
                return Refusal(_reason(end.failure), end.detail or str(end.failure))
        return Refusal(Reason.UNKNOWN_OBJECT_NAME, str(end))

    def reply_to(self, names: Names) -> Names:
        """The names as they are."""
        return names

    def is_lost(self, persistence: int) -> bool:  # noqa: ARG002 - see ReceivingQueueManager
        """Never."""
        return False

    def _delivery_destination(self, end: Delivered) -> Destination | Refusal:
        manager, queue = end.names.queue_manager, end.names.queue
        if end.over_bridge and manager in self._topology.mq:
            # The bridge puts as an application of the IBM MQ queue manager does.
            resolver = resolver_of(self._topology, manager)
            return resolver.resolve(queue=queue, queue_manager="")
        local = _on_queue(self._bindings, queue, manager, _limits(end.queue))
        return replace(local, expiry=end.queue.expiry)

    def _store_destination(self, end: Stored) -> Destination:
        names = end.names
        return Destination(
            topic=transmission_topic(
                queue=end.queue.name, queue_manager=end.queue_manager, to=end.to
            ),
            queue=names.queue,
            queue_manager=names.queue_manager,
            headers=names_as_headers(names),
            limits=_limits(end.queue),
            expiry=end.queue.expiry,
        )

    def _dead_letters(self) -> Destination | Refusal:
        """The dead-letter queue of the manager that put the message; for a pull, of the puller."""
        name = self._source.to if self._source.is_pulled else self.queue_manager
        manager = self._resolver.network.queue_manager(name)
        if manager and manager.dead_letter_queues:
            queue = manager.dead_letter_queues[0]
            return _on_queue(self._bindings, queue.name, name, _limits(queue))
        return Refusal(Reason.UNKNOWN_OBJECT_NAME, f"{name} has no dead-letter queue")


def _stores_for(
    queue: MqeQueue, source: QueueTopic
) -> TypeGuard[MqeRemoteQueue | StoreAndForwardQueue]:
    if source.role is TopicRole.PUTS or queue.name != source.queue:
        return False
    match queue:
        case StoreAndForwardQueue():
            return source.to in queue.targets
        case MqeRemoteQueue(mode=Mode.ASYNC):
            return queue.queue_manager == source.to
    return False


def _limits(queue: MqeQueue) -> QueueLimits:
    return QueueLimits(
        max_message_length=queue.maximum_message_size, max_depth=queue.maximum_messages
    )


def _reason(failure: PutFailure) -> int:
    return _REASONS.get(failure, Reason.UNKNOWN_REMOTE_Q_MGR)

"""Dynamic queues: made from a model queue, renewed, and deleted when their lease ends.

MQOPEN of a model queue creates a queue. Kafka applications have no handle that closes with them, so
a temporary queue has a lease: opening the queue again renews it. An entry of the tables topic
records the queue; its own topic holds the messages.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from redrive.checkpoints.control import Entries
from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import topology_of
from redrive.engine.commands import Entry, Removal, States, dynamic_entry, removal, states_of
from redrive.errors import UsageError
from redrive.kafka.administration import NewTopic, TopicAdministration
from redrive.messages.constants import reason_name
from redrive.operations.network import Network, unknown
from redrive.operations.states import change_states, read_decisions
from redrive.operations.topics import topic_settings
from redrive.topology.layout import QueueTopic, Topology, topics_of
from redrive.topology.mq.objects import ModelQueue
from redrive.topology.mq.resolution import open_queue
from redrive.topology.mq.results import OpenOption, OpenRequest, TargetKind
from redrive.topology.names import topic_name
from redrive.topology.put import DynamicQueue

DELETED_AFTER: Final = 60.0
"""Seconds after the end of a lease until the job deletes the topic: a reader may lag."""


@dataclass(frozen=True, slots=True)
class OpenedQueue:
    """A dynamic queue with its topic."""

    queue: DynamicQueue
    topic: str
    messages: int | None = None
    """Upper bound of its messages, as transaction markers count too; None without a topic."""


def open_dynamic_queue(
    network: Network, queue_manager: str, queue: str, *, dynamic_name: str, lease: float
) -> OpenedQueue:
    """Create a queue from a model queue, or renew the lease of an existing one.

    Args:
        network: The definitions, and the job that applies the change.
        queue_manager: The manager to which the application is connected.
        queue: The model queue, or a temporary dynamic queue that is open.
        dynamic_name: DynamicQName: a name, or a prefix with an asterisk at its end.
        lease: Seconds until the queue is closed, unless it is renewed; a permanent queue has none.

    Raises:
        UsageError: The names resolve to no model queue.
        ProtocolError: Others kept writing concurrently, or the broker did not answer.
    """
    network.checked_manager(queue_manager)
    job, seed = network.required_job(), secrets.randbits(64)
    made: list[DynamicQueue] = []

    def change(entries: Entries) -> list[Entry]:
        states, now = states_of(entries), int(time.time() * 1000)
        if not set(made) & states.dynamic_queues:  # else an earlier attempt did write it
            until = now + int(lease * 1000)
            request = OpenRequest(
                queue=queue, options=OpenOption.INPUT, dynamic_queue=dynamic_name, seed=seed
            )
            made[:] = [_open(network.topology, queue_manager, request, states, now, until)]
        return [dynamic_entry(*made)]

    change_states(job, change)
    (opened,) = made
    topology = network.topology.with_dynamic_queues(made)
    layout = _layout(topology, opened)
    # Write the entry first: after a crash in between, the topic is deleted when the lease ends.
    settings = topic_settings(topology, layout)
    TopicAdministration(job.connection).ensure([NewTopic(layout.topic, 1, settings)])
    return OpenedQueue(opened, layout.topic)


def close_dynamic_queue(
    network: Network, queue_manager: str, queue: str, *, purges: bool
) -> OpenedQueue:
    """Delete a dynamic queue with its messages.

    A permanent queue that holds messages needs ``purges`` (MQCO_DELETE_PURGE).

    Raises:
        UsageError: There is no such queue, or it is permanent and not empty.
        ProtocolError: Others kept writing concurrently, or the broker did not answer.
    """
    network.checked_manager(queue_manager)
    job = network.required_job()
    known = {opened.queue.queue: opened for opened in dynamic_queues(network, queue_manager)}
    opened = known.get(queue)
    if opened is None:
        raise unknown(f"queue manager {queue_manager} has no dynamic queue {queue}", queue, known)
    if opened.queue.until is None and opened.messages and not purges:
        raise UsageError(
            f"{queue}@{queue_manager} is permanent and holds messages (MQRC_Q_NOT_EMPTY, 2055)",
            hint="--purge deletes it with its messages",
        )
    change_states(job, lambda entries: _delete(job, {opened.queue}, states_of(entries)))
    return opened


def dynamic_queues(network: Network, queue_manager: str = "") -> list[OpenedQueue]:
    """The dynamic queues of a manager, or of all, including closed ones not yet deleted."""
    job = network.required_job()
    with network.cluster() as cluster:
        every = states_of(read_decisions(job, cluster)).dynamic_queues
        queues = sorted(queue for queue in every if queue_manager in {"", queue.queue_manager})
        topics = [_topic(network.topology, queue) for queue in queues]
        extents = cluster.extents(cluster.led(topics)[0])
    messages = {lane.topic: extent.end - extent.first for lane, extent in extents.items()}
    return [
        OpenedQueue(queue, topic, messages.get(topic))
        for queue, topic in zip(queues, topics, strict=True)
    ]


def is_overdue(states: States, now: int) -> bool:
    """Whether to delete the topic of a dynamic queue at ``now``, in milliseconds."""
    return bool(_overdue(states, now))


def delete_overdue(job: JobConfiguration) -> Collection[DynamicQueue]:
    """Delete dynamic queues some time after their lease, and return them.

    Raises:
        ProtocolError: Others kept writing concurrently, or the broker did not answer.
    """
    gone: set[DynamicQueue] = set()

    def change(entries: Entries) -> list[Removal]:
        states = states_of(entries)
        overdue = _overdue(states, int(time.time() * 1000))
        gone.update(overdue)
        return _delete(job, overdue, states)

    change_states(job, change)
    return gone


def _overdue(states: States, now: int) -> set[DynamicQueue]:
    earlier = now - int(DELETED_AFTER * 1000)
    return {queue for queue in states.dynamic_queues if not queue.is_open(earlier)}


def _delete(
    job: JobConfiguration, queues: Collection[DynamicQueue], states: States
) -> list[Removal]:
    """Delete the topics of queues; returns the entries to write.

    Topics that the bindings name belong to others and stay.
    """
    topology = topology_of(job.topology)
    gone = sorted(states.dynamic_queues.intersection(queues))
    topics = [_topic(topology, queue) for queue in gone]
    TopicAdministration(job.connection).delete(topics)
    return [removal(dynamic_entry(queue)) for queue in gone]


def _open(  # noqa: PLR0917 - one open
    topology: Topology,
    queue_manager: str,
    request: OpenRequest,
    states: States,
    now: int,
    until: int,
) -> DynamicQueue:
    for queue in states.dynamic_queues:
        if (queue.queue_manager, queue.queue) == (queue_manager, request.queue):
            if not queue.is_open(now):
                raise UsageError(
                    f"the lease of {queue.queue}@{queue_manager} has ended",
                    hint=f"open its model queue {queue.model} again",
                )
            return queue if queue.until is None else queue._replace(until=until)
    known = topology.with_dynamic_queues(states.dynamic_queues)
    if queue_manager not in known.mq.queue_managers:
        raise UsageError(f"{queue_manager} is of MQ Everyplace, which has no model queues")
    resolution = open_queue(known.mq, queue_manager, request)
    if resolution.is_failed:
        code = f"{reason_name(resolution.reason)}, {int(resolution.reason)}"
        raise UsageError(f"{resolution.detail} ({code})", hint=resolution.advice)
    model = resolution.path[-1]
    if resolution.target is not TargetKind.DYNAMIC or not isinstance(model, ModelQueue):
        raise UsageError(
            f"{request.queue}@{queue_manager} is {model}, which is not a model queue",
            hint="name a QMODEL, or a dynamic queue to renew its lease",
        )
    is_temporary = model.dynamic_type == "TEMPDYN"
    made = DynamicQueue(
        queue_manager, resolution.destination.queue, model.name, until if is_temporary else None
    )
    _layout(topology.with_dynamic_queues([made]), made)
    return made


def _layout(topology: Topology, queue: DynamicQueue) -> QueueTopic:
    topic = _topic(topology, queue)
    for topic_of_layout in topics_of(topology):
        if topic_of_layout.topic == topic and topic_of_layout.queue == queue.queue:
            return topic_of_layout
    raise UsageError(
        f"{queue.queue}@{queue.queue_manager} cannot have its own topic here",
        hint="the bindings use its topic name, or assign its manager to another cluster",
    )


def _topic(topology: Topology, queue: DynamicQueue) -> str:
    known = topology.with_dynamic_queues([queue])
    manager = known.mq.queue_managers.get(queue.queue_manager)
    holder = manager.holder_of(queue.queue) if manager else queue.queue_manager
    return topic_name(queue=queue.queue, queue_manager=holder)

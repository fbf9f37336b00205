"""Resolves puts on IBM MQ queue managers to Kafka topics."""

from __future__ import annotations

from dataclasses import replace

from redrive.messages.reasons import Reason
from redrive.topology.bindings import NO_BINDINGS, Bindings
from redrive.topology.mq.network import MqNetwork
from redrive.topology.mq.objects import LocalQueue, RemoteQueue
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mq.resolution import open_queue
from redrive.topology.mq.results import Persistence, Resolution, TargetKind, job_request
from redrive.topology.names import Names, transmission_topic
from redrive.topology.put import Destination, Refusal

QUEUE_MANAGER_HEADER = "redrive.oqm"
"""Header for ObjectQMgrName, on intake topics and on the topics of transmission queues."""
QUEUE_HEADER = "redrive.oq"
NEXT_QUEUE_MANAGER_HEADER = "redrive.next"
"""Header for the manager to which a cluster or shared transmission queue leads."""
BIND_HEADER = "redrive.bind"
"""Header that names an open; its puts go to one instance of a cluster queue."""


class MqResolver:
    """Resolves puts at one queue manager to topics.

    Puts are opened as MQPUT1 opens them: names and message come together.
    """

    def __init__(
        self,
        network: MqNetwork,
        at: str,
        *,
        bindings: Bindings = NO_BINDINGS,
        from_cluster_channel: bool = False,
    ) -> None:
        self._network, self._bindings = network, bindings
        self._manager = network.queue_managers[at]
        self._from_cluster_channel = from_cluster_channel

    def resolve(self, *, queue: str, queue_manager: str, seed: int = 0) -> Destination | Refusal:
        """The topic of the queue or of the transmission queue that a put is for, or its refusal."""
        return self.destination(self.opened(queue=queue, queue_manager=queue_manager, seed=seed))

    def opened(self, *, queue: str, queue_manager: str, seed: int = 0) -> Resolution:
        """The open of a put, step by step."""
        from_cluster = self._from_cluster_channel
        request = job_request(queue, queue_manager, seed=seed, from_cluster_channel=from_cluster)
        return open_queue(self._network, self._manager.name, request)

    def destination(self, opened: Resolution) -> Destination | Refusal:
        """The topic of an open at this manager, or the refusal."""
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
            headers=_transmission_headers(opened),
            limits=replace(opened.limits, consumer_group=group) if group else opened.limits,
            is_arrival=opened.target is TargetKind.LOCAL,
            is_choice=opened.is_choice,
            binds_groups=opened.binds_groups,
            persistence=int(Persistence(opened.default_persistence)),
            priority=opened.default_priority,
            cap_expiry=opened.cap_expiry,
        )

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


def topic_of_put(opened: Resolution, manager: QueueManager, bindings: Bindings) -> str:
    """The topic of a put that resolved to a queue of ``manager``."""
    queue, to = opened.put_queue, opened.next_queue_manager
    # A queue that serves several managers has a topic for each.
    if to:
        return transmission_topic(queue=queue, queue_manager=manager.name, to=to)
    return bindings.topic(queue=queue, queue_manager=manager.holder_of(queue))


def _transmission_headers(opened: Resolution) -> tuple[tuple[str, bytes], ...]:
    """The role of MQXQH: the names with which the receiver opens."""
    if opened.target is not TargetKind.REMOTE:
        return ()
    headers = names_as_headers(opened.destination)
    if opened.next_queue_manager:
        headers += ((NEXT_QUEUE_MANAGER_HEADER, opened.next_queue_manager.encode()),)
    return headers


def names_as_headers(names: Names) -> tuple[tuple[str, bytes], ...]:
    """The names of a put as headers on intakes and on transmission queues."""
    return (
        (QUEUE_MANAGER_HEADER, names.queue_manager.encode()),
        (QUEUE_HEADER, names.queue.encode()),
    )


def reply_to_names(manager: QueueManager, names: Names) -> Names:
    """The reply-to names that travel with a message put on a manager.

    They are unchanged if they name a manager; otherwise those of the remote definition that
    ReplyToQ names, or completed by the name of the local manager.
    """
    if names.queue_manager:
        return names
    definition = manager.queue(names.queue)
    if isinstance(definition, RemoteQueue):
        return Names(queue=definition.remote_queue, queue_manager=definition.remote_queue_manager)
    return Names(queue=names.queue, queue_manager=manager.name)

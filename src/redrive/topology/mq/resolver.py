"""Resolves puts on IBM MQ queue managers to Kafka topics."""

from __future__ import annotations

from dataclasses import replace

from redrive.topology.bindings import NO_BINDINGS, Bindings
from redrive.topology.mq.network import Network
from redrive.topology.mq.puts import stream_of
from redrive.topology.mq.resolution import open_queue
from redrive.topology.mq.results import Persistence, Resolution, Target, job_request
from redrive.topology.names import transmission_topic
from redrive.topology.put import Destination, Refusal

QUEUE_MANAGER_HEADER = "redrive.oqm"
"""Header for ObjectQMgrName, on intake topics and on the topics of transmission queues."""
QUEUE_HEADER = "redrive.oq"
"""Header for ObjectName."""
NEXT_QUEUE_MANAGER_HEADER = "redrive.next"
"""Header for the manager to which a cluster or shared transmission queue leads."""
BIND_HEADER = "redrive.bind"
"""Header that names an open: puts of one open go to one instance of a cluster queue."""


class MqResolver:
    """Resolves puts at one queue manager to topics.

    Puts are opened as MQPUT1 opens them: names and message come together.
    """

    def __init__(self, network: Network, at: str, *, bindings: Bindings = NO_BINDINGS) -> None:
        self.queue_manager = network.queue_managers[at]
        self._network = network
        self._bindings = bindings

    def resolve(
        self, *, queue: str, queue_manager: str, seed: int = 0, from_cluster_channel: bool = False
    ) -> Destination | Refusal:
        """See ``Resolver``; the topic is that of the queue or of the transmission queue."""
        return self.destination(
            self.open(
                queue=queue,
                queue_manager=queue_manager,
                seed=seed,
                from_cluster_channel=from_cluster_channel,
            )
        )

    def open(
        self, *, queue: str, queue_manager: str, seed: int, from_cluster_channel: bool = False
    ) -> Resolution:
        """The open of a put, step by step; arguments as for ``resolve``."""
        request = job_request(
            queue, queue_manager, seed=seed, from_cluster_channel=from_cluster_channel
        )
        return open_queue(self._network, self.queue_manager.name, request)

    def destination(self, opened: Resolution) -> Destination | Refusal:
        """The topic to which an open of this manager led, or the refusal."""
        if opened.is_failed:
            return Refusal(opened.reason, opened.detail)
        at, queue = opened.opened_at, opened.put_queue
        group = self._bindings.consumer_group(queue=queue, queue_manager=at)
        return Destination(
            topic=topic_of_put(opened, self._bindings),
            queue=opened.destination.queue,
            queue_manager=opened.destination.queue_manager,
            headers=_travelling_names(opened),
            limits=replace(opened.limits, consumer_group=group) if group else opened.limits,
            is_arrival=opened.target is Target.LOCAL,
            stream=stream_of(self.queue_manager, opened),
            is_choice=opened.is_choice,
            binds_groups=opened.binds_groups,
            persistence=int(Persistence(opened.default_persistence)),
            priority=opened.default_priority,
            cap_expiry=opened.cap_expiry,
        )


def topic_of_put(opened: Resolution, bindings: Bindings) -> str:
    """The topic to which a put writes whose names led to a local or a transmission queue."""
    at, queue, to = opened.opened_at, opened.put_queue, opened.next_queue_manager
    # A queue that leads to several managers has a topic for each.
    if to:
        return transmission_topic(queue=queue, queue_manager=at, to=to)
    return bindings.topic(queue=queue, queue_manager=at)


def _travelling_names(opened: Resolution) -> tuple[tuple[str, bytes], ...]:
    """The role of MQXQH: the names with which the receiver opens."""
    if opened.target is not Target.REMOTE:
        return ()
    headers = [
        (QUEUE_MANAGER_HEADER, opened.destination.queue_manager),
        (QUEUE_HEADER, opened.destination.queue),
    ]
    if opened.next_queue_manager:
        headers.append((NEXT_QUEUE_MANAGER_HEADER, opened.next_queue_manager))
    return tuple((name, value.encode()) for name, value in headers)

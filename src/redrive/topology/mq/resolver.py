"""The topic and the headers with which a put on a queue manager of IBM MQ becomes a record."""

from __future__ import annotations

from redrive.topology.bindings import Bindings
from redrive.topology.mq.objects import RemoteQueue
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mq.results import Resolution, TargetKind
from redrive.topology.names import Names, transmission_topic

QUEUE_MANAGER_HEADER = "redrive.oqm"
"""Header for ObjectQMgrName, on intake topics and on the topics of transmission queues."""
QUEUE_HEADER = "redrive.oq"
NEXT_QUEUE_MANAGER_HEADER = "redrive.next"
"""Header for the manager to which a cluster or shared transmission queue leads."""
BIND_HEADER = "redrive.bind"
"""Header that names an open; its puts go to one instance of a cluster queue."""


def topic_of_put(opened: Resolution, manager: QueueManager, bindings: Bindings) -> str:
    """The topic of a put that resolved to a queue of ``manager``."""
    queue, to = opened.put_queue, opened.next_queue_manager
    # A queue that serves several managers has a topic for each.
    if to:
        return transmission_topic(queue=queue, queue_manager=manager.name, to=to)
    return bindings.topic(queue=queue, queue_manager=manager.holder_of(queue))


def transmission_headers(opened: Resolution) -> tuple[tuple[str, bytes], ...]:
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

"""What ``runmqsc`` refuses although the syntax is right: objects that contradict themselves.

Each rule is told in the reference of the command (DEFINE CHANNEL, DEFINE queues, ALTER QMGR) and of
the PCF reason code that the finding names.
"""

from __future__ import annotations

from collections.abc import Iterable

from redrive.topology.mq.objects import (
    CLUSTER_TRANSMISSION_QUEUE,
    Channel,
    ChannelType,
    Definition,
    LocalQueue,
    ModelQueue,
    Queue,
    QueueManagerAttributes,
    Usage,
)
from redrive.topology.mq.system_objects import DEFAULT_CHANNELS

_SERVES_QUEUE = frozenset({ChannelType.SDR, ChannelType.SVR})
_CALLS = frozenset({ChannelType.SDR, ChannelType.RQSTR, ChannelType.CLUSSDR, ChannelType.CLNTCONN})


def refusal_of(definition: Definition, queue_manager: QueueManagerAttributes) -> str:
    """Why a definition is refused; empty if it is not.

    Args:
        definition: The object as the command would leave it.
        queue_manager: The attributes of its manager.
    """
    match definition:
        case Channel():
            return _of_channel(definition)
        case Queue():
            return _of_queue(definition, queue_manager)
    return ""


def _of_channel(channel: Channel) -> str:
    if channel.name in DEFAULT_CHANNELS:
        return ""  # it only holds defaults
    kind = channel.channel_type
    if kind in _SERVES_QUEUE and not channel.transmission_queue:
        return f"a channel with CHLTYPE({kind}) needs XMITQ"
    if kind in _CALLS and not channel.connection:
        return f"a channel with CHLTYPE({kind}) needs CONNAME"
    return _of_clusters(channel)


def _of_queue(queue: Queue, queue_manager: QueueManagerAttributes) -> str:
    most = queue_manager.max_message_length
    if isinstance(queue, LocalQueue | ModelQueue) and queue.max_message_length > most:
        return (
            f"MAXMSGL({queue.max_message_length}) is more than the {most} that the queue manager "
            "takes"
        )
    if isinstance(queue, LocalQueue):
        if queue.is_clustered and queue.usage is Usage.XMITQ:
            return "a transmission queue cannot be in a cluster (MQRCCF_CLUSTER_Q_USAGE_ERROR)"
        if queue.cluster_channels and queue.usage is not Usage.XMITQ:
            return "CLCHNAME needs USAGE(XMITQ) (MQRCCF_CLUS_XMIT_Q_USAGE_ERROR)"
        if queue.stream_queue and queue.usage is Usage.XMITQ:
            return "a transmission queue cannot have STREAMQ"
    if isinstance(queue, LocalQueue | ModelQueue) and queue.stream_queue.startswith("SYSTEM."):
        return f"STREAMQ cannot be {queue.stream_queue}"
    return _of_clusters(queue)


def _of_clusters(definition: Channel | Queue) -> str:
    if definition.cluster and definition.cluster_namelist:
        return "CLUSTER and CLUSNL exclude each other (MQRCCF_CLUSTER_NAME_CONFLICT)"
    return ""


def refusal_of_queue_manager(queue_manager: QueueManagerAttributes, queues: Iterable[Queue]) -> str:
    """Why a change of the queue manager's attributes is refused; empty if it is not.

    Args:
        queue_manager: The attributes as the command would leave them.
        queues: Its queues, those created with it left out.
    """
    if queue_manager.default_transmission_queue == CLUSTER_TRANSMISSION_QUEUE:
        return f"AMQ8520E: DEFXMITQ cannot be {CLUSTER_TRANSMISSION_QUEUE}"
    if queue_manager.repository_cluster and queue_manager.repository_namelist:
        return "REPOS and REPOSNL exclude each other (MQRCCF_REPOS_NAME_CONFLICT)"
    most = queue_manager.max_message_length
    for queue in queues:
        if isinstance(queue, LocalQueue | ModelQueue) and queue.max_message_length > most:
            return f"MAXMSGL({most}) is less than the {queue.max_message_length} of {queue}"
    return ""

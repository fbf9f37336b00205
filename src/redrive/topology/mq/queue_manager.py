"""One queue manager: its objects, those it is created with, and its cluster repository."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from redrive.diagnostics import SourceLocation
from redrive.messages.reasons import Reason
from redrive.topology.mq import objects as mq


class ChannelState(IntEnum):
    """State of a cluster channel, in the order in which workload management prefers them."""

    RUNNING = 0
    """Running or inactive."""
    STARTING = 1
    """Being started or stopped."""
    RETRYING = 2
    STOPPED = 3
    """Anything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRoute:
    """A cluster queue manager as another one knows it: the route over one cluster channel."""

    queue_manager: str
    cluster: str
    channel: str = ""
    """Name of the cluster-receiver channel, which is also that of the sender."""
    rank: int = 0
    priority: int = 0
    weight: int = 50
    network_priority: int = 0
    state: ChannelState = ChannelState.RUNNING
    suspended: bool = False
    location: SourceLocation = field(default=mq.NO_SCRIPT, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInstance:
    """An instance of a cluster queue, or of a cluster queue manager alias, with its route."""

    name: str
    route: ClusterRoute
    """The manager that has it, and the channel to it."""
    keyword: str = mq.LocalQueue.keyword
    """Kind of the definition there: QLOCAL, QALIAS or QREMOTE."""
    is_queue_manager_alias: bool = False
    """Whether it is a QREMOTE without RNAME."""
    put_enabled: bool = True
    rank: int = 0
    priority: int = 0
    default_bind: mq.DefaultBind = mq.DefaultBind.OPEN
    default_persistence: bool = False
    default_priority: int = 0
    location: SourceLocation = field(default=mq.NO_SCRIPT, compare=False)

    def __str__(self) -> str:
        return f"{self.keyword}({self.name}) at {self.route.queue_manager}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSharingGroup:
    """A queue-sharing group of z/OS queue managers."""

    name: str
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueManager:
    """The definitions of one queue manager."""

    attributes: mq.QueueManagerAttributes
    queues: Mapping[str, mq.Queue] = field(default_factory=dict)
    """Queues of all kinds by name, private ones only."""
    channels: Mapping[str, mq.Channel] = field(default_factory=dict)
    client_channels: Mapping[str, mq.ClientChannel] = field(default_factory=dict)
    topics: Mapping[str, mq.Topic] = field(default_factory=dict)
    namelists: Mapping[str, mq.Namelist] = field(default_factory=dict)
    shared_queues: Mapping[str, mq.LocalQueue] = field(default_factory=dict)
    queue_sharing_group: QueueSharingGroup | None = None
    suspended_clusters: frozenset[str] = frozenset()
    known_instances: tuple[ClusterInstance, ...] = ()
    """Cluster queues that its repository knows besides those of the topology."""
    known_routes: tuple[ClusterRoute, ...] = ()
    """Cluster queue managers that its repository knows besides those of the topology."""

    @property
    def name(self) -> str:
        """Name of the queue manager."""
        return self.attributes.name

    @property
    def every_queue(self) -> Mapping[str, mq.Queue]:
        """Private and shared queues by name; a private one hides a shared one of its name."""
        return {**self.queues, **self.shared_queues, **self.queues}

    def queue(self, name: str) -> mq.Queue | None:
        """The queue of any kind with this name: private, shared, or created with the manager."""
        queue = self.queues.get(name) or self.shared_queues.get(name) or SYSTEM_QUEUES.get(name)
        if queue is None and name == mq.SHARED_TRANSMISSION_QUEUE and self.queue_sharing_group:
            return mq.LocalQueue(name=name, is_transmission_queue=True)
        return queue

    def topic(self, name: str) -> mq.Definition | None:
        """The topic object with this name: defined, or created with the manager."""
        return self.topics.get(name) or SYSTEM_OBJECTS[mq.Topic].get(name)

    def holder_of(self, queue: str) -> str:
        """The owner of a local queue: the manager itself, or its queue-sharing group.

        All members of a group have one topic for a shared queue. A shared transmission queue counts
        as each member's own, and a private queue takes precedence over a shared one of its name.
        """
        definition = self.queue(queue)
        if self.queue_sharing_group is None or definition is not self.shared_queues.get(queue):
            return self.name
        is_own = definition is None or definition.is_transmission_queue
        return self.name if is_own else self.queue_sharing_group.name

    @property
    def dead_letter_queue_problem(self) -> str:
        """Why DEADQ cannot be used; empty if it is a local queue with USAGE(NORMAL)."""
        name = self.attributes.dead_letter_queue
        if not name:
            return f"{self.name} has no DEADQ"
        queue = self.queue(name)
        if queue is None:
            return f"DEADQ of {self.name} names {name}, which does not exist"
        if not isinstance(queue, mq.LocalQueue) or queue.is_transmission_queue:
            return f"DEADQ of {self.name} names {queue}, which is not a QLOCAL with USAGE(NORMAL)"
        return ""

    @property
    def default_transmission_queue_problem(self) -> tuple[Reason, str]:
        """The code of puts that need DEFXMITQ, and why it cannot be used; empty if it can."""
        name = self.attributes.default_transmission_queue
        queue, what = self.queue(name), f"DEFXMITQ of {self.name} names"
        if queue is None:
            return Reason.UNKNOWN_DEF_XMIT_Q, f"{what} {name}, which does not exist"
        if not isinstance(queue, mq.LocalQueue):
            return Reason.DEF_XMIT_Q_TYPE_ERROR, f"{what} {queue}, which is not a QLOCAL"
        if queue.serves_clusters:
            return Reason.DEF_XMIT_Q_USAGE_ERROR, f"{what} {name}, which is the clusters' own"
        if not queue.is_transmission_queue:
            return Reason.DEF_XMIT_Q_USAGE_ERROR, f"{what} {queue}, which has USAGE(NORMAL)"
        return Reason.NONE, ""

    def clusters_of(self, cluster: str, namelist: str) -> tuple[str, ...]:
        """The clusters that a CLUSTER and a CLUSNL attribute name."""
        if cluster or not namelist:
            return (cluster,) if cluster else ()
        listed = self.namelists.get(namelist)
        return listed.names if listed else ()


# The objects that every new queue manager has: what ``crtmqm`` creates besides the QMGR object.
# They exist for ALTER, DELETE and LIKE without a DEFINE; some have the defaults of DEFINE. The list
# is that of "System and default objects" in the product's reference (q081590).

_LOCAL_QUEUES = """
SYSTEM.ADMIN.ACCOUNTING.QUEUE SYSTEM.ADMIN.ACTIVITY.QUEUE SYSTEM.ADMIN.CHANNEL.EVENT
SYSTEM.ADMIN.COMMAND.EVENT SYSTEM.ADMIN.COMMAND.QUEUE SYSTEM.ADMIN.CONFIG.EVENT
SYSTEM.ADMIN.LOGGER.EVENT SYSTEM.ADMIN.PERFM.EVENT SYSTEM.ADMIN.PUBSUB.EVENT
SYSTEM.ADMIN.QMGR.EVENT SYSTEM.ADMIN.STATISTICS.QUEUE SYSTEM.ADMIN.TRACE.ACTIVITY.QUEUE
SYSTEM.ADMIN.TRACE.ROUTE.QUEUE SYSTEM.AMQP.COMMAND.QUEUE SYSTEM.AUTH.DATA.QUEUE
SYSTEM.BROKER.ADMIN.STREAM SYSTEM.BROKER.CONTROL.QUEUE SYSTEM.BROKER.DEFAULT.STREAM
SYSTEM.BROKER.INTER.BROKER.COMMUNICATIONS SYSTEM.CHANNEL.INITQ SYSTEM.CHANNEL.SYNCQ
SYSTEM.CHLAUTH.DATA.QUEUE SYSTEM.CICS.INITIATION.QUEUE SYSTEM.CLUSTER.COMMAND.QUEUE
SYSTEM.CLUSTER.HISTORY.QUEUE SYSTEM.CLUSTER.REPOSITORY.QUEUE SYSTEM.DDELAY.LOCAL.QUEUE
SYSTEM.DEAD.LETTER.QUEUE SYSTEM.DEFAULT.INITIATION.QUEUE SYSTEM.DEFAULT.LOCAL.QUEUE
SYSTEM.DOTNET.XARECOVERY.QUEUE SYSTEM.DURABLE.SUBSCRIBER.QUEUE SYSTEM.HIERARCHY.STATE
SYSTEM.INTER.QMGR.CONTROL SYSTEM.INTER.QMGR.FANREQ SYSTEM.INTER.QMGR.PUBS
SYSTEM.INTERNAL.REPLY.QUEUE SYSTEM.PENDING.DATA.QUEUE SYSTEM.PROTECTION.ERROR.QUEUE
SYSTEM.PROTECTION.POLICY.QUEUE SYSTEM.REST.REPLY.QUEUE SYSTEM.RETAINED.PUB.QUEUE
SYSTEM.SELECTION.EVALUATION.QUEUE SYSTEM.SELECTION.VALIDATION.QUEUE
"""
_TEMPORARY = """
SYSTEM.DEFAULT.MODEL.QUEUE SYSTEM.JMS.TEMPQ.MODEL SYSTEM.MQEXPLORER.REPLY.MODEL
SYSTEM.MQSC.REPLY.QUEUE SYSTEM.NDURABLE.MODEL.QUEUE
"""
_PERMANENT = ("SYSTEM.CLUSTER.TRANSMIT.MODEL.QUEUE", "SYSTEM.DURABLE.MODEL.QUEUE")
_TOPICS = """
SYSTEM.ADMIN.TOPIC SYSTEM.BASE.TOPIC SYSTEM.BROKER.ADMIN.STREAM SYSTEM.BROKER.DEFAULT.STREAM
SYSTEM.BROKER.DEFAULT.SUBPOINT SYSTEM.DEFAULT.TOPIC
"""
_NAMELISTS = {
    "SYSTEM.DEFAULT.NAMELIST": (),
    "SYSTEM.QPUBSUB.QUEUE.NAMELIST": ("SYSTEM.BROKER.DEFAULT.STREAM", "SYSTEM.BROKER.ADMIN.STREAM"),
    "SYSTEM.QPUBSUB.SUBPOINT.NAMELIST": ("SYSTEM.BROKER.DEFAULT.SUBPOINT",),
}

DEFAULT_QUEUES: Mapping[type[mq.Definition], str] = {
    mq.LocalQueue: "SYSTEM.DEFAULT.LOCAL.QUEUE",
    mq.ModelQueue: "SYSTEM.DEFAULT.MODEL.QUEUE",
    mq.AliasQueue: "SYSTEM.DEFAULT.ALIAS.QUEUE",
    mq.RemoteQueue: "SYSTEM.DEFAULT.REMOTE.QUEUE",
}
"""The object whose attributes DEFINE copies, by kind of queue."""

DEFAULT_CHANNELS: Mapping[str, mq.ChannelType] = {
    "SYSTEM.DEF.SENDER": mq.ChannelType.SDR,
    "SYSTEM.DEF.SERVER": mq.ChannelType.SVR,
    "SYSTEM.DEF.RECEIVER": mq.ChannelType.RCVR,
    "SYSTEM.DEF.REQUESTER": mq.ChannelType.RQSTR,
    "SYSTEM.DEF.CLUSSDR": mq.ChannelType.CLUSSDR,
    "SYSTEM.DEF.CLUSRCVR": mq.ChannelType.CLUSRCVR,
    "SYSTEM.DEF.SVRCONN": mq.ChannelType.SVRCONN,
    "SYSTEM.DEF.CLNTCONN": mq.ChannelType.CLNTCONN,
    "SYSTEM.DEF.AMQP": mq.ChannelType.AMQP,
}
"""The channel whose attributes DEFINE copies, and its type."""

_CHANNELS = {
    **DEFAULT_CHANNELS,
    "SYSTEM.AUTO.RECEIVER": mq.ChannelType.RCVR,
    "SYSTEM.AUTO.SVRCONN": mq.ChannelType.SVRCONN,
}


def _queues() -> Iterator[mq.Queue]:
    for name in _LOCAL_QUEUES.split():
        depth = mq.MOST if name == "SYSTEM.DEAD.LETTER.QUEUE" else 5000
        yield mq.LocalQueue(name=name, location=mq.BUILT_IN, max_depth=depth)
    for name in _TEMPORARY.split():
        yield mq.ModelQueue(name=name, location=mq.BUILT_IN)
    for name in _PERMANENT:
        yield mq.ModelQueue(name=name, location=mq.BUILT_IN, dynamic_type="PERMDYN")
    yield mq.AliasQueue(name=DEFAULT_QUEUES[mq.AliasQueue], location=mq.BUILT_IN)
    yield mq.RemoteQueue(name=DEFAULT_QUEUES[mq.RemoteQueue], location=mq.BUILT_IN)
    yield mq.LocalQueue(
        name=mq.CLUSTER_TRANSMISSION_QUEUE,
        location=mq.BUILT_IN,
        is_transmission_queue=True,
        max_depth=mq.MOST,
        default_persistence=True,
    )


SYSTEM_QUEUES: Mapping[str, mq.Queue] = {queue.name: queue for queue in _queues()}
"""Queues that exist on every queue manager without a DEFINE."""

SYSTEM_OBJECTS: Mapping[type[mq.Definition], Mapping[str, mq.Definition]] = {
    mq.Channel: {
        name: mq.Channel(name=name, channel_type=kind, location=mq.BUILT_IN)
        for name, kind in _CHANNELS.items()
        if kind is not mq.ChannelType.CLNTCONN
    },
    mq.ClientChannel: {
        name: mq.ClientChannel(name=name, channel_type=kind, location=mq.BUILT_IN)
        for name, kind in _CHANNELS.items()
        if kind is mq.ChannelType.CLNTCONN
    },
    mq.Topic: {name: mq.Topic(name=name, location=mq.BUILT_IN) for name in _TOPICS.split()},
    mq.Namelist: {
        name: mq.Namelist(name=name, names=names, location=mq.BUILT_IN)
        for name, names in _NAMELISTS.items()
    },
}

SYSTEM_NAMES = frozenset(
    {*SYSTEM_QUEUES, *(name for objects in SYSTEM_OBJECTS.values() for name in objects)}
)
"""Names of everything that exists without a DEFINE."""

"""The objects that every new queue manager has: what ``crtmqm`` creates besides the QMGR object.

They exist for ALTER, DELETE and LIKE without a DEFINE; some have the defaults of DEFINE. The list
is that of "System and default objects" in the product's reference (q081590), queues, models,
channels, topics and namelists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from redrive.topology.mq import objects as mq

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

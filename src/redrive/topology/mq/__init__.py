"""IBM MQ: queue managers defined by MQSC, name resolution, and routes over several managers.

``read_mqsc`` reads scripts, ``Network`` connects queue managers, ``open_queue`` and
``put_message`` resolve names at one of them, ``follow_route`` follows a message over all of them.
docs/resolution.md tells the procedure with examples.
"""

from redrive.topology.mq.checks import check_topology
from redrive.topology.mq.network import Link, Network
from redrive.topology.mq.objects import (
    AliasQueue,
    LocalQueue,
    ModelQueue,
    Queue,
    QueueManagerAttributes,
    RemoteQueue,
    Usage,
    UseQueue,
)
from redrive.topology.mq.printer import print_mqsc
from redrive.topology.mq.puts import put_message
from redrive.topology.mq.queue_manager import (
    ChannelState,
    ClusterInstance,
    ClusterRoute,
    QueueManager,
    QueueSharingGroup,
)
from redrive.topology.mq.reader import read_mqsc
from redrive.topology.mq.resolution import open_queue
from redrive.topology.mq.resolver import MqResolver
from redrive.topology.mq.results import (
    Bind,
    Call,
    OpenOption,
    OpenRequest,
    Persistence,
    PutMessage,
    PutResult,
    Resolution,
    Target,
)
from redrive.topology.mq.routes import End, Route, follow_route
from redrive.topology.names import Names

__all__ = [
    "AliasQueue",
    "Bind",
    "Call",
    "ChannelState",
    "ClusterInstance",
    "ClusterRoute",
    "End",
    "Link",
    "LocalQueue",
    "ModelQueue",
    "MqResolver",
    "Names",
    "Network",
    "OpenOption",
    "OpenRequest",
    "Persistence",
    "PutMessage",
    "PutResult",
    "Queue",
    "QueueManager",
    "QueueManagerAttributes",
    "QueueSharingGroup",
    "RemoteQueue",
    "Resolution",
    "Route",
    "Target",
    "Usage",
    "UseQueue",
    "check_topology",
    "follow_route",
    "open_queue",
    "print_mqsc",
    "put_message",
    "read_mqsc",
]

"""IBM MQ: queue managers defined by MQSC, name resolution, and routes over several managers.

``read_mqsc`` reads scripts, ``Network`` connects queue managers, ``open_queue`` and
``put_message`` resolve names at one of them, ``follow_route`` follows a message over all of them.
docs/resolution.md tells the procedure with examples.
"""

from redrive.topology.mq.checks import check_topology
from redrive.topology.mq.encoding import decode_script
from redrive.topology.mq.network import Link, Network
from redrive.topology.mq.objects import (
    AliasQueue,
    Channel,
    ChannelType,
    DefaultBind,
    Definition,
    DynamicType,
    LocalQueue,
    ModelQueue,
    Namelist,
    Queue,
    QueueManagerAttributes,
    RemoteQueue,
    TargetType,
    Topic,
    Usage,
    UseQueue,
)
from redrive.topology.mq.printer import print_mqsc
from redrive.topology.mq.puts import put_message, reply_to_names
from redrive.topology.mq.queue_manager import (
    ChannelState,
    ClusterInstance,
    ClusterRoute,
    QueueManager,
    QueueSharingGroup,
)
from redrive.topology.mq.reader import MqscResult, read_mqsc
from redrive.topology.mq.resolution import open_queue
from redrive.topology.mq.resolver import (
    NEXT_QUEUE_MANAGER_HEADER,
    QUEUE_HEADER,
    QUEUE_MANAGER_HEADER,
    MqResolver,
)
from redrive.topology.mq.results import (
    Bind,
    Call,
    OpenOption,
    OpenRequest,
    Persistence,
    PutMessage,
    PutResult,
    Resolution,
    Step,
    Target,
)
from redrive.topology.mq.routes import End, Hop, Route, RoutedMessage, follow_route
from redrive.topology.names import Names

__all__ = [
    "NEXT_QUEUE_MANAGER_HEADER",
    "QUEUE_HEADER",
    "QUEUE_MANAGER_HEADER",
    "AliasQueue",
    "Bind",
    "Call",
    "Channel",
    "ChannelState",
    "ChannelType",
    "ClusterInstance",
    "ClusterRoute",
    "DefaultBind",
    "Definition",
    "DynamicType",
    "End",
    "Hop",
    "Link",
    "LocalQueue",
    "ModelQueue",
    "MqResolver",
    "MqscResult",
    "Namelist",
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
    "RoutedMessage",
    "Step",
    "Target",
    "TargetType",
    "Topic",
    "Usage",
    "UseQueue",
    "check_topology",
    "decode_script",
    "follow_route",
    "open_queue",
    "print_mqsc",
    "put_message",
    "read_mqsc",
    "reply_to_names",
]

"""The objects of IBM MQ queue managers, as far as name resolution and puts use them.

Every class carries its product defaults (resolution specification C.2) as the defaults of its
fields, so ``LocalQueue(name="Q")`` is what ``DEFINE QLOCAL(Q)`` gives on a fresh queue manager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from redrive.diagnostics import SourceLocation

MAX_NAME_LENGTH = 48
"""Longest name of a queue, queue manager, cluster, namelist or topic object."""
MAX_CHANNEL_NAME_LENGTH = 20
"""Longest name of a channel."""
CLUSTER_TRANSMISSION_QUEUE = "SYSTEM.CLUSTER.TRANSMIT.QUEUE"
"""The transmission queue of clusters unless others are configured."""
SHARED_TRANSMISSION_QUEUE = "SYSTEM.QSG.TRANSMIT.QUEUE"
"""The transmission queue of intra-group queuing."""
DEFAULT_MAX_MESSAGE_LENGTH = 4_194_304
"""MAXMSGL of queues and queue managers unless defined otherwise, in bytes."""


BUILT_IN = SourceLocation("(created with the queue manager)")
"""Location of the product's own objects."""
NO_SCRIPT = SourceLocation("(not from a script)")
"""Location of objects made by a program."""


class Usage(StrEnum):
    """USAGE of a local queue."""

    NORMAL = "NORMAL"
    XMITQ = "XMITQ"


class TargetType(StrEnum):
    """TARGTYPE of an alias."""

    QUEUE = "QUEUE"
    TOPIC = "TOPIC"


class DefaultBind(StrEnum):
    """DEFBIND: when an instance of a cluster queue is chosen unless the application says."""

    OPEN = "OPEN"
    NOTFIXED = "NOTFIXED"
    GROUP = "GROUP"


class UseQueue(StrEnum):
    """CLWLUSEQ: whether a local instance of a cluster queue is preferred."""

    ANY = "ANY"
    LOCAL = "LOCAL"
    QMGR = "QMGR"


class DeliverySequence(StrEnum):
    """MSGDLVSQ: the order in which messages leave a queue."""

    PRIORITY = "PRIORITY"
    """By priority, the highest first; those of one priority as they arrived."""
    FIFO = "FIFO"
    """As they arrived."""


class StreamQuality(StrEnum):
    """STRMQOS: what becomes of a message whose copy cannot be put on STREAMQ."""

    BEST_EFFORT = "BESTEF"
    """It is put all the same."""
    MUST_DUPLICATE = "MUSTDUP"
    """Its put fails too."""


class DynamicType(StrEnum):
    """DEFTYPE of a model queue."""

    TEMPDYN = "TEMPDYN"
    PERMDYN = "PERMDYN"
    SHAREDYN = "SHAREDYN"


class Disposition(StrEnum):
    """QSGDISP: where the definition is kept on z/OS."""

    QMGR = "QMGR"
    COPY = "COPY"
    GROUP = "GROUP"
    SHARED = "SHARED"


class SharedQueueManagerName(StrEnum):
    """SQQMNAME: what an explicit manager of the own queue-sharing group means."""

    DEFAULT = ""
    """Not given: row R11 of the resolution table holds."""
    USE = "USE"
    IGNORE = "IGNORE"


class DefaultClusterQueue(StrEnum):
    """DEFCLXQ: one cluster transmission queue, or one per cluster-sender channel."""

    SCTQ = "SCTQ"
    CHANNEL = "CHANNEL"


class ChannelType(StrEnum):
    """CHLTYPE of a channel."""

    SDR = "SDR"
    SVR = "SVR"
    RCVR = "RCVR"
    RQSTR = "RQSTR"
    CLUSSDR = "CLUSSDR"
    CLUSRCVR = "CLUSRCVR"
    SVRCONN = "SVRCONN"
    CLNTCONN = "CLNTCONN"
    AMQP = "AMQP"
    MQTT = "MQTT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What every object has."""

    keyword: ClassVar[str] = ""
    """Object type as MQSC writes it."""

    name: str
    """Name of the object, without padding."""
    location: SourceLocation = field(default=NO_SCRIPT, compare=False)
    """Where it was defined."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Attributes that resolution does not use: keyword to source text, parentheses included."""

    def __str__(self) -> str:
        """The object as MQSC names it, such as ``QLOCAL(ORDERS)``."""
        return f"{self.keyword}({self.name})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue(Definition):
    """What queues of all kinds have. All kinds share one name space per manager."""

    put_enabled: bool = True
    """PUT."""
    default_persistence: bool = False
    """DEFPSIST: persistence of messages that leave it to the queue."""
    default_priority: int = 0
    """DEFPRTY, 0 to 9."""
    default_bind: DefaultBind = DefaultBind.OPEN
    """DEFBIND."""
    cluster: str = ""
    """CLUSTER in which the queue is known."""
    cluster_namelist: str = ""
    """CLUSNL: namelist of the clusters in which the queue is known."""
    cluster_rank: int = 0
    """CLWLRANK, 0 to 9."""
    cluster_priority: int = 0
    """CLWLPRTY, 0 to 9."""
    cap_expiry: int | None = None
    """CAPEXPRY: the longest Expiry of messages put by this name, in tenths of a second."""

    @property
    def is_clustered(self) -> bool:
        """Whether the queue has CLUSTER or CLUSNL."""
        return bool(self.cluster or self.cluster_namelist)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueue(Queue):
    """QLOCAL: holds messages; with USAGE(XMITQ) those for other queue managers."""

    keyword: ClassVar[str] = "QLOCAL"

    usage: Usage = Usage.NORMAL
    """USAGE."""
    get_enabled: bool = True
    """GET."""
    max_depth: int = 5000
    """MAXDEPTH, in messages."""
    max_message_length: int = DEFAULT_MAX_MESSAGE_LENGTH
    """MAXMSGL, in bytes."""
    delivery_sequence: DeliverySequence = DeliverySequence.PRIORITY
    """MSGDLVSQ."""
    stream_queue: str = ""
    """STREAMQ: the queue that gets a copy of each message; empty for none."""
    stream_quality: StreamQuality = StreamQuality.BEST_EFFORT
    """STRMQOS."""
    cluster_use: UseQueue = UseQueue.QMGR
    """CLWLUSEQ."""
    cluster_channels: str = ""
    """CLCHNAME: cluster-sender channels that use this transmission queue; may hold ``*``."""
    disposition: Disposition = Disposition.QMGR
    """QSGDISP; SHARED makes the queue one of the whole queue-sharing group."""

    @property
    def by_priority(self) -> bool:
        """Whether messages leave by priority."""
        return self.delivery_sequence is DeliverySequence.PRIORITY


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelQueue(Queue):
    """QMODEL: a template from which MQOPEN makes a dynamic local queue."""

    keyword: ClassVar[str] = "QMODEL"

    dynamic_type: DynamicType = DynamicType.TEMPDYN
    """DEFTYPE."""
    get_enabled: bool = True
    """GET."""
    max_depth: int = 5000
    """MAXDEPTH, in messages."""
    max_message_length: int = DEFAULT_MAX_MESSAGE_LENGTH
    """MAXMSGL, in bytes."""
    delivery_sequence: DeliverySequence = DeliverySequence.PRIORITY
    """MSGDLVSQ."""
    stream_queue: str = ""
    """STREAMQ: the queue that gets a copy of each message; empty for none."""
    stream_quality: StreamQuality = StreamQuality.BEST_EFFORT
    """STRMQOS."""
    disposition: Disposition = Disposition.QMGR
    """QSGDISP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AliasQueue(Queue):
    """QALIAS: another name for a queue or a topic object."""

    keyword: ClassVar[str] = "QALIAS"

    target: str = ""
    """TARGET: the base name."""
    target_type: TargetType = TargetType.QUEUE
    """TARGTYPE."""
    get_enabled: bool = True
    """GET."""
    disposition: Disposition = Disposition.QMGR
    """QSGDISP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteQueue(Queue):
    """QREMOTE: a queue elsewhere, a queue manager alias (no RNAME), or a reply-to alias."""

    keyword: ClassVar[str] = "QREMOTE"

    remote_queue: str = ""
    """RNAME."""
    remote_queue_manager: str = ""
    """RQMNAME."""
    transmission_queue: str = ""
    """XMITQ."""
    disposition: Disposition = Disposition.QMGR
    """QSGDISP."""

    @property
    def is_queue_manager_alias(self) -> bool:
        """Whether RNAME is blank."""
        return not self.remote_queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic(Definition):
    """TOPIC: a topic object, which an alias may target."""

    keyword: ClassVar[str] = "TOPIC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Namelist(Definition):
    """NAMELIST: a list of names, here of clusters."""

    keyword: ClassVar[str] = "NAMELIST"

    names: tuple[str, ...] = ()
    """NAMES, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel(Definition):
    """CHANNEL: the way from a transmission queue to another queue manager."""

    keyword: ClassVar[str] = "CHANNEL"

    channel_type: ChannelType
    """CHLTYPE."""
    connection: str = ""
    """CONNAME."""
    transmission_queue: str = ""
    """XMITQ of a sender or server."""
    cluster: str = ""
    """CLUSTER."""
    cluster_namelist: str = ""
    """CLUSNL."""
    cluster_rank: int = 0
    """CLWLRANK, 0 to 9."""
    cluster_priority: int = 0
    """CLWLPRTY, 0 to 9."""
    cluster_weight: int = 50
    """CLWLWGHT, 1 to 99."""
    network_priority: int = 0
    """NETPRTY, 0 to 9."""
    fast_nonpersistent: bool = True
    """NPMSPEED(FAST): messages that are not persistent may be lost when the channel stops."""
    use_dead_letter_queue: bool = True
    """USEDLQ."""
    message_retries: int = 10
    """MRRTY: how often a receiver tries a failing put again."""
    message_retry_interval: int = 1000
    """MRTMR: milliseconds between these attempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueManagerAttributes(Definition):
    """QMGR: attributes of the queue manager itself."""

    keyword: ClassVar[str] = "QMGR"

    dead_letter_queue: str = ""
    """DEADQ."""
    default_transmission_queue: str = ""
    """DEFXMITQ."""
    default_cluster_queue: DefaultClusterQueue = DefaultClusterQueue.SCTQ
    """DEFCLXQ."""
    max_message_length: int = DEFAULT_MAX_MESSAGE_LENGTH
    """MAXMSGL, in bytes."""
    cluster_use: UseQueue = UseQueue.LOCAL
    """CLWLUSEQ."""
    cluster_channels_used: int = 999_999_999
    """CLWLMRUC: most cluster channels that are in use at a time."""
    intra_group_queuing: bool = False
    """IGQ."""
    shared_queue_manager_name: SharedQueueManagerName = SharedQueueManagerName.DEFAULT
    """SQQMNAME."""
    repository_cluster: str = ""
    """REPOS."""
    repository_namelist: str = ""
    """REPOSNL."""

"""What a put depends on besides definitions, and the result; the symbols of failures are ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from redrive.topology.mqe.objects import (
    AliasConnection,
    BridgeQueue,
    HomeServerQueue,
    MqeConnection,
    MqeDefinition,
    MqeQueue,
    MqeRemoteQueue,
    QueueManagerAlias,
    StoreAndForwardQueue,
    ViaConnection,
)
from redrive.topology.names import Names
from redrive.topology.put import Discovered


@dataclass(frozen=True, slots=True)
class ExpireAfter:
    """An ``ExpireTime`` of type int: relative to the creation of the message."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class ExpireAt:
    """An ``ExpireTime`` of type long: an absolute time."""

    time: int
    """Milliseconds since 1970-01-01 UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PutMessage:
    """The fields of a message that affect a put."""

    length: int = 0
    """Bytes."""
    identity: str = ""
    """Origin manager and time, which identify a message; if empty it is never a duplicate."""
    resend: bool = False
    created: int = 0
    """Time of creation in milliseconds since 1970-01-01 UTC."""
    expire_time: ExpireAfter | ExpireAt | None = None
    """The message's own expiry; it overrides the queue's."""
    lock_id: str = ""
    """The lock of an application that browsed it; a locked message does not move."""
    is_confirmed: bool = True
    """Whether its put is complete; until then it does not move."""

    @property
    def is_movable(self) -> bool:
        """Whether it may be transmitted, pushed or pulled."""
        return self.is_confirmed and not self.lock_id


def deadline(message: PutMessage, queue_expiry: int | None) -> int | None:
    """When a message on a queue expires, in milliseconds since 1970; None for never.

    The queue's expiry (milliseconds) counts from the message's creation, like the field that
    overrides it; the product does not document it (docs/resolution-mqe.md, reading O9).
    """
    match message.expire_time:
        case ExpireAt(time):
            return time
        case ExpireAfter(milliseconds):
            return message.created + milliseconds
    return None if queue_expiry is None else message.created + queue_expiry


def is_expired(message: PutMessage, queue_expiry: int | None, now: int) -> bool:
    """Whether a message has passed its deadline; at the deadline it is still available."""
    end = deadline(message, queue_expiry)
    return end is not None and now > end


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The state of the network at the time of a put."""

    down: Collection[tuple[str, str]] = frozenset()
    """Links that cannot be used: the calling manager, the name of its connection."""
    depths: Mapping[tuple[str, Names], int] = field(default_factory=dict)
    """Messages on queues, by the manager and the identity of the queue; others are empty."""
    received: Collection[tuple[str, str]] = frozenset()
    """Messages already put: the manager and the identity of the message."""
    now: int | None = None
    """Milliseconds since 1970-01-01 UTC; None: nothing expires."""


NORMAL = Conditions()
"""Every link up, every queue empty, no message seen before, no clock."""


class PutFailure(StrEnum):
    """The error; the value is the short text for users."""

    NO_QUEUE_ACCEPTS = "fail: no queue accepts"
    UNKNOWN_QUEUE_MANAGER = "unknown queue manager"
    NO_CONNECTION = "no connection"
    LINK_DOWN = "link down"
    """The connection is defined, but the next manager cannot be reached."""
    ALIAS_LOOP = "config: alias loop"
    VIA_LOOP = "config: via loop"
    ROUTE_LOOP = "config: route loop"
    """The message returned, with the same names, to a manager it had left."""
    MESSAGE_TOO_BIG = "message too big"
    QUEUE_FULL = "queue full"
    DUPLICATE = "duplicate message"
    """The manager already had this message, and it is not marked Resend."""

    @property
    def advice(self) -> str:
        """What to do about it."""
        return _ADVICE[self]


_ADVICE: dict[PutFailure, str] = {
    PutFailure.NO_QUEUE_ACCEPTS: "define the queue, a remote queue definition for it, or a "
    "store-and-forward queue that lists its queue manager",
    PutFailure.UNKNOWN_QUEUE_MANAGER: "add the queue manager to the network, or correct the name "
    "of the connection",
    PutFailure.NO_CONNECTION: "define a connection named after the queue manager",
    PutFailure.LINK_DOWN: "start the connection, or use an asynchronous remote queue definition",
    PutFailure.ALIAS_LOOP: "make one of the aliases name a real queue manager",
    PutFailure.VIA_LOOP: "make the last via connection name a direct one",
    PutFailure.ROUTE_LOOP: "on one of the managers of the loop, define the queue or a connection "
    "that leaves the loop",
    PutFailure.MESSAGE_TOO_BIG: "raise the queue's maximum message size",
    PutFailure.QUEUE_FULL: "get messages from the queue, or raise its maximum number of messages",
    PutFailure.DUPLICATE: "set Resend on the message to put it again",
}


class StepKind(StrEnum):
    """Which rule of the procedure a step applied."""

    QUEUE_MANAGER_ALIAS = "qm-alias"
    EXACT = "exact"
    QUEUE_ALIAS = "queue-alias"
    STORE_AND_FORWARD = "s&f"
    DISCOVERY = "discovery"
    CONNECTION = "conn"
    PULL = "pull"


@dataclass(frozen=True, slots=True)
class MqeStep:
    """One step of a resolution; as text, such as ``LocalQM exact LQ Q``."""

    queue_manager: str
    kind: StepKind
    definition: MqeDefinition
    before: Names
    after: Names

    def __str__(self) -> str:
        return f"{self.queue_manager} {self.kind} {self._subject()}"

    def _subject(self) -> str:
        match self.kind:
            case StepKind.QUEUE_MANAGER_ALIAS:
                return f"{self.before.queue_manager}->{self.after.queue_manager}"
            case StepKind.STORE_AND_FORWARD:
                return f"{self.definition.name} (stores {self.after})"
            case StepKind.DISCOVERY:
                return f"creates {describe(self.definition)}"
        return describe(self.definition)


def describe(definition: MqeDefinition) -> str:
    """A definition in a few words, such as ``RQD Q@QM2 sync`` or ``QM2 via Hub``."""
    match definition:
        case MqeQueue():
            return _describe_queue(definition)
        case ViaConnection():
            return f"{definition.name} via {definition.via}"
        case AliasConnection() | QueueManagerAlias():
            return f"{definition.name} alias {definition.of}"
        case MqeConnection():
            return f"{definition.name} direct"
    return definition.name


def _describe_queue(queue: MqeQueue) -> str:
    match queue:
        case MqeRemoteQueue():
            return f"RQD {queue.name}@{queue.queue_manager} {queue.mode}"
        case BridgeQueue():
            return f"BRIDGE {queue.name}@{queue.queue_manager}"
        case HomeServerQueue():
            return f"from {queue.queue_manager}"
        case StoreAndForwardQueue():
            return f"SAF {queue.name}"
    return f"LQ {queue.name}"


@dataclass(frozen=True, slots=True)
class Delivered:
    """The message is on a queue where an application can get it."""

    names: Names
    queue: MqeQueue
    """Its definition: a local queue, or the bridge queue that leads to it."""
    dead_letter: bool = False
    """Whether it is there because its queue refused it."""

    def __str__(self) -> str:
        if self.dead_letter:
            return f"{self.names} (dead letter)"
        return f"{self.names} (over the bridge)" if self.over_bridge else str(self.names)

    @property
    def over_bridge(self) -> bool:
        """Whether the queue is one of IBM MQ's, reached over the MQ bridge."""
        return isinstance(self.queue, BridgeQueue)


@dataclass(frozen=True, slots=True)
class Stored:
    """The message is stored on a manager, to be passed on."""

    queue_manager: str
    queue: MqeRemoteQueue | StoreAndForwardQueue
    """The queue that keeps it: asynchronous, or store-and-forward."""
    names: Names
    refused: Failed | None = None
    """Why the last attempt to pass it on failed; None if there was none."""

    @property
    def to(self) -> str:
        """The manager for which the queue keeps it."""
        by_target = isinstance(self.queue, StoreAndForwardQueue)
        return self.names.queue_manager if by_target else self.queue.queue_manager

    def __str__(self) -> str:
        if isinstance(self.queue, MqeRemoteQueue):
            return f"RQD {self.queue.name}@{self.queue.queue_manager} on {self.queue_manager}"
        return f"SAF {self.queue.name} on {self.queue_manager}"


@dataclass(frozen=True, slots=True)
class Expired:
    """The message had expired when it was added to a queue or removed from it, and is gone."""

    queue_manager: str
    queue: MqeQueue

    def __str__(self) -> str:
        return f"expired on {self.queue.name} of {self.queue_manager}"


@dataclass(frozen=True, slots=True)
class Failed:
    """The put failed, and the application still has the message."""

    failure: PutFailure
    queue_manager: str
    detail: str
    stopped: tuple[str, str] | None = None
    """The connection that cannot be used, by its manager and name, if it is one."""

    def __str__(self) -> str:
        return str(self.failure)

    @property
    def advice(self) -> str:
        """What to do about it."""
        if self.stopped is None:
            return self.failure.advice
        restored = f"start the connection (redrive channel start {' '.join(self.stopped)})"
        if self.failure is PutFailure.LINK_DOWN:
            return f"{restored}, or use an asynchronous remote queue definition"
        return f"{restored}, or {self.failure.advice}"


End: TypeAlias = Delivered | Stored | Expired | Failed


@dataclass(frozen=True, slots=True)
class MqeResolution:
    """The path of one message so far."""

    steps: tuple[MqeStep, ...]
    end: End
    discovered: tuple[Discovered, ...] = ()
    """Definitions that were discovered, which are permanent: the caller keeps them."""
    accepted: bool = True
    """Whether the application's put succeeded, whatever happened to the message later."""

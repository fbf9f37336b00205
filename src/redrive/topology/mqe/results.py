"""What a put depends on besides definitions, and the result of its resolution.

The product's constants for failures are unknown, so the symbols are ours and have no numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from redrive.topology.mqe import objects as mqe
from redrive.topology.names import Names


@dataclass(frozen=True, slots=True)
class ExpireAfter:
    """An ``ExpireTime`` of type int: relative to the creation of the message."""

    milliseconds: int
    """Milliseconds after creation."""


@dataclass(frozen=True, slots=True)
class ExpireAt:
    """An ``ExpireTime`` of type long: an absolute time."""

    time: int
    """Milliseconds since 1970-01-01 UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
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


def deadline(message: Message, queue_expiry: int | None) -> int | None:
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


def is_expired(message: Message, queue_expiry: int | None, now: int) -> bool:
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


class Failure(StrEnum):
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


_ADVICE: dict[Failure, str] = {
    Failure.NO_QUEUE_ACCEPTS: "define the queue, a remote queue definition for it, or a "
    "store-and-forward queue that lists its queue manager",
    Failure.UNKNOWN_QUEUE_MANAGER: "add the queue manager to the network, or correct the name of "
    "the connection",
    Failure.NO_CONNECTION: "define a connection named after the queue manager",
    Failure.LINK_DOWN: "start the connection, or use an asynchronous remote queue definition",
    Failure.ALIAS_LOOP: "make one of the aliases name a real queue manager",
    Failure.VIA_LOOP: "make the last via connection name a direct one",
    Failure.ROUTE_LOOP: "on one of the managers of the loop, define the queue or a connection "
    "that leaves the loop",
    Failure.MESSAGE_TOO_BIG: "raise the queue's maximum message size",
    Failure.QUEUE_FULL: "get messages from the queue, or raise its maximum number of messages",
    Failure.DUPLICATE: "set Resend on the message to put it again",
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
class Step:
    """One step of a resolution; as text, such as ``LocalQM exact LQ Q``."""

    queue_manager: str
    kind: StepKind
    definition: mqe.Definition
    """The definition it used, with its location."""
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


def describe(definition: mqe.Definition) -> str:
    """A definition in a few words, such as ``RQD Q@QM2 sync`` or ``QM2 via Hub``."""
    match definition:
        case mqe.Queue():
            return _describe_queue(definition)
        case mqe.ViaConnection():
            return f"{definition.name} via {definition.via}"
        case mqe.AliasConnection() | mqe.QueueManagerAlias():
            return f"{definition.name} alias {definition.of}"
        case mqe.Connection():
            return f"{definition.name} direct"
    return definition.name


def _describe_queue(queue: mqe.Queue) -> str:
    match queue:
        case mqe.RemoteQueue():
            return f"RQD {queue.name}@{queue.queue_manager} {queue.mode}"
        case mqe.BridgeQueue():
            return f"BRIDGE {queue.name}@{queue.queue_manager}"
        case mqe.HomeServerQueue():
            return f"from {queue.queue_manager}"
        case mqe.StoreAndForwardQueue():
            return f"SAF {queue.name}"
    return f"LQ {queue.name}"


@dataclass(frozen=True, slots=True)
class Delivered:
    """The message is on a queue where an application can get it."""

    names: Names
    queue: mqe.Queue
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
        return isinstance(self.queue, mqe.BridgeQueue)


@dataclass(frozen=True, slots=True)
class Stored:
    """The message is stored on a manager, to be passed on."""

    queue_manager: str
    queue: mqe.RemoteQueue | mqe.StoreAndForwardQueue
    """The queue that keeps it: asynchronous, or store-and-forward."""
    names: Names
    """Its stored destination."""
    refused: Failed | None = None
    """Why the last attempt to pass it on failed; None if there was none."""

    @property
    def undeliverable(self) -> Failure | None:
        """The error of the last attempt to pass it on; None if there was none."""
        return self.refused.failure if self.refused else None

    @property
    def to(self) -> str:
        """The manager for which the queue keeps it."""
        by_target = isinstance(self.queue, mqe.StoreAndForwardQueue)
        return self.names.queue_manager if by_target else self.queue.queue_manager

    def __str__(self) -> str:
        if isinstance(self.queue, mqe.RemoteQueue):
            return f"RQD {self.queue.name}@{self.queue.queue_manager} on {self.queue_manager}"
        return f"SAF {self.queue.name} on {self.queue_manager}"


@dataclass(frozen=True, slots=True)
class Expired:
    """The message had expired when it was added to a queue or removed from it, and is gone."""

    queue_manager: str
    queue: mqe.Queue

    def __str__(self) -> str:
        return f"expired on {self.queue.name} of {self.queue_manager}"


@dataclass(frozen=True, slots=True)
class Failed:
    """The put failed, and the application still has the message."""

    failure: Failure
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
        if self.failure is Failure.LINK_DOWN:
            return f"{restored}, or use an asynchronous remote queue definition"
        return f"{restored}, or {self.failure.advice}"


End: TypeAlias = Delivered | Stored | Expired | Failed


@dataclass(frozen=True, slots=True)
class Resolution:
    """The path of one message so far."""

    steps: tuple[Step, ...]
    end: End
    discovered: tuple[mqe.Discovered, ...] = ()
    """Definitions that were discovered; the caller keeps them."""
    accepted: bool = True
    """Whether the application's put succeeded, whatever happened to the message later."""

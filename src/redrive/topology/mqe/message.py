"""What a put depends on besides definitions: the message, and the state of the network."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

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

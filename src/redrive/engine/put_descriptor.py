"""What a put reads from a message: the names that came with it, and descriptor fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from redrive.messages import MQMD
from redrive.messages.fields import read_long, read_text
from redrive.messages.reports import ReportOptions
from redrive.topology.mq.resolver import (
    BIND_HEADER,
    NEXT_QUEUE_MANAGER_HEADER,
    QUEUE_HEADER,
    QUEUE_MANAGER_HEADER,
)
from redrive.topology.names import Names

if TYPE_CHECKING:
    from redrive.messages import Headers, Records
    from redrive.topology.put import Destination

PERSISTENCE_AS_QUEUE_IS_DEFINED: Final = 2
"""MQPER_PERSISTENCE_AS_Q_DEF."""
PRIORITY_AS_QUEUE_IS_DEFINED: Final = -1
"""MQPRI_PRIORITY_AS_Q_DEF."""
_PRIORITY: Final = MQMD["Priority"].header
_GROUP_OF_JMS: Final = "JMSXGroupID"
_TENTH: Final = 100
"""Milliseconds of the unit of Expiry."""

NAMES: Final = frozenset(
    {QUEUE_MANAGER_HEADER, QUEUE_HEADER, NEXT_QUEUE_MANAGER_HEADER, BIND_HEADER}
)
"""Headers with the names of a put and of its open."""

READ: Final = (
    QUEUE_MANAGER_HEADER, QUEUE_HEADER, MQMD["Persistence"].header, MQMD["Expiry"].header,
    MQMD["Report"].header, MQMD["ReplyToQ"].header, MQMD["ReplyToQMgr"].header,
    _PRIORITY, BIND_HEADER, _GROUP_OF_JMS, MQMD["GroupId"].header,
)  # fmt: skip
"""The headers that a put reads, in the order of ``PutDescriptor.of``."""


@dataclass(frozen=True, slots=True)
class PutDescriptor:
    """What a put reads from a message."""

    names: Names
    """The names that came with the message."""
    persistence: int
    expiry: int
    report: ReportOptions
    reply_to: Names
    priority: int
    bind: str
    """Name of the open that the put belongs to; empty if not given."""
    group: str
    """The group of the message; empty if it has none."""

    @classmethod
    def of(cls, raw: Sequence[bytes | None]) -> PutDescriptor:
        """The fields from the values of the headers ``READ``."""
        queue_manager, queue, persistence, expiry, report, *rest = raw
        reply_to, reply_to_manager, priority, bind, group_of_jms, group_id = rest
        group = read_text(group_id)
        return cls(
            names=Names(queue=read_text(queue), queue_manager=read_text(queue_manager)),
            persistence=read_long(persistence),
            expiry=read_long(expiry),
            report=ReportOptions(read_long(report)),
            reply_to=Names(queue=read_text(reply_to), queue_manager=read_text(reply_to_manager)),
            priority=read_long(priority),
            bind=read_text(bind),
            group=read_text(group_of_jms) or (group if group.strip("0") else ""),  # MQGI_NONE
        )

    def settled(self, destination: Destination) -> int:
        """The persistence; the queue's if the message leaves it open."""
        left_open = self.persistence == PERSISTENCE_AS_QUEUE_IS_DEFINED
        return destination.persistence if left_open else self.persistence

    def is_late(self, created: int, now: int, destination: Destination | None) -> bool:
        """Whether the message has expired.

        Its own expiry overrides that of a queue of MQ Everyplace; CAPEXPRY bounds both.

        Args:
            created: Time of the put, in milliseconds since 1970.
            now: The present time, in milliseconds since 1970.
            destination: Where the message goes; None if nowhere.
        """
        allowed = [self.expiry * _TENTH] if self.expiry > 0 else []
        if destination is not None:
            if not allowed and destination.expiry is not None:
                allowed.append(destination.expiry)
            if destination.cap_expiry is not None:
                allowed.append(destination.cap_expiry * _TENTH)
        return bool(allowed) and now - created > min(allowed)


def by_priority(records: Records, rows: Iterable[int]) -> list[int]:
    """Rows in the order in which a queue with MSGDLVSQ(PRIORITY) delivers them.

    Args:
        records: The records.
        rows: Some of their rows, in the order of their arrival.

    Returns:
        The highest priority first; equal priorities in order of arrival.
    """
    grid = records.grid
    if grid is not None and _PRIORITY not in grid.layout:
        return list(rows)  # as with nearly all messages
    return sorted(rows, key=lambda row: -read_long(dict(records.headers[row]).get(_PRIORITY)))


def without_names(headers: Headers) -> Headers:
    """The headers without the names of the put, in their order."""
    return [pair for pair in headers if pair[0] not in NAMES]

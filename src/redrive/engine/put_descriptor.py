"""What a put reads from a message: its names, and descriptor fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from redrive.engine.message import Message
from redrive.messages import MQMD, Headers, Records
from redrive.messages.dead_letter_header import UTF8_LITTLE_ENDIAN
from redrive.messages.fields import (
    TENTH,
    deadline_of,
    is_default,
    mqmd_headers,
    parse_long,
    put_moment,
    read_long,
    read_text,
    unique_identifier,
    with_mqmd_headers,
)
from redrive.messages.reports import ReportOptions
from redrive.topology.mq.resolver import (
    BIND_HEADER,
    NEXT_QUEUE_MANAGER_HEADER,
    QUEUE_HEADER,
    QUEUE_MANAGER_HEADER,
)
from redrive.topology.names import Names
from redrive.topology.put import Destination

PERSISTENCE_AS_QUEUE_IS_DEFINED: Final = 2
"""MQPER_PERSISTENCE_AS_Q_DEF."""
PRIORITY_AS_QUEUE_IS_DEFINED: Final = -1
"""MQPRI_PRIORITY_AS_Q_DEF."""
PRIORITY: Final = MQMD["Priority"].header
_PERSISTENCE: Final = MQMD["Persistence"].header
LEFT_TO_QUEUE: Final = {
    _PERSISTENCE: str(PERSISTENCE_AS_QUEUE_IS_DEFINED).encode(),
    PRIORITY: str(PRIORITY_AS_QUEUE_IS_DEFINED).encode(),
}
"""Headers of fields that may use the queue's default, with the value that does."""
_GROUP_OF_JMS: Final = "JMSXGroupID"
_MSG_ID: Final = MQMD["MsgId"].header
_PUT_DATE: Final = MQMD["PutDate"].header
_NATIVE: Final = mqmd_headers(
    {"Encoding": UTF8_LITTLE_ENDIAN.encoding, "CodedCharSetId": UTF8_LITTLE_ENDIAN.ccsid}
)
"""The headers of what MQENC_NATIVE and MQCCSI_Q_MGR mean here (MQMD_DEFAULT)."""

NAMES: Final = frozenset(
    {QUEUE_MANAGER_HEADER, QUEUE_HEADER, NEXT_QUEUE_MANAGER_HEADER, BIND_HEADER}
)
"""Headers with the names of a put and of its open."""

READ: Final = (
    QUEUE_MANAGER_HEADER, QUEUE_HEADER, _PERSISTENCE, MQMD["Expiry"].header,
    MQMD["Report"].header, MQMD["ReplyToQ"].header, MQMD["ReplyToQMgr"].header,
    PRIORITY, BIND_HEADER, _GROUP_OF_JMS, MQMD["GroupId"].header,
)  # fmt: skip
"""The headers that a put reads, in the order of ``PutDescriptor.of``."""


@dataclass(frozen=True, slots=True)
class PutDescriptor:
    """What a put reads from a message."""

    names: Names
    """The names in the message."""
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
    def of(cls, raw: Sequence[bytes | None], *, is_new: bool = False) -> PutDescriptor:
        """The fields from the values of the headers ``READ``.

        Args:
            raw: The values, in that order.
            is_new: Whether an application puts the message. Then missing persistence and priority
                are the queue's, as with MQMD_DEFAULT; else they are 0, as a message already put
                has no defaults.
        """
        queue_manager, queue, persistence, expiry, report, *rest = raw
        reply_to, reply_to_manager, priority, bind, group_of_jms, group_id = rest
        group = read_text(group_id)
        return cls(
            names=Names(queue=read_text(queue), queue_manager=read_text(queue_manager)),
            persistence=_or_default(persistence, PERSISTENCE_AS_QUEUE_IS_DEFINED, is_new=is_new),
            expiry=read_long(expiry),
            report=ReportOptions(read_long(report)),
            reply_to=Names(queue=read_text(reply_to), queue_manager=read_text(reply_to_manager)),
            priority=_or_default(priority, PRIORITY_AS_QUEUE_IS_DEFINED, is_new=is_new),
            bind=read_text(bind),
            group=read_text(group_of_jms) or (group if group.strip("0") else ""),  # MQGI_NONE
        )

    def persistence_at(self, destination: Destination) -> int:
        """The persistence; the queue's if the message leaves it open."""
        left_open = self.persistence == PERSISTENCE_AS_QUEUE_IS_DEFINED
        return destination.persistence if left_open else self.persistence


def defaults_of(destination: Destination) -> dict[str, bytes]:
    """The defaults of a queue for the headers ``LEFT_TO_QUEUE`` (DEFPSIST, DEFPRTY)."""
    return mqmd_headers({"Persistence": destination.persistence, "Priority": destination.priority})


def with_queue_defaults(headers: Headers, destination: Destination) -> Headers:
    """The headers of a message after a put to a queue (MQMD, Persistence and Priority)."""
    if not any(name in LEFT_TO_QUEUE for name, _ in headers):
        return headers
    defaults = defaults_of(destination)
    return [
        (name, defaults[name] if raw is not None and raw == LEFT_TO_QUEUE.get(name) else raw)
        for name, raw in headers
    ]


def is_late(
    message: Message, descriptor: PutDescriptor, now: int, destination: Destination | None
) -> bool:
    """Whether a message has expired.

    Its own expiry overrides that of a queue of MQ Everyplace; CAPEXPRY limits both.

    Args:
        message: The message; its timestamp is the time of its put.
        descriptor: What a put reads from it.
        now: The current time, in milliseconds since 1970.
        destination: Where the message goes; None if nowhere.
    """
    expires = descriptor.expiry > 0
    own = deadline_of(dict(message.headers), message.timestamp) if expires else None
    ends = [] if own is None else [own]
    if destination is not None:
        if own is None and destination.expiry is not None:
            ends.append(message.timestamp + destination.expiry)
        if destination.cap_expiry is not None:
            ends.append(message.timestamp + destination.cap_expiry * TENTH)
    return bool(ends) and now > min(ends)


def as_put(message: Message, present: Mapping[str, bytes | None], queue_manager: str) -> Message:
    """A message as MQPUT completes it (MQMD: MsgId, PutDate, PutTime, Encoding, CodedCharSetId).

    Existing fields stay, as with MQPMO_SET_ALL_CONTEXT, since Kafka does not say who wrote them.
    The identifier is derived from the message's identity, so that a repeated decision has the same
    one.

    Args:
        message: The application's message.
        present: Its headers by name.
        queue_manager: The manager that the application is connected to.
    """
    made: dict[str, str | int] = {}
    if not (present.get(_MSG_ID) or b"").strip(b"0 \0"):  # MQMI_NONE
        made["MsgId"] = unique_identifier(queue_manager, message.identity)
    if message.timestamp > 0 and not read_text(present.get(_PUT_DATE)):
        made |= put_moment(message.timestamp)
    changes = mqmd_headers(made)
    changes |= {header: text for header, text in _NATIVE.items() if header not in present}
    if not changes:
        return message
    if changes.keys().isdisjoint(present):  # nearly always: nothing is replaced
        added = [pair for pair in changes.items() if not is_default(*pair)]
        return message._replace(headers=[*message.headers, *added])
    return message._replace(headers=with_mqmd_headers(message.headers, changes))


def _or_default(raw: bytes | None, default: int, *, is_new: bool) -> int:
    number = parse_long(raw)
    return number if number is not None else default if is_new else 0


def by_priority(records: Records, rows: Iterable[int]) -> list[int]:
    """Rows in the order in which a queue with MSGDLVSQ(PRIORITY) delivers them.

    The highest priority comes first; equal priorities keep the order of the rows, which is that of
    arrival.
    """
    grid = records.grid
    if grid is not None and PRIORITY not in grid.layout:
        return list(rows)  # as with nearly all messages
    return sorted(rows, key=lambda row: -read_long(dict(records.headers[row]).get(PRIORITY)))


def without_names(headers: Headers) -> Headers:
    """The headers without the names of the put, in order."""
    return [pair for pair in headers if pair[0] not in NAMES]

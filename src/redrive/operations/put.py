"""A put by MQ names, as an application does it that is connected to a queue manager."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final

from redrive.errors import UsageError
from redrive.kafka.deadline import SILENCE
from redrive.kafka.writer import Delivery, write_records
from redrive.messages import MQMD, FieldType, Headers, OutputRecord, constant_value
from redrive.messages import own_headers as own
from redrive.messages.fields import MQMD_PREFIX, read_long
from redrive.messages.reports import ReportKind, ReportOptions
from redrive.operations.network import Network, check_topics, unknown
from redrive.topology.mq.resolver import BIND_HEADER, QUEUE_HEADER, QUEUE_MANAGER_HEADER
from redrive.topology.names import NO_NAMES, Names, put_topic

_ACTIVITY: Final = 0x00000004
"""MQRO_ACTIVITY."""
_AS_QUEUE_IS_DEFINED: Final = 2
"""MQPER_PERSISTENCE_AS_Q_DEF, what MQMD has unless an application says more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """What an application says about a message, besides its body."""

    queue: str
    """ObjectName."""
    queue_manager: str = ""
    """ObjectQMgrName; empty for none."""
    key: str | None = None
    """Key of the record; equal keys keep their order."""
    persistent: bool | None = None
    """None: as the queue is defined."""
    expiry: int | None = None
    """Tenths of a second after which the message is dropped; None for never."""
    report: int = 0
    """What it asks to be told: sum of MQRO options."""
    reply_to: Names = NO_NAMES
    """ReplyToQ and ReplyToQMgr."""
    bind: str = ""
    """Name of the open that the put belongs to, for which a cluster queue is chosen once."""
    properties: Sequence[tuple[str, str]] = ()
    """Names and values; ``JMS_IBM_MQMD_...`` are fields of the message descriptor."""

    def headers(self) -> Headers:
        """The headers of the record.

        Raises:
            UsageError: A property has a reserved name, or is no field, or has no value of its type.
        """
        return [*self._names(), *self._fields(), *(_property(*one) for one in self.properties)]

    def reports_in_vain(self) -> list[str]:
        """What the message asks for and does not get, in sentences (MQMD, field Report).

        Raises:
            UsageError: As for ``headers``.
        """
        fields = dict(self.headers())
        options = ReportOptions(read_long(fields.get(MQMD["Report"].header)))
        said = []
        if options.value & _ACTIVITY:
            said.append("no report of activity will be made")
        if options.asks_for(ReportKind.DELIVERY):
            said.append("no report of delivery will be made: Kafka does not tell who read a record")
        if any(map(options.asks_for, ReportKind)) and not fields.get(MQMD["ReplyToQ"].header):
            said.append("no report will be made: the message has no ReplyToQ to which it would go")
        return said

    def _names(self) -> Iterator[tuple[str, bytes]]:
        if self.queue_manager:
            yield QUEUE_MANAGER_HEADER, self.queue_manager.encode()
        yield QUEUE_HEADER, self.queue.encode()
        if self.bind:
            yield BIND_HEADER, self.bind.encode()

    def _fields(self) -> Iterator[tuple[str, bytes]]:
        persistence = _AS_QUEUE_IS_DEFINED if self.persistent is None else int(self.persistent)
        yield MQMD["Persistence"].header, own.number(persistence)
        if self.expiry is not None:
            yield MQMD["Expiry"].header, own.number(self.expiry)
        if self.report:
            yield MQMD["Report"].header, own.number(self.report)
        if self.reply_to.queue:
            yield MQMD["ReplyToQ"].header, self.reply_to.queue.encode()
        if self.reply_to.queue_manager:
            yield MQMD["ReplyToQMgr"].header, self.reply_to.queue_manager.encode()


def checked_put_topic(network: Network, queue_manager: str) -> str:
    """The topic of puts to a queue manager, which exists.

    Args:
        network: The definitions and the cluster.
        queue_manager: The manager that the application is connected to.

    Raises:
        UsageError: It is not defined.
        EnvironmentFault: The broker can't be reached, or there is no such topic.
    """
    topic = put_topic(network.checked_manager(queue_manager))
    with network.cluster() as cluster:
        check_topics(cluster, [topic])
    return topic


def put(network: Network, topic: str, message: NewMessage, body: bytes, *, count: int) -> Delivery:
    """Put a message, as often as wanted.

    Args:
        network: The cluster.
        topic: The topic of puts to a queue manager.
        message: What the application says.
        body: The body.
        count: How often.

    Returns:
        Where the messages lie, and what the cluster said if not all of them do.

    Raises:
        UsageError: As for ``NewMessage.headers``.
    """
    key = None if message.key is None else message.key.encode()
    record = OutputRecord(topic, key, body, message.headers(), int(time.time() * 1000))
    return write_records(network.connection, repeat(record, count), timeout=SILENCE)


def _property(name: str, value: str) -> tuple[str, bytes]:
    if name.startswith(own.PREFIX):
        raise UsageError(
            f"property {name}: names that begin with {own.PREFIX} are Redrive's own",
            hint="choose another name",
        )
    if name.startswith(MQMD_PREFIX):
        return name, _field_value(name.removeprefix(MQMD_PREFIX), value)
    return name, value.encode()


def _field_value(field: str, value: str) -> bytes:
    """The value of a field of the message descriptor, numbers also by their symbolic names."""
    if field not in MQMD:
        raise unknown(f"property {MQMD_PREFIX}{field}: MQMD has no field {field}", field, MQMD)
    if MQMD[field].type is not FieldType.LONG:
        return value.encode()
    number = int(value) if value.lstrip("-").isdecimal() else constant_value(value)
    if number is None:
        raise UsageError(
            f"property {MQMD_PREFIX}{field}: {value} is neither a number nor a symbolic name",
            hint=f"such as {MQMD_PREFIX}MsgType=MQMT_REQUEST",
        )
    return own.number(number)

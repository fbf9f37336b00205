"""A put by MQ names, like that of an application connected to a queue manager."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Final
from uuid import uuid4

from redrive.errors import UsageError
from redrive.kafka.producer import Delivery, write_records
from redrive.messages import MQMD, FieldType, Headers, OutputRecord, constant_value
from redrive.messages import own_headers as own
from redrive.messages.fields import MQMD_PREFIX, read_long, read_text, unique_identifier
from redrive.messages.reports import ReportKind, ReportOptions
from redrive.operations.network import Network, check_topics, unknown
from redrive.topology.mq.resolver import BIND_HEADER, QUEUE_HEADER, QUEUE_MANAGER_HEADER
from redrive.topology.names import NO_NAMES, Names, put_topic

_ACTIVITY: Final = 0x00000004
"""MQRO_ACTIVITY."""
_AS_QUEUE_IS_DEFINED: Final = 2
"""MQPER_PERSISTENCE_AS_Q_DEF, the default in MQMD."""
_PRIORITY_AS_QUEUE_IS_DEFINED: Final = -1
"""MQPRI_PRIORITY_AS_Q_DEF, likewise."""
_APPLICATION: Final = "redrive put"
_APPLICATION_TYPE: Final = constant_value("MQAT_WINDOWS_NT" if os.name == "nt" else "MQAT_UNIX")
_IDENTITY: Final = ("UserIdentifier", "AccountingToken", "ApplIdentityData")
"""The fields of the identity context (MQPMO, Options)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """What an application sets in a message, except its body."""

    queue: str
    """ObjectName."""
    queue_manager: str = ""
    """ObjectQMgrName; empty for none."""
    key: str | None = None
    """Key of the record; equal keys keep their order."""
    persistent: bool | None = None
    """None: as the queue is defined."""
    priority: int | None = None
    """None: as the queue is defined."""
    expiry: int | None = None
    """Tenths of a second after which the message is dropped; None for never."""
    report: int = 0
    """The reports it asks for: sum of MQRO options."""
    reply_to: Names = NO_NAMES
    """ReplyToQ and ReplyToQMgr."""
    bind: str = ""
    """Name of the open that the put belongs to, which chooses a cluster queue once."""
    properties: Sequence[tuple[str, str]] = ()
    """Names and values; ``JMS_IBM_MQMD_...`` are fields of the message descriptor."""
    user: str = ""
    """Who puts it, for UserIdentifier; empty in a trace."""
    new_msg_id: bool = False
    """Whether a new MsgId replaces that of the properties (MQPMO_NEW_MSG_ID)."""
    new_correl_id: bool = False
    """Whether each message gets a new CorrelId (MQPMO_NEW_CORREL_ID)."""
    sets_identity: bool = False
    """Whether its properties set the identity context (MQPMO_SET_IDENTITY_CONTEXT)."""

    def headers(self) -> Headers:
        """The headers of the record.

        The job sets MsgId, PutDate and PutTime when it puts the message.

        Raises:
            UsageError: A property has a reserved name, names no field, or has a value of another
            type,
                or is of the identity context without ``sets_identity``.
        """
        own_properties = [_property(*pair) for pair in self.properties]
        names = {name for name, _ in own_properties}
        fields = [pair for pair in self._fields() if pair[0] not in names]
        replaced = {
            MQMD[name].header
            for name, is_new in (("MsgId", self.new_msg_id), ("CorrelId", self.new_correl_id))
            if is_new
        }
        identity = [name for name in _IDENTITY if MQMD[name].header in names]
        if identity and not self.sets_identity:
            raise UsageError(
                f"property {MQMD[identity[0]].header}: {identity[0]} is set by the put",
                hint="with --set-identity the put takes it from the properties",
            )
        kept = (pair for pair in own_properties if pair[0] not in replaced)
        return [*fields, *kept]

    def reports_in_vain(self) -> list[str]:
        """Sentences about reports that the message asks for and will not get."""
        fields = dict(self.headers())
        options = ReportOptions(read_long(fields.get(MQMD["Report"].header)))
        lost = []
        if options.value & _ACTIVITY:
            lost.append("no report of activity will be made")
        if options.asks_for(ReportKind.DELIVERY):
            lost.append(
                "no report of delivery will be made: Kafka does not record who read a message"
            )
        if any(map(options.asks_for, ReportKind)) and not fields.get(MQMD["ReplyToQ"].header):
            lost.append("no report will be made: the message has no ReplyToQ")
        return lost

    def _fields(self) -> Iterator[tuple[str, bytes]]:
        if self.queue_manager:
            yield QUEUE_MANAGER_HEADER, self.queue_manager.encode()
        yield QUEUE_HEADER, self.queue.encode()
        if self.bind:
            yield BIND_HEADER, self.bind.encode()
        persistence = _AS_QUEUE_IS_DEFINED if self.persistent is None else int(self.persistent)
        yield MQMD["Persistence"].header, own.number(persistence)
        priority = _PRIORITY_AS_QUEUE_IS_DEFINED if self.priority is None else self.priority
        yield MQMD["Priority"].header, own.number(priority)
        if self.user:
            yield from self._context()
        if self.expiry is not None:
            yield MQMD["Expiry"].header, own.number(self.expiry)
        if self.report:
            yield MQMD["Report"].header, own.number(self.report)
        if self.reply_to.queue:
            yield MQMD["ReplyToQ"].header, self.reply_to.queue.encode()
        if self.reply_to.queue_manager:
            yield MQMD["ReplyToQMgr"].header, self.reply_to.queue_manager.encode()

    def _context(self) -> Iterator[tuple[str, bytes]]:
        """Who puts the message (MQMD, fields UserIdentifier, PutApplType and PutApplName)."""
        if not self.sets_identity:
            yield MQMD["UserIdentifier"].header, self.user[: MQMD["UserIdentifier"].length].encode()
        yield MQMD["PutApplType"].header, own.number(_APPLICATION_TYPE or 0)
        yield MQMD["PutApplName"].header, _APPLICATION.encode()


def names_of(headers: Headers) -> Names:
    """The names that a message was put to, from the headers of its record."""
    values = dict(headers)
    queue, manager = (read_text(values.get(name)) for name in (QUEUE_HEADER, QUEUE_MANAGER_HEADER))
    return Names(queue=queue, queue_manager=manager)


def putting_user(network: Network) -> str:
    """The user of a put: that of the Kafka connection, else that of the operating system."""
    if network.connection.sasl_username:
        return network.connection.sasl_username
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return "unknown"


def checked_put_topic(network: Network, queue_manager: str) -> str:
    """The topic of puts to a queue manager; raises ``EnvironmentFault`` if it is missing."""
    topic = put_topic(network.checked_manager(queue_manager))
    with network.cluster() as cluster:
        check_topics(cluster, [topic])
    return topic


def put(network: Network, topic: str, message: NewMessage, body: bytes, *, count: int) -> Delivery:
    """Put a message ``count`` times; raises ``UsageError`` for a property of the wrong type.

    Returns:
        The positions of the messages, and the cluster's answer if not all of them were written.
    """
    key = None if message.key is None else message.key.encode()
    record = OutputRecord(topic, key, body, message.headers(), int(time.time() * 1000))
    records: Iterable[OutputRecord] = repeat(record, count)
    if message.new_correl_id:
        name, headers = MQMD["CorrelId"].header, record.headers or ()
        identifiers = (unique_identifier("", uuid4().hex).encode() for _ in range(count))
        records = (record._replace(headers=[*headers, (name, value)]) for value in identifiers)
    return write_records(network.connection, records)


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

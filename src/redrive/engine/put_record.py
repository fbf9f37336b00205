"""The record that a put writes: its names and descriptor, content, headers and timestamp."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

from redrive.engine.context import SliceContext
from redrive.engine.decision import Decision, Put, TimestampMode, Wait, with_detail
from redrive.engine.edits import NO_EDIT, Change, Content, Edit, changes
from redrive.engine.facts import NO_LIMIT, TopicFacts
from redrive.engine.message import Message
from redrive.messages import (
    MQMD,
    Headers,
    OutputRecord,
    Records,
    original_key,
    remove_header,
    without_stacks,
)
from redrive.messages import own_headers as own
from redrive.messages.dead_letter_header import UTF8_LITTLE_ENDIAN
from redrive.messages.dead_letters import origin_time
from redrive.messages.fields import (
    TENTH,
    deadline_of,
    mqmd_headers,
    parse_long,
    put_moment,
    read_long,
    read_text,
    unique_identifier,
    with_mqmd_headers,
)
from redrive.messages.reasons import Reason
from redrive.messages.reports import ReportOptions
from redrive.messages.schemes.scheme import Stamp
from redrive.rules.backoff import format_seconds
from redrive.topology.mq.resolver import (
    BIND_HEADER,
    NEXT_QUEUE_MANAGER_HEADER,
    QUEUE_HEADER,
    QUEUE_MANAGER_HEADER,
)
from redrive.topology.names import Names
from redrive.topology.put import Destination, Refusal

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
MSG_ID: Final = MQMD["MsgId"].header
PUT_DATE: Final = MQMD["PutDate"].header
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


class Completion(NamedTuple):
    """What MQPUT completes (MQMD: MsgId, PutDate, PutTime, Encoding, CodedCharSetId).

    Existing fields stay, as with MQPMO_SET_ALL_CONTEXT, since Kafka does not say who wrote them.
    The identifier is derived from the message's identity, so that a repeated decision has the same
    one.
    """

    queue_manager: str
    """The manager that the application is connected to."""
    lacks_id: bool
    lacks_moment: bool
    native: Headers
    """Headers that are the same for all messages."""

    @classmethod
    def of(cls, present: Mapping[str, bytes | None], queue_manager: str) -> Completion:
        """What a message with these headers lacks."""
        return cls(
            queue_manager,
            not has_id(present.get(MSG_ID)),
            not read_text(present.get(PUT_DATE)),
            [pair for pair in _NATIVE.items() if pair[0] not in present],
        )

    def headers(self, identity: str, timestamp: int) -> Headers:
        """The headers for one message; its timestamp is in milliseconds."""
        made: Headers = []
        if self.lacks_id:
            made.append((MSG_ID, unique_identifier(self.queue_manager, identity).encode()))
        if self.lacks_moment and timestamp > 0:
            made += _moment_headers(timestamp // 10)
        return made + self.native


@lru_cache(maxsize=1024)
def _moment_headers(hundredths: int) -> Headers:
    return [*mqmd_headers(put_moment(hundredths * 10)).items()]


def has_id(raw: bytes | None) -> bool:
    """Whether the header of a MsgId has one."""
    return bool((raw or b"").strip(b"0 \0"))  # MQMI_NONE


def as_put(message: Message, present: Mapping[str, bytes | None], queue_manager: str) -> Message:
    """A message as MQPUT completes it; see ``Completion``.

    Args:
        message: The application's message.
        present: Its headers by name.
        queue_manager: The manager that the application is connected to.
    """
    made = Completion.of(present, queue_manager).headers(message.identity, message.timestamp)
    if present.keys().isdisjoint([name for name, _ in made]):  # nearly always
        return message._replace(headers=[*message.headers, *made])
    changes = {name: text for name, text in made if text is not None}
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


ANY_TIME: Final = (-NO_LIMIT, NO_LIMIT)
_RENEWED: Final = "with the time of the put"


def record_of(
    message: Message,
    put: Put,
    partition: int | None,
    facts: SliceContext,
    transforms: Mapping[str, Change],
) -> tuple[OutputRecord | Refusal, str]:
    """The record of one message's put, or why there is none; and what changed in it.

    ``partition`` is that of the failed record, if the put returns to it. TRANSFORM of the table
    names one of the transforms.
    """
    key, value, headers = message.key, message.value, message.headers
    if put.strip:
        key = original_key(put.profile, key, headers)
        value, headers = remove_header(put.profile, value, headers)
    else:
        headers = without_stacks(put.profile, headers)
    edit = ""
    transform = put.rule.transform if put.rule else ""
    edited = put.replay.edit if put.replay else NO_EDIT
    if transform or edited:
        before = Content(value, headers)
        after = _change(before, transform, edited, transforms)
        if isinstance(after, Refusal):
            return after, ""
        (value, headers), edit = after, changes(before, after)
    headers = [
        *with_queue_defaults(headers, put.destination),
        (own.ID, message.identity.encode("ascii")),
        *put.added_headers(facts.now, partition),
        (own.HOPS, own.number(message.hops + 1)),
    ]
    topic = put.destination.topic
    place = facts.facts.topic(topic).partition(partition)
    return OutputRecord(topic, key, value, headers, message.timestamp, place), edit


class PutTimes(NamedTuple):
    """The timestamps of the records that one decision puts."""

    now: int
    """Milliseconds; the time of the put."""
    kept: tuple[int, int]
    """The earliest and the latest own timestamp that a record keeps; others get the time of the
    put."""
    lasting: tuple[int, int]
    """Those with which the target keeps a record for long enough, if it does not get that time."""
    retention: int
    """Milliseconds for which the target keeps a record."""
    is_noted: bool
    """Whether a header always has the own timestamp, since the broker replaces it."""
    may_drift: bool
    """Whether a dead letter of the record would name no timestamp of it, unless a header does."""

    @classmethod
    def of(cls, put: Put, facts: SliceContext) -> PutTimes:
        """The timestamps of a put's records."""
        topic, now = facts.facts.topic(put.destination.topic), facts.now
        times = cls.at(topic, now, put.timestamps)
        may_drift = put.strip and put.profile.comes_from_kafka
        return times._replace(may_drift=may_drift and put.profile.stamp is not Stamp.RECORD)

    @classmethod
    def at(cls, topic: TopicFacts, now: int, mode: TimestampMode = TimestampMode.AUTO) -> PutTimes:
        """The timestamps of records on a topic; ``now`` in milliseconds."""
        kept = lasting = ANY_TIME
        match mode:
            case TimestampMode.AUTO:
                kept = topic.lasting(now)
            case TimestampMode.KEEP:
                lasting = topic.lasting(now)
            case TimestampMode.NOW:
                kept = now, now
        return cls(now, kept, lasting, topic.retention, topic.stamps_records, may_drift=False)

    @property
    def depends_on_record(self) -> bool:
        """Whether the target may delete a record soon because of its timestamp."""
        return self.lasting != ANY_TIME

    def is_short(self, own_time: int) -> bool:
        """Whether a record that keeps its own timestamp does not live long enough."""
        first, last = self.lasting
        return own_time > 0 and not first <= own_time <= last

    def stamp(self, own_time: int) -> int:
        """The timestamp of a record with a timestamp of its own; not above 0 is unknown."""
        first, last = self.kept
        return own_time if first <= own_time <= last or own_time <= 0 else self.now

    def is_needed(self, own_time: int, stamp: int, *, may_drift: bool = True) -> bool:
        """Whether a header has the own timestamp of a record; ``stamp`` is the record's."""
        return own_time > 0 and (
            stamp != own_time or self.is_noted or (self.may_drift and may_drift)
        )

    def note(self, record: OutputRecord, own_time: int, *, may_drift: bool = True) -> OutputRecord:
        """A record with its timestamp, and with its own one in a header where that is needed."""
        stamp = self.stamp(own_time)
        if stamp != record.timestamp:
            record = record._replace(timestamp=stamp)
        if not self.is_needed(own_time, stamp, may_drift=may_drift):
            return record
        return record._replace(headers=[*(record.headers or ()), timestamp_header(own_time)])

    def decision(self, put: Put, own_time: int) -> Put:
        """The decision of a record, whose outcome says whether its timestamp is not its own."""
        if self.stamp(own_time) != own_time:
            return put.derive(_renewed, self._reason(put))
        return put.derive(_short_lived, self._reason(put)) if self.is_short(own_time) else put

    def decided(self, message: Message, put: Put) -> Put:
        """The decision of a message's put."""
        return self.decision(put, _own_time(put, message)[0])

    def applied(self, record: OutputRecord, message: Message, put: Put) -> tuple[OutputRecord, Put]:
        """The record of a message's put with its timestamp, and its decision."""
        own_time, is_named = _own_time(put, message)
        noted = self.note(record, own_time, may_drift=not is_named)
        return noted, self.decision(put, own_time)

    def _reason(self, put: Put) -> str:
        if put.timestamps is TimestampMode.NOW:
            return ""
        name = put.destination.topic
        if self.retention < NO_LIMIT:
            return f"{name} keeps records for {format_seconds(self.retention // 1000)}"
        return f"{name} accepts no record with its own"


def _own_time(put: Put, message: Message) -> tuple[int, bool]:
    """A message's own timestamp, and whether its dead letter names it."""
    if not put.strip:
        return message.timestamp, False
    named = origin_time(put.profile, message.key, message.value, message.headers)
    return message.record_time or named or message.timestamp, bool(named)


def risks_of(decision: Decision, facts: SliceContext) -> Iterator[str]:
    """What may happen to the records of a decision after their put, as sentences."""
    put = decision.attempt_now if isinstance(decision, Wait) else decision
    if not isinstance(put, Put):
        return
    name = put.destination.topic
    if put.dies_young:
        kept = format_seconds(facts.facts.topic(name).retention // 1000)
        yield f"{name} keeps records for {kept}, and less than half of that is left"
    if facts.facts.topic(name).wants_keys:
        yield f"{name} is compacted: an old value may hide a newer one of its key"


def renewal_detail(record: OutputRecord, own_time: int) -> str:
    """What an outcome says of a record's timestamp; empty if it is its own, in milliseconds."""
    return _RENEWED if record.timestamp != own_time else ""


def timestamp_header(own_time: int) -> tuple[str, bytes]:
    """The header with a record's own timestamp, in milliseconds."""
    return own.TIMESTAMP, own.number(own_time)


def _renewed(put: Put, why: str) -> Put:
    return with_detail(put, f"{_RENEWED}{why and f', since {why}'}")


def _short_lived(put: Put, why: str) -> Put:
    text = f"with its own timestamp, less than half of its life is left: {why}"
    return replace(with_detail(put, text), dies_young=True)


def _change(
    content: Content, transform: str, edit: Edit, transforms: Mapping[str, Change]
) -> Content | Refusal:
    """The content after the transform and the operator's edit, which is last, as in the preview."""
    if transform:
        known = transforms.get(transform)
        if known is None:
            detail = f"the settings have no [transforms.{transform}]"
            return Refusal(Reason.FORMAT_ERROR, detail)
        changed = known(content)
        if isinstance(changed, Refusal):
            return changed
        content = changed
    return edit.applied(content)


def persistence_of(put: Put) -> int:
    """The persistence of a dead letter where it is put."""
    persistence = int(put.profile.fields.get("PERSIST", 0))
    is_defined = persistence != PERSISTENCE_AS_QUEUE_IS_DEFINED
    return persistence if is_defined else put.destination.persistence

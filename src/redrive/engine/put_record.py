"""The record that a rules table's put writes: its content, headers and timestamp."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from redrive.engine.context import SliceContext
from redrive.engine.decision import Decision, Put, TimestampMode, Wait, with_detail
from redrive.engine.edits import NO_EDIT, Change, Content, Edit, changes
from redrive.engine.facts import NO_LIMIT, TopicFacts
from redrive.engine.message import Message
from redrive.engine.put_descriptor import PERSISTENCE_AS_QUEUE_IS_DEFINED, with_queue_defaults
from redrive.messages import OutputRecord, original_key, remove_header, without_stacks
from redrive.messages import own_headers as own
from redrive.messages.dead_letters import origin_time
from redrive.messages.reasons import Reason
from redrive.messages.schemes.scheme import Stamp
from redrive.rules.backoff import format_seconds
from redrive.topology.put import Refusal

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
    put = decision.put if isinstance(decision, Wait) else decision
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

"""The record that a rules table's put writes, made from one message or prepared for many.

Nearly all fresh dead letters of a lane, and instructions to replay some, have the same header names
in the same order, and few distinct profiles. ``PreparedPut`` computes their common part once; each
record then costs one list, one slice and one line of JSON. Other records are made individually.
Both ways write the same records, which tests check.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive.engine.decision import Decision, Put, TimestampMode, Wait, with_detail
from redrive.engine.edits import NO_EDIT, Change, Content, Edit, changes
from redrive.engine.facts import NO_LIMIT
from redrive.engine.put_descriptor import (
    LEFT_TO_QUEUE,
    PERSISTENCE_AS_QUEUE_IS_DEFINED,
    defaults_of,
    with_queue_defaults,
)
from redrive.messages import OutputRecord, original_key, remove_header, without_stacks
from redrive.messages import own_headers as own
from redrive.messages.dead_letters import (
    origin_partition,
    origin_partition_headers,
    origin_time,
    origin_time_parts,
    valid_time,
)
from redrive.messages.reasons import Reason
from redrive.messages.schemes.scheme import Newest, Stamp
from redrive.rules.backoff import format_seconds
from redrive.topology.put import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from redrive.engine.context import SliceContext
    from redrive.engine.facts import TopicFacts
    from redrive.engine.message import Message
    from redrive.messages import DeadLetterProfile, Headers
    from redrive.messages.schemes.encodings import Reader

_ANY_TIME: Final = (-NO_LIMIT, NO_LIMIT)
_RENEWED: Final = "with the time of the put"
HEADROOM: Final = 16 * 1024
"""Bytes reserved for headers when a body is compared with a topic's limit."""
_PROBE: Final = bytes(4096)
"""A value longer than any dead-letter header, to find how much of it is removed."""
_UNLIKELY: Final = b"\xff"
"""A header value that no descriptor field has, so that every edit shows."""


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
        kept = lasting = _ANY_TIME
        match mode:
            case TimestampMode.AUTO:
                kept = topic.lasting(now)
            case TimestampMode.KEEP:
                lasting = topic.lasting(now)
            case TimestampMode.NOW:
                kept = now, now
        return cls(now, kept, lasting, topic.stamps_records, may_drift=False)

    @property
    def depends_on_record(self) -> bool:
        """Whether the target may delete a record soon because of its timestamp."""
        return self.lasting != _ANY_TIME

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

    def decision(self, put: Put, own_time: int, facts: SliceContext) -> Put:
        """The decision of a record, whose outcome says whether its timestamp is not its own."""
        if self.stamp(own_time) != own_time:
            return facts.cache.derive(_renewed, put, self._reason(put, facts))
        if not self.is_short(own_time):
            return put
        return facts.cache.derive(_short_lived, put, self._reason(put, facts))

    def decided(self, message: Message, put: Put, facts: SliceContext) -> Put:
        """The decision of a message's put."""
        return self.decision(put, _own_time(put, message)[0], facts)

    def applied(
        self, record: OutputRecord, message: Message, put: Put, facts: SliceContext
    ) -> tuple[OutputRecord, Put]:
        """The record of a message's put with its timestamp, and its decision."""
        own_time, is_named = _own_time(put, message)
        noted = self.note(record, own_time, may_drift=not is_named)
        return noted, self.decision(put, own_time, facts)

    @staticmethod
    def _reason(put: Put, facts: SliceContext) -> str:
        if put.timestamps is TimestampMode.NOW:
            return ""
        name, topic = put.destination.topic, facts.facts.topic(put.destination.topic)
        if topic.retention < NO_LIMIT:
            return f"{name} keeps records for {format_seconds(topic.retention // 1000)}"
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


def _time_columns(put: Put, layout: Sequence[str]) -> Sequence[tuple[int, Reader]]:
    """The headers that name the timestamp of the failed record, by index, in their order."""
    columns = []
    for name, read, newest in origin_time_parts(put.profile) or ():
        places = [index for index, there in enumerate(layout) if there == name]
        if places:
            columns.append((places[0 if newest is Newest.FIRST else -1], read))
    return columns


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


def put_bounds(put: Put, facts: SliceContext) -> tuple[int, int, int] | None:
    """Limits within which a put certainly succeeds: longest value, first and last timestamp.

    The timestamps are those of dead letters that have waited long enough.

    Returns:
        Bytes and milliseconds; None if each message needs its own check.
    """
    destination, longest = put.destination, put.destination.limits.longest
    topic = facts.facts.topic(destination.topic)
    if destination.is_choice or longest is None or topic.wants_keys or topic.silent:
        return None
    profile = put.profile
    if put.rule is not None and put.rule.transform:
        return None
    if put.replay is not None and put.replay.edit:
        return None
    depends_on_record = (
        profile.is_wrapped,
        profile.view.pointer,
        put.rounds is not None and profile.drops_headers,
        put.returns and origin_partition_headers(profile) is None,
        put.strip and origin_time_parts(profile) is None,
        put.wait and profile.stamp is not Stamp.FAILURE,
        put.is_reported,
    )
    if any(depends_on_record):
        return None
    earliest, latest = (1, facts.failed_before(put.wait)) if put.wait else _ANY_TIME
    return min(topic.max_message_bytes - HEADROOM, longest), earliest, latest


class PreparedPut:
    """Writes the dead letters of one profile that one decision puts to a queue."""

    __slots__ = (
        "_added", "_columns", "_edits", "_endings", "_facts", "_first", "_gaps", "_last", "_left",
        "_strips", "_time_columns", "_times", "_topic", "_variants", "cut", "decision", "earliest",
        "hops", "is_counted_by_body", "latest", "may_lack_rounds", "room", "topic",
    )  # fmt: skip

    def __init__(
        self,
        put: Put,
        layout: Sequence[str],
        bounds: tuple[int, int, int],
        facts: SliceContext,
        *,
        hops: int,
        may_lack_rounds: bool = False,
        is_counted_by_body: bool = False,
    ) -> None:
        """Prepare puts of messages with these header names, without Redrive's own, in order.

        ``bounds`` are those of ``put_bounds``, ``hops`` Redrive's earlier puts of every message.
        ``may_lack_rounds`` is whether messages that may be rounds need an individual decision. For
        ``is_counted_by_body`` see ``AttemptCounter``.
        """
        self.decision = put
        self.may_lack_rounds = may_lack_rounds
        self.is_counted_by_body = is_counted_by_body
        self.hops = hops
        self.topic = put.destination.topic
        self.room, self.earliest, self.latest = bounds
        self.cut = 0
        self._edits: list[tuple[int, tuple[str, bytes | None]]] = []
        self._gaps: list[int] = []
        self._added: Headers = []
        self._facts, self._topic = facts, facts.facts.topic(self.topic)
        self._times, self._strips = PutTimes.of(put, facts), put.strip
        kept, lasting = self._times.kept, self._times.lasting
        self._first, self._last = max(1, kept[0], lasting[0]), min(kept[1], lasting[1])
        self._time_columns = _time_columns(put, layout)
        self._variants: dict[bool, Put] = {}
        deciding = origin_partition_headers(put.profile) if put.returns else None
        self._columns = [index for index, name in enumerate(layout) if name in (deciding or ())]
        self._endings: dict[object, tuple[int, Headers]] = {}
        defaults = defaults_of(put.destination)
        self._left = [
            (index, LEFT_TO_QUEUE[name], (name, defaults[name]))
            for index, name in enumerate(layout)
            if name in LEFT_TO_QUEUE
        ]
        self._prepare_edits(put.profile, layout, strip=put.strip)

    def put(self, message: Message) -> tuple[OutputRecord, Put] | None:
        """The record of one message, and its decision; None if its put needs an individual one."""
        value, timestamp = message.value, message.timestamp
        if value is None or len(value) > self.room or not self.earliest <= timestamp <= self.latest:
            return None
        identity = message.identity.encode("ascii")
        return self.written(
            message.key, value, message.headers, timestamp, identity, message.record_time
        )

    def written(  # noqa: PLR0917 - called for every record
        self,
        key: bytes | None,
        value: bytes,
        headers: Headers,
        timestamp: int,
        identity: bytes,
        record_time: int = 0,
    ) -> tuple[OutputRecord, Put] | None:
        """The record of a dead letter, and its decision; None if it needs an individual one.

        The headers are those of the dead letter without Redrive's own.
        """
        own_time = timestamp
        named = 0
        if self._strips:
            for index, read in self._time_columns:
                raw = headers[index][1]
                if raw is not None and (named := valid_time(read(raw))):
                    break
            own_time = record_time or named or timestamp
        stamp, decision, times = own_time, self.decision, self._times
        if self._first <= own_time <= self._last:  # nearly all: it keeps its own timestamp
            is_noted = times.is_noted or (times.may_drift and not named)
        else:
            stamp = times.stamp(own_time)
            if stamp != own_time or times.is_short(own_time):
                first, last = self._topic.timestamps(self._facts.now)
                if stamp > 0 and not first <= stamp <= last:
                    return None
                decision = self._variant(own_time, is_renewed=stamp != own_time)
            is_noted = times.is_needed(own_time, stamp, may_drift=not named)
        partition, written = self.place(headers, identity)
        if is_noted:
            written.append(timestamp_header(own_time))
        body = value[self.cut :]
        return OutputRecord(self.topic, key, body, written, stamp, partition), decision

    def _variant(self, own_time: int, *, is_renewed: bool) -> Put:
        """The decision of records whose timestamp is not simply their own."""
        decision = self._variants.get(is_renewed)
        if decision is None:
            decision = self._times.decision(self.decision, own_time, self._facts)
            self._variants[is_renewed] = decision
        return decision

    def place(self, headers: Headers, identity: bytes) -> tuple[int, Headers]:
        """The partition to write to, or -1, and the headers.

        ``headers`` are those of the dead letter without Redrive's own.
        """
        deciding = tuple([headers[index] for index in self._columns])
        ending = self._endings.get(deciding)
        if ending is None:
            ending = self._endings[deciding] = self._ending(headers)
        written = headers.copy()
        for index, left, default in self._left:
            if written[index][1] == left:
                written[index] = default
        for index, pair in self._edits:
            raw = written[index][1]
            if raw is None or raw.rstrip(b" ") != pair[1]:  # an equal value stays as it is
                written[index] = pair
        for index in self._gaps:
            del written[index]
        written += self._added
        written.append((own.ID, identity))
        written += ending[1]
        return ending[0], written

    def _ending(self, headers: Headers) -> tuple[int, Headers]:
        """The partition to write to, and Redrive's headers after the identity."""
        put = self.decision
        partition = origin_partition(put.profile, None, None, headers) if put.returns else None
        added = put.added_headers(self._facts.now, partition)
        added.append((own.HOPS, own.number(self.hops + 1)))
        return self._topic.partition(partition), added

    def _prepare_edits(
        self, profile: DeadLetterProfile, layout: Sequence[str], *, strip: bool
    ) -> None:
        """Derive the edits for every record of this layout from one message."""
        probe: Headers = [(name, _UNLIKELY) for name in layout]
        value: bytes | None = _PROBE
        if strip:
            value, kept = remove_header(profile, value, probe)
        else:
            kept = without_stacks(profile, probe)
        self.cut = len(_PROBE) - len(value or b"")
        position = {id(pair): index for index, pair in enumerate(probe)}
        survivors = [position.get(id(pair)) for pair in kept]
        taken = 0
        for pair, index in zip(kept, survivors, strict=True):
            if index is not None:
                self._gaps += range(taken, index)
                taken = index + 1
            elif taken < len(layout) and layout[taken] == pair[0]:
                self._edits.append((taken, pair))
                taken += 1
            else:
                self._added.append(pair)
        self._gaps += range(taken, len(layout))
        self._gaps.reverse()

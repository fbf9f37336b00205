"""A slice: the records of one transaction, and the outputs for them.

Deciding is pure and can be repeated, after a missing fact, a refused record or a lost answer. The
same records with the same facts give the same outputs; a refusal changes only the decision about
its own record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from redrive.engine.breaker import BreakerKey, OpenBreaker, SliceBreakers
from redrive.engine.cache import PreparedPut, rule_input
from redrive.engine.commands import Replay
from redrive.engine.context import Decided, Entry, SliceContext
from redrive.engine.decision import (
    Decision,
    Hold,
    Keep,
    Park,
    Put,
    Skip,
    Suspend,
    Wait,
    with_detail,
)
from redrive.engine.facts import NO_LIMIT, Answers, Facts, Questions, WaitingQuestion
from redrive.engine.message import Attempts, Message
from redrive.engine.ordering import KeyOrder, Place, Round
from redrive.engine.outcome import (
    LAST_TIME,
    DeadLetterColumns,
    key_members,
    traceparents,
)
from redrive.engine.pointers import with_own_headers
from redrive.engine.rules_decider import HeldKeys, RulesDecider
from redrive.engine.sources import (
    DeadLetterSource,
    Input,
    InstructionSource,
    PartitionRecords,
    PutSource,
    SourceKind,
    fit,
    parked,
    remaining,
    source_of,
)
from redrive.engine.statistics import Failure, OutcomeKind, SliceSummary
from redrive.errors import RecreatedFault
from redrive.messages import (
    INTERNAL,
    DeadLetterDecoder,
    DeadLetterProfile,
    OutputRecord,
    Refused,
    TopicPartition,
    wire_size,
)
from redrive.messages import own_headers as own
from redrive.messages.cuts import cut_sentence
from redrive.messages.reasons import Reason

_SURELY_TAKEN: Final = 512 * 1024
"""Maximum bytes of a record on Redrive's own topics."""
_KEPT: Final = (SourceKind.REMAINING, SourceKind.UNDELIVERED, SourceKind.REPLAYS)
"""Kinds of sources with a copy of each message on a compacted topic; a tombstone removes the copy
once the message has moved."""


class Lane:
    """Writes the outputs for the records of one lane, part by part."""

    def __init__(
        self, part: PartitionRecords, decoder: DeadLetterDecoder, facts: SliceContext
    ) -> None:
        self._part = part
        self._facts = facts
        self._source = source_of(part, decoder, facts)
        self._base = 0
        self._traces: Sequence[str] | None = None
        self._failed_records: Sequence[str] | None = None
        self._errors: Sequence[str] | None = None
        """The messages of the exceptions, as members of outcomes."""
        self._failures: Sequence[int] | None = None
        """When the processing failed, as the dead letters say; 0 where they do not."""
        self._record_times: Sequence[int] | None = None
        """The timestamps of the records that failed, likewise."""
        self._prefix = part.prefix
        self._place = (
            f'"topic":"{part.lane.topic}","incarnation":{part.incarnation},'
            f'"partition":{part.lane.partition},"time":{facts.now},"offset":'
        )

    def outputs(self, part: PartitionRecords, base: int, first: int) -> Iterator[Entry]:
        """The outputs for some records of the lane; earlier ones are finished.

        ``base`` is the entry number of the first record, ``first`` the first unfinished row.
        """
        self._part, self._base = part, base
        self._traces = traceparents(part.records)
        source = self._source
        if not source.load(part, first):
            return iter(())
        if source.letters is not None:
            columns = DeadLetterColumns(part.records, source.letters.profiles)
            self._failed_records, self._errors = columns.failed_records, columns.error_messages
            self._failures, self._record_times = columns.failure_times, columns.record_times
        decider = part.decider
        if isinstance(decider, RulesDecider) and decider.held_keys is not None:
            return self._decide_in_key_order(decider, decider.held_keys, first)
        is_plain = not self._facts.refused
        if isinstance(source, DeadLetterSource) and source.is_fresh and is_plain:
            return self._write_prepared_puts(self._prepared_letters(source, first))
        if isinstance(source, PutSource) and self._part.kind is SourceKind.PUTS and is_plain:
            return self._write_prepared_puts(source.prepared_puts(first), source.identities)
        if isinstance(source, InstructionSource) and source.columns is not None and is_plain:
            puts = source.prepared_puts(self._profiles(source.letters, first), first)
            return self._write_prepared_puts(puts, source.columns.identities, source.columns)
        return self._decide_rows(first)

    def _decide_rows(self, first: int) -> Iterator[Entry]:
        for row in self._source.rows(first):
            yield from self._outputs_of(row)

    def _decide_in_key_order(
        self, decider: RulesDecider, keys: HeldKeys, first: int
    ) -> Iterator[Entry]:
        """Like ``_decide_rows``, under a table with ORDER(KEY)."""
        order = self._facts.order(WaitingQuestion.of(decider.identity, self._part.home))
        for row in self._source.rows(first):
            noted = self._round_at(row)
            if noted is not None:
                yield from self._renew_note(keys, order, row, noted)
                continue
            item = self._source.read(row)
            if item is None:
                continue
            if isinstance(item, Decided):  # its copies stay as they were
                yield from self._write(row, item)
                continue
            message, attempts, replay = item
            message, attempts, _ = decider.identify(message, attempts, self._facts)
            yield from self._decide_or_hold(keys, order, row, (message, attempts, replay))

    def _decide_or_hold(
        self, keys: HeldKeys, order: KeyOrder, row: int, item: Input
    ) -> Iterator[Entry]:
        """The outputs for one message, which may wait behind others of its key."""
        message, attempts, replay = item
        key, now = message.key, self._facts.now
        # An operator who names a message also overrides its order.
        ahead = None if key is None or replay else order.ahead(key, message.identity)
        if ahead is not None:
            held = keys.hold(message, attempts, ahead, now)
            if self._was_held(row):
                yield INTERNAL, self._renew_copy(row, message, held)
            else:
                yield from self._write(row, Decided(message, held))
            decided = Decided(message, held)
        else:
            decided = self._decide(row, message, attempts, replay)
            yield from self._write(row, decided)
        if key is None:
            return
        order.remove(self._place_of(row))
        begun = keys.round_of(decided, self._part.home, now)
        if begun is not None:
            yield INTERNAL, begun.note(message, keys.note_place(begun, now), now)
        if begun is not None or isinstance(decided.decision, (Park, Keep)):
            order.add(key, message.identity, now)

    def _place_of(self, row: int) -> Place:
        return Place(self._part.lane, self._part.records.offsets[row])

    def _round_at(self, row: int) -> Round | None:
        records = self._part.records
        if self._part.kind is not SourceKind.RETRIES:
            return None
        return Round.read(records.values[row], records.headers[row])

    def _renew_note(
        self, keys: HeldKeys, order: KeyOrder, row: int, noted: Round
    ) -> Iterator[Entry]:
        """The updated note of a round; empty if the round is over."""
        known, now = self._facts.facts.round(noted), self._facts.now
        if known.is_over:
            order.remove(self._place_of(row))
            return
        changed = {own.IN_ROUND: known.value}
        yield INTERNAL, self._rewrite(row, keys.note_place(known, now), changed)

    def _was_held(self, row: int) -> bool:
        if self._part.kind is not SourceKind.RETRIES:
            return False
        own_headers = own.read_own(self._part.records.headers[row])
        return bool(own_headers.behind) and self._part.counts(row, own_headers)

    def _renew_copy(self, row: int, message: Message, held: Hold) -> OutputRecord:
        """The copy of a message that still waits, which names the copy it replaces."""
        place = self._part.decider.waiting_place(message, held, self._part.home)
        moved = f"{self._prefix}{self._part.records.offsets[row]}"
        changed = {own.BEHIND: held.behind.encode("ascii"), own.MOVED: moved.encode("ascii")}
        return self._rewrite(row, place, changed)

    def _rewrite(self, row: int, place: TopicPartition, changed: dict[str, bytes]) -> OutputRecord:
        """A parked record with other headers of Redrive's own, which waits from now on."""
        records = self._part.records
        headers = [pair for pair in records.headers[row] if pair[0] not in changed]
        return OutputRecord(
            place.topic,
            records.keys[row],
            records.values[row],
            [*headers, *changed.items()],
            self._facts.now,
            place.partition,
        )

    def _outputs_of(self, row: int) -> Iterator[Entry]:
        item = self._source.read(row)
        if item is not None:
            decided = item if isinstance(item, Decided) else self._decide(row, *item)
            yield from self._write(row, decided)

    def _decide(
        self, row: int, message: Message, attempts: Attempts, replay: Replay | None
    ) -> Decided:
        return self._part.decider.decide(
            message, attempts, self._facts, entry=self._base + row, replay=replay
        )

    def _write(self, row: int, decided: Decided) -> Iterator[Entry]:
        # The offset is committed with the outcome: a put without a record would lose the message.
        assert decided.records or not isinstance(decided.decision, Put)
        yield from decided.records
        yield from self._copies_and_outcome(row, decided.message, decided.decision)

    def _prepared_letters(
        self, source: DeadLetterSource, first: int
    ) -> Iterator[tuple[int, PreparedPut | None]]:
        """Rows with fresh dead letters, each with its put; None if it is decided by itself."""
        decider, layout, facts = source.decider, source.layout, self._facts
        prepared = decider.prepared_puts(layout, facts)
        for row, profile in enumerate(self._profiles(source, first), first):
            # A prepared put keeps its profile alive, so no other one gets the id. Where there is
            # no put, the id may be used again, and the row is decided by itself.
            try:
                put = prepared[id(profile)]
            except KeyError:
                put = decider.prepare(profile, layout, facts)
                prepared[id(profile)] = put
            yield row, put

    def _write_prepared_puts(
        self,
        puts: Iterable[tuple[int, PreparedPut | None]],
        identities: Sequence[str] | None = None,
        copies: own.CopyColumns | None = None,
    ) -> Iterator[Entry]:
        """Like ``_decide_rows``, for rows with puts; identities are those in their headers.

        ``copies`` are what instructions have of the remaining messages, instead of the records.
        """
        facts, records, prefix, base = self._facts, self._part.records, self._prefix, self._base
        record_times, decisions = self._record_times, facts.decisions
        since = NO_LIMIT if self._part.since is None else self._part.since
        keys: Sequence[bytes | None] = records.keys
        timestamps: Sequence[int] = records.timestamps
        headers = records.headers
        if copies is not None:
            keys, headers, timestamps = copies.keys, copies.headers, copies.timestamps
        for row, put in puts:
            value, timestamp = records.values[row], timestamps[row]
            if (
                put is None
                or value is None
                or len(value) > put.room
                or not put.earliest <= timestamp <= put.latest
                or (put.may_lack_rounds and records.offsets[row] >= since)
            ):
                yield from self._outputs_of(row)
                continue
            if copies is None:
                origin, record_time = f"{prefix}{records.offsets[row]}", 0
            else:
                origin, record_time = copies.origins[row], copies.record_times[row]
            key = keys[row]
            name = (identities[row] if identities else "") or origin
            identity = name.encode("ascii")
            named = record_times[row] if record_times else 0
            written = put.written(key, value, headers[row], timestamp, identity, named, record_time)
            if written is None:
                yield from self._outputs_of(row)
                continue
            record, decision = written
            yield base + row, record
            decisions[decision] += 1
            if put.is_counted_by_body:
                decision = with_own_headers(decision, record)
            if copies is not None:
                yield INTERNAL, self._tombstone(origin)
            outcome = self._outcome(
                row, identity, name, origin, put.hops, key, value, timestamp, record_time, decision
            )
            yield INTERNAL, outcome

    def _profiles(self, source: DeadLetterSource, first: int) -> Iterable[DeadLetterProfile]:
        matcher, now = source.decider.profiles, self._facts.now
        if not matcher.is_kafka:
            return source.profiles[first:]
        if not matcher.is_varied:
            return map(matcher.shared, source.profiles[first:])
        return (
            matcher.match_first(source.profiles[row], rule_input(source.read(row)[0], now))
            for row in source.rows(first)
        )

    def _copies_and_outcome(
        self, row: int, message: Message, decision: Decision
    ) -> Iterator[Entry]:
        """The records of every decision: changes of the handler's copies, and the outcome."""
        if isinstance(decision, (Park, Keep)):
            kept, decision = self._fit(message, decision)
            yield INTERNAL, self._copy(row, kept, decision)
        if self._part.kind in _KEPT and not isinstance(decision, (Keep, Skip)):
            yield INTERNAL, self._tombstone(message.origin)
        self._facts.decisions[decision] += 1
        identity = message.identity.encode("ascii")
        outcome = self._outcome(
            row, identity, message.identity, message.origin, message.hops, message.key,
            message.value, message.timestamp, message.record_time, decision,
        )  # fmt: skip
        yield INTERNAL, outcome

    def _fit(self, message: Message, decision: Park | Keep) -> tuple[Message, Park | Keep]:
        """A message cut to fit its topic as a copy, and its decision, which notes the cut."""
        if message.cut or wire_size(message.key, message.value, message.headers) <= _SURELY_TAKEN:
            return message, decision
        topic = self._waiting_place(message, decision).topic
        fitted = fit(message, self._facts.facts.topic(topic).max_message_bytes)
        if not fitted.cut:
            return message, decision
        return fitted, with_detail(decision, cut_sentence(fitted.cut, message.origin))

    def _copy(self, row: int, message: Message, decision: Park | Keep) -> OutputRecord:
        place, table = self._waiting_place(message, decision), self._part.decider.table_id
        attempts, now = decision.attempts, self._stamp(row, message, decision, place)
        if isinstance(decision, Keep):
            return remaining(message, place, table=table, attempts=attempts, now=now)
        behind = decision.behind if isinstance(decision, Hold) else ""
        return parked(message, place, table=table, attempts=attempts, now=now, behind=behind)

    def _stamp(
        self, row: int, message: Message, decision: Park | Keep, place: TopicPartition
    ) -> int:
        """The time from which a copy waits, in milliseconds.

        Messages held by an open breaker are spread over half of its delay, so that not all of them
        come at once when it closes.
        """
        facts = self._facts
        if isinstance(decision, Wait):
            return facts.failed_at(message)
        if isinstance(decision, Suspend):
            rest = 1 - (row + 1) / len(self._part.records)
            return facts.now - int(500 * self._part.decider.interval(place) * rest)
        return facts.now

    def _tombstone(self, origin: str) -> OutputRecord:
        topic, key = self._part.decider.identity.remaining_topic, origin.encode("ascii")
        return OutputRecord(topic, key, None, None, self._facts.now, self._part.lane.partition)

    def _waiting_place(self, message: Message, decision: Park | Keep) -> TopicPartition:
        decider, home = self._part.decider, self._part.home
        if isinstance(decision, Park):
            return decider.waiting_place(message, decision, home)
        return TopicPartition(decider.identity.remaining_topic, home)

    def _outcome(  # noqa: PLR0917 - called for every record: a value of its own costs too much
        self,
        row: int,
        key: bytes,
        identity: str,
        origin: str,
        hops: int,
        record_key: bytes | None,
        body: bytes | None,
        timestamp: int,
        record_time: int,
        decision: Decision,
    ) -> OutputRecord:
        offset, facts = self._part.records.offsets[row], self._facts
        traced = self._traces[row] if self._traces else ""
        trace = f'"traceparent":"{traced}",' if traced else ""
        failed = self._failed_records[row] if self._failed_records else ""
        error = self._errors[row] if self._errors else ""
        times = ""
        if self._source.letters is not None:
            failed_at = (self._failures[row] if self._failures else 0) or timestamp
            if failed_at > 0:
                times = f'"failed_at":{min(failed_at, facts.now)},'
            record_time = record_time or (self._record_times[row] if self._record_times else 0)
            if 0 < record_time < LAST_TIME:
                times += f'"record_time":{record_time},'
        value = (
            f'{{"outcome":"{self._prefix}{offset}","message":"{identity}","origin":"{origin}",'
            f'{self._place}{offset},"size":{len(body) if body else 0},"hop":{hops},'
            f"{trace}{failed}{error}{times}{key_members(record_key)},{decision.members}}}"
        )
        return OutputRecord(facts.outcomes_topic, key, value.encode(), None, facts.now)


_OF_A_BATCH: Final = (Reason.MSG_TOO_BIG_FOR_Q, Reason.FORMAT_ERROR)
"""Reasons that the client may report for a whole produce batch because of one record."""

_ONE_BY_ONE: Final = 1_000
"""Maximum records to produce in batches of one, which takes some seconds on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceSettings:
    """Settings that all slices of one batch share."""

    outcomes_topic: str
    """The topic of outcome records."""
    now: int
    """Time of the attempts, in milliseconds."""
    late: int = 0
    """Milliseconds by which parked copies' timestamps may be too old, after the clock was set
    forward."""
    tables_topic: str = ""
    """The topic of definitions that puts discover."""
    discovered: frozenset[tuple[str, str, str]] = frozenset()
    """Definitions already on the topic."""
    breakers: Mapping[BreakerKey, OpenBreaker] = field(default_factory=dict)
    """The open breakers."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Kafka's ids of the topics that the run reads."""


class Slice:
    """Some records of some lanes; see ``redrive.checkpoints.protocol.TransactionInput``."""

    def __init__(
        self,
        parts: Sequence[PartitionRecords],
        decoder: DeadLetterDecoder,
        facts: Facts,
        settings: SliceSettings,
    ) -> None:
        """Take the records; nothing is decided yet.

        The parts of each lane are in offset order and not empty.
        """
        self._parts = tuple(parts)
        self._decoder = decoder
        self._facts = facts
        self._settings = settings
        self._committed: Mapping[TopicPartition, int | None] = {}
        self._ends: dict[TopicPartition, int] = {}
        for part in parts:
            # Only the end of a lane is committed, so no record may lie before an earlier part.
            assert self._ends.get(part.lane, 0) <= part.records.offsets[0]
            self._ends[part.lane] = part.records.offsets[-1] + 1
        self._context = SliceContext(
            facts,
            settings.outcomes_topic,
            settings.now,
            settings.late,
            tables_topic=settings.tables_topic,
            discovered=settings.discovered,
            breakers=SliceBreakers(settings.breakers, settings.now),
        )
        deciders = (part.decider for part in parts)
        self._breaking = {
            decider.identity.name: decider.guard.failures
            for decider in deciders
            if isinstance(decider, RulesDecider) and decider.guard is not None
        }
        """The failures that open a breaker, by handler."""
        self._outputs: list[Entry] = []
        self._blame_is_shared = False
        """Whether the client may have reported a refusal for innocent records too."""

    def __len__(self) -> int:
        return sum(len(part.records) for part in self._parts)

    def lanes(self) -> Sequence[TopicPartition]:
        """See ``TransactionInput.lanes``."""
        return list(self._ends)

    def resume(self, committed: Mapping[TopicPartition, int | None]) -> None:
        """See ``TransactionInput.resume``."""
        self._committed = committed
        # Here, so that the next attempt asks again. A topic's positions are deleted with it: only
        # the same id afterwards proves that they were not.
        self._facts.begin_slice(
            {lane.topic for lane in self._ends} & self._settings.topic_ids.keys()
        )

    def ends(self) -> Mapping[TopicPartition, int]:
        """See ``TransactionInput.ends``."""
        return {lane: end for lane, end in self._ends.items() if self._done(lane) < end}

    def decide(self) -> Questions:
        """See ``TransactionInput.decide``."""
        if outdated := self._facts.take_questions():
            return outdated
        self._check_topics()
        self._context.begin()
        self._outputs = list(self._decide_parts())
        # A breaker that opens here also holds back the messages of this slice, so they are decided
        # again. Nothing of the first decisions was written.
        if self._context.breakers.opens(self._breaking, self._context.decisions):
            self._context.begin()
            self._outputs = list(self._decide_parts())
        # One outcome for an input, and none for a tombstone: nothing is decided twice.
        assert self._context.decisions.total() <= self._undone()
        return self._facts.take_questions()

    @property
    def outputs(self) -> Sequence[Entry]:
        """See ``TransactionInput.outputs``."""
        return self._outputs

    @property
    def batch_limit(self) -> int:
        """See ``TransactionInput.batch_limit``."""
        if self._goes_one_by_one:
            return 1
        topics = {record.topic for entry, record in self._outputs if entry != INTERNAL}
        limits = (self._facts.topic(topic).max_message_bytes for topic in topics)
        return min(limits, default=1 << 62)

    @property
    def is_packed(self) -> bool:
        """See ``TransactionInput.is_packed``."""
        return bool(self._context.packed)

    @property
    def has_to_be_split(self) -> bool:
        """See ``TransactionInput.has_to_be_split``."""
        return self._facts.is_crowded or (self._blame_is_shared and not self._goes_one_by_one)

    @property
    def _goes_one_by_one(self) -> bool:
        return self._blame_is_shared and len(self) <= _ONE_BY_ONE

    def learn(self, answers: Answers) -> None:
        """See ``TransactionInput.learn``."""
        self._facts.learn(answers)

    def refuse(self, refused: Sequence[Refused], doubted: Iterable[str]) -> None:
        """See ``TransactionInput.refuse``.

        If one record is wrong, or all are too large together, the client reports the whole produce
        batch, innocent records included. Such a refusal only asks for the topic's settings again,
        and the records are sent again in smaller slices, in the end each in its own batch: then the
        answer names the culprit.
        """
        one_by_one = self._goes_one_by_one
        for refusal in refused:
            is_alone = one_by_one or refusal.entry in self._context.packed
            if refusal.reason in _OF_A_BATCH and not is_alone:
                self._blame_is_shared = True
            else:
                self._context.refused[refusal.entry] = refusal
        self._facts.doubt(doubted)

    def split(self) -> Sequence[Slice]:
        """See ``TransactionInput.split``."""
        if len(self) < 2:  # noqa: PLR2004 - one record is one record
            return ()
        half, first, second = len(self) // 2, [], []
        for part in self._parts:
            rows, half = half, max(0, half - len(part.records))
            if rows:
                first.append(replace(part, records=part.records.rows(0, rows)))
            if rows < len(part.records):
                second.append(replace(part, records=part.records.rows(rows, len(part.records))))
        halves = self._of(first), self._of(second)
        # Both are emitted instead of this slice, in this order, so each record lies in one of them.
        assert sum(map(len, halves)) == len(self)
        return halves

    def summary(self) -> SliceSummary:
        """Statistics of what was committed; valid once the slice is emitted."""
        breakers = self._context.breakers
        counts = breakers.counts(self._breaking, self._context.decisions)
        summary = SliceSummary(breakers=dict(counts), probed=set(breakers.probed))
        for decision, count in self._context.decisions.items():
            line = decision.rule.line if decision.rule else 0
            kind = OutcomeKind(decision.handler, line, decision.result.value, decision.reason)
            summary.inputs[kind] += count
            if decision.is_invalid:
                summary.invalid[decision.handler] += count
            if isinstance(decision, Put) and decision.is_round:
                summary.rounds[decision.handler, decision.attempt] += count
            if decision.is_worth_logging:
                failure = Failure(
                    decision.handler, line, decision.reason, str(decision.target), decision.detail
                )
                summary.failures[failure] += count
        for part in self._parts:
            summary.ages.note(part, self._done(part.lane), self._settings.now)
        return summary

    def _of(self, parts: Sequence[PartitionRecords]) -> Slice:
        part = Slice(parts, self._decoder, self._facts, self._settings)
        part._blame_is_shared = self._blame_is_shared
        return part

    def _undone(self) -> int:
        """The number of inputs that are not committed yet."""
        return sum(
            len(part.records) - bisect_left(part.records.offsets, self._done(part.lane))
            for part in self._parts
        )

    def _done(self, lane: TopicPartition) -> int:
        return self._committed.get(lane) or 0

    def _check_topics(self) -> None:
        """Checks that the records were read from the topics of this run, which still exist.

        Raises:
            RecreatedFault: One was deleted or recreated, so the records may be of another topic.
        """
        for name in sorted(self._settings.topic_ids.keys() & {lane.topic for lane in self._ends}):
            if self._facts.topic_ids.get(name) != self._settings.topic_ids[name]:
                raise RecreatedFault(
                    f"topic {name} was deleted or recreated while its records were read"
                )

    def _decide_parts(self) -> Iterator[Entry]:
        lanes: dict[TopicPartition, Lane] = {}
        base = 0
        for part in self._parts:
            lane = lanes.get(part.lane)
            if lane is None:
                lane = lanes[part.lane] = Lane(part, self._decoder, self._context)
            first = bisect_left(part.records.offsets, self._done(part.lane))
            yield from lane.outputs(part, base, first)
            base += len(part.records)

"""The outputs of a slice for the records of one lane: effects, waiting copies, outcomes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from redrive.engine import waiting
from redrive.engine.commands import Replay
from redrive.engine.context import Entry, SliceContext
from redrive.engine.deciders import Decided
from redrive.engine.decision import (
    Decision,
    Hold,
    Keep,
    Park,
    Skip,
    Suspend,
    Wait,
    with_detail,
    with_own_headers,
)
from redrive.engine.facts import NO_LIMIT, WaitingQuestion
from redrive.engine.held_keys import HeldKeys
from redrive.engine.message import Attempts, Message
from redrive.engine.ordering import KeyOrder, Place, Round
from redrive.engine.outcome import key_members
from redrive.engine.pointers import digest_of, error_messages, failed_records
from redrive.engine.profiles import rule_input
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.sources import (
    DeadLetterSource,
    Input,
    InstructionSource,
    PartitionRecords,
    SourceKind,
    source_of,
)
from redrive.messages import (
    INTERNAL,
    DeadLetterDecoder,
    DeadLetterProfile,
    OutputRecord,
    TopicPartition,
    wire_size,
)
from redrive.messages import own_headers as own
from redrive.messages.cuts import cut_sentence
from redrive.messages.trace_context import traceparents

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
            profiles = source.letters.profiles
            self._failed_records = failed_records(part.records, profiles)
            self._errors = error_messages(part.records, profiles)
        decider = part.decider
        if isinstance(decider, RulesDecider) and decider.held_keys is not None:
            return self._decide_in_key_order(decider, decider.held_keys, first)
        is_plain = not self._facts.refused
        if isinstance(source, DeadLetterSource) and source.is_fresh and is_plain:
            return self._write_prepared_puts(source, first)
        if isinstance(source, InstructionSource) and source.columns is not None and is_plain:
            return self._write_instructions(source, first)
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
        mine = own.read_own(self._part.records.headers[row])
        return bool(mine.behind) and self._part.counts(row, mine)

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
        triggers = self._facts.triggers
        if triggers.by_topic and decided.records:
            source = f"{self._prefix}{self._part.records.offsets[row]}"
            decided = triggers.follow(decided, self._base + row, source, self._facts)
        yield from decided.records
        yield from self._copies_and_outcome(row, decided.message, decided.decision)

    def _write_prepared_puts(self, source: DeadLetterSource, first: int) -> Iterator[Entry]:
        """Like ``_decide_rows``, for fresh dead letters, most of which have a prepared put."""
        decider, facts, records = source.decider, self._facts, self._part.records
        layout, prefix, base = source.layout, self._prefix, self._base
        decisions, prepared = facts.decisions, facts.cache.prepared_puts(decider, layout)
        since = NO_LIMIT if self._part.since is None else self._part.since
        for row, profile in enumerate(self._profiles(source, first), first):
            value, timestamp = records.values[row], records.timestamps[row]
            try:
                put = prepared[id(profile)]
            except KeyError:
                put = facts.cache.prepare(decider, profile, layout, facts)
                prepared[id(profile)] = put
            if (
                put is None
                or value is None
                or len(value) > put.room
                or not put.earliest <= timestamp <= put.latest
                or (put.may_lack_rounds and records.offsets[row] >= since)
            ):
                yield from self._outputs_of(row)
                continue
            here, key = f"{prefix}{records.offsets[row]}", records.keys[row]
            identity = here.encode("ascii")
            written = put.written(key, value, records.headers[row], timestamp, identity)
            if written is None:
                yield from self._outputs_of(row)
                continue
            record, decision = written
            yield base + row, record
            decisions[decision] += 1
            if put.is_counted_by_body:
                digest = digest_of(key, record.value)
                decision = with_own_headers(decision, digest, record.headers or [])
            yield INTERNAL, self._outcome(row, identity, here, here, 0, key, value, decision)

    def _write_instructions(self, source: InstructionSource, first: int) -> Iterator[Entry]:
        """Like ``_decide_rows``, for instructions, most of which have a prepared put."""
        for row, profile in enumerate(self._profiles(source.letters, first), first):
            put = source.prepared_put(row, profile)
            message = None if put is None else source.plain(row, put.hops)
            written = None if put is None or message is None else put.put(message)
            if put is None or message is None or written is None:
                yield from self._outputs_of(row)
                continue
            self._facts.replayed.add(message.origin)
            record, decision = written
            yield self._base + row, record
            if put.is_counted_by_body:
                digest = digest_of(record.key, record.value)
                decision = with_own_headers(decision, digest, record.headers or [])
            yield from self._copies_and_outcome(row, message, decision)

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
            yield INTERNAL, self._tombstone(message)
        self._facts.decisions[decision] += 1
        identity = message.identity.encode("ascii")
        outcome = self._outcome(
            row, identity, message.identity, message.origin, message.hops, message.key,
            message.value, decision,
        )  # fmt: skip
        yield INTERNAL, outcome

    def _fit(self, message: Message, decision: Park | Keep) -> tuple[Message, Park | Keep]:
        """A message cut to fit its topic as a copy, and its decision, which notes the cut."""
        if message.cut or wire_size(message.key, message.value, message.headers) <= _SURELY_TAKEN:
            return message, decision
        topic = self._waiting_place(message, decision).topic
        fitted = waiting.fit(message, self._facts.facts.topic(topic).max_message_bytes)
        if not fitted.cut:
            return message, decision
        return fitted, with_detail(decision, cut_sentence(fitted.cut, message.origin))

    def _copy(self, row: int, message: Message, decision: Park | Keep) -> OutputRecord:
        make = waiting.parked if isinstance(decision, Park) else waiting.remaining
        if isinstance(decision, Hold):
            make = partial(waiting.parked, behind=decision.behind)
        place = self._waiting_place(message, decision)
        return make(
            message,
            topic=place.topic,
            partition=place.partition,
            table=self._part.decider.table_id,
            attempts=decision.attempts,
            now=self._stamp(row, message, decision, place),
        )

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

    def _tombstone(self, message: Message) -> OutputRecord:
        topic = self._part.decider.identity.remaining_topic
        return waiting.tombstone(
            message.origin, topic=topic, partition=self._part.lane.partition, now=self._facts.now
        )

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
        decision: Decision,
    ) -> OutputRecord:
        offset, facts = self._part.records.offsets[row], self._facts
        traced = self._traces[row] if self._traces else ""
        trace = f'"traceparent":"{traced}",' if traced else ""
        failed = self._failed_records[row] if self._failed_records else ""
        error = self._errors[row] if self._errors else ""
        value = (
            f'{{"outcome":"{self._prefix}{offset}","message":"{identity}","origin":"{origin}",'
            f'{self._place}{offset},"size":{len(body) if body else 0},"hop":{hops},'
            f"{trace}{failed}{error}{key_members(record_key)},{decision.members}}}"
        )
        return OutputRecord(facts.outcomes_topic, key, value.encode(), None, facts.now)

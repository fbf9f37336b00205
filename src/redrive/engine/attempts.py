"""One attempt on every dead letter of a lane: what to write, and how a refusal changes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from redrive.engine import waiting
from redrive.engine.deliveries import Delivery
from redrive.engine.facts import Gone
from redrive.engine.handlers import NO_PAYLOAD
from redrive.engine.known_plans import KnownPlans
from redrive.engine.outcome import Result
from redrive.engine.plans import with_detail
from redrive.engine.pointers import original_of, restored
from redrive.engine.processor import (
    HEADROOM,
    Entry,
    PartitionProcessor,
    PartitionRecords,
    SliceContext,
    SourceKind,
)
from redrive.engine.waiting import NONE_YET, Progress
from redrive.messages import (
    INTERNAL,
    OutputRecord,
    TopicPartition,
    decode_dead_letter,
    original_key,
    remove_header,
    without_stacks,
)
from redrive.messages import own_headers as own
from redrive.rules.backoff import jitter_of
from redrive.rules.fields import RuleInput

if TYPE_CHECKING:
    from redrive.engine.handlers import Handler
    from redrive.engine.plans import Plan
    from redrive.messages.dead_letters import DeadLetterDecoder, DeadLetterProfile
    from redrive.topology.put import Destination


_COPIES: Final = (SourceKind.REMAINING, SourceKind.REPLAYS)
"""Roles of topics whose records are remaining copies."""


class DeadLetterProcessor(PartitionProcessor):
    """The attempts on the records of one lane.

    The common case, a fresh dead letter that goes to a queue without limits, takes a prepared
    ``Delivery``; every other record is read, decided and checked by itself.
    """

    def __init__(
        self,
        part: PartitionRecords,
        handler: Handler,
        decoder: DeadLetterDecoder,
        context: SliceContext,
    ) -> None:
        """Take the lane; nothing is decided yet.

        Args:
            part: Some records of the lane.
            handler: Decides about its dead letters.
            decoder: Reads dead-letter headers.
            context: What all lanes of the slice share.
        """
        super().__init__(part, context)
        self._handler = handler
        self._decoder = decoder
        self._profiles: list[DeadLetterProfile] = []
        self._letters: list[DeadLetterProfile] = []
        self._plans = KnownPlans(handler)
        self._deliveries: dict[tuple[str, ...], dict[int, Delivery | None]] = {}
        self._mine = own.OwnHeadersReader((), ())
        """What Redrive has said of the messages of the rows."""

    def _rows(self, first: int) -> Iterator[Entry]:
        names, is_fresh = self._look_at_headers()
        is_quick = is_fresh and not self._context.refused
        self._letters = self._as_the_table_sees(first if is_quick else len(self._part.records))
        return self._quick_rows(first, names) if is_quick else super()._rows(first)

    def _look_at_headers(self) -> tuple[tuple[str, ...], bool]:
        """Find the profiles of the rows; the headers that all have, and whether all are fresh."""
        part = self._part
        codes, profiles = self._decoder.decode(part.records)
        self._profiles = [profiles[code] for code in codes.tolist()]
        grid = part.records.grid
        names = None if grid is None else grid.layout
        self._mine = own.OwnHeadersReader(part.records.headers, names)
        return names or (), part.kind is SourceKind.DEAD_LETTERS and not self._mine.finds_some

    def _as_the_table_sees(self, first: int) -> list[DeadLetterProfile]:
        """The dead letter of each row from ``first``, good enough for an attempt that succeeds."""
        letters, records, now = self._handler.letters, self._part.records, self._context.now
        if letters is None:
            return self._profiles
        if not letters.is_varied:
            return [*map(letters.shared, self._profiles)]
        rows = zip(
            self._profiles[first:],
            records.keys[first:],
            records.values[first:],
            records.headers[first:],
            records.timestamps[first:],
            strict=True,
        )
        return self._profiles[:first] + [
            letters.first(profile, RuleInput(key, value, headers, timestamp, now))
            for profile, key, value, headers, timestamp in rows
        ]

    def _quick_rows(self, first: int, layout: tuple[str, ...]) -> Iterator[Entry]:
        plans, prefix, records = self._context.plans, self._prefix, self._part.records
        base = self._base
        deliveries = self._deliveries.setdefault(layout, {})
        for row in range(first, len(records)):
            letter, value = self._letters[row], records.values[row]
            try:
                delivery = deliveries[id(letter)]
            except KeyError:
                delivery = deliveries[id(letter)] = self._prepare(letter, layout)
            timestamp = records.timestamps[row]
            if (
                delivery is None
                or value is None
                or len(value) > delivery.room
                or not delivery.earliest <= timestamp <= delivery.latest
            ):
                yield from self._outputs_of(row)
                continue
            here, key = f"{prefix}{records.offsets[row]}", records.keys[row]
            identity = here.encode("ascii")
            headers = delivery.headers(records.headers[row], identity)
            body = value[delivery.cut :]
            put = OutputRecord(delivery.topic, key, body, headers, timestamp, delivery.partition)
            yield base + row, put
            plans[delivery.plan] += 1
            yield (
                INTERNAL,
                self._outcome(row, identity, here, here, 0, key, value, delivery.plan),
            )

    def _outputs_of(self, row: int) -> Iterator[Entry]:
        part = self._part
        if part.kind is SourceKind.REMAINING and self._is_gone(row):
            return
        record, _, plan, put = self._attempted(row)
        if put is not None:
            yield self._base + row, put
        yield from self._settled(row, record, plan)

    def _attempted(
        self, row: int
    ) -> tuple[waiting.DeadLetterRecord, DeadLetterProfile, Plan, OutputRecord | None]:
        """What a row holds, what is to become of it, and what to put for that if anything."""
        record, progress = self._read(row)
        whole = restored(record, self._context.facts)
        if not isinstance(whole, Gone):
            record = whole
        letter = self._whole(row, record)
        plan = self._decide(row, record, letter, progress)
        if isinstance(whole, Gone) and plan.destination is not None:
            return record, letter, self._without(letter, plan, whole), None
        if isinstance(whole, Gone) and plan.result is Result.REMAINS:
            plan = with_detail(plan, whole.detail)
        if plan.destination is None:
            return record, letter, plan, None
        put, plan = self._tried(self._base + row, record, letter, plan)
        return record, letter, plan, put

    def _tried(
        self, entry: int, record: waiting.DeadLetterRecord, letter: DeadLetterProfile, plan: Plan
    ) -> tuple[OutputRecord | None, Plan]:
        """The put of a plan, or None with the plan that follows because it can't be made."""
        if letter.view.pointer:
            found = original_of(record, self._handler.schemes, self._context.facts)
            if isinstance(found, Gone):
                return None, self._without(letter, plan, found)
            if found.hops > record.hops:
                plan = self._plan_for(found, letter, plan.progress)
            record = found
        destination = plan.destination
        if destination is None:
            return None, plan
        partition = self._partition(plan, destination)
        put = _put_of(record, letter, plan, destination.topic, partition)
        persistence = int(letter.fields.get("PERSIST", 0))
        problem = self._context.refused.get(entry) or self._check(
            entry, put, persistence, destination
        )
        return (
            (put, plan)
            if problem is None
            else (None, self._plans.after(letter, plan, problem.reason, problem.detail))
        )

    def _without(self, letter: DeadLetterProfile, plan: Plan, gone: Gone) -> Plan:
        """What follows when what a plan puts is not to be had."""
        if gone.may_come:
            return self._plans.after(letter, plan, NO_PAYLOAD, gone.detail)
        return self._handler.without_payload(letter, plan, gone.detail)

    def _decide(
        self,
        row: int,
        record: waiting.DeadLetterRecord,
        letter: DeadLetterProfile,
        progress: Progress,
    ) -> Plan:
        """What is to become of the dead letter of a row."""
        del row  # what decides is the dead letter, wherever it was read
        return self._plan_for(record, letter, progress)

    def _is_gone(self, row: int) -> bool:
        """Whether a record of a remaining topic is no copy, or one that was replayed since."""
        part = self._part
        if part.records.values[row] is None:
            return True  # a tombstone
        if not part.may_be_gone:
            return False
        copies = self._context.facts.copies(part.lane)
        key = part.records.keys[row] or b""
        return copies is not None and copies.get(key) != part.records.offsets[row]

    def _whole(self, row: int, record: waiting.DeadLetterRecord) -> DeadLetterProfile:
        """The dead letter of a row, with all that may be asked after a failed attempt too."""
        letters, profile = self._handler.letters, self._profiles[row]
        if self._mine.own(row).cut and not record.cut:
            profile = decode_dead_letter(
                record.value, record.headers, key=record.key, schemes=self._handler.schemes
            )
        elif letters is None or not letters.is_varied:
            return self._letters[row]
        if letters is None:
            return profile
        seen = RuleInput(
            record.key, record.value, record.headers, record.timestamp, self._context.now
        )
        return letters.whole(profile, seen)

    def _prepare(self, letter: DeadLetterProfile, layout: tuple[str, ...]) -> Delivery | None:
        """The delivery of a kind of dead letter; None where it takes a closer look."""
        plan = self._plans.plan(letter, NONE_YET, 0)
        if plan.destination is None or plan.destination.is_choice:
            return None
        longest = plan.destination.limits.longest
        facts = self._context.facts.topic(plan.destination.topic)
        if longest is None or facts.wants_keys or facts.silent or letter.is_wrapped:
            return None
        room = facts.max_message_bytes - HEADROOM
        timestamps = facts.timestamps(self._context.now)
        partition = self._partition(plan, plan.destination)
        return Delivery(plan, letter, layout, min(room, longest), timestamps, partition=partition)

    def _plan_for(
        self, record: waiting.DeadLetterRecord, letter: DeadLetterProfile, progress: Progress
    ) -> Plan:
        """The plan for one dead letter: what the table says of it."""
        return self._plans.plan_for(record, letter, progress)

    def _read(self, row: int) -> tuple[waiting.DeadLetterRecord, Progress]:
        """The dead letter of a row, and how far the handler's table has come with it."""
        part, records = self._part, self._part.records
        here = f"{self._prefix}{records.offsets[row]}"
        key, value, headers = records.keys[row], records.values[row], records.headers[row]
        timestamp = records.timestamps[row]
        mine = self._mine.own(row)
        if mine is own.NO_OWN_HEADERS:
            return waiting.DeadLetterRecord(key, value, headers, timestamp, here, here, 0), NONE_YET
        headers = self._mine.others(row)
        if part.kind is SourceKind.DEAD_LETTERS:
            identity = mine.identity or here
            letter = waiting.DeadLetterRecord(
                key, value, headers, timestamp, identity, here, mine.hops
            )
            return letter, self._progress(row, mine)
        if part.kind in _COPIES:
            key, value = mine.key, None if mine.is_null else value
        letter = waiting.taken_back(key, value, headers, timestamp=timestamp, mine=mine, here=here)
        return letter, self._progress(row, mine)

    def _progress(self, row: int, mine: own.OwnHeaders) -> Progress:
        """How far the handler's table has come with a dead letter that says this of itself."""
        if self._part.kind is SourceKind.DEAD_LETTERS:
            return NONE_YET
        if not self._part.counts_go_on(row, mine, self._handler.table_id):
            return Progress(0, (), mine.is_quarantined)
        return Progress(mine.failures, mine.failed, mine.is_quarantined)

    def _waiting_place(self, record: waiting.DeadLetterRecord, plan: Plan) -> TopicPartition:
        """As for any source; with a BACKOFF, where messages wait as long as this one has to."""
        if plan.delay is None:
            return super()._waiting_place(record, plan)
        partition = self._handler.table.backoff_partitions.partition(
            self._part.home, plan.delay, jitter_of(record.identity, plan.progress.failures)
        )
        return TopicPartition(self._handler.identity.backoff_topic, partition)

    def _partition(self, plan: Plan, destination: Destination) -> int:
        """The partition to put to: the original one while the topic still has it, else by key."""
        known = self._context.facts.topic(destination.topic).partitions
        return plan.partition if plan.partition < known else -1


def _put_of(
    record: waiting.DeadLetterRecord,
    letter: DeadLetterProfile,
    plan: Plan,
    topic: str,
    partition: int,
) -> OutputRecord:
    """The record that a plan puts."""
    key, value, headers = record.key, record.value, record.headers
    if plan.strip:
        key = original_key(letter, key, headers)
        value, headers = remove_header(letter, value, headers)
    else:
        headers = without_stacks(letter, headers)
    headers = [
        *headers,
        (own.ID, record.identity.encode("ascii")),
        *plan.headers,
        (own.HOPS, own.number(record.hops + 1)),
    ]
    return OutputRecord(topic, key, value, headers, record.timestamp, partition)

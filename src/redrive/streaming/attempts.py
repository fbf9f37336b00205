"""One attempt on every record of some lanes: what to write, and how a refusal changes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from redrive.checkpoints import headers as own
from redrive.checkpoints import waiting
from redrive.checkpoints.protocol import INTERNAL, Lane, OutputRecord, Refused
from redrive.messages import Records, remove_header, wire_size
from redrive.streaming.outcomes import Result, json_key
from redrive.topology.put import check_limits
from redrive.topology.reasons import Reason

if TYPE_CHECKING:
    from redrive.messages.dead_letters import DeadLetter, DeadLetterDecoder
    from redrive.streaming.handlers import Handler, Plan
    from redrive.topology.put import Destination, QueueLimits

HEADROOM = 16 * 1024
"""Bytes left for headers when a body is compared with a topic's limit without counting them."""


class Role(StrEnum):
    """What a source topic is to its handler."""

    DEAD_LETTERS = "dead letters"
    RETRIES = "retries"
    REMAINING = "remaining"


class Queues(Protocol):
    """What a put has to know about queues at this moment."""

    def max_message_bytes(self, topic: str) -> int:
        """The largest record the topic takes, in bytes."""

    def depth(self, topic: str, limits: QueueLimits) -> int | None:
        """Messages on the queue now; None when nothing says how many."""


@dataclass(slots=True)
class LaneRecords:
    """The records of one lane, with the handler they belong to."""

    lane: Lane
    handler: Handler
    role: Role
    records: Records
    end: int
    """The next offset to read once these records are done."""
    has_own_headers: bool = True
    """False if no record of the lane carries a header of Redrive's: the common, quick case."""
    first: int = 0
    """Row of the first record that is still to do."""


class Failure(NamedTuple):
    """A failed attempt that deserves a line in the log, in the spirit of AMQ8722."""

    handler: str
    rule_line: int
    reason: int
    target: str
    detail: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What a committed work did."""

    results: Mapping[tuple[str, int, str], int]
    """Inputs by handler, rule line and result."""
    failures: Mapping[Failure, int]
    """Failed attempts worth reporting, with their number."""
    invalid: int
    """Inputs without a valid dead-letter header."""


class Attempts:
    """The work of one transaction: one attempt on every record of its lanes.

    Decisions are made while the outputs are produced, and made again alike when the transaction
    has to be redone; only a refusal changes the plan of its own record.
    """

    def __init__(
        self,
        lanes: Sequence[LaneRecords],
        decoder: DeadLetterDecoder,
        queues: Queues,
        *,
        outcomes_topic: str,
        now: int,
    ) -> None:
        """Take the records; nothing is decided yet.

        Args:
            lanes: The records to try, each lane in offset order.
            decoder: Reads dead-letter headers.
            queues: Limits and depths.
            outcomes_topic: Where outcome records go.
            now: Time of the attempts, in milliseconds.
        """
        self._lanes = lanes
        self._decoder = decoder
        self._queues = queues
        self._outcomes_topic = outcomes_topic
        self._now = now
        self._refused: dict[int, Refused] = {}
        self._depths: dict[str, int] = {}
        self._plans: Counter[Plan] = Counter()
        self._letters: dict[int, list[DeadLetter]] = {}

    def lanes(self) -> Sequence[Lane]:
        """See ``protocol.Work.lanes``."""
        return [part.lane for part in self._lanes]

    def resume(self, committed: Mapping[Lane, int | None]) -> None:
        """See ``protocol.Work.resume``."""
        for part in self._lanes:
            done = committed.get(part.lane)
            if done is not None:
                offsets = part.records.offsets
                while part.first < len(offsets) and offsets[part.first] < done:
                    part.first += 1
                if part.end <= done:
                    part.first, part.end = len(offsets), -1

    def ends(self) -> Mapping[Lane, int]:
        """See ``protocol.Work.ends``."""
        return {part.lane: part.end for part in self._lanes if part.end >= 0}

    def refuse(self, refusals: Sequence[Refused]) -> None:
        """See ``protocol.Work.refuse``."""
        for refusal in refusals:
            self._refused[refusal.entry] = refusal

    def outputs(self) -> Iterator[tuple[int, OutputRecord]]:
        """See ``protocol.Work.outputs``."""
        self._depths.clear()
        self._plans.clear()
        base = 0
        for number, part in enumerate(self._lanes):
            yield from self._lane_outputs(part, self._letters_of(number, part), base)
            base += len(part.records.offsets)

    def summary(self) -> Summary:
        """What was committed; to be asked once the work is emitted."""
        results: Counter[tuple[str, int, str]] = Counter()
        failures: Counter[Failure] = Counter()
        invalid = 0
        for plan, count in self._plans.items():
            line = plan.rule.line if plan.rule else 0
            results[plan.handler, line, plan.result.value] += count
            invalid += count if plan.is_invalid else 0
            if plan.news:
                target = f"{plan.queue}@{plan.queue_manager}" if plan.queue_manager else plan.queue
                failure = Failure(plan.handler, line, plan.reason, target, plan.detail)
                failures[failure] += count
        return Summary(results, failures, invalid)

    def _letters_of(self, number: int, part: LaneRecords) -> list[DeadLetter]:
        letters = self._letters.get(number)
        if letters is None:
            codes, profiles = self._decoder.decode(part.records)
            letters = [profiles[code] for code in codes.tolist()]
            self._letters[number] = letters
        return letters

    def _lane_outputs(
        self, part: LaneRecords, letters: Sequence[DeadLetter], base: int
    ) -> Iterator[tuple[int, OutputRecord]]:
        plans: dict[tuple[int, int, int], Plan] = {}
        prefix = f"{part.lane}:"
        for row in range(part.first, len(letters)):
            if part.role is Role.REMAINING and part.records.values[row] is None:
                continue  # a tombstone: the message went elsewhere long ago
            letter = letters[row]
            entry = base + row
            record, failures = self._read(part, row, prefix)
            key = (id(letter), failures, record.hops)
            plan = plans.get(key)
            if plan is None:
                plan = plans[key] = part.handler.plan(letter, failures, record.hops)
            yield from self._attempt(part, entry, record, letter, plan, row)

    def _attempt(
        self,
        part: LaneRecords,
        entry: int,
        record: waiting.DeadLetterRecord,
        letter: DeadLetter,
        plan: Plan,
        row: int,
    ) -> Iterator[tuple[int, OutputRecord]]:
        if plan.destination is not None:
            put, problem = self._put(entry, record, letter, plan, plan.destination)
            if problem is None:
                yield entry, put
            else:
                plan = part.handler.failed(letter, plan, problem.reason, problem.detail)
        yield from self._stay(part, record, plan)
        self._plans[plan] += 1
        yield INTERNAL, self._outcome(part, record, plan, row)

    def _put(
        self,
        entry: int,
        record: waiting.DeadLetterRecord,
        letter: DeadLetter,
        plan: Plan,
        destination: Destination,
    ) -> tuple[OutputRecord, Refused | None]:
        value, headers = record.value, record.headers
        if plan.strip:
            value, headers = remove_header(letter, value, headers)
        headers = [
            *headers,
            (own.ID, record.identity.encode("ascii")),
            *plan.headers,
            (own.HOPS, own.number(record.hops + 1)),
        ]
        put = OutputRecord(destination.topic, record.key, value, headers, record.timestamp)
        problem = self._refused.get(entry) or self._check(entry, put, letter, destination)
        return put, problem

    def _check(
        self, entry: int, put: OutputRecord, letter: DeadLetter, destination: Destination
    ) -> Refused | None:
        limits, topic = destination.limits, destination.topic
        length = len(put.value or b"")
        depth = self._depth(topic, limits) if limits.max_depth is not None else None
        persistence = letter.fields.get("PERSIST", 0)
        refusal = check_limits(limits, length, depth, int(persistence))
        if refusal is not None:
            return Refused(entry, refusal.reason, refusal.detail)
        most = self._queues.max_message_bytes(topic)
        if length + HEADROOM > most:
            size = wire_size(put.key, put.value, put.headers or [])
            if size > most:
                detail = f"{size} bytes are more than the {most} that topic {topic} takes"
                return Refused(entry, Reason.MSG_TOO_BIG_FOR_Q, detail)
        if depth is not None:
            self._depths[topic] = depth + 1
        return None

    def _depth(self, topic: str, limits: QueueLimits) -> int | None:
        depth = self._depths.get(topic)
        return self._queues.depth(topic, limits) if depth is None else depth

    def _stay(
        self, part: LaneRecords, record: waiting.DeadLetterRecord, plan: Plan
    ) -> Iterator[tuple[int, OutputRecord]]:
        handler, partition = part.handler, part.lane.partition
        if plan.result is Result.PARKED:
            yield (
                INTERNAL,
                self._copy(waiting.parked, handler.identity.retry_topic, part, record, plan),
            )
        elif plan.result is Result.REMAINS:
            topic = handler.identity.remaining_topic
            yield INTERNAL, self._copy(waiting.remaining, topic, part, record, plan)
        if part.role is Role.REMAINING and plan.result is not Result.REMAINS:
            topic = handler.identity.remaining_topic
            gone = waiting.tombstone(record.origin, topic=topic, partition=partition, now=self._now)
            yield INTERNAL, gone

    def _copy(
        self,
        make: Callable[..., OutputRecord],
        topic: str,
        part: LaneRecords,
        record: waiting.DeadLetterRecord,
        plan: Plan,
    ) -> OutputRecord:
        return make(
            record,
            topic=topic,
            partition=part.lane.partition,
            failures=plan.failures,
            table=part.handler.table_id,
            now=self._now,
        )

    def _outcome(
        self, part: LaneRecords, record: waiting.DeadLetterRecord, plan: Plan, row: int
    ) -> OutputRecord:
        offset = part.records.offsets[row]
        value = (
            f'{{"outcome":"{part.lane}:{offset}","message":"{record.identity}",'
            f'"origin":"{record.origin}","topic":"{part.lane.topic}",'
            f'"partition":{part.lane.partition},"offset":{offset},"time":{self._now},'
            f'"size":{len(record.value or b"")},"hop":{record.hops},'
            f'"key":{json_key(record.key)},{plan.members}}}'
        )
        key = record.identity.encode("ascii")
        return OutputRecord(self._outcomes_topic, key, value.encode(), None, self._now)

    @staticmethod
    def _read(part: LaneRecords, row: int, prefix: str) -> tuple[waiting.DeadLetterRecord, int]:
        """The dead letter of a row, and how often it failed under the handler's table."""
        records = part.records
        here = f"{prefix}{records.offsets[row]}"
        key, value, headers = records.keys[row], records.values[row], records.headers[row]
        timestamp = records.timestamps[row]
        mine = own.read_own(headers) if part.has_own_headers else own.NO_OWN_HEADERS
        if mine is own.NO_OWN_HEADERS:
            return waiting.DeadLetterRecord(key, value, headers, timestamp, here, here, 0), 0
        headers = own.without_own(headers)
        if part.role is Role.DEAD_LETTERS:
            identity = mine.identity or here
            letter = waiting.DeadLetterRecord(
                key, value, headers, timestamp, identity, here, mine.hops
            )
            return letter, 0
        if part.role is Role.REMAINING:
            key, value = mine.key, None if mine.is_null else value
        letter = waiting.taken_back(key, value, headers, timestamp=timestamp, mine=mine, here=here)
        return letter, mine.failures if mine.table == part.handler.table_id else 0

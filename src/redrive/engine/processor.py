"""What deciding about the records of any partition has in common: limits, copies, outcomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from redrive.engine import waiting
from redrive.engine.facts import DepthQuestion, Facts, TopicFacts
from redrive.engine.outcome import UNTOUCHED, Result, key_members
from redrive.engine.plans import with_detail
from redrive.messages import (
    INTERNAL,
    OutputRecord,
    Records,
    Refused,
    TopicPartition,
    body_length,
    wire_size,
)
from redrive.messages.cuts import cut_sentence
from redrive.messages.own_headers import OwnHeaders, name_in_identities
from redrive.messages.reasons import Reason
from redrive.messages.trace_context import traceparents
from redrive.rules.backoff import PARTITIONS
from redrive.topology.put import check_limits

if TYPE_CHECKING:
    from redrive.engine.ages import Ages
    from redrive.engine.handlers import Handler
    from redrive.engine.plans import Plan
    from redrive.engine.routers import Router
    from redrive.topology.put import Destination, QueueLimits

HEADROOM = 16 * 1024
"""Bytes left for headers when a body is compared with a topic's limit without counting them."""


class SourceKind(StrEnum):
    """What a source topic is to its handler or router."""

    DEAD_LETTERS = "dead letters"
    RETRIES = "retries"
    REMAINING = "remaining"
    REPLAYS = "replays"
    """Instructions to do something with what remains, each with the copy that it is about."""
    PUTS = "puts"
    """An intake or a transmission queue."""
    UNDELIVERED = "undelivered"
    """What a queue manager could put nowhere, and kept."""


Entry: TypeAlias = tuple[int, OutputRecord]
"""A record to write, with the number that a refusal of it will carry."""

_SURELY_TAKEN = 512 * 1024
"""Bytes that a topic of Redrive's own takes whatever its settings."""
_ROOM_FOR_A_NAME = 64
"""Bytes taken for the name of a header where its length is not looked at."""
_KEPT = (SourceKind.REMAINING, SourceKind.UNDELIVERED, SourceKind.REPLAYS)
"""Roles of topics whose messages have a copy on a compacted topic, from which it goes once the
message went elsewhere."""


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    """Some records of one lane, in offset order, with what decides about them."""

    lane: TopicPartition
    handler: Handler | Router
    kind: SourceKind
    records: Records
    incarnation: int = 1
    """How many topics of the lane's name there were, this one included (design 6.13)."""
    may_be_gone: bool = False
    """Whether remaining copies of the lane may have been replayed: a tombstone follows them."""
    released: int = 0
    """Offset below which copies were written before the table changed: their counts begin again,
    also where the table is one that has counted before."""

    @property
    def home(self) -> int:
        """The partition of the source that the records came from first, and belong to."""
        is_delayed = self.lane.topic == self.handler.identity.backoff_topic
        return self.lane.partition // PARTITIONS if is_delayed else self.lane.partition

    @property
    def prefix(self) -> str:
        """What the identity of every record of the lane begins with (design 6.13)."""
        name = name_in_identities(self.lane.topic, self.incarnation)
        return f"{name}:{self.lane.partition}:"

    def counts_go_on(self, row: int, mine: OwnHeaders, table: str) -> bool:
        """Whether the attempts that a copy tells of count for the table that decides now."""
        return mine.table == table and self.records.offsets[row] >= self.released


_STAYS = frozenset({Result.REMAINS, *UNTOUCHED})
"""Results after which there is still a remaining copy, or none to take away."""


class Failure(NamedTuple):
    """A failed attempt that deserves a line in the log, in the spirit of AMQ8722."""

    handler: str
    rule_line: int
    reason: int
    target: str
    detail: str


class OutcomeKind(NamedTuple):
    """What inputs are counted by."""

    handler: str
    rule_line: int
    """Line of the rule; 0 for none."""
    result: str
    reason: int
    """Why the attempt failed, or 0."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a committed slice did."""

    inputs: Mapping[OutcomeKind, int]
    """Inputs by what became of them."""
    failures: Mapping[Failure, int]
    """Failed attempts worth reporting, with their number."""
    invalid: int
    """Inputs without a valid dead-letter header."""
    ages: Ages
    """How old they were, and how late retries came."""


@dataclass(slots=True)
class SliceContext:
    """What the decisions about all records of one slice share."""

    facts: Facts
    outcomes_topic: str
    now: int
    """Time of the attempts, in milliseconds."""
    late: int = 0
    """See ``SliceSettings.late``."""
    refused: dict[int, Refused] = field(default_factory=dict)
    """Refusals by entry."""
    puts: Counter[str] = field(default_factory=Counter)
    """Puts of this slice on queues whose depth has a limit, by topic."""
    plans: Counter[Plan] = field(default_factory=Counter)
    """How many inputs each plan was carried out for."""
    replayed: set[str] = field(default_factory=set)
    """Origins that an instruction of this slice was carried out for."""
    tables_topic: str = ""
    """Where definitions that puts discover are kept."""
    discovered: set[tuple[str, str, str]] = field(default_factory=set)
    """Definitions that are kept there already."""


def _problem(put: OutputRecord, facts: TopicFacts, now: int) -> tuple[int, str] | None:
    """Reason and detail of a put that the broker would refuse; None if it would not."""
    if facts.silent:
        return Reason.RESOURCE_PROBLEM, f"topic {put.topic} takes nothing now: {facts.silent}"
    if facts.wants_keys and put.key is None:
        detail = f"topic {put.topic} is compacted and takes no record without a key"
        return Reason.FORMAT_ERROR, detail
    earliest, latest = facts.timestamps(now)
    if put.timestamp > 0 and not earliest <= put.timestamp <= latest:
        detail = f"topic {put.topic} takes no record with a timestamp of {put.timestamp}"
        return Reason.FORMAT_ERROR, detail
    most = facts.max_message_bytes
    size = wire_size(put.key, put.value, put.headers or []) if _is_large(put, most) else 0
    if size > most:
        detail = f"{size} bytes are more than the {most} that topic {put.topic} takes"
        return Reason.MSG_TOO_BIG_FOR_Q, detail
    return None


def _is_large(put: OutputRecord, most: int) -> bool:
    """Whether a record's exact size has to be known to tell that it is within a limit."""
    headers = put.headers or ()
    rough = body_length(put.key) + body_length(put.value) + _ROOM_FOR_A_NAME * len(headers)
    return 2 * (rough + sum([len(raw) for _, raw in headers if raw])) > most


class PartitionProcessor(ABC):
    """Decides about the records of one lane; the kinds of sources add how.

    A lane's records come part by part. What was found out for one part is kept for the next.
    """

    def __init__(self, part: PartitionRecords, context: SliceContext) -> None:
        """Take the lane; nothing is decided yet.

        Args:
            part: Some records of the lane.
            context: What all lanes of the slice share.
        """
        self._part = part
        self._context = context
        self._base = 0
        self._traces: Sequence[str] | None = None
        lane = part.lane
        self._prefix = part.prefix
        self._source = (
            f'"topic":"{lane.topic}","incarnation":{part.incarnation},'
            f'"partition":{lane.partition},"time":{context.now},"offset":'
        )

    def outputs(self, part: PartitionRecords, base: int, first: int) -> Iterator[Entry]:
        """The records to write for some records of the lane.

        Args:
            part: The records; those of an earlier call are done with.
            base: Entry number of the first of them.
            first: Row of the first that is still to do.
        """
        self._part, self._base = part, base
        self._traces = traceparents(part.records)
        return self._rows(first)

    def _rows(self, first: int) -> Iterator[Entry]:
        for row in range(first, len(self._part.records)):
            yield from self._outputs_of(row)

    @abstractmethod
    def _outputs_of(self, row: int) -> Iterator[Entry]:
        """The records to write for one row."""

    def _check(
        self, entry: int, put: OutputRecord, persistence: int, destination: Destination
    ) -> Refused | None:
        """Refuses what the queue's limits or the topic's would refuse; counts the put if not."""
        context, limits, topic = self._context, destination.limits, destination.topic
        depth = self._depth(topic, limits)
        refusal = check_limits(limits, body_length(put.value), depth, persistence)
        if refusal is not None:
            return Refused(entry, refusal.reason, refusal.detail)
        problem = _problem(put, context.facts.topic(topic), context.now)
        if problem is not None:
            return Refused(entry, *problem)
        if depth is not None:
            context.puts[topic] += 1
        return None

    def _depth(self, topic: str, limits: QueueLimits) -> int | None:
        """Messages on a queue that can be full; None for any other (design 4)."""
        if limits.max_depth is None or not limits.consumer_group:
            return None
        facts, puts = self._context.facts, self._context.puts[topic]
        question = DepthQuestion(topic, limits.consumer_group, limits.max_depth)
        depth = facts.depth(question)
        if 0 < depth < limits.max_depth <= depth + puts:
            # Below the limit offsets were counted, markers and aborted records among them. With the
            # puts of this slice it is reached, so the messages themselves have to be counted.
            depth = facts.depth(question._replace(limit=depth))
        return depth + puts

    def _settled(self, row: int, record: waiting.DeadLetterRecord, plan: Plan) -> Iterator[Entry]:
        """What is written whatever was decided: what stays with the handler, and the outcome."""
        kept = record
        if plan.result is Result.PARKED or plan.result is Result.REMAINS:
            kept, plan = self._fitted(record, plan)
        yield from self._stay(kept, plan)
        self._context.plans[plan] += 1
        identity = record.identity.encode("ascii")
        yield (
            INTERNAL,
            self._outcome(
                row, identity, record.identity, record.origin, record.hops, record.key,
                record.value, plan,
            ),
        )  # fmt: skip

    def _fitted(
        self, record: waiting.DeadLetterRecord, plan: Plan
    ) -> tuple[waiting.DeadLetterRecord, Plan]:
        """A message that waits as a copy of it can be written, and its plan, which says if not."""
        if record.cut or wire_size(record.key, record.value, record.headers) <= _SURELY_TAKEN:
            return record, plan
        topic = self._waiting_place(record, plan).topic
        fitted = waiting.fitted(record, self._context.facts.topic(topic).max_message_bytes)
        if not fitted.cut:
            return record, plan
        return fitted, with_detail(plan, cut_sentence(fitted.cut, record.origin))

    def _stay(self, record: waiting.DeadLetterRecord, plan: Plan) -> Iterator[Entry]:
        """What to write on the handler's own topics: a copy that waits, or a tombstone."""
        part, identity = self._part, self._part.handler.identity
        if plan.result is Result.PARKED or plan.result is Result.REMAINS:
            make = waiting.parked if plan.result is Result.PARKED else waiting.remaining
            place = self._waiting_place(record, plan)
            copy = make(
                record,
                topic=place.topic,
                partition=place.partition,
                table=part.handler.table_id,
                progress=plan.progress,
                now=self._context.now,
            )
            yield INTERNAL, copy
        if part.kind in _KEPT and plan.result not in _STAYS:
            gone = waiting.tombstone(
                record.origin,
                topic=identity.remaining_topic,
                partition=part.lane.partition,
                now=self._context.now,
            )
            yield INTERNAL, gone

    def _waiting_place(self, record: waiting.DeadLetterRecord, plan: Plan) -> TopicPartition:
        """Where the copy of a message waits: on the partition of its source."""
        del record
        identity = self._part.handler.identity
        is_parked = plan.result is Result.PARKED
        topic = identity.retry_topic if is_parked else identity.remaining_topic
        return TopicPartition(topic, self._part.home)

    def _outcome(  # noqa: PLR0917 - called for every record: a value of its own costs too much
        self,
        row: int,
        key: bytes,
        identity: str,
        origin: str,
        hops: int,
        record_key: bytes | None,
        body: bytes | None,
        plan: Plan,
    ) -> OutputRecord:
        offset, context = self._part.records.offsets[row], self._context
        traced = self._traces[row] if self._traces else ""
        trace = f'"traceparent":"{traced}",' if traced else ""
        value = (
            f'{{"outcome":"{self._prefix}{offset}","message":"{identity}","origin":"{origin}",'
            f'{self._source}{offset},"size":{len(body) if body else 0},"hop":{hops},'
            f"{trace}{key_members(record_key)},{plan.members}}}"
        )
        return OutputRecord(context.outcomes_topic, key, value.encode(), None, context.now)

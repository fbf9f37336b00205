"""What all work on one lane has in common: limits, copies that wait, outcomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from redrive.decisions import waiting
from redrive.messages import (
    INTERNAL,
    OutputRecord,
    Records,
    Refused,
    TopicPartition,
    body_length,
    wire_size,
)
from redrive.outcomes.record import Result, json_key
from redrive.topology.put import check_limits
from redrive.topology.reasons import Reason

if TYPE_CHECKING:
    from redrive.decisions.handlers import Handler, Plan
    from redrive.decisions.routers import Router
    from redrive.topology.put import Destination, QueueLimits

HEADROOM = 16 * 1024
"""Bytes left for headers when a body is compared with a topic's limit without counting them."""


class Role(StrEnum):
    """What a source topic is to its handler."""

    DEAD_LETTERS = "dead letters"
    RETRIES = "retries"
    REMAINING = "remaining"
    PUTS = "puts"
    """An intake or a transmission queue."""
    UNDELIVERED = "undelivered"
    """What a queue manager could put nowhere, and kept."""


Entry: TypeAlias = tuple[int, OutputRecord]
"""A record to write, with the number that a refusal of it will carry."""

_ROOM_FOR_A_NAME = 64
"""Bytes taken for the name of a header where its length is not looked at."""
_KEPT = (Role.REMAINING, Role.UNDELIVERED)
"""Roles of the compacted topics from which a copy goes once its message went elsewhere."""


class Queues(Protocol):
    """What a put has to know about queues at this moment."""

    def max_message_bytes(self, topic: str) -> int:
        """The largest record the topic takes, in bytes."""

    def depth(self, topic: str, limits: QueueLimits) -> int | None:
        """Messages on the queue now; None when nothing says how many."""


@dataclass(frozen=True, slots=True)
class LaneRecords:
    """Some records of one lane, with what decides about them."""

    lane: TopicPartition
    handler: Handler | Router
    role: Role
    records: Records


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
    time: int
    """Time of the attempts, in milliseconds."""


@dataclass(slots=True)
class Context:
    """What the attempts on all lanes of one transaction share."""

    queues: Queues
    outcomes_topic: str
    now: int
    """Time of the attempts, in milliseconds."""
    refused: dict[int, Refused] = field(default_factory=dict)
    """Refusals by entry."""
    depths: dict[str, int] = field(default_factory=dict)
    """Depth of queues with a limit, the puts of this transaction included."""
    plans: Counter[Plan] = field(default_factory=Counter)
    """How many inputs each plan was carried out for."""
    control_topic: str = ""
    """Where definitions that puts discover are kept."""
    discovered: set[tuple[str, str, str]] = field(default_factory=set)
    """Definitions that are kept there already."""


def _is_large(put: OutputRecord, most: int) -> bool:
    """Whether a record's exact size has to be known to tell that it is within a limit."""
    headers = put.headers or ()
    rough = body_length(put.key) + body_length(put.value) + _ROOM_FOR_A_NAME * len(headers)
    return 2 * (rough + sum([len(raw) for _, raw in headers if raw])) > most


class LaneWork(ABC):
    """The work on the records of one lane; the kinds of work add how they decide.

    A lane's records come part by part. What was found out for one part is kept for the next.
    """

    def __init__(self, part: LaneRecords, context: Context) -> None:
        """Take the lane; nothing is decided yet.

        Args:
            part: Some records of the lane.
            context: What all lanes of the transaction share.
        """
        self._part = part
        self._context = context
        self._base = 0
        lane = part.lane
        self._prefix = f"{lane}:"
        self._source = (
            f'"topic":"{lane.topic}","partition":{lane.partition},"time":{context.now},"offset":'
        )

    def outputs(self, part: LaneRecords, base: int, first: int) -> Iterator[Entry]:
        """The records to write for some records of the lane.

        Args:
            part: The records; those of an earlier call are done with.
            base: Entry number of the first of them.
            first: Row of the first that is still to do.
        """
        self._part, self._base = part, base
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
        depth = self._depth(topic, limits) if limits.max_depth is not None else None
        refusal = check_limits(limits, body_length(put.value), depth, persistence)
        if refusal is not None:
            return Refused(entry, refusal.reason, refusal.detail)
        most = context.queues.max_message_bytes(topic)
        size = 0
        if _is_large(put, most):
            size = wire_size(put.key, put.value, put.headers or [])
        if size > most:
            detail = f"{size} bytes are more than the {most} that topic {topic} takes"
            return Refused(entry, Reason.MSG_TOO_BIG_FOR_Q, detail)
        if depth is not None:
            context.depths[topic] = depth + 1
        return None

    def _depth(self, topic: str, limits: QueueLimits) -> int | None:
        depth = self._context.depths.get(topic)
        return self._context.queues.depth(topic, limits) if depth is None else depth

    def _settled(self, row: int, record: waiting.DeadLetterRecord, plan: Plan) -> Iterator[Entry]:
        """What is written whatever was decided: what stays with the handler, and the outcome."""
        yield from self._stay(record, plan)
        self._context.plans[plan] += 1
        identity = record.identity.encode("ascii")
        yield (
            INTERNAL,
            self._outcome(
                row, identity, record.identity, record.origin, record.hops, record.key,
                record.value, plan,
            ),
        )  # fmt: skip

    def _stay(self, record: waiting.DeadLetterRecord, plan: Plan) -> Iterator[Entry]:
        """What to write on the handler's own topics: a copy that waits, or a tombstone."""
        part, identity = self._part, self._part.handler.identity
        if plan.result is Result.PARKED or plan.result is Result.REMAINS:
            is_parked = plan.result is Result.PARKED
            make = waiting.parked if is_parked else waiting.remaining
            copy = make(
                record,
                topic=identity.retry_topic if is_parked else identity.remaining_topic,
                partition=part.lane.partition,
                failures=plan.failures,
                table=part.handler.table_id,
                now=self._context.now,
            )
            yield INTERNAL, copy
        if part.role in _KEPT and plan.result is not Result.REMAINS:
            gone = waiting.tombstone(
                record.origin,
                topic=identity.remaining_topic,
                partition=part.lane.partition,
                now=self._context.now,
            )
            yield INTERNAL, gone

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
        value = (
            f'{{"outcome":"{self._prefix}{offset}","message":"{identity}","origin":"{origin}",'
            f'{self._source}{offset},"size":{len(body) if body else 0},"hop":{hops},'
            f'"key":{json_key(record_key)},{plan.members}}}'
        )
        return OutputRecord(context.outcomes_topic, key, value.encode(), None, context.now)

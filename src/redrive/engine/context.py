"""What deciders have in common: one protocol, and the state that a slice's decisions share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from redrive.engine.breaker import NO_BREAKERS, SliceBreakers
from redrive.engine.commands import Replay
from redrive.engine.decision import Decision, Park
from redrive.engine.facts import DepthQuestion, Facts, TopicFacts, WaitingQuestion
from redrive.engine.message import Attempts, Message
from redrive.engine.names import HandlerIdentity
from redrive.engine.ordering import KeyOrder
from redrive.messages import (
    OutputRecord,
    Refused,
    TopicPartition,
    body_length,
    packed_size,
    wire_size,
)
from redrive.messages.reasons import Reason
from redrive.topology.put import Destination, QueueLimits, Refusal, check_limits

Entry: TypeAlias = tuple[int, OutputRecord]
"""A record to write, with the entry number that identifies its refusal."""

_ROOM_FOR_A_NAME = 64
"""Assumed bytes of a header's name where its length is not checked."""
_SURELY_TOO_LARGE = 1.05
"""A compressed record that exceeds its limit by this factor is not sent."""


@dataclass(slots=True)
class SliceContext:
    """State that the decisions of one slice share."""

    facts: Facts
    outcomes_topic: str
    now: int
    """Time of the attempts, in milliseconds."""
    late: int = 0
    """See ``SliceSettings.late``."""
    tables_topic: str = ""
    """The topic of definitions that puts discover."""
    discovered: frozenset[tuple[str, str, str]] = frozenset()
    """Definitions already on the topic."""
    refused: dict[int, Refused] = field(default_factory=dict)
    """Refusals by entry."""
    packed: set[int] = field(default_factory=set)
    """Entries whose records fit their topics only if they compress well. Each is larger than a
    produce batch may be, so it gets its own batch and its own answer from the broker."""
    puts: Counter[str] = field(default_factory=Counter)
    """Puts of this slice to queues with a depth limit, by topic."""
    decisions: Counter[Decision] = field(default_factory=Counter)
    """The number of inputs of each decision."""
    replayed: set[str] = field(default_factory=set)
    """Origins of the instructions that this slice carried out."""
    recorded: set[object] = field(default_factory=set)
    """Definitions that the slice creates, and channels that it stops."""
    orders: dict[WaitingQuestion, KeyOrder] = field(default_factory=dict)
    """The waiting messages of a partition by key, including the effects of this slice."""
    breakers: SliceBreakers = field(default_factory=lambda: SliceBreakers(NO_BREAKERS, 0))
    begun: object = field(default_factory=object)
    """Another one each time that the slice is decided."""

    def begin(self) -> None:
        """Drop the decisions; keep refusals and facts."""
        self.packed.clear()
        self.puts.clear()
        self.decisions.clear()
        self.replayed.clear()
        self.recorded.clear()
        self.breakers.begin()
        self.orders.clear()
        self.begun = object()

    def order(self, question: WaitingQuestion) -> KeyOrder:
        """The waiting messages of a partition by key, as changed by the slice so far."""
        order = self.orders.get(question)
        if order is None:
            order = self.orders[question] = KeyOrder(self.facts.waiting(question) or {})
        return order

    def failed_at(self, message: Message) -> int:
        """When the processing of a message failed, in milliseconds; now if unknown."""
        return message.failed_at if 0 < message.failed_at <= self.now else self.now

    def is_waiting(self, message: Message, seconds: int) -> bool:
        """Whether the processing of a message failed within the last given seconds."""
        return seconds > 0 and self.failed_at(message) > self.failed_before(seconds)

    def failed_before(self, seconds: int) -> int:
        """The time the given seconds ago, in milliseconds, even if the clock was set forward."""
        return self.now - self.late - 1000 * seconds

    def check(
        self, entry: int, put: OutputRecord, persistence: int, destination: Destination
    ) -> Refusal | None:
        """Why a put fails: the broker refused it, or its queue or topic would; else count it."""
        refused = self.refused.get(entry)
        if refused is not None:
            return Refusal(refused.reason, refused.detail)
        limits, topic = destination.limits, destination.topic
        depth = self._depth(topic, limits)
        refusal = check_limits(limits, body_length(put.value), depth, persistence)
        facts = self.facts.topic(topic)
        refusal = refusal or _problem(put, facts, self.now) or self._too_large(entry, put, facts)
        if refusal is None and depth is not None:
            self.puts[topic] += 1
        return refusal

    def _too_large(self, entry: int, put: OutputRecord, facts: TopicFacts) -> Refusal | None:
        """Why a record is certainly too large; the broker decides near the limit."""
        most = facts.max_message_bytes
        if not _is_large(put, most):
            return None
        headers = put.headers or []
        size = wire_size(put.key, put.value, headers)
        if size <= most:
            return None
        sizes = f"{size} bytes"
        if not facts.is_uncompressed:
            size = packed_size(put.key, put.value, headers)
            sizes += f", {size} compressed,"
        if facts.is_uncompressed or size > _SURELY_TOO_LARGE * most:
            detail = f"{sizes} are more than the {most} of topic {put.topic}"
            return Refusal(Reason.MSG_TOO_BIG_FOR_Q, detail)
        self.packed.add(entry)
        return None

    def _depth(self, topic: str, limits: QueueLimits) -> int | None:
        """Messages on a queue with a depth limit; None for others."""
        if limits.max_depth is None or not limits.consumer_group:
            return None
        puts = self.puts[topic]
        question = DepthQuestion(topic, limits.consumer_group, limits.max_depth)
        depth = self.facts.depth(question)
        if 0 < depth < limits.max_depth <= depth + puts:
            # So far offsets were counted, including markers and aborted records. The puts of
            # this slice reach the limit, so the messages themselves must be counted.
            depth = self.facts.depth(question._replace(limit=depth))
        return depth + puts


def _problem(put: OutputRecord, facts: TopicFacts, now: int) -> Refusal | None:
    if facts.silent:
        detail = f"topic {put.topic} is unavailable: {facts.silent}"
        return Refusal(Reason.RESOURCE_PROBLEM, detail)
    if facts.wants_keys and put.key is None:
        detail = f"topic {put.topic} is compacted and accepts no record without a key"
        return Refusal(Reason.FORMAT_ERROR, detail)
    earliest, latest = facts.timestamps(now)
    if put.timestamp > 0 and not earliest <= put.timestamp <= latest:
        detail = f"topic {put.topic} accepts no record with a timestamp of {put.timestamp}"
        return Refusal(Reason.FORMAT_ERROR, detail)
    return None


def _is_large(put: OutputRecord, most: int) -> bool:
    """Whether only the exact size shows that a record is within a limit."""
    headers = put.headers or ()
    rough = body_length(put.key) + body_length(put.value) + _ROOM_FOR_A_NAME * len(headers)
    return 2 * (rough + sum([len(raw) for _, raw in headers if raw])) > most


class Decided(NamedTuple):
    """A message, the decision about it, and the records that it writes."""

    message: Message
    """The message, completed with what its copy had to cut, if that could be read."""
    decision: Decision
    records: tuple[Entry, ...] = ()
    """Records for queues and for Redrive's topics, apart from copies and the outcome."""


class Decider(Protocol):
    """Decides the messages of one topic and of its waiting topics.

    It neither reads nor writes. It uses the facts of the slice about the cluster; a missing fact
    becomes a question, and the message is decided again.
    """

    @property
    def identity(self) -> HandlerIdentity:
        """Names of the handler, and of the topics where its messages wait."""

    @property
    def table_id(self) -> str:
        """16 hex digits that identify its table or definitions."""

    @property
    def by_priority(self) -> bool:
        """Whether messages leave the topic by priority, the highest first."""

    def decide(
        self,
        message: Message,
        attempts: Attempts,
        facts: SliceContext,
        *,
        entry: int = 0,
        replay: Replay | None = None,
    ) -> Decided:
        """Decide one message in one attempt.

        Args:
            message: The message.
            attempts: The failed ones, under this decider's table.
            facts: Known facts about the cluster, and the effects of the slice so far.
            entry: Number of the input, which identifies the broker's refusals.
            replay: An operator's decision about it.
        """

    def waiting_place(self, message: Message, decision: Park, partition: int) -> TopicPartition:
        """The place where a message waits for its next attempt."""

    def interval(self, lane: TopicPartition) -> float:
        """Seconds that messages wait on a partition of a retry topic."""

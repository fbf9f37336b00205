"""What a put has to know of the cluster: known facts, and the questions that are open.

Nothing here asks. A decision that needs a fact that is not known takes the best case and leaves a
question behind; whoever decides asks all questions at once, outside any transaction, and decides
again (design 6.5). So no answer is never taken for an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from redrive.engine.commands import Replay
from redrive.messages import TopicPartition

if TYPE_CHECKING:
    from redrive.messages.fields import Headers

TOPIC_AGE: Final = 5.0
"""Seconds for which an answer about a topic that exists is good."""
MISSING_AGE: Final = 0.5
"""Seconds for which the answer that a topic does not exist is good: it may be made any moment."""
NO_LIMIT: Final = 1 << 62
"""A limit that nothing reaches."""
_AGEING: Final = 60_000
"""Milliseconds."""
_REMEMBERED: Final = 10_000
"""Topics that are remembered; names come from messages, so there is no end of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic at one moment."""

    exists: bool = True
    max_message_bytes: int = NO_LIMIT
    """The largest record the topic takes."""
    may_write: bool = True
    """Whether this user may write to it."""
    wants_keys: bool = False
    """Whether a record without a key is refused: the topic is compacted."""
    timestamp_before_max: int = NO_LIMIT
    """Milliseconds that a record's timestamp may lie before the broker's time."""
    timestamp_after_max: int = NO_LIMIT
    """Milliseconds that it may lie after it."""
    partitions: int = NO_LIMIT
    """How many partitions the topic has."""
    silent: str = ""
    """Why a partition of it takes nothing now: no leader, or too few replicas in sync."""

    def partition(self, wanted: int) -> int:
        """A partition while the topic has it; else -1, which leaves the choice to the key."""
        return wanted if wanted < self.partitions else -1

    def timestamps(self, now: int) -> tuple[int, int]:
        """The earliest and the latest timestamp of a record that the topic surely takes.

        Args:
            now: Milliseconds since 1970. A record that is too old a minute later counts as too old:
                a slice takes its time, and the broker would refuse others together with it.
        """
        before = self.timestamp_before_max
        return now - before + min(_AGEING, before // 2), now + self.timestamp_after_max


Copies: TypeAlias = Mapping[bytes, int]
"""What remains on a partition of a remaining topic: the offset of the last copy by its key, and
``TAKEN_AWAY`` where a tombstone came after it."""
TAKEN_AWAY: Final = -1


class ReplayedQuestion(NamedTuple):
    """Which messages instructions have moved since an outcome."""

    partition: int
    """Of the outcomes topic."""
    since: int
    """Offset of the outcome."""


class Replayed(NamedTuple):
    """The messages that instructions have moved, as a partition of the outcomes topic tells."""

    first: int
    """The offset from which on it is known."""
    last: Mapping[str, int]
    """By origin, the offset of the last outcome of an instruction that was carried out."""


BEST_CASE: Final = TopicFacts()
MISSING: Final = TopicFacts(exists=False)


class DepthQuestion(NamedTuple):
    """How many messages a consumer group can still read from a topic."""

    topic: str
    group: str
    limit: int
    """A depth beyond this need not be known exactly."""


class RecordQuestion(NamedTuple):
    """What a record is that a dead letter only points at."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Original:
    """A record that a dead letter points at."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    """Milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Why a record that a dead letter points at is not there."""

    detail: str
    may_come: bool = False
    """Whether it may be there later."""


@dataclass(frozen=True, slots=True)
class Questions:
    """What is not known."""

    topics: frozenset[str] = frozenset()
    depths: frozenset[DepthQuestion] = frozenset()
    records: frozenset[RecordQuestion] = frozenset()
    copies: frozenset[TopicPartition] = frozenset()
    """Partitions of remaining topics."""
    replays: frozenset[str] = frozenset()
    """Ids of plans."""
    orders: frozenset[TopicPartition] = frozenset()
    """Partitions of retry topics."""
    replayed: frozenset[ReplayedQuestion] = frozenset()

    def __bool__(self) -> bool:
        """Whether anything is asked."""
        return bool(self.topics or self.depths or self.records or self.about_replays)

    @property
    def about_replays(self) -> bool:
        """Whether anything is asked that only replays have to know."""
        return bool(self.copies or self.replays or self.orders or self.replayed)


@dataclass(frozen=True, slots=True)
class Answers:
    """What the cluster said; every question has an answer, but for records.

    Of records there are as many as there is room for, and at least one.
    """

    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    depths: Mapping[DepthQuestion, int] = field(default_factory=dict)
    records: Mapping[RecordQuestion, Original | Gone] = field(default_factory=dict)
    copies: Mapping[TopicPartition, Copies] = field(default_factory=dict)
    replays: Mapping[str, Replay | None] = field(default_factory=dict)
    """None for a plan that was never accepted."""
    orders: Mapping[TopicPartition, Sequence[Replay]] = field(default_factory=dict)
    """Replays about parked messages, the latest first."""
    replayed: Mapping[ReplayedQuestion, Replayed] = field(default_factory=dict)


class Facts:
    """The facts of one emitting process.

    This class is responsible for: how long an answer is good, and which questions are open.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Know nothing yet.

        Args:
            clock: Seconds from an arbitrary start.
        """
        self._clock = clock
        self._topics: dict[str, tuple[float, TopicFacts]] = {}
        self._depths: dict[DepthQuestion, int] = {}
        self._copies: dict[TopicPartition, Copies] = {}
        self._replays: dict[str, Replay | None] = {}
        self._orders: dict[TopicPartition, Sequence[Replay]] = {}
        self._replayed: dict[ReplayedQuestion, Replayed] = {}
        self._asked_replayed: set[ReplayedQuestion] = set()
        self._asked_orders: set[TopicPartition] = set()
        self._asked_copies: set[TopicPartition] = set()
        self._asked_replays: set[str] = set()
        self._asked_topics: set[str] = set()
        self._asked_depths: set[DepthQuestion] = set()
        self._records: dict[RecordQuestion, Original | Gone] = {}
        self._asked_records: set[RecordQuestion] = set()
        self._asked_at = clock()
        self.is_crowded = False
        """Whether the records that a slice asks for are too large together."""

    def topic(self, name: str) -> TopicFacts:
        """What is known of a topic; the best case, and a question, if nothing is."""
        known = self._topics.get(name)
        if known is None:
            self._asked_topics.add(name)
            return BEST_CASE
        return known[1]

    def depth(self, question: DepthQuestion) -> int:
        """Messages on a queue; 0, and a question, if that is not known for this slice."""
        if question not in self._depths:
            self._asked_depths.add(question)
        return self._depths.get(question, 0)

    def record(self, question: RecordQuestion) -> Original | Gone | None:
        """A record that a dead letter points at; None, and a question, if it is not known."""
        known = self._records.get(question)
        if known is None:
            self._asked_records.add(question)
        return known

    def copies(self, lane: TopicPartition) -> Copies | None:
        """What remains on a partition; None, and a question, if that is not known for this slice.

        Args:
            lane: A partition of a remaining topic.
        """
        if lane not in self._copies:
            self._asked_copies.add(lane)
        return self._copies.get(lane)

    def replay(self, plan: str) -> Replay | None:
        """An accepted plan; None if there is none of this id, or with a question if not known."""
        if plan not in self._replays:
            self._asked_replays.add(plan)
        return self._replays.get(plan)

    def orders(self, lane: TopicPartition) -> Sequence[Replay]:
        """What persons want with parked messages; nothing, and a question, if that is not known.

        Args:
            lane: A partition of a retry topic.
        """
        if lane not in self._orders:
            self._asked_orders.add(lane)
        return self._orders.get(lane, ())

    def replayed(self, question: ReplayedQuestion) -> Replayed | None:
        """What instructions have moved; None, and a question, if not known for this slice."""
        if question not in self._replayed:
            self._asked_replayed.add(question)
        return self._replayed.get(question)

    def begin_slice(self) -> None:
        """Forgets what is too old, and what holds for one slice: all but topics."""
        now = self._clock()
        self._depths.clear()
        self._records.clear()
        self._copies.clear()
        self._replays.clear()
        self._orders.clear()
        self._replayed.clear()
        self.is_crowded = False
        if len(self._topics) > _REMEMBERED:
            self._topics.clear()
        for name in [name for name, (until, _) in self._topics.items() if until < now]:
            del self._topics[name]

    def doubt(self, topics: Iterable[str]) -> None:
        """Forgets topics whose records were refused: what was known of them no longer holds."""
        for name in topics:
            self._topics.pop(name, None)

    def take_questions(self) -> Questions:
        """The open questions; they count as asked."""
        questions = Questions(
            frozenset(self._asked_topics),
            frozenset(self._asked_depths),
            frozenset(self._asked_records),
            frozenset(self._asked_copies),
            frozenset(self._asked_replays),
            frozenset(self._asked_orders),
            frozenset(self._asked_replayed),
        )
        self._asked_topics, self._asked_depths = set(), set()
        self._asked_copies, self._asked_replays, self._asked_orders = set(), set(), set()
        self._asked_replayed = set()
        self._asked_at = self._clock()
        return questions

    def learn(self, answers: Answers) -> None:
        """Takes answers; they are as old as the questions, however long the cluster took."""
        for name, facts in answers.topics.items():
            is_healthy = facts.exists and facts.may_write and not facts.silent
            self._topics[name] = self._asked_at + (TOPIC_AGE if is_healthy else MISSING_AGE), facts
        self._depths.update(answers.depths)
        self._records.update(answers.records)
        self.is_crowded = not self._asked_records <= self._records.keys()
        self._asked_records = set()
        self._copies.update(answers.copies)
        self._replays.update(answers.replays)
        self._orders.update(answers.orders)
        self._replayed.update(answers.replayed)

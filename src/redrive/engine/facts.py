"""The facts about the cluster that a put needs: known ones, and open questions.

Nothing here asks the cluster. A decision that lacks a fact assumes the best case and adds a
question. The emitter asks all questions at once, outside any transaction, and decides again. So a
missing answer never counts as an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import inf
from typing import Any, Final, Generic, NamedTuple, Self, TypeAlias, TypeVar

from redrive.engine.commands import Replay
from redrive.engine.names import HandlerIdentity
from redrive.engine.ordering import Round, WaitingKeys
from redrive.errors import TransientFault
from redrive.messages import TopicPartition
from redrive.messages import own_headers as own
from redrive.messages.fields import Headers
from redrive.rules.backoff import PARTITIONS

_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")
_Decided = TypeVar("_Decided")

TOPIC_AGE: Final = 5.0
"""Seconds for which an answer about an existing topic is valid."""
MISSING_AGE: Final = 0.5
"""Seconds for which the answer "no such topic" is valid: it may be created any moment."""
NO_LIMIT: Final = 1 << 62
"""Unlimited."""
_AGEING: Final = 60_000
"""Milliseconds."""
_MOST_ANSWERS: Final = 16
"""Maximum answers in a row that lead to another question."""
_REMEMBERED: Final = 10_000
"""Maximum topics to cache: messages may name any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic at one moment."""

    exists: bool = True
    max_message_bytes: int = NO_LIMIT
    """The largest produce batch for the topic, compressed as it is stored."""
    is_uncompressed: bool = False
    """Whether the topic stores records uncompressed, however they are sent."""
    may_write: bool = True
    """Whether this user may write to it."""
    may_read: bool = True
    """Whether this user may read it."""
    wants_keys: bool = False
    """Whether a record without a key is refused: the topic is compacted."""
    timestamp_before_max: int = NO_LIMIT
    """Milliseconds that a record's timestamp may be before the broker's time."""
    timestamp_after_max: int = NO_LIMIT
    """Milliseconds that it may be after it."""
    retention: int = NO_LIMIT
    """Milliseconds for which it keeps a record, by the record's timestamp."""
    stamps_records: bool = False
    """Whether the broker replaces the timestamps of records by its own time."""
    partitions: int = NO_LIMIT
    """How many partitions the topic has."""
    silent: str = ""
    """Why a partition accepts no records now: no leader, or too few replicas in sync."""

    @property
    def is_healthy(self) -> bool:
        """Whether the topic takes puts of this user."""
        return self.exists and self.may_write and not self.silent

    def partition(self, wanted: int | None) -> int:
        """The partition if the topic has it; else -1, and the key chooses."""
        return -1 if wanted is None or wanted >= self.partitions else wanted

    def timestamps(self, now: int) -> tuple[int, int]:
        """The earliest and the latest timestamp that the topic certainly accepts.

        Args:
            now: Milliseconds since 1970. A record that is too old a minute later counts as too old:
                a slice takes time, and the broker would refuse other records together with it.
        """
        before = self.timestamp_before_max
        return now - before + min(_AGEING, before // 2), now + self.timestamp_after_max

    def lasting(self, now: int) -> tuple[int, int]:
        """The earliest and the latest timestamp with which a record lives long enough.

        The topic accepts it, and keeps it for at least half of its retention. ``now`` is in
        milliseconds.
        """
        earliest, latest = self.timestamps(now)
        return earliest if self.stamps_records else max(earliest, now - self.retention // 2), latest


Copies: TypeAlias = Mapping[bytes, int]
"""The copies on a partition of a remaining topic: the offset of the last copy by key, or
``TAKEN_AWAY`` if a tombstone followed."""
TAKEN_AWAY: Final = -1


class ReplayedQuestion(NamedTuple):
    """Which messages instructions have moved since an outcome."""

    partition: int
    """Of the outcomes topic."""
    since: int
    """Offset of the outcome."""


class WaitingQuestion(NamedTuple):
    """Which messages of a partition of a dead-letter queue wait, by key."""

    retry: TopicPartition
    """Where its messages are parked."""
    backoff: tuple[TopicPartition, ...]
    """Where messages wait by BACKOFF; the topic may not exist."""
    remaining: TopicPartition

    @classmethod
    def of(cls, identity: HandlerIdentity, home: int) -> Self:
        """The question about one partition of a handler's dead-letter queue."""
        numbers = range(home * PARTITIONS, (home + 1) * PARTITIONS)
        return cls(
            TopicPartition(identity.retry_topic, home),
            tuple(TopicPartition(identity.backoff_topic, number) for number in numbers),
            TopicPartition(identity.remaining_topic, home),
        )


class Replayed(NamedTuple):
    """The messages moved by instructions, according to a partition of the outcomes topic."""

    first: int
    """The offset from which it is known."""
    last: Mapping[str, int]
    """By origin, the offset of the last outcome of an instruction that was carried out."""


BEST_CASE: Final = TopicFacts()
MISSING: Final = TopicFacts(exists=False)


class DepthQuestion(NamedTuple):
    """How many messages a consumer group has yet to read from a topic."""

    topic: str
    group: str
    limit: int
    """Above this the depth need not be exact."""


class RecordQuestion(NamedTuple):
    """The record that a dead letter refers to."""

    topic: str
    partition: int
    offset: int


class NewTopicQuestion(NamedTuple):
    """Whether a missing topic could be created like another one.

    It has the other's partitions, replicas, retention, cleanup and limits.
    """

    name: str
    like: str
    """The other topic."""


class Created(NamedTuple):
    """The topic exists or can be created by the job; with a reason, it cannot."""

    reason: int = 0
    """MQRC_*."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Original:
    """A record that a dead letter refers to."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    """Milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Why a record that a dead letter refers to cannot be read."""

    detail: str
    may_come: bool = False
    """Whether it may be readable later."""
    is_denied: bool = False
    """Whether this user may not read it."""


class Program(NamedTuple):
    """What is known of a program that writes dead letters.

    Programs that agree in all of this count as one.
    """

    scheme: str
    """Name of the scheme in which it writes them."""
    topic: str
    """The topic that it reads."""
    group: str
    """Its consumer group; empty if its dead letters do not name one."""

    @property
    def sentence(self) -> str:
        """One line about a program that drops headers."""
        group = f" by group {self.group}" if self.group else ""
        return (
            f"dead letters ({self.scheme}) of {self.topic}{group} lack the headers of the record"
            " that failed: their rounds are read from that record"
        )


@dataclass(frozen=True, slots=True)
class Questions:
    """The open questions."""

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
    rounds: frozenset[Round] = frozenset()
    """The progress of rounds; read before ``waiting``, which then includes returned messages."""
    waiting: frozenset[WaitingQuestion] = frozenset()
    new_topics: frozenset[NewTopicQuestion] = frozenset()
    topic_ids: frozenset[str] = frozenset()
    """Topics whose records were read."""
    puts: frozenset[bytes] = frozenset()
    """Digests of keys and bodies; see ``Answers.puts``."""

    def __bool__(self) -> bool:
        plain = self.topics or self.depths or self.records or self.new_topics or self.puts
        return bool(plain or self.topic_ids or self.about_replays or self.about_order)

    @property
    def about_order(self) -> bool:
        """Whether any question matters only to ORDER(KEY)."""
        return bool(self.rounds or self.waiting)

    @property
    def about_replays(self) -> bool:
        """Whether any question matters only to replays."""
        return bool(self.copies or self.replays or self.orders or self.replayed)


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of the cluster; only questions about records may stay open.

    As many records are answered as fit, at least one.
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
    rounds: Mapping[Round, Round] = field(default_factory=dict)
    """The current progress of each round."""
    waiting: Mapping[WaitingQuestion, WaitingKeys] = field(default_factory=dict)
    new_topics: Mapping[NewTopicQuestion, Created] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Kafka's id of each topic; a missing one is omitted."""
    puts: Mapping[bytes, own.OwnHeaders] = field(default_factory=dict)
    """Redrive's headers on the last put of a key and body within a day, by their digest, according
    to the outcomes; ``NO_OWN_HEADERS`` if there was none."""


class _Known(Generic[_Question, _Answer]):
    """Answers of one kind, and the questions without an answer."""

    def __init__(self) -> None:
        self.answers: dict[_Question, _Answer] = {}
        self._asked: set[_Question] = set()

    def get(self, question: _Question) -> _Answer | None:
        """The answer; without one, None, and the question is added."""
        if question not in self.answers:
            self._asked.add(question)
        return self.answers.get(question)

    def ask(self, questions: Iterable[_Question]) -> None:
        """Add questions that may have an answer."""
        self._asked.update(questions)

    def take(self) -> frozenset[_Question]:
        """The questions, which from now on count as asked."""
        asked, self._asked = frozenset(self._asked), set()
        return asked


class Facts:
    """The facts of one emitting process.

    They know how long an answer is valid, and which questions are open.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start empty; the clock gives seconds from an arbitrary start."""
        self._clock = clock
        self._asked_at = clock()
        self._asked_records: frozenset[RecordQuestion] = frozenset()
        self._topics: _Known[str, tuple[float, TopicFacts]] = _Known()
        self._depths: _Known[DepthQuestion, int] = _Known()
        self._records: _Known[RecordQuestion, Original | Gone] = _Known()
        self._copies: _Known[TopicPartition, Copies] = _Known()
        self._replays: _Known[str, Replay | None] = _Known()
        self._orders: _Known[TopicPartition, Sequence[Replay]] = _Known()
        self._replayed: _Known[ReplayedQuestion, Replayed] = _Known()
        self._rounds: _Known[Round, Round] = _Known()
        self._waiting: _Known[WaitingQuestion, WaitingKeys] = _Known()
        self._new_topics: _Known[NewTopicQuestion, Created] = _Known()
        self._topic_ids: _Known[str, str] = _Known()
        self._puts: _Known[bytes, own.OwnHeaders] = _Known()
        self._copying: set[Program] = set()
        self.dropping: set[Program] = set()
        """Programs that are known to leave out headers of the record."""
        names = [field.name for field in fields(Answers) if field.name != "topics"]
        self._of_slice: Mapping[str, _Known[Any, Any]] = {
            name: getattr(self, f"_{name}") for name in names
        }
        """Facts for one slice only, by name in ``Questions`` and ``Answers``."""
        self.is_crowded = False
        """Whether the records that a slice needs are too large together."""
        self.version = 0
        """Changes whenever something else is known of a topic, or a question about one is new."""
        self._used: set[str] = set()
        """Topics asked about since their last answer."""

    def topic(self, name: str) -> TopicFacts:
        """The facts about a topic; else the best case, and a question."""
        self._used.add(name)
        known = self._topics.get(name)
        return BEST_CASE if known is None else known[1]

    def depth(self, question: DepthQuestion) -> int:
        """Messages on a queue; 0 and a question if unknown for this slice."""
        return self._depths.get(question) or 0

    def record(self, question: RecordQuestion) -> Original | Gone | None:
        """A record that a dead letter refers to; None and a question if unknown."""
        return self._records.get(question)

    def copies(self, lane: TopicPartition) -> Copies | None:
        """The copies on a partition of a remaining topic; None and a question if unknown."""
        return self._copies.get(lane)

    def replay(self, plan: str) -> Replay | None:
        """An accepted plan; None if the id has none, None and a question if unknown."""
        return self._replays.get(plan)

    def orders(self, lane: TopicPartition) -> Sequence[Replay]:
        """The replays of a retry partition's parked messages; none and a question if unknown."""
        return self._orders.get(lane) or ()

    def replayed(self, question: ReplayedQuestion) -> Replayed | None:
        """What instructions have moved; None and a question if unknown for this slice."""
        return self._replayed.get(question)

    def round(self, noted: Round) -> Round:
        """The progress of a round; as noted, and a question, if unknown for this slice."""
        return self._rounds.get(noted) or noted

    def waiting(self, question: WaitingQuestion) -> WaitingKeys | None:
        """The waiting messages by key; None and a question if unknown for this slice."""
        return self._waiting.get(question)

    def created(self, question: NewTopicQuestion) -> Created | None:
        """Whether a missing topic is created; None and a question if unknown for this slice."""
        return self._new_topics.get(question)

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Kafka's ids of the topics whose records the slice has; without the missing topics."""
        return self._topic_ids.answers

    def last_put(self, digest: bytes) -> own.OwnHeaders:
        """Redrive's headers on the last put of a key and body; none, and a question, if unknown."""
        return self._puts.get(digest) or own.NO_OWN_HEADERS

    def copies_headers(self, program: Program) -> bool:
        """Whether a program is known to copy headers of the record into its dead letters."""
        return program in self._copying

    def note_copied(self, program: Program) -> None:
        """Note that a dead letter has Redrive's headers of the record that failed."""
        if program in self._copying or program in self.dropping:
            return
        if len(self._copying) >= _REMEMBERED:
            self._copying.clear()
        self._copying.add(program)
        self.version += 1

    def note_dropped(self, program: Program) -> None:
        """Note that a dead letter lacks Redrive's headers of the record that failed.

        This outweighs dead letters of other instances of the program which have them.
        """
        if program not in self.dropping:
            self.dropping.add(program)
            self._copying.discard(program)
            self.version += 1

    def begin_batch(self) -> None:
        """Outdate all answers by which a topic takes no put: an earlier batch may have put to it.

        So what breakers learned from that batch is never older than the answers.
        """
        for name, (_, facts) in self._topics.answers.items():
            if not facts.is_healthy:
                self._topics.answers[name] = -inf, facts

    def begin_slice(self, read: Iterable[str] = ()) -> None:
        """Drop answers for one slice, all but topics, and outdated ones.

        The ids of the topics that were read become a question: an id is never used again, so the
        id of a run's topic proves that the records were of this topic.

        A topic that is still asked about becomes a question at once, so that nothing is decided
        without its facts.
        """
        now, topics = self._clock(), self._topics.answers
        for known in self._of_slice.values():
            known.answers.clear()
        self._topic_ids.ask(read)
        self.is_crowded = False
        outdated = {name for name, (until, _) in topics.items() if until < now}
        if len(topics) > _REMEMBERED:
            outdated, self._used = {*topics}, set()
        self._topics.ask(outdated & self._used)
        self.doubt(outdated - self._used)
        self._used -= outdated

    def answered(
        self, decide: Callable[[], _Decided], answers: Callable[[Questions], Answers]
    ) -> _Decided:
        """A decision with all of its questions answered; repeated after each answer.

        Raises:
            TransientFault: Every answer led to another question.
        """
        for _ in range(_MOST_ANSWERS):
            decided = decide()
            if not (questions := self.take_questions()):
                return decided
            self.learn(answers(questions))
        raise TransientFault("facts about the cluster changed while they were being read")

    def doubt(self, topics: Iterable[str]) -> None:
        """Drop topics whose facts may be wrong: they are too old, or a record was refused."""
        for name in topics:
            self._topics.answers.pop(name, None)
            self.version += 1

    def take_questions(self) -> Questions:
        """The open questions; they count as asked."""
        self._asked_at = self._clock()
        questions = Questions(
            self._topics.take(), **{name: known.take() for name, known in self._of_slice.items()}
        )
        self._asked_records = questions.records
        # Until there is an answer, the next decision must ask again.
        is_new = not questions.topics <= self._topics.answers.keys()
        self.version += is_new or bool(questions.new_topics)
        return questions

    def learn(self, answers: Answers) -> None:
        """Take answers; their age counts from the questions, however long the cluster took."""
        self.version += bool(answers.new_topics)
        for name, facts in answers.topics.items():
            _, before = self._topics.answers.get(name, (0.0, None))
            self.version += facts != before
            until = self._asked_at + (TOPIC_AGE if facts.is_healthy else MISSING_AGE)
            self._topics.answers[name] = until, facts
        for name, known in self._of_slice.items():
            known.answers.update(getattr(answers, name))
        self.is_crowded = not self._asked_records <= self._records.answers.keys()

"""A slice: the records of one transaction, and the outputs for them.

Deciding is pure and can be repeated, after a missing fact, a refused record or a lost answer. The
same records with the same facts give the same outputs; a refusal changes only the decision about
its own record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from redrive.engine.breaker import BreakerKey, OpenBreaker, SliceBreakers
from redrive.engine.cache import DecisionCache
from redrive.engine.context import Entry, SliceContext
from redrive.engine.decision import Put
from redrive.engine.facts import Answers, Facts, Questions
from redrive.engine.lane import Lane
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.sources import PartitionRecords
from redrive.engine.statistics import Ages, Failure, OutcomeKind, Summary
from redrive.engine.triggers import SliceTriggers
from redrive.errors import RecreatedFault
from redrive.messages import INTERNAL, Refused, TopicPartition
from redrive.messages.dead_letters import DeadLetterDecoder
from redrive.messages.reasons import Reason
from redrive.topology.triggers import Trigger

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
    triggers: Mapping[str, Trigger] = field(default_factory=dict)
    """Triggers of queues with TRIGGER, by topic."""
    cache: DecisionCache = field(default_factory=DecisionCache, compare=False, repr=False)
    """Decisions of earlier slices; puts to a queue with TRIGGER are valid for this batch."""


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
        self._ends = {part.lane: part.records.offsets[-1] + 1 for part in parts}
        self._context = SliceContext(
            facts,
            settings.outcomes_topic,
            settings.now,
            settings.late,
            tables_topic=settings.tables_topic,
            discovered=settings.discovered,
            breakers=SliceBreakers(settings.breakers, settings.now),
            triggers=SliceTriggers(settings.triggers),
            cache=settings.cache,
        )
        deciders = (part.decider for part in parts)
        self._breaking = {
            one.identity.name: one.guard.failures
            for one in deciders
            if isinstance(one, RulesDecider) and one.guard is not None
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
        if self._context.breakers.opens(self._breaking, self._context.decisions):
            self._context.begin()
            self._outputs = list(self._decide_parts())
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
        for one in refused:
            is_alone = one_by_one or one.entry in self._context.packed
            if one.reason in _OF_A_BATCH and not is_alone:
                self._blame_is_shared = True
            else:
                self._context.refused[one.entry] = one
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
        return self._of(first), self._of(second)

    def summary(self) -> Summary:
        """Statistics of what was committed; valid once the slice is emitted."""
        inputs: Counter[OutcomeKind] = Counter()
        failures: Counter[Failure] = Counter()
        rounds: Counter[tuple[str, int]] = Counter()
        invalid = 0
        for one, count in self._context.decisions.items():
            line = one.rule.line if one.rule else 0
            inputs[OutcomeKind(one.handler, line, one.result.value, one.reason)] += count
            invalid += count if one.is_invalid else 0
            if isinstance(one, Put) and one.is_round:
                rounds[one.handler, one.attempt] += count
            if one.is_worth_logging:
                failure = Failure(one.handler, line, one.reason, str(one.target), one.detail)
                failures[failure] += count
        ages = Ages()
        for part in self._parts:
            ages.note(part, self._done(part.lane), self._settings.now)
        breakers = self._context.breakers
        counts = breakers.counts(self._breaking, self._context.decisions)
        return Summary(
            inputs,
            failures,
            invalid,
            ages,
            counts,
            frozenset(breakers.probed),
            rounds,
        )

    def _of(self, parts: Sequence[PartitionRecords]) -> Slice:
        part = Slice(parts, self._decoder, self._facts, self._settings)
        part._blame_is_shared = self._blame_is_shared
        return part

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

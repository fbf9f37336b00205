"""The question: two tables for one handler, tried on messages; nothing is written.

The engine decides, as it does for the job. Messages with the same profile and the same earlier
attempts are decided once, unless their decision depends on more than that.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from redrive.collector import collector_paused
from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.configuration.deciders import DeciderFactory
from redrive.engine.cache import put_bounds
from redrive.engine.commands import NO_STATES
from redrive.engine.context import SliceContext
from redrive.engine.decision import NO_PROFILE, Decision, Put
from redrive.engine.facts import BEST_CASE, NO_LIMIT, Answers, Facts, Questions
from redrive.engine.message import NO_ATTEMPTS, Attempts, Message
from redrive.engine.ordering import Round
from redrive.engine.put_record import PutTimes
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.sources import DeadLetterSource, PartitionRecords, SourceKind
from redrive.errors import EnvironmentFault, UsageError
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import ANSWER
from redrive.kafka.facts import ClusterFacts
from redrive.kafka.records import read_parts, surviving_offsets
from redrive.masking import NO_MASK, Mask
from redrive.messages import (
    DeadLetterDecoder,
    DeadLetterProfile,
    OffsetRange,
    Records,
    TopicPartition,
)
from redrive.messages.constants import reason_name
from redrive.messages.schemes import KNOWN, SchemeTable
from redrive.messages.schemes.reading import BARE
from redrive.operations.states import read_states
from redrive.outcomes.history import Archive
from redrive.outcomes.inventory import Engine, Inventory
from redrive.outcomes.row_messages import missing_fields
from redrive.outcomes.storage import is_remote
from redrive.printable import counted
from redrive.rules import FieldValue, RulesTable, write_rule
from redrive.rules.analysis import control_changes, hidden_field, write_message
from redrive.what_if.answer import (
    Cell,
    ChangedMessages,
    IdleRule,
    Loss,
    NextAction,
    RefusedPuts,
    RuleCount,
    Sample,
    TableActions,
    TargetCount,
    WhatIf,
)
from redrive.what_if.verdict import Disposition, TableEffect, reasons


class Over(StrEnum):
    """Which messages to try."""

    REMAINING = "remaining"
    """Messages that no rule could place."""
    PARKED = "parked"
    """Messages that wait for their next attempt."""
    BACKLOG = "backlog"
    """Dead letters that the job has not read yet."""
    HISTORY = "history"
    """Dead letters in the ledger, with any result."""

    @property
    def kind(self) -> SourceKind:
        """The kind of the topics, for the decider."""
        kinds = {Over.REMAINING: SourceKind.REMAINING, Over.PARKED: SourceKind.RETRIES}
        return kinds.get(self, SourceKind.DEAD_LETTERS)


Waiting: TypeAlias = Mapping[Over, list[OffsetRange]]
"""The offsets of the messages that wait."""


class LaneRecords(NamedTuple):
    """Some messages of one lane, in offset order."""

    over: Over
    lane: TopicPartition
    records: Records


def waiting_for(
    job: JobConfiguration, handler: HandlerConfiguration, cluster: Cluster, over: Collection[Over]
) -> Waiting:
    """The offsets of one handler's messages that currently wait on topics."""
    identity = handler.identity
    topics = {
        Over.REMAINING: (identity.remaining_topic,),
        Over.PARKED: identity.waiting_topics,
        Over.BACKLOG: (identity.topic,),
    }
    cluster.topics()
    waiting: dict[Over, list[OffsetRange]] = {}
    for place in filter(over.__contains__, topics):
        lanes = cluster.lanes(topics[place])
        extents, is_whole = cluster.extents(lanes), place is Over.REMAINING
        committed = {} if is_whole else cluster.committed(job.application, lanes)
        is_later = place is Over.BACKLOG and job.starting_offsets == "latest"
        starts = {
            lane: extents[lane].position(committed.get(lane), from_end=is_later) for lane in lanes
        }
        waiting[place] = [
            OffsetRange(*lane, start, extents[lane].end)
            for lane, start in starts.items()
            if start < extents[lane].end
        ]
    return waiting


def number_of_reads(waiting: Waiting) -> int:
    """Offsets to read; twice for remaining topics: for the live copies, and their content."""
    return sum(
        (offsets.end - offsets.start) * (1 + (place is Over.REMAINING))
        for place, ranges in waiting.items()
        for offsets in ranges
    )


def parts_of(
    waiting: Waiting, connection: Connection, advance: Callable[[int], None]
) -> Iterator[LaneRecords]:
    """The messages that wait; raises ``TransientFault`` if a topic cannot be read to its end.

    ``advance`` is called with the number of offsets read since the last call.
    """
    for place, ranges in waiting.items():
        is_compacted = place is Over.REMAINING
        kept = surviving_offsets(connection, ranges, advance) if is_compacted else {}
        for lane, read in read_parts(connection, ranges):
            records = read
            advance(read.offsets[-1] + 1 - read.offsets[0])
            if is_compacted:
                records = records.only(kept[lane])
            elif place is Over.PARKED:
                records = _without_notes(records)
            if len(records):
                yield LaneRecords(place, lane, records)


def _without_notes(records: Records) -> Records:
    """The records without notes of rounds, which lie among parked messages."""
    notes = {
        records.offsets[row]
        for row, value in enumerate(records.values)
        if Round.read(value, records.headers[row]) is not None
    }
    return records.only(set(records.offsets) - notes) if notes else records


SAMPLES: Final = 3
"""Maximum samples of each kind of change."""
_EVERY: Final = 1 << 62
"""Above every offset."""
_KINDS: Final = 10_000
"""Maximum kinds of messages to count individually; messages may name any number of queues."""
_SHARED: Final = 20_000
"""Maximum decisions about profiles to keep."""
_OTHERS: Final = "(others)"
_NO_LINE: Final = -1

_Key = TypeVar("_Key", bound=Hashable)
_Decided = TypeVar("_Decided")
_Pair: TypeAlias = tuple[Decision, Decision]
_ChangeKey: TypeAlias = tuple[Loss, NextAction, NextAction]


class OnceDecoder(DeadLetterDecoder):
    """A decoder for several tables, which decodes the same records once."""

    _last: tuple[Records, SchemeTable] | None = None
    _decoded: tuple[npt.NDArray[np.int32], Sequence[DeadLetterProfile]]

    def decode(
        self, records: Records, schemes: SchemeTable = KNOWN
    ) -> tuple[npt.NDArray[np.int32], Sequence[DeadLetterProfile]]:
        """Decode records, unless they were decoded last by the same schemes."""
        if self._last is None or self._last[0] is not records or self._last[1] is not schemes:
            self._last, self._decoded = (records, schemes), super().decode(records, schemes)
        return self._decoded


class _Shared(NamedTuple):
    """The decision about a profile after some attempts, and which of its messages it is for."""

    decision: Decision
    room: int = NO_LIMIT
    """Bytes of the longest value; negative if each message needs its own decision."""
    wait: int = 0
    """Seconds since the failure after which it is valid."""


class Trial:
    """Decides records by one table."""

    def __init__(
        self, decider: RulesDecider, decoder: DeadLetterDecoder, context: SliceContext
    ) -> None:
        self.decider = decider
        self.context = context
        self._source = DeadLetterSource(decider, decoder)
        self._version = 0
        # With the profile of each, so that the id in its key stays unique.
        self._shared: dict[tuple[int, Attempts, int], tuple[DeadLetterProfile, _Shared]] = {}

    def begin(self, puts: Mapping[str, int]) -> None:
        """Decide after these puts; drop what was shared under other facts."""
        self.context.begin()
        self.context.puts.update(puts)
        if self._version != self.context.facts.version or len(self._shared) > _SHARED:
            self._version = self.context.facts.version
            self._shared.clear()

    def decisions(self, part: PartitionRecords) -> list[Decision]:
        """The decision about each record, in order.

        Missing facts about the cluster are left as questions, as in an attempt.
        """
        self._source.load(part, 0)
        return [self._decide(row) for row in range(len(part.records))]

    def _decide(self, row: int) -> Decision:
        message, attempts, _ = self._source.read(row)
        if not self.decider.profiles.is_varied:
            profile = message.profile or NO_PROFILE
            key = id(profile), attempts, message.hops
            if key not in self._shared:
                self._shared[key] = profile, self._share(profile, attempts, message.hops)
            _, shared = self._shared[key]
            if self._is_for(message, shared):
                return shared.decision
        return self.decider.decide(message, attempts, self.context).decision

    def _share(self, profile: DeadLetterProfile, attempts: Attempts, hops: int) -> _Shared:
        decision = self.decide_profile(profile, attempts, hops)
        if not isinstance(decision, Put):
            return _Shared(decision, wait=decision.wait)
        bounds = put_bounds(decision, self.context)
        if bounds is None or PutTimes.of(decision, self.context).depends_on_record:
            return _Shared(decision, room=-1)
        # Sizes near the limit are checked individually, as headers count too.
        return _Shared(decision, bounds[0] // 2, decision.wait)

    def _is_for(self, message: Message, shared: _Shared) -> bool:
        facts = self.context
        return not (
            len(message.value or b"") > shared.room
            or message.cut
            or (shared.wait and message.failed_at and facts.is_waiting(message, shared.wait))
            or self.decider.attempts.may_lack_rounds(message, facts.facts)
        )

    def decide_profile(
        self, profile: DeadLetterProfile, attempts: Attempts = NO_ATTEMPTS, hops: int = 0
    ) -> Decision:
        """Decide about the messages of a profile, before a put is tried."""
        matched = self.decider.profiles.shared(profile)
        return self.decider.decision_of_profile(matched, attempts, self.context, hops=hops)

    def describe(self, row: int) -> tuple[str, dict[str, FieldValue]]:
        """The identity of a record's message, and all fields that the table's patterns use."""
        message, _, _ = self._source.read(row)
        return message.identity, self.decider.profiles.fields_of(message, self.context.now)


class _Kind(NamedTuple):
    """Messages that are counted together."""

    loss: Loss
    old: NextAction
    new: NextAction
    is_changed: bool
    old_target: str
    new_target: str
    reason: int
    detail: str
    risks: tuple[str, ...]

    @classmethod
    def of(cls, old: TableEffect, new: TableEffect) -> _Kind:
        loss = Loss.NONE
        if new.course.discarded and not old.course.discarded:
            loss = Loss.AT_ONCE if new.action is Disposition.DISCARD else Loss.IN_THE_END
        actions = NextAction(old.action, old.line), NextAction(new.action, new.line)
        detail = new.detail if new.reason else ""
        is_changed, targets = old.course != new.course, (old.target, new.target)
        return cls(loss, *actions, is_changed, *targets, new.reason, detail, new.risks)

    @property
    def change(self) -> _ChangeKey:
        return self.loss, self.old, self.new

    @property
    def without_names(self) -> _Kind:
        old, new = (target and _OTHERS for target in (self.old_target, self.new_target))
        return self._replace(old_target=old, new_target=new, detail="")


class Tally:
    """Tries two tables on messages and counts what they do with them."""

    def __init__(
        self,
        old: RulesDecider,
        new: RulesDecider,
        facts: Facts,
        answers: Callable[[Questions], Answers],
        *,
        now: int,
        schemes: Sequence[str] = (),
        mask: Mask = NO_MASK,
    ) -> None:
        """Start empty.

        Args:
            old: The decider with one table.
            new: The decider with the other table.
            facts: What is known of the cluster.
            answers: Asks the cluster.
            now: The time of the attempts, in milliseconds.
            schemes: Names of the dead-letter schemes that the two read differently.
            mask: What to hide in the answer.
        """
        decoder = OnceDecoder()
        self._old = Trial(old, decoder, SliceContext(facts, "", now))
        self._new = Trial(new, decoder, SliceContext(facts, "", now))
        self._trials = self._old, self._new
        self._facts, self._answers = facts, answers
        self._schemes, self._mask = tuple(schemes), mask
        is_another = old.table.hash != new.table.hash or schemes
        self._released = _EVERY if is_another else 0
        self._messages: Counter[Over] = Counter()
        self._kinds: Counter[_Kind] = Counter()
        self._samples: defaultdict[_ChangeKey, list[Sample]] = defaultdict(list)
        self._matched = 0
        """The rules of the new table that match any message, as bits."""

    def add(self, part: LaneRecords) -> None:
        """Try both tables on some messages."""
        lane, kind, records = part.lane, part.over.kind, part.records
        parts = (
            PartitionRecords(lane, self._old.decider, kind, records),
            PartitionRecords(lane, self._new.decider, kind, records, released=self._released),
        )
        old, new = self._answered(lambda: map(Trial.decisions, self._trials, parts))
        pairs = [*zip(old, new, strict=True)]
        for pair, count in Counter(pairs).items():
            if self._count(part.over, pair, count):
                row = pairs.index(pair)
                identity, fields = self._old.describe(row)
                self._add_sample(pair, identity, {**fields, **self._new.describe(row)[1]})

    def add_known(self, profile: DeadLetterProfile, example: str, count: int) -> None:
        """Try both tables on messages of which only the profile is known, as outcomes have it."""
        old, new = self._answered(lambda: (trial.decide_profile(profile) for trial in self._trials))
        if self._count(Over.HISTORY, (old, new), count):
            matched = (trial.decider.profiles.shared(profile) for trial in self._trials)
            fields = [profile.fields for profile in matched]
            self._add_sample((old, new), example, {**fields[0], **fields[1]})

    def _answered(self, decide: Callable[[], Iterable[_Decided]]) -> list[_Decided]:
        """What both tables decide, once all of its questions are answered."""
        puts = [Counter(trial.context.puts) for trial in self._trials]
        while True:
            for trial, before in zip(self._trials, puts, strict=True):
                trial.begin(before)
            decided = [*decide()]
            questions = self._facts.take_questions()
            if not questions:
                return decided
            self._facts.learn(self._answers(questions))

    def _count(self, over: Over, pair: _Pair, count: int) -> bool:
        """Count messages with a pair of decisions; whether a sample of them is needed."""
        kind = pair[0].derive(self._kind_of, pair[1])
        if len(self._kinds) >= _KINDS and kind not in self._kinds:
            kind = kind.without_names
        self._messages[over] += count
        self._kinds[kind] += count
        return kind.is_changed and len(self._samples[kind.change]) < SAMPLES

    def _kind_of(self, *pair: Decision) -> _Kind:
        old, new = self._verdicts(*pair)
        self._matched |= new.candidates
        return _Kind.of(old, new)

    def _verdicts(self, *pair: Decision) -> list[TableEffect]:
        decided = zip(self._trials, pair, strict=True)
        return [
            TableEffect.of(trial.decider, trial.context, self._mask, decision)
            for trial, decision in decided
        ]

    def _add_sample(self, pair: _Pair, identity: str, fields: Mapping[str, FieldValue]) -> None:
        (old, new), mask = self._verdicts(*pair), self._mask
        shown = {name: hidden_field(mask, name, value) for name, value in fields.items()}
        texts, because = (mask.text(old.text), mask.text(new.text)), reasons(old, new, fields, mask)
        sample = Sample(identity, shown, write_message(shown), *texts, tuple(because))
        self._samples[_Kind.of(old, new).change].append(sample)

    def answer(
        self,
        handler: str,
        names: tuple[str, str],
        *,
        over: Collection[Over] = (),
        seconds: float = 0.0,
        notes: Sequence[str] = (),
    ) -> WhatIf:
        """The answer so far.

        Args:
            handler: Its name.
            names: Those of the old and the new table.
            over: Where messages were looked for, also if there are none.
            seconds: How long it took.
            notes: What was left out.
        """
        old, new = (trial.decider.table for trial in self._trials)
        actions = (
            self._sums(lambda kind: [kind.old.action.value]),
            self._sums(lambda kind: [kind.new.action.value]),
        )
        cells = self._sums(lambda kind: [(kind.old.action, kind.new.action, kind.is_changed)])
        lost = self._sums(lambda kind: [kind.loss])
        risks = self._sums(lambda kind: kind.risks).most_common()
        places = [place for place in Over if place in over or place in self._messages]
        return WhatIf(
            handler=handler,
            old=TableActions(names[0], old.hash, dict(actions[0])),
            new=TableActions(names[1], new.hash, dict(actions[1])),
            messages={
                **{place.value: self._messages[place] for place in places},
                "total": self._messages.total(),
            },
            changed=self._sums(lambda kind: [kind.is_changed])[True],
            newly_discarded=lost[Loss.AT_ONCE],
            newly_discarded_in_the_end=lost[Loss.IN_THE_END],
            changes=self._changes(),
            matrix=[Cell(*cell, count) for cell, count in sorted(cells.items())],
            rules=tuple(self._rules(old, new)),
            never_matched=tuple(
                IdleRule(rule.line, write_rule(rule))
                for index, rule in enumerate(new.rules)
                if not self._matched >> index & 1
            ),
            targets=self._targets(),
            failing_now=tuple(self._refused()),
            control=tuple(control_changes(old, new)),
            schemes=self._schemes,
            seconds=round(seconds, 3),
            notes=(*(f"{counted(count, 'message')}: {risk}" for risk, count in risks), *notes),
        )

    def _sums(self, keys: Callable[[_Kind], Iterable[_Key]]) -> Counter[_Key]:
        sums: Counter[_Key] = Counter()
        for kind, count in self._kinds.items():
            for key in keys(kind):
                sums[key] += count
        return sums

    def _changes(self) -> list[ChangedMessages]:
        sums = self._sums(lambda kind: [kind.change] if kind.is_changed else [])
        worst = [*Loss]
        order = sorted(sums.items(), key=lambda item: (worst.index(item[0][0]), -item[1], item[0]))
        return [
            ChangedMessages(
                loss, count, old, new,
                sorted(self._samples[loss, old, new], key=attrgetter("message")),
            )
            for (loss, old, new), count in order
        ]  # fmt: skip

    def _rules(self, old: RulesTable, new: RulesTable) -> Iterator[RuleCount]:
        """How many messages each rule of both tables applies to next, in the new table's order."""
        was, becomes = _lines_by_text(old), _lines_by_text(new)
        by_old = self._sums(lambda kind: [kind.old.line])
        by_new = self._sums(lambda kind: [kind.new.line])
        for text in {**becomes, **was}:
            before, after = was.get(text), becomes.get(text)
            counts = by_old[before or _NO_LINE], by_new[after or _NO_LINE]
            yield RuleCount(text[0], before, counts[0], after, counts[1])

    def _targets(self) -> list[TargetCount]:
        old = self._sums(lambda kind: [(kind.old.action, kind.old_target)])
        new = self._sums(lambda kind: [(kind.new.action, kind.new_target)])
        rows = [TargetCount(*key, old[key], new[key]) for key in {**old, **new} if key[1]]
        return sorted(rows, key=lambda row: (-max(row.old, row.new), row.action, row.target))

    def _refused(self) -> Iterator[RefusedPuts]:
        """Puts of the new table that would fail now, the most frequent first."""
        sums = self._sums(lambda kind: [(kind.new_target, kind.reason, kind.detail)])
        for (target, reason, detail), count in sums.most_common():
            if reason:
                yield RefusedPuts(target, reason, reason_name(reason), detail, count)


def _lines_by_text(table: RulesTable) -> dict[tuple[str, int], int]:
    """The line of each rule by its text, and by how many earlier ones have the same text."""
    seen: Counter[str] = Counter()
    lines = {}
    for rule in table.rules:
        text = write_rule(rule)
        lines[text, seen[text]] = rule.line
        seen[text] += 1
    return lines


_LARGE: Final = 4 * 1024**3
"""Bytes of a ledger above which Spark reads it: some hundred million outcomes."""
_ENRICHED: Final = (
    "the enrichment function of the settings is not applied: rules see the original messages"
)
_AS_READ: Final = (
    "the ledger has dead letters as they were read: the effect of changed [schemes] is unknown"
)
_ONE_BY_ONE: Final = (
    "ORDER(KEY) is ignored: each message is tried as if no earlier one of its key waited"
)
_UNCHECKED: Final = "the broker cannot be reached: whether targets exist and accept puts is unknown"


def _no_progress(_done: int, _total: int) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Two tables, and the messages to try them on."""

    old: JobConfiguration
    new: JobConfiguration
    handler: str
    over: Collection[Over]
    since: datetime | None = None
    """How far history goes back; None for all of it."""
    mask: Mask = NO_MASK
    by_spark: bool | None = None
    """Whether Spark reads history; None: where the ledger is larger than one process should
    read."""
    show_progress: Callable[[int, int], None] = field(default=_no_progress)
    """Called with the number of messages that were read, and that of all."""

    def configuration(self, job: JobConfiguration) -> HandlerConfiguration:
        """The handler in one of the jobs."""
        names = [handler.identity.name for handler in self.old.handlers]
        return job.handlers[names.index(self.handler)]


def ask(question: Question) -> WhatIf:
    """Try both tables on the messages.

    Raises:
        UsageError: Over history, a table needs fields that the ledger does not have.
        EnvironmentFault: The cluster cannot be reached, or the ledger cannot be read.
        TransientFault: The broker did not answer in time.
    """
    begun = time.monotonic()
    handlers = [question.configuration(job) for job in (question.old, question.new)]
    _check_same_queue(*handlers)
    is_live = any(place is not Over.HISTORY for place in question.over)
    notes = [_ENRICHED] if question.new.enrichment else []
    cluster = _open_cluster(question, notes, required=is_live)
    facts = Facts(time.monotonic)
    old, new = (_decider(question, job, facts, cluster) for job in (question.old, question.new))
    if Over.HISTORY in question.over:
        _check_fields(old.table, new.table)
    tally = Tally(
        old, new, facts,
        _best_case if cluster is None else ClusterFacts(cluster).answers,
        now=int(time.time() * 1000), schemes=_other_schemes(question), mask=question.mask,
    )  # fmt: skip
    with collector_paused():
        if cluster is not None and is_live:
            _try_waiting(question, cluster, tally)
        if Over.HISTORY in question.over:
            notes += _try_history(question, tally)
            notes += [_AS_READ] if question.old.schemes != question.new.schemes else []
    is_ordered = old.table.control.is_ordered or new.table.control.is_ordered
    notes += [_ONE_BY_ONE] if is_ordered else []
    names = handlers[0].rules_name, handlers[1].rules_name
    seconds = time.monotonic() - begun
    return tally.answer(question.handler, names, over=question.over, seconds=seconds, notes=notes)


def _check_same_queue(old: HandlerConfiguration, new: HandlerConfiguration) -> None:
    if old.identity.topic != new.identity.topic:
        raise UsageError(
            f"the new table handles {new.identity.queue}, the old one {old.identity.queue}",
            hint="set the queue in the settings, or use the same INPUTQ in both tables",
        )


def _try_waiting(question: Question, cluster: Cluster, tally: Tally) -> None:
    job = question.old
    waiting = waiting_for(job, question.configuration(job), cluster, question.over)
    done, total = 0, number_of_reads(waiting)

    def advance(number: int) -> None:
        nonlocal done
        done += number
        question.show_progress(done, total)

    for part in parts_of(waiting, job.connection, advance):
        tally.add(part)


def _try_history(question: Question, tally: Tally) -> tuple[str, ...]:
    inventory, notes = Archive(question.old).inventory()
    with inventory, _engine(question, inventory) as engine:
        for letters in inventory.first_seen(question.handler, question.since, engine):
            tally.add_known(*letters)
    return notes


@contextmanager
def _engine(question: Question, inventory: Inventory) -> Iterator[Engine | None]:
    by_spark = question.by_spark
    if by_spark is None:
        is_large = inventory.size >= _LARGE
        by_spark = is_large and not is_remote(question.old.ledger.path)
    if not by_spark:
        yield None
        return
    from redrive.streaming.ledger_query import spark_engine  # noqa: PLC0415 - imports pyspark

    with spark_engine(question.old, inventory.tables) as engine:
        yield engine


def _check_fields(*tables: RulesTable) -> None:
    for table in tables:
        if missing := missing_fields(table):
            raise UsageError(
                f"the ledger does not have {', '.join(missing)}, which a table needs",
                hint="try it over remaining, parked and backlog, which have the messages"
                " themselves",
            )


def _open_cluster(question: Question, notes: list[str], *, required: bool) -> Cluster | None:
    try:
        return Cluster.open(question.old.connection, timeout=ANSWER)
    except EnvironmentFault:
        if required:
            raise
        notes.append(_UNCHECKED)
        return None


def _decider(
    question: Question, job: JobConfiguration, facts: Facts, cluster: Cluster | None
) -> RulesDecider:
    states = read_states(job, cluster) if job.topology and cluster is not None else NO_STATES
    topic = question.configuration(job).identity.topic
    decider, _ = DeciderFactory(job, facts).deciders(states)[topic]
    if not isinstance(decider, RulesDecider):
        raise TypeError(f"{topic} is an intake and has no rules table")
    return decider


def _best_case(questions: Questions) -> Answers:
    topics = dict.fromkeys(questions.topics, BEST_CASE)
    return Answers(topics, dict.fromkeys(questions.depths, 0))


def _other_schemes(question: Question) -> tuple[str, ...]:
    old, new = question.old.schemes, question.new.schemes
    differing = [scheme for scheme in (*old, *new) if scheme not in old or scheme not in new]
    if old != new and not differing:
        differing = [*new]  # another order: the first that recognises a dead letter reads it
    names = {scheme.name for scheme in differing}
    handlers = question.configuration(question.old), question.configuration(question.new)
    if handlers[0].origin_topic != handlers[1].origin_topic:
        names.add(BARE.name)
    return tuple(sorted(names))

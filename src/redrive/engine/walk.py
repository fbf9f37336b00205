"""The route of one put, decided by the job's own deciders in memory.

The put is a record on a topic that the job reads. Its decider decides it in its own slice; records
written to another topic that the job reads are decided next, until all records rest. Copies,
reports and dead letters go the same way, so nothing here decides anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from redrive.engine.context import Decider
from redrive.engine.facts import BEST_CASE, MISSING, Answers, Facts, Gone, Questions
from redrive.engine.outcome import Result
from redrive.engine.put_decider import Effect
from redrive.engine.put_record import NAMES
from redrive.engine.slice import Slice, SliceSettings
from redrive.engine.sources import PartitionRecords, SourceKind
from redrive.messages import DeadLetterDecoder, OutputRecord, Records, TopicPartition
from redrive.messages import own_headers as own

_OUTCOMES: Final = "outcomes"
_STATES: Final = "states"
_LAST_TRY: Final = 999_999_999
"""Failures of a parked copy after which no receiver retries: the largest MRRTY."""
_EFFECTS: Final = {effect.entry(0): effect for effect in Effect}
"""Effects by the entry number of the outputs for the only record of a slice."""


@dataclass(frozen=True, slots=True)
class Written:
    """One record that the job writes for another."""

    effect: Effect
    """Its effect, relative to the message read."""
    record: OutputRecord
    hop: int | None
    """Index of the hop that reads it; None if it rests on its topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One record that the job reads, and what it decides."""

    record: OutputRecord
    """The record as read from its topic."""
    kind: SourceKind
    """The kind of the topic, for its decider."""
    outcome: Mapping[str, Any]
    """The members of its outcome record."""
    written: tuple[Written, ...]
    """The message on its next topic or for a retry, its dead letter, its copy, reports."""

    @property
    def result(self) -> Result:
        """The result for the message."""
        return Result(self.outcome["result"])

    @property
    def message(self) -> Written | None:
        """The message, or the dead letter made from it; None if it is on no queue."""
        wanted = Effect.MESSAGE, Effect.DEAD_LETTER
        return next(
            (written_record for written_record in self.written if written_record.effect in wanted),
            None,
        )


@dataclass(frozen=True, slots=True)
class Walk:
    """The route of a put, and of all records that it causes."""

    hops: tuple[Hop, ...]
    """In the order of the decisions, the put's own first."""

    def way(self, first: int = 0) -> tuple[Hop, ...]:
        """The hops of one message, from the given one to where it rests or ends."""
        way = [self.hops[first]]
        while (written := way[-1].message) is not None and written.hop is not None:
            way.append(self.hops[written.hop])
        return tuple(way)


@dataclass(slots=True)
class AssumedCluster:
    """Answers for a healthy cluster that has certain topics and no others."""

    topics: Collection[str]
    present: set[str] = field(default_factory=set)
    """Topics that are assumed to exist and accept records."""
    missing: set[str] = field(default_factory=set)
    """Topics that are assumed not to exist."""
    not_full: set[str] = field(default_factory=set)
    """Topics of queues that are assumed to be empty."""

    def answers(self, questions: Questions) -> Answers:
        """The assumed answers, which are recorded."""
        self.present |= {name for name in questions.topics if name in self.topics}
        self.missing |= {name for name in questions.topics if name not in self.topics}
        self.not_full |= {question.topic for question in questions.depths}
        gone = Gone("the record it refers to is not read")
        return Answers(
            {name: BEST_CASE if name in self.topics else MISSING for name in questions.topics},
            dict.fromkeys(questions.depths, 0),
            dict.fromkeys(questions.records, gone),
        )


def walk(
    put: OutputRecord,
    deciders: Mapping[str, tuple[Decider, SourceKind]],
    facts: Facts,
    answers: Callable[[Questions], Answers],
    *,
    now: int,
    offset: int = 0,
) -> Walk:
    """Follow a put until it and all records that it causes rest.

    Args:
        put: The record on the intake.
        deciders: The deciders of puts and retries on each topic that the job reads now; a message
            on any other topic rests there.
        facts: The facts for the deciders.
        answers: Answers the open questions.
        now: The time of all decisions, in milliseconds since 1970.
        offset: Offset of the put on the intake; its identity chooses among equal instances of a
            cluster queue.

    Returns:
        The route. The hop limit ends loops of names, as in the job; equal reports are
        followed once.
    """
    settings = SliceSettings(outcomes_topic=_OUTCOMES, now=now, tables_topic=_STATES)
    hops: list[Hop] = []
    waiting = deque([(put, offset)])
    followed: set[tuple[Any, ...]] = set()
    while waiting:
        record, at = waiting.popleft()
        decider, kind = deciders[record.topic]
        part = PartitionRecords(TopicPartition(record.topic, 0), decider, kind, _read(record, at))
        work = Slice([part], DeadLetterDecoder(), facts, settings)
        work.resume({})
        while questions := work.decide():
            work.learn(answers(questions))
        outcome, outputs = _parts(work)
        written = []
        for effect, output in outputs:
            is_read = output.topic in deciders and _is_new(effect, output, followed)
            index = len(hops) + 1 + len(waiting) if is_read else None
            written.append(Written(effect, output, index))
            if is_read:
                waiting.append((_as_last_try(output), 0))
        hops.append(Hop(record=record, kind=kind, outcome=outcome, written=tuple(written)))
    return Walk(tuple(hops))


def _read(record: OutputRecord, offset: int) -> Records:
    headers = record.headers or []
    return Records([record.key], [record.value], [headers], [record.timestamp], [offset])


def _parts(work: Slice) -> tuple[Mapping[str, Any], Sequence[tuple[Effect, OutputRecord]]]:
    """The outcome, and the records that are messages; a parked copy is the message itself."""
    outcome: Mapping[str, Any] = {}
    outputs = []
    for entry, record in work.outputs:
        if entry in _EFFECTS:
            outputs.append((_EFFECTS[entry], record))
        elif record.topic == _OUTCOMES:
            outcome = orjson.loads(record.value or b"")
    assert outcome, "every input has an outcome"
    if outcome["result"] == Result.PARKED:
        parked = (copy for _, copy in work.outputs if own.FAILURES in dict(copy.headers or []))
        outputs += [(Effect.MESSAGE, copy) for copy in parked]
    return outcome, outputs


def _is_new(effect: Effect, record: OutputRecord, followed: set[tuple[Any, ...]]) -> bool:
    """Whether to follow a message, or a report that was not followed before."""
    if effect in {Effect.MESSAGE, Effect.DEAD_LETTER}:
        return True  # its hops are counted
    names = sorted(pair for pair in record.headers or [] if pair[0] in NAMES)
    key = effect, record.topic, *names
    is_new = key not in followed
    followed.add(key)
    return is_new


def _as_last_try(record: OutputRecord) -> OutputRecord:
    """A parked copy before its last attempt: with the same facts all attempts end the same."""
    headers = record.headers or []
    if own.FAILURES not in dict(headers):
        return record
    last = [(n, own.number(_LAST_TRY) if n == own.FAILURES else v) for n, v in headers]
    return record._replace(headers=last)

"""What a table would do with dead letters, decided as the job decides it, and not done.

A trial reads, matches, selects, resolves and checks by the same code as an attempt; only what an
attempt would write is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from redrive.decisions.attempts import DeadLetterProcessor
from redrive.decisions.processor import HEADROOM, PartitionRecords, SliceContext
from redrive.messages import DeadLetterDecoder, Records, SchemeTable
from redrive.messages import own_headers as own
from redrive.messages.own_headers import OwnHeaders, own_timestamp, read_own
from redrive.messages.schemes import KNOWN
from redrive.outcomes.record import Result
from redrive.rules import rules_of
from redrive.rules.analysis import Decision, decide
from redrive.rules.dialect.fields import Message
from redrive.topology.names import NO_NAMES, Names

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from redrive.decisions.handlers import Handler
    from redrive.decisions.plans import Plan
    from redrive.messages import DeadLetterProfile
    from redrive.rules import FieldValue

__all__ = ["Deed", "SharedDecoder", "Trial", "Verdict", "Weighed", "verdict_of"]

_STATE: Final = (own.TABLE, own.FAILURES, own.FAILED_RULES, own.HOPS)
"""What a record says of earlier attempts, beside that it is in quarantine."""
_ANY: Final = 1 << 62
"""A size or a time that nothing reaches."""
_STAYS: Final = Decision((), discarded=False)
_REMEMBERED: Final = 50_000
"""Plans that a trial remembers at most."""


class Deed(StrEnum):
    """What a table does next with a message."""

    DISCARD = "DISCARD"
    RETRY = "RETRY"
    FWD = "FWD"
    IGNORE = "IGNORE"
    QUARANTINE = "QUARANTINE"
    REMAINS = "REMAINS"
    """No rule applies: none matches, or each that does has been tried as often as it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one table does with a message."""

    deed: Deed
    line: int = 0
    """Line of the rule; 0 if none applies."""
    target: Names = NO_NAMES
    """Where it is put, in names."""
    course: Decision = _STAYS
    """What becomes of it from here on, as long as every attempt fails."""
    reason: int = 0
    """Why the attempt would fail at this moment; 0 if nothing speaks against it."""
    detail: str = ""
    """The same in words; without a rule, why none applies."""


class Weighed(NamedTuple):
    """Messages that are alike as a table sees them, and what the table does with them."""

    letter: DeadLetterProfile
    plan: Plan


class _Kind(NamedTuple):
    """What becomes of dead letters that are alike, and for which of them that holds."""

    weighed: Weighed
    room: int
    """Bytes of the longest value."""
    earliest: int
    """Timestamps, in milliseconds."""
    latest: int


@dataclass(frozen=True, slots=True)
class _States:
    """What records say of earlier attempts."""

    states: Sequence[OwnHeaders]
    """One object for all records that say the same; without identity, origin and timestamp."""
    timestamps: Sequence[int]
    """The messages' own, in milliseconds."""


class SharedDecoder(DeadLetterDecoder):
    """A decoder for several trials of the same records, which reads them once."""

    _last: tuple[Records, tuple[npt.NDArray[np.int32], Sequence[DeadLetterProfile]]] | None = None
    _states: tuple[Records, _States] | None = None

    def __init__(self, schemes: SchemeTable = KNOWN) -> None:
        """Know nothing yet; arguments as for ``DeadLetterDecoder``."""
        super().__init__(schemes=schemes)
        self._known: dict[tuple[bytes | bool | None, ...], OwnHeaders] = {}

    def decode(self, records: Records) -> tuple[npt.NDArray[np.int32], Sequence[DeadLetterProfile]]:
        """See ``DeadLetterDecoder.decode``."""
        if self._last is None or self._last[0] is not records:
            self._last = records, super().decode(records)
        return self._last[1]

    def states_of(self, records: Records) -> _States:
        """What each record says of earlier attempts."""
        if self._states is None or self._states[0] is not records:
            self._states = records, self._read_states(records)
        return self._states[1]

    def _read_states(self, records: Records) -> _States:
        states, timestamps = [], []
        for headers, timestamp in zip(records.headers, records.timestamps, strict=True):
            last = dict(headers)
            key = *map(last.get, _STATE), own.QUARANTINE in last
            state = self._known.get(key)
            if state is None:
                told = [(name, last[name]) for name in (*_STATE, own.QUARANTINE) if name in last]
                state = self._known[key] = read_own(told)
            states.append(state)
            raw = last.get(own.TIMESTAMP)
            timestamps.append(timestamp if raw is None else own_timestamp(raw, timestamp))
        return _States(states, timestamps)


class Trial(DeadLetterProcessor):
    """Tries one table on the records of one lane, part by part."""

    def __init__(
        self,
        part: PartitionRecords,
        handler: Handler,
        decoder: SharedDecoder,
        context: SliceContext,
    ) -> None:
        """Take the lane; nothing is decided yet; arguments as for ``DeadLetterProcessor``."""
        super().__init__(part, handler, decoder, context)
        self._shared = decoder
        self._kinds: dict[tuple[int, int], _Kind | None] = {}
        self._weighed: dict[tuple[int, int], Weighed] = {}

    @property
    def is_full(self) -> bool:
        """Whether so much is remembered that another trial should go on."""
        return len(self._weighed) > _REMEMBERED

    def weighed(self, part: PartitionRecords) -> list[Weighed]:
        """What becomes of each record, in their order: one object for all that are alike.

        What the cluster has to be asked for is left behind as questions, as in an attempt; after
        the answers another trial has to be made.

        Args:
            part: Some records of the lane.
        """
        self._part = part
        _, is_fresh = self._look_at_headers()
        letters, rows = self._handler.letters, range(len(part.records))
        if letters is not None and letters.is_varied:
            return [self._weighed_row(row) for row in rows]
        shared = self._profiles if letters is None else [*map(letters.shared, self._profiles)]
        self._letters = shared
        if is_fresh:
            fresh = _States([own.NO_OWN_HEADERS] * len(rows), part.records.timestamps)
            return list(self._weighed_quickly(fresh))
        return list(self._weighed_quickly(self._shared.states_of(part.records)))

    def _weighed_quickly(self, told: _States) -> Iterator[Weighed]:
        """As an attempt's quick rows: dead letters of one kind have one plan."""
        kinds, values = self._kinds, self._part.records.values
        rows = zip(self._letters, told.states, told.timestamps, strict=True)
        for row, (letter, state, timestamp) in enumerate(rows):
            try:
                kind = kinds[id(letter), id(state)]
            except KeyError:
                kind = kinds[id(letter), id(state)] = self._kind(letter, state)
            if kind is None:
                yield self._weighed_row(row)
                continue
            weighed, room, earliest, latest = kind
            if room < _ANY and not (
                earliest <= timestamp <= latest and len(values[row] or b"") <= room
            ):
                yield self._weighed_row(row)
                continue
            yield weighed

    def _kind(self, letter: DeadLetterProfile, state: OwnHeaders) -> _Kind | None:
        """What becomes of a kind of dead letter; None if each has to be looked at by itself."""
        # Which row does not matter: a trial sets all copies free, or none.
        plan = self._plans.plan(letter, self._progress(0, state), state.hops)
        weighed = self._as_one(letter, plan)
        if plan.destination is None:
            return _Kind(weighed, _ANY, -_ANY, _ANY)
        longest = plan.destination.limits.longest
        facts = self._context.facts.topic(plan.destination.topic)
        is_plain = not (plan.destination.is_choice or facts.wants_keys or facts.silent)
        if longest is None or letter.is_wrapped or letter.view.pointer or not is_plain:
            return None
        # What comes near the limit is looked at closely, as headers count too.
        room = min((facts.max_message_bytes - HEADROOM) // 2, longest)
        return _Kind(weighed, room, *facts.timestamps(self._context.now))

    def _weighed_row(self, row: int) -> Weighed:
        _, letter, plan, _ = self._attempted(row)
        return self._as_one(letter, plan)

    def _as_one(self, letter: DeadLetterProfile, plan: Plan) -> Weighed:
        """One object for all that are alike; it keeps what it is found by."""
        key = id(letter), id(plan)
        known = self._weighed.get(key)
        if known is None:
            known = self._weighed[key] = Weighed(letter, plan)
        return known

    def fields_of(self, row: int) -> dict[str, FieldValue]:
        """Everything of a record that the patterns of the table look at."""
        record, _ = self._read(row)
        letters, profile = self._handler.letters, self._profiles[row]
        if letters is None or not profile.is_dead_letter:
            return dict(profile.fields)
        now = self._context.now
        seen = Message(record.key, record.value, record.headers, record.timestamp, now)
        return letters.fields_of(profile, seen)

    def identity_of(self, row: int) -> str:
        """The identity of a record's message."""
        return self._read(row)[0].identity


def verdict_of(handler: Handler, weighed: Weighed) -> Verdict:
    """What a plan means to somebody who compares tables.

    Args:
        handler: Whose plan it is.
        weighed: A dead letter and the plan for it.
    """
    letter, plan = weighed
    course, rule = _course(handler, letter, plan), plan.rule
    if rule is None:
        return Verdict(deed=Deed.REMAINS, course=course, reason=plan.reason, detail=plan.detail)
    return Verdict(
        deed=Deed(rule.action.value),
        line=rule.line,
        target=Names(queue=plan.queue, queue_manager=plan.queue_manager),
        course=course,
        reason=plan.reason,
        detail=plan.detail if plan.reason else "",
    )


def _course(handler: Handler, letter: DeadLetterProfile, plan: Plan) -> Decision:
    rule = plan.rule
    if rule is None or (rule.action.can_fail and not plan.attempt):
        return Decision((), discarded=False, quarantined=plan.progress.is_quarantined)
    candidates = handler.candidates_of(letter)
    failed = _failed_before(handler, candidates, plan)
    decision, _ = decide(handler.table, candidates, letter.fields, failed)
    return decision


def _failed_before(handler: Handler, candidates: int, plan: Plan) -> dict[int, int]:
    """The attempts of each rule that failed before the plan was made."""
    rule, progress = plan.rule, plan.progress
    is_failed = plan.result in {Result.PARKED, Result.REMAINS} and plan.attempt > 0
    if handler.letters is not None:
        failed = dict(progress.failed)
        if is_failed:
            index = next(i for i, one in enumerate(handler.table.rules) if one is rule)
            failed[index] -= 1
        return failed
    left, failed = progress.failures - is_failed, {}
    for index in rules_of(candidates):
        one = handler.table.rules[index]
        if left <= 0 or not one.action.can_fail:
            break
        failed[index] = min(left, one.retry)
        left -= failed[index]
    return failed

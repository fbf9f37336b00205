"""What a table would do with dead letters, decided as the job decides it, and not done.

A trial reads, matches, selects, resolves and checks by the same code as an attempt; only what an
attempt would write is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from redrive.engine.attempts import DeadLetterProcessor
from redrive.engine.outcome import Result
from redrive.engine.processor import HEADROOM, PartitionRecords, SliceContext
from redrive.messages import DeadLetterDecoder, Records, SchemeTable
from redrive.messages import own_headers as own
from redrive.messages.own_headers import OwnHeaders, own_timestamp, read_own
from redrive.messages.schemes import KNOWN
from redrive.rules import rules_of
from redrive.rules.analysis import Decision, decide
from redrive.rules.fields import RuleInput
from redrive.topology.names import NO_NAMES, Names

if TYPE_CHECKING:
    import numpy.typing as npt

    from redrive.engine.handlers import Handler
    from redrive.engine.plans import Plan
    from redrive.messages import DeadLetterProfile
    from redrive.rules import FieldValue

__all__ = ["Deed", "Judged", "SharedDecoder", "Trial", "Verdict", "Weighed", "verdict_of"]

_STATE: Final = (own.TABLE, own.FAILURES, own.FAILED_RULES, own.HOPS)
"""What a record says of earlier attempts, beside that it is in quarantine."""
_ANY: Final = 1 << 62
"""A size or a time that nothing reaches."""
_NO_ROOM: Final = -1
"""A size that every value is above."""
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


_StateKey: TypeAlias = tuple[bytes | None, bytes | None, bytes | None, bytes | None, bool]
"""What ``_STATE`` says, and whether the record is in quarantine."""


class Judged(NamedTuple):
    """What becomes of some records."""

    kinds: Sequence[Weighed]
    """Of all records that the trial has seen."""
    codes: npt.NDArray[np.int64]
    """For each record an index into the kinds."""


class _Kind(NamedTuple):
    """What becomes of dead letters that are alike, and for which of them that holds."""

    code: int
    """What becomes of them: an index into the kinds of the trial."""
    room: int = _ANY
    """Bytes of the longest value; ``_NO_ROOM`` if each has to be looked at by itself."""
    earliest: int = -_ANY
    """Timestamps, in milliseconds."""
    latest: int = _ANY


class _Told(NamedTuple):
    """What decides about records beside their profiles, unless each is looked at by itself."""

    states: Sequence[OwnHeaders]
    """What records say of earlier attempts; without identity, origin and timestamp."""
    codes: npt.NDArray[np.int64]
    """For each record an index into the states."""
    timestamps: npt.NDArray[np.int64]
    """The messages' own, in milliseconds."""
    lengths: npt.NDArray[np.int64]
    """Bytes of their values."""


class SharedDecoder(DeadLetterDecoder):
    """A decoder for several trials of the same records, which reads them once."""

    _last: tuple[Records, tuple[npt.NDArray[np.int32], Sequence[DeadLetterProfile]]] | None = None
    _told: tuple[Records, _Told] | None = None

    def __init__(self, schemes: SchemeTable = KNOWN) -> None:
        """Know nothing yet; arguments as for ``DeadLetterDecoder``."""
        super().__init__(schemes=schemes)
        self._states: list[OwnHeaders] = []
        self._known: dict[_StateKey, int] = {}

    def decode(self, records: Records) -> tuple[npt.NDArray[np.int32], Sequence[DeadLetterProfile]]:
        """See ``DeadLetterDecoder.decode``."""
        if self._last is None or self._last[0] is not records:
            self._last = records, super().decode(records)
        return self._last[1]

    def told(self, records: Records) -> _Told:
        """What each record says beside its profile."""
        if self._told is None or self._told[0] is not records:
            self._told = records, self._read(records)
        return self._told[1]

    def _read(self, records: Records) -> _Told:
        columns, is_quarantined = _own_columns(records)
        *state, times = columns
        keys = zip(*state, is_quarantined, strict=True)
        told = zip(times, records.timestamps, strict=True)
        return _Told(
            self._states,
            np.array([*map(self._code_of_state, keys)], np.int64),
            np.array([own_timestamp(raw, time) for raw, time in told], np.int64),
            np.array([len(value) if value else 0 for value in records.values], np.int64),
        )

    def _code_of_state(self, key: _StateKey) -> int:
        code = self._known.get(key)
        if code is None:
            code = self._known[key] = len(self._states)
            *raws, is_quarantined = key
            told = [*zip(_STATE, raws, strict=True)]
            if is_quarantined:
                told.append((own.QUARANTINE, None))
            self._states.append(read_own(told))
        return code


def _own_columns(
    records: Records,
) -> tuple[list[Sequence[bytes | None]], Sequence[bool]]:
    """What records say of earlier attempts and of their time, and whether they are in quarantine.

    Of a repeated header the last counts.
    """
    grid, names = records.grid, (*_STATE, own.TIMESTAMP)
    if grid is None:
        last = [*map(dict, records.headers)]
        return (
            [[headers.get(name) for headers in last] for name in names],
            [own.QUARANTINE in headers for headers in last],
        )
    places = {name: index for index, name in enumerate(grid.layout)}
    missing = [None] * len(records)
    return (
        [grid.column(places[name]) if name in places else missing for name in names],
        [own.QUARANTINE in places] * len(records),
    )


class Trial(DeadLetterProcessor):
    """Tries one table on records of one kind of source, part by part."""

    def __init__(
        self,
        part: PartitionRecords,
        handler: Handler,
        decoder: SharedDecoder,
        context: SliceContext,
    ) -> None:
        """Take the first part; nothing is decided yet; arguments as for ``DeadLetterProcessor``."""
        super().__init__(part, handler, decoder, context)
        self._shared = decoder
        self._weighed: list[Weighed] = []
        self._codes: dict[tuple[int, int], int] = {}
        self._kinds: dict[int, _Kind] = {}
        self._kinds_are_of: Sequence[DeadLetterProfile] = ()

    @property
    def is_full(self) -> bool:
        """Whether so much is remembered that another trial should go on."""
        return len(self._weighed) > _REMEMBERED

    def judged(self, part: PartitionRecords) -> Judged:
        """What becomes of each record, in their order.

        What the cluster has to be asked for is left behind as questions, as in an attempt; after
        the answers another trial has to be made.

        Args:
            part: Some records of any lane of the kind.
        """
        self._part, self._prefix = part, part.prefix
        self._look_at_headers()
        letters = self._handler.letters
        if letters is not None and letters.is_varied:
            rows = range(len(part.records))
            return Judged(self._weighed, np.array([*map(self._code_of_row, rows)], np.int64))
        kinds, of_row = self._kinds_of(part.records)
        codes, rooms, earliest, latest = np.array(kinds, np.int64)[of_row].T.copy()
        told = self._shared.told(part.records)
        closer = (told.lengths > rooms) | (told.timestamps < earliest) | (told.timestamps > latest)
        if closer.any():
            self._letters = self._as_the_table_sees(0)
            for row in np.flatnonzero(closer).tolist():
                codes[row] = self._code_of_row(row)
        return Judged(self._weighed, codes)

    def _kinds_of(self, records: Records) -> tuple[list[_Kind], npt.NDArray[np.int64]]:
        """The kinds that there are among some records, and for each record an index into them.

        As an attempt's quick rows: dead letters of one kind have one plan.
        """
        codes, profiles = self._shared.decode(records)
        if profiles is not self._kinds_are_of:  # the decoder has begun another list
            self._kinds, self._kinds_are_of = {}, profiles
        told = self._shared.told(records)
        pairs, of_row = np.unique((codes.astype(np.int64) << 32) + told.codes, return_inverse=True)
        kinds = []
        for pair in pairs.tolist():
            kind = self._kinds.get(pair)
            if kind is None:
                kind = self._kinds[pair] = self._kind(
                    profiles[pair >> 32], told.states[pair & 0xFFFFFFFF]
                )
            kinds.append(kind)
        return kinds, of_row

    def _kind(self, profile: DeadLetterProfile, state: OwnHeaders) -> _Kind:
        """What becomes of a kind of dead letter, and how far that holds."""
        letters = self._handler.letters
        letter = profile if letters is None else letters.shared(profile)
        # Which row does not matter: a trial sets all copies free, or none.
        plan = self._plans.plan(letter, self._progress(0, state), state.hops)
        return _Kind(self._code_of(letter, plan), *self._bounds(letter, plan))

    def _bounds(self, letter: DeadLetterProfile, plan: Plan) -> tuple[int, int, int]:
        """Bytes and timestamps of messages that a plan surely holds for."""
        if plan.destination is None:
            return _ANY, -_ANY, _ANY
        longest = plan.destination.limits.longest
        facts = self._context.facts.topic(plan.destination.topic)
        is_plain = not (plan.destination.is_choice or facts.wants_keys or facts.silent)
        if longest is None or letter.is_wrapped or letter.view.pointer or not is_plain:
            return _NO_ROOM, -_ANY, _ANY
        # What comes near the limit is looked at closely, as headers count too.
        room = min((facts.max_message_bytes - HEADROOM) // 2, longest)
        earliest, latest = facts.timestamps(self._context.now)
        return room, max(earliest, -_ANY), min(latest, _ANY)

    def _code_of_row(self, row: int) -> int:
        _, letter, plan, _ = self._attempted(row)
        return self._code_of(letter, plan)

    def _code_of(self, letter: DeadLetterProfile, plan: Plan) -> int:
        """One number for all that are alike; what it is found by is kept."""
        key = id(letter), id(plan)
        code = self._codes.get(key)
        if code is None:
            code = self._codes[key] = len(self._weighed)
            self._weighed.append(Weighed(letter, plan))
        return code

    def fields_of(self, row: int) -> dict[str, FieldValue]:
        """Everything of a record that the patterns of the table look at."""
        record, _ = self._read(row)
        letters, profile = self._handler.letters, self._profiles[row]
        if letters is None or not profile.is_dead_letter:
            return dict(profile.fields)
        now = self._context.now
        seen = RuleInput(record.key, record.value, record.headers, record.timestamp, now)
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

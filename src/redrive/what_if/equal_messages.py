"""Decisions of a table about many mostly equal messages; nothing is written.

A trial reads and decides by the engine, as the job does. It adds speed: messages of one profile
with the same earlier attempts are decided once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from redrive.engine.context import SliceContext
from redrive.engine.decision import Decision, Keep, Park, Put, Wait
from redrive.engine.message import NO_ATTEMPTS, Attempts
from redrive.engine.put_record import PutTimes, put_bounds
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.sources import DeadLetterSource, PartitionRecords, SourceKind
from redrive.messages import DeadLetterDecoder, DeadLetterProfile, Records, SchemeTable
from redrive.messages import own_headers as own
from redrive.messages.own_headers import OwnHeaders, own_timestamp, read_own
from redrive.messages.schemes import KNOWN
from redrive.rules import FieldValue, rules_of
from redrive.rules.analysis import Decision as Course
from redrive.rules.analysis import decide as course_of
from redrive.topology.names import NO_NAMES, Names

_STATE: Final = (own.TABLE, own.FAILURES, own.FAILED_RULES, own.HOPS)
"""A record's fields about earlier attempts, except quarantine."""
_ANY: Final = 1 << 62
"""A size or time above all real ones."""
_NO_ROOM: Final = -1
"""A size below all real ones."""
_STAYS: Final = Course((), discarded=False)
_REMEMBERED: Final = 50_000
"""Maximum decisions that a trial caches."""


class Disposition(StrEnum):
    """What a table does next with a message."""

    DISCARD = "DISCARD"
    RETRY = "RETRY"
    FWD = "FWD"
    IGNORE = "IGNORE"
    QUARANTINE = "QUARANTINE"
    REMAINS = "REMAINS"
    """No rule applies: none matches, or all attempts of those that do are used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one table does with a message."""

    disposition: Disposition
    line: int = 0
    """Line of the rule; 0 if none applies."""
    target: Names = NO_NAMES
    """The names that it is put to."""
    course: Course = _STAYS
    """Its further results, if every attempt fails."""
    reason: int = 0
    """Why the attempt would fail now; 0 if it would not."""
    detail: str = ""
    """The reason as text; without a rule, why none applies."""
    risks: tuple[str, ...] = ()
    """What may happen to it after the put."""


_StateKey: TypeAlias = tuple[bytes | None, bytes | None, bytes | None, bytes | None, bool]
"""The values of ``_STATE``, and whether the record is in quarantine."""


class BatchDecisions(NamedTuple):
    """Results of some records."""

    decisions: Sequence[Decision]
    """Those of all records of the trial."""
    codes: npt.NDArray[np.int64]
    """For each record an index into the decisions."""


class _Kind(NamedTuple):
    """The result of equal dead letters, and the limits within which it applies."""

    code: int
    """Index of their decision in the trial."""
    room: int = _ANY
    """Bytes of the longest value; ``_NO_ROOM`` if each needs its own decision."""
    earliest: int = -_ANY
    """Timestamps, in milliseconds."""
    latest: int = _ANY


class _RecordState(NamedTuple):
    """What decisions about records depend on besides profiles."""

    states: Sequence[OwnHeaders]
    """Records' fields about earlier attempts, without identity, origin and timestamp."""
    codes: npt.NDArray[np.int64]
    """For each record an index into the states."""
    timestamps: npt.NDArray[np.int64]
    """The messages' own, in milliseconds."""
    lengths: npt.NDArray[np.int64]
    returned: npt.NDArray[np.bool_]
    """Whether they count rounds."""


class SharedDecoder(DeadLetterDecoder):
    """A decoder for several trials of the same records, which it decodes once."""

    _last: tuple[Records, tuple[npt.NDArray[np.int32], Sequence[DeadLetterProfile]]] | None = None
    _state: tuple[Records, _RecordState] | None = None

    def __init__(self, schemes: SchemeTable = KNOWN) -> None:
        super().__init__(schemes=schemes)
        self._states: list[OwnHeaders] = []
        self._known: dict[_StateKey, int] = {}

    def decode(self, records: Records) -> tuple[npt.NDArray[np.int32], Sequence[DeadLetterProfile]]:
        """See ``DeadLetterDecoder.decode``."""
        if self._last is None or self._last[0] is not records:
            self._last = records, super().decode(records)
        return self._last[1]

    def state(self, records: Records) -> _RecordState:
        """The state of each record, besides its profile."""
        if self._state is None or self._state[0] is not records:
            self._state = records, self._read(records)
        return self._state[1]

    def _read(self, records: Records) -> _RecordState:
        columns, is_quarantined = _own_columns(records)
        *state, times, rounds = columns
        keys = zip(*state, is_quarantined, strict=True)
        own_times = zip(times, records.timestamps, strict=True)
        return _RecordState(
            self._states,
            np.array([*map(self._code_of_state, keys)], np.int64),
            np.array([own_timestamp(raw, time) for raw, time in own_times], np.int64),
            np.array([len(value) if value else 0 for value in records.values], np.int64),
            np.array([raw is not None for raw in rounds], np.bool_),
        )

    def _code_of_state(self, key: _StateKey) -> int:
        code = self._known.get(key)
        if code is None:
            code = self._known[key] = len(self._states)
            *raws, is_quarantined = key
            headers = [*zip(_STATE, raws, strict=True)]
            if is_quarantined:
                headers.append((own.QUARANTINE, None))
            self._states.append(read_own(headers))
        return code


def _own_columns(records: Records) -> tuple[list[Sequence[bytes | None]], Sequence[bool]]:
    """Earlier attempts, times and rounds of records, and whether they are in quarantine.

    The last of repeated headers counts.
    """
    grid, names = records.grid, (*_STATE, own.TIMESTAMP, own.ROUNDS)
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


class Trial:
    """Decides records of one kind of source by one table, part by part."""

    def __init__(self, decider: RulesDecider, decoder: SharedDecoder, facts: SliceContext) -> None:
        self._decider = decider
        self._decoder = decoder
        self._facts = facts
        self._source = DeadLetterSource(decider, decoder)
        self._decisions: list[Decision] = []
        self._codes: dict[int, int] = {}
        self._kinds: dict[int, _Kind] = {}
        self._kinds_are_of: Sequence[DeadLetterProfile] = ()

    @property
    def is_full(self) -> bool:
        """Whether the cache is so large that another trial should continue."""
        return len(self._decisions) > _REMEMBERED

    def decided(self, part: PartitionRecords) -> BatchDecisions:
        """The result of each record, in order.

        Missing facts about the cluster are left as questions, as in an attempt; after the answers a
        new trial is needed.
        """
        self._source.load(part, 0)
        if self._decider.profiles.is_varied:
            rows = range(len(part.records))
            codes = np.array([*map(self._code_of_row, rows)], np.int64)
            return BatchDecisions(self._decisions, codes)
        kinds, of_row = self._kinds_of(part)
        codes, rooms, earliest, latest = np.array(kinds, np.int64)[of_row].T.copy()
        state = self._decoder.state(part.records)
        closer = (
            (state.lengths > rooms) | (state.timestamps < earliest) | (state.timestamps > latest)
        )
        if part.kind is SourceKind.DEAD_LETTERS:
            closer |= state.returned
        elif part.kind is SourceKind.REMAINING:
            closer |= state.lengths == 0  # it may be a pointer, which its copy does not show
        for row in np.flatnonzero(closer).tolist():
            codes[row] = self._code_of_row(row)
        return BatchDecisions(self._decisions, codes)

    def _kinds_of(self, part: PartitionRecords) -> tuple[list[_Kind], npt.NDArray[np.int64]]:
        codes, profiles = self._decoder.decode(part.records)
        if profiles is not self._kinds_are_of:  # the decoder has begun another list
            self._kinds, self._kinds_are_of = {}, profiles
        state = self._decoder.state(part.records)
        pairs, of_row = np.unique((codes.astype(np.int64) << 32) + state.codes, return_inverse=True)
        kinds = []
        for pair in pairs.tolist():
            kind = self._kinds.get(pair)
            if kind is None:
                kind = self._kinds[pair] = self._kind(
                    part, profiles[pair >> 32], state.states[pair & 0xFFFFFFFF]
                )
            kinds.append(kind)
        return kinds, of_row

    def _kind(self, part: PartitionRecords, profile: DeadLetterProfile, state: OwnHeaders) -> _Kind:
        # Any row will do: a trial releases all copies, or none.
        is_fresh = part.kind is SourceKind.DEAD_LETTERS
        attempts = NO_ATTEMPTS if is_fresh else part.attempts(0, state)
        decision = self.decide_profile(profile, attempts, state.hops)
        if not isinstance(decision, Put):
            return _Kind(self._code_of(decision))
        bounds = put_bounds(decision, self._facts)
        if bounds is None or PutTimes.of(decision, self._facts).depends_on_record:
            return _Kind(self._code_of(decision), _NO_ROOM)
        room, earliest, latest = bounds
        # Sizes near the limit are checked individually, as headers count too.
        return _Kind(self._code_of(decision), room // 2, max(earliest, -_ANY), min(latest, _ANY))

    def decide_profile(
        self, profile: DeadLetterProfile, attempts: Attempts = NO_ATTEMPTS, hops: int = 0
    ) -> Decision:
        """Decide about the messages of a profile, before a put is tried."""
        matched = self._decider.profiles.shared(profile)
        return self._facts.cache.of_profile(self._decider, matched, attempts, hops=hops)

    def _code_of_row(self, row: int) -> int:
        message, attempts, _ = self._source.read(row)
        return self._code_of(self._decider.decide(message, attempts, self._facts).decision)

    def _code_of(self, decision: Decision) -> int:
        code = self._codes.get(id(decision))
        if code is None:
            code = self._codes[id(decision)] = len(self._decisions)
            self._decisions.append(decision)
        return code

    def fields_of(self, row: int) -> dict[str, FieldValue]:
        """All fields of a record that the table's patterns use."""
        return self._decider.profiles.fields_of(self._source.read(row)[0], self._facts.now)

    def identity_of(self, row: int) -> str:
        """The identity of a record's message."""
        return self._source.read(row)[0].identity


def verdict_of(decider: RulesDecider, decision: Decision) -> Verdict:
    """The part of a decision that is compared between tables."""
    course, rule = _course(decider, decision), decision.rule
    if rule is None:
        return Verdict(
            disposition=Disposition.REMAINS,
            course=course,
            reason=decision.reason,
            detail=decision.detail,
        )
    return Verdict(
        disposition=Disposition(rule.action.value),
        line=rule.line,
        target=decision.target,
        course=course,
        reason=decision.reason,
        detail=decision.detail if decision.reason else "",
    )


def _course(decider: RulesDecider, decision: Decision) -> Course:
    rule = decision.rule
    if rule is None or (rule.action.can_fail and not decision.attempt):
        return Course((), discarded=False, quarantined=decision.attempts.is_quarantined)
    candidates = decider.profiles.candidates_of(decision.profile)
    failed = _failed_before(decider, candidates, decision)
    course, _ = course_of(decider.table, candidates, decision.profile.fields, failed)
    return course


def _failed_before(decider: RulesDecider, candidates: int, decision: Decision) -> dict[int, int]:
    rule, attempts = decision.rule, decision.attempts
    is_failed = isinstance(decision, Park | Keep) and decision.attempt > 0
    is_failed &= not isinstance(decision, Wait)
    if decider.profiles.is_kafka:
        failed = dict(attempts.by_rule)
        if is_failed:
            index = next(i for i, one in enumerate(decider.table.rules) if one is rule)
            failed[index] -= 1
        return failed
    left, failed = attempts.failures - is_failed, {}
    for index in rules_of(candidates):
        one = decider.table.rules[index]
        if left <= 0 or not one.action.can_fail:
            break
        failed[index] = min(left, one.retry)
        left -= failed[index]
    return failed

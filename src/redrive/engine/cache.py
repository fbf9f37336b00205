"""What exists for speed: equal messages are decided once, and most puts are prepared.

Nearly all fresh dead letters of a lane, instructions to replay some, and puts have the same header
names in the same order, and few distinct profiles or message descriptors. ``PreparedPut`` computes
their common part once; each record then costs one list, one slice and one line of JSON. Other
records are made individually. Both ways write the same records, which tests check.

A cache belongs to the decider that fills it, and is used by one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from redrive.engine.context import SliceContext
from redrive.engine.decision import NO_PROFILE, Decision, Put
from redrive.engine.message import Attempts, Message
from redrive.engine.put_record import (
    ANY_TIME,
    LEFT_TO_QUEUE,
    Completion,
    PutDescriptor,
    PutTimes,
    defaults_of,
    timestamp_header,
)
from redrive.messages import (
    DeadLetterProfile,
    Headers,
    OutputRecord,
    read_view,
    remove_header,
    without_stacks,
)
from redrive.messages import own_headers as own
from redrive.messages.dead_letters import (
    origin_partition,
    origin_partition_headers,
)
from redrive.messages.schemes import KNOWN, Scheme, SchemeTable
from redrive.messages.schemes.scheme import Stamp
from redrive.rules import Dialect, FieldReader, FieldValue, Matcher, RulesTable
from redrive.rules.keywords import KAFKA, pattern_keyword
from redrive.rules.patterns import RuleInput
from redrive.topology.names import Names
from redrive.topology.put import Refusal

PROFILES: Final = 20_000
"""Maximum profiles to cache when messages are matched individually."""
_CANDIDATES: Final = 100_000
"""Maximum profiles whose matching rules are cached."""

_INSERTED: Final = tuple(insert[1:] for insert in KAFKA.keywords["FWDT"].references)
"""Fields that names of topics may have."""


@dataclass(frozen=True, slots=True)
class MatchedProfile(DeadLetterProfile):
    """Dead letters that one table decides the same."""

    candidates: int = 0
    """The rules that match them, as bits."""

    @classmethod
    def of(
        cls, profile: DeadLetterProfile, match_fields: Mapping[str, FieldValue], candidates: int = 0
    ) -> MatchedProfile:
        """The dead letters of a profile that these rules match, with the fields that rules read."""
        known = {field.name: getattr(profile, field.name) for field in fields(profile)}
        return cls(**{**known, "fields": match_fields}, candidates=candidates)


class ProfileMatcher:
    """Matches messages, or whole profiles of them, with the rules of one table."""

    def __init__(self, table: RulesTable, schemes: SchemeTable = KNOWN) -> None:
        self.is_kafka = table.control.dialect is Dialect.KAFKA
        """Whether rules match messages, not only fields of profiles."""
        names = table.asked if self.is_kafka else frozenset()
        asked = {name for name in names if pattern_keyword(name).is_varied}
        self._matcher = Matcher(table)
        self._schemes = schemes
        self._shared = FieldReader({*(names - asked), *_INSERTED})
        self._varied = FieldReader(asked)
        self.is_varied = self.is_kafka and bool(self._varied.names)
        """Whether messages of one profile must be matched individually."""
        self._needs_view = any(pattern_keyword(name).needs_failure for name in asked)
        # Each answer keeps its profile alive, so no other object gets the id in its key.
        self._bases: dict[int, tuple[DeadLetterProfile, MatchedProfile]] = {}
        self._matched: dict[tuple[int, int], MatchedProfile] = {}
        self._candidates: dict[int, tuple[DeadLetterProfile, int]] = {}

    def match(self, message: Message, now: int) -> DeadLetterProfile:
        """The profile of a message with all the rules that match it at a time in milliseconds."""
        profile = message.profile or NO_PROFILE
        if not self.is_varied or not profile.is_dead_letter:
            return self.shared(profile)
        base = self._base(profile)
        values = self._fields(base, rule_input(message, now))
        return self._matched_profile(base, self._matcher.candidates_of(values))

    def shared(self, profile: DeadLetterProfile) -> DeadLetterProfile:
        """A profile with the fields of the rules that all its messages share."""
        return self._base(profile) if self.is_kafka and profile.is_dead_letter else profile

    def match_first(self, profile: DeadLetterProfile, source: RuleInput) -> DeadLetterProfile:
        """The profile of a message with only the first rule that matches it.

        That is enough to decide a first attempt that succeeds.
        """
        if not profile.is_dead_letter:
            return profile
        base = self._base(profile)
        index = self._matcher.first_of(self._fields(base, source))
        return self._matched_profile(base, 0 if index is None else 1 << index)

    def candidates_of(self, profile: DeadLetterProfile) -> int:
        """The rules that match a profile, as bits."""
        if isinstance(profile, MatchedProfile):
            return profile.candidates
        known = self._candidates.get(id(profile))
        if known is None:
            if len(self._candidates) >= _CANDIDATES:
                self._candidates.clear()
            candidates = self._matcher.candidates_of(profile.fields)
            known = self._candidates[id(profile)] = profile, candidates
        return known[1]

    def fields_of(self, message: Message, now: int) -> dict[str, FieldValue]:
        """All fields of a message that patterns match at a time in milliseconds."""
        profile = message.profile or NO_PROFILE
        if not self.is_kafka or not profile.is_dead_letter:
            return dict(profile.fields)
        return self._fields(self._base(profile), rule_input(message, now))

    def _base(self, profile: DeadLetterProfile) -> MatchedProfile:
        known = self._bases.get(id(profile))
        if known is None:
            if len(self._bases) >= PROFILES:
                self._bases.clear()
                self._matched.clear()
            values = self._shared.values(RuleInput(None, None, [], 0, 0, profile.view))
            named = zip(self._shared.names, values, strict=True)
            shared = {
                **profile.fields,
                **{name: value for name, value in named if value is not None},
            }
            candidates = 0 if self.is_varied else self._matcher.candidates_of(shared)
            base = MatchedProfile.of(profile, shared, candidates)
            known = self._bases[id(profile)] = profile, base
        return known[1]

    def _fields(self, base: MatchedProfile, source: RuleInput) -> dict[str, FieldValue]:
        if self._needs_view:
            self._read_view(base, source)
        named = zip(self._varied.names, self._varied.values(source), strict=True)
        return {**base.fields, **{name: value for name, value in named if value is not None}}

    def _read_view(self, base: MatchedProfile, source: RuleInput) -> None:
        """Read the fields that the profile omits and that patterns may use."""
        scheme = base.taken[0] if base.taken else None
        if isinstance(scheme, Scheme):
            record = source.key, source.value, source.headers
            text = scheme.read("error.message", *record)
            times = (scheme.read(name, *record) for name in ("first_failed_at", "failed_at"))
            source.partition = origin_partition(base, *record)
        else:
            view = read_view(source.key, source.value, source.headers, schemes=self._schemes)
            text = view.error_message
            times = (time for time in (view.first_failed_at, view.failed_at))
            source.partition = view.origin.partition
        source.error_message = text if isinstance(text, str) else None
        source.failed_at = next((time for time in times if isinstance(time, int)), None)

    def _matched_profile(self, base: MatchedProfile, candidates: int) -> MatchedProfile:
        profile = self._matched.get((id(base), candidates))
        if profile is None:
            if len(self._matched) >= PROFILES:
                self._matched.clear()
            profile = self._matched[id(base), candidates] = replace(base, candidates=candidates)
        return profile


def rule_input(message: Message, now: int) -> RuleInput:
    """The input of DIALECT(KAFKA)'s patterns from a message at a time in milliseconds."""
    return RuleInput(message.key, message.value, message.headers, message.timestamp, now)


_REMEMBERED: Final = 20_000
"""Decisions above which a cache is cleared before the next slice."""
HEADROOM: Final = 16 * 1024
"""Bytes reserved for headers when a body is compared with a topic's limit."""
_PROBE: Final = bytes(4096)
"""A value longer than any dead-letter header, to find how much of it is removed."""
_UNLIKELY: Final = b"\xff"
"""A header value that no descriptor field has, so that every edit shows."""


class PutCache:
    """What a put decider has found out in one slice, shared by equal messages."""

    def __init__(self, begun: object) -> None:
        self.begun = begun
        """Identifies the slice, each time that it is decided."""
        self.puts: dict[tuple[Names, int, int], Put | Refusal] = {}
        """By names, hops and seed."""
        self.descriptors: dict[tuple[tuple[bytes | None, ...], bool], PutDescriptor] = {}
        """By the values of the headers, for new messages and for others."""
        self.changes: dict[tuple[int, int], Mapping[str, bytes]] = {}
        """The changes to a message descriptor on a queue, by the ids of both."""
        self.prepared: dict[tuple[str, ...], dict[Hashable, PreparedPut | None]] = {}
        """By header names, and by the values that decide; None for individual puts."""
        self.times: dict[str, PutTimes] = {}
        """By topic."""


class DecisionCache:
    """The decisions of one rules table under the same facts, shared by equal messages."""

    def __init__(self) -> None:
        self.begun: object = None
        """Identifies the last slice, each time that it was decided."""
        self._facts: object = None
        self._batch: object = None
        # A decision keeps profile and replay alive, so the ids in its key stay unique.
        self.decisions: dict[tuple[int, Attempts, int, int, int], Decision] = {}
        """By the ids of profile and replay, the failed attempts, the hops and the seed."""
        self.prepared: dict[tuple[str, ...], dict[int, PreparedPut | None]] = {}
        """By header names, and by the id of the profile; None for individual decisions."""

    def begin(self, context: SliceContext) -> None:
        """Begin a slice; drop decisions under other facts, and puts prepared for another batch."""
        facts = context.facts, context.facts.version
        # While a breaker is open, prepared puts are valid only for the slice.
        batch = context.begun if context.breakers else (context.now, context.late)
        if facts != self._facts or len(self.decisions) > _REMEMBERED:
            self.decisions.clear()
            self.prepared.clear()
        if batch != self._batch:
            self.prepared.clear()
        self.begun, self._facts, self._batch = context.begun, facts, batch


def put_bounds(put: Put, facts: SliceContext) -> tuple[int, int, int] | None:
    """Limits within which a put certainly succeeds: longest value, first and last timestamp.

    The timestamps are those of dead letters that have waited long enough.

    Returns:
        Bytes and milliseconds; None if each message needs its own check.
    """
    destination, longest = put.destination, put.destination.limits.longest
    topic = facts.facts.topic(destination.topic)
    if destination.is_choice or longest is None or topic.wants_keys or topic.silent:
        return None
    profile = put.profile
    if put.rule is not None and put.rule.transform:
        return None
    if put.replay is not None and put.replay.edit:
        return None
    depends_on_record = (
        profile.is_wrapped,
        profile.view.pointer,
        put.rounds is not None and profile.drops_headers,
        put.returns and origin_partition_headers(profile) is None,
        put.wait and profile.stamp is not Stamp.FAILURE,
        put.is_reported,
    )
    if any(depends_on_record):
        return None
    earliest, latest = (1, facts.failed_before(put.wait)) if put.wait else ANY_TIME
    return min(topic.max_message_bytes - HEADROOM, longest), earliest, latest


class PreparedPut:
    """Writes dead letters of one profile, or puts that differ in nothing that a put reads."""

    __slots__ = (
        "_added", "_columns", "_completion", "_edits", "_endings", "_first", "_gaps", "_last",
        "_left", "_now", "_strips", "_times", "_topic", "_variants", "cut", "decision", "earliest",
        "hops", "is_counted_by_body", "latest", "may_lack_rounds", "room", "topic",
    )  # fmt: skip

    def __init__(
        self,
        put: Put,
        layout: Sequence[str],
        bounds: tuple[int, int, int],
        facts: SliceContext,
        *,
        hops: int,
        may_lack_rounds: bool = False,
        is_counted_by_body: bool = False,
        completion: Completion | None = None,
        rewrite: Callable[[Headers], Headers] | None = None,
    ) -> None:
        """Prepare puts of messages with these header names in order, dead letters' without our own.

        ``bounds`` are those of ``put_bounds``, ``hops`` Redrive's earlier puts of every message.
        ``may_lack_rounds`` is whether messages that may be rounds need an individual decision. For
        ``is_counted_by_body`` see ``AttemptCounter``. ``rewrite`` makes the headers of a put from
        those of a completed message; unchanged pairs stay the same objects.
        """
        self.decision = put
        self.may_lack_rounds = may_lack_rounds
        self.is_counted_by_body = is_counted_by_body
        self._completion = completion
        self.hops = hops
        self.topic = put.destination.topic
        self.room, self.earliest, self.latest = bounds
        self.cut = 0
        self._edits: list[tuple[int, tuple[str, bytes | None]]] = []
        self._gaps: list[int] = []
        self._added: Headers = []
        self._now, self._topic = facts.now, facts.facts.topic(self.topic)
        self._times, self._strips = PutTimes.of(put, facts), put.strip
        kept, lasting = self._times.kept, self._times.lasting
        self._first, self._last = max(1, kept[0], lasting[0]), min(kept[1], lasting[1])
        self._variants: dict[bool, Put] = {}
        deciding = origin_partition_headers(put.profile) if put.returns else None
        self._columns = [index for index, name in enumerate(layout) if name in (deciding or ())]
        self._endings: dict[object, tuple[int, Headers]] = {}
        defaults = defaults_of(put.destination)
        self._left = [
            (index, LEFT_TO_QUEUE[name], (name, defaults[name]))
            for index, name in enumerate(layout)
            if rewrite is None and name in LEFT_TO_QUEUE
        ]
        self._prepare_edits(put, tuple(layout), rewrite)

    def written(  # noqa: PLR0917 - called for every record
        self,
        key: bytes | None,
        value: bytes,
        headers: Headers,
        timestamp: int,
        identity: bytes,
        named: int,
        record_time: int = 0,
    ) -> tuple[OutputRecord, Put] | None:
        """The record of a dead letter, and its decision; None if it needs an individual one.

        The headers are those of the dead letter without Redrive's own. ``named`` is the timestamp
        of the failed record in them, as ``origin_time`` reads it.
        """
        if not self._strips:
            named = record_time = 0
        own_time = record_time or named or timestamp
        stamp, decision, times = own_time, self.decision, self._times
        if self._first <= own_time <= self._last:  # nearly all: it keeps its own timestamp
            is_noted = times.is_noted or (times.may_drift and not named)
        else:
            stamp = times.stamp(own_time)
            if stamp != own_time or times.is_short(own_time):
                first, last = self._topic.timestamps(self._now)
                if stamp > 0 and not first <= stamp <= last:
                    return None
                decision = self._variant(own_time, is_renewed=stamp != own_time)
            is_noted = times.is_needed(own_time, stamp, may_drift=not named)
        if self._completion is not None:
            headers = headers + self._completion.headers(identity.decode("ascii"), timestamp)
        partition, written = self.place(headers, identity)
        if is_noted:
            written.append(timestamp_header(own_time))
        body = value[self.cut :]
        return OutputRecord(self.topic, key, body, written, stamp, partition), decision

    def _variant(self, own_time: int, *, is_renewed: bool) -> Put:
        """The decision of records whose timestamp is not simply their own."""
        decision = self._variants.get(is_renewed)
        if decision is None:
            decision = self._times.decision(self.decision, own_time)
            self._variants[is_renewed] = decision
        return decision

    def place(self, headers: Headers, identity: bytes) -> tuple[int, Headers]:
        """The partition to write to, or -1, and the headers.

        ``headers`` are those of the dead letter without Redrive's own.
        """
        deciding = tuple([headers[index] for index in self._columns])
        ending = self._endings.get(deciding)
        if ending is None:
            ending = self._endings[deciding] = self._ending(headers)
        written = headers.copy()
        for index, left, default in self._left:
            if written[index][1] == left:
                written[index] = default
        for index, pair in self._edits:
            raw = written[index][1]
            if raw is None or raw.rstrip(b" ") != pair[1]:  # an equal value stays as it is
                written[index] = pair
        for index in self._gaps:
            del written[index]
        written += self._added
        written.append((own.ID, identity))
        written += ending[1]
        return ending[0], written

    def _ending(self, headers: Headers) -> tuple[int, Headers]:
        """The partition to write to, and Redrive's headers after the identity."""
        put = self.decision
        partition = origin_partition(put.profile, None, None, headers) if put.returns else None
        added = put.added_headers(self._now, partition)
        added.append((own.HOPS, own.number(self.hops + 1)))
        return self._topic.partition(partition), added

    def _prepare_edits(
        self, put: Put, layout: tuple[str, ...], rewrite: Callable[[Headers], Headers] | None
    ) -> None:
        """Derive the edits for every record of this layout from one message."""
        probe: Headers = [(name, _UNLIKELY) for name in layout]
        value: bytes | None = _PROBE
        if rewrite is not None:
            kept = rewrite(probe)
        elif put.strip:
            value, kept = remove_header(put.profile, value, probe)
        else:
            kept = without_stacks(put.profile, probe)
        self.cut = len(_PROBE) - len(value or b"")
        position = {id(pair): index for index, pair in enumerate(probe)}
        taken = 0
        for pair in kept:
            index = position.get(id(pair))
            if index is None and pair[0] in layout[taken:]:  # replaced where it stood
                index = layout.index(pair[0], taken)
                self._edits.append((index, pair))
            if index is None:
                self._added.append(pair)
                continue
            self._gaps += range(taken, index)
            taken = index + 1
        self._gaps += range(taken, len(layout))
        self._gaps.reverse()

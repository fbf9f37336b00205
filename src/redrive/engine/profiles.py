"""Dead letters as matched by the rules of a table.

The fields of IBM's rules are the same for all messages of a profile, and so are most fields of
DIALECT(KAFKA); then a decision applies to the whole profile. If a table uses others - the text of
an error, an age, a key, a header, the body - each message is matched individually, and the messages
of a profile that the same rules match share one ``MatchedProfile``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from redrive.engine.decision import NO_PROFILE
from redrive.engine.message import Message
from redrive.messages import DeadLetterProfile, read_view
from redrive.messages.dead_letters import origin_partition
from redrive.messages.schemes import KNOWN, Scheme, SchemeTable
from redrive.rules import Dialect, FieldReader, FieldValue, Matcher, RulesTable
from redrive.rules.fields import RuleInput
from redrive.rules.keywords import KAFKA, pattern_keyword

PROFILES: Final = 20_000
"""Maximum profiles to cache when messages are matched individually."""
_CANDIDATES: Final = 100_000
"""Maximum profiles whose matching rules are cached."""

_INSERTED: Final = tuple(insert[1:] for insert in KAFKA.keywords["FWDT"].references)
"""Fields that names of topics may have."""
_OF_THE_VIEW: Final = frozenset({"ERRMSG", "AGE", "PARTITION"})
"""Fields that vary within a profile, so its view omits them."""


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
        self._needs_view = not asked.isdisjoint(_OF_THE_VIEW)
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

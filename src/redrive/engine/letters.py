"""Dead letters as the rules of a table in DIALECT(KAFKA) see them.

Most of what such rules ask for is the same for many messages, as IBM's fields are: then what is
decided holds for a whole profile. Where a table asks for more - the text of an error, an age, a
key, a header, the body - each message is matched by itself, and those of one profile that the same
rules match are again one thing to decide about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from redrive.messages import DeadLetterProfile, Headers, read_view
from redrive.messages.schemes import KNOWN, Scheme, SchemeTable
from redrive.messages.schemes.scheme import Newest, Place
from redrive.rules import FieldReader, FieldValue, Matcher, RulesTable
from redrive.rules.fields import RuleInput
from redrive.rules.keywords import pattern_keyword

__all__ = ["LETTER_MEMO", "Letter", "Letters"]

LETTER_MEMO: Final = 20_000
"""Kinds of dead letters that are remembered."""

_INSERTED: Final = ("CONNECTOR", "GROUP", "TOPIC")
_OF_THE_VIEW: Final = frozenset({"ERRMSG", "AGE"})
"""Varied fields that the view of a profile leaves out."""


@dataclass(frozen=True, slots=True)
class Letter(DeadLetterProfile):
    """Dead letters about which one table decides the same."""

    candidates: int = 0
    """The rules that match them, as bits."""

    @classmethod
    def of(
        cls, profile: DeadLetterProfile, match_fields: Mapping[str, FieldValue], candidates: int = 0
    ) -> Letter:
        """The dead letters of a profile that some rules match.

        Args:
            profile: The profile.
            match_fields: Its fields with those that the dialect adds.
            candidates: The rules.
        """
        told = {it.name: getattr(profile, it.name) for it in fields(profile)}
        return cls(**{**told, "fields": match_fields}, candidates=candidates)


class Letters:
    """Turns profiles of messages into what the rules of one table decide about.

    Args:
        table: A table in DIALECT(KAFKA).
        matcher: Its index.
        schemes: The schemes to look for.
    """

    def __init__(self, table: RulesTable, matcher: Matcher, schemes: SchemeTable = KNOWN) -> None:
        asked = {name for name in table.asked if pattern_keyword(name).is_varied}
        self._matcher = matcher
        self._schemes = schemes
        self._shared = FieldReader({*(table.asked - asked), *_INSERTED})
        self._varied = FieldReader(asked)
        self.is_varied = bool(self._varied.names)
        """Whether messages of one profile have to be looked at one by one."""
        self._needs_view = not asked.isdisjoint(_OF_THE_VIEW)
        # Each answer is kept with its profile: the id of that stays taken as long as it is a key.
        self._bases: dict[int, tuple[DeadLetterProfile, Letter]] = {}
        self._found: dict[tuple[int, int], Letter] = {}

    def shared(self, profile: DeadLetterProfile) -> DeadLetterProfile:
        """The dead letters of a profile, of which the same rules match all: nothing is varied."""
        return self._base(profile) if profile.is_dead_letter else profile

    def first(self, profile: DeadLetterProfile, seen: RuleInput) -> DeadLetterProfile:
        """The dead letter, with the first rule that matches it and no other.

        That is enough to decide about a first attempt that nothing goes wrong with.
        """
        if not profile.is_dead_letter:
            return profile
        base = self._base(profile)
        index = self._matcher.first_of(self._fields(base, seen))
        return self._kind(base, 0 if index is None else 1 << index)

    def whole(self, profile: DeadLetterProfile, seen: RuleInput) -> DeadLetterProfile:
        """The dead letter, with all the rules that match it."""
        if not profile.is_dead_letter:
            return profile
        base = self._base(profile)
        return self._kind(base, self._matcher.candidates_of(self._fields(base, seen)))

    def fields_of(self, profile: DeadLetterProfile, seen: RuleInput) -> dict[str, FieldValue]:
        """Everything of a dead letter that the patterns of the table look at."""
        return self._fields(self._base(profile), seen)

    def _base(self, profile: DeadLetterProfile) -> Letter:
        """The profile with the fields that all its messages share."""
        known = self._bases.get(id(profile))
        if known is None:
            if len(self._bases) >= LETTER_MEMO:
                self._bases.clear()
                self._found.clear()
            values = self._shared.values(RuleInput(None, None, [], 0, 0, profile.view))
            told = zip(self._shared.names, values, strict=True)
            shared = {**profile.fields, **{name: it for name, it in told if it is not None}}
            candidates = 0 if self.is_varied else self._matcher.candidates_of(shared)
            base = Letter.of(profile, shared, candidates)
            known = self._bases[id(profile)] = profile, base
        return known[1]

    def _fields(self, base: Letter, seen: RuleInput) -> dict[str, FieldValue]:
        if self._needs_view:
            self._read_view(base, seen)
        values = self._varied.values(seen)
        told = zip(self._varied.names, values, strict=True)
        return {**base.fields, **{name: it for name, it in told if it is not None}}

    def _read_view(self, base: Letter, seen: RuleInput) -> None:
        """Read what the profile leaves out, and of that only what patterns can ask for."""
        scheme = base.taken[0] if base.taken else None
        if isinstance(scheme, Scheme):
            message = _told(scheme, "error.message", seen)
            times = (_told(scheme, name, seen) for name in ("first_failed_at", "failed_at"))
        else:
            view = read_view(seen.key, seen.value, seen.headers, schemes=self._schemes)
            message = view.error_message
            times = (it for it in (view.first_failed_at, view.failed_at))
        seen.error_message = message if isinstance(message, str) else None
        seen.failed_at = next((it for it in times if isinstance(it, int)), None)

    def _kind(self, base: Letter, candidates: int) -> Letter:
        """One object for all messages of a profile about which the same is decided."""
        kind = self._found.get((id(base), candidates))
        if kind is None:
            if len(self._found) >= LETTER_MEMO:
                self._found.clear()
            kind = self._found[id(base), candidates] = replace(base, candidates=candidates)
        return kind


def _told(scheme: Scheme, name: str, seen: RuleInput) -> str | int | None:
    """One part of what the outermost scheme of a message tells; see ``read_view`` for all."""
    for part in scheme.parts.get(name, ()):
        if part.place is Place.HEADER:
            raw = _newest(seen.headers, part.header, scheme.newest)
        else:
            raw = seen.key if part.place is Place.KEY else seen.value
        found = None if raw is None else part.read(raw)
        if found is not None:
            return found
    return None


def _newest(headers: Headers, name: str, newest: Newest) -> bytes | None:
    for there, raw in headers if newest is Newest.FIRST else reversed(headers):
        if there == name:
            return raw
    return None

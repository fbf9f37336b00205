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
from redrive.rules import FieldReader, FieldValue, Matcher, RulesTable
from redrive.rules.dialect.keywords import pattern_keyword

__all__ = ["LETTER_MEMO", "Letter", "Letters", "Seen"]

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


class Seen:
    """What decides about one message, as far as it is the message's own."""

    __slots__ = ("headers", "key", "now", "timestamp", "value")

    def __init__(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: int,
        now: int,
    ) -> None:
        """Take the record as it was on its dead-letter queue.

        Args:
            key: Its key.
            value: Its value.
            headers: Its headers.
            timestamp: Its timestamp, in milliseconds since 1970.
            now: The time of the attempt, in milliseconds since 1970.
        """
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp = timestamp
        self.now = now


class Letters:
    """Turns profiles of messages into what the rules of one table decide about.

    Args:
        table: A table in DIALECT(KAFKA).
        matcher: Its index.
    """

    def __init__(self, table: RulesTable, matcher: Matcher) -> None:
        asked = {name for name in table.asked if pattern_keyword(name).is_varied}
        self._matcher = matcher
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

    def first(self, profile: DeadLetterProfile, seen: Seen) -> DeadLetterProfile:
        """The dead letter, with the first rule that matches it and no other.

        That is enough to decide about a first attempt that nothing goes wrong with.
        """
        if not profile.is_dead_letter:
            return profile
        base = self._base(profile)
        index = self._matcher.first_of(self._fields(base, seen))
        return self._kind(base, 0 if index is None else 1 << index)

    def whole(self, profile: DeadLetterProfile, seen: Seen) -> DeadLetterProfile:
        """The dead letter, with all the rules that match it."""
        if not profile.is_dead_letter:
            return profile
        base = self._base(profile)
        return self._kind(base, self._matcher.candidates_of(self._fields(base, seen)))

    def _base(self, profile: DeadLetterProfile) -> Letter:
        """The profile with the fields that all its messages share."""
        known = self._bases.get(id(profile))
        if known is None:
            if len(self._bases) >= LETTER_MEMO:
                self._bases.clear()
                self._found.clear()
            values = self._shared.values(profile.view, None, None, [], 0, 0)
            told = zip(self._shared.names, values, strict=True)
            shared = {**profile.fields, **{name: it for name, it in told if it is not None}}
            candidates = 0 if self.is_varied else self._matcher.candidates_of(shared)
            base = Letter.of(profile, shared, candidates)
            known = self._bases[id(profile)] = profile, base
        return known[1]

    def _fields(self, base: Letter, seen: Seen) -> dict[str, FieldValue]:
        view = base.view
        if self._needs_view:
            view = read_view(seen.key, seen.value, seen.headers)
        values = self._varied.values(
            view, seen.key, seen.value, seen.headers, seen.timestamp, seen.now
        )
        told = zip(self._varied.names, values, strict=True)
        return {**base.fields, **{name: it for name, it in told if it is not None}}

    def _kind(self, base: Letter, candidates: int) -> Letter:
        """One object for all messages of a profile about which the same is decided."""
        kind = self._found.get((id(base), candidates))
        if kind is None:
            if len(self._found) >= LETTER_MEMO:
                self._found.clear()
            kind = self._found[id(base), candidates] = replace(base, candidates=candidates)
        return kind

"""The shortest text that some patterns match and others do not: a walk through all their automata.

A text pattern is read as rules-table specification 5.3 says, one state for each of its characters
and a set of states as the bits of a number. A value is padded with blanks to the length of its
field; the automata read such a blank as a character of its own, ``PADDING``, which ``?`` does not
match.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple, Self

from redrive.rules.analysis.effort import Effort
from redrive.rules.patterns import StringPattern

__all__ = ["STATE_LIMIT", "TooManyStates", "shortest_text"]

STATE_LIMIT: Final = 20_000
"""States that the automata have together when the walk for one text is given up: it has taken about
a tenth of a second then."""

_PADDING: Final = "\0"
"""No value contains it, because the first NUL ends a value (question Q-12)."""
_OTHERS: Final = "XYZQJKVWABCDEFGHILMNOPRSTU0123456789xyz" + "".join(map(chr, range(192, 592)))
"""Characters that may stand for all those which no pattern names, readable ones first."""
_MAY_MATCH_PADDING: Final = re.compile(r" [ *]*$")
"""The end of a pattern that has a blank with nothing but blanks and asterisks behind it."""


class TooManyStates(Exception):
    """The walk was given up: whether there is such a text is not known."""


def shortest_text(
    matching: Sequence[Sequence[StringPattern]],
    avoiding: Sequence[StringPattern],
    effort: Effort,
) -> str | None:
    """A shortest value that one pattern of each list matches and none of others.

    Args:
        matching: Lists of patterns; at least one of each list matches the value.
        avoiding: Patterns that do not.
        effort: What is left to spend; each step of an automaton takes one of it.

    Returns:
        The value, without trailing blanks; None if there is none.

    Raises:
        TooManyStates: The walk got too long.
    """
    patterns = (*chain.from_iterable(matching), *avoiding)
    padded = any(_MAY_MATCH_PADDING.search(pattern.normal) for pattern in patterns)
    walk = _Walk(
        tuple(_Automaton.of(pattern) for pattern in patterns),
        groups=tuple(map(len, matching)),
        length=max(pattern.length for pattern in patterns) if padded else 0,
        alphabet=tuple(_alphabet(patterns)),
        effort=effort,
    )
    return walk.shortest()


def _alphabet(patterns: Sequence[StringPattern]) -> Iterator[str]:
    named = {character for pattern in patterns for character in pattern.normal} - set("*? \0")
    yield next(character for character in _OTHERS if character not in named)
    yield from sorted(named)
    yield " "


@dataclass(frozen=True, slots=True)
class _Automaton:
    """One pattern; bit k of a set of states says that k of its characters are behind."""

    moves: Mapping[str, int]
    """Character -> states that it leads out of."""
    others: int
    """States that a character which the pattern does not name leads out of."""
    asterisks: int
    """States in which any character may be read, and which may be left without reading."""
    end: int

    @classmethod
    def of(cls, pattern: StringPattern) -> Self:
        """The automaton of a pattern."""
        text = pattern.normal
        named = {it: _bits(text, it) for it in set(text) - set("*?\0")}
        marks = _bits(text, "?")
        moves = {character: bits | marks for character, bits in named.items()}
        moves[_PADDING] = named.get(" ", 0)
        return cls(moves, marks, _bits(text, "*"), 1 << len(text))

    def start(self) -> int:
        """The states before the first character."""
        return self._closed(1)

    def step(self, states: int, character: str) -> int:
        """The states behind one more character."""
        moved = (states & self.moves.get(character, self.others)) << 1
        stays = self.asterisks | (self.end if character == _PADDING else 0)
        return self._closed(moved | (states & stays))

    def accepts(self, states: int, padding: int) -> bool:
        """Whether the pattern matches a value that ends here, with so many blanks behind it."""
        for _ in range(padding):
            states = self.step(states, _PADDING)
        return bool(states & self.end)

    def _closed(self, states: int) -> int:
        # No two asterisks stand side by side, so one step is enough.
        return states | (states & self.asterisks) << 1


def _bits(text: str, character: str) -> int:
    return sum(1 << index for index, it in enumerate(text) if it == character)


class _Place(NamedTuple):
    """Where the walk stands: all values that lead here can be continued alike."""

    states: tuple[int, ...]
    position: int
    """Characters read, up to the length of the field, if blanks of the padding matter."""
    behind_blank: bool
    """Whether the last character was a blank, with which no value ends."""


@dataclass(frozen=True, slots=True)
class _Walk:
    automata: tuple[_Automaton, ...]
    groups: tuple[int, ...]
    """So many of the automata, from the first on, form groups of which one has to accept; the
    automata behind them must not."""
    length: int
    """Length of the field; 0 if blanks of the padding do not matter."""
    alphabet: tuple[str, ...]
    effort: Effort

    def shortest(self) -> str | None:
        """The nearest place where a value may end, by breadth first."""
        start = _Place(tuple(it.start() for it in self.automata), 0, behind_blank=False)
        came_from: dict[_Place, tuple[_Place, str] | None] = {start: None}
        waiting = deque([start])
        while waiting:
            place = waiting.popleft()
            if self._is_end(place):
                return _text(place, came_from)
            self.effort.spend(len(self.alphabet) * len(self.automata))
            for character in self.alphabet:
                following = self._following(place, character)
                if following not in came_from and self._can_end_well(following):
                    came_from[following] = place, character
                    waiting.append(following)
            if len(came_from) * len(self.automata) > STATE_LIMIT:
                raise TooManyStates
        return None

    def _can_end_well(self, place: _Place) -> bool:
        """Whether an automaton of each group is alive still."""
        return self._one_of_each_group(list(map(bool, place.states)))

    def _one_of_each_group(self, automata: Sequence[bool]) -> bool:
        start = 0
        for size in self.groups:
            if not any(automata[start : start + size]):
                return False
            start += size
        return True

    def _following(self, place: _Place, character: str) -> _Place:
        states = zip(self.automata, place.states, strict=True)
        return _Place(
            tuple(automaton.step(one, character) for automaton, one in states),
            min(place.position + 1, self.length),
            character == " ",
        )

    def _is_end(self, place: _Place) -> bool:
        if place.behind_blank:
            return False
        padding = self.length - place.position
        accepted = [
            automaton.accepts(states, padding)
            for automaton, states in zip(self.automata, place.states, strict=True)
        ]
        return not any(accepted[sum(self.groups) :]) and self._one_of_each_group(accepted)


def _text(place: _Place, came_from: Mapping[_Place, tuple[_Place, str] | None]) -> str:
    characters = []
    while (step := came_from[place]) is not None:
        place, character = step
        characters.append(character)
    return "".join(reversed(characters))

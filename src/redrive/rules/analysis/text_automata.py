"""The shortest text that some patterns match and others do not: a search in all their automata.

A text pattern is read as rules-table specification 5.3 says, one state for each of its characters
and a set of states as the bits of a number. A value is padded with blanks to the length of its
field; the automata read such a blank as a character of its own, ``PADDING``, which ``?`` does not
match.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Final, NamedTuple, Self

from redrive.rules.patterns import StringPattern

_EFFORT: Final = 10_000_000
"""Steps for all questions about a table: about ten seconds. Steps and not seconds, so that the same
table has the same answer on every machine."""
_STATE_LIMIT: Final = 20_000
"""States of all automata together at which the search for one text is given up, after about a
tenth of a second."""

_PADDING: Final = "\0"
"""No value contains it, because the first NUL ends a value."""
_OTHERS: Final = "XYZQJKVWABCDEFGHILMNOPRSTU0123456789xyz" + "".join(map(chr, range(192, 592)))
"""Characters that may stand for all those which no pattern names, readable ones first."""
_MAY_MATCH_PADDING: Final = re.compile(r" [ *]*$")
"""The end of a pattern that has a blank with nothing but blanks and asterisks behind it."""


class Undecided(Exception):
    """Whether there is such a message is not known: the search is too long or a pattern unknown."""


@dataclass(slots=True)
class Effort:
    """Steps that are left."""

    left: int = _EFFORT

    def spend(self, steps: int) -> None:
        """Take some steps: comparisons of a pattern with a character or a value."""
        if self.left <= 0:
            raise Undecided
        self.left -= steps


def shortest_text(
    matching: Sequence[Sequence[StringPattern]],
    avoiding: Sequence[StringPattern],
    effort: Effort,
) -> str | None:
    """A shortest value that one pattern of each list matches and none of others.

    It has no trailing blanks; None if there is none. Each step of an automaton is one step of
    effort; ``Undecided`` is raised if the search gets too long.
    """
    patterns = (*chain.from_iterable(matching), *avoiding)
    padded = any(_MAY_MATCH_PADDING.search(pattern.normal) for pattern in patterns)
    length = max(pattern.length for pattern in patterns) if padded else 0
    named = {character for pattern in patterns for character in pattern.normal} - set("*? \0")
    other = next(character for character in _OTHERS if character not in named)
    alphabet = (other, *sorted(named), " ")
    automata = tuple(map(_Automaton.of, patterns))
    sizes = tuple(map(len, matching))

    def one_of_each_group(states: Sequence[int]) -> bool:
        """Whether an automaton of each group has a state left, or accepts."""
        alive = iter(states)
        return all(any(list(islice(alive, size))) for size in sizes)

    def is_end(place: _Place) -> bool:
        each = zip(automata, place.states, strict=True)
        accepted = [it.accepts(states, length - place.position) for it, states in each]
        return not any(accepted[sum(sizes) :]) and one_of_each_group(accepted)

    # Breadth first, to a place where a value may end.
    start = _Place(tuple(it.start() for it in automata), 0, behind_blank=False)
    seen = {start}
    waiting = deque([(start, "")])
    while waiting:
        place, text = waiting.popleft()
        if not place.behind_blank and is_end(place):
            return text
        effort.spend(len(alphabet) * len(automata))
        for character in alphabet:
            following = _Place(
                tuple(map(_Automaton.step, automata, place.states, repeat(character))),
                min(place.position + 1, length),
                character == " ",
            )
            if following not in seen and one_of_each_group(following.states):
                seen.add(following)
                waiting.append((following, text + character))
        if len(seen) * len(automata) > _STATE_LIMIT:
            raise Undecided
    return None


class _Place(NamedTuple):
    """The states of all automata; all values that lead here can be continued alike."""

    states: tuple[int, ...]
    position: int
    """Characters read, up to the length of the field, if blanks of the padding matter."""
    behind_blank: bool
    """Whether the last character was a blank, with which no value ends."""


@dataclass(frozen=True, slots=True)
class _Automaton:
    """One pattern; bit k of a set of states means that k of its characters are read."""

    moves: Mapping[str, int]
    """Character -> states that it leads out of."""
    others: int
    """States that a character which the pattern does not name leads out of."""
    asterisks: int
    """States in which any character may be read, and which may be left without reading."""
    end: int

    @classmethod
    def of(cls, pattern: StringPattern) -> Self:
        text = pattern.normal
        named = {it: _bits(text, it) for it in set(text) - set("*?\0")}
        marks = _bits(text, "?")
        moves = {character: bits | marks for character, bits in named.items()}
        moves[_PADDING] = named.get(" ", 0)
        return cls(moves, marks, _bits(text, "*"), 1 << len(text))

    def start(self) -> int:
        return self._closed(1)

    def step(self, states: int, character: str) -> int:
        moved = (states & self.moves.get(character, self.others)) << 1
        stays = self.asterisks | (self.end if character == _PADDING else 0)
        return self._closed(moved | (states & stays))

    def accepts(self, states: int, padding: int) -> bool:
        """Whether the pattern matches a value that ends here and is padded by so many blanks."""
        for _ in range(padding):
            states = self.step(states, _PADDING)
        return bool(states & self.end)

    def _closed(self, states: int) -> int:
        # No two asterisks stand side by side, so one step is enough.
        return states | (states & self.asterisks) << 1


def _bits(text: str, character: str) -> int:
    return sum(1 << index for index, it in enumerate(text) if it == character)

"""The shortest text that some patterns match and others do not: a search in all their automata.

A text pattern has one state for each of its characters, and a set of states is the bits of a
number. A value is padded with blanks to the length of its field; the automata read such a blank as
a special character, ``PADDING``, which ``?`` does not match.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Final, NamedTuple, Self

from redrive.rules.patterns import PADDING, StringPattern

_EFFORT: Final = 10_000_000
"""Steps for all questions about a table: about ten seconds. Steps rather than seconds, so that a
table has the same answer on every machine."""
_STATE_LIMIT: Final = 20_000
"""Maximum states of all automata in the search for one text, which takes about a tenth of a second.
"""

_OTHERS: Final = "XYZQJKVWABCDEFGHILMNOPRSTU0123456789xyz" + "".join(map(chr, range(192, 592)))
"""Characters to represent all those that no pattern names, readable ones first."""
_MAY_MATCH_PADDING: Final = re.compile(r" [ *]*$")
"""The end of a pattern with a blank followed only by blanks and asterisks."""


class Undecided(Exception):
    """The search took too long or met an opaque pattern, so the answer is unknown."""


@dataclass(slots=True)
class Effort:
    """Steps that are left."""

    left: int = _EFFORT

    def spend(self, steps: int) -> None:
        """Spend some steps: comparisons of a pattern with a character or a value."""
        if self.left <= 0:
            raise Undecided
        self.left -= steps


def shortest_text(
    matching: Sequence[Sequence[StringPattern]],
    avoiding: Sequence[StringPattern],
    effort: Effort,
) -> str | None:
    """A shortest value that one pattern of each list matches and none of others.

    It has no trailing blanks; None if there is none. Each step of an automaton costs one step of
    effort; ``Undecided`` is raised if the search takes too long.
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

    def is_end(place: _SearchState) -> bool:
        padding = repeat(length - place.position)
        accepted = list(map(_Automaton.accepts, automata, place.states, padding))
        return not any(accepted[sum(sizes) :]) and one_of_each_group(accepted)

    # Breadth first, to a place where a value may end.
    start = _SearchState(tuple(map(_Automaton.start, automata)), 0, behind_blank=False)
    seen = {start}
    waiting = deque([(start, "")])
    while waiting:
        place, text = waiting.popleft()
        if not place.behind_blank and is_end(place):
            return text
        effort.spend(len(alphabet) * len(automata))
        for character in alphabet:
            following = _SearchState(
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


class _SearchState(NamedTuple):
    """The states of all automata; all values that lead here have the same continuations."""

    states: tuple[int, ...]
    position: int
    """Characters read, up to the length of the field, if padding matters."""
    behind_blank: bool
    """Whether the last character was a blank, which cannot end a value."""


@dataclass(frozen=True, slots=True)
class _Automaton:
    """One pattern; bit k of a set of states means that k of its characters are read."""

    moves: Mapping[str, int]
    """Character -> states that it leaves."""
    others: int
    """States that a character not named by the pattern leaves."""
    asterisks: int
    """States that accept any character and may be left without reading one."""
    end: int

    @classmethod
    def of(cls, pattern: StringPattern) -> Self:
        text = pattern.normal
        named = {letter: _bits(text, letter) for letter in set(text) - set("*?\0")}
        marks = _bits(text, "?")
        moves = {character: bits | marks for character, bits in named.items()}
        moves[PADDING] = named.get(" ", 0)
        return cls(moves, marks, _bits(text, "*"), 1 << len(text))

    def start(self) -> int:
        return self._closed(1)

    def step(self, states: int, character: str) -> int:
        moved = (states & self.moves.get(character, self.others)) << 1
        stays = self.asterisks | (self.end if character == PADDING else 0)
        return self._closed(moved | (states & stays))

    def accepts(self, states: int, padding: int) -> bool:
        """Whether the pattern matches a value that ends here, with this much padding."""
        for _ in range(padding):
            states = self.step(states, PADDING)
        return bool(states & self.end)

    def _closed(self, states: int) -> int:
        # There are no adjacent asterisks, so one step is enough.
        return states | (states & self.asterisks) << 1


def _bits(text: str, character: str) -> int:
    return sum(1 << index for index, letter in enumerate(text) if letter == character)

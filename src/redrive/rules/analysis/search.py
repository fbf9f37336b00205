"""A message that some rules match and others do not, or proof that there is none."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from itertools import chain, islice, pairwise, repeat
from typing import Final, NamedTuple, Self, TypeAlias

from redrive.rules.keywords import Value, pattern_keyword
from redrive.rules.patterns import (
    ABSENT,
    PADDING,
    ComparisonPattern,
    FieldValue,
    Interval,
    NotPattern,
    Pattern,
    RegexPattern,
    StringPattern,
    intervals_of,
    members_of,
)
from redrive.rules.rule import Control, Rule
from redrive.rules.selection import IntervalIndex, Matcher, Message, rules_of
from redrive.rules.table import RulesTable

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


_USUAL: Final[Mapping[str, Sequence[int]]] = {
    "APPLTYPE": (0, 6, 11, 28),
    "FEEDBACK": (0, 258, 259),
    "MSGTYPE": (8, 1, 2, 4),
    "PERSIST": (0, 1),
    "REASON": (2085, 2053, 2051, 2030, 2035, 2087),
}
"""Familiar numbers, tried before others."""
_USUAL_QUEUE: Final = "OTHER"

_BEGINNINGS: Final = tuple(StringPattern(f"{character}*", 1024) for character in "0123456789-")
"""Texts for any number."""

_SAMPLES: Final = (
    (r"^\(\?[A-Za-z]+\)", ""),
    (r"\(\?[^:)]*:|\\[bBAzQE]|(?<!\\)[\^$()]", ""),
    (r"\\d", "0"),
    (r"\\w", "a"),
    (r"\\s", " "),
    (r"\[([^\]^\\])[^\]]*\]", r"\1"),
    (r"(?<!\\)[*+?]|\{[0-9,]+\}", ""),
    (r"(?<!\\)\.", "X"),
    (r"\\([^A-Za-z0-9])", r"\1"),
)
"""Steps that turn an expression into a text that it may match: a heuristic."""


def usual_value(name: str) -> FieldValue:
    """The default value of a field in a witness, on which nothing depends."""
    if name == "DESTQ":
        return _USUAL_QUEUE
    keyword = pattern_keyword(name)
    match keyword.value:
        case Value.NUMBER:
            return _USUAL[name][0] if name == "REASON" else 0
        case Value.NUMBERS:
            return 0 if keyword.is_always_there else ABSENT
    return ""


def value_of(
    name: str, matching: Sequence[Pattern], avoiding: Sequence[Pattern], effort: Effort
) -> FieldValue | None:
    """A value that all of some patterns match and none of others, preferably a familiar one.

    None if there is none. ``Undecided`` is raised if the search takes too long, or if it depends on
    the intersection of regular expressions.
    """
    if not matching and not avoiding:
        return usual_value(name)
    effort.spend(5 * (1 + len(matching) + len(avoiding)))
    demanded, refused = (
        [
            *(pattern for pattern in same if not isinstance(pattern, NotPattern)),
            *(pattern.pattern for pattern in other if isinstance(pattern, NotPattern)),
        ]
        for same, other in ((matching, avoiding), (avoiding, matching))
    )
    if pattern_keyword(name).value in {Value.NUMBER, Value.NUMBERS}:
        return _number(name, demanded, refused)
    if any(_accepts_all_of(general, special) for general in refused for special in demanded):
        return None
    avoided = list(chain.from_iterable(map(members_of, refused)))
    return _text(name, list(map(members_of, demanded)), avoided, effort)


def _accepts_all_of(general: Pattern, special: Pattern) -> bool:
    """Whether a pattern certainly matches all that another one matches, by text and equality."""
    return all(
        any(
            member == case
            or (isinstance(case, StringPattern) and case.is_literal and member.matches(case.normal))
            for member in members_of(general)
        )
        for case in members_of(special)
    )


def _fits(
    value: FieldValue, demanded: Iterable[Iterable[Pattern]], refused: Iterable[Pattern]
) -> bool:
    """Whether one pattern of each list matches a value, and none of others."""
    return all(any(pattern.matches(value) for pattern in members) for members in demanded) and not (
        any(pattern.matches(value) for pattern in refused)
    )


def _number(name: str, matching: Sequence[Pattern], avoiding: Sequence[Pattern]) -> int | None:
    """The number, tried at all places where one must be if there is any.

    The smallest matching number is the smallest of all, the first of an interval that must match,
    or the one after an interval that must not match.
    """
    lows = (interval.low for pattern in matching for interval in intervals_of(pattern))
    highs = (interval.high for pattern in avoiding for interval in intervals_of(pattern))
    numbers = {0, *lows, *(high + 1 for high in highs if high is not None)}
    last: tuple[int, ...] = ()
    if name not in _USUAL:
        numbers.discard(ABSENT)
        last = () if pattern_keyword(name).is_always_there else (ABSENT,)
    demanded = [[pattern] for pattern in matching]
    tried = (*_USUAL.get(name, ()), *sorted(numbers), *last)
    return next((value for value in tried if _fits(value, demanded, avoiding)), None)


def _text(
    name: str, matching: Sequence[Sequence[Pattern]], avoiding: Sequence[Pattern], effort: Effort
) -> str | None:
    """The text that one member of each list matches, and none of others."""
    numerals = _numerals([*chain(*matching, avoiding)])
    comparisons = [pattern for pattern in avoiding if isinstance(pattern, ComparisonPattern)]
    # Leave out comparisons that no number can satisfy along with the others.
    only_numbers = [
        members
        for members in matching
        if all(isinstance(member, ComparisonPattern) for member in members)
    ]
    left = [numeral for numeral in numerals if _fits(numeral, only_numbers, comparisons)]
    matching = [
        [
            member
            for member in members
            if not isinstance(member, ComparisonPattern) or any(map(member.matches, left))
        ]
        for members in matching
    ]

    def fits(value: str) -> bool:
        return _fits(value, matching, avoiding)

    for members in matching:
        literals = [
            member.normal
            for member in members
            if isinstance(member, StringPattern) and member.is_literal
        ]
        if len(literals) == len(members):
            return next(filter(fits, literals), None)
    readable = next(filter(fits, chain(_readable(name, matching), numerals)), None)
    if readable is not None:
        return readable
    # Without the expressions more values match: if none does, none does with them.
    known = [list(map(_strings, members)) for members in matching]
    demanded = [list(chain.from_iterable(strings)) for strings in known if all(strings)]
    texts = [pattern for pattern in avoiding if isinstance(pattern, StringPattern)]
    text = shortest_text(demanded, texts, effort)
    if text is None or fits(text):
        return text
    raise Undecided


def _strings(pattern: Pattern) -> Sequence[StringPattern]:
    """Texts of which some match if the pattern matches anything; empty if unknown."""
    if isinstance(pattern, StringPattern):
        return (pattern,)
    return _BEGINNINGS if isinstance(pattern, ComparisonPattern) else ()


def _numerals(patterns: Sequence[Pattern]) -> list[str]:
    """Numbers, as texts, between which no comparison of some patterns changes.

    Each is written in several ways, one more than the patterns that could refuse it as text.
    """
    bounds = sorted(
        {Decimal(pattern.number) for pattern in patterns if isinstance(pattern, ComparisonPattern)}
    )
    if not bounds:
        return []
    with localcontext() as context:
        context.prec = 10 + 2 * max(len(str(bound)) for bound in bounds)  # to avoid rounding
        ends = [bounds[-1] + 1, bounds[0] - 1]
        between = [(low + high) / 2 for low, high in pairwise(bounds)]
        plain = [f"{number:f}" for number in (*ends, *bounds, *between)]
    zeros = range(1, 1 + sum(isinstance(pattern, StringPattern) for pattern in patterns))
    others = (
        f"{number}{'' if '.' in number else '.'}{'0' * count}"
        for count in zeros
        for number in plain
    )
    return [*plain, *others]


def _readable(name: str, matching: Sequence[Sequence[Pattern]]) -> Iterator[str]:
    """Values that look like those of a table; they may not match."""
    members = [member for member in chain(*matching) if not member.matches_anything]
    if not members:
        yield str(usual_value(name))
        yield _USUAL_QUEUE
    for pattern in members:
        if isinstance(pattern, RegexPattern):
            for part in (pattern.text, *pattern.text.split("|")):
                text = part
                for expression, sample in _SAMPLES:
                    text = re.sub(expression, sample, text)
                yield text.rstrip(" ")
                yield f"X{text}X"
        elif isinstance(pattern, StringPattern):
            for filling in ("X", "", "Y1"):
                yield pattern.normal.replace("*", filling).replace("?", "X").rstrip(" ")


_ALWAYS_SHOWN: Final = ("DESTQ", "REASON")
"""Fields that every realistic dead letter has."""

_Question: TypeAlias = tuple[str, frozenset[Pattern], frozenset[Pattern]]
"""A question about a field: its keyword, the patterns that match, those that do not."""

STEP_LIMIT: Final = 1_000
"""Maximum messages to try for one answer."""


def bits_of(rules: Iterable[int]) -> int:
    """Rules as a number in which bit i stands for the rule with index i."""
    return sum(1 << rule for rule in set(rules))


_Demand: TypeAlias = Mapping[tuple[str, bool], tuple[Pattern, ...]]
"""By field, the patterns that have to match (True) and those that must not (False)."""


def _with(demand: _Demand, side: tuple[str, bool], pattern: Pattern) -> _Demand:
    patterns = demand.get(side, ())
    return demand if pattern in patterns else {**demand, side: (*patterns, pattern)}


class Search:
    """Searches all possible messages, not only known ones.

    It builds a message with the demanded fields. While a rule matches that must not, one of this
    rule's patterns has to fail: each is tried in turn, with the ones before it matching. The
    ``Matcher`` checks every answer.
    """

    def __init__(self, rules: Sequence[Rule], effort: Effort | None = None) -> None:
        self._effort = effort or Effort()
        self._cost = 20 + len(rules) // 20
        """Approximate steps for one message: a value new to the index is compared with all patterns
        that start with a wildcard."""
        self._patterns = [rule.selective for rule in rules]
        named = (name for patterns in self._patterns for name in patterns)
        self._names = tuple(dict.fromkeys((*_ALWAYS_SHOWN, *named)))
        self.candidates_of = Matcher(RulesTable(Control(), tuple(rules))).candidates_of
        self.possible_overlaps = Overlaps(self._patterns).of
        self._values: dict[_Question, FieldValue | Undecided | None] = {}

    def find(
        self,
        matching: int = 0,
        avoiding: int = 0,
        *,
        apart_from: Mapping[str, Sequence[Pattern]] | None = None,
    ) -> Message | None:
        """A message that all of some rules match and none of others; None if there is none.

        ``find(0b01, 0b10)`` matches the first rule and not the second; ``apart_from`` are patterns
        of fields that must not match either.

        Raises:
            Undecided: The search took too long, or depends on regular expressions.
        """
        demand: _Demand = {}
        for rule in rules_of(matching):
            for name, pattern in self._patterns[rule].items():
                demand = _with(demand, (name, True), pattern)
        for name, patterns in (apart_from or {}).items():
            for pattern in patterns:
                demand = _with(demand, (name, False), pattern)
        return self._search(demand, avoiding)

    def _search(self, demand: _Demand, avoiding: int) -> Message | None:
        waiting = [demand]
        is_decided = True
        for _ in range(STEP_LIMIT):
            if not waiting:
                break
            demand = waiting.pop()
            self._effort.spend(self._cost + sum(map(len, demand.values())))
            try:
                message = self._message(demand)
            except Undecided:
                is_decided = False  # there may be one of another kind
                continue
            if message is None:
                continue
            matched = self.candidates_of(message) & avoiding
            if not matched:
                return message
            waiting += self._without(demand, matched)
        if waiting or not is_decided:
            raise Undecided
        return None

    def _without(self, demand: _Demand, matched: int) -> Iterator[_Demand]:
        """The ways to avoid one of the rules that match; they have no message in common."""
        rule = min(rules_of(matched), key=lambda index: len(self._patterns[index]))
        for name, pattern in self._patterns[rule].items():
            if pattern not in demand.get((name, True), ()):
                yield _with(demand, (name, False), pattern)
                demand = _with(demand, (name, True), pattern)

    def _message(self, demand: _Demand) -> Message | None:
        message = {}
        for name in dict.fromkeys((*self._names, *(name for name, _ in demand))):
            value = self._value(name, *(demand.get((name, side), ()) for side in (True, False)))
            if value is None:
                return None
            message[name] = value
        return message

    def _value(
        self, name: str, matching: Sequence[Pattern], avoiding: Sequence[Pattern]
    ) -> FieldValue | None:
        if not matching and not avoiding:
            return usual_value(name)
        key = name, frozenset(matching), frozenset(avoiding)
        if key not in self._values:
            try:
                self._values[key] = value_of(name, matching, avoiding, self._effort)
            except Undecided as undecided:
                self._values[key] = undecided
        value = self._values[key]
        if isinstance(value, Undecided):
            raise value
        return value


class Overlaps:
    """For each rule the rules that may match one of its messages, without false negatives.

    Each field has an index of the prefixes and suffixes of the texts that a pattern matches, and of
    the numbers that it matches, so a table of thousands of rules needs no comparison of all pairs.
    Rules are represented by their patterns, without those that match anything.
    """

    def __init__(self, patterns: Sequence[Mapping[str, Pattern]]) -> None:
        self._patterns = patterns
        self._all = (1 << len(patterns)) - 1
        self._fields: dict[str, _FieldPatterns] = defaultdict(_FieldPatterns)
        for index, of_rule in enumerate(patterns):
            for name, pattern in of_rule.items():
                self._fields[name].add(1 << index, pattern)

    def of(self, rule: int) -> int:
        """The rules, as bits, that may match messages of a rule, including itself."""
        rules = self._all
        for name, pattern in self._patterns[rule].items():
            of_field = self._fields[name]
            rules &= of_field.overlapping(pattern) | (self._all & ~of_field.rules)
        return rules


@dataclass(slots=True)
class _Ends:
    """Rules by the known prefix (or suffix) of the texts that they match."""

    exactly: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    at_least: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Text -> the rules whose end starts with it."""

    def add(self, bit: int, end: str) -> None:
        self.exactly[end] |= bit
        for size in range(len(end) + 1):
            self.at_least[end[:size]] |= bit

    def overlapping(self, end: str) -> int:
        """The rules whose end is a prefix of this one, or starts with it."""
        rules = self.at_least.get(end, 0)
        for size in range(len(end)):
            rules |= self.exactly.get(end[:size], 0)
        return rules


@dataclass(slots=True)
class _FieldPatterns:
    """The patterns of one field."""

    rules: int = 0
    unknown: int = 0
    """Rules with patterns whose prefixes and suffixes are unknown."""
    heads: _Ends = field(default_factory=_Ends)
    tails: _Ends = field(default_factory=_Ends)
    """Reversed."""
    intervals: list[tuple[int, Interval]] = field(default_factory=list)
    index: IntervalIndex | None = None
    known: dict[Pattern, int] = field(default_factory=dict)

    def add(self, bit: int, pattern: Pattern) -> None:
        self.rules |= bit
        self.intervals += [(bit, interval) for interval in intervals_of(pattern)]
        for member in members_of(pattern):
            if isinstance(member, StringPattern):
                head, tail = _ends(member)
                self.heads.add(bit, head)
                self.tails.add(bit, tail)
            elif not intervals_of(member):
                self.unknown |= bit

    def overlapping(self, pattern: Pattern) -> int:
        if pattern not in self.known:
            rules = self.unknown
            for member in members_of(pattern):
                rules |= self._overlapping(member)
            self.known[pattern] = rules
        return self.known[pattern]

    def _overlapping(self, pattern: Pattern) -> int:
        if isinstance(pattern, StringPattern):
            head, tail = _ends(pattern)
            return self.heads.overlapping(head) & self.tails.overlapping(tail)
        if not intervals_of(pattern):
            return self.rules
        self.index = self.index or IntervalIndex(self.intervals)
        rules = 0
        for interval in intervals_of(pattern):
            rules |= self.index.rules_within(interval)
        return rules


def _ends(pattern: StringPattern) -> tuple[str, str]:
    """The prefix of all values that a pattern matches, and the reversed suffix, except for blanks.

    A NUL marks the other end of a text without wildcards, so that no longer one has the same
    prefix.
    """
    if pattern.is_literal:
        return f"{pattern.normal}\0", f"{pattern.normal[::-1]}\0"
    # Trailing blanks of a head may be padding.
    tail = re.split(r"[*?]", pattern.normal)[-1]
    return pattern.head.rstrip(" "), tail[::-1]

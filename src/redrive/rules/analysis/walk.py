"""A walk through two tables at once, to the messages on which they part.

The walk reads both tables from the top, as a message would. A rule that stands in both tables at
the same place makes no difference, whether it matches or not; only about the others the walk asks,
and goes both ways. It ends where the tables part, where both are done, or where no message is left.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final, TypeAlias

from redrive.rules.analysis.ageing import fate, has_age
from redrive.rules.analysis.decision import Decision, decide
from redrive.rules.analysis.effort import Effort, Undecided
from redrive.rules.analysis.letters import Letter, letter_of, meaning_of, patterns_of
from redrive.rules.analysis.search import Message, Search
from redrive.rules.analysis.separation import Separation
from redrive.rules.patterns import Pattern
from redrive.rules.rule import Action, Rule
from redrive.rules.table import RulesTable

__all__ = ["Parting", "Walk"]

_OLD: Final = 0
_NEW: Final = 1
_REMAINS: Final = "remains"
_END: Final = {Action.DISCARD: "discarded", Action.QUARANTINE: "quarantined"}

_Word: TypeAlias = tuple[tuple[Letter, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """A message on which two tables part."""

    place: tuple[object, ...]
    """Where they do: the last rule of each table that applied, and the ends so far."""
    witness: Message
    old: Decision
    old_rules: tuple[int, ...]
    """Indexes of the rules that decide in the old table."""
    new: Decision
    new_rules: tuple[int, ...]

    @property
    def newly_discards(self) -> bool:
        """Whether only the new table deletes the message."""
        return self.new.discarded and not self.old.discarded


@dataclass(frozen=True, slots=True)
class _Node:
    """How far the walk is, and which messages are meant."""

    places: tuple[int, int] = (0, 0)
    """The next rule of each table."""
    ends: tuple[str, str] = ("", "")
    """What became of the messages in the end; empty as long as the table goes on."""
    last: tuple[int | None, int | None] = (None, None)
    """The last rule of each table that was applied."""
    ahead: int = _OLD
    """The table whose word is longer."""
    more: _Word = ()
    """What it has more."""
    matching: int = 0
    avoiding: int = 0

    @property
    def is_short(self) -> bool:
        """Whether one table is done with what the other one has more to do about."""
        return bool(self.more and self.ends[1 - self.ahead])

    def moved(self, side: int) -> _Node:
        places = self.places
        return replace(
            self,
            places=(places[0] + 1, places[1]) if side == _OLD else (places[0], places[1] + 1),
        )

    def applied(self, side: int) -> _Node:
        """The rule at the place of one side applies; nothing is said of what it does."""
        place, (old, new) = self.places[side], self.last
        return replace(self.moved(side), last=(place, new) if side == _OLD else (old, place))

    def ended(self, side: int, end: str) -> _Node:
        old, new = self.ends
        return replace(self, ends=(end, new) if side == _OLD else (old, end))


class Walk:
    """Compares two tables.

    Args:
        old: A table.
        new: Another one.
        effort: What the comparison may take.
    """

    def __init__(self, old: RulesTable, new: RulesTable, effort: Effort) -> None:
        self._tables = old, new
        self._has_age = has_age(old) or has_age(new)
        self._effort = effort
        numbers: dict[frozenset[tuple[str, Pattern]], int] = {}
        rules: list[Rule] = []
        self._numbers: list[list[int]] = []
        """For each table the numbers of its rules' patterns; the same ones have one number."""
        for table in self._tables:
            mine = []
            for rule in table.rules:
                number = numbers.setdefault(patterns_of(rule), len(numbers))
                rules += [rule] * (number == len(rules))
                mine.append(number)
            self._numbers.append(mine)
        self._search = Search(rules, effort)
        self._partners = self._aligned()
        self._last_keepers = [
            max(
                (
                    index
                    for index, rule in enumerate(table.rules)
                    if not rule.action.can_fail and index not in partners
                ),
                default=-1,
            )
            for table, partners in zip(self._tables, self._partners, strict=True)
        ]
        """For each table the last of its own rules that end a walk."""
        self._separation = Separation(self._search, self._tables)
        self.is_complete = True
        """Whether no message was left out."""

    def partings(self) -> Iterator[Parting]:
        """Every pair of rules at which the tables part, some of them more than once.

        Raises:
            Undecided: The effort is spent; there may be more.
        """
        waiting = [_Node()]
        while waiting:
            self._effort.spend(10)
            try:
                yield from self._advance(waiting.pop(), waiting)
            except Undecided:
                self.is_complete = False

    def _aligned(self) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """For each table its rules that stand in the other one too, in the same order."""
        before, after = (
            [(number, meaning_of(rule)) for number, rule in zip(numbers, table.rules, strict=True)]
            for numbers, table in zip(self._numbers, self._tables, strict=True)
        )
        matcher = SequenceMatcher(None, before, after, autojunk=False)
        pairs = {
            block.a + it: block.b + it
            for block in matcher.get_matching_blocks()
            for it in range(block.size)
        }
        return pairs, {new: old for old, new in pairs.items()}

    def _advance(self, node: _Node, waiting: list[_Node]) -> Iterator[Parting]:
        """Go on until the walk forks or ends."""
        while not all(node.ends) and not node.is_short:
            self._effort.spend(5)
            if self._is_common(node):
                common = self._past_common(node)
                if common is None:
                    return
                node = common
                continue
            side = self._next_side(node)
            if node.places[side] == len(self._tables[side].rules):
                node = node.ended(side, _REMAINS)
                continue
            bit = 1 << self._numbers[side][node.places[side]]
            if node.avoiding & bit:
                node = node.moved(side)
                continue
            if not node.matching & bit:
                waiting.append(replace(node.moved(side), avoiding=node.avoiding | bit))
                node = replace(node, matching=node.matching | bit)
                if self._search.find(node.matching, node.avoiding) is None:
                    return
            following = yield from self._applied(node, side)
            if following is None:
                return
            node = following
        if node.more or node.ends[_OLD] != node.ends[_NEW]:
            yield from self._parted(node)

    def _is_common(self, node: _Node) -> bool:
        """Whether both tables go on with the same rule, and nothing is to be made up for."""
        old, new = node.places
        return not node.more and not any(node.ends) and self._partners[_OLD].get(old) == new

    def _past_common(self, node: _Node) -> _Node | None:
        """The messages that go past a rule that both tables have; None if both end with it."""
        place = node.places[_OLD]
        bit = 1 << self._numbers[_OLD][place]
        node = node.moved(_OLD).moved(_NEW)
        if self._tables[_OLD].rules[place].action.can_fail:
            return node
        return None if node.matching & bit else replace(node, avoiding=node.avoiding | bit)

    def _next_side(self, node: _Node) -> int:
        """The table to read on: the one that is behind, or has a rule that the other one has not.

        Of tables that stand at no common rule, one stands at a rule without a partner, or at one
        whose partner was passed.
        """
        if any(node.ends):
            return _NEW if node.ends[_OLD] else _OLD
        if node.more:
            return 1 - node.ahead
        old, new = node.places
        partner = self._partners[_OLD].get(old, -1)
        return _NEW if partner >= new or old == len(self._tables[_OLD].rules) else _OLD

    def _applied(self, node: _Node, side: int) -> Generator[Parting, None, _Node | None]:
        """Let a rule apply; the walk ends where the tables part."""
        place = node.places[side]
        table = self._tables[side]
        rule = table.rules[place]
        node = node.applied(side)
        if not rule.action.can_fail:
            return node.ended(side, _END.get(rule.action, _REMAINS))
        number = self._numbers[side][place] if self._has_age else 0
        letter, times = letter_of(rule, table.control.dialect, number)
        while times:
            if node.more and node.ahead != side:
                (other, count), *rest = node.more
                if other != letter:
                    is_same = yield from self._told_apart(node, other, letter)
                    if not is_same:
                        return None
                used = min(times, count)
                times -= used
                left = ((other, count - used),) if count > used else ()
                node = replace(node, more=(*left, *rest))
            else:
                node = replace(node, ahead=side, more=(*node.more, (letter, times)))
                times = 0
        return node

    def _told_apart(self, node: _Node, one: Letter, two: Letter) -> Generator[Parting, None, bool]:
        """Find a message on which two letters differ; the result says whether there is none."""
        message = self._search.find(node.matching, node.avoiding)
        if message is None:
            return False  # nor is there any other, so the walk ends
        messages = node.matching, node.avoiding
        told = self._separation.separated(messages, message, one, two)
        if told is not None:
            yield from self._parted(node, told)
            return False
        pinned = self._separation.pinned(messages, message, one.references | two.references)
        if one.number != two.number or one.with_values(pinned) != two.with_values(pinned):
            raise Undecided
        return True

    def _parted(self, node: _Node, message: Message | None = None) -> Iterator[Parting]:
        """The message on which the tables part here, and one that is newly discarded."""
        if message is None:
            message = self._search.find(node.matching, node.avoiding)
        if message is None:
            return
        parting = self._parting(node, message)
        if parting is not None:
            yield parting
        if parting is None or not parting.newly_discards:
            yield from self._newly_discarded(node)

    def _parting(self, node: _Node, message: Message) -> Parting | None:
        matched = self._search.candidates_of(message)
        (old, old_rules), (new, new_rules) = (
            decide(table, self._candidates(numbers, matched), message)
            for table, numbers in zip(self._tables, self._numbers, strict=True)
        )
        if old == new or (self._has_age and self._meets_alike(message)):
            self.is_complete = False  # only a message that grows older may show it
            return None
        return Parting(
            place=(node.last, node.ends),
            witness=message,
            old=old,
            old_rules=old_rules,
            new=new,
            new_rules=new_rules,
        )

    def _candidates(self, numbers: Sequence[int], matched: int) -> int:
        return sum(1 << index for index, number in enumerate(numbers) if matched >> number & 1)

    def _meets_alike(self, message: Message) -> bool:
        """Whether both tables do the same with a message that grows older meanwhile."""
        old, new = (fate(table, message) for table in self._tables)
        return old == new

    def _newly_discarded(self, node: _Node) -> Iterator[Parting]:
        """A message of a node that the new table discards and the old one does not.

        Only rules that end a walk matter for that.
        """
        waiting = [replace(node, more=())] if self._may_end_otherwise(node) else []
        while waiting:
            node = waiting.pop()
            while not all(node.ends):
                self._effort.spend(5)
                side = self._next_side(node)
                common = self._past_common(node) if self._is_common(node) else node
                if common is None:
                    break  # both end alike
                node = self._to_end(node, side, waiting) if common is node else common
            if node.ends[_NEW] == _END[Action.DISCARD] != node.ends[_OLD] and node.ends[_OLD]:
                message = self._search.find(node.matching, node.avoiding)
                parting = message and self._parting(node, message)
                if parting:
                    yield parting
                    return

    def _to_end(self, node: _Node, side: int, waiting: list[_Node]) -> _Node:
        """Go past a rule of one table that may end its walk."""
        place = node.places[side]
        if place == len(self._tables[side].rules):
            return node.ended(side, _REMAINS)
        rule, bit = self._tables[side].rules[place], 1 << self._numbers[side][place]
        if rule.action.can_fail or node.avoiding & bit:
            return node.moved(side)
        if not node.matching & bit:
            waiting.append(replace(node.moved(side), avoiding=node.avoiding | bit))
        node = replace(node.applied(side), matching=node.matching | bit)
        return node.ended(side, _END.get(rule.action, _REMAINS))

    def _may_end_otherwise(self, node: _Node) -> bool:
        return any(node.ends) or any(
            self._last_keepers[side] >= node.places[side] for side in (_OLD, _NEW)
        )

"""Differences in meaning between two tables: messages that they treat differently.

A walk through two tables at once finds the messages on which they diverge. It reads both tables
from the top. A rule in the same place of both makes no difference, whether it matches or not. At
any other rule the walk forks into messages that the rule matches, and messages that it does not. A
branch ends where the tables diverge, where both end, or where no message is left.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final, TypeAlias, TypeVar

from redrive.rules.analysis.search import Effort, Search, Undecided, bits_of
from redrive.rules.keywords import GROWING, KAFKA_PATTERNS, Dialect
from redrive.rules.patterns import Pattern, StringPattern
from redrive.rules.rule import Action, Rule, bare, inserts
from redrive.rules.selection import Message, TableDecision, decide, decide_while_ageing, put_of
from redrive.rules.table import RulesTable

_OLD: Final = 0
_NEW: Final = 1
_REMAINS: Final = "remains"
_END: Final = {Action.DISCARD: "discarded", Action.QUARANTINE: "quarantined"}

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt of a rule on any message."""

    rule: Rule
    """A rule that makes such an attempt, without its patterns."""
    references: frozenset[str]
    """Fields of the message that its target depends on."""
    delays: tuple[tuple[int, ...], int] | None
    """With a BACKOFF, its distinct delays and the number of attempts: the attempts of such a rule
    count as one, because another rule would restart with the first delay."""
    number: int
    """The rule's patterns, if the rule itself matters; else 0."""

    def on(self, message: Message) -> tuple[object, ...]:
        """The attempt on one message; attempts that do the same to it are equal."""
        return put_of(self.rule, message), self.delays

    def on_any(self, known: Message) -> tuple[object, ...]:
        """The attempt on all messages in which some fields have known values."""
        return self.on({name: f"\0{name}" for name in self.references} | dict(known))


def attempts_of(rule: Rule, dialect: Dialect, number: int) -> tuple[Attempt, int]:
    """The attempt of a rule whose action can fail, and how often the rule makes it."""
    targets = (rule.forward_queue, rule.forward_queue_manager)
    names = {*inserts(rule), *(name[1:] for name in targets if name.startswith("&"))}
    if rule.action is Action.RETRY:
        names = {"DESTQ", "DESTQM"} | ({"TOPIC"} if dialect is Dialect.KAFKA else set())
    delays, times = None, rule.retry
    if rule.backoff is not None:
        distinct = rule.backoff.distinct(rule.retry)
        is_constant = len(distinct) == 1
        delays, times = (distinct, 1 if is_constant else times), times if is_constant else 1
    return Attempt(bare(rule), frozenset(names), delays, number), times


def meaning_of(rule: Rule) -> Rule:
    """A rule without its patterns, and without settings that have no effect."""
    return replace(rule, patterns={}) if rule.action.can_fail else Rule(action=rule.action)


_ActionSequence: TypeAlias = tuple[tuple[Attempt, int], ...]
"""Attempts, each with its number of repetitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A message that two tables treat differently."""

    place: tuple[object, ...]
    """Where they diverge: the last rule of each table that applied, and the ends so far."""
    witness: Message
    old: TableDecision
    old_rules: tuple[int, ...]
    """Indexes of the rules that apply in the old table."""
    new: TableDecision
    new_rules: tuple[int, ...]

    @property
    def newly_discards(self) -> bool:
        """Whether only the new table deletes the message."""
        return self.new.discarded and not self.old.discarded

    def rank(self) -> tuple[object, ...]:
        """The sort key: messages that are newly discarded come first."""
        return not self.newly_discards, self.new_rules, self.old_rules


@dataclass(frozen=True, slots=True)
class ControlChange:
    """Control data that differ."""

    keyword: str
    old: str | int
    new: str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The comparison of two tables."""

    control: tuple[ControlChange, ...]
    differences: tuple[Divergence, ...]
    """One for each pair of rules at which the tables diverge, and one more where some of its
    messages are newly discarded; such ones come first."""
    is_complete: bool
    """Whether there are provably no other differences."""

    @property
    def is_equal(self) -> bool:
        """Whether the tables provably mean the same."""
        return self.is_complete and not self.control and not self.differences


def compare(old: RulesTable, new: RulesTable) -> Comparison:
    """The differences in meaning between two tables, each with a message and both decisions."""
    walk = DivergenceSearch(old, new, Effort())
    divergences: dict[object, Divergence] = {}
    try:
        for divergence in walk.divergences():
            place = divergence.place, divergence.newly_discards
            divergences.setdefault(place, divergence)
    except Undecided:
        walk.is_complete = False
    return Comparison(
        control=tuple(control_changes(old, new)),
        differences=tuple(sorted(divergences.values(), key=Divergence.rank)),
        is_complete=walk.is_complete,
    )


def control_changes(old: RulesTable, new: RulesTable) -> Iterator[ControlChange]:
    """The control data that differ in meaning."""
    before, after = old.control, new.control
    same = {
        "RETRYINT": before.retry_interval == after.retry_interval,
        "WAIT": before.seconds_to_wait == after.seconds_to_wait,
    }
    was, now = before.keywords(), after.keywords()
    for name in {**was, **now}:
        # Only DIALECT and ORDER may be missing in one of the tables.
        missing = Dialect.IBM.value if name == "DIALECT" else "none"
        value, other = was.get(name, missing), now.get(name, missing)
        if not same.get(name, value == other):
            yield ControlChange(name, value, other)


@dataclass(frozen=True, slots=True)
class _Node:
    """A state of the walk: a position in each table, and the messages that reach it."""

    places: tuple[int, int] = (0, 0)
    ends: tuple[str, str] = ("", "")
    """Final result of the messages; empty while the table continues."""
    last: tuple[int | None, int | None] = (None, None)
    ahead: int = _OLD
    """The table with more attempts."""
    more: _ActionSequence = ()
    """The attempts of only this table."""
    matching: int = 0
    avoiding: int = 0

    def moved(self, side: int) -> _Node:
        """The node after the next rule of one table."""
        return replace(self, places=_with(self.places, side, self.places[side] + 1))

    def applied(self, side: int) -> _Node:
        """The node after the next rule of one table has applied."""
        return replace(self.moved(side), last=_with(self.last, side, self.places[side]))

    def ended(self, side: int, end: str) -> _Node:
        return replace(self, ends=_with(self.ends, side, end))


def _with(pair: tuple[_T, _T], side: int, value: _T) -> tuple[_T, _T]:
    return (value, pair[_NEW]) if side == _OLD else (pair[_OLD], value)


class DivergenceSearch:
    """Compares two tables with limited effort."""

    def __init__(self, old: RulesTable, new: RulesTable, effort: Effort) -> None:
        self._tables = old, new
        self._has_age = bool(GROWING & (old.asked | new.asked))
        self._effort = effort
        numbers: dict[frozenset[tuple[str, Pattern]], int] = {}
        rules: list[Rule] = []
        self._numbers: list[list[int]] = [[], []]
        """For each table the numbers of its rules' patterns; equal patterns have one number."""
        for table, of_table in zip(self._tables, self._numbers, strict=True):
            for rule in table.rules:
                patterns = frozenset(rule.selective.items())
                of_table.append(numbers.setdefault(patterns, len(numbers)))
                rules += [rule] * (of_table[-1] == len(rules))
        self._search = Search(rules, effort)
        self._target_names = {
            name
            for table in self._tables
            for rule in table.rules
            for name in (rule.forward_queue, rule.forward_queue_manager, rule.forward_topic)
        }
        self._partners = self._align_rules()
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
        """For each table the last rule that ends a walk without a counterpart."""
        self.is_complete = True
        """Whether all messages were covered."""

    def divergences(self) -> Iterator[Divergence]:
        """Every pair of rules at which the tables diverge, some more than once.

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

    def _align_rules(self) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """For each table its rules that the other one also has, in the same order."""
        before, after = (
            [(number, meaning_of(rule)) for number, rule in zip(numbers, table.rules, strict=True)]
            for numbers, table in zip(self._numbers, self._tables, strict=True)
        )
        pairs = {
            block.a + offset: block.b + offset
            for block in SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
            for offset in range(block.size)
        }
        return pairs, {new: old for old, new in pairs.items()}

    def _advance(self, node: _Node, waiting: list[_Node]) -> Iterator[Divergence]:
        """Continue until the branch ends; the other side of each fork waits."""
        # The branch also ends if the table with fewer attempts is done.
        while not all(node.ends) and not (node.more and node.ends[1 - node.ahead]):
            self._effort.spend(5)
            following: _Node | None
            if self._is_common(node):
                following = self._past_common(node)
            else:
                side = self._next_side(node)
                bit = self._next_bit(node, side)
                if not bit:
                    following = node.ended(side, _REMAINS)
                elif node.avoiding & bit:
                    following = node.moved(side)
                else:
                    if not node.matching & bit:
                        waiting.append(replace(node.moved(side), avoiding=node.avoiding | bit))
                        node = replace(node, matching=node.matching | bit)
                        if self._search.find(node.matching, node.avoiding) is None:
                            return
                    following = yield from self._apply_rule(node, side)
            if following is None:
                return
            node = following
        if node.more or node.ends[_OLD] != node.ends[_NEW]:
            yield from self._report_divergence(node)

    def _next_bit(self, node: _Node, side: int) -> int:
        """The patterns of the next rule of one table, as a bit; 0 after the last rule."""
        numbers = self._numbers[side]
        place = node.places[side]
        return 1 << numbers[place] if place < len(numbers) else 0

    def _is_common(self, node: _Node) -> bool:
        old, new = node.places
        return not node.more and not any(node.ends) and self._partners[_OLD].get(old) == new

    def _past_common(self, node: _Node) -> _Node | None:
        """The messages that pass a rule of both tables; None if both end with it."""
        rule, bit = self._tables[_OLD].rules[node.places[_OLD]], self._next_bit(node, _OLD)
        node = node.moved(_OLD).moved(_NEW)
        if rule.action.can_fail:
            return node
        return None if node.matching & bit else replace(node, avoiding=node.avoiding | bit)

    def _next_side(self, node: _Node) -> int:
        """The table to continue: the one that is behind, or whose next rule has no counterpart.

        Of tables not at a common rule, one is at a rule without a counterpart, or at one whose
        counterpart was passed.
        """
        if any(node.ends):
            return _NEW if node.ends[_OLD] else _OLD
        if node.more:
            return 1 - node.ahead
        old, new = node.places
        partner = self._partners[_OLD].get(old, -1)
        return _NEW if partner >= new or old == len(self._tables[_OLD].rules) else _OLD

    def _apply_rule(self, node: _Node, side: int) -> Generator[Divergence, None, _Node | None]:
        place = node.places[side]
        table = self._tables[side]
        rule = table.rules[place]
        node = node.applied(side)
        if not rule.action.can_fail:
            return node.ended(side, _END.get(rule.action, _REMAINS))
        number = self._numbers[side][place] if self._has_age else 0
        attempt, times = attempts_of(rule, table.control.dialect, number)
        while times:
            if node.more and node.ahead != side:
                (other, count), *rest = node.more
                if other != attempt:
                    is_same = yield from self._find_difference(node, other, attempt)
                    if not is_same:
                        return None
                used = min(times, count)
                times -= used
                left = ((other, count - used),) if count > used else ()
                node = replace(node, more=(*left, *rest))
            else:
                node = replace(node, ahead=side, more=(*node.more, (attempt, times)))
                times = 0
        return node

    def _find_difference(
        self, node: _Node, first: Attempt, second: Attempt
    ) -> Generator[Divergence, None, bool]:
        """Find a message on which two attempts differ; returns whether there is none."""
        messages = node.matching, node.avoiding
        message = self._search.find(*messages)
        if message is None:
            return False  # nor is there any other, so the branch ends
        distinguishing = self._distinguishing_message(messages, message, first, second)
        if distinguishing is not None:
            yield from self._report_divergence(node, distinguishing)
            return False
        known = self._constant_fields(messages, message, first.references | second.references)
        if first.number != second.number or first.on_any(known) != second.on_any(known):
            raise Undecided
        return True

    def _distinguishing_message(
        self, messages: tuple[int, int], message: Message, first: Attempt, second: Attempt
    ) -> Message | None:
        """A message that two attempts do not put to the same queue by coincidence.

        On DESTQ=A the rules FWDQ(A) and FWDQ(&DESTQ) do the same. So fields that name a target get
        a value that no rule names, or at least another one, if possible. ``messages`` are the rules
        that match and those that do not, as bits; ``message`` is one of these messages.
        """
        apart: dict[str, list[Pattern]] = {}
        names = sorted(first.references | second.references)
        for name in (*names, *names):
            if first.on(message) != second.on(message):
                return message
            own = str(message.get(name, ""))
            others = {str(message.get(other, "")) for other in names} | self._target_names
            apart[name] = _literals(name, {own} if name in apart else {own} | others)
            distinct = self._search.find(*messages, apart_from=apart)
            if distinct is None:
                apart[name] = []
            message = distinct or message
        return message if first.on(message) != second.on(message) else None

    def _constant_fields(
        self, messages: tuple[int, int], message: Message, names: frozenset[str]
    ) -> Mapping[str, str]:
        """The fields with only one value in all messages in question; arguments as above."""
        values = {name: str(message.get(name, "")) for name in names}
        return {
            name: value
            for name, value in values.items()
            if self._search.find(*messages, apart_from={name: _literals(name, {value})}) is None
        }

    def _report_divergence(
        self, node: _Node, message: Message | None = None
    ) -> Iterator[Divergence]:
        """The message on which the tables diverge here, and one that is newly discarded."""
        if message is None:
            message = self._search.find(node.matching, node.avoiding)
        if message is None:
            return
        divergence = self._divergence(node, message)
        if divergence is not None:
            yield divergence
        if divergence is None or not divergence.newly_discards:
            yield from self._find_newly_discarded(node)

    def _divergence(self, node: _Node, message: Message) -> Divergence | None:
        matched = self._search.candidates_of(message)
        (old, old_rules), (new, new_rules) = (
            decide(table, bits_of(i for i, n in enumerate(numbers) if matched >> n & 1), message)
            for table, numbers in zip(self._tables, self._numbers, strict=True)
        )
        if old == new or (self._has_age and self._equal_while_ageing(message)):
            self.is_complete = False  # only an ageing message may show it
            return None
        return Divergence(
            place=(node.last, node.ends),
            witness=message,
            old=old,
            old_rules=old_rules,
            new=new,
            new_rules=new_rules,
        )

    def _equal_while_ageing(self, message: Message) -> bool:
        old, new = (decide_while_ageing(table, message) for table in self._tables)
        return old == new

    def _find_newly_discarded(self, node: _Node) -> Iterator[Divergence]:
        """A message of a node that the new table discards and the old one does not.

        Only rules that end a walk matter for that.
        """
        may_end_otherwise = any(node.ends) or any(
            last >= place for last, place in zip(self._last_keepers, node.places, strict=True)
        )
        waiting = [replace(node, more=())] if may_end_otherwise else []
        while waiting:
            node = waiting.pop()
            while not all(node.ends):
                self._effort.spend(5)
                if self._is_common(node):
                    common = self._past_common(node)
                    if common is None:
                        break  # both end the same way
                    node = common
                else:
                    node = self._to_end(node, self._next_side(node), waiting)
            if node.ends[_NEW] == _END[Action.DISCARD] != node.ends[_OLD] and node.ends[_OLD]:
                message = self._search.find(node.matching, node.avoiding)
                divergence = message and self._divergence(node, message)
                if divergence:
                    yield divergence
                    return

    def _to_end(self, node: _Node, side: int, waiting: list[_Node]) -> _Node:
        """Pass a rule of one table that may end its walk."""
        bit = self._next_bit(node, side)
        if not bit:
            return node.ended(side, _REMAINS)
        action = self._tables[side].rules[node.places[side]].action
        if action.can_fail or node.avoiding & bit:
            return node.moved(side)
        if not node.matching & bit:
            waiting.append(replace(node.moved(side), avoiding=node.avoiding | bit))
        node = replace(node.applied(side), matching=node.matching | bit)
        return node.ended(side, _END.get(action, _REMAINS))


def _literals(name: str, values: set[str]) -> list[Pattern]:
    length = KAFKA_PATTERNS[name].length
    return [StringPattern(value or " ", length) for value in sorted(values)]

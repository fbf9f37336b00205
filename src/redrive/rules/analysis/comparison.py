"""Differences in meaning between two tables: messages that they treat differently."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from redrive.rules.analysis.text_automata import Effort, Undecided
from redrive.rules.analysis.walk import Divergence, Walk
from redrive.rules.keywords import Dialect
from redrive.rules.table import RulesTable


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
    walk = Walk(old, new, Effort())
    found: dict[object, Divergence] = {}
    try:
        for one in walk.divergences():
            found.setdefault((one.place, one.newly_discards), one)
    except Undecided:
        walk.is_complete = False
    return Comparison(
        control=tuple(control_changes(old, new)),
        differences=tuple(
            sorted(
                found.values(), key=lambda it: (not it.newly_discards, it.new_rules, it.old_rules)
            )
        ),
        is_complete=walk.is_complete,
    )


def control_changes(old: RulesTable, new: RulesTable) -> Iterator[ControlChange]:
    """The control data that differ in meaning."""
    before, after = old.control, new.control
    same = {
        "RETRYINT": before.retry_interval == after.retry_interval,
        "WAIT": before.wait.seconds == after.wait.seconds,
    }
    was, now = before.keywords(), after.keywords()
    for name in {**was, **now}:
        # Only DIALECT and ORDER may be missing in one of the tables.
        missing = Dialect.IBM.value if name == "DIALECT" else "none"
        value, other = was.get(name, missing), now.get(name, missing)
        if not same.get(name, value == other):
            yield ControlChange(name, value, other)

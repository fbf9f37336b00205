"""What differs between two tables in meaning: messages of which they make something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from redrive.rules.analysis.decision import Decision
from redrive.rules.analysis.effort import Effort, Undecided
from redrive.rules.analysis.search import Message
from redrive.rules.analysis.walk import Walk
from redrive.rules.keywords import Dialect
from redrive.rules.table import RulesTable

__all__ = ["Comparison", "ControlChange", "Difference", "compare", "control_changes"]


@dataclass(frozen=True, slots=True)
class ControlChange:
    """Control data that differ."""

    keyword: str
    old: str | int
    new: str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Messages that two tables treat differently, by one of them."""

    witness: Message
    """Its match fields."""
    old: Decision
    old_rules: tuple[int, ...]
    """Indexes of the rules that decide in the old table."""
    new: Decision
    new_rules: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two tables side by side."""

    control: tuple[ControlChange, ...]
    differences: tuple[Difference, ...]
    """One for each pair of rules at which the tables part, and one more where some of its messages
    are newly discarded; such ones come first."""
    is_complete: bool
    """Whether there is certainly no other difference."""

    @property
    def is_equal(self) -> bool:
        """Whether the tables mean the same, which is proved."""
        return self.is_complete and not self.control and not self.differences


def compare(old: RulesTable, new: RulesTable) -> Comparison:
    """Compare what two tables mean.

    Args:
        old: A table.
        new: Another one.

    Returns:
        The differences, each with a message and what both tables make of it.
    """
    walk = Walk(old, new, Effort())
    differences: dict[object, Difference] = {}
    try:
        for parting in walk.partings():
            found = Difference(
                witness=parting.witness,
                old=parting.old,
                old_rules=parting.old_rules,
                new=parting.new,
                new_rules=parting.new_rules,
            )
            differences.setdefault((parting.place, parting.newly_discards), found)
    except Undecided:
        walk.is_complete = False
    return Comparison(
        control=tuple(control_changes(old, new)),
        differences=tuple(sorted(differences.values(), key=_order)),
        is_complete=walk.is_complete,
    )


def _order(difference: Difference) -> tuple[bool, tuple[int, ...], tuple[int, ...]]:
    return not _newly_discards(difference), difference.new_rules, difference.old_rules


def _newly_discards(difference: Difference) -> bool:
    return difference.new.discarded and not difference.old.discarded


def control_changes(old: RulesTable, new: RulesTable) -> Iterator[ControlChange]:
    """The control data of which two tables do not mean the same."""
    before, after = old.control, new.control
    same = {
        "RETRYINT": before.retry_interval == after.retry_interval,
        "WAIT": before.wait.seconds == after.wait.seconds,
    }
    was, now = before.keywords(), after.keywords()
    for name in {**was, **now}:
        # Only a table in a dialect tells one.
        value, other = was.get(name, Dialect.IBM.value), now.get(name, Dialect.IBM.value)
        if not same.get(name, value == other):
            yield ControlChange(name, value, other)

"""A rules table as a value: control data and rules in order."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

from redrive.rules.backoff import BackoffPartitions
from redrive.rules.canonical import write_entries
from redrive.rules.rule import Control, RetryTo, Rule
from redrive.rules.targets import inserts


@dataclass(frozen=True)
class RulesTable:
    """Control data and at least one rule, checked."""

    control: Control
    rules: tuple[Rule, ...]

    def canonical(self) -> str:
        """The table in its canonical layout, which reads back as an equal table.

        One rule in each entry, keywords in a fixed order, numbers by their symbolic names, no
        defaults, lines of at most 72 characters.
        """
        return "".join(f"{line}\n" for line in write_entries(self.control, self.rules))

    @cached_property
    def asked(self) -> frozenset[str]:
        """The fields of a message that determine its decision, named as in patterns.

        Fields that no rule uses and patterns that match anything are left out. Fields that a rule
        inserts into a topic's name are included, and the group of TO(GROUP).
        """
        named = {"GROUP"} if self.has_groups else set[str]()
        asked = (name for rule in self.rules for name in (*rule.selective, *inserts(rule)))
        return frozenset({*asked, *named})

    @property
    def has_groups(self) -> bool:
        """Whether any rule puts to the topics of groups."""
        return any(rule.to is RetryTo.GROUP for rule in self.rules)

    @property
    def has_backoff(self) -> bool:
        """Whether messages wait by their delays: those of a BACKOFF, or of ORDER(KEY).

        They then have a partition for each delay, otherwise one for each of the queue.
        """
        return self.control.is_ordered or any(rule.backoff is not None for rule in self.rules)

    @cached_property
    def backoff_partitions(self) -> BackoffPartitions:
        """The partitions where parked messages wait, if the table has a BACKOFF or ORDER(KEY)."""
        return BackoffPartitions.of(
            ((rule.backoff, rule.retry) for rule in self.rules if rule.backoff is not None),
            interval=self.control.retry_interval if self.has_backoff else None,
            is_exact=self.control.is_ordered,
        )

    @property
    def hash(self) -> str:
        """SHA-256 of the table's meaning, as 64 hexadecimal digits.

        Comments, layout, line numbers, the order of keywords and the spelling of values do not
        matter; the order of rules does.
        """
        control = {
            **self.control.keywords(),
            "INPUTQ": self.control.input_queue,
            "INPUTQM": self.control.input_queue_manager,
            "RETRYINT": self.control.retry_interval,
            "WAIT": self.control.wait.seconds,
        }
        meaning = [control, *map(_rule_meaning, self.rules)]
        text = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _rule_meaning(rule: Rule) -> dict[str, object]:
    return {
        **rule.keywords(),
        "line": None,
        "pattern": {name: pattern.meaning for name, pattern in rule.selective.items()},
    }

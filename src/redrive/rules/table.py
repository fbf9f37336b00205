"""A rules table as a value: control data and rules in order."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from redrive.rules.canonical import write_entries
from redrive.rules.patterns import NumberPattern
from redrive.rules.rule import Control, Rule

__all__ = ["RulesTable"]


@dataclass(frozen=True, slots=True)
class RulesTable:
    """Control data and at least one rule, checked."""

    control: Control
    rules: tuple[Rule, ...]

    def canonical(self) -> str:
        """The table in its canonical layout, which reads back as an equal table.

        One rule to an entry, keywords in a fixed order, numbers by their symbolic names, defaults
        left out, lines of at most 72 characters.
        """
        return "".join(f"{line}\n" for line in write_entries(self.control, self.rules))

    @property
    def hash(self) -> str:
        """SHA-256 of what the table means, as 64 hexadecimal digits.

        Comments, layout, line numbers, the order of keywords and the spelling of values make no
        difference; the order of rules does.
        """
        meaning = [_control_meaning(self.control), *map(_rule_meaning, self.rules)]
        text = json.dumps(meaning, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _control_meaning(control: Control) -> dict[str, object]:
    return {
        "INPUTQ": control.input_queue,
        "INPUTQM": control.input_queue_manager,
        "RETRYINT": control.retry_interval,
        "WAIT": control.wait.seconds,
    }


def _rule_meaning(rule: Rule) -> dict[str, object]:
    return {
        **rule.keywords(),
        "line": None,
        "pattern": {
            name: pattern.value if isinstance(pattern, NumberPattern) else pattern.normal
            for name, pattern in rule.patterns.items()
            if not pattern.matches_anything
        },
    }

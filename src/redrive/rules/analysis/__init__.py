"""Looking at a rules table before it runs, by proof and not by trial.

    analyse(table, text)     -> rules that never apply, overlaps, gaps: each with a witness
    compare(old, new)        -> what differs in meaning, by messages that show it
    Search(rules).find(...)  -> a message that some rules match and others do not, or None

Everything is exact for the patterns of rules-table specification 5.3, and for the lists and numbers
of DIALECT(KAFKA). Regular expressions are asked, not understood: a message that shows something is
found by trial, and what would need a proof about them is not decided. Each answer has a bound.
"""

from __future__ import annotations

from redrive.rules.analysis.comparison import (
    Comparison,
    ControlChange,
    Difference,
    compare,
    control_changes,
)
from redrive.rules.analysis.decision import Decision, Put, decide
from redrive.rules.analysis.effort import Undecided
from redrive.rules.analysis.findings import Finding, analyse, findings_of
from redrive.rules.analysis.search import Message, Search, bits_of
from redrive.rules.analysis.witness import hidden_field, told_fields, write_field, write_message

__all__ = [
    "Comparison",
    "ControlChange",
    "Decision",
    "Difference",
    "Finding",
    "Message",
    "Put",
    "Search",
    "Undecided",
    "analyse",
    "bits_of",
    "compare",
    "control_changes",
    "decide",
    "findings_of",
    "hidden_field",
    "told_fields",
    "write_field",
    "write_message",
]

"""Static analysis of a rules table, by proof.

Everything is exact for text and number patterns, and for the lists and numbers of DIALECT(KAFKA).
The intersection of two regular expressions is unknown: a message that shows something is found by
trial, and what needs a proof stays undecided. The effort is limited.
"""

from __future__ import annotations

from redrive.rules.analysis.comparison import (
    Comparison,
    ControlChange,
    compare,
    control_changes,
)
from redrive.rules.analysis.findings import analyse
from redrive.rules.analysis.search import Search, Undecided, bits_of
from redrive.rules.canonical import hidden_field, present_fields, write_field, write_message
from redrive.rules.selection import Message, TableDecision, decide

__all__ = [
    "Comparison", "ControlChange", "Message", "Search", "TableDecision", "Undecided", "analyse",
    "bits_of", "compare", "control_changes", "decide", "hidden_field", "present_fields",
    "write_field", "write_message"
]  # fmt: skip

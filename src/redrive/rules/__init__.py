"""The rules-table language: reading, checking, matching, selecting, explaining.

It needs neither Spark nor a Kafka client.
"""

from __future__ import annotations

from redrive.rules.canonical import write_action, write_clause, write_rule
from redrive.rules.keywords import PATTERN_KEYWORDS, Dialect
from redrive.rules.parser import ParseResult, parse
from redrive.rules.patterns import FieldReader, FieldValue
from redrive.rules.rule import (
    GROUP_TOPIC,
    Action,
    Authority,
    Control,
    RetryTo,
    Rule,
    group_of,
    group_topic,
    input_queue,
    input_queue_manager,
    is_topic_name,
    missing_insert,
    original_target,
    resolve_target,
)
from redrive.rules.selection import (
    ClauseVerdict,
    Matcher,
    Turn,
    explain,
    explain_rule,
    rules_of,
    select_rule,
)
from redrive.rules.source import decode_source
from redrive.rules.table import RulesTable

__all__ = [
    "GROUP_TOPIC", "PATTERN_KEYWORDS", "Action", "Authority", "ClauseVerdict", "Control", "Dialect",
    "FieldReader", "FieldValue", "Matcher", "ParseResult", "RetryTo", "Rule", "RulesTable", "Turn",
    "analysis", "backoff", "decode_source", "diagnosis", "explain", "explain_rule", "group_of",
    "group_topic", "input_queue", "input_queue_manager", "is_topic_name", "keywords",
    "missing_insert", "original_target", "parse", "patterns", "resolve_target", "rule", "rules_of",
    "select_rule", "source", "values", "write_action", "write_clause", "write_rule"
]  # fmt: skip

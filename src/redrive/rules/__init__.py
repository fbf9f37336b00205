"""The rules-table language: reading, checking, matching, selecting, explaining.

    parse(text)                          -> ParseResult: a RulesTable, and every finding
    Matcher(table)                       -> which rules match a message
    select_rule(table, candidates, n)    -> the rule that applies after n failed attempts
    resolve_target(rule, fields)         -> where it puts the message

It needs neither Spark nor a Kafka client.
"""

from __future__ import annotations

from redrive.rules.canonical import write_action, write_clause, write_rule
from redrive.rules.keywords import PATTERN_KEYWORDS, Dialect
from redrive.rules.parser import ParseResult, parse
from redrive.rules.patterns import FieldReader, FieldValue
from redrive.rules.rule import Action, Authority, Control, RetryTo, Rule
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
from redrive.rules.targets import (
    GROUP_TOPIC,
    group_of,
    group_topic,
    input_queue,
    input_queue_manager,
    is_topic_name,
    missing_insert,
    original_target,
    resolve_target,
)

__all__ = [
    "GROUP_TOPIC", "PATTERN_KEYWORDS", "Action", "Authority", "ClauseVerdict", "Control", "Dialect",
    "FieldReader", "FieldValue", "Matcher", "ParseResult", "RetryTo", "Rule",
    "RulesTable", "Turn", "analysis", "backoff", "decode_source",
    "diagnosis", "explain", "explain_rule", "group_of", "group_topic",
    "input_queue", "input_queue_manager", "is_topic_name", "keywords", "missing_insert",
    "original_target", "parse", "patterns", "resolve_target", "rules_of", "select_rule", "source",
    "targets", "values", "write_action", "write_clause", "write_rule"
]  # fmt: skip

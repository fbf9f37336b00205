"""Vectors of the rules-table language: what is read, what matches, which rule applies."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conformance.vectors import Vector, is_subset

from redrive.command.message_file import message_from_json
from redrive.messages.dead_letters import DeadLetterProfile, decode_dead_letter
from redrive.rules import (
    Control,
    Matcher,
    ParseResult,
    RulesTable,
    input_queue,
    input_queue_manager,
    parse,
    select_rule,
)


@pytest.mark.vectors("rules", kinds=["parse-ok"])
def test_table_is_accepted(vector: Vector) -> None:
    """The table is read as rules in order and control values, defaults filled in."""
    table = parse(vector["table"]).required()
    actual = {
        "rules": [rule.keywords() for rule in table.rules],
        "control": table.control.keywords(),
    }
    assert is_subset(vector["expect"], actual), actual


@pytest.mark.vectors("rules", kinds=["parse-error"])
def test_table_is_rejected(vector: Vector) -> None:
    """The table is rejected for the expected reason, at the expected entry and keyword."""
    result = parse(vector["table"])
    assert result.table is None
    errors = _errors(result)
    expected = vector["expect"]
    if "errors" in expected:
        assert is_subset(expected["errors"], errors), errors
    else:
        named = {name: expected[name] for name in ("error", "line", "keyword") if name in expected}
        assert is_subset(named, errors[0]), errors


@pytest.mark.vectors("rules", kinds=["match"])
def test_pattern_matches(vector: Vector) -> None:
    """The only rule's pattern matches the message, or does not."""
    table = parse(vector["table"]).required()
    letter = _letter(vector)
    matches = letter.is_dead_letter and Matcher(table).candidates_of(letter.fields) == 1
    assert matches is vector["expect"]["match"]


@pytest.mark.vectors("rules", kinds=["select"])
def test_rule_applies(vector: Vector) -> None:
    """The expected rule applies after so many failed attempts, or none does."""
    table = parse(vector["table"]).required()
    actual = _selected(table, _letter(vector), vector["failed_attempts"])
    expected = {name: value for name, value in vector["expect"].items() if name != "ibm_message"}
    assert is_subset(expected, actual), actual


@pytest.mark.vectors("rules", kinds=["resolve"])
def test_queue_is_chosen(vector: Vector) -> None:
    """Command arguments and control data give the expected queue and queue manager."""
    data = vector["control"]
    control = Control(
        input_queue=data.get("INPUTQ", "").rstrip(),
        input_queue_manager=data.get("INPUTQM", "").rstrip(),
    )
    default = vector.get("default_qmgr", "")
    manager = input_queue_manager(vector["args"], control, default)
    actual = {
        "queue": input_queue(vector["args"], control, vector.get("qmgr_deadq", "")),
        "qmgr": manager,
        "queue_manager": manager,
    }
    assert is_subset(vector["expect"], actual), actual


def _errors(result: ParseResult) -> list[dict[str, Any]]:
    return [
        {"error": finding.code, "line": finding.entry_line, "keyword": finding.subject}
        for finding in result.diagnostics
        if finding.severity == "error"
    ]


def _letter(vector: Vector) -> DeadLetterProfile:
    return decode_dead_letter(*message_from_json(vector["message"]))


def _selected(table: RulesTable, letter: DeadLetterProfile, failures: int) -> dict[str, Any]:
    if not letter.is_dead_letter:
        return {"rule": None, "action": "LEAVE"}
    index = select_rule(table, Matcher(table).candidates_of(letter.fields), failures)
    if index is None:
        return {"rule": None, "action": "IGNORE"}
    return {**table.rules[index].keywords(), "rule": index + 1, "action": table.rules[index].action}

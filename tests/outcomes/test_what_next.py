"""What is said to come next after an outcome, without a broker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from redrive.configuration import HandlerConfiguration
from redrive.outcomes.history import what_next
from redrive.rules import parse
from redrive.topology.names import HandlerIdentity

RULES = "DIALECT(KAFKA) RETRYINT(30)\nKEY(bad) ACTION(QUARANTINE)\nACTION(RETRY) RETRY(5)\n"
HANDLER = HandlerConfiguration(
    identity=HandlerIdentity(
        name="dlq", queue_manager="", queue="dlq", topic="dlq", retry_topic="r", remaining_topic="m"
    ),
    rules=RULES,
    rules_name="dlq.rul",
)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def row(**members: Any) -> dict[str, Any]:
    """An outcome of the ledger."""
    hashed = parse(RULES).required().hash[:16]
    return {"handler": "dlq", "table_hash": hashed, "time": NOON, "attempt": 2, **members}


@pytest.mark.parametrize("table", ["0123456789abcdef", None])
def test_what_is_quarantined_stays_with_any_table(table: str | None) -> None:
    """Neither the present table nor a changed one evaluates it."""
    outcome = row(result="remains", action="QUARANTINE")
    if table:
        outcome["table_hash"] = table
    assert "quarantine" in what_next(outcome, [HANDLER]).text


def test_the_next_attempt_under_a_dialect_has_a_time_but_no_rule() -> None:
    """Which rule it is depends on more of the message than the ledger has."""
    found = what_next(row(result="parked", action="RETRY"), [HANDLER])
    assert found.text == "attempt 3 by the rule that matches then"
    assert found.due is not None
    assert (found.due - NOON).total_seconds() == 30
    assert not found.rule_line

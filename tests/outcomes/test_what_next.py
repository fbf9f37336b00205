"""What is said to come next after an outcome, without a broker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from tests.configurations import write_settings
from tests.engine.samples import handler_of
from tests.outcomes.samples import row_with

from redrive.engine.rules_decider import RulesDecider
from redrive.outcomes.history import next_put, next_steps, what_next
from redrive.outcomes.inventory import Inventory
from redrive.outcomes.rows import Row
from redrive.rules import parse
from redrive.rules.backoff import jitter_of
from redrive.settings import read_settings
from redrive.topology.layout import QueueTopic, Resting, TopicRole

RULES = "DIALECT(KAFKA) RETRYINT(30)\nKEY(bad) ACTION(QUARANTINE)\nACTION(RETRY) RETRY(5)\n"


def deciders(rules: str = RULES) -> dict[str, RulesDecider]:
    return {"dlq": handler_of(rules)}


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def row(**columns: Any) -> Row:
    known = {
        "handler": "dlq", "message": "dlq:0:7", "origin": "dlq:0:7", "time": NOON, "attempt": 2,
        "table_hash": parse(RULES).required().hash[:16], "rule_line": 3, "form": "headers",
        "hop": 0, "reason": 2053,
    }  # fmt: skip
    return row_with(**{**known, **columns})


@pytest.mark.parametrize("table", ["0123456789abcdef", None])
def test_what_is_quarantined_stays_with_any_table(table: str | None) -> None:
    hashed = {"table_hash": table} if table else {}
    outcome = row(result="remains", action="QUARANTINE", **hashed)
    assert "quarantine" in what_next([outcome], deciders()).text


def test_the_next_attempt_under_a_dialect_has_a_time_but_no_rule() -> None:
    next_step = what_next([row(result="parked", action="RETRY")], deciders())
    assert (
        next_step.text
        == "attempt 3 by the rule that matches then: rules ask for KEY, which outcomes do not have"
    )
    assert next_step.due is not None
    assert (next_step.due - NOON).total_seconds() == 30
    assert not next_step.rule_line


def test_who_is_held_is_tried_once_the_key_is_free() -> None:
    next_step = what_next([row(result="parked", action="", attempt=0)], deciders())
    assert next_step.text == "the next attempt, once no earlier message of its key is waiting"
    assert next_step.due is None


def test_the_next_attempt_by_a_backoff_is_due_to_the_millisecond() -> None:
    rules = "DIALECT(KAFKA)\nACTION(RETRY) RETRY(9) BACKOFF(30s,2,1h)\n"
    table = parse(rules).required()
    columns = {"result": "parked", "action": "RETRY", "rule_line": 2, "table_hash": table.hash[:16]}
    rows = [row(**columns, attempt=number) for number in (1, 2, 3)]
    next_step = what_next(rows, deciders(rules))
    partitions = table.backoff_partitions
    waits_on = partitions.partition(0, 240, jitter_of("dlq:0:7", 3))
    assert next_step.due == NOON + timedelta(seconds=partitions.seconds(waits_on))


def test_rounds_are_counted_over_the_dead_letters_of_a_message() -> None:
    rules = "DIALECT(KAFKA)\nACTION(RETRY) RETRY(3) BACKOFF(30s,2,1h)\nACTION(QUARANTINE)\n"
    columns = {"action": "RETRY", "rule_line": 2, "table_hash": parse(rules).required().hash[:16]}
    rows = []
    for number in (1, 2):
        here = {**columns, "origin": f"dlq:0:{number}", "attempt": number, "reason": 0}
        rows += [row(**here, result="parked"), row(**here, result="retried")]
    waits = row(**columns, result="parked", origin="dlq:0:3", attempt=3, reason=0)
    assert what_next([*rows, waits], deciders(rules)).text.startswith(
        "attempt 3 by the rule at line 2: RETRY"
    )
    failed = row(**columns, result="parked", origin="dlq:0:3", attempt=3)
    assert what_next([*rows, waits, failed], deciders(rules)).text.startswith(
        "attempt 4 by the rule at line 3: QUARANTINE"
    )


@pytest.mark.parametrize("result", ["skipped", "cancelled"])
def test_what_a_person_left_alone_is_due_as_before(result: str) -> None:
    parked = row(result="parked", action="RETRY")
    passed = row(result=result, action="", attempt=0, time=NOON + timedelta(seconds=9))
    assert what_next([parked, passed], deciders()) == what_next([parked], deciders())


def transmission(*, is_running: bool = True, resting: Resting | None = None) -> QueueTopic:
    """The transmission queue QM2 of QM1, whose channel is TO.B."""
    return QueueTopic(
        topic="QM1--QM2", role=TopicRole.TRANSMISSION, queue="QM2", queue_manager="QM1", to="QM2",
        channel=("QM1", "TO.B"), is_running=is_running, resting=resting,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("onward", "text"),
    [
        (transmission(), "channel TO.B of QM1 moves it on from QM2@QM1, if it runs"),
        (transmission(is_running=False), "it waits on QM2@QM1: channel TO.B of QM1 does not run"),
        (
            transmission(resting=Resting("inactive", "no channel")),
            "it waits on QM2@QM1: no channel",
        ),
        (None, "nothing: it was routed"),
    ],
)
def test_a_put_on_a_transmission_queue_names_what_moves_or_holds_it(
    onward: QueueTopic | None, text: str
) -> None:
    intake = QueueTopic(topic="QM1--redrive-put", role=TopicRole.PUTS, queue_manager="QM1")
    assert next_put(row(result="routed"), intake, onward).text.startswith(text)


@pytest.mark.parametrize(("get", "is_held"), [("ENABLED", False), ("DISABLED", True)])
def test_a_dead_letter_on_a_queue_with_get_disabled_names_it(
    get: str, *, is_held: bool, tmp_path: Path
) -> None:
    path = write_settings(tmp_path, "DLQ", more='[topology]\nfiles = ["QM1.mqsc"]\n')
    (tmp_path / "QM1.mqsc").write_text(f"DEF QL(DLQ) GET({get})\nALTER QMGR DEADQ(DLQ)\n")
    job = read_settings(path).job
    letter = row(result="parked", action="RETRY", handler="DLQ", rule_line=1)

    class OneLetter:
        """Has the outcomes of one dead letter."""

        def stories(self, _: object) -> dict[str, list[Any]]:
            """The outcomes by message."""
            return {letter.message: [letter]}

    (step,) = next_steps(job, cast("Inventory", OneLetter()), [letter]).values()
    assert ("not while DLQ@QM1 has GET(DISABLED)" in step.text) is is_held

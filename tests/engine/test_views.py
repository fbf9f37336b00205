"""What views say of a message is what the job then does: they ask the same engine."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.engine.samples import handler_of
from tests.what_if.test_equal_messages import NOW, done, letters, records_of, resolve, tables

from redrive.engine.context import SliceContext
from redrive.engine.decision import Decision, Discard, Keep, Park, Put
from redrive.engine.facts import Facts
from redrive.engine.message import NO_ATTEMPTS
from redrive.engine.outcome import Result
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.sources import SourceKind
from redrive.messages import decode_dead_letter
from redrive.outcomes.history import what_next
from redrive.outcomes.row_messages import message_of, missing_fields
from redrive.outcomes.rows import Row, row_of
from redrive.rules import explain
from redrive.topology.put import Refusal

some_letters = st.lists(letters().filter(lambda one: one[1] is not None), min_size=1, max_size=8)
some_tables = st.sampled_from(["", "DIALECT(KAFKA)"]).flatmap(tables)


def rows_of(outcomes: list[dict[str, Any]]) -> list[Row]:
    """Outcomes as the ledger tells them."""
    return [row_of(json.dumps(one).encode(), NOW, 0, number) for number, one in enumerate(outcomes)]


@given(data=st.data())
def test_history_says_which_rule_the_next_attempt_is_by(data: st.DataObject) -> None:
    """Of each parked message, unless outcomes do not have what the rules ask for."""
    decider = handler_of(data.draw(some_tables), resolve)
    kept = done(decider, SourceKind.DEAD_LETTERS, records_of(data.draw(some_letters)))
    parked = [row for row in rows_of(kept["OUT"]) if row["result"] == Result.PARKED]
    if not parked:
        return
    later = rows_of(done(decider, SourceKind.RETRIES, records_of(kept["RETRY"]))["OUT"])
    assert len(later) == len(parked)
    for before, after in zip(parked, later, strict=True):
        said = what_next([before], {"dlq": decider})
        assert said.due is not None
        if not missing_fields(decider.table):
            assert (said.rule_line or 0) == after["rule_line"]


@given(data=st.data())
def test_what_an_outcome_keeps_is_decided_as_the_message(data: st.DataObject) -> None:
    """A plan that sends remaining messages through another table names its rules and targets."""
    first, second = (handler_of(data.draw(some_tables), resolve) for _ in range(2))
    kept = done(first, SourceKind.DEAD_LETTERS, records_of(data.draw(some_letters)))
    remaining = [row for row in rows_of(kept["OUT"]) if row["result"] == Result.REMAINS]
    if first.table.hash == second.table.hash or not remaining or missing_fields(second.table):
        return
    copies = records_of(kept["REMAINING"])
    decided = rows_of(done(second, SourceKind.REMAINING, copies)["OUT"])
    facts = SliceContext(Facts(lambda: 0.0), "", NOW)
    for before, after in zip(remaining, decided, strict=True):
        if before["action"] == "QUARANTINE":
            continue  # a plan through the rules sets it free, a changed table does not
        decision = second.decide(message_of(before), NO_ATTEMPTS, facts).decision
        assert (decision.rule.line if decision.rule else 0) == after["rule_line"]
        assert decision.target.queue == after["target_queue"]


@given(data=st.data())
def test_an_explanation_tells_the_attempts_that_the_job_makes(data: st.DataObject) -> None:
    """Rule by rule, with as many attempts each, if every attempt that can fail does."""
    decider = handler_of(data.draw(some_tables), resolve)
    key, value, headers, _ = data.draw(letters())
    profile = decode_dead_letter(value, headers, key=key)
    if not profile.is_dead_letter or missing_fields(decider.table):
        return
    profile = decider.profiles.shared(profile)
    turns = explain(decider.table, profile.fields).turns
    said = [one.rule for one in turns for _ in range(max(1, one.attempts)) if one.rule is not None]
    numbers = {id(rule): number for number, rule in enumerate(decider.table.rules)}
    assert said == [numbers[id(rule)] for rule in rules_of(decider, profile)]


def rules_of(decider: RulesDecider, profile: Any) -> list[Any]:
    """The rules that are applied, one for each attempt, if each that can fail does."""
    decision: Decision = decider.decide_profile(profile, NO_ATTEMPTS, hops=0)
    found = []
    while decision.rule is not None:
        found.append(decision.rule)
        if isinstance(decision, Put):
            decision = decider.on_refusal(decision, Refusal(2053, "it is full"))
        if not isinstance(decision, Park):
            assert isinstance(decision, Keep | Discard)
            return found
        decision = decider.decide_profile(profile, decision.attempts, hops=0)
    return found

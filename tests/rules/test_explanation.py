"""Explaining a message clause by clause."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rules import reference
from tests.rules.tables import messages, plain_rules, table_of

from redrive.rules import Matcher, explain, parse, turns, write_action, write_clause


@settings(deadline=None)
@given(rules=st.lists(plain_rules(), min_size=1, max_size=5), message=messages(), data=st.data())
def test_explanation_agrees_with_matcher_and_time_line(
    rules: list[reference.PlainRule], message: dict[str, str | int], data: st.DataObject
) -> None:
    """What is explained is what the job does."""
    table = table_of(rules, data)
    explanation = explain(table, message)
    candidates = Matcher(table).candidates_of(message)
    assert [it.matches for it in explanation.verdicts] == [
        bool(candidates >> index & 1) for index in range(len(rules))
    ]
    assert explanation.turns == tuple(turns(table, candidates))


def test_each_clause_has_its_own_verdict() -> None:
    """Which patterns match and which do not, with what they were compared."""
    table = parse("FORMAT(MQSTR) REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(2)\n").required()
    (verdict,) = explain(table, {"REASON": 2053}).verdicts
    assert not verdict.matches
    assert [
        (write_clause(it.keyword, it.pattern), it.value, it.matches) for it in verdict.clauses
    ] == [("FORMAT(MQSTR)", "", False), ("REASON(MQRC_Q_FULL)", 2053, True)]
    assert write_action(verdict.rule) == "ACTION(RETRY) RETRY(2)"

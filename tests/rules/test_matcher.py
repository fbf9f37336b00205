"""The bitset index against the naive reading of the specification."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rules import reference
from tests.rules.findings import assert_matched
from tests.rules.reference import LENGTHS
from tests.rules.tables import messages, plain_rules, table_of, text_patterns, text_values

from redrive.rules import Matcher, explain, parse, write_action, write_clause
from redrive.rules import selection as selection_module
from redrive.rules.patterns import StringPattern

tables = st.lists(plain_rules(), min_size=1, max_size=8)


@given(
    rules=tables,
    rows=st.lists(messages(), max_size=8),
    first_rules=st.integers(1, 8),
    data=st.data(),
)
def test_matcher_agrees_with_the_specification(
    rules: list[reference.PlainRule],
    rows: list[dict[str, str | int]],
    first_rules: int,
    data: st.DataObject,
) -> None:
    expected = [(row, reference.candidates(rules, row)) for row in rows]
    assert_matched(table_of(rules, data), first_rules, expected)


@pytest.mark.parametrize("keyword", list(LENGTHS))
def test_text_patterns_agree_with_the_specification(keyword: str) -> None:
    @given(text_patterns(keyword), text_values(keyword))
    def agrees(pattern: str, value: str) -> None:
        length = LENGTHS[keyword]
        expected = reference.text_matches(pattern, value, length)
        assert StringPattern(pattern, length).matches(value) is expected

    agrees()


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values without end are matched right and forgotten again."""
    monkeypatch.setattr(selection_module, "MEMO_LIMIT", 10)
    matcher = Matcher(parse("APPLIDAT(A*1) ACTION(RETRY)\nACTION(IGNORE)\n").required())
    for number in range(200):
        value = f"A{number}"
        expected = 0b11 if value.endswith("1") else 0b10
        assert matcher.candidates_of({"APPLIDAT": value}) == expected
    assert len(matcher._all.fields[0][1]) <= 10


def test_many_asterisks_cost_no_time_without_end() -> None:
    pattern = StringPattern("*A" * 40 + "*B", 48)
    assert not pattern.matches("A" * 20_000)
    assert pattern.matches("A" * 20_000 + "B")


def test_a_nul_in_a_pattern_matches_nothing() -> None:
    """No value holds a NUL, because the first one ends it."""
    assert not StringPattern("A\0*", 8).matches("A")
    assert not StringPattern("A\0", 8).matches("A")


def test_each_clause_has_its_own_verdict() -> None:
    table = parse("FORMAT(MQSTR) REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(2)\n").required()
    (verdict,) = explain(table, {"REASON": 2053}).verdicts
    assert not verdict.matches
    assert [
        (write_clause(clause.keyword, clause.pattern), clause.value, clause.matches)
        for clause in verdict.clauses
    ] == [("FORMAT(MQSTR)", "", False), ("REASON(MQRC_Q_FULL)", 2053, True)]
    assert write_action(verdict.rule) == "ACTION(RETRY) RETRY(2)"

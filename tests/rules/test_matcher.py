"""The bitset index against the naive reading of the specification."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rules import reference
from tests.rules.reference import LENGTHS
from tests.rules.tables import (
    messages,
    plain_rules,
    table_texts,
    text_patterns,
    text_values,
)

from redrive.rules import Matcher, NumberPattern, RulesTable, StringPattern, parse
from redrive.rules import matcher as matcher_module

tables = st.lists(plain_rules(), min_size=1, max_size=8)


def table_of(rules: list[reference.PlainRule], data: st.DataObject) -> RulesTable:
    """The table that some text for these rules is read as."""
    return parse(data.draw(table_texts(rules))).required()


@settings(deadline=None)
@given(rules=tables, rows=st.lists(messages(), max_size=8), data=st.data())
def test_matcher_agrees_with_the_specification(
    rules: list[reference.PlainRule], rows: list[dict[str, str | int]], data: st.DataObject
) -> None:
    """The rules that match a message are those of the naive reading."""
    matcher = Matcher(table_of(rules, data))
    expected = [reference.candidates(rules, row) for row in rows]
    assert [matcher.candidates_of(row) for row in rows] == expected


@pytest.mark.parametrize("keyword", list(LENGTHS))
def test_text_patterns_agree_with_the_specification(keyword: str) -> None:
    """A single text pattern and value, up to and beyond the length of the field."""

    @settings(deadline=None)
    @given(text_patterns(keyword), text_values(keyword))
    def agrees(pattern: str, value: str) -> None:
        length = LENGTHS[keyword]
        expected = reference.text_matches(pattern, value, length)
        assert StringPattern(pattern, length).matches(value) is expected

    agrees()


@settings(deadline=None)
@given(text_patterns("FORMAT"), text_patterns("FORMAT"), text_values("FORMAT"))
def test_a_pattern_that_accepts_all_of_another_never_misses(
    wide: str, narrow: str, value: str
) -> None:
    """What is proved about two patterns holds for every value."""
    broad, other = StringPattern(wide, 8), StringPattern(narrow, 8)
    if broad.accepts_all_of(other) and other.matches(value):
        assert broad.matches(value)


@pytest.mark.parametrize(
    ("wide", "narrow", "accepts"),
    [
        ("*", "ABC", True),
        ("A*", "ABC", True),
        ("A*", "AB*", True),
        ("A?C", "ABC", True),
        ("A*C", "A?B*C", True),
        ("?*", "A*", True),
        ("ABC", "A*", False),
        ("AB*", "A*", False),
        ("?*", "*", False),
        ("A*", " A*", False),
        ("A?", "A ", False),
        ("A", "A ", True),
    ],
)
def test_which_patterns_accept_all_of_another(wide: str, narrow: str, *, accepts: bool) -> None:
    """The cases that warnings about unreachable rules rest on."""
    assert StringPattern(wide, 8).accepts_all_of(StringPattern(narrow, 8)) is accepts


def test_patterns_for_different_kinds_of_fields_accept_nothing_of_each_other() -> None:
    """Unless they accept anything."""
    assert StringPattern("*", 8).accepts_all_of(NumberPattern(1))
    assert not StringPattern("1", 8).accepts_all_of(NumberPattern(1))
    assert not NumberPattern(1).accepts_all_of(StringPattern("1", 8))


def test_a_table_without_patterns_matches_everything() -> None:
    """Rules for any message need no field at all."""
    matcher = Matcher(parse("ACTION(RETRY)\nDESTQ(*) ACTION(IGNORE)\n").required())
    assert matcher.candidates_of({}) == 0b11


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values without end are matched right and forgotten again."""
    monkeypatch.setattr(matcher_module, "MEMO_LIMIT", 10)
    matcher = Matcher(parse("APPLIDAT(A*1) ACTION(RETRY)\nACTION(IGNORE)\n").required())
    for number in range(200):
        value = f"A{number}"
        expected = 0b11 if value.endswith("1") else 0b10
        assert matcher.candidates_of({"APPLIDAT": value}) == expected
    assert len(matcher._fields[0]._known) <= 10


def test_many_asterisks_cost_no_time_without_end() -> None:
    """A pattern of asterisks against a long value that almost matches is decided at once."""
    pattern = StringPattern("*A" * 40 + "*B", 48)
    assert not pattern.matches("A" * 20_000)
    assert pattern.matches("A" * 20_000 + "B")


def test_a_nul_in_a_pattern_matches_nothing() -> None:
    """No value holds a NUL, because the first one ends it."""
    assert not StringPattern("A\0*", 8).matches("A")
    assert not StringPattern("A\0", 8).matches("A")

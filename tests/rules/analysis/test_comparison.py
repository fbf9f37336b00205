"""Two tables are called equal exactly if they treat every message alike."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases_beside
from tests.rules.analysis.small_world import (
    EDITS,
    MESSAGES,
    edited,
    first_rules,
    rules_lists,
    table_of,
)
from tests.rules.reference import PlainRule

from redrive.rules import parse
from redrive.rules.analysis import comparison as comparison_module
from redrive.rules.analysis.comparison import Comparison, compare
from redrive.rules.analysis.search import Effort

HEADS = {"IBM": "", "KAFKA": "DIALECT(KAFKA)\n"}
in_table = cases_beside(__file__)


def fate(rules: Sequence[PlainRule], message: dict[str, str | int]) -> tuple[int, bool]:
    """Attempts to put it to its original destination, and whether it is deleted in the end."""
    turns = [rules[index] for index in first_rules(rules, message)]
    tries = sum(rule.retry for rule in turns if rule.action == "RETRY")
    return tries, bool(turns) and turns[-1].action == "DISCARD"


@given(rules=rules_lists(), other=rules_lists(), edit=EDITS, data=st.data())
def test_tables_are_equal_exactly_if_every_message_is_treated_alike(
    rules: list[PlainRule], other: list[PlainRule], edit: str, data: st.DataObject
) -> None:
    new = edited(rules, edit, data.draw(st.integers(0, len(rules) - 1)), other)
    comparison = compare(table_of(rules), table_of(new))
    assert comparison.is_complete
    if comparison.is_equal:
        assert all(fate(rules, message) == fate(new, message) for message in MESSAGES)
    for difference in comparison.differences:
        message = dict(difference.witness)
        assert fate(rules, message) != fate(new, message)
        assert difference.old_rules == tuple(first_rules(rules, message))
        assert difference.new_rules == tuple(first_rules(new, message))


def between(old: str, new: str) -> Comparison:
    return compare(*(parse(text).required() for text in (old, new)))


@in_table
def test_tables_that_say_the_same_in_other_words_are_equal(
    dialect: str, old: str, new: str
) -> None:
    old, new = HEADS[dialect] + old, HEADS[dialect] + new
    assert between(old, new).is_equal
    assert between(new, old).is_equal


@in_table
def test_tables_that_nearly_say_the_same_are_not_equal(dialect: str, old: str, new: str) -> None:
    comparison = between(HEADS[dialect] + old, HEADS[dialect] + new)
    assert comparison.differences
    assert dialect == "KAFKA" or len(comparison.differences) == 1
    assert all(difference.old != difference.new for difference in comparison.differences)


def test_new_discards_come_first() -> None:
    old = "ACTION(FWD) FWDQ(REST)"
    new = "REASON(1) ACTION(FWD) FWDQ(A)\nREASON(2) ACTION(DISCARD)\n" + old
    first, second = between(old, new).differences
    assert first.new.discarded
    assert first.witness["REASON"] == 2
    assert second.witness["REASON"] == 1


@pytest.mark.parametrize(
    ("control", "changed"),
    [
        ("RETRYINT(30)", ["RETRYINT"]),
        ("RETRYINT(60) WAIT(YES)", []),
        ("INPUTQ(A) INPUTQM(B) WAIT(NO)", ["INPUTQ", "INPUTQM", "WAIT"]),
    ],
)
def test_control_data_are_compared(control: str, changed: list[str]) -> None:
    comparison = between("ACTION(RETRY)", f"{control}\nACTION(RETRY)")
    assert [change.keyword for change in comparison.control] == changed
    assert comparison.is_equal is (not changed)


def test_a_comparison_that_was_given_up_never_says_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = "ACTION(RETRY) RETRY(5)", "ACTION(RETRY) RETRY(2)\nACTION(RETRY) RETRY(3)"
    monkeypatch.setattr(comparison_module, "Effort", lambda: Effort(left=10))
    comparison = between(old, new)
    assert not comparison.differences
    assert not comparison.is_complete
    assert not comparison.is_equal


def test_a_large_table_is_compared_with_itself_after_an_edit() -> None:
    lines = [
        f"REASON({2000 + number % 90}) DESTQ('app{number}.*') ACTION(RETRY)"
        for number in range(600)
    ]
    old = "\n".join([*lines, "ACTION(FWD) FWDQ(REST)"])
    new = old.replace("app300.*') ACTION(RETRY)", "app300.*') ACTION(DISCARD)")
    (difference,) = between(old, new).differences
    assert difference.old_rules == (300, 600)
    assert difference.new_rules == (300,)


def test_entangled_tables_are_compared_without_trying_every_combination() -> None:
    wild = [f"DESTQ('*{chr(65 + number % 26)}*{number}*') ACTION(RETRY)" for number in range(200)]
    end = "ACTION(FWD) FWDQ(REST)"
    old = "\n".join([*wild, "APPLNAME('A*') ACTION(RETRY)", *wild[::-1], end])
    new = old.replace("APPLNAME('A*') ACTION(RETRY)", "APPLNAME('A*') ACTION(DISCARD)")
    comparison = between(old, new)
    assert comparison.is_complete
    assert len(comparison.differences) == 1
    assert comparison.differences[0].new.discarded


def test_a_new_discard_is_shown_though_the_tables_part_before_it() -> None:
    old = "APPLNAME('A*') ACTION(FWD) FWDQ(X)\nACTION(FWD) FWDQ(REST)"
    new = (
        "APPLNAME('A*') ACTION(FWD) FWDQ(Y)\nAPPLNAME('AB*') ACTION(DISCARD)\n"
        "ACTION(FWD) FWDQ(REST)"
    )
    first, second = between(old, new).differences
    assert first.new.discarded
    assert str(first.witness["APPLNAME"]).startswith("AB")
    assert not second.new.discarded

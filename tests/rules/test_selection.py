"""Which rule applies after n failures, and when attempts happen."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.rules import reference
from tests.rules.tables import messages, plain_rules, table_of

from redrive.rules import Action, Matcher, Turn, parse, rules_of, select_rule
from redrive.rules.selection import turns

ANY = {"REASON": 2053}


@given(rules=st.lists(plain_rules(), min_size=1, max_size=6), message=messages(), data=st.data())
def test_selection_agrees_with_the_specification(
    rules: list[reference.PlainRule], message: dict[str, str | int], data: st.DataObject
) -> None:
    table = table_of(rules, data)
    candidates = Matcher(table).candidates_of(message)
    expected = reference.attempts(rules, message, 30)
    assert [select_rule(table, candidates, failures) for failures in range(30)] == expected
    failed: Counter[int] = Counter()
    for index in expected:
        assert select_rule(table, candidates, failed) == index
        if index is None or not table.rules[index].action.can_fail:
            break
        failed[index] += 1
    failures = 0
    *taken, last = turns(table, candidates)
    for turn in taken:
        assert turn.seconds == 60 * failures
        assert expected[failures : failures + turn.attempts] == [turn.rule] * turn.attempts
        failures += turn.attempts
    assert expected[failures] == last.rule
    assert last.rule is None or not table.rules[last.rule].action.can_fail


@given(st.sets(st.integers(0, 200)))
def test_rules_of_gives_the_bits_in_order(indexes: set[int]) -> None:
    assert list(rules_of(sum(1 << index for index in indexes))) == sorted(indexes)


def test_the_next_matching_rule_waits_for_the_interval() -> None:
    """Five tries a minute apart, and the catch-all at 300 seconds (specification 6.2)."""
    table = parse("REASON(2053) ACTION(RETRY) RETRY(5)\nACTION(FWD) FWDQ(X)\n").required()
    assert list(turns(table, Matcher(table).candidates_of(ANY))) == [
        Turn(0, 0, 5),
        Turn(300, 1, 1),
        Turn(300, None, 0),
    ]


def test_ignore_and_discard_end_the_time_line() -> None:
    for action in (Action.IGNORE, Action.DISCARD):
        text = f"RETRYINT(7)\nACTION(RETRY) RETRY(2)\nACTION({action}) RETRY(9)\nACTION(RETRY)\n"
        table = parse(text).required()
        assert list(turns(table, 0b111)) == [Turn(0, 0, 2), Turn(14, 1, 1)]


def test_a_message_that_no_rule_matches_remains_at_once() -> None:
    """IGNORE is assumed (specification 6.1)."""
    table = parse("REASON(1) ACTION(RETRY)\n").required()
    assert list(turns(table, 0)) == [Turn(0, None, 0)]
    assert select_rule(table, 0, 0) is None


def test_a_huge_number_of_tries_costs_nothing() -> None:
    table = parse("ACTION(RETRY) RETRY(999999999)\nACTION(DISCARD)\n").required()
    assert list(turns(table, 0b11))[1] == Turn(60 * 999_999_999, 1, 1)
    assert select_rule(table, 0b11, 999_999_998) == 0
    assert select_rule(table, 0b11, 999_999_999) == 1

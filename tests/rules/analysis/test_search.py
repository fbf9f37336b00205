"""Messages that rules match or not: found if there are any, and never a wrong one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.rules.analysis.small_world import MESSAGES, TEXTS, rules_lists, table_of, text_patterns
from tests.rules.reference import PlainRule, candidates, text_matches

from redrive.rules import Rule
from redrive.rules.analysis import Search, Undecided
from redrive.rules.analysis import search as search_module
from redrive.rules.analysis.search import Effort, shortest_text, value_of
from redrive.rules.patterns import NumberPattern, StringPattern
from redrive.rules.rule import Action

LENGTH = 3
"""A field that short values fill."""

short_patterns = st.lists(
    text_patterns().filter(lambda text: len(text.replace("*", "")) <= LENGTH), max_size=3
)


@given(matching=short_patterns, avoiding=short_patterns)
def test_a_value_is_found_if_there_is_one(matching: list[str], avoiding: list[str]) -> None:
    def will_do(value: str) -> bool:
        return all(text_matches(text, value, LENGTH) for text in matching) and not any(
            text_matches(text, value, LENGTH) for text in avoiding
        )

    value = value_of(
        "FORMAT",
        [StringPattern(text, LENGTH) for text in matching],
        [StringPattern(text, LENGTH) for text in avoiding],
        Effort(),
    )
    if value is None:
        assert not any(map(will_do, TEXTS))
    else:
        assert will_do(str(value))


@given(
    groups=st.lists(short_patterns.filter(bool), max_size=2), avoiding=short_patterns.filter(bool)
)
@example(groups=[["A *"]], avoiding=["A"])
@example(groups=[["A?", "B?"], ["*X", "* A"]], avoiding=["A*"])
def test_the_walk_finds_a_value_if_there_is_one(
    groups: list[list[str]], avoiding: list[str]
) -> None:
    def will_do(value: str) -> bool:
        return all(
            any(text_matches(text, value, LENGTH) for text in group) for group in groups
        ) and not any(text_matches(text, value, LENGTH) for text in avoiding)

    wanted = [[StringPattern(text, LENGTH) for text in group] for group in groups]
    value = shortest_text(wanted, [StringPattern(text, LENGTH) for text in avoiding], Effort())
    if value is None:
        assert not any(map(will_do, TEXTS))
    else:
        assert will_do(value)
        assert value == value.rstrip(" ")


@pytest.mark.parametrize(
    ("matching", "avoiding", "value"),
    [
        (["*A"], ["* *"], "XXA"),
        (["A*"], ["A *"], "AX"),
        (["?*"], ["??*"], "X"),
        (["*"], ["?*"], ""),
        (["A?"], ["*X", "*Y"], "AZ"),
        (["A*B"], ["?*?"], None),
        (["*"], ["*"], None),
    ],
)
def test_the_shortest_text(matching: list[str], avoiding: list[str], value: str | None) -> None:
    """A value that fills its field has no padding for a blank to match."""
    wanted, refused = (
        [StringPattern(text, LENGTH) for text in side] for side in (matching, avoiding)
    )
    shortest = shortest_text([[pattern] for pattern in wanted], refused, Effort())
    assert (
        shortest is value if value is None else shortest is not None and len(shortest) == len(value)
    )


@pytest.mark.parametrize(
    ("wide", "narrow", "covers"),
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
def test_a_pattern_that_covers_another_leaves_it_no_value(
    wide: str, narrow: str, *, covers: bool
) -> None:
    value = value_of("FORMAT", [StringPattern(narrow, 8)], [StringPattern(wide, 8)], Effort())
    assert (value is None) is covers


@given(
    matching=st.lists(st.sampled_from([0, 1, None])),
    avoiding=st.lists(st.sampled_from([0, 1, 2085, None])),
)
def test_a_number_is_found_if_there_is_one(
    matching: list[int | None], avoiding: list[int | None]
) -> None:
    value = value_of(
        "REASON", list(map(NumberPattern, matching)), list(map(NumberPattern, avoiding)), Effort()
    )
    fitting = [
        number
        for number in (0, 1, 2, 2085)
        if all(wanted in {None, number} for wanted in matching)
        and not any(refused in {None, number} for refused in avoiding)
    ]
    assert (value is None) is (not fitting)
    assert value is None or all(wanted in {None, value} for wanted in matching)
    assert value not in set(avoiding) - {None}


@given(rules=rules_lists(), data=st.data())
def test_a_message_is_found_if_there_is_one(rules: list[PlainRule], data: st.DataObject) -> None:
    sides = data.draw(st.lists(st.sampled_from("+- "), min_size=len(rules), max_size=len(rules)))
    matching = sum(1 << index for index, side in enumerate(sides) if side == "+")
    avoiding = sum(1 << index for index, side in enumerate(sides) if side == "-")

    def will_do(matched: int) -> bool:
        return matched & matching == matching and not matched & avoiding

    message = Search(table_of(rules).rules).find(matching, avoiding)
    if message is None:
        assert not any(will_do(candidates(rules, message)) for message in MESSAGES)
    else:
        assert will_do(candidates(rules, message))


@given(rules=rules_lists())
def test_no_overlap_is_left_out_by_the_quick_look(rules: list[PlainRule]) -> None:
    search = Search(table_of(rules).rules)
    possible = [search.possible_overlaps(index) for index in range(len(rules))]
    for message in MESSAGES[::7]:
        matched = candidates(rules, message)
        for index in range(len(rules)):
            if matched >> index & 1:
                assert matched & ~possible[index] == 0


def test_a_search_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "STEP_LIMIT", 1)
    rules = [
        Rule(action=Action.DISCARD, patterns={"DESTQ": StringPattern(text, 48)})
        for text in ("OTHER", "ANOTHER")
    ]
    with pytest.raises(Undecided):
        Search(rules).find(avoiding=0b11)

"""DIALECT(KAFKA): tables that are read, matched and written again, against a naive reading."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases_beside
from tests.rules.dialect import reference
from tests.rules.dialect.tables import messages, numbers, rules, table_texts
from tests.rules.findings import assert_matched, assert_reads_back

from redrive.rules import RulesTable, parse
from redrive.rules.patterns import ABSENT, Interval, RangePattern, RegexPattern

in_table = cases_beside(__file__)
tables = st.lists(rules(), min_size=1, max_size=6)


def table_of(plain: list[reference.PlainRule], data: st.DataObject) -> RulesTable:
    """The table that some text for these rules is read as."""
    return parse(data.draw(table_texts(plain))).required()


@given(
    plain=tables,
    rows=st.lists(messages(), max_size=6),
    first_rules=st.integers(1, 6),
    data=st.data(),
)
def test_the_index_agrees_with_rules_that_are_asked_one_by_one(
    plain: list[reference.PlainRule],
    rows: list[dict[str, str | int]],
    first_rules: int,
    data: st.DataObject,
) -> None:
    expected = [(row, reference.candidates(plain, row)) for row in rows]
    assert_matched(table_of(plain, data), first_rules, expected)


@given(plain=tables, data=st.data())
def test_the_canonical_text_reads_back_as_an_equal_table(
    plain: list[reference.PlainRule], data: st.DataObject
) -> None:
    assert_reads_back(table_of(plain, data))


@given(plain=tables, data=st.data())
def test_two_ways_to_write_the_same_have_one_hash(
    plain: list[reference.PlainRule], data: st.DataObject
) -> None:
    assert table_of(plain, data).hash == table_of(plain, data).hash


_intervals = st.lists(st.builds(Interval, numbers(), st.none() | numbers()), min_size=1, max_size=4)


@given(_intervals, numbers())
def test_joined_intervals_have_the_same_numbers(intervals: list[Interval], value: int) -> None:
    pattern = RangePattern.of(intervals)
    assert pattern.matches(value) is any(value in interval for interval in intervals)
    assert not pattern.matches(ABSENT)
    for number in (value, ABSENT):
        assert pattern.complement().matches(number) is not pattern.matches(number)
    assert pattern.complement().complement() == pattern


@in_table
def test_a_clause_matches_what_it_says(
    clause: str, matching: list[str | int | None], others: list[str | int | None]
) -> None:
    """Expressions are found anywhere, nothing is folded, bounds are exact; NOT is all the rest."""
    (rule,) = parse(f"DIALECT(KAFKA)\n{clause} ACTION(IGNORE)\n").required().rules
    (pattern,) = rule.patterns.values()
    for values, matches in ((matching, True), (others, False)):
        for value in values:
            assert pattern.matches(ABSENT if value is None else value) is matches, value


def test_an_expression_costs_time_linear_in_the_text() -> None:
    pattern = RegexPattern("(a+)+$|(a|aa)*b|(.*)*x")
    began = time.process_time()
    assert not pattern.matches("a" * 200_000 + "c")
    assert time.process_time() - began < 2


def test_a_name_has_up_to_249_characters() -> None:
    """Names of topics, in control data, patterns and actions of IBM too."""
    name = "t" * 249
    table = parse(
        f"DIALECT(KAFKA) INPUTQ('{name}')\nDESTQ('{name}') TOPIC({name}) GROUP({name})"
        f" ACTION(FWD) FWDQ('{name}')\nCONNECTOR({name}) ACTION(FWD) FWDT('{name}')\n"
    ).required()
    assert table.control.input_queue == name
    assert [rule.forward_queue or rule.forward_topic for rule in table.rules] == [name, name]


def test_the_dialect_is_part_of_what_a_table_means() -> None:
    rules_alike = "ACTION(RETRY)\n"
    assert parse(rules_alike).required().hash != (
        parse(f"DIALECT(KAFKA)\n{rules_alike}").required().hash
    )


@pytest.mark.parametrize(
    "rule",
    [
        "TOPIC(/a/) ACTION(RETRY)",
        "TOPIC(a|b) ACTION(RETRY)",
        "AGE(>1h) ACTION(RETRY)",
        "AGE(>=1h) ACTION(RETRY)",
        "HEADER('a',b) ACTION(RETRY)",
        "HEADER('b',b) ACTION(RETRY)",
        "JSON('$.a',b) ACTION(RETRY)",
        "JSON('$.a',>1) ACTION(RETRY)",
        "JSON('$.a','>1') ACTION(RETRY)",
        "JSON('$.a',>=1) ACTION(RETRY)",
        "TOPIC(NOT a) ACTION(RETRY)",
        "AGE(NOT >1h) ACTION(RETRY)",
        "ACTION(QUARANTINE)",
        "ACTION(FWD) FWDT('a')",
        "ACTION(FWD) FWDT('a.&TOPIC')",
        "ACTION(FWD) FWDT('eu:a.&TOPIC')",
        "ACTION(FWD) FWDQ('a')",
        "ACTION(FWD) FWDT('a') HEADER(NO)",
    ],
)
def test_the_hash_tells_rules_apart(rule: str) -> None:
    other = parse(f"DIALECT(KAFKA)\n{rule}\n").required()
    assert other.hash != parse("DIALECT(KAFKA)\nTOPIC(a) ACTION(RETRY)\n").required().hash
    assert parse(other.canonical()).required().hash == other.hash


_HARD = st.text("ab* '()|+-/\t", min_size=50, max_size=240).filter(lambda text: text.strip(" "))


@given(
    st.lists(_HARD, min_size=1, max_size=4),
    st.text("ab *+-'", min_size=1, max_size=40).filter(lambda text: text.strip(" ")),
)
def test_long_values_are_broken_into_lines_that_read_back(values: list[str], name: str) -> None:
    quoted = ["'{}'".format(value.replace("'", "''")) for value in values]
    expression = "/{}/".format("x" * 80 + " *'" * 30 + "y")
    argument = "'{}'".format(name.replace("'", "''"))
    text = (
        f"DIALECT(KAFKA)\nERRMSG({'|'.join(quoted)}) KEY({expression}|{quoted[0]})"
        f" HEADER({argument},{quoted[-1]}) DESTQ('*') ACTION(IGNORE)\n"
    )
    assert_reads_back(parse(text).required())


@pytest.mark.parametrize("value", ["*" * 100 + "a", f"/[{'*' * 100}]/", "a|" * 60 + "*"])
def test_a_line_is_never_broken_into_a_comment(value: str) -> None:
    table = parse(f"DIALECT(KAFKA)\nKEY({value}) ACTION(IGNORE)").required()
    assert parse(table.canonical()).required() == table


@pytest.mark.parametrize("times", [1, 100, 900])
def test_a_large_expression_matches_as_a_small_one(times: int) -> None:
    pattern = RegexPattern(f"(a|bc){{{times}}}d")
    assert pattern.matches("x" + "abc" * times + "d")
    assert not pattern.matches("x" + "abc" * times)
    assert not pattern.matches("a" * (times - 1) + "d")


@given(
    st.text(st.sampled_from("ab.*+?()[]{}|^$\\\\dwpQE1,-:<>=!'/ é\0\ud800"), max_size=12),
    st.text(max_size=20),
)
def test_any_text_is_an_expression_or_is_refused(expression: str, value: str) -> None:
    try:
        pattern = RegexPattern(expression)
    except ValueError:
        return
    assert pattern.matches(value) in {True, False}

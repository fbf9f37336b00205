"""Canonical text with its comments: the same table, the same comments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases_beside
from tests.rules.tables import rich_table_texts

from redrive.rules import parse

in_table = cases_beside(__file__)
comments = st.sampled_from(["* one", "  * two (", "*", "", "   ", "* redrive: allow LONG_LINE"])


def formatted(text: str) -> str:
    return parse(text).required().formatted(text)


def comments_of(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n") if line.lstrip(" \t").startswith("*")]


@given(text=rich_table_texts(), more=st.lists(comments, max_size=4))
def test_formatting_keeps_the_meaning_and_is_done_once(text: str, more: list[str]) -> None:
    text = "\n".join([*more, text.rstrip("\n"), *more, ""])
    table = parse(text).required()
    result = formatted(text)
    assert parse(result).required() == table
    assert formatted(result) == result
    plain = [line for line in result.split("\n") if line and not line.startswith("* ")]
    assert [line for line in plain if line != "*"] == table.canonical().split("\n")[:-1]


@given(more=st.lists(comments, max_size=6), inside=st.lists(comments, max_size=3))
def test_no_comment_is_lost_or_made(more: list[str], inside: list[str]) -> None:
    text = "\n".join(
        [*more, "REASON(1) +", *inside, "ACTION(IGNORE)", *more, "ACTION(DISCARD)", *more]
    )
    result = formatted(text)
    assert comments_of(result) == comments_of(text)
    before, after = (shown.index("ACTION(DISCARD)") for shown in (text, result))
    assert comments_of(result[:after]) == comments_of(text[:before])


@in_table
def test_what_a_formatted_table_looks_like(text: str, expected: str) -> None:
    assert formatted(text) == expected

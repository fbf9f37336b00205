"""Conditions of users: what they may contain, how fast they are checked, and what they see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import process_time

import pytest
import re2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.outcomes.samples import append, outcome, rows

from redrive.errors import RedriveError, UsageError
from redrive.masking import MASK, Mask
from redrive.outcomes.conditions import engine_condition
from redrive.outcomes.inventory import Inventory, Selection, State
from redrive.outcomes.ledger import Ledger
from redrive.outcomes.table import LedgerTable, sql_text

SECRET = "4111222233334444"  # noqa: S105 - what no answer may show
HIDDEN = Mask((r"\b\d{16}\b",), ("__connect.errors.exception.*",), ("connect",))
CLASSES = ["a.CardException", f"a.Card {SECRET} Exception", f"a.Card: {SECRET}"]


def inventory_of(folder: Path, classes: list[str], mask: Mask) -> Inventory:
    """Dead letters that remain, each with one exception class."""
    members = [
        outcome(
            number, origin=f"d:0:{number}", outcome=f"d:0:{number}", message=f"d:0:{number}",
            result="remains", action="FWD", error_class=text, key="a2V5",
            **({"form": "connect", "error_message": f"x{text}x"} if number else {}),
        )
        for number, text in enumerate(classes)
    ]  # fmt: skip
    append(folder, list(rows(members, partitions=1)))
    return Inventory(Ledger(LedgerTable.open(folder)), mask=mask)


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inventory]:
    with inventory_of(tmp_path_factory.mktemp("ledger") / "ledger", CLASSES, HIDDEN) as inventory:
        yield inventory


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inventory]:
    """The same dead letters with another number."""
    classes = [text.replace(SECRET, "9" * len(SECRET)) for text in CLASSES]
    with inventory_of(tmp_path_factory.mktemp("ledger") / "ledger", classes, HIDDEN) as inventory:
        yield inventory


_TEXTS = st.one_of(
    st.text(max_size=6),
    st.integers(0, 16).flatmap(lambda end: st.sampled_from([SECRET[:end], f"%{SECRET[:end]}%"])),
)
_COLUMNS = st.sampled_from(
    ["error_class", "error_message", "detail", "field_destq", "message_key", "reason"]
)
_VALUES = st.recursive(
    st.one_of(_COLUMNS, _TEXTS.map(sql_text), st.integers(-9, 9**16).map(str)),
    lambda inner: st.one_of(
        st.tuples(
            st.sampled_from(["lower", "trim", "reverse", "md5", "repeat", "encode", "substr"]),
            st.lists(inner, max_size=3),
        ).map(lambda call: f"{call[0]}({', '.join(call[1])})"),
        inner.map(lambda text: f"CAST({text} AS BIGINT)"),
        st.tuples(inner, st.sampled_from(["||", "+", "/"]), inner).map(" ".join),
    ),
    max_leaves=4,
)
_CONDITIONS = st.recursive(
    st.tuples(
        _VALUES, st.sampled_from(["=", "<>", "<", "LIKE", "NOT LIKE", "~", "ILIKE"]), _VALUES
    ).map(" ".join),
    lambda inner: st.tuples(inner, st.sampled_from(["AND", "OR", "OR NOT"]), inner).map(" ".join),
    max_leaves=3,
)


@settings(max_examples=40)
@given(condition=_CONDITIONS)
def test_no_condition_tells_a_masked_value(
    masked: Inventory, public: Inventory, condition: str
) -> None:
    selection = Selection(state=State.REMAINING, where=condition)
    answers = []
    for inventory in (masked, public):
        try:
            answers.append(str(inventory.count(selection)))
        except RedriveError as error:
            answers.append(f"{error.message} {error.hint}")
    assert answers[0] == answers[1]


@pytest.mark.parametrize("end", range(4, 17, 4))
def test_masked_text_is_no_oracle(masked: Inventory, end: int) -> None:
    part = SECRET[:end]
    for where in (
        f"error_class LIKE '%{part}%'",
        f"error_class ~ '{part}'",
        f"strpos(error_class, '{part}') > 0",
        f"error_class BETWEEN 'a.Card: {part}' AND 'a.Card: {part}z'",
    ):
        assert masked.count(Selection(where=where)) == 0


def test_masked_text_can_be_selected_as_it_is_shown(masked: Inventory) -> None:
    assert masked.count(Selection(where=f"error_class LIKE '%{MASK}%'")) == 2
    assert masked.count(Selection(where=f"error_class = 'a.Card: {MASK}'")) == 1
    assert masked.count(Selection(where="error_class = 'a.CardException'")) == 1


def test_message_of_a_hidden_header_is_hidden(masked: Inventory) -> None:
    assert masked.count(Selection(where=f"error_message = '{MASK}'")) == 2
    assert masked.count(Selection(where="error_message IS NULL")) == 1
    assert masked.count(Selection(where=f"error_message LIKE '%{SECRET}%'")) == 0


_SYNTAX = (
    r"\d \w \s \D \W \b . a é 1 - x+ [a-c] [\d-]"
    r" [^\w] []a] [[a] [a&&b] [\W_] \. \< \Qa.b\E (?i:A) 1{2,3}"
    r" [[:alpha:]] [^]\s] \x41 \x{e9} \pL \p{Greek} (?:ab|b) [a--b]"
)
_PIECES = st.sampled_from(_SYNTAX.split())
_WORDS = st.text(alphabet="aAbxé1٣-_.<&[] \n", max_size=8)


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pieces=st.lists(_PIECES, min_size=1, max_size=3), texts=st.lists(_WORDS, min_size=1))
def test_conditions_see_columns_as_they_are_shown(
    masked: Inventory, pieces: list[str], texts: list[str]
) -> None:
    pattern = "".join(pieces)
    if Mask.problem_with(pattern) or any(
        match[0] == "" for match in map(re2.compile(pattern).search, texts) if match
    ):
        return  # it would hide nothing between characters
    mask = Mask((pattern,))
    column = engine_condition("error_class", mask)
    values = ", ".join(f"({number}, {sql_text(text)})" for number, text in enumerate(texts))
    query = f"SELECT {column} m FROM (VALUES {values}) t(n, error_class) ORDER BY n"  # noqa: S608 - quoted
    assert [row["m"] for row in masked._engine.answer(query)] == [*map(mask.text, texts)]


def test_bytes_of_a_masked_key_are_in_no_condition(masked: Inventory) -> None:
    with pytest.raises(UsageError, match="message_key is hidden"):
        masked.count(Selection(where="message_key = X'6b6579'"))


@pytest.mark.parametrize("pattern", [r"a\B", r"\C{16}", r"(a)\1"])
def test_pattern_that_the_engine_lacks_hides_whole_columns(pattern: str) -> None:
    if Mask.problem_with(pattern):
        return
    with pytest.raises(UsageError, match="text columns are hidden"):
        engine_condition("error_class = 'x'", Mask((pattern,)))
    assert engine_condition("reason = 1", Mask((pattern,))) == "reason = 1"


@pytest.mark.parametrize(
    "condition",
    [
        "(" * 20_000 + "reason = 1" + ")" * 20_000,
        "(" * 8_000 + "1" + ")" * 8_000,
        "NOT " * 4_000 + "TRUE",
        " OR ".join(["reason = 1"] * 1_000),
        "CASE WHEN " * 1_000 + "TRUE",
        "'" + "x" * 100_000 + "' = message",
        "length(repeat(message, 100000)) > 1",
        "reason IN (SELECT reason FROM ledger)",
        "- " * 8_000 + "1",
        "reason[" * 3_000,
    ],
)
def test_conditions_that_take_long_are_refused_at_once(condition: str) -> None:
    """Before the engine gets them; 5 s of processor time are for a slow machine."""
    began = process_time()
    with pytest.raises(UsageError, match="is not a valid condition"):
        engine_condition(condition)
    assert process_time() - began < 5


def test_deepest_condition_is_answered(masked: Inventory) -> None:
    where = " OR ".join(["reason = 1"] * 97)
    assert masked.count(Selection(where=f"({where}) OR TRUE")) == len(CLASSES)

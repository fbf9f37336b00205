"""DIALECT(KAFKA): every mistake is reported, at its place, with what to do."""

from __future__ import annotations

import pytest
from tests.cases import cases_beside
from tests.rules.findings import errors, findings, warnings

from redrive.diagnostics import Severity
from redrive.rules import parse
from redrive.rules.analysis import analyse

HEAD = "DIALECT(KAFKA)\n"
in_table = cases_beside(__file__)


@in_table
def test_a_mistake_is_told_at_its_place(code: str, subject: str, marked: str, hint: str) -> None:
    (error,) = findings(HEAD + marked.replace("▸", "").replace("◂", ""), Severity.ERROR)
    assert (error.code, error.subject, error.line) == (code, subject, 2)
    assert (error.column - 1, error.column + error.length) == (marked.index("▸"), marked.index("◂"))
    assert error.expected
    assert hint in error.hint


def test_all_mistakes_are_told_at_once() -> None:
    rule = "TOPIC(/a(/|>3|ok) ATTEMPTS(x|>2) AGE(1h) ACTION(FWD) FWDT('a*')"
    assert [code for code, _, _ in errors(HEAD + rule)] == ["BAD_VALUE"] * 5


def test_a_text_may_be_as_long_as_its_field() -> None:
    """1,024 characters of an error's text, asterisks not counted; 249 of a name."""
    fits = f"ERRMSG('*{'e' * 1024}*') TOPIC({'t' * 249}) ACTION(IGNORE)\n"
    assert errors(HEAD + fits) == []
    long = f"ERRMSG('*{'e' * 1025}*') TOPIC({'t' * 250}) ACTION(IGNORE)\n"
    assert [code for code, _, _ in errors(HEAD + long)] == ["TOO_LONG", "TOO_LONG"]


def test_words_of_the_dialect_are_explained_in_a_table_of_ibm() -> None:
    """A missing first clause is reported; DIALECT anywhere else is not understood."""
    for text in ("TOPIC(a) ACTION(RETRY)\n", "WAIT(NO) DIALECT(KAFKA)\nACTION(RETRY)\n"):
        (error,) = findings(text, Severity.ERROR)
        assert error.code == "UNKNOWN_KEYWORD"
        assert "DIALECT(KAFKA)" in error.hint
        assert "first clause of the table" in error.hint or "first clause is" in error.hint


def test_order_is_for_the_dialect_and_has_one_word() -> None:
    (error,) = findings("RETRYINT(5) ORDER(KEY)\nACTION(RETRY)\n", Severity.ERROR)
    assert (error.code, error.line, error.column, error.length) == ("UNKNOWN_KEYWORD", 1, 13, 5)
    assert error.hint == "ORDER is for tables whose first clause is DIALECT(KAFKA)"
    (error,) = findings("DIALECT(KAFKA) ORDER(TOPIC)\nACTION(RETRY)\n", Severity.ERROR)
    assert (error.code, error.line, error.column) == ("BAD_VALUE", 1, 22)


def test_an_unknown_dialect_is_told() -> None:
    """There is one dialect beside IBM's language, and no name for IBM's."""
    assert errors("DIALECT(IBM)\nACTION(RETRY)\n") == [("BAD_VALUE", 1, "DIALECT")]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("ACTION(FWD) FWDT('dead.&CONNECTOR')", [("BLANK_INSERT", 2)]),
        ("CONNECTOR(?*) ACTION(FWD) FWDT('dead.&CONNECTOR')\nACTION(QUARANTINE)", []),
        ("ACTION(QUARANTINE) RETRY(2)", [("NO_EFFECT", 2)]),
        ("SCHEME(conect) ACTION(IGNORE)", [("UNKNOWN_SCHEME", 2)]),
        ("SCHEME(NOT (connect|strom*)) ACTION(IGNORE)", [("UNKNOWN_SCHEME", 2)]),
        ("SCHEME(' '|connect|spring*|/streams$/) ACTION(IGNORE)", []),
        ("SCHEME(smallrye*|kafka-streams) ACTION(RETRY) TO(GROUP)", [("NO_GROUP", 2)]),
        ("SCHEME(smallrye*|connect) ACTION(RETRY) TO(GROUP)", []),
        ("SCHEME(smallrye*) ACTION(RETRY)", []),
        ("SCHEME(smallrye*) ACTION(RETRY)\nACTION(RETRY) TO(GROUP)", []),
        (f"TOPIC({'t' * 100}) ACTION(IGNORE)", []),
    ],
)  # fmt: skip
def test_warnings(rules: str, expected: list[tuple[str, int]]) -> None:
    """Blank inserts, settings without effect; long lines are no matter here."""
    assert warnings(f"{HEAD}{rules}\n") == expected


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("SCHEME(smallrye*|kafka-streams) ACTION(RETRY)", [("ORDER_NO_GROUP", 2)]),
        ("SCHEME(smallrye*|spring-dlt) ACTION(RETRY)", []),
        ("SCHEME(smallrye*) ACTION(QUARANTINE)", []),
    ],
)
def test_order_is_warned_of_where_no_group_is_known(
    rule: str, expected: list[tuple[str, int]]
) -> None:
    assert warnings(f"DIALECT(KAFKA) ORDER(KEY)\n{rule}\n") == expected


def test_an_unknown_scheme_is_warned_of_with_what_may_be_meant() -> None:
    text = f"{HEAD}SCHEME(conect|mine) ACTION(IGNORE)\n"
    [unknown, other] = findings(text, Severity.WARNING)
    assert unknown.hint == "did you mean connect?"
    assert "connect, spring-dlt" in other.hint
    [unknown] = findings(text, Severity.WARNING, schemes=["mine", "conn"])
    assert unknown.hint == "did you mean connect?"
    assert not findings(text, Severity.WARNING, schemes=None)


def test_a_rule_that_forwards_to_the_input_queue_is_warned_of() -> None:
    """FWDT with the name of the dead-letter queue."""
    text = f"{HEAD}ACTION(FWD) FWDT('orders.dlq')\nACTION(IGNORE)\n"
    assert warnings(text, input_queue="orders.dlq") == [("TARGET_IS_INPUT_QUEUE", 2)]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("ACTION(QUARANTINE)\nTOPIC(a) ACTION(IGNORE)", ["UNREACHABLE"]),
        (
            "TOPIC(a) ACTION(DISCARD)\nTOPIC(a) AGE(>1h) ACTION(IGNORE)\nACTION(IGNORE)",
            ["UNREACHABLE"],
        ),
        ("TOPIC(/a/|b) HEADER('x',1) SIZE(>1k) ACTION(DISCARD)\nACTION(IGNORE)", []),
    ],
)
def test_the_analysis_of_a_dialect_tells_what_it_can_prove(rules: str, expected: list[str]) -> None:
    text = f"{HEAD}{rules}\n"
    reported = analyse(parse(text).required(), text)
    assert [
        finding.code for finding in reported if finding.severity is Severity.WARNING
    ] == expected

"""DIALECT(KAFKA): every mistake is told, at its place, with what to do."""

from __future__ import annotations

import pytest
from tests.rules.findings import errors, findings, warnings

from redrive.diagnostics import Severity
from redrive.rules import parse
from redrive.rules.analysis import analyse

HEAD = "DIALECT(KAFKA)\n"


def only_error(rule: str) -> tuple[str, str, str, str]:
    """Class, keyword, underlined text and hint of the only error in a rule."""
    (error,) = findings(HEAD + rule, Severity.ERROR)
    start = error.column - 1
    assert error.line == 2
    assert error.expected
    return error.code, error.subject, rule[start : start + error.length], error.hint


@pytest.mark.parametrize(
    ("rule", "code", "subject", "underlined", "hint"),
    [
        ("TOPIC(/a(/) ACTION(RETRY)", "BAD_VALUE", "TOPIC", "/a(/", ""),
        ("TOPIC(/(?=a)/) ACTION(RETRY)", "BAD_VALUE", "TOPIC", "/(?=a)/", "look-around"),
        ("TOPIC(/(a)\\1/) ACTION(RETRY)", "BAD_VALUE", "TOPIC", "/(a)\\1/", "references back"),
        ("TOPIC(/x{1001}/) ACTION(RETRY)", "BAD_VALUE", "TOPIC", "/x{1001}/", ""),
        ("KEY(/a) ACTION(RETRY)", "SYNTAX", "KEY", "/a) ACTION(RETRY)", "slash"),
        ("KEY('a) ACTION(RETRY)", "SYNTAX", "KEY", "'a) ACTION(RETRY)", "close the value"),
        ("KEY(a b) ACTION(RETRY)", "SYNTAX", "KEY", "b", "single quotes"),
        ("KEY(a|) ACTION(RETRY)", "EMPTY_VALUE", "KEY", ")", "' '"),
        ("KEY() ACTION(RETRY)", "EMPTY_VALUE", "KEY", ")", "' '"),
        ("KEY('') ACTION(RETRY)", "EMPTY_VALUE", "KEY", "''", "' '"),
        ("KEY(//) ACTION(RETRY)", "EMPTY_VALUE", "KEY", "//", "anything"),
        ("KEY(>3) ACTION(RETRY)", "BAD_VALUE", "KEY", ">", "quote"),
        ("SIZE(>) ACTION(RETRY)", "SYNTAX", "SIZE", ")", ""),
        ("JSON('$.a',>x) ACTION(RETRY)", "BAD_VALUE", "JSON", ">x", "quote"),
        ("JSON('$.a',>5.) ACTION(RETRY)", "BAD_VALUE", "JSON", ">5.", "quote"),
        ("TOPIC(NOT a|b) ACTION(RETRY)", "SYNTAX", "TOPIC", "|", "(NOT (a|b))"),
        ("TOPIC(NOT (a|*)) ACTION(RETRY)", "BAD_VALUE", "TOPIC", "a|*", "TOPIC(' ')"),
        ("ATTEMPTS(NOT *) ACTION(RETRY)", "BAD_VALUE", "ATTEMPTS", "*", "NOT >=0"),
        ("SIZE(>1x) ACTION(RETRY)", "BAD_VALUE", "SIZE", ">1x", "k, m, g"),
        ("ATTEMPTS(3k) ACTION(RETRY)", "BAD_VALUE", "ATTEMPTS", "3k", "no units"),
        ("ATTEMPTS(/3/) ACTION(RETRY)", "BAD_VALUE", "ATTEMPTS", "/3/", ""),
        ("ATTEMPTS(9999999999) ACTION(RETRY)", "RANGE", "ATTEMPTS", "9999999999", ""),
        ("AGE(2h) ACTION(RETRY)", "BAD_VALUE", "AGE", "2h", ""),
        ("HEADER('a') ACTION(FWD) FWDT(b)", "BAD_VALUE", "HEADER", "'a'", ""),
        ("JSON('$.a') ACTION(RETRY)", "SYNTAX", "JSON", "'", "JSON('$.order.id',value)"),
        ("JSON('a.b',c) ACTION(RETRY)", "BAD_VALUE", "JSON", "JSON", ""),
        ("JSON('$.a[*]',c) ACTION(RETRY)", "BAD_VALUE", "JSON", "JSON", ""),
        ("ACTION(FWD) FWDT('a b')", "BAD_VALUE", "FWDT", "'a b'", ""),
        ("ACTION(FWD) FWDT(a*)", "BAD_VALUE", "FWDT", "a*", "wildcards"),
        ("ACTION(FWD) FWDT('&TOPICS')", "BAD_VALUE", "FWDT", "'&TOPICS'", "dot or a hyphen"),
        ("ACTION(FWD) FWDT('eu west:a')", "BAD_VALUE", "FWDT", "'eu west:a'", "[clusters.NAME]"),
        ("ACTION(FWD) FWDT('&TOPIC:a')", "BAD_VALUE", "FWDT", "'&TOPIC:a'", "[clusters.NAME]"),
        ("ACTION(FWD) FWDT('eu:')", "BAD_VALUE", "FWDT", "'eu:'", ""),
        ("ACTION(FWD) FWDT('..')", "BAD_VALUE", "FWDT", "'..'", ""),
        ("ACTION(FWD)", "COMBINATION", "FWDT", "ACTION(FWD)", ""),
        ("ACTION(FWD) FWDT(a) FWDQ(B)", "COMBINATION", "FWDQ", "FWDQ", "topology"),
        ("ACTION(RETRY) FWDT(a)", "COMBINATION", "FWDT", "FWDT", ""),
        ("ACTION(FWD) FWDT(a) TO(GROUP)", "COMBINATION", "TO", "TO", "&GROUP"),
        ("ACTION(DISCARD) TO(TOPIC)", "COMBINATION", "TO", "TO", ""),
        ("ACTION(RETRY) TO(QUEUE)", "BAD_VALUE", "TO", "QUEUE", ""),
        ("ACTION(QUARANTAIN)", "BAD_VALUE", "ACTION", "QUARANTAIN", "mean QUARANTINE?"),
        ("TOPIK(a) ACTION(RETRY)", "UNKNOWN_KEYWORD", "TOPIK", "TOPIK", "TOPIC"),
        ("QUARANTINE(a) ACTION(RETRY)", "UNKNOWN_KEYWORD", "QUARANTINE", "QUARANTINE", "ACTION("),
        ("HEADER(a,b) HEADER('a',c) ACTION(RETRY)", "DUPLICATE", "HEADER", "HEADER", ""),
        ("TOPIC(a) TOPIC(b) ACTION(RETRY)", "DUPLICATE", "TOPIC", "TOPIC", ""),
        ("TOPIC(a)", "COMBINATION", "ACTION", "TOPIC(a)", ""),
        ("DIALECT(KAFKA)\nACTION(RETRY)", "COMBINATION", "DIALECT", "DIALECT", "with +"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_at_its_place(
    rule: str, code: str, subject: str, underlined: str, hint: str
) -> None:
    error = only_error(rule)
    assert error[:3] == (code, subject, underlined)
    assert hint in error[3]


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
    """Whoever forgets the first clause is told so; DIALECT anywhere else is not understood."""
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

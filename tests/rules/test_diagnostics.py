"""What a diagnosis shows: place, caret, expectation, hint, warnings."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.cases import cases_beside
from tests.rules.findings import findings, warnings

from redrive.diagnostics import Severity
from redrive.errors import ConfigurationError
from redrive.rules import decode_source, parse
from redrive.rules.keywords import KAFKA

in_table = cases_beside(__file__)
_pieces = st.sampled_from(
    [
        *KAFKA.names,
        *"()()'',+-*&\n\r\t=$0aé/|>\\[\0",
        *("\n", " ", "\r\n", "+\n", "-\n", "\n* ", "''", "'A'", "&DESTQ", "MQRC_Q_FULL"),
        *("(RETRY)", "(FWD)", "(*)", "(2053)", "('a')", "ACTION(RETRY)", "FWDQ(A)", "WAIT(NO)"),
        *("<=", "2h", "&TOPIC", "$.a", "FWD", "NOT ", "TOPIC(", "JSON($.a,"),
    ]
)  # fmt: skip
table_like = st.builds(
    "{}{}".format,
    st.sampled_from(["", "DIALECT(KAFKA)\n"]),
    st.lists(_pieces, max_size=25).map("".join),
)


@given(st.text() | table_like)
@example("FORMAT('+\n")
@example("FORMAT(\n+")
@example("\r+\r\n-")
def test_any_text_is_read_without_raising_and_every_place_exists(text: str) -> None:
    result = parse(text)
    lines = text.removeprefix("\ufeff").split("\n")
    has_errors = any(finding.severity is Severity.ERROR for finding in result.diagnostics)
    assert (result.table is None) is has_errors
    for finding in result.diagnostics:
        assert 0 <= finding.line <= len(lines)
        assert finding.entry_line <= finding.line
        if finding.line:
            assert finding.source_line == lines[finding.line - 1].removesuffix("\r")
        if finding.column:
            assert 1 <= finding.column <= len(finding.source_line) + 1
            assert finding.length >= 1
            assert finding.column + finding.length - 1 <= len(finding.source_line) + 1
        assert finding.message
        assert finding.render()


@in_table
def test_what_is_wrong_is_underlined_with_a_hint_what_to_write(marked: str, hint: str) -> None:
    finding = findings(marked.replace("▸", "").replace("◂", ""), Severity.ERROR)[0]
    line = marked.split("\n")[finding.line - 1]
    assert finding.source_line == line.replace("▸", "").replace("◂", "").removeprefix("\ufeff")
    assert (finding.column - 1, finding.column + finding.length) == (
        line.index("▸"), line.index("◂"),
    )  # fmt: skip
    assert hint in finding.hint


def test_a_missing_end_is_shown_behind_the_last_character() -> None:
    finding = findings("ACTION(FWD) +\n FWDQ(A   \n", Severity.ERROR)[0]
    assert (finding.line, finding.column, finding.entry_line) == (2, 8, 1)
    assert finding.expected == ")"


@pytest.mark.parametrize(
    "text",
    [
        "DESTQ('A) ACTION(IGNORE)",
        "DESTQ(A(B)) ACTION(IGNORE)",
        "DESTQ(A'B) ACTION(IGNORE)",
        "ACTION(IGNORE) # because (see RULE(5))",
        "ACTION(IGNORE) * as (ever)",
    ],
)
def test_one_mistake_is_one_error(text: str) -> None:
    assert len(findings(text, Severity.ERROR)) == 1


def test_expected_words_are_listed() -> None:
    (finding,) = findings("ACTION(FORWARD) FWDQ(A)", Severity.ERROR)
    assert finding.expected == "one of DISCARD, IGNORE, RETRY, FWD"


def test_an_unknown_name_tells_which_version_is_known() -> None:
    """A table for a newer MQ is not blamed for a typing error (Q-16)."""
    (finding,) = findings("REASON(MQRC_FROM_THE_FUTURE) ACTION(RETRY)", Severity.ERROR)
    assert "MQ 9." in finding.message


def test_errors_of_a_table_can_be_raised() -> None:
    with pytest.raises(ConfigurationError, match=r"my\.rul: 3 errors") as raised:
        parse("REASON()\nFOO\n", name="my.rul").required()
    assert {finding.file for finding in raised.value.diagnostics} == {"my.rul"}
    assert len(raised.value.diagnostics) >= 2


# --- warnings


def test_a_good_table_has_no_findings() -> None:
    """The table that IBM's advice leads to."""
    text = (
        "* what to do with the dead letters of QM1\n"
        "INPUTQ(SYSTEM.DEAD.LETTER.QUEUE) RETRYINT(30) WAIT(NO)\n"
        "REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(5)\n"
        "REPLYQ(?*) MSGTYPE(MQMT_REQUEST) ACTION(FWD) FWDQ(&REPLYQ) +\n"
        "  FWDQM(&REPLYQM) HEADER(NO)\n"
        "ACTION(FWD) FWDQ('really.dead') HEADER(YES)\n"
    )
    assert parse(text).diagnostics == ()


@pytest.mark.parametrize(
    ("control", "rule", "option", "warned"),
    [
        ("INPUTQ(DLQ)", "ACTION(FWD) FWDQ(DLQ)", "", True),
        ("WAIT(NO)", "ACTION(FWD) FWDQ(DLQ)", "DLQ", True),
        ("INPUTQ(OTHER)", "ACTION(FWD) FWDQ(DLQ)", "DLQ", True),
        ("INPUTQ(DLQ) INPUTQM(QM1)", "ACTION(FWD) FWDQ(DLQ) FWDQM(QM1)", "", True),
        ("INPUTQ(DLQ)", "DESTQ(DLQ) DESTQM(' ') ACTION(RETRY)", "", True),
        ("INPUTQ(DLQ)", "DESTQ(DLQ) ACTION(FWD) FWDQ(&DESTQ)", "", True),
        ("INPUTQ(DLQ) INPUTQM(QM1)", "DESTQ(DLQ) DESTQM(QM2) ACTION(RETRY)", "", False),
        ("INPUTQ(DLQ)", "ACTION(FWD) FWDQ(DLQ) FWDQM(QM2)", "", False),
        ("INPUTQ(DLQ)", "ACTION(FWD) FWDQ('dlq')", "", False),
        ("WAIT(NO)", "ACTION(FWD) FWDQ(DLQ)", "", False),
        ("INPUTQ(DLQ)", "DESTQ(D*) ACTION(FWD) FWDQ(&DESTQ)", "", False),
        ("INPUTQ(DLQ)", "DESTQ(DLQ) ACTION(DISCARD)", "", False),
    ],
)
def test_targets_that_are_the_input_queue(
    control: str, rule: str, option: str, *, warned: bool
) -> None:
    """As far as the table or the command line tells; IBM's handler loops there (Q-26)."""
    reported = warnings(f"{control}\n{rule}\n", input_queue=option)
    assert (("TARGET_IS_INPUT_QUEUE", 2) in reported) is warned


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("ACTION(FWD) FWDQ(&REPLYQ)", "BLANK_REPLY_QUEUE"),
        ("REPLYQ(*) ACTION(FWD) FWDQ(&REPLYQ)", "BLANK_REPLY_QUEUE"),
        ("ACTION(FWD) FWDQ(orders)", "FOLDED_TO_UPPER_CASE"),
        ("APPLNAME(payapp) ACTION(RETRY)", "FOLDED_TO_UPPER_CASE"),
        ("ACTION(FWD) FWDQ('$QM.DLQ')", "NAME_CHARACTERS"),
        ("ACTION(RETRY) +", "DANGLING_CONTINUATION"),
    ],
)
def test_other_warnings(rule: str, code: str) -> None:
    """What is legal, and nearly always a mistake."""
    assert code in [reported for reported, _ in warnings(f"{rule}\n")]


@pytest.mark.parametrize(
    "rule",
    [
        "REPLYQ(?*) ACTION(FWD) FWDQ(&REPLYQ)",
        "REPLYQ(A) ACTION(FWD) FWDQ(&replyq)",
        "ACTION(FWD) FWDQ('orders-2/x%')",
        "REASON(mqrc_q_full) action(retry)",
    ],
)
def test_no_warnings_for_what_is_meant(rule: str) -> None:
    """Folded words and names of MQ, quoted lower case, a reply queue that is asked for."""
    assert not {code for code, _ in warnings(f"{rule}\n")} & {
        "BLANK_REPLY_QUEUE",
        "FOLDED_TO_UPPER_CASE",
        "NAME_CHARACTERS",
    }


def test_a_keyword_broken_over_two_lines_is_warned_of_without_a_place() -> None:
    assert ("RETRYINT_ZERO", 0) in warnings("RETRY+\nINT(0)\nACTION(IGNORE)\n")


def test_warnings_do_not_stop_a_table() -> None:
    assert parse("RETRYINT(0)\nREASON(1) ACTION(IGNORE) RETRY(3)\n").table is not None


def test_findings_come_in_the_order_of_the_table() -> None:
    lines = [finding.entry_line for finding in parse(f"FOO\n{'A' * 80}(\nREASON(1)\n").diagnostics]
    assert lines == sorted(lines)


# --- files


def test_tables_in_old_code_pages_can_be_read() -> None:
    """Comments in any code page do no harm; UTF-8 is read as such, mark or not."""
    assert parse(decode_source(b"* \xa4\xa4\xa4\xe5\nACTION(IGNORE)\n")).table is not None
    assert decode_source("DESTQ('é')".encode()) == "DESTQ('é')"
    assert decode_source("\ufeffACTION(IGNORE)".encode()) == "ACTION(IGNORE)"
    for name in ("utf-16", "utf-16-le", "utf-16-be"):
        mark = "" if name == "utf-16" else "\ufeff"
        assert decode_source(f"{mark}ACTION(IGNORE)".encode(name)).endswith("ACTION(IGNORE)")
    for name in ("utf-16-le", "utf-16-be"):
        assert decode_source("ACTION(IGNORE)".encode(name)) == "ACTION(IGNORE)"


def test_a_warning_about_control_data_of_several_lines_can_be_allowed() -> None:
    text = "* redrive: allow RETRYINT_ZERO\nWAIT(NO) +\nRETRYINT(0)\nACTION(IGNORE)"
    assert not findings(text, Severity.WARNING)

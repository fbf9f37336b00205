"""The language, statement by statement: rules-table specification 2 to 5 and 12."""

from __future__ import annotations

import pytest
from tests.rules.findings import control, errors, pattern, read, rule, warnings
from tests.rules.reference import LENGTHS, NUMBERS

from redrive.messages.constants import FAMILIES
from redrive.rules import PATTERN_KEYWORDS, Control, parse
from redrive.rules.keywords import KEYWORDS

IGNORE = "ACTION(IGNORE)\n"
PUT_TO_A = "ACTION(FWD) FWDQ(A)"


def test_control_data_are_optional_and_have_defaults() -> None:
    """No control entry: no queue, no queue manager, 60 seconds, wait forever."""
    table = parse(IGNORE).required()
    assert table.control == Control()
    assert control(IGNORE) == {"INPUTQ": " ", "INPUTQM": " ", "RETRYINT": 60, "WAIT": "YES"}


def test_wait_in_seconds() -> None:
    """YES is forever; NO and 0 are the same."""
    seconds = [Control(wait=value).seconds_to_wait for value in ("YES", "NO", 0, 30)]
    assert seconds == [None, 0, 0, 30]


def test_retry_interval_of_zero_counts_as_one_second() -> None:
    """In range, but it must not rescan without end (Q-21)."""
    assert parse(f"RETRYINT(0)\n{IGNORE}").required().control.retry_interval == 1
    assert ("RETRYINT_ZERO", 1) in warnings(f"RETRYINT(0)\n{IGNORE}")


def test_there_are_thirteen_pattern_keywords() -> None:
    """The set is the same on all platforms; 23 keywords in all."""
    assert sorted(PATTERN_KEYWORDS) == sorted([*LENGTHS, *NUMBERS])
    assert len(KEYWORDS) == 23


@pytest.mark.parametrize(
    ("clause", "value"),
    [
        # Names are folded unless quoted, numbers run from 0, WAIT also takes words.
        ("INPUTQ(ABC)", "ABC"),
        ("INPUTQ('abc')", "abc"),
        ("INPUTQ(abc)", "ABC"),
        ("INPUTQ(' ')", " "),
        ("INPUTQM(QM1)", "QM1"),
        ("INPUTQM(' ')", " "),
        ("RETRYINT(0)", 0),
        ("RETRYINT(999999999)", 999_999_999),
        ("WAIT(YES)", "YES"),
        ("WAIT(no)", "NO"),
        ("WAIT(0)", 0),
        ("WAIT('30')", 30),
    ],
)
def test_control_values(clause: str, value: str | int) -> None:
    """Section 2."""
    assert control(f"{clause}\n{IGNORE}")[clause.partition("(")[0]] == value


@pytest.mark.parametrize(
    ("clause", "value"),
    [
        # -1 has two names, and cannot be written as a number.
        ("APPLTYPE(MQAT_UNKNOWN)", -1),
        ("PERSIST(MQPER_PERSISTENCE_AS_PARENT)", -1),
        # An asterisk stands for a whole number (convention 14).
        ("MSGTYPE('*')", "*"),
        # One character is enough, and may be blank.
        ("FORMAT(A)", "A"),
        # Letters outside quotes are folded; a quote inside is written twice (convention 17).
        ("DESTQ(my.queue)", "MY.QUEUE"),
        ("APPLNAME('''')", "'"),
        ("DESTQ('A&B')", "A&B"),
        # Letters, digits, period, slash, underscore, percent and the wildcards.
        *((f"DESTQ(A{value}B)", f"A{value}B") for value in "./_%*?09AZ"),
        # Asterisks do not count for the length (convention 16).
        *(
            (f"FORMAT('{value}')", value)
            for value in ("ABCDEFGH", "A*C*E*G*I", "*A*C*E*G*I*K*M*O*")
        ),
        ("FORMAT('**************************************************')", "*" * 50),
        # Inside a value + goes on at the first non-blank, - at the start.
        ("APPLNAME('ABC-\n D')", "ABC D"),
        ("APPLNAME('ABC  +\n  D')", "ABC  D"),
        ("APPLNAME('ABC -\n  D')", "ABC   D"),
        ("APPLNAME('A+\n B+\n  C')", "ABC"),
        ("APPLNAME('A+   \nB')", "AB"),
        ("APPLNAME(A+\n  B)", "AB"),
        ("APPLNAME('A+\n* B')", "A* B"),
        ("APPLNAME('A-\n  * B')", "A  * B"),
        ("APPLNAME('A''+\n''B')", "A''B"),
        ("APPLNAME('A'+\n'B')", "A'B"),
    ],
)
def test_pattern_values(clause: str, value: str | int) -> None:
    """Section 3 and the conventions of section 5.1."""
    assert pattern(clause) == value


@pytest.mark.parametrize(("keyword", "length"), LENGTHS.items())
def test_text_patterns_have_the_length_of_their_field(keyword: str, length: int) -> None:
    assert pattern(f"{keyword}({'A' * length})") == "A" * length
    assert errors(f"{keyword}({'A' * (length + 1)}) {IGNORE}") == [("TOO_LONG", 1, keyword)]


@pytest.mark.parametrize("keyword", NUMBERS)
def test_number_patterns_run_from_0_to_999999999(keyword: str) -> None:
    """A number in range is accepted even if it is not valid for the field (convention 15)."""
    for written in ("0", "999999999", "0000000000001", "'12'"):
        assert pattern(f"{keyword}({written})") == int(written.strip("'"))
    for written in ("1000000000", "9" * 5000):
        assert errors(f"{keyword}({written}) {IGNORE}") == [("RANGE", 1, keyword)]


@pytest.mark.parametrize(
    ("keyword", "families"),
    [
        ("APPLTYPE", {"MQAT"}),
        ("FEEDBACK", {"MQFB", "MQRC"}),
        ("MSGTYPE", {"MQMT"}),
        ("PERSIST", {"MQPER"}),
        ("REASON", {"MQRC", "MQFB"}),
    ],
)
def test_each_number_keyword_takes_its_families_of_names(keyword: str, families: set[str]) -> None:
    """All names of these families, in any case or quoted, and none of the others (Q-15)."""
    for family, names in FAMILIES.items():
        for name, value in names.items():
            if family in families:
                assert pattern(f"{keyword}({name})") == value
            else:
                assert errors(f"{keyword}({name}) {IGNORE}") == [("BAD_VALUE", 1, keyword)]
    first = min(FAMILIES[min(families)])
    assert pattern(f"{keyword}({first.lower()})") == pattern(f"{keyword}('{first}')")


def test_action_defaults() -> None:
    """HEADER(YES), PUTAUT(DEF), RETRY(1), FWDQM the local queue manager."""
    (only,) = read("ACTION(FWD) FWDQ(X)\n")
    assert (only.header, only.authority, only.retry) == (True, "DEF", 1)
    assert (only.forward_queue, only.forward_queue_manager) == ("X", "")
    assert rule("ACTION(FWD) FWDQ(X)\n")["FWDQM"] == " "


@pytest.mark.parametrize("action", ["DISCARD", "IGNORE", "RETRY"])
def test_actions_without_a_target(action: str) -> None:
    """FWDQ, FWDQM and HEADER go with FWD only."""
    assert rule(f"ACTION({action})\n")["ACTION"] == action
    for keyword, value in (("FWDQ", "X"), ("FWDQM", "X"), ("HEADER", "NO"), ("HEADER", "YES")):
        text = f"ACTION({action}) {keyword}({value})\n"
        assert errors(text) == [("COMBINATION", 1, keyword)]


@pytest.mark.parametrize(
    ("clauses", "queue", "manager"),
    [
        ("FWDQ(&DESTQ)", "&DESTQ", " "),
        ("FWDQ(&replyq) FWDQM(&replyqm)", "&REPLYQ", "&REPLYQM"),
        ("FWDQ('&DestQ') FWDQM('&DESTQM')", "&DESTQ", "&DESTQM"),
        ("FWDQ(A) FWDQM(' ')", "A", " "),
        ("FWDQ('my.queue') FWDQM(qm)", "my.queue", "QM"),
    ],
)
def test_forward_targets(clauses: str, queue: str, manager: str) -> None:
    """Names, the four special names in any case, and the local queue manager (Q-09)."""
    only = rule(f"ACTION(FWD) {clauses}\n")
    assert (only["FWDQ"], only["FWDQM"]) == (queue, manager)


def test_words_may_be_quoted() -> None:
    only = rule("REASON('MQRC_Q_FULL') ACTION('FWD') FWDQ('A') HEADER('NO') RETRY('3')\n")
    assert only["pattern"] == {"REASON": 2053}
    assert (only["ACTION"], only["HEADER"], only["RETRY"]) == ("FWD", "NO", 3)


@pytest.mark.parametrize("action", ["DISCARD", "IGNORE"])
def test_putaut_and_retry_are_no_errors_where_they_do_nothing(action: str) -> None:
    """Not documented as errors: accepted with a warning (Q-29)."""
    text = f"ACTION({action}) RETRY(3) PUTAUT(CTX)\n"
    assert rule(text)["RETRY"] == 3
    assert warnings(text) == [("NO_EFFECT", 1), ("NO_EFFECT", 1)]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        # Control data: class, range and length; one entry, the first, apart from rules.
        (f"RETRYINT(1000000000)\n{IGNORE}", "RANGE 1 RETRYINT"),
        (f"RETRYINT(x)\n{IGNORE}", "BAD_VALUE 1 RETRYINT"),
        (f"RETRYINT(*)\n{IGNORE}", "WILDCARD 1 RETRYINT"),
        (f"WAIT(MAYBE)\n{IGNORE}", "BAD_VALUE 1 WAIT"),
        (f"WAIT(1000000000)\n{IGNORE}", "RANGE 1 WAIT"),
        (f"WAIT(*)\n{IGNORE}", "WILDCARD 1 WAIT"),
        (f"INPUTQ(A*)\n{IGNORE}", "WILDCARD 1 INPUTQ"),
        (f"INPUTQM('A?')\n{IGNORE}", "WILDCARD 1 INPUTQM"),
        (f"INPUTQ({'A' * 49})\n{IGNORE}", "TOO_LONG 1 INPUTQ"),
        (f"INPUTQM({'A' * 49})\n{IGNORE}", "TOO_LONG 1 INPUTQM"),
        (f"INPUTQ(&DESTQ)\n{IGNORE}", "SYNTAX 1 INPUTQ"),
        (f"INPUTQ()\n{IGNORE}", "EMPTY_VALUE 1 INPUTQ"),
        (f"{IGNORE}WAIT(NO)\n", "COMBINATION 2 WAIT"),
        (f"WAIT(NO)\nINPUTQ(B)\nWAIT(YES)\n{IGNORE}", "COMBINATION 2 INPUTQ, COMBINATION 3 WAIT"),
        ("WAIT(NO) ACTION(IGNORE) RETRYINT(5)", "COMBINATION 1 WAIT, COMBINATION 1 RETRYINT"),
        # Numbers: digits or known names, no part of them a wildcard.
        *((f"REASON({raw}) {IGNORE}", "BAD_VALUE 1 REASON") for raw in ("MQRC_NO", "0x8", "1.5")),
        *((f"REASON({raw}) {IGNORE}", "BAD_VALUE 1 REASON") for raw in ("Q_FULL", "''''", "'5 '")),
        (f"REASON(+5) {IGNORE}", "SYNTAX 1 REASON"),
        (f"APPLTYPE(-1) {IGNORE}", "SYNTAX 1 APPLTYPE"),
        (f"APPLTYPE('-1') {IGNORE}", "BAD_VALUE 1 APPLTYPE"),
        *((f"MSGTYPE({raw}) {IGNORE}", "BAD_VALUE 1 MSGTYPE") for raw in ("12*", "?", "*1", "1?")),
        *((f"MSGTYPE({raw}) {IGNORE}", "BAD_VALUE 1 MSGTYPE") for raw in ("**", "'12*'", "MQMT_*")),
        # Texts: question marks and blanks count for the length (convention 16).
        *((f"FORMAT('{text}') {IGNORE}", "TOO_LONG 1 FORMAT") for text in ("ABCDEFGHI", "?" * 9)),
        (f"FORMAT('ABCDEFGH ') {IGNORE}", "TOO_LONG 1 FORMAT"),
        (f"FORMAT('*A*C*E*G*I*K*M*O*Q') {IGNORE}", "TOO_LONG 1 FORMAT"),
        # ACTION(FWD) needs a queue; a name has a length and no wildcards (convention 12).
        ("ACTION(FWD)", "COMBINATION 1 FWDQ"),
        ("ACTION(FWD) FWDQM(QM1)", "COMBINATION 1 FWDQ"),
        ("ACTION(FWD) FWDQ(' ')", "BAD_VALUE 1 FWDQ"),
        ("ACTION(FWD) FWDQ('   ')", "BAD_VALUE 1 FWDQ"),
        ("ACTION(FWD) FWDQ()", "EMPTY_VALUE 1 FWDQ"),
        *((f"ACTION(FWD) FWDQ({text})", "BAD_VALUE 1 FWDQ") for text in ("&DESTQM", "&D", "'&no'")),
        *((f"ACTION(FWD) FWDQ({text})", "BAD_VALUE 1 FWDQ") for text in ("&", "'='")),
        *((f"ACTION(FWD) FWDQ({text})", "SYNTAX 1 FWDQ") for text in ("A&B", "=")),
        *((f"ACTION(FWD) FWDQ({text})", "WILDCARD 1 FWDQ") for text in ("A*", "'A?'")),
        (f"ACTION(FWD) FWDQ({'A' * 49})", "TOO_LONG 1 FWDQ"),
        (f"{PUT_TO_A} FWDQM(&DESTQ)", "BAD_VALUE 1 FWDQM"),
        (f"{PUT_TO_A} FWDQM('=')", "BAD_VALUE 1 FWDQM"),
        (f"{PUT_TO_A} FWDQM(*)", "WILDCARD 1 FWDQM"),
        (f"{PUT_TO_A} FWDQM({'A' * 49})", "TOO_LONG 1 FWDQM"),
        (f"{PUT_TO_A} HEADER(TRUE)", "BAD_VALUE 1 HEADER"),
        (f"{PUT_TO_A} HEADER(*)", "WILDCARD 1 HEADER"),
        (f"{PUT_TO_A} PUTAUT(ALL)", "BAD_VALUE 1 PUTAUT"),
        (f"{PUT_TO_A} PUTAUT(?)", "WILDCARD 1 PUTAUT"),
        (f"{PUT_TO_A} RETRY(0)", "RANGE 1 RETRY"),
        (f"{PUT_TO_A} RETRY(1000000000)", "RANGE 1 RETRY"),
        (f"{PUT_TO_A} RETRY(5*)", "WILDCARD 1 RETRY"),
        (f"{PUT_TO_A} RETRY(MQRC_NONE)", "BAD_VALUE 1 RETRY"),
        # & starts the special names of FWDQ and FWDQM only; no platform has CONVERT.
        (f"DESTQ(&DESTQ) {IGNORE}", "SYNTAX 1 DESTQ"),
        ("ACTION(RETRY) CONVERT(YES)", "UNKNOWN_KEYWORD 1 CONVERT"),
        # Each keyword once, in any case; commas only separate clauses.
        (f"REASON(1) reason(2) Reason(3) {IGNORE}", "DUPLICATE 1 REASON, DUPLICATE 1 REASON"),
        (f"WAIT(NO) WAIT(YES)\n{IGNORE}", "DUPLICATE 1 WAIT"),
        (f"REASON(1,2) {IGNORE}", "SYNTAX 1 REASON"),
        (f",,\n{IGNORE}", "SYNTAX 1 "),
        # What could not be read may hold what seems to be missing: one error, not two.
        ("REASON(2085) DISCARD", "UNKNOWN_KEYWORD 1 DISCARD"),
        ("REASON(1) ACTION(FORWARD) FWDQ(X)", "BAD_VALUE 1 ACTION"),
        ("REASON(1) ACTION()", "EMPTY_VALUE 1 ACTION"),
        ("REASON(1) ACTION(FWD) FWDQ(A", "SYNTAX 1 FWDQ"),
        # Syntax, duplicates, values, combination, whatever order they stand in.
        (
            "HEADER(TRUE) ACTION(RETRY) REASON(1) REASON(2) FOO(1)",
            "UNKNOWN_KEYWORD 1 FOO, DUPLICATE 1 REASON, BAD_VALUE 1 HEADER, COMBINATION 1 HEADER",
        ),
        # Every entry with an error is reported, all at once.
        (
            f"REASON(2053)\n{IGNORE}ACTION(RETRY) RETRY(0)\nFORMAT() ACTION(FWD) FWDQ(X)",
            "COMBINATION 1 ACTION, RANGE 3 RETRY, EMPTY_VALUE 4 FORMAT",
        ),
    ],
)  # fmt: skip
def test_errors(text: str, error: str) -> None:
    """Each mistake has its class, the line of its entry and its keyword; there is no table."""
    assert ", ".join(f"{code} {line} {name}" for code, line, name in errors(text)) == error
    assert parse(text).table is None


@pytest.mark.parametrize("text", ["", "\n", "* a\n", "WAIT(NO)\n", " +\n", "\ufeff"])
def test_a_table_needs_a_rule(text: str) -> None:
    """Nothing, comments, control data only (convention 1, Q-34)."""
    assert [code for code, _, _ in errors(text)] == ["NO_RULES"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *((f"FORMAT({value})", "EMPTY_VALUE") for value in ("''", " ", "", " '' ")),
        *((f"FORMAT{value}", "SYNTAX") for value in ("", " ABC", "(ABC", "(", "('ABC", "('ABC'D)")),
        *((f"FORMAT{value}", "SYNTAX") for value in ("('A' 'B')", "(A'B)", "((A))", "=ABC")),
        ("REASON,(1)", "SYNTAX"),
        ("APPLNAME('A+\n\nB')", "SYNTAX"),  # a blank line has no sign, even while a quote is open
        ("REASON(1)+\n  MSGTYPE(1)", "SYNTAX"),  # the sign itself does not separate
    ],
)
def test_the_first_error_of_a_broken_clause(text: str, code: str) -> None:
    """The grammar and convention 10: at the end of a rule and in front of another clause."""
    assert errors(f"ACTION(IGNORE) {text}\n")[0][0] == code
    if "'ABC" not in text or "'D" in text:
        assert errors(f"{text} ACTION(IGNORE)\n")[0][0] == code


@pytest.mark.parametrize("character", '-+=:;!"#$<>@[]^`{|}~\\(&é\x00\x0b')
def test_other_characters_need_quotes(character: str) -> None:
    """Convention 17."""
    assert errors(f"DESTQ(A{character}B) {IGNORE}")[0] == ("SYNTAX", 1, "DESTQ")
    assert pattern(f"DESTQ('A{character}B')") == f"A{character}B"


def test_reading_goes_on_behind_every_syntax_error() -> None:
    text = "REASON(2053 DESTQ(A-B) FORMAT FOO(1) BAR $X(2) MSGTYPE(x) ACTION(RETRY) RETRY(0)\n"
    assert [code for code, _, _ in errors(text)] == [
        *("SYNTAX", "SYNTAX", "SYNTAX", "UNKNOWN_KEYWORD", "UNKNOWN_KEYWORD", "SYNTAX"),
        *("BAD_VALUE", "RANGE"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        # Any order and case (convention 2); blanks around punctuation and values (convention 4).
        "aCtIoN(retry) Reason(2053)",
        " REASON\t ( 2053 )  ACTION  (  'RETRY'\t) ",
        # Blanks and commas separate, any number, also around a rule (conventions 3 and 4, Q-39).
        *(
            f"{separator}REASON(2053){separator}ACTION(RETRY){separator}"
            for separator in (" ", ",", "\t", " , ", ",,", "  ")
        ),
        # A rule goes on anywhere; comments and blank lines between are skipped.
        "REA-\nSON(2053) ACTION(RETRY)",
        "REASON+\n(2053) ACTION(RETRY)",
        "REASON(20+\n53) ACTION(RETRY)",
        "REASON(2053)-\n  ACTION(RETRY)",
        "REASON(2053) -\n\n* why\nACTION(RETRY)",
        "+\nREASON(2053) ACTION(RETRY)",
        "REASON(2053) +\n+\n+\nACTION(RETRY)",
        "REASON(2053) ACTION(RETRY) +\n",
        "REASON(2053) ACTION(RETRY) -",
        # Comments begin with the first non-blank and do not go on.
        "* a\n   * b\n\t*c(((\nREASON(2053) ACTION(RETRY)\n*ACTION(IGNORE)",
        "* more to come +\nREASON(2053) ACTION(RETRY)\n* and -\n",
        # CR before LF belongs to the line end; a last line needs none (convention 6).
        "WAIT(YES) +\r\nRETRYINT(60)\r\n\r\n* c\r\nREASON(-\r\n2053) ACTION(RETRY)\r",
    ],
)
def test_layouts_that_mean_the_same(text: str) -> None:
    assert parse(text).required() == parse("REASON(2053) ACTION(RETRY)").required()


def test_control_data_go_on_in_the_next_line() -> None:
    assert control(f"INPUTQ(A) +\nINPUTQM(B) +\nWAIT(YES)\n{IGNORE}")["INPUTQM"] == "B"


def test_a_missing_separator_is_an_error_unless_lenient() -> None:
    """z/OS alone reads clauses that stand together (Q-06)."""
    text = "REASON(2053)ACTION(RETRY)RETRY(2)\n"
    assert [code for code, _, _ in errors(text)] == ["SYNTAX", "SYNTAX"]
    assert read(text, strict=False) == read("REASON(2053) ACTION(RETRY) RETRY(2)\n")


def test_lines_over_72_characters_are_read() -> None:
    """With a warning (convention 7, Q-05); trailing blanks and comments don't count."""
    long = f"DESTQ({'A' * 40}) REPLYQ({'B' * 30}) ACTION(RETRY)"
    text = f"{long}\nREASON(1) ACTION(RETRY){' ' * 80}\n* {'-' * 80}\n{IGNORE}"
    assert warnings(text) == [("LONG_LINE", 1)]


def test_entries_are_known_by_their_first_line() -> None:
    """Comments and blank lines in front do not belong to the entry (Q-38)."""
    text = (
        "* a\n\nWAIT(NO) +\nRETRYINT(5)\n* b\n+\nACTION(RETRY)\n\n\nREASON(1) +\n* c\nACTION(RETRY)"
    )
    assert [rule.line for rule in read(text)] == [6, 10]

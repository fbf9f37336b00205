"""The language, statement by statement: rules-table specification 2 to 5 and 12."""

from __future__ import annotations

import pytest
from tests.rules.findings import control, errors, pattern, read, rule, warnings
from tests.rules.reference import LENGTHS, NUMBERS

from redrive.messages.constants import FAMILIES
from redrive.rules import KEYWORDS, PATTERN_KEYWORDS, Control, Wait, parse

IGNORE = "ACTION(IGNORE)\n"


# --- section 2: control data


def test_control_data_are_optional_and_have_defaults() -> None:
    """No control entry: no queue, no queue manager, 60 seconds, wait for ever."""
    table = parse(IGNORE).required()
    assert table.control == Control()
    assert control(IGNORE) == {"INPUTQ": " ", "INPUTQM": " ", "RETRYINT": 60, "WAIT": "YES"}


@pytest.mark.parametrize(
    ("clause", "keyword", "value"),
    [
        ("INPUTQ(ABC)", "INPUTQ", "ABC"),
        ("INPUTQ('abc')", "INPUTQ", "abc"),
        ("INPUTQ(abc)", "INPUTQ", "ABC"),
        ("INPUTQ(' ')", "INPUTQ", " "),
        ("INPUTQM(QM1)", "INPUTQM", "QM1"),
        ("INPUTQM(' ')", "INPUTQM", " "),
        ("RETRYINT(0)", "RETRYINT", 0),
        ("RETRYINT(999999999)", "RETRYINT", 999_999_999),
        ("WAIT(YES)", "WAIT", "YES"),
        ("WAIT(no)", "WAIT", "NO"),
        ("WAIT(0)", "WAIT", 0),
        ("WAIT('30')", "WAIT", 30),
    ],
)
def test_control_values(clause: str, keyword: str, value: str | int) -> None:
    """Names are folded unless quoted, numbers run from 0, WAIT also takes words."""
    assert control(f"{clause}\n{IGNORE}")[keyword] == value


def test_wait_in_seconds() -> None:
    """YES is for ever; NO and 0 are the same."""
    assert [Wait(value).seconds for value in ("YES", "NO", 0, 30)] == [None, 0, 0, 30]


def test_retry_interval_of_zero_counts_as_one_second() -> None:
    """In range, but it must not rescan without end (Q-21)."""
    assert parse(f"RETRYINT(0)\n{IGNORE}").required().control.retry_interval == 1
    assert ("RETRYINT_ZERO", 1) in warnings(f"RETRYINT(0)\n{IGNORE}")


@pytest.mark.parametrize(
    ("text", "code", "keyword"),
    [
        ("RETRYINT(1000000000)", "RANGE", "RETRYINT"),
        ("RETRYINT(x)", "BAD_VALUE", "RETRYINT"),
        ("RETRYINT(*)", "WILDCARD", "RETRYINT"),
        ("WAIT(MAYBE)", "BAD_VALUE", "WAIT"),
        ("WAIT(1000000000)", "RANGE", "WAIT"),
        ("WAIT(*)", "WILDCARD", "WAIT"),
        ("INPUTQ(A*)", "WILDCARD", "INPUTQ"),
        ("INPUTQM('A?')", "WILDCARD", "INPUTQM"),
        (f"INPUTQ({'A' * 49})", "TOO_LONG", "INPUTQ"),
        (f"INPUTQM({'A' * 49})", "TOO_LONG", "INPUTQM"),
        ("INPUTQ(&DESTQ)", "SYNTAX", "INPUTQ"),
        ("INPUTQ()", "EMPTY_VALUE", "INPUTQ"),
    ],
)
def test_control_values_that_are_wrong(text: str, code: str, keyword: str) -> None:
    """Class, range and length of control values are checked."""
    assert errors(f"{text}\n{IGNORE}") == [(code, 1, keyword)]


def test_control_entry_must_be_first() -> None:
    """Control data behind a rule are misplaced."""
    assert errors(f"{IGNORE}WAIT(NO)\n") == [("COMBINATION", 2, "WAIT")]


def test_control_data_are_one_entry() -> None:
    """A second control entry is an error, each one (Q-01)."""
    text = f"INPUTQ(A)\nINPUTQM(B)\nWAIT(YES)\n{IGNORE}"
    assert errors(text) == [("COMBINATION", 2, "INPUTQM"), ("COMBINATION", 3, "WAIT")]
    assert control(f"INPUTQ(A) +\nINPUTQM(B) +\nWAIT(YES)\n{IGNORE}")["INPUTQM"] == "B"


def test_control_keywords_do_not_stand_in_a_rule() -> None:
    """Each misplaced control keyword is named."""
    assert errors("WAIT(NO) ACTION(IGNORE) RETRYINT(5)\n") == [
        ("COMBINATION", 1, "WAIT"),
        ("COMBINATION", 1, "RETRYINT"),
    ]


# --- section 3: patterns


def test_there_are_thirteen_pattern_keywords() -> None:
    """The set is the same on all platforms; 23 keywords in all."""
    assert sorted(PATTERN_KEYWORDS) == sorted([*LENGTHS, *NUMBERS])
    assert len(KEYWORDS) == 23


@pytest.mark.parametrize(("keyword", "length"), LENGTHS.items())
def test_text_patterns_have_the_length_of_their_field(keyword: str, length: int) -> None:
    """As long as the field is legal, one character more is not."""
    assert pattern(f"{keyword}({'A' * length})") == "A" * length
    assert errors(f"{keyword}({'A' * (length + 1)}) {IGNORE}") == [("TOO_LONG", 1, keyword)]


@pytest.mark.parametrize("keyword", NUMBERS)
def test_number_patterns_run_from_0_to_999999999(keyword: str) -> None:
    """A number in range is accepted even if it is not valid for the field (convention 15)."""
    assert pattern(f"{keyword}(0)") == 0
    assert pattern(f"{keyword}(999999999)") == 999_999_999
    assert pattern(f"{keyword}(0000000000001)") == 1
    assert pattern(f"{keyword}('12')") == 12
    assert errors(f"{keyword}(1000000000) {IGNORE}") == [("RANGE", 1, keyword)]
    assert errors(f"{keyword}({'9' * 5000}) {IGNORE}") == [("RANGE", 1, keyword)]


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


def test_names_with_negative_values_are_accepted() -> None:
    """The name stands for -1, which cannot be written as a number (Q-14)."""
    assert pattern("APPLTYPE(MQAT_UNKNOWN)") == -1
    assert pattern("PERSIST(MQPER_PERSISTENCE_AS_PARENT)") == -1
    assert errors(f"APPLTYPE(-1) {IGNORE}") == [("SYNTAX", 1, "APPLTYPE")]
    assert errors(f"APPLTYPE('-1') {IGNORE}") == [("BAD_VALUE", 1, "APPLTYPE")]


@pytest.mark.parametrize("value", ["MQRC_NO_SUCH_REASON", "Q_FULL", "0x805", "1.5", "''''", "'5 '"])
def test_what_is_no_number_is_a_bad_value(value: str) -> None:
    """Digits only; unknown names are errors, numbers always work (Q-16, Q-36)."""
    assert errors(f"REASON({value}) {IGNORE}") == [("BAD_VALUE", 1, "REASON")]


def test_a_sign_before_a_number_is_a_syntax_error() -> None:
    """Digits only (Q-36)."""
    assert errors(f"REASON(+5) {IGNORE}") == [("SYNTAX", 1, "REASON")]


# --- section 4: actions


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


def test_forward_needs_a_queue() -> None:
    """ACTION(FWD) without FWDQ, with a blank one, with an empty one."""
    assert errors("ACTION(FWD)\n") == [("COMBINATION", 1, "FWDQ")]
    assert errors("ACTION(FWD) FWDQM(QM1)\n") == [("COMBINATION", 1, "FWDQ")]
    assert errors("ACTION(FWD) FWDQ(' ')\n") == [("BAD_VALUE", 1, "FWDQ")]
    assert errors("ACTION(FWD) FWDQ('   ')\n") == [("BAD_VALUE", 1, "FWDQ")]
    assert errors("ACTION(FWD) FWDQ()\n") == [("EMPTY_VALUE", 1, "FWDQ")]


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


@pytest.mark.parametrize(
    ("clause", "code", "keyword"),
    [
        ("FWDQ(&DESTQM)", "BAD_VALUE", "FWDQ"),
        ("FWDQ(&D)", "BAD_VALUE", "FWDQ"),
        ("FWDQ('&nothing')", "BAD_VALUE", "FWDQ"),
        ("FWDQ(&)", "BAD_VALUE", "FWDQ"),
        ("FWDQ(A) FWDQM(&DESTQ)", "BAD_VALUE", "FWDQM"),
        ("FWDQ(A&B)", "SYNTAX", "FWDQ"),
        ("FWDQ(=)", "SYNTAX", "FWDQ"),
        ("FWDQ('=')", "BAD_VALUE", "FWDQ"),
        ("FWDQ(A) FWDQM('=')", "BAD_VALUE", "FWDQM"),
        ("FWDQ(A*)", "WILDCARD", "FWDQ"),
        ("FWDQ('A?')", "WILDCARD", "FWDQ"),
        ("FWDQ(A) FWDQM(*)", "WILDCARD", "FWDQM"),
        (f"FWDQ({'A' * 49})", "TOO_LONG", "FWDQ"),
        (f"FWDQ(A) FWDQM({'A' * 49})", "TOO_LONG", "FWDQM"),
        ("FWDQ(A) HEADER(TRUE)", "BAD_VALUE", "HEADER"),
        ("FWDQ(A) HEADER(*)", "WILDCARD", "HEADER"),
        ("FWDQ(A) PUTAUT(ALL)", "BAD_VALUE", "PUTAUT"),
        ("FWDQ(A) PUTAUT(?)", "WILDCARD", "PUTAUT"),
        ("FWDQ(A) RETRY(0)", "RANGE", "RETRY"),
        ("FWDQ(A) RETRY(1000000000)", "RANGE", "RETRY"),
        ("FWDQ(A) RETRY(5*)", "WILDCARD", "RETRY"),
        ("FWDQ(A) RETRY(MQRC_NONE)", "BAD_VALUE", "RETRY"),
    ],
)
def test_action_values_that_are_wrong(clause: str, code: str, keyword: str) -> None:
    """Class, range and length of action values are checked; no wildcards (convention 12)."""
    assert errors(f"ACTION(FWD) {clause}\n") == [(code, 1, keyword)]


def test_ampersand_is_no_character_of_other_values() -> None:
    """It only starts the special names of FWDQ and FWDQM; quoted it is data (Q-08)."""
    assert errors(f"DESTQ(&DESTQ) {IGNORE}") == [("SYNTAX", 1, "DESTQ")]
    assert pattern("DESTQ('A&B')") == "A&B"


def test_convert_is_no_keyword() -> None:
    """No platform has it."""
    assert errors("ACTION(RETRY) CONVERT(YES)\n") == [("UNKNOWN_KEYWORD", 1, "CONVERT")]


def test_words_may_be_quoted() -> None:
    """A quoted word, name or number is the same as one without quotes (Q-09)."""
    only = rule("REASON('MQRC_Q_FULL') ACTION('FWD') FWDQ('A') HEADER('NO') RETRY('3')\n")
    assert only["pattern"] == {"REASON": 2053}
    assert (only["ACTION"], only["HEADER"], only["RETRY"]) == ("FWD", "NO", 3)


@pytest.mark.parametrize("action", ["DISCARD", "IGNORE"])
def test_putaut_and_retry_are_no_errors_where_they_do_nothing(action: str) -> None:
    """Not documented as errors: accepted with a warning (Q-29)."""
    text = f"ACTION({action}) RETRY(3) PUTAUT(CTX)\n"
    assert rule(text)["RETRY"] == 3
    assert warnings(text) == [("NO_EFFECT", 1), ("NO_EFFECT", 1)]


# --- section 5.1: conventions


def test_a_table_needs_a_rule() -> None:
    """Nothing, comments, control data only (convention 1, Q-34)."""
    for text in ("", "\n", "* a\n", "WAIT(NO)\n", " +\n", "\ufeff"):
        assert [code for code, _, _ in errors(text)] == ["NO_RULES"]


def test_keywords_come_in_any_order_and_case() -> None:
    """Convention 2."""
    assert rule("Retry(5) aCtIoN(retry) reason(2053)\n") == rule(
        "REASON(2053) ACTION(RETRY) RETRY(5)\n"
    )


def test_each_keyword_comes_once() -> None:
    """Also in another case (Q-33); each repetition is reported."""
    assert errors("REASON(1) reason(2) Reason(3) ACTION(IGNORE)\n") == [
        ("DUPLICATE", 1, "REASON"),
        ("DUPLICATE", 1, "REASON"),
    ]
    assert errors(f"WAIT(NO) WAIT(YES)\n{IGNORE}") == [("DUPLICATE", 1, "WAIT")]


@pytest.mark.parametrize("separator", [" ", ",", "\t", " , ", ",,", "  "])
def test_blanks_and_commas_separate(separator: str) -> None:
    """At least one of them, any number, also around a rule (conventions 3 and 4, Q-39)."""
    text = f"{separator}REASON(1){separator}ACTION(RETRY){separator}\n"
    assert rule(text)["pattern"] == {"REASON": 1}


def test_a_missing_separator_is_an_error_unless_lenient() -> None:
    """z/OS alone reads clauses that stand together (Q-06)."""
    text = "REASON(2053)ACTION(RETRY)RETRY(2)\n"
    assert [code for code, _, _ in errors(text)] == ["SYNTAX", "SYNTAX"]
    assert read(text, strict=False) == read("REASON(2053) ACTION(RETRY) RETRY(2)\n")


def test_blanks_around_punctuation_and_values() -> None:
    """Convention 4."""
    assert rule(" REASON\t ( 2053 )  ACTION  (  'RETRY'\t) \n")["pattern"] == {"REASON": 2053}


def test_commas_only_separate_clauses() -> None:
    """Not between a keyword and its value, not in a value."""
    assert errors(f"REASON,(1) {IGNORE}")[0][0] == "SYNTAX"
    assert errors(f"REASON(1,2) {IGNORE}") == [("SYNTAX", 1, "REASON")]


def test_lines_over_72_characters_are_read() -> None:
    """With a warning (convention 7, Q-05); trailing blanks and comments don't count."""
    long = f"DESTQ({'A' * 40}) REPLYQ({'B' * 30}) ACTION(RETRY)"
    text = f"{long}\nREASON(1) ACTION(RETRY){' ' * 80}\n* {'-' * 80}\n{IGNORE}"
    assert warnings(text) == [("LONG_LINE", 1)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'ABC+\n    D'", "ABCD"),
        ("'ABC-\n D'", "ABC D"),
        ("'ABC  +\n  D'", "ABC  D"),
        ("'ABC -\n  D'", "ABC   D"),
        ("'A+\n B+\n  C'", "ABC"),
        ("'A+   \nB'", "AB"),
        ("A+\n  B", "AB"),
        ("'A+\n* B'", "A* B"),
        ("'A-\n  * B'", "A  * B"),
        ("'A''+\n''B'", "A''B"),
        ("'A'+\n'B'", "A'B"),
    ],
)
def test_continuation_inside_a_value(text: str, value: str) -> None:
    """+ goes on at the first non-blank, - at the start; blanks before them stay (Q-04, Q-07)."""
    assert pattern(f"APPLNAME({text})") == value


@pytest.mark.parametrize(
    "text",
    [
        "REA+\n  SON(2053) ACTION(RETRY)",
        "REA-\nSON(2053) ACTION(RETRY)",
        "REASON+\n(2053) ACTION(RETRY)",
        "REASON(20+\n53) ACTION(RETRY)",
        "REASON(2053) +\n\n  * why\n  ACTION(RETRY)",
        "REASON(2053) -\n\n* why\nACTION(RETRY)",
        "+\nREASON(2053) ACTION(RETRY)",
        "REASON(2053) +\n+\n+\nACTION(RETRY)",
        "REASON(2053) ACTION(RETRY) +\n",
        "REASON(2053) ACTION(RETRY) -",
    ],
)
def test_continuation_between_and_inside_clauses(text: str) -> None:
    """Anywhere; comments and blank lines between are skipped (Q-03); the end takes what is."""
    assert [it.keywords()["pattern"] for it in read(text)] == [{"REASON": 2053}]


def test_continuation_by_plus_does_not_separate() -> None:
    """The joined text has a blank only if the lines have one."""
    assert errors("REASON(1)+\n  ACTION(IGNORE)\n")[0][0] == "SYNTAX"
    assert read("REASON(1)-\n  ACTION(IGNORE)\n")


def test_a_comment_is_never_continued() -> None:
    """A sign at the end of a comment is part of the comment."""
    assert len(read(f"* more to come +\n{IGNORE}* and -\n{IGNORE}")) == 2


def test_comments_start_with_an_asterisk_as_first_non_blank() -> None:
    """In column 1 or indented, with or without a blank behind it (Q-02)."""
    assert len(read(f"* a\n   * b\n\t*c(((\n{IGNORE}*ACTION(RETRY)\n")) == 1


def test_a_blank_line_ends_a_quoted_value() -> None:
    """While a quote is open lines are data, and a blank one has no continuation sign."""
    assert errors(f"APPLNAME('A+\n\nB') {IGNORE}")[0] == ("SYNTAX", 1, "APPLNAME")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("FORMAT('')", "EMPTY_VALUE"),
        ("FORMAT( )", "EMPTY_VALUE"),
        ("FORMAT()", "EMPTY_VALUE"),
        ("FORMAT( '' )", "EMPTY_VALUE"),
        ("FORMAT", "SYNTAX"),
        ("FORMAT ABC", "SYNTAX"),
        ("FORMAT(ABC", "SYNTAX"),
        ("FORMAT(", "SYNTAX"),
        ("FORMAT('ABC", "SYNTAX"),
        ("FORMAT('ABC'D)", "SYNTAX"),
        ("FORMAT('A' 'B')", "SYNTAX"),
        ("FORMAT(A'B)", "SYNTAX"),
        ("FORMAT((A))", "SYNTAX"),
        ("FORMAT=ABC", "SYNTAX"),
    ],
)
def test_values_need_a_significant_character_between_parentheses(text: str, code: str) -> None:
    """Convention 10 and the grammar: at the end of a rule and in front of another clause."""
    assert errors(f"ACTION(IGNORE) {text}\n")[0][0] == code
    if "'ABC" not in text or "'D" in text:
        assert errors(f"{text} ACTION(IGNORE)\n")[0][0] == code


@pytest.mark.parametrize("text", ["'ABC'", "ABC", "'A'", "A", "' '"])
def test_values_of_one_or_more_characters(text: str) -> None:
    """The documented valid forms."""
    assert pattern(f"FORMAT({text})") == text.strip("'")


@pytest.mark.parametrize("character", "./_%*?09AZ")
def test_characters_of_bare_values(character: str) -> None:
    """Letters, digits, period, slash, underscore, percent and the wildcards (Q-08)."""
    assert pattern(f"DESTQ(A{character}B)") == f"A{character}B"


@pytest.mark.parametrize("character", '-+=:;!"#$<>@[]^`{|}~\\(&é\x00\x0b')
def test_other_characters_need_quotes(character: str) -> None:
    """Convention 17."""
    assert errors(f"DESTQ(A{character}B) {IGNORE}")[0] == ("SYNTAX", 1, "DESTQ")
    assert pattern(f"DESTQ('A{character}B')") == f"A{character}B"


def test_lower_case_is_folded_outside_quotes_only() -> None:
    """Convention 17."""
    assert pattern("DESTQ(my.queue)") == "MY.QUEUE"
    assert pattern("DESTQ('my.queue')") == "my.queue"


def test_a_doubled_quote_is_one_character() -> None:
    """Convention 17."""
    assert pattern("APPLNAME('O''BRIEN')") == "O'BRIEN"
    assert pattern("APPLNAME('''')") == "'"


@pytest.mark.parametrize("value", ["ABCDEFGH", "A*C*E*G*I", "*A*C*E*G*I*K*M*O*", "*" * 50])
def test_asterisks_do_not_count_for_the_length(value: str) -> None:
    """The documented forms for a field of eight characters (convention 16)."""
    assert pattern(f"FORMAT('{value}')") == value


@pytest.mark.parametrize("value", ["ABCDEFGHI", "?????????", "ABCDEFGH ", "*A*C*E*G*I*K*M*O*Q"])
def test_other_characters_count_for_the_length(value: str) -> None:
    """Question marks and blanks included (convention 16)."""
    assert errors(f"FORMAT('{value}') {IGNORE}") == [("TOO_LONG", 1, "FORMAT")]


@pytest.mark.parametrize("value", ["*", "'*'"])
def test_an_asterisk_stands_for_a_whole_number(value: str) -> None:
    """Convention 14."""
    assert pattern(f"MSGTYPE({value})") == "*"


@pytest.mark.parametrize("value", ["12*", "?", "*1", "1?", "**", "'12*'", "MQMT_*"])
def test_wildcards_are_no_part_of_a_number(value: str) -> None:
    """Convention 14."""
    assert errors(f"MSGTYPE({value}) {IGNORE}") == [("BAD_VALUE", 1, "MSGTYPE")]


def test_line_ends_of_windows_are_read() -> None:
    """CR before LF belongs to the line end; a last line needs none (convention 6)."""
    text = "WAIT(NO) +\r\nRETRYINT(5)\r\n\r\n* c\r\nAPPLNAME('A-\r\n B') ACTION(IGNORE)\r"
    assert rule(text)["pattern"] == {"APPLNAME": "A B"}
    assert control(text)["RETRYINT"] == 5


def test_entries_are_known_by_their_first_line() -> None:
    """Comments and blank lines in front do not belong to the entry (Q-38)."""
    text = (
        "* a\n\nWAIT(NO) +\nRETRYINT(5)\n* b\n+\nACTION(RETRY)\n\n\nREASON(1) +\n* c\nACTION(RETRY)"
    )
    assert [it.line for it in read(text)] == [6, 10]


# --- section 5.2: order of checks, everything at once


def test_checks_run_in_order_within_an_entry() -> None:
    """Syntax, duplicates, values, combination, whatever order they stand in."""
    text = "HEADER(TRUE) PUTAUT(X) ACTION(RETRY) REASON(1) REASON(2) FWDQ(A) FOO(1)\n"
    assert errors(text) == [
        ("UNKNOWN_KEYWORD", 1, "FOO"),
        ("DUPLICATE", 1, "REASON"),
        ("BAD_VALUE", 1, "HEADER"),
        ("BAD_VALUE", 1, "PUTAUT"),
        ("COMBINATION", 1, "HEADER"),
        ("COMBINATION", 1, "FWDQ"),
    ]


def test_every_entry_with_an_error_is_reported() -> None:
    """All at once, and no table (Q-35)."""
    text = "REASON(2053)\nACTION(IGNORE)\nACTION(RETRY) RETRY(0)\nFORMAT() ACTION(FWD) FWDQ(X)\n"
    assert errors(text) == [
        ("COMBINATION", 1, "ACTION"),
        ("RANGE", 3, "RETRY"),
        ("EMPTY_VALUE", 4, "FORMAT"),
    ]
    assert parse(text).table is None


def test_what_could_not_be_read_may_hold_what_seems_to_be_missing() -> None:
    """An unknown word or a broken ACTION is one error, not two."""
    assert errors("REASON(2085) DISCARD\n") == [("UNKNOWN_KEYWORD", 1, "DISCARD")]
    assert errors("REASON(1) ACTION(FORWARD) FWDQ(X)\n") == [("BAD_VALUE", 1, "ACTION")]
    assert errors("REASON(1) ACTION()\n") == [("EMPTY_VALUE", 1, "ACTION")]
    assert errors("REASON(1) ACTION(FWD) FWDQ(A\n") == [("SYNTAX", 1, "FWDQ")]


def test_reading_goes_on_behind_every_syntax_error() -> None:
    """Each of several mistakes in one rule is found."""
    text = "REASON(2053 DESTQ(A-B) FORMAT FOO(1) BAR $X(2) MSGTYPE(x) ACTION(RETRY) RETRY(0)\n"
    assert [code for code, _, _ in errors(text)] == [
        *("SYNTAX", "SYNTAX", "SYNTAX", "UNKNOWN_KEYWORD", "UNKNOWN_KEYWORD", "SYNTAX"),
        *("BAD_VALUE", "RANGE"),
    ]


def test_only_commas_are_no_rule() -> None:
    """The grammar asks for at least one clause."""
    assert errors(f",,\n{IGNORE}") == [("SYNTAX", 1, "")]

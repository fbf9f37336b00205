"""Findings about the rules of a table together: all that are planted, and no others."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import cases_beside
from tests.rules.analysis.small_world import MESSAGES, first_rules, rules_lists, table_of
from tests.rules.reference import PlainRule, candidates

from redrive.command.message_file import parse_field
from redrive.rules import Matcher, RulesTable, parse
from redrive.rules.analysis import Search, analyse
from redrive.rules.analysis.findings import Analysis, Finding

in_table = cases_beside(__file__)
rules_with_actions = rules_lists(("DISCARD", "IGNORE", "RETRY", "RETRY"))


def findings_of(rules: Sequence[PlainRule], code: str) -> dict[int, Finding]:
    """The findings of one class by the rule that they point at."""
    return {
        finding.rule: finding
        for finding in Analysis(table_of(rules).rules).findings()
        if finding.code == code
    }


@given(rules=rules_with_actions)
def test_a_rule_is_called_unreachable_exactly_if_no_message_reaches_it(
    rules: list[PlainRule],
) -> None:
    unreachable = findings_of(rules, "UNREACHABLE")
    turns = [first_rules(rules, message) for message in MESSAGES]
    reached = {rule for turn in turns for rule in turn}
    matched = {i for i in range(len(rules)) for m in MESSAGES if candidates(rules, m) >> i & 1}
    assert not reached & set(unreachable)
    for rule in matched - reached - set(unreachable):
        # Only a longer value than any that was tried may reach it.
        keepers = sum(1 << i for i in range(rule) if rules[i].action != "RETRY")
        assert _reaches(rules, rule, keepers)
    for rule, finding in unreachable.items():
        assert candidates(rules, finding.witness) >> rule & 1
        assert rule not in first_rules(rules, dict(finding.witness))
        together = [rules[other] for other in finding.others]
        for message in MESSAGES:
            if candidates(rules, message) >> rule & 1:
                assert candidates(together, message)


def _reaches(rules: Sequence[PlainRule], rule: int, keepers: int) -> bool:
    message = Search(table_of(rules).rules).find(1 << rule, keepers)
    return message is not None and rule in first_rules(rules, dict(message))


@given(rules=rules_with_actions)
def test_no_finding_is_false(rules: list[PlainRule]) -> None:
    for finding in Analysis(table_of(rules).rules).findings():
        message = dict(finding.witness)
        turns = first_rules(rules, message)
        match finding.code:
            case "NO_CATCH_ALL":
                assert not turns
            case "NOTHING_AFTER_RETRY":
                assert turns[-1] == finding.rule
                assert rules[finding.rule].action == "RETRY"
            case "OVERLAP":
                assert_overlap(rules, finding.others[0], finding.rule, finding)
            case "IGNORE_BEFORE_RULES":
                assert turns[-1] == finding.rule
                assert_overlap(rules, finding.rule, finding.others[0], finding)
            case "UNREACHABLE":
                assert finding.rule not in turns


def assert_overlap(rules: Sequence[PlainRule], earlier: int, later: int, finding: Finding) -> None:
    """The earlier rule comes first for a message of both, and their actions differ."""
    matched = candidates(rules, finding.witness)
    assert matched >> earlier & matched >> later & 1
    assert earlier in first_rules(rules, dict(finding.witness))
    assert rules[earlier].action != rules[later].action


@given(rules=rules_with_actions)
def test_a_gap_is_told_if_there_is_one(rules: list[PlainRule]) -> None:
    if not findings_of(rules, "NO_CATCH_ALL"):
        assert all(candidates(rules, message) for message in MESSAGES)


@given(rules=rules_with_actions)
def test_a_retry_with_nothing_behind_it_is_told(rules: list[PlainRule]) -> None:
    """A RETRY rule without the note is always followed by another rule."""
    reported = findings_of(rules, "NOTHING_AFTER_RETRY")
    for message in MESSAGES:
        turns = first_rules(rules, message)
        if turns and rules[turns[-1]].action == "RETRY":
            assert turns[-1] in reported


CATCH_ALL = "ACTION(FWD) FWDQ(REST)"
HALVES = ["REPLYQ(?*) ACTION(DISCARD)", "REPLYQ(' ') ACTION(FWD) FWDQ(A)"]
RETRY = "REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(5)"


def fillers(first: int) -> st.SearchStrategy[list[str]]:
    """Rules that are in nobody's way."""
    numbers = st.lists(st.integers(first, first + 400), max_size=20, unique=True)
    return numbers.map(
        lambda them: [f"REASON({number}) DESTQ(Q{number}) ACTION(DISCARD)" for number in them]
    )


@settings(max_examples=20)
@given(before=fillers(1000), between=fillers(3000))
@in_table
def test_a_planted_finding_is_found(
    before: list[str], between: list[str], code: str, rules: str, reported: list[int]
) -> None:
    lines = rules.split("; ")
    end = [] if code == "NOTHING_AFTER_RETRY" else [CATCH_ALL]
    written = [*before, lines[0], *between, *lines[1:], *end]
    places = [written.index(lines[index]) for index in reported]
    (finding,) = (
        finding for finding in Analysis(read(written).rules).findings() if finding.code == code
    )
    assert [finding.rule, *finding.others] == places


@settings(max_examples=20)
@given(lines=fillers(1000))
def test_a_planted_gap_is_found(lines: list[str]) -> None:
    assert {"NO_CATCH_ALL", "NOTHING_AFTER_RETRY"} <= codes([RETRY, *lines, HALVES[0]])
    assert "NO_CATCH_ALL" not in codes([*lines, *HALVES])
    assert "NOTHING_AFTER_RETRY" not in codes([RETRY, *lines, CATCH_ALL])


def read(lines: Sequence[str]) -> RulesTable:
    return parse("\n".join(lines)).required()


def codes(lines: Sequence[str]) -> set[str]:
    return {finding.code for finding in Analysis(read(lines).rules).findings()}


@pytest.mark.parametrize(
    "text",
    [
        "APPLNAME('audit*') ACTION(IGNORE)\nACTION(FWD) FWDQ(REST)\n",
        "REASON(1) ACTION(RETRY)\nREASON(1) ACTION(FWD) FWDQ(A)\nACTION(FWD) FWDQ(REST)\n",
        "REASON(1) DESTQ(A) ACTION(DISCARD)\nREASON(1) ACTION(FWD) FWDQ(A)\nACTION(IGNORE)\n",
        "DESTQ(A) ACTION(DISCARD)\nDESTQ(B) ACTION(IGNORE)\nACTION(FWD) FWDQ(REST)\n",
    ],
)
def test_tables_as_they_are_written_have_no_findings(text: str) -> None:
    assert analyse(parse(text).required(), text) == ()


def test_a_finding_can_be_followed_with_explain() -> None:
    text = (
        "APPLNAME('it''s *') ACTION(DISCARD)\n"
        "APPLNAME('it''s me') REASON(MQRC_Q_FULL) ACTION(RETRY)\n"
    )
    table = parse(text).required()
    finding = next(finding for finding in analyse(table, text) if finding.code == "UNREACHABLE")
    fields = dict(map(parse_field, shlex.split(finding.witness)))
    assert fields["REASON"] == 2053
    assert Matcher(table).candidates_of(fields) == 0b11
    assert "line 1" in finding.message
    assert (finding.line, finding.entry_line, finding.source_line) == (2, 2, text.split("\n")[1])


@pytest.mark.parametrize(
    ("comment", "reported"),
    [
        ("* redrive: allow UNREACHABLE", set()),
        ("* redrive: allow LONG_LINE, UNREACHABLE: kept for next week", set()),
        ("* redrive: allow NO_CATCH_ALL", {"UNREACHABLE"}),
        ("* allow UNREACHABLE", {"UNREACHABLE"}),
    ],
)
def test_a_comment_allows_a_finding(comment: str, reported: set[str]) -> None:
    text = f"ACTION(DISCARD)\n{comment}\n\n* more\nREASON(1) ACTION(RETRY)\n"
    assert {finding.code for finding in analyse(parse(text).required(), text)} == reported


def test_a_comment_speaks_of_its_own_rule_only() -> None:
    text = (
        "ACTION(DISCARD)\nREASON(1) +\n* redrive: allow UNREACHABLE\n ACTION(RETRY)\n"
        "REASON(2) ACTION(RETRY)\n"
    )
    assert [finding.line for finding in analyse(parse(text).required(), text)] == [5]


def test_warnings_about_writing_are_allowed_in_the_same_way() -> None:
    text = "* redrive: allow FOLDED_TO_UPPER_CASE\nDESTQ(orders) ACTION(IGNORE)\n"
    assert parse(text).diagnostics == ()
    wrong = "* redrive: allow BAD_VALUE\nREASON(x) ACTION(IGNORE)\n"
    assert [finding.code for finding in parse(wrong).diagnostics] == ["BAD_VALUE"]

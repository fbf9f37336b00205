"""Tables in DIALECT(KAFKA): lists, comparisons, expressions, and messages that grow older."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rules.analysis.small_world import EDITS, edited
from tests.rules.dialect import reference
from tests.rules.dialect.reference import (
    Alternative,
    Comparison,
    Expression,
    Not,
    PlainPattern,
    PlainRule,
    Text,
)

from redrive.diagnostics import Severity
from redrive.rules import explain, parse
from redrive.rules.analysis import analyse, compare, present_fields
from redrive.rules.analysis.comparison import Comparison as Compared
from redrive.rules.analysis.findings import Analysis

Message: TypeAlias = Mapping[str, str | int]


INTERVAL = 60
"""RETRYINT of all tables here, in seconds."""

AMOUNT = "JSON($.n)"
TOPICS = [
    "".join(letters) for size in range(4) for letters in itertools.product("abX", repeat=size)
]
MESSAGES: list[dict[str, str | int]] = [
    {"TOPIC": topic, "AGE": age} | ({} if attempts is None else {"ATTEMPTS": attempts})
    for topic in TOPICS
    for age in (0, 60, 61, 120, 200)
    for attempts in (None, 0, 1, 2, 3)
] + [
    {"TOPIC": topic, "AGE": 0, AMOUNT: amount}
    for topic in TOPICS[:13]
    for amount in ("-1", "0", "0.0", "0.5", "1", "1e0", "1.5", "2", "11", "x")
]

ACTIONS = ["DISCARD", "QUARANTINE", "RETRY", "FWDT"]
numbers = st.builds(
    Comparison, st.sampled_from([">", ">=", "<", "<=", ""]), st.sampled_from([0, 1, 2])
)
ages = st.builds(Comparison, st.sampled_from([">", ">=", "<", "<="]), st.sampled_from([60, 120]))
amounts = st.builds(
    Comparison, st.sampled_from([">", ">=", "<", "<=", "="]), st.sampled_from([0, 1, 2])
) | st.sampled_from(["0", "1?", "*5", "?*", " "]).map(Text)
topics = st.text("ab*?", min_size=1, max_size=3).map(Text)
expressions = st.sampled_from(["a", "^b", "a$", "(a|b)b", "[ab]X", "a.?b"]).map(Expression)


@dataclass(frozen=True)
class TriedRule(PlainRule):
    """A rule that may be tried several times."""

    retry: int = 1


def alternatives(members: st.SearchStrategy[Alternative]) -> st.SearchStrategy[PlainPattern]:
    some = st.lists(members, min_size=1, max_size=2)
    return some | some.filter(lambda members: not any(map(_matches_anything, members))).map(Not)


def _matches_anything(alternative: Alternative) -> bool:
    return isinstance(alternative, Text) and set(alternative.text) == {"*"}


def rules_lists(*names: str) -> st.SearchStrategy[list[TriedRule]]:
    """Rules over few fields, so that they are often in each other's way."""
    fields = {
        "TOPIC": alternatives(topics | expressions if "expressions" in names else topics),
        "ATTEMPTS": alternatives(numbers),
        "AGE": alternatives(ages),
        AMOUNT: alternatives(amounts),
    }
    patterns = st.fixed_dictionaries(
        {}, optional={name: fields[name] for name in fields if name in names}
    )
    rule = st.builds(TriedRule, patterns, st.sampled_from(ACTIONS), st.integers(1, 2))
    return st.lists(rule, min_size=1, max_size=5)


def text_of(rules: Sequence[TriedRule]) -> str:
    lines = [f"DIALECT(KAFKA) RETRYINT({INTERVAL})"]
    for rule in rules:
        clauses = [
            f"{name.removesuffix(')') + ',' if '(' in name else name + '('}{_written(pattern)})"
            for name, pattern in rule.patterns.items()
        ]
        action = "ACTION(FWD) FWDT(dead)" if rule.action == "FWDT" else f"ACTION({rule.action})"
        retry = f"RETRY({rule.retry})" if rule.action in {"RETRY", "FWDT"} else ""
        lines.append(" ".join([*clauses, action, retry]))
    return "\n".join(lines)


def _written(pattern: Alternative | PlainPattern) -> str:
    match pattern:
        case Not():
            return f"NOT ({_written(pattern.alternatives)})"
        case list():
            return "|".join(map(_written, pattern))
        case Text():
            return pattern.text if pattern.text.strip() else f"'{pattern.text}'"
        case Expression():
            return f"/{pattern.text}/"
        case Comparison():
            return f"{pattern.sign}{pattern.number}"
    raise TypeError(pattern)


def fate(rules: Sequence[TriedRule], message: Message) -> tuple[list[tuple[int, str]], str]:
    """The attempts with their times and the end, asked anew for each attempt."""
    failed: Counter[int] = Counter()
    puts: list[tuple[int, str]] = []
    for seconds in itertools.count(0, INTERVAL):
        older = {**message, "AGE": int(message.get("AGE", 0)) + seconds}
        matched = reference.candidates(rules, older)
        for index, rule in enumerate(rules):
            if matched >> index & 1 and (rule.action in ACTIONS[:2] or failed[index] < rule.retry):
                break
        else:
            return puts, "remains"
        if rule.action in ACTIONS[:2]:
            return puts, rule.action
        failed[index] += 1
        puts.append((seconds, rule.action))
    raise AssertionError


def first_rule(rules: Sequence[TriedRule], message: Message) -> int | None:
    matched = reference.candidates(rules, message)
    return next(iter(index for index in range(len(rules)) if matched >> index & 1), None)


@given(rules=rules_lists("TOPIC", "ATTEMPTS", "AGE", AMOUNT, "expressions"))
def test_no_finding_is_false(rules: list[TriedRule]) -> None:
    table = parse(text_of(rules)).required()
    for finding in Analysis(table.rules).findings():
        message = present_fields(finding.witness)
        matched = reference.candidates(rules, message)
        keepers = [index for index, rule in enumerate(rules) if rule.action in ACTIONS[:2]]
        match finding.code:
            case "NO_CATCH_ALL":
                assert not matched
            case "NOTHING_AFTER_RETRY":
                puts, end = fate(rules, message)
                assert end == "remains"
                assert rules[finding.rule].action == "RETRY"
                assert puts[-1][1] == "RETRY"
            case "OVERLAP":
                (earlier,) = finding.others
                assert matched >> earlier & matched >> finding.rule & 1
                assert not any(matched >> keeper & 1 for keeper in keepers if keeper < earlier)
            case "UNREACHABLE":
                assert matched >> finding.rule & 1
                for other in (message, *MESSAGES):
                    if reference.candidates(rules, other) >> finding.rule & 1:
                        taken = reference.candidates(rules, other)
                        assert any(taken >> index & 1 for index in finding.others)


@given(rules=rules_lists("TOPIC", "ATTEMPTS", "AGE", AMOUNT))
def test_what_can_be_decided_is_told(rules: list[TriedRule]) -> None:
    findings = {
        finding.code: finding
        for finding in Analysis(parse(text_of(rules)).required().rules).findings()
    }
    first = {first_rule(rules, message) for message in MESSAGES}
    if "NO_CATCH_ALL" not in findings:
        assert None not in first
    if rules[0].action == "DISCARD" and not rules[0].patterns and len(rules) > 1:
        reported = [
            finding.rule for finding in Analysis(parse(text_of(rules)).required().rules).findings()
        ]
        matched = {i for m in MESSAGES for i in range(len(rules)) if _matches(rules[i], m)}
        assert matched - {0} <= set(reported)


def _matches(rule: TriedRule, message: Message) -> bool:
    return bool(reference.candidates([rule], message))


@given(
    old=rules_lists("TOPIC", "ATTEMPTS", "AGE", AMOUNT, "expressions"),
    other=rules_lists("TOPIC", "ATTEMPTS", "AGE", AMOUNT, "expressions"),
    place=st.integers(0, 4),
    edit=EDITS,
)
def test_equal_is_equal_and_different_is_different(
    old: list[TriedRule], other: list[TriedRule], place: int, edit: str
) -> None:
    new = edited(old, edit, place % len(old), other)
    comparison = compare(*(parse(text_of(rules)).required() for rules in (old, new)))
    if comparison.is_equal:
        assert all(fate(old, message) == fate(new, message) for message in MESSAGES)
    for difference in comparison.differences:
        message = present_fields(difference.witness)
        assert fate(old, message) != fate(new, message)


def between(old: str, new: str) -> Compared:
    return compare(*(parse(f"DIALECT(KAFKA)\n{text}").required() for text in (old, new)))


def test_a_message_that_grows_older_has_the_attempts_of_each_rule() -> None:
    old = "AGE(<1m) ACTION(RETRY) RETRY(2)\nAGE(>=1m) ACTION(RETRY) RETRY(2)"
    comparison = between(old, "ACTION(RETRY) RETRY(2)")
    assert not comparison.is_equal
    assert not comparison.is_complete or comparison.differences


def test_a_retry_is_not_followed_by_nothing_if_a_rule_waits_for_the_message_to_grow_older() -> None:
    text = "DIALECT(KAFKA)\nAGE(<=1h) ACTION(RETRY) RETRY(900)\nAGE(>1h) ACTION(DISCARD)"
    assert "NOTHING_AFTER_RETRY" not in {
        finding.code for finding in analyse(parse(text).required(), text)
    }


def test_rules_with_other_topics_overlap() -> None:
    text = (
        "DIALECT(KAFKA)\nTOPIC(a*) ACTION(FWD) FWDT(x)\nGROUP(g) ACTION(FWD) FWDT(y)\n"
        "ACTION(QUARANTINE)"
    )
    assert [finding.code for finding in analyse(parse(text).required(), text)] == ["OVERLAP"]


def test_what_is_not_decided_is_told() -> None:
    text = (
        "DIALECT(KAFKA)\nERRMSG(/a{3}|b/) ACTION(DISCARD)\n"
        "ERRMSG(/[^b]{3,}(?i)A{3}|b/) ACTION(RETRY)\nACTION(QUARANTINE)"
    )
    (note,) = analyse(parse(text).required(), text)
    assert note.code == "NOT_DECIDED"
    assert note.severity == "note"
    allowed = f"* redrive: allow NOT_DECIDED\n{text}"
    assert not analyse(parse(allowed).required(), allowed)


KAFKA = "DIALECT(KAFKA) RETRYINT(60)\n"
GROUP = "TOPIC(orders) ACTION(RETRY) TO(GROUP) RETRY(3)\n"
REPAIR = "ROOTCLASS(*.Bad) ACTION(RETRY) TRANSFORM(repair)\n"
SLOW = "TOPIC(orders) ACTION(RETRY) RETRY(5) BACKOFF(30s,2,10m)\n"
AGAIN = "TOPIC(?*) ACTION(RETRY) RETRY(3)\n"


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (GROUP + AGAIN, "to every reader of the topic"),
        (REPAIR + AGAIN, "unchanged, without TRANSFORM(repair)"),
        (SLOW + AGAIN, "after 60 s, though the last delay was 480 s"),
        (GROUP + "TOPIC(bills) ACTION(QUARANTINE)\n" + AGAIN, "to every reader of the topic"),
    ],
)
def test_a_spent_retry_that_falls_into_a_harsher_one_is_warned_of(rules: str, said: str) -> None:
    """``check`` says it of the table, and ``explain`` of a message that shows it."""
    text = KAFKA + rules
    table = parse(text).required()
    (finding,) = (finding for finding in analyse(table, text) if finding.code == "SPENT_RETRY")
    assert (finding.severity, finding.line) == (Severity.WARNING, len(text.splitlines()))
    assert said in finding.message
    every = Analysis(table.rules, table.control).findings()
    (spent,) = (finding for finding in every if finding.code == "SPENT_RETRY")
    (warning,) = explain(table, dict(spent.witness)).warnings
    assert said in warning


@pytest.mark.parametrize(
    "rules",
    [
        GROUP + "TOPIC(orders) ACTION(QUARANTINE)\n" + AGAIN,
        GROUP + "TOPIC(orders) ACTION(FWD) FWDT('dead')\n" + AGAIN,
        GROUP + "TOPIC(bills) ACTION(RETRY) RETRY(3)\n",
        GROUP + "TOPIC(?*) ACTION(RETRY) TO(GROUP) RETRY(3)\n",
        REPAIR + "TOPIC(?*) ACTION(RETRY) TRANSFORM(other)\n",
        SLOW + "TOPIC(?*) ACTION(RETRY) RETRY(3) BACKOFF(10m,1,10m)\n",
        AGAIN + GROUP,
        AGAIN + AGAIN,
        SLOW + "ACTION(QUARANTINE)\n",
        SLOW + "ROOTCLASS(*.Bad) ACTION(RETRY) RETRY(3)\n",
    ],
)
def test_retries_that_only_go_on_are_not_warned_of(rules: str) -> None:
    text = KAFKA + rules
    assert "SPENT_RETRY" not in {finding.code for finding in analyse(parse(text).required(), text)}

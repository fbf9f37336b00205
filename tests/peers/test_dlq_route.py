"""The rules of the comparison with others are the same in each form that they are written in."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from benchmarks.guard import too_slow
from benchmarks.peers import report
from benchmarks.peers.__main__ import Report
from benchmarks.peers.contestants import contestants
from benchmarks.peers.dlq_route import (
    PROFILES,
    VALUES,
    Check,
    Findings,
    Form,
    Work,
    expected,
    profiles,
    record,
    write_rules,
)
from benchmarks.peers.matchers import expression, loop, messages_of, redrive, rules_of
from benchmarks.peers.matching import STACK_TRACE, Router

from redrive.messages import read_view
from redrive.rules import Dialect, Matcher, parse, select_rule

WORKS = [Work(form, count) for form in Form for count in (20, 200)]
RECORDS = range(0, PROFILES, 37)


def _answers(work: Work) -> list[tuple[str, int]]:
    """What the reference says: target and line for each record."""
    fields = profiles(work.form, work.count)
    rules = work.rules
    chosen = [expected(rules, fields[number]) for number in RECORDS]
    return [(rule.target, rule.line) for rule in chosen]


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_rules_table_agrees_with_the_reference(work: Work) -> None:
    table = parse(work.as_table()).required()
    matcher, decisions = Matcher(table), []
    for number in RECORDS:
        fields = dict(profiles(work.form, work.count)[number])
        record = {name: int(field) if name == "REASON" else field for name, field in fields.items()}
        is_kafka = table.control.dialect is Dialect.KAFKA
        first = (
            matcher.first_of(record)
            if is_kafka
            else select_rule(table, matcher.candidates_of(record), 0)
        )
        assert first is not None
        decisions.append(table.rules[first].line)
    assert decisions == [line for _, line in _answers(work)]


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_case_in_sql_agrees_with_the_reference(work: Work) -> None:
    """The CASE gives target and line of the reference."""
    names = [f"`{name}`" for name in VALUES[work.form]]
    rows = [tuple(profiles(work.form, work.count)[number].values()) for number in RECORDS]
    with sqlite3.connect(":memory:") as database:
        database.execute("PRAGMA case_sensitive_like = ON")
        database.execute(f"CREATE TABLE records ({', '.join(names)})")
        database.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
        found = database.execute(f"SELECT {work.as_case()} FROM records ORDER BY rowid")  # noqa: S608
        answers = [text for (text,) in found]
    database.close()
    assert answers == [f"{target} {line}" for target, line in _answers(work)]


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_loop_of_the_others_agrees_with_the_reference(work: Work, tmp_path: Path) -> None:
    router, routes = Router(write_rules(work, tmp_path)), []
    for number in RECORDS:
        fields = profiles(work.form, work.count)[number]
        value, headers = record(work.form, number, fields)
        target, rule = router.route(value, [(name, raw or b"") for name, raw in headers])
        routes.append((target, int(rule)))
    assert routes == _answers(work)


def test_rules_are_used_and_one_in_ten_has_a_wildcard() -> None:
    work = Work(Form.SPRING, 200)
    fields = profiles(work.form, work.count)
    rules = work.rules
    used = {expected(rules, fields[number]).line for number in range(0, PROFILES, 3)}
    wildcards = sum(any("*" in pattern for pattern in rule.when.values()) for rule in rules)
    assert len(used) > 150
    assert wildcards == 20


@pytest.mark.parametrize("form", Form)
def test_record_is_a_dead_letter_that_redrive_reads(form: Form) -> None:
    fields = profiles(form, 20)[4]
    value, headers = record(form, 4, fields)
    view = read_view(b"k", value, headers)
    assert len(value) == 1024
    assert fields[next(iter(fields))] in str(view)
    if form is Form.SPRING:
        assert 2_000 < len(dict(headers)[STACK_TRACE] or b"") < 3_000


def test_contestants_name_their_versions() -> None:
    assert all(
        contestant.versions and contestant.name == name
        for name, contestant in contestants().items()
    )


def test_order_of_headers_is_told_apart_from_changed_headers() -> None:
    work = Work(Form.SPRING, 20)
    check = Check(work, "dlq.in", 10)
    fields = profiles(work.form, work.count)[3]
    rule = expected(work.rules, fields)
    value, headers = record(work.form, 3, fields)
    kept = [header for header in headers if header[0] != STACK_TRACE]
    added = [("redrive.rule", b"%d" % rule.line), ("redrive.id", b"dlq.in:3:0")]
    for given, kind in (
        ([*kept, *added], ""),
        ([*reversed(kept), *added], "reordered"),
        ([*kept[1:], *added], "changed"),
    ):
        findings = Findings()
        check.compare(findings, 3, Message(rule.target, value, given), 0)
        assert findings.example.partition(":")[0] == kind
        assert findings.reordered + findings.changed == bool(kind)


class Message(NamedTuple):
    """What the check asks of a record."""

    on: str
    body: bytes
    given: Any

    def topic(self) -> str:
        return self.on

    def key(self) -> bytes:
        return b"k3"

    def value(self) -> bytes:
        return self.body

    def headers(self) -> Any:
        return self.given


def test_page_of_performance_has_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = report.PAGE.read_text("utf-8")
    (page := tmp_path / "performance.md").write_text(shown, "utf-8")
    results = report.PAGE.parents[1] / "benchmarks" / "results"
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr(report, "PICTURES", tmp_path / "performance")
    report.write_page(results)
    assert page.read_text("utf-8") == shown


def test_ratio_below_the_tolerance_is_named() -> None:
    kept = {"job": 1.0, "matcher": 10.0}
    assert too_slow({"job": 0.8, "matcher": 30.0}, kept) == []
    (line,) = too_slow({"job": 0.8, "matcher": 7.0}, kept)
    assert line.startswith("matcher: 7.0, kept 10.0")


def test_report_keeps_what_was_measured_before(tmp_path: Path) -> None:
    file, work = tmp_path / "peers.json", Work(Form.SPRING, 20)
    Report(file, {"cores": 2}).put("sets", work, {"name": "a", "runs": [1]})
    again = Report(file, {"cores": 2})
    again.put("sets", work, {"name": "b", "runs": []})
    again.put("sets", Work(Form.SPRING, 200), {"name": "a", "runs": []})
    again.put("sets", work, {"name": "a", "runs": [2]})
    sets = json.loads(file.read_text())["sets"]
    assert [rule_set["rules"] for rule_set in sets] == [200, 20]
    assert {contestant["name"]: contestant["runs"] for contestant in sets[1]["contestants"]} == {
        "a": [2],
        "b": [],
    }


@pytest.mark.parametrize("percent", [0, 10, 100])
def test_matchers_agree_on_the_first_rule(percent: int) -> None:
    rules = rules_of(100, percent)
    messages = messages_of(rules)[:500]
    answers = [first(rules, messages, 0.0)[1] for first in (redrive, expression, loop)]
    assert answers[0] == answers[1] == answers[2]
    assert len(set(answers[0])) > 50

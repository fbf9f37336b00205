"""``redrive check`` as a person or a program uses it."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path

import pytest
from tests.commands import redrive
from tests.configurations import write_settings

from redrive.command.check import FORMATS, FileFindings
from redrive.diagnostics import Severity, SourceLocation
from redrive.errors import EnvironmentFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.settings import read_settings
from redrive.streaming.topics import own_topics

GOOD = "REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(5)\nACTION(FWD) FWDQ(REALLY.DEAD.QUEUE)\n"


check = partial(redrive, "check")


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.rul"
    path.write_text(GOOD)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.rul"
    path.write_text("REASON(MQRC_Q_FUL) ACTION(RETRY)\nACTION(FWD)\n")
    return path


def test_a_good_table_has_nothing_to_report(good: Path) -> None:
    """Exit code 0, one line."""
    result = check(good, code=0)
    assert result.output == f"{good}: rules table, 2 rules: nothing to report\n"


def test_every_error_is_shown_with_its_place(bad: Path) -> None:
    """Exit code 1; location, the line, a caret, a hint; and the sum."""
    result = check(bad, code=1)
    assert f"{bad}:1:8: error: no constant of MQ" in result.output
    assert "           ^~~~~~~~~~\n" in result.output
    assert "hint: did you mean MQRC_Q_FULL" in result.output
    assert f"{bad}: rules table: 2 errors\n" in result.output


@pytest.mark.parametrize("arguments", [(), ("-c", "redrive.toml")])
def test_settings_are_found_or_named_as_by_other_commands(
    folder: Path, arguments: tuple[str, ...]
) -> None:
    write_settings(folder, handlers={"orders": "orders.dlq"}, rules=GOOD)
    output = check(*arguments, code=0).output
    assert re.search(r"redrive.toml: settings, own topics with .*: nothing to report", output)


def test_silent_broker_is_asked_once_and_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Connection] = []

    def opened(connection: Connection, **_: float) -> Cluster:
        asked.append(connection)
        raise EnvironmentFault("no broker answered")

    monkeypatch.setattr(Cluster, "open", opened)
    rules = "DIALECT(KAFKA)\nACTION(FWD) FWDT('late')\n"
    write_settings(folder, handlers={"orders": "orders.dlq"}, rules=rules)
    assert (
        "note: not checked: which applications handle the same topics and how long the targets of"
        " rules keep records: no broker answered\n"
    ) in check("--fail-on", "note", code=0).stderr
    assert len(asked) == 1
    assert check("--quiet", code=0).output == ""


@pytest.mark.parametrize(
    ("clause", "more"), [("", 0), ("BACKOFF(1s,2,1m)", 96), ("BACKOFF(1s,2,1m)", 192)]
)
def test_settings_say_what_own_topics_take(folder: Path, clause: str, more: int) -> None:
    """Sixteen partitions for each one of a dead-letter topic, once its table has a BACKOFF."""
    rules = f"DIALECT(KAFKA)\nACTION(RETRY) RETRY(3) {clause}\nACTION(QUARANTINE)\n"
    handlers = {f"h{number}": f"dlq-{number}" for number in range(max(1, more // 96))}
    write_settings(folder, handlers=handlers, rules=rules)
    job = read_settings(Path("redrive.toml")).job
    common = 3 * 6 * len(handlers) + sum(topic.partitions for topic in own_topics(job, {}))
    expected = f"own topics with {common + more} partitions if its topics have 6: "
    assert expected in check(code=0).output


def test_a_folder_without_settings_needs_a_file(folder: Path) -> None:
    assert "there is no redrive.toml here" in check(code=2).output


def test_several_files_are_all_checked(good: Path, bad: Path) -> None:
    result = check(bad, good, code=1)
    assert f"{bad}: rules table: 2 errors" in result.output
    assert f"{good}: rules table, 2 rules" in result.output


@pytest.fixture
def warned(tmp_path: Path) -> Path:
    path = tmp_path / "warned.rul"
    path.write_text("REASON(1) ACTION(RETRY)\n")
    return path


@pytest.mark.parametrize(
    ("fail_on", "code", "shown"), [("error", 0, 0), ("warning", 1, 1), ("note", 1, 2)]
)
def test_what_fails_the_check_is_a_choice(
    warned: Path, fail_on: str, code: int, shown: int
) -> None:
    """The table has a warning and a note; --quiet shows what fails."""
    check("--fail-on", fail_on, warned, code=code)
    assert "1 warning, 1 note\n" in check("--fail-on", fail_on, warned).output
    quiet = check("--fail-on", fail_on, "--quiet", warned)
    assert (quiet.exit_code, quiet.output.count(f"{warned}:")) == (code, shown)


def test_annotations_for_github(bad: Path) -> None:
    """One line for each finding, what would end a part of it escaped."""
    lines = check("--format", "github", bad).output.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"::error file={bad},line=1,col=8,title=BAD_VALUE::no constant of")
    assert "%0A" in next(iter(FORMATS["github"]([FileFindings("a", "", [TWO_LINES])])))


TWO_LINES = SourceLocation("a:b,c", 1).finding(Severity.NOTE, "CODE", "one\ntwo")


def test_places_for_code_scanning(bad: Path) -> None:
    """SARIF: level, rule, and the place with columns that count characters."""
    log = json.loads(check("--format", "sarif", bad).output)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["BAD_VALUE", "COMBINATION"]
    first = run["results"][0]
    assert (first["ruleId"], first["level"]) == ("BAD_VALUE", "error")
    (location,) = first["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": str(bad)},
        "region": {"startLine": 1, "startColumn": 8, "endColumn": 18},
    }


def test_the_place_of_code_scanning_is_a_reference(tmp_path: Path) -> None:
    """A name with blanks or a colon is a URI reference all the same."""
    path = tmp_path / "a: b.rul"
    path.write_text("ACTION(FWD)\n")
    log = json.loads(check("--format", "sarif", path).output)
    (result,) = log["runs"][0]["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri.endswith("/a%3A%20b.rul")


def test_a_file_that_is_named_twice_is_checked_once(bad: Path) -> None:
    twice = check(bad, bad.parent / ".." / bad.parent.name / bad.name)
    assert twice.output == check(bad).output


def test_annotations_have_no_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "evil\x1b[2J.rul"
    path.write_text("REASON('\x1b') ACTION(RETRY)\n")
    assert "\x1b" not in check("--format", "github", path).output


def test_control_characters_never_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "evil\x1b[2J.rul"
    path.write_text("REASON('\x1b[31m\x9b\u202e') ACTION(RETRY)\n")
    result = check(path, code=1)
    assert not set(result.output) & {"\x1b", "\x9b", "\u202e"}
    assert "REASON('\u241b[31m\ufffd\ufffd')" in result.output


@pytest.mark.parametrize("order", [["orders.rul", "redrive.toml"], ["redrive.toml", "orders.rul"]])
def test_a_finding_is_told_once(folder: Path, order: list[str]) -> None:
    write_settings(folder, "orders.dlq", rules="REASON(1) ACTION(RETRY)\n")
    for arguments in (["redrive.toml"], order):
        problems = [
            finding["code"]
            for load in json.loads(check("--json", *arguments).stdout)
            for finding in load["findings"]
        ]
        assert sorted(problems) == ["NOTHING_AFTER_RETRY", "NO_CATCH_ALL"]


@pytest.mark.parametrize("allowed", ["true", "false"])
def test_check_and_run_agree_about_authority(folder: Path, allowed: str) -> None:
    """PUTAUT(CTX) is refused unless the settings say otherwise; without settings it is."""
    allow = f"[job]\nallow_context_authority = {allowed}\n"
    write_settings(folder, "orders.dlq", rules="ACTION(RETRY) PUTAUT(CTX)\n", more=allow)
    check("orders.rul", code=1)
    assert "CONTEXT_AUTHORITY" in check("orders.rul").output
    for files in (["redrive.toml"], ["orders.rul", "redrive.toml"]):
        assert check(*files).exit_code == (0 if allowed == "true" else 1)


def test_standard_input_can_be_checked() -> None:
    result = check("-", typed="FOO(1) ACTION(IGNORE)\n", code=1)
    assert "<stdin>:1:1: error" in result.output


def test_the_input_queue_may_be_given(good: Path) -> None:
    """What INPUTQ does not say the command line can."""
    check("--input-queue", "REALLY.DEAD.QUEUE", good, code=1)
    check("--input-queue", "OTHER", good, code=0)


def test_lenient_accepts_what_zos_reads() -> None:
    text = "REASON(1)ACTION(RETRY)\nACTION(IGNORE)\n"
    check("-", typed=text, code=1)
    check("--lenient", "-", typed=text, code=0)


def test_findings_as_json(bad: Path) -> None:
    """Every member of a finding, for programs."""
    (document,) = json.loads(check("--json", bad).output)
    assert document["file"] == str(bad)
    first, second = document["findings"]
    assert (first["code"], first["line"], first["column"]) == ("BAD_VALUE", 1, 8)
    assert (second["code"], second["subject"], second["severity"]) == (
        "COMBINATION",
        "FWDQ",
        "error",
    )


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    """Exit code 2, and what to do."""
    result = check(tmp_path / "none.rul", code=2)
    assert "cannot be read" in result.output
    assert "hint:" in result.output


MQSC = """* QM1
DEFINE QLOCAL(DLQ)
DEFINE QLOCAL(GOOD)
DEFINE QALIAS(BACK) TARGET(DLQ)
DEFINE QLOCAL(SHUT) PUT(DISABLED)
"""
TARGETS = """INPUTQ(DLQ)
REASON(1) ACTION(FWD) FWDQ(GOOD)
REASON(2) ACTION(FWD) FWDQ(BACK)
REASON(3) ACTION(FWD) FWDQ(NONE)
DESTQ(SHUT) DESTQM(' ') ACTION(RETRY)
DESTQ('A*') ACTION(FWD) FWDQ(&DESTQ)
* redrive: allow TARGET_FAILS
REASON(4) ACTION(FWD) FWDQ(GOOD) FWDQM(QM9)
ACTION(IGNORE)
"""


def test_puts_of_rules_are_followed_through_a_topology(folder: Path) -> None:
    Path("QM1.mqsc").write_text(MQSC)
    Path("dlq.rul").write_text(TARGETS)
    documents = json.loads(check("--json", "dlq.rul", "QM1.mqsc").output)
    problems = {
        finding["line"]: (finding["code"], finding["witness"], finding["message"])
        for finding in documents[0]["findings"]
        if finding["code"] in {"TARGET_FAILS", "COMES_BACK"}
    }
    assert sorted(problems) == [3, 4, 5]
    assert problems[3][:2] == ("COMES_BACK", "DESTQ=OTHER REASON=2")
    assert "DLQ@QM1" in problems[3][2]
    assert "2085" in problems[4][2]
    assert problems[5][1] == "DESTQ=SHUT REASON=MQRC_UNKNOWN_OBJECT_NAME"
    assert "2051" in problems[5][2]

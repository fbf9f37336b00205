"""``redrive test``: tests of a table that stand beside it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from tests.commands import redrive

TABLE = """RETRYINT(60)
REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(5)
DESTQ('quotes.*') ACTION(DISCARD)
REASON(2035) ACTION(FWD) FWDQ('security.manual') FWDQM(QM2)
"""
TESTS = """# what must hold
table: orders.rul
tests:
  - name: a full queue is tried again
    message: {REASON: MQRC_Q_FULL, DESTQ: billing}
    expect:   # all of it
      - {rule: 2, action: RETRY, target: billing, header: false, at: 0, attempts: 5}
      - {action: REMAINS, at: 240}

  - name: old quotes are discarded
    message:
      DESTQ: quotes.old
    expect: [{action: DISCARD}]   # whatever the rule
# the end
"""


run = partial(redrive, "test")


@pytest.fixture(autouse=True)
def folder(folder: Path) -> Path:
    (folder / "orders.rul").write_text(TABLE)
    (folder / "t.yaml").write_text(TESTS)
    return folder


def test_expectations_that_hold_pass(folder: Path) -> None:
    result = run("t.yaml")
    assert (result.exit_code, result.output) == (0, "t.yaml: 2 passed\n")
    assert folder.joinpath("t.yaml").read_text() == TESTS


def test_a_failure_shows_both_sides(folder: Path) -> None:
    (folder / "orders.rul").write_text(TABLE.replace("RETRY(5)", "RETRY(3)"))
    result = run("t.yaml", code=1)
    assert result.output == (
        "t.yaml:4:11: failed: a full queue is tried again\n"
        "    message: DESTQ=billing REASON=MQRC_Q_FULL\n"
        "    - rule 2, action RETRY, target billing, header no, at 0, attempts 5\n"
        "    + rule 2, action RETRY, target billing, header no, attempts 3, at 0\n"
        "    - action REMAINS, at 240\n"
        "    + action REMAINS, at 120\n"
        "t.yaml: 1 passed, 1 failed\n"
    )
    (document,) = json.loads(run("--json", "t.yaml").output)
    assert [test["passed"] for test in document["tests"]] == [False, True]


def test_update_writes_what_is_and_leaves_the_rest(folder: Path) -> None:
    (folder / "orders.rul").write_text(TABLE.replace("RETRY(5)", "RETRY(3)"))
    assert run("--update", "t.yaml").output == "t.yaml: 1 expectation written\n"
    assert (folder / "t.yaml").read_text() == TESTS.replace(
        "expect:   # all of it", "expect:"
    ).replace(
        "header: false, at: 0, attempts: 5}\n      - {action: REMAINS, at: 240}",
        "header: false, attempts: 3, at: 0}\n      - {action: REMAINS, at: 120}",
    )
    run("t.yaml", code=0)


def test_update_writes_a_first_expectation(folder: Path) -> None:
    more = "  - name: security is for people\n    message:\n      REASON: 2035\n"
    (folder / "t.yaml").write_text(TESTS.replace("# the end", more + "# the end"))
    assert "no steps are expected yet" in run("t.yaml").output
    run("--update", "t.yaml", code=0)
    assert (folder / "t.yaml").read_text() == TESTS.replace(
        "# the end",
        more
        + "    expect:\n      - {rule: 4, action: FWD, target: security.manual@QM2, header: true,"
        " attempts: 1, at: 0}\n      - {action: REMAINS, at: 0}\n# the end",
    )
    run("t.yaml", code=0)


def test_a_message_may_be_a_file(folder: Path) -> None:
    (folder / "m.json").write_text('{"md": {}, "dlh": {"Reason": 1, "DestQName": "quotes.x"}}')
    text = TESTS.replace("message:\n      DESTQ: quotes.old", "message: m.json")
    (folder / "t.yaml").write_text(text)
    run("t.yaml", code=0)


@pytest.mark.parametrize(
    ("old", "new", "told", "code"),
    [
        ("table: orders.rul", "tabel: orders.rul", "did you mean table?", 1),
        ("action: DISCARD", "action: THROW", "one of RETRY, FWD", 1),
        ("orders.rul", "none.rul", "cannot be read", 2),
        ("message:\n      DESTQ: quotes.old", "message: gone.json", "t.yaml:10:11: gone.json", 2),
        ("REASON: MQRC_Q_FULL", "REASN: MQRC_Q_FULL", "t.yaml:4:11: REASN", 2),
        ("tests:", "tests: [", "t.yaml:4", 1),
    ],
)
def test_mistakes_are_told_with_their_place(
    folder: Path, old: str, new: str, told: str, code: int
) -> None:
    (folder / "t.yaml").write_text(TESTS.replace(old, new))
    result = run("t.yaml")
    assert (result.exit_code, told in result.output) == (code, True), result.output


def test_a_test_in_braces_is_not_updated(folder: Path) -> None:
    text = "table: orders.rul\ntests:\n  - {name: x, message: {REASON: 1}}\n"
    (folder / "t.yaml").write_text(text)
    result = run("--update", "t.yaml", code=2)
    assert "separate lines" in result.output
    assert (folder / "t.yaml").read_text() == text


KAFKA = """DIALECT(KAFKA)
TOPIC(orders) ACTION(QUARANTINE)
"""


def test_a_message_in_a_file_has_the_fields_of_the_dialect(folder: Path) -> None:
    (folder / "orders.rul").write_text(KAFKA)
    headers = {"__connect.errors.topic": "orders", "__connect.errors.connector.name": "c"}
    (folder / "m.json").write_text(json.dumps({"headers": headers, "value": "x"}))
    (folder / "t.yaml").write_text(
        "table: orders.rul\ntests:\n  - name: orders stay\n    message: m.json\n"
    )
    run("--update", "t.yaml", code=0)
    assert "action: QUARANTINE" in (folder / "t.yaml").read_text()
    assert run("t.yaml").output == "t.yaml: 1 passed\n"


def test_a_file_that_is_no_dead_letter_is_told(folder: Path) -> None:
    (folder / "m.json").write_text('{"headers": {}, "value": "x"}')
    (folder / "t.yaml").write_text("table: orders.rul\ntests:\n  - name: it\n    message: m.json\n")
    result = run("t.yaml", code=2)
    assert "m.json is not a dead letter" in result.output


def test_an_update_keeps_line_ends_and_reads_what_a_table_may_be_written_in(folder: Path) -> None:
    text = TESTS.replace("at: 240", "at: 1").replace("\n", "\r\n")
    (folder / "t.yaml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    run("--update", "t.yaml", code=0)
    written = (folder / "t.yaml").read_bytes()
    assert written.count(b"\r\n") == written.count(b"\n")
    run("t.yaml", code=0)

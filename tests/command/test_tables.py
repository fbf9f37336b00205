"""``redrive diff`` and ``redrive fmt`` as a person or a build uses them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands import redrive

OLD = "REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(5)\nACTION(FWD) FWDQ(REST)\n"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.rul"
    path.write_text(OLD)
    return path


def test_tables_of_equal_meaning_are_equal(old: Path, tmp_path: Path) -> None:
    """Exit code 0, whatever the text."""
    new = tmp_path / "new.rul"
    new.write_text("* c\nreason(2053) ACTION(RETRY) RETRY(5)\nREASON(*) ACTION(FWD) FWDQ('REST')\n")
    result = redrive("diff", old, new)
    assert (result.exit_code, result.output) == (
        0,
        "equal: both tables treat every message the same\n",
    )


def test_a_difference_is_shown_by_a_message(old: Path, tmp_path: Path) -> None:
    """Exit code 1; what both tables make of it, with the lines of their rules."""
    new = tmp_path / "new.rul"
    new.write_text("RETRYINT(30)\n" + OLD.replace("RETRY(5)", "RETRY(2)"))
    result = redrive("diff", old, new, code=1)
    assert result.output == (
        "RETRYINT: 60 becomes 30\n"
        "a message such as DESTQ=OTHER REASON=MQRC_Q_FULL\n"
        "    old: put to OTHER, without header, 5 attempts; then put to REST, with header;"
        " then remains (lines 1, 2)\n"
        "    new: put to OTHER, without header, 2 attempts; then put to REST, with header;"
        " then remains (lines 2, 3)\n"
    )
    document = json.loads(redrive("diff", "--json", old, new).output)
    assert (document["equal"], document["complete"]) == (False, True)
    assert document["differences"][0]["new"]["puts"][0]["attempts"] == 2


def test_a_table_with_errors_is_not_compared(old: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.rul"
    new.write_text("FOO\n")
    redrive("diff", old, new, code=1)
    redrive("diff", old, tmp_path / "none.rul", code=2)


def test_fmt_rewrites_what_is_not_formatted(tmp_path: Path) -> None:
    path = tmp_path / "orders.rul"
    path.write_bytes(b"* \xe4\r\nreason(2053)   ACTION(RETRY)\r\n")
    path.chmod(0o640)
    redrive("fmt", "--check", path, code=1)
    assert redrive("fmt", path).output == f"{path}: formatted\n"
    assert path.read_bytes() == b"* \xe4\r\nREASON(MQRC_Q_FULL) ACTION(RETRY)\r\n"
    assert path.stat().st_mode & 0o777 == 0o640
    redrive("fmt", "--check", path, code=0)
    assert not redrive("fmt", path).output
    assert [path.name for path in tmp_path.iterdir()] == ["orders.rul"]


def test_fmt_is_a_filter_too() -> None:
    assert redrive("fmt", "-", typed="action(ignore)").output == "ACTION(IGNORE)\n"


def test_fmt_leaves_a_table_with_errors_alone(tmp_path: Path) -> None:
    """Exit code 1 with the findings; a file that is not there is 2."""
    path = tmp_path / "orders.rul"
    path.write_text("FOO\n")
    redrive("fmt", path, code=1)
    assert path.read_text() == "FOO\n"
    redrive("fmt", tmp_path / "none.rul", code=2)

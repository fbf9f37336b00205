"""``redrive check`` as a person or a program uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from redrive.command import main

GOOD = "REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(5)\nACTION(FWD) FWDQ(REALLY.DEAD.QUEUE)\n"


def check(*arguments: str | Path, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["check", *map(str, arguments)], input=text)


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
    result = check(good)
    assert result.exit_code == 0
    assert result.output == f"{good}: rules table, 2 rules: nothing to report\n"


def test_every_error_is_shown_with_its_place(bad: Path) -> None:
    """Exit code 1; location, the line, a caret, a hint; and the sum."""
    result = check(bad)
    assert result.exit_code == 1
    assert f"{bad}:1:8: error: no constant of MQ" in result.output
    assert "           ^~~~~~~~~~\n" in result.output
    assert "hint: did you mean MQRC_Q_FULL" in result.output
    assert f"{bad}: rules table: 2 errors\n" in result.output


def test_several_files_are_all_checked(good: Path, bad: Path) -> None:
    """One bad file does not hide the others."""
    result = check(bad, good)
    assert result.exit_code == 1
    assert f"{bad}: rules table: 2 errors" in result.output
    assert f"{good}: rules table, 2 rules" in result.output


def test_warnings_are_findings(tmp_path: Path) -> None:
    """Exit code 1 for what is legal but suspicious."""
    path = tmp_path / "warned.rul"
    path.write_text("REASON(1) ACTION(RETRY)\n")
    assert check(path).exit_code == 1
    assert "1 warning" in check(path).output


def test_standard_input_can_be_checked() -> None:
    """A table need not be in a file."""
    result = check("-", text="FOO(1) ACTION(IGNORE)\n")
    assert result.exit_code == 1
    assert "<stdin>:1:1: error" in result.output


def test_the_input_queue_may_be_given(good: Path) -> None:
    """What INPUTQ does not say the command line can."""
    assert check("--input-queue", "REALLY.DEAD.QUEUE", good).exit_code == 1
    assert check("--input-queue", "OTHER", good).exit_code == 0


def test_lenient_accepts_what_zos_reads() -> None:
    """Clauses without a separator."""
    text = "REASON(1)ACTION(RETRY)\nACTION(IGNORE)\n"
    assert check("-", text=text).exit_code == 1
    assert check("--lenient", "-", text=text).exit_code == 0


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
    result = check(tmp_path / "none.rul")
    assert result.exit_code == 2
    assert "cannot be read" in result.output
    assert "hint:" in result.output

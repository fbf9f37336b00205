"""A demo leaves nothing behind, and keeps its output apart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from redrive.demo.environment import folder_for, output_to
from redrive.errors import UsageError


def _fail() -> None:
    raise ValueError


def test_a_folder_of_its_own_goes_whatever_happens() -> None:
    """On errors too."""
    with pytest.raises(ValueError), folder_for(None) as folder:  # noqa: PT011, PT012
        (folder / "data").write_text("x")
        _fail()
    assert not folder.exists()


def test_a_folder_that_was_asked_for_stays(tmp_path: Path) -> None:
    """And is made."""
    with folder_for(tmp_path / "a" / "b") as folder:
        (folder / "data").write_text("x")
    assert (tmp_path / "a" / "b" / "data").exists()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    """Two demos on one broker would count each other's messages."""
    (tmp_path / "something").touch()
    with pytest.raises(UsageError, match="is not empty"), folder_for(tmp_path):
        _fail()
    with pytest.raises(UsageError, match="cannot be used"), folder_for(tmp_path / "something"):
        _fail()


def test_output_goes_to_the_log_and_comes_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also what is written past Python, as Java does; the picture goes to standard error."""
    with output_to(tmp_path / "log") as stream:
        os.write(1, b"from one\n")
        os.write(2, b"from two\n")
        stream.write("picture\n")
    os.write(1, b"result\n")
    assert (tmp_path / "log").read_text() == "from one\nfrom two\n"
    assert capfd.readouterr() == ("result\n", "picture\n")

"""The archive of Spark's classes: where it is, when it is used, and what a failed run leaves."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from redrive.errors import EnvironmentFault
from redrive.java import Java
from redrive.streaming import class_archive
from redrive.streaming.class_archive import archive_options, archive_path, make_archive

JAVA = Java(home=Path("java-home"), version=21, origin="PATH")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for each test, and the Java of this module."""
    monkeypatch.setenv("REDRIVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(class_archive, "find_java", lambda: JAVA)
    return tmp_path / "cache"


def train_with(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a shell script do the training run; ``$3`` is the file that it has to write."""
    program = folder / "train"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))


def files_below(folder: Path) -> list[Path]:
    """Files but the lock, which stays."""
    return [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]


def test_an_archive_holds_for_one_java_and_one_installation(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another Java, another place of it or other jars of pyspark have an archive of their own."""
    path = archive_path(JAVA)
    assert path.is_relative_to(cache)
    assert path == archive_path(replace(JAVA, origin="JAVA_HOME"))
    others = {archive_path(replace(JAVA, version=17)), archive_path(replace(JAVA, home=Path()))}
    monkeypatch.setattr(class_archive, "_LIBRARY", Path("another", "installation"))
    others.add(archive_path(JAVA))
    assert len(others - {path}) == 3


def test_java_is_told_of_an_archive_that_exists_only() -> None:
    """Without an archive there are no options; with one they name it, and quote its path."""
    path = archive_path(JAVA)
    assert not archive_options(JAVA)
    path.parent.mkdir(parents=True)
    path.touch()
    assert f'"-XX:SharedArchiveFile={path}"' in archive_options(JAVA)


def test_a_training_run_makes_the_archive_once(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the run wrote is the archive; as soon as it is there, nothing is run any more."""
    train_with('echo "$2" > "$3"', tmp_path, monkeypatch)
    path = make_archive()
    assert path == archive_path(JAVA)
    assert path.read_text() == "redrive.streaming.class_archive\n"
    assert files_below(cache) == [path]
    train_with("exit 1", tmp_path, monkeypatch)
    assert make_archive() == path


def test_a_failed_training_run_tells_its_last_lines_and_leaves_no_file(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end says what went wrong, and the next start of Spark is one without an archive."""
    train_with("printf 'one\\ntwo\\nthree\\nfour\\n' >&2; exit 1", tmp_path, monkeypatch)
    with pytest.raises(EnvironmentFault, match=r"could be made: two\nthree\nfour$"):
        make_archive()
    assert files_below(cache) == []
    assert not archive_options(JAVA)


def test_half_an_archive_of_a_failed_run_is_none(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is there when the run fails is not taken for its result."""
    train_with('echo half > "$3"; exit 3', tmp_path, monkeypatch)
    with pytest.raises(EnvironmentFault, match="exit code 3"):
        make_archive()
    assert files_below(cache) == []


def test_a_training_run_that_takes_too_long_is_given_up(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed, and the fault says how long it was waited for."""
    train_with("exec sleep 600", tmp_path, monkeypatch)
    monkeypatch.setattr(class_archive, "_PATIENCE", 0.1)
    with pytest.raises(EnvironmentFault, match=r"it took longer than 0\.1 s"):
        make_archive()
    assert files_below(cache) == []


def test_what_an_earlier_run_left_unfinished_is_no_archive(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of a run that was killed is removed before the next one, not taken for its result."""
    left = archive_path(JAVA).with_suffix(".new")
    left.parent.mkdir(parents=True)
    left.write_text("half")
    train_with("exit 1", tmp_path, monkeypatch)
    with pytest.raises(EnvironmentFault):
        make_archive()
    assert files_below(cache) == []

"""The archive of Spark's classes: where it is, when it is used, and what a failed run leaves."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redrive.errors import EnvironmentFault
from redrive.java import Java, find_java
from redrive.streaming import class_archive
from redrive.streaming.class_archive import archive_options, archive_path, make_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = Java(home=Path("java-home"), version=21, origin="PATH", release="21.0.8")


@pytest.fixture(autouse=True)
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The jars, the first two of them pyspark's."""
    found = [tmp_path / "pyspark" / name for name in ("a.jar", "b.jar")]
    found.append(tmp_path / "kafka.jar")
    found[0].parent.mkdir()
    for jar in found:
        jar.write_bytes(b"classes")
    monkeypatch.setattr(class_archive, "jar_files", lambda _: found[2:])
    monkeypatch.setattr(class_archive, "_pyspark_jars", lambda: found[0].parent)
    return found


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


def test_an_archive_holds_for_one_java_and_one_set_of_files(
    cache: Path, jars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java would silently leave out one that was made with an earlier Java, or with other jars."""
    path = archive_path(JAVA)
    assert path.is_relative_to(cache)
    assert path == archive_path(replace(JAVA, origin="JAVA_HOME"))
    others = {
        archive_path(replace(JAVA, release="21.0.9")),
        archive_path(replace(JAVA, home=Path())),
    }
    os.utime(jars[0], (0, 0))
    others.add(archive_path(JAVA))
    jars[1].unlink()
    others.add(archive_path(JAVA))
    jars[2].write_bytes(b"more classes")
    others.add(archive_path(JAVA))
    jars[2] = jars[2].rename(jars[2].with_name("elsewhere.jar"))
    monkeypatch.setattr(class_archive, "jar_files", lambda _: jars[2:])
    others.add(archive_path(JAVA))
    assert len(others - {path}) == 6


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system has no /proc")
def test_java_uses_the_archive_that_the_set_up_made(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the memory of the Java that runs Spark."""
    monkeypatch.undo()
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    archive = archive_path(find_java())
    assert str(archive) in Path(f"/proc/{process.pid}/maps").read_text()


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


def test_a_new_archive_replaces_that_of_the_same_installation_only(
    tmp_path: Path, cache: Path, jars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive has 150 MB, and nothing uses one whose jars have changed."""
    train_with('echo "$2" > "$3"', tmp_path, monkeypatch)
    elsewhere = archive_path(replace(JAVA, home=Path("another")))
    make_archive()
    elsewhere.touch()
    os.utime(jars[0], (0, 0))
    newest = make_archive()
    assert set(files_below(cache)) == {newest, elsewhere}


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

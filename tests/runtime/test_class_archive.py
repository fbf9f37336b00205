"""Archives of classes: where they are, when they are used, and what a failed run leaves."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from redrive.broker import EmbeddedBroker
from redrive.broker.kafka_programs import broker_archive
from redrive.errors import EnvironmentFault
from redrive.java import ClassArchive, Java, find_java

Train: TypeAlias = Callable[[str], None]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system has no /proc")
def test_the_broker_uses_the_archive_that_the_set_up_made(broker: EmbeddedBroker) -> None:
    maps = Path(f"/proc/{broker.status().pid}/maps").read_text()
    assert str(broker_archive(find_java()).path) in maps


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    """An archive of two jars, in a cache of its own."""
    monkeypatch.setenv("REDRIVE_CACHE", str(tmp_path / "cache"))
    jars = [tmp_path / "a.jar", tmp_path / "b.jar"]
    for jar in jars:
        jar.write_bytes(b"classes")
    java = Java(home=Path("java-home"), version=21, origin="PATH", release="21.0.8")
    return ClassArchive("Spark", java, jars, installation=tmp_path, training="training")


@pytest.fixture
def train_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Let a shell script do the training run; ``$3`` is the file that it has to write."""
    program = tmp_path / "train"
    monkeypatch.setattr(sys, "executable", str(program))

    def write(script: str) -> None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)

    return write


def archive_files(archive: ClassArchive) -> set[Path]:
    """Files beside an archive but the lock, which stays."""
    return {path for path in archive.path.parent.iterdir() if path.name != ".lock"}


def test_an_archive_holds_for_one_java_and_one_set_of_files(
    archive: ClassArchive, tmp_path: Path
) -> None:
    path, (first, second) = archive.path, archive.jars
    assert path.is_relative_to(tmp_path / "cache")
    others = {
        replace(archive, java=replace(archive.java, release="21.0.9")).path,
        replace(archive, java=replace(archive.java, home=Path())).path,
        replace(archive, jars=[first]).path,
        replace(archive, jars=[second, first]).path,
    }
    os.utime(first, (0, 0))
    others.add(archive.path)
    second.write_bytes(b"more classes")
    others.add(archive.path)
    assert len(others - {path}) == 6


def test_java_is_told_of_an_archive_that_exists_only(archive: ClassArchive) -> None:
    assert not archive.options()
    archive.path.parent.mkdir(parents=True)
    archive.path.touch()
    assert f"-XX:SharedArchiveFile={archive.path}" in archive.options()


def test_a_training_run_makes_the_archive_once(archive: ClassArchive, train_with: Train) -> None:
    train_with('echo "$2" > "$3"')
    assert archive.make() == archive.path
    assert archive.path.read_text() == "training\n"
    assert archive_files(archive) == {archive.path}
    train_with("exit 1")
    assert archive.make() == archive.path


def test_a_new_archive_replaces_that_of_the_same_installation_only(
    archive: ClassArchive, train_with: Train
) -> None:
    """An archive has 150 MB, and nothing uses one whose jars have changed."""
    train_with('echo "$2" > "$3"')
    elsewhere = replace(archive, installation=Path("another")).path
    archive.make()
    elsewhere.touch()
    os.utime(archive.jars[0], (0, 0))
    newest = archive.make()
    assert archive_files(archive) == {newest, elsewhere}


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "printf 'one\\ntwo\\nthree\\nfour\\n' >&2; exit 1",
            r"(?m)could be made: two\nthree\nfour$",
        ),
        ('echo half > "$3"; exit 3', "exit code 3"),
        ("exec sleep 600", r"it took longer than 0\.1 s"),
    ],
    ids=["errors", "half-an-archive", "too-long"],
)
def test_a_failed_training_run_tells_why_and_leaves_no_file(
    script: str,
    message: str,
    archive: ClassArchive,
    train_with: Train,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archive.path.parent.mkdir(parents=True)
    archive.path.with_suffix(".new").write_text("half")
    train_with(script)
    if "sleep" in script:
        monkeypatch.setattr("redrive.java._PATIENCE", 0.1)
    with pytest.raises(EnvironmentFault, match=message):
        archive.make()
    assert archive_files(archive) == set()
    assert not archive.options()

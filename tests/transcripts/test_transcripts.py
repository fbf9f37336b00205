"""Every command and every page: what it says, compared with texts.

A change of a text is a decision: ``make transcripts`` writes them anew, and git shows the diff.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.transcripts.topics import TOPICS, recorded_jobs
from tests.transcripts.transcript import answered, fix_names, stop_clock

from redrive.__main__ import SUBCOMMANDS, main

FOLDER = Path(__file__).parent
FILES = sorted(
    [*FOLDER.glob("files/*.txt"), *FOLDER.glob("jobs/*.txt")],
    key=lambda path: (path.stem == "operations", path),
)
"""What changes something is asked last."""
LATER = 20.0
"""Seconds between the last record of the jobs and the questions."""


@pytest.fixture(scope="module")
def now() -> float:
    """The time of all questions, in seconds since 1970: soon after the last record."""
    lines = map(json.loads, TOPICS.read_text().splitlines())
    return int(max(line["of"][2] for line in lines if "of" in line) / 1000 + LATER)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder of the recorded jobs, and the broker with their topics."""
    with recorded_jobs(tmp_path_factory.mktemp("recorded")) as jobs:
        yield jobs


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_answers_are_those_of_the_transcript(
    path: Path,
    now: float,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path
    if path.parent.name == "jobs":
        folder, servers = request.getfixturevalue("jobs")
        monkeypatch.setenv("TRANSCRIPT_SERVERS", servers)
    monkeypatch.chdir(folder)
    fix_names(monkeypatch)
    stop_clock(monkeypatch, now)
    before = path.read_text()
    after = answered(before)
    if request.config.getoption("--write-transcripts"):
        path.write_text(after)
        return
    difference = difflib.unified_diff(
        before.splitlines(), after.splitlines(), path.name, "now", lineterm=""
    )
    text = "\n".join(difference)
    assert not text, f"{text}\n\nIf this is meant: make transcripts"


def commands(command: click.Command, words: str) -> Iterator[str]:
    """The words of a command and of all below it."""
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, f"{words} {name}")


def test_every_command_has_its_help_and_an_answer() -> None:
    asked = [
        line[2:] for path in FILES for line in path.read_text().splitlines() if line[:2] == "$ "
    ]
    assert [f"{words} --help" for words in commands(main, "redrive")] == [
        line for line in asked if line.endswith("--help")
    ]
    ran = {
        line.split()[1] for line in asked if line.startswith("redrive ") and "--help" not in line
    }
    assert set(SUBCOMMANDS) - ran == {"demo", "broker", "setup"}

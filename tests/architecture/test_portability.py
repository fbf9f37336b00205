"""Nothing in the project ties it to one machine or to one registry."""

from __future__ import annotations

import re
import subprocess
import tomllib
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Written in pieces, so that this file does not name what it looks for.
_REGISTRIES = [
    ("pypi", "org"),
    ("pythonhosted", "org"),
    ("maven", "org"),
    ("maven", "apache", "org"),
    ("npmjs", "org"),
    ("deb", "debian", "org"),
]
_HOST = re.compile("|".join(re.escape(".".join(labels)) for labels in _REGISTRIES))
_PLACES = ["work", "root", "opt/wheels", r"home/\w+", r"Users/\w+"]
_PATH = re.compile(rf"(?<![\w.:~$}}-])/(?:{'|'.join(_PLACES)})(?:/|\b)")


@cache
def _tracked_texts() -> dict[Path, str]:
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    texts = {}
    for path in (ROOT / name for name in listing.stdout.split("\0") if name):
        # What is binary, deleted in the work tree, or a link to a folder listed itself is left out.
        with suppress(UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            texts[path] = path.read_text(encoding="utf-8")
    return texts


def _findings(pattern: re.Pattern[str]) -> list[str]:
    """Where tracked text files match a pattern."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path, text in _tracked_texts().items()
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if (match := pattern.search(line))
    ]


def test_no_file_names_a_registry() -> None:
    assert _findings(_HOST) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert _findings(_PATH) == []


@pytest.mark.parametrize("text", ["/" + "work/main", "cd /" + "root", "=/" + "home/someone/x"])
def test_a_path_of_one_machine_is_recognised(text: str) -> None:
    assert _PATH.search(text)


@pytest.mark.parametrize("text", ["docs/" + "work/x", "it's his/her", "https://example/" + "root"])
def test_other_slashes_are_no_paths(text: str) -> None:
    assert not _PATH.search(text)


def test_each_file_that_make_test_leaves_out_is_in_another_target() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    options = settings["tool"]["pytest"]["ini_options"]["addopts"]
    recipes = (ROOT / "Makefile").read_text().split()
    files = [option.removeprefix("--ignore=") for option in options if "--ignore=" in option]
    assert [file for file in files if not {file, str(Path(file).parent)} & {*recipes}] == []

"""A wheel of this checkout, and an environment that holds only what the wheel asks for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]

Run = Callable[..., subprocess.CompletedProcess[str]]

_PIP = [sys.executable, "-m", "pip"]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout with the locked tools."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*_PIP, "wheel", *options, "--wheel-dir", str(folder), str(ROOT)], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and, by links, exactly what it requires.

    The links lead to the packages of the environment that runs this test, which come from the
    lock: so nothing is downloaded, and nothing that only development needs is there.
    """
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    python = str(folder / "bin" / "python")
    subprocess.run([*_PIP, "--python", python, *install], check=True)
    for required in _closure(distribution("redrive")):
        for name in _top_level_files(required):
            (packages / name).symlink_to(str(required.locate_file(name)))
    return folder


def _closure(root: Distribution) -> list[Distribution]:
    """Every distribution that one requires, directly or not, without its extras."""
    distributions: dict[str, Distribution] = {}
    waiting = [root]
    while waiting:
        for requirement in map(Requirement, waiting.pop().requires or ()):
            wanted = not requirement.marker or requirement.marker.evaluate({"extra": ""})
            if wanted and requirement.name not in distributions:
                distributions[requirement.name] = distribution(requirement.name)
                waiting.append(distributions[requirement.name])
    return list({required.name: required for required in distributions.values()}.values())


def _top_level_files(required: Distribution) -> Iterator[str]:
    """The files and folders of a distribution directly in site-packages."""
    names = {file.parts[0] for file in required.files or ()}
    return (name for name in sorted(names) if name not in {"..", "__pycache__"})


@pytest.fixture
def run(environment: Path, tmp_path: Path) -> Run:
    """Run a program of the environment outside the checkout, with nothing of this process.

    Keyword arguments are further environment variables.
    """

    def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(environment / "bin" / command[0]), *command[1:]],
            cwd=tmp_path,
            env={"PATH": os.defpath, "HOME": str(tmp_path), **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    return run

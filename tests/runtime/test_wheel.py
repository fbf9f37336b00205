"""What a user installs: the wheel, in an environment that holds only what the wheel asks for."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import redrive

ROOT = Path(__file__).parents[2]

_PIP = [sys.executable, "-m", "pip"]
_TABLE = """\
* What is full is tried again, the rest is put aside.
REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(3)
ACTION(FWD) FWDQ(ASIDE) HEADER(YES)
"""
_IMPORT_EVERYTHING = """
import importlib, pkgutil, redrive
for module in pkgutil.walk_packages(redrive.__path__, "redrive."):
    importlib.import_module(module.name)
print(redrive.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout with the locked tools."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*_PIP, "wheel", *options, "--wheel-dir", str(folder), str(ROOT)], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
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
    found: dict[str, Distribution] = {}
    waiting = [root]
    while waiting:
        for requirement in map(Requirement, waiting.pop().requires or ()):
            wanted = not requirement.marker or requirement.marker.evaluate({"extra": ""})
            if wanted and requirement.name not in found:
                found[requirement.name] = distribution(requirement.name)
                waiting.append(found[requirement.name])
    return list({required.name: required for required in found.values()}.values())


def _top_level_files(required: Distribution) -> Iterator[str]:
    """The files and folders of a distribution directly in site-packages."""
    names = {file.parts[0] for file in required.files or ()}
    return (name for name in sorted(names) if name not in {"..", "__pycache__"})


def _run(environment: Path, *command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program of the environment outside the checkout, with nothing of this process."""
    return subprocess.run(
        [str(environment / "bin" / command[0]), *command[1:]],
        cwd=folder,
        env={"PATH": os.defpath, "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_wheel_holds_what_the_code_reads(wheel: Path) -> None:
    """The lock of the jars, the mark of typed code and the examples are in it, and no test."""
    names = zipfile.ZipFile(wheel).namelist()
    assert {"redrive/jars.lock", "redrive/py.typed"} <= set(names)
    examples = {"mq/redrive.toml", "mq/DEPOT.mqsc", "mqe/redrive.toml", "mqe/network.yaml"}
    assert {f"redrive/demo/networks/{name}" for name in examples} <= set(names)
    assert {name.split("/")[0] for name in names} == {
        "redrive",
        f"redrive-{redrive.__version__}.dist-info",
    }


def test_the_command_works_outside_the_checkout(environment: Path, tmp_path: Path) -> None:
    """It tells its version, helps, and checks a table."""
    version = _run(environment, "redrive", "--version", folder=tmp_path)
    assert version.stdout == f"redrive, version {redrive.__version__}\n"
    (tmp_path / "orders.rul").write_text(_TABLE)
    right = _run(environment, "redrive", "check", "orders.rul", folder=tmp_path)
    assert right.returncode == 0, right.stderr
    (tmp_path / "orders.rul").write_text(_TABLE.replace("RETRY(3)", "RETRY(many)"))
    wrong = _run(environment, "redrive", "check", "orders.rul", folder=tmp_path)
    assert wrong.returncode == 1
    assert "orders.rul:2:" in wrong.stdout + wrong.stderr


def test_every_module_imports_with_the_required_packages_alone(
    environment: Path, tmp_path: Path
) -> None:
    """Nothing leans on a package that only development installs, or on the checkout."""
    answer = _run(environment, "python", "-c", _IMPORT_EVERYTHING, folder=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert Path(answer.stdout.strip()).is_relative_to(environment)


def test_a_machine_without_jars_is_told_what_to_do(environment: Path, tmp_path: Path) -> None:
    """A fresh installation says that the set-up comes first, and starts nothing."""
    answer = _run(environment, "redrive", "broker", "start", folder=tmp_path)
    assert answer.returncode == 1
    assert "redrive setup" in answer.stderr
    assert "Traceback" not in answer.stderr

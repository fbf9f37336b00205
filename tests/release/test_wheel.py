"""What a user installs: the wheel, in an environment that holds only what the wheel asks for."""

from __future__ import annotations

import zipfile
from pathlib import Path

from tests.release.conftest import ROOT, Run

import redrive

_TABLE = """\
* What is full is tried again, the rest is put aside.
REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(3)
ACTION(FWD) FWDQ(ASIDE) HEADER(YES)
"""
_IMPORT_EVERYTHING = """
import importlib, pkgutil, redrive
for module in pkgutil.walk_packages(redrive.__path__, "redrive."):
    if module.name.startswith("redrive.console."):
        continue  # needs the extra of this name
    importlib.import_module(module.name)
print(redrive.__file__)
"""


def test_the_wheel_holds_what_the_code_reads(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"redrive/jars.lock", "redrive/py.typed"} <= set(names)
    files = {"sample.rul", "kafka.rul", "mq.yaml", "kafka.yaml"}
    assert {f"redrive/demo/{name}" for name in files} <= set(names)
    assert {name.split("/")[0] for name in names} == {
        "redrive",
        f"redrive-{redrive.__version__}.dist-info",
    }


def test_the_command_works_outside_the_checkout(run: Run, tmp_path: Path) -> None:
    version = run("redrive", "--version")
    assert version.stdout == f"redrive, version {redrive.__version__}\n"
    (tmp_path / "orders.rul").write_text(_TABLE)
    right = run("redrive", "check", "orders.rul")
    assert right.returncode == 0, right.stderr
    (tmp_path / "orders.rul").write_text(_TABLE.replace("RETRY(3)", "RETRY(many)"))
    wrong = run("redrive", "check", "orders.rul")
    assert wrong.returncode == 1
    assert "orders.rul:2:" in wrong.stdout + wrong.stderr


def test_the_examples_are_right_to_the_wheel(run: Run) -> None:
    answer = run("redrive", "check", str(ROOT / "examples" / "orders" / "redrive.toml"))
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_every_module_imports_with_the_required_packages_alone(run: Run, environment: Path) -> None:
    answer = run("python", "-c", _IMPORT_EVERYTHING)
    assert answer.returncode == 0, answer.stderr
    assert Path(answer.stdout.strip()).is_relative_to(environment)


def test_a_machine_without_jars_is_told_what_to_do(run: Run) -> None:
    answer = run("redrive", "broker", "start")
    assert answer.returncode == 1
    assert "redrive setup" in answer.stderr
    assert "Traceback" not in answer.stderr

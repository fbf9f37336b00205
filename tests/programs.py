"""Programs that the tests use and this project does not bring."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from redrive.java import cache_directory, exclusively

ROOT: Final = Path(__file__).parents[1]
SEARCHED: Final = f"{ROOT / '.kubernetes'}{os.pathsep}{os.environ['PATH']}"
"""Where `make kubernetes` puts what it builds, and the rest of the machine."""
_MODULES: Final = {
    "helm": "helm.sh/helm/v3/cmd/helm@v3.22.0",
}
"""Those that Go builds from one module within minutes, and keeps in the cache."""

_PACKAGES: Final = {"promtool": "prometheus"}
"""Those of a package of Debian's, which is unpacked in the cache and not installed."""
_PATIENCE: Final = 300.0
"""Seconds for a download that takes one."""


def program(name: str) -> str:
    """The path of a program; where it is not installed, Go builds it or Debian has it.

    The test is skipped where that cannot be.
    """
    installed = shutil.which(name, path=SEARCHED)
    if installed is not None:
        return installed
    if name in _PACKAGES:
        return str(_unpacked(_PACKAGES[name]) / name)
    if name not in _MODULES:
        pytest.skip(f"{name} is not there; `make kubernetes` builds the API server and etcd")
    go = shutil.which("go")
    if go is None:
        pytest.skip(f"{name} is not installed, nor is Go, which would build it")
    package, _, version = _MODULES[name].partition("@")
    folder = cache_directory() / "programs" / f"{name}-{version}"
    with exclusively(folder):
        if not (folder / name).exists():
            _build(go, f"{package}@{version}", folder)
    return str(folder / name)


def _build(go: str, package: str, folder: Path) -> None:
    command = [go, "install", package]
    environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "", "CGO_ENABLED": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"{package} cannot be built: {done.stderr.splitlines()[-1]}")


def _unpacked(package: str) -> Path:
    """The folder of the programs of a package."""
    folder = cache_directory() / "programs" / package
    with exclusively(folder):
        if not (folder / "usr").exists():
            _unpack(package, folder)
    return folder / "usr" / "bin"


def _unpack(package: str, folder: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        pytest.skip(f"Debian's package {package} is not installed, and cannot be unpacked here")
    download = ["apt-get", "download", package]
    done = _ran(download, folder)
    if done.returncode != 0 and os.geteuid() == 0:  # a new machine knows no packages yet
        _ran(["apt-get", "update"], folder)
        done = _ran(download, folder)
    if done.returncode != 0:
        pytest.skip(f"{package} cannot be downloaded: {done.stderr.splitlines()[-1]}")
    (archive,) = folder.glob("*.deb")
    _ran(["dpkg-deb", "--extract", archive.name, "unpacked"], folder).check_returncode()
    archive.unlink()
    (folder / "unpacked" / "usr").rename(folder / "usr")


def _ran(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=_PATIENCE
    )

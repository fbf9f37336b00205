"""The lock of the jars, the cache they lie in, and what happens when something is wrong.

The client is the real one; its repository is a folder with the jars of this machine's own cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.conftest import PATIENCE

from redrive.errors import EnvironmentFault
from redrive.java import JarGroup, fetch_jars, jar_directory, jar_files, locked_jars, verify_jars

_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="folder"/>
  <resolvers><filesystem name="folder" checkmodified="false">
    <artifact pattern="{folder}/spark/[artifact]-[revision].[ext]"/>
    <artifact pattern="{folder}/delta/[artifact]-[revision].[ext]"/>
    <artifact pattern="{folder}/broker/[artifact]-[revision].[ext]"/>
  </filesystem></resolvers>
</ivysettings>
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with every locked jar in it, which a test may spoil."""
    folder = tmp_path / "repository"
    shutil.copytree(jar_directory(), folder, copy_function=os.link)
    return folder


@pytest.fixture
def empty_cache(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache without jars, and the user's settings that name the repository."""
    settings = tmp_path / "settings.xml"
    settings.write_text(_SETTINGS.format(folder=repository))
    monkeypatch.setenv("REDRIVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("REDRIVE_IVY_SETTINGS", str(settings))
    return tmp_path / "cache"


def _replace(path: Path, content: bytes) -> None:
    """Give a file other content without touching the file that it is a link to."""
    path.unlink()
    path.write_bytes(content)


def test_the_lock_names_each_jar_of_a_class_path_once() -> None:
    modules = Counter((jar.group, jar.coordinate.rpartition(":")[0]) for jar in locked_jars())
    assert {jar.group for jar in locked_jars()} == set(JarGroup)
    assert [module for module, count in modules.items() if count > 1] == []


def test_the_lock_fits_the_python_packages() -> None:
    coordinates = {jar.coordinate for jar in locked_jars()}
    assert f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')}" in coordinates
    assert f"io.delta:delta-storage:{version('delta-spark')}" in coordinates


@pytest.mark.usefixtures("empty_cache")
def test_what_was_fetched_is_verified_and_stays_for_good() -> None:
    steps: list[tuple[int, int]] = []
    fetch_jars(progress=lambda done, total: steps.append((done, total)))
    verify_jars()
    assert sum(len(jar_files(group)) for group in JarGroup) == len(locked_jars())
    assert steps[0] == (0, 2 * len(locked_jars()))
    assert steps[-1][0] == steps[-1][1]
    fetch_jars(progress=lambda *_: pytest.fail("fetched again"))


def test_a_jar_with_another_sum_is_refused(empty_cache: Path, repository: Path) -> None:
    wrong = repository / "broker" / "re2j-1.8.jar"
    _replace(wrong, b"x" * wrong.stat().st_size)
    with pytest.raises(EnvironmentFault, match=r"re2j:1\.8 is missing or different from the lock"):
        fetch_jars()
    assert not jar_directory().exists()
    assert list(empty_cache.glob("jars/fetching-*")) == []


@pytest.mark.usefixtures("empty_cache")
def test_a_jar_that_is_not_to_be_had_is_named(repository: Path) -> None:
    (repository / "spark" / "commons-pool2-2.12.1.jar").unlink()
    with pytest.raises(
        EnvironmentFault, match=r"^org\.apache\.commons:commons-pool2:2\.12\.1 is not"
    ) as fault:
        fetch_jars()
    assert "repository" in fault.value.hint
    assert not jar_directory().exists()


def test_a_complete_cache_is_not_written_to(empty_cache: Path) -> None:
    fetch_jars()
    (empty_cache / "jars" / ".lock").unlink()
    fetch_jars()
    assert not (empty_cache / "jars" / ".lock").exists()


@pytest.mark.usefixtures("empty_cache")
def test_no_network_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "settings.xml").write_text(
        '<ivysettings><settings defaultResolver="x"/><resolvers>'
        '<ibiblio name="x" m2compatible="true" root="http://127.0.0.1:1/"/>'
        "</resolvers></ivysettings>"
    )
    with pytest.raises(EnvironmentFault, match="not available") as fault:
        fetch_jars()
    assert "check that this machine reaches the repository" in fault.value.hint


@pytest.mark.usefixtures("empty_cache")
def test_without_settings_of_the_user_a_jar_is_one_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("REDRIVE_IVY_SETTINGS")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    with pytest.raises(EnvironmentFault, match="not available"):
        fetch_jars()
    log = (jar_directory().parent / "fetch.log").read_text()
    assert log.count("Server access error") == log.count(".jar (java") == len(locked_jars())


@pytest.mark.usefixtures("empty_cache")
def test_damage_is_found_and_mended(repository: Path) -> None:
    shutil.copytree(repository, jar_directory(), copy_function=os.link)
    cut, changed = jar_files(JarGroup.BROKER)[:2]
    _replace(changed, b"x" * changed.stat().st_size)
    assert changed in jar_files(JarGroup.BROKER)
    with pytest.raises(EnvironmentFault, match=changed.stem.rpartition("-")[0]):
        verify_jars()
    _replace(cut, b"")
    with pytest.raises(EnvironmentFault, match=cut.stem.rpartition("-")[0]) as fault:
        jar_files(JarGroup.BROKER)
    assert "redrive setup" in fault.value.hint
    fetch_jars()
    verify_jars()


@pytest.mark.usefixtures("empty_cache")
def test_two_set_ups_at_once_do_not_disturb_each_other() -> None:
    script = "from redrive.java import *; fetch_jars(); verify_jars(); print(jar_directory())"
    command = [sys.executable, "-c", script]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=PATIENCE)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert answers[0] == answers[1]
    assert str(jar_directory()) in answers[0]

"""The jars that Spark and the embedded broker need: fetched once, verified, then used offline.

``jars.lock`` names every jar with its SHA-256; a program may use another lock. The Ivy inside
pyspark fetches exactly these, with the default repository and settings that it uses for Spark
itself. They are in a folder of the user's cache that is named after the lock's content and appears
only when complete, so its presence means that the sums were right, and a start only has to check
for the files.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from hashlib import file_digest, sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

from redrive.cache import cache_directory, exclusively
from redrive.errors import EnvironmentFault
from redrive.java import Java, find_java, trust_store_arguments

_ATTEMPTS = 2  # a second attempt often succeeds, a third rarely
_NAMED = 3  # jars that an error names; the others are counted
_NETWORK_TRACES = ("Server access", "UnknownHost", "ConnectException", "timed out")


class JarGroup(StrEnum):
    """Jars for one class path."""

    SPARK = "spark"
    DELTA = "delta"
    """In addition to Spark's, where Spark reads or writes the ledger."""
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of a lock."""

    group: str
    """A ``JarGroup``, in the lock of this package."""
    coordinate: str
    """``organisation:name:revision``"""
    sha256: str
    """Hex digits."""
    size: int
    """Bytes."""

    @property
    def path(self) -> Path:
        """The jar's path in a folder of jars."""
        _, name, revision = self.coordinate.split(":")
        return Path(self.group, f"{name}-{revision}.jar")


@cache
def locked_jars(lock: str | None = None) -> tuple[Jar, ...]:
    """Every jar of a lock, in its order.

    Args:
        lock: Text of the lock; by default that of this package, here as below.
    """
    lines = (line.split() for line in (lock or _lock_text()).splitlines())
    return tuple(
        Jar(fields[0], fields[1], fields[2], int(fields[3]))
        for fields in lines
        if fields and not fields[0].startswith("#")
    )


def jar_directory(lock: str | None = None) -> Path:
    """The folder of a lock's jars, present or not."""
    name = sha256((lock or _lock_text()).encode()).hexdigest()[:16]
    return cache_directory() / "jars" / name


def jar_files(group: str, lock: str | None = None) -> list[Path]:
    """The jars of one group, checked for presence and size: a fast check at every start.

    Raises:
        EnvironmentFault: One is missing or has another size.
    """
    jars, directory = [jar for jar in locked_jars(lock) if jar.group == group], jar_directory(lock)
    if damaged := _damaged(directory, jars):
        message = f"{_enumerate(damaged)} missing or damaged in {directory}"
        raise EnvironmentFault(message, hint="run `redrive setup` once, online")
    return [directory / jar.path for jar in jars]


def fetch_jars(
    lock: str | None = None, *, progress: Callable[[int, int], None] = lambda _done, _of: None
) -> None:
    """Fetch all missing locked jars.

    Several processes may call this at once: one fetches, the others wait for it.

    Args:
        lock: Text of the lock.
        progress: Called with the number of steps done and in total; a jar is found, then
            fetched.

    Raises:
        EnvironmentFault: There is no network, a jar is not available, or its sum is wrong.
    """
    target, jars = jar_directory(lock), locked_jars(lock)
    if not _damaged(target, jars):
        return  # before locking, as the folder may be read-only, as in the image
    with exclusively(target.parent):
        if not _damaged(target, jars):
            return
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetching-") as scratch:
            fetched = Path(scratch, "jars")
            _fetch(find_java(), Path(scratch), jars, progress)
            verify_jars(fetched, lock)
            if target.exists():
                target.rename(Path(scratch, "damaged"))
            fetched.rename(target)


def verify_jars(directory: Path | None = None, lock: str | None = None) -> None:
    """Compare the content of every jar with the lock.

    Args:
        directory: A folder of jars; by default the one in the cache.
        lock: Text of the lock.

    Raises:
        EnvironmentFault: Names the jars that are missing or have another SHA-256.
    """
    directory = directory or jar_directory(lock)
    if damaged := _damaged(directory, locked_jars(lock), compare=True):
        message = f"{_enumerate(damaged)} missing or different from the lock in {directory}"
        hint = (
            f"remove {directory} and run `redrive setup`; if the registry itself delivers other "
            "content, do not use it and inform its owner"
        )
        raise EnvironmentFault(message, hint=hint)


def _lock_text() -> str:
    return files("redrive").joinpath("jars.lock").read_text(encoding="utf-8")


def _damaged(directory: Path, jars: Iterable[Jar], *, compare: bool = False) -> list[str]:
    return [jar.coordinate for jar in jars if not _is_sound(directory / jar.path, jar, compare)]


def _is_sound(path: Path, jar: Jar, compare: bool) -> bool:  # noqa: FBT001 - private, one caller
    if not path.is_file() or path.stat().st_size != jar.size:
        return False
    if not compare:
        return True
    with path.open("rb") as content:
        return file_digest(content, "sha256").hexdigest() == jar.sha256


def _enumerate(coordinates: list[str]) -> str:
    names = ", ".join(coordinates[:_NAMED])
    if (more := len(coordinates) - _NAMED) > 0:
        names += f" and {more} more"
    return f"{names} {'is' if len(coordinates) == 1 else 'are'}"


def _fetch(
    java: Java, scratch: Path, jars: Sequence[Jar], progress: Callable[[int, int], None]
) -> None:
    description = scratch / "ivy.xml"
    description.write_bytes(_ivy_description(jars))
    log = jar_directory().parent / "fetch.log"
    for _ in range(_ATTEMPTS):
        if _run_ivy(_ivy_command(java, description, scratch), log, len(jars), progress):
            return
    raise _fetch_fault(log)


def _ivy_description(jars: Sequence[Jar]) -> bytes:
    """The lock for Ivy: without transitive dependencies, so that only locked jars are fetched."""
    module = ET.Element("ivy-module", version="2.0")
    ET.SubElement(module, "info", organisation="redrive", module="jars")
    configurations = ET.SubElement(module, "configurations")
    for group in sorted({jar.group for jar in jars}):
        ET.SubElement(configurations, "conf", name=group)
    dependencies = ET.SubElement(module, "dependencies")
    for jar in jars:
        organisation, name, revision = jar.coordinate.split(":")
        attributes = {"org": organisation, "name": name, "rev": revision, "transitive": "false"}
        ET.SubElement(dependencies, "dependency", attributes, conf=f"{jar.group}->default")
    return ET.tostring(module)


def _ivy_command(java: Java, description: Path, scratch: Path) -> list[str]:
    settings = _ivy_settings()
    return [
        str(java.executable),
        *_proxy_arguments(),
        *trust_store_arguments(java),
        *("-jar", str(_ivy_program())),
        *(("-settings", str(settings)) if settings else ()),
        *("-ivy", str(description)),
        *("-cache", str(scratch / "ivy")),
        *("-retrieve", f"{scratch}/jars/[conf]/[artifact]-[revision].[ext]"),
        # Some jars are published with the packaging "bundle".
        *("-types", "jar", "bundle"),
    ]


def _ivy_program() -> Path:
    """The Ivy that pyspark ships, found without importing pyspark."""
    pyspark = find_spec("pyspark")
    places = pyspark.submodule_search_locations if pyspark else None
    archives = sorted(
        path for place in places or () for path in Path(place, "jars").glob("ivy-*.jar")
    )
    if not archives:
        message = "no Ivy in the installed pyspark"
        raise EnvironmentFault(message, hint="reinstall Redrive: pyspark includes it")
    return archives[-1]


def _ivy_settings() -> Path | None:
    if chosen := os.environ.get("REDRIVE_IVY_SETTINGS"):
        return Path(chosen)
    usual = Path.home() / ".ivy2" / "ivysettings.xml"
    return usual if usual.exists() else None


def _proxy_arguments() -> list[str]:
    """``https_proxy`` in Java's form, so that it works wherever pip does."""
    value = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY") or ""
    proxy = urlsplit(value)
    if not proxy.hostname:
        return []
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 80}"]


def _run_ivy(
    command: list[str], log: Path, jars: int, progress: Callable[[int, int], None]
) -> bool:
    done, total = 0, 2 * jars
    progress(done, total)
    with (
        log.open("w", encoding="utf-8") as report,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
        ) as ivy,
    ):
        for line in ivy.stdout or ():
            report.write(line)
            if line.startswith(("\tfound ", "\t[SUCCESSFUL ]")):
                done += 1
                progress(done, total)
    return ivy.returncode == 0


def _fetch_fault(log: Path) -> EnvironmentFault:
    report = log.read_text(encoding="utf-8")
    missing = re.findall(r":: (\S+)#(\S+);(\S+): not found", report)
    missing += re.findall(r"\[(?:FAILED|NOT FOUND) *\] (\S+)#(\S+);([^\s!]+)!", report)
    names = _enumerate(sorted({":".join(parts) for parts in missing})) if missing else "jars are"
    message = f"{names} not available; see the client's report in {log}"
    if any(trace in report for trace in _NETWORK_TRACES):
        hint = (
            "check that this machine reaches the repository; name a mirror or proxy in Ivy"
            " settings: ~/.ivy2/ivysettings.xml, or the file in REDRIVE_IVY_SETTINGS"
        )
    else:
        hint = "check that the repository of your Ivy settings has these versions"
    return EnvironmentFault(message, hint=hint)

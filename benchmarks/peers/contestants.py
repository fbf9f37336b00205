"""Who takes part: how each is installed, what it promises, and how it is started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from benchmarks.peers.dlq_route import Form

from redrive.java import cache_directory, exclusively, fetch_jars, find_java, jar_files, locked_jars

HERE: Final = Path(__file__).parent
JAVA: Final = HERE / "java"
CEILING: Final = "bare produce"
"""The same bytes written in transactions, and nothing else: the ceiling."""
_FLINK: Final = HERE / "apache-flink.lock"


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one run of a contestant is given."""

    servers: str
    name: str
    """Of the application, consumer group and transactional ids; another one in each run."""
    source: str
    """Topic of the dead letters."""
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
    share: int = 1
    """One of so many of the records are enough for one that is slow: rates are a second's."""


def environment(lock: Path) -> Path:
    """The Python of an environment with the packages of a lock; made if it is not there.

    Some packages are only published as sources, and are built.
    """
    folder = cache_directory() / "peers"
    place = folder / f"{lock.stem}-{sha256(lock.read_bytes()).hexdigest()[:16]}"
    python = place / "bin" / "python"
    with exclusively(folder):
        if not (place / "complete").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
            pip = f"{python} -m pip --disable-pip-version-check install --quiet --require-hashes"
            subprocess.run([*pip.split(), "-r", lock], check=True)
            (place / "complete").touch()
    return python


def jars_of(group: str) -> list[Path]:
    """The jars of a group, which are fetched if they are not there."""
    lock = (JAVA / "jars.lock").read_text(encoding="utf-8")
    fetch_jars(lock)
    return jar_files(group, lock)


def java(main: str, jars: Sequence[Path], *shared: str, heap: str = "1g") -> list[str]:
    """The command for a Java class of this folder, which is compiled if it has changed.

    Args:
        main: The class.
        jars: Its class path.
        shared: Other classes of the folder that it needs.
        heap: Most memory for objects.

    Raises:
        SystemExit: There is no compiler.
    """
    sources = [JAVA / f"{name}.java" for name in (*shared, main)]
    content = b"".join(source.read_bytes() for source in sources) + str(jars).encode()
    folder = cache_directory() / "peers"
    classes = folder / f"{main}-{sha256(content).hexdigest()[:16]}"
    home = find_java()
    with exclusively(folder):
        if not (classes / f"{main}.class").exists():
            compiler = home.home / "bin" / "javac"
            if not compiler.exists():
                raise SystemExit(f"no Java compiler in {home}; install a JDK")
            subprocess.run([compiler, "-cp", _path(jars), "-d", classes, *sources], check=True)
    return [str(home.executable), f"-Xmx{heap}", "-cp", _path([classes, *jars]), main]


def _path(jars: Sequence[Path]) -> str:
    return os.pathsep.join(map(str, jars))


def _here(module: str, *more: str) -> Command:
    """A contestant that runs in the project's own environment."""
    return lambda assignment: [
        sys.executable, "-m", f"benchmarks.peers.{module}",
        assignment.servers, assignment.name, assignment.source, str(assignment.rules), *more,
    ]  # fmt: skip


def _python(package: str, module: str) -> Command:
    """A contestant in an environment of its own."""
    lock = HERE / f"{package}.lock"
    return lambda assignment: [
        str(environment(lock)),
        "-m",
        f"benchmarks.peers.{module}",
        *_given(assignment),
    ]


def _given(assignment: Assignment) -> list[str]:
    return [
        assignment.servers,
        assignment.name,
        assignment.source,
        str(assignment.rules),
        str(assignment.folder),
    ]


def _java(main: str, *more: str, heap: str = "1g") -> Command:
    return lambda assignment: [
        *java(main, jars_of("peers"), "Rules", heap=heap),
        *_given(assignment),
        *more,
    ]


def _flink(assignment: Assignment) -> list[str]:
    """Flink's own jars come with its Python package."""
    jars = [*environment(_FLINK).parents[1].glob("lib/*/site-packages/pyflink/lib/*.jar")]
    return [*java("FlinkRoute", [*sorted(jars), *jars_of("flink")], "Rules"), *_given(assignment)]


def _flink_table(assignment: Assignment) -> list[str]:
    python, root = str(environment(_FLINK)), HERE.parents[1]
    program = [
        python,
        "-m",
        "benchmarks.peers.flink_table",
        *_given(assignment),
        _path(jars_of("flink")),
    ]
    # Its Java starts Python again, elsewhere.
    return ["env", f"JAVA_HOME={find_java().home}", f"PYTHONPATH={root}", *program]


def _redrive(*, ledger: bool) -> Command:
    def command(assignment: Assignment) -> list[str]:
        (assignment.folder / "dlq.rul").write_text(assignment.table, encoding="utf-8")
        settings = assignment.folder / "redrive.toml"
        text = f'[application]\nname = "{assignment.name}"\nbeside = true\ndirectory = "job"\n'
        text += f'[kafka]\nbootstrap_servers = "{assignment.servers}"\n'
        text += f'[[handlers]]\nqueue = "{assignment.source}"\nrules = "dlq.rul"\n'
        text += f"[ledger]\nenabled = {'true' if ledger else 'false'}\n"
        settings.write_text(text, encoding="utf-8")
        return [sys.executable, "-m", "redrive", "run", "-c", str(settings)]

    return command


def _spark(assignment: Assignment) -> list[str]:
    (assignment.folder / "case.sql").write_text(assignment.case, encoding="utf-8")
    given = (
        assignment.servers,
        assignment.name,
        assignment.source,
        assignment.form,
        str(assignment.folder),
    )
    return [sys.executable, "-m", "benchmarks.peers.spark_sink", *given]


def _spark_udf(assignment: Assignment) -> list[str]:
    return [*_spark(assignment), str(assignment.rules)]


def _version(package: str) -> str:
    """The version that a lock names."""
    for line in (HERE / f"{package}.lock").read_text(encoding="utf-8").splitlines():
        if line.startswith((f"{package}==", f"{package}[")):
            return f"{package} {line.partition('==')[2].split(' ')[0]}"
    raise ValueError(f"{package}.lock does not name {package}")


def jar_version(name: str) -> str:
    """Name and version of a jar of the lock."""
    lock = (JAVA / "jars.lock").read_text(encoding="utf-8")
    versions = (jar.coordinate.split(":") for jar in locked_jars(lock))
    return next(f"{name} {version}" for _, jar, version in versions if jar == name)


def _installed(*packages: str) -> str:
    from importlib.metadata import version  # noqa: PLC0415 - one use

    return ", ".join(f"{package} {version(package)}" for package in packages)


def contestants() -> Mapping[str, Contestant]:
    """All of them, in the order of a round, by name."""
    both = "outcome records too"
    apart = "headers in another order"
    every = (
        Contestant("redrive", _installed("redrive", "pyspark"), _redrive(ledger=False), both),
        Contestant(
            "redrive, ledger", _installed("redrive", "pyspark"), _redrive(ledger=True),
            f"{both}, and the ledger of them",
        ),
        Contestant("python loop", _installed("confluent-kafka"), _here("plain_loop", "1"), share=2),
        Contestant(
            "python loop, 4 processes", _installed("confluent-kafka"),
            _here("plain_loop", "4"), "two partitions each", share=2,
        ),
        Contestant("spark sink", _installed("pyspark"), _spark, "CASE", exactly_once=False),
        Contestant(
            "spark sink, UDF", _installed("pyspark"), _spark_udf, "the loop of Python",
            exactly_once=False,
        ),
        Contestant("java loop", jar_version("kafka-clients"), _java("LoopRoute")),
        Contestant("kafka streams", jar_version("kafka-streams"), _java("StreamsRoute")),
        Contestant("flink", _version("apache-flink"), _flink, "Java"),
        Contestant("pyflink", _version("apache-flink"), _flink_table, apart, share=4),
        Contestant(
            "quix streams", _version("quixstreams"), _python("quixstreams", "quix_streams"), share=4
        ),
        Contestant(
            "aiokafka loop", _version("aiokafka"), _python("aiokafka", "asyncio_loop"), share=4
        ),
        Contestant(
            "bytewax", _version("bytewax"), _python("bytewax", "bytewax_flow"),
            exactly_once=False, share=4,
        ),
        Contestant(
            CEILING, jar_version("kafka-clients"), _java("LoopRoute", "ceiling", heap="8g"),
            "Java, everything read and routed before; no contestant",
        ),
    )  # fmt: skip
    return {contestant.name: contestant for contestant in every}

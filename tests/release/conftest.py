"""A wheel of this checkout, and an environment that holds only what the wheel asks for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.configurations import write_settings
from tests.conftest import KafkaClient
from tests.streaming.conftest import letter

from redrive.java import cache_directory, find_java

ROOT = Path(__file__).parents[2]

Run = Callable[..., subprocess.CompletedProcess[str]]
Submit = Callable[..., subprocess.CompletedProcess[str]]

JOB = """\
import sys, redrive
settings, servers, topic = sys.argv[1:]
spark = redrive.session(settings)
print("did", redrive.run_once(spark, settings).results)
options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "includeHeaders": "true"}
frame = spark.read.format("kafka").options(**options).load()
(letter,) = redrive.dead_letters(frame).collect()
print("read", letter.offset, letter.scheme)
print("ledger", redrive.ledger(spark, settings).count())
spark.stop()
"""
DONE = ["did {'discarded': 1}", "read 0 mqdlh", "ledger 1"]
"""What the job prints."""

_PIP = [sys.executable, "-m", "pip"]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout with the locked tools."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*_PIP, "wheel", *options, "--wheel-dir", str(folder), str(ROOT)], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and exactly what it requires."""
    folder = environment_without_redrive(tmp_path_factory.mktemp("environment"))
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    python = str(folder / "bin" / "python")
    subprocess.run([*_PIP, "--python", python, *install], check=True)
    return folder


def environment_without_redrive(folder: Path) -> Path:
    """Makes a virtual environment with what redrive requires, and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    link(packages, distribution("redrive").requires or [])
    return folder


def link(packages: Path, requirements: Iterable[str]) -> None:
    """Links in a folder what requirements name, and what that requires, without its extras.

    The links lead to the packages of the environment that runs this test, which come from the
    lock: so nothing is downloaded, and nothing that only development needs is there.
    """
    distributions: dict[str, Distribution] = {}
    waiting = [*map(Requirement, requirements)]
    while waiting:
        requirement = waiting.pop()
        wanted = not requirement.marker or requirement.marker.evaluate({"extra": ""})
        name = canonicalize_name(requirement.name)
        if wanted and name not in distributions:
            required = distributions[name] = distribution(name)
            waiting += map(Requirement, required.requires or ())
    for required in distributions.values():
        for file in _top_level_files(required):
            (packages / file).symlink_to(str(required.locate_file(file)))


def _top_level_files(required: Distribution) -> Iterator[str]:
    """The files and folders of a distribution directly in site-packages."""
    names = {file.parts[0] for file in required.files or ()}
    return (name for name in sorted(names) if name not in {"..", "__pycache__"})


@pytest.fixture
def run(environment: Path, tmp_path: Path) -> Run:
    """Run a program of the environment outside the checkout, with nothing of this process.

    Keyword arguments are further environment variables.
    """

    def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(environment / "bin" / command[0]), *command[1:]],
            cwd=tmp_path,
            env={"PATH": os.defpath, "HOME": str(tmp_path), **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def where() -> dict[str, str]:
    """The jars and the Java of this machine, which the environment does not have."""
    return {"REDRIVE_CACHE": str(cache_directory()), "JAVA_HOME": str(find_java().home)}


@pytest.fixture
def submit(
    kafka: KafkaClient, environment: Path, run: Run, where: dict[str, str], tmp_path: Path
) -> Submit:
    """Gives the job to ``spark-submit`` with these options, in the environment of the wheel.

    Keyword arguments are further environment variables.
    """

    def submit(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        dlq, servers = kafka.topic("dlq"), kafka.bootstrap_servers
        kafka.produce(dlq, [letter(2085, "nowhere")])
        write_settings(tmp_path, dlq, rules="ACTION(DISCARD)\n", servers=servers)
        (tmp_path / "job.py").write_text(JOB)
        jars = run("redrive", "setup", "--print-jars", **where).stdout.strip()
        assert all(Path(jar).exists() for jar in jars.split(","))
        (program,) = environment.glob("lib/python*/site-packages/pyspark/bin/spark-submit")
        job = ("job.py", "redrive.toml", servers, dlq)
        variables = {"PYSPARK_PYTHON": str(environment / "bin" / "python"), **where, **variables}
        return run(str(program), "--jars", jars, *options, *job, **variables)

    return submit

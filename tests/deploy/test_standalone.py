"""The scripts for a Spark standalone cluster, with a real master and two real workers."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.conftest import KafkaClient
from tests.release import conftest as release

from redrive.broker.process import is_alive

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "standalone" / "spark_daemon.py"
JOB = Path(__file__).with_name("rows_of_workers.py")


def _daemon(directory: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments), "--directory", directory],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for daemons, which all are stopped in the end."""
    directory = tmp_path_factory.mktemp("a spark ")
    yield directory
    _daemon(directory, "stop")


@pytest.fixture(scope="module")
def master(directory: Path) -> str:
    """The URL of a master that runs."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started = _daemon(directory, "start-master", "--port", port, "--web-port", 0)
    assert started.returncode == 0, started.stderr
    return f"spark://127.0.0.1:{port}"


def _start_worker(directory: Path, master: str, name: int) -> None:
    started = _daemon(
        *(directory, "start-worker", master, "--name", name, "--web-port", 0),
        *("--cores", 1, "--memory", "1g"),
    )
    assert started.returncode == 0, started.stderr


def _pid(directory: Path, name: str) -> int:
    return int((directory / f"{name}.pid").read_text())


def test_two_workers_run_python_on_the_records_that_they_read_from_kafka(
    kafka: KafkaClient, directory: Path, master: str
) -> None:
    (directory / "worker-2.pid").write_text(f"{os.getpid()}\n")
    assert "worker-2  died" in _daemon(directory, "status").stdout
    _start_worker(directory, master, 1)
    _start_worker(directory, master, 2)
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, [{"value": b"x", "partition": number % 2} for number in range(10)])
    job = subprocess.run(
        [sys.executable, JOB, master, kafka.bootstrap_servers, topic],
        capture_output=True,
        text=True,
        check=False,
    )
    assert job.returncode == 0, job.stderr
    rows = [json.loads(line) for line in job.stdout.splitlines()]
    assert [row["rows"] for row in rows] == [5, 5]
    assert {Path(row["folder"]).parents[1].name for row in rows} == {"worker-1", "worker-2"}


wheel, environment, run = release.wheel, release.environment, release.run
where, submit = release.where, release.submit
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


@pytest.fixture
def submit_to_master(
    directory: Path, master: str, environment: Path, submit: release.Submit, tmp_path: Path
) -> release.Submit:
    """The job in client mode; executors have what redrive requires, and not redrive."""
    _start_worker(directory, master, 1)
    python = release.environment_without_redrive(tmp_path / "executors") / "bin" / "python"
    delta = (word for name, value in DELTA.items() for word in ("--conf", f"{name}={value}"))
    variables = {
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(environment / "bin" / "python"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return partial(submit, "--master", master, *delta, **variables)


@pytest.fixture
def archive(wheel: Path, tmp_path: Path) -> str:
    """The wheel as --py-files takes it."""
    return str(shutil.copy(wheel, tmp_path / "redrive.zip"))


def test_client_mode_takes_the_wheel_where_executors_lack_it(
    submit_to_master: release.Submit, archive: str
) -> None:
    done = submit_to_master("--py-files", archive, PYTHONPATH=archive)
    assert done.stdout.splitlines() == release.DONE, done.stderr[-3000:]


def test_client_mode_takes_an_environment_that_is_unpacked_here_too(
    submit_to_master: release.Submit, environment: Path, tmp_path: Path
) -> None:
    packed = shutil.make_archive(str(tmp_path / "packed"), "gztar", environment)
    (tmp_path / "environment").symlink_to(environment)
    python = "./environment/bin/python"
    done = submit_to_master("--archives", f"{packed}#environment", PYSPARK_PYTHON=python)
    assert done.stdout.splitlines() == release.DONE, done.stderr[-3000:]


def test_job_without_the_package_on_executors_says_how_to_ship_it(
    submit_to_master: release.Submit, archive: str
) -> None:
    done = submit_to_master(PYTHONPATH=archive)
    assert "EnvironmentFault: redrive cannot be imported by Spark's Python worker" in done.stdout
    assert "--py-files" in done.stdout
    assert done.returncode == 1


def test_job_without_the_package_for_planning_says_how_to_give_it(
    submit_to_master: release.Submit, archive: str
) -> None:
    done = submit_to_master("--py-files", archive)
    assert "Spark's Python on this machine cannot import redrive: ModuleNotFound" in done.stdout
    assert "give what --py-files has in PYTHONPATH too" in done.stdout
    assert done.returncode == 1


def test_a_daemon_that_runs_is_not_started_twice(directory: Path, master: str) -> None:
    pid = _pid(directory, "master")
    assert "already runs" in _daemon(directory, "start-master", "--port", 1).stdout
    assert _pid(directory, "master") == pid
    assert _daemon(directory, "status").returncode == 0


def test_stopping_leaves_nothing(directory: Path, master: str) -> None:
    """The process is gone, its pid file too, and the status says so."""
    pid = _pid(directory, "master")
    stopped = _daemon(directory, "stop")
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert not is_alive(pid, "deploy.master.Master")
    assert not list(directory.glob("*.pid"))
    assert _daemon(directory, "status").returncode == 1


def test_a_daemon_that_cannot_start_says_why(tmp_path: Path) -> None:
    failed = _daemon(tmp_path, "start-worker", "no-such-url")
    assert failed.returncode == 1
    assert "no-such-url" in failed.stderr
    assert str(tmp_path / "worker-1.log") in failed.stderr
    assert _daemon(tmp_path, "stop").returncode == 0

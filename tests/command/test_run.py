"""``redrive run`` tells what is wrong before it starts anything, and obeys signals."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.commands import python, redrive
from tests.configurations import write_settings
from tests.conftest import PATIENCE

from redrive.command import run
from redrive.command.restart import restart
from redrive.kafka import access
from redrive.kafka.access import Resource, Right
from redrive.operations.process import PidFile
from redrive.operations.restart import RestartRecord
from redrive.settings import read_settings

PRETEND = Path(__file__).with_name("pretend_job.py")
RULES = "ACTION(FWD) FWDQ(REALLY.DEAD)\n"
AS_ALICE = """\
security_protocol = "SASL_PLAINTEXT"
sasl_mechanism = "PLAIN"
sasl_username = "alice"
sasl_password_file = "password"
"""


@pytest.fixture
def folder(folder: Path) -> Path:
    """The working directory, with a rules table in it."""
    Path("orders.rul").write_text(RULES)
    return folder


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def settings_file(servers: str, more: str = "") -> Path:
    """Settings of the handler ``orders``; ``more`` may belong to it."""
    return write_settings(
        Path(), "orders.dlq", rules=RULES, application="orders", servers=servers, more=more
    )


def run_on(port: int | str, *more: str, code: int | None = None) -> Result:
    address = f"127.0.0.1:{port}" if isinstance(port, int) else port
    options = ("--bootstrap-server", address, "--dlq", "orders.dlq", "--rules", "orders.rul")
    return redrive("run", *options, *more, code=code)


def test_all_that_keeps_a_job_from_starting_is_told_at_once(folder: Path, closed_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        settings_file(f"127.0.0.1:{closed_port}", f'[observe]\nlisten = "{listen}"\n')
        result = redrive("run", "-c", "redrive.toml")
    assert result.exit_code == 1
    assert "the job can't start: 2 problems" in result.stderr
    assert "no broker can be reached" in result.stderr
    assert f"'{listen}' cannot be bound: address already in use" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (folder / ".redrive").exists()


def test_a_job_that_runs_is_named_and_not_its_port(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        path = settings_file("localhost:1", f'[observe]\nlisten = "{listen}"\n')
        job = read_settings(path).job
        job.directory.mkdir(parents=True)
        with PidFile.held(job), pytest.MonkeyPatch.context() as patch:
            patch.setattr("redrive.library.check_start", lambda _: None)
            result = redrive("run", "-c", "redrive.toml")
    assert result.exit_code == 1
    assert f"process {os.getpid()} already runs this job" in result.stderr
    assert not list(job.directory.iterdir())


def test_debug_shows_the_stack_trace(folder: Path, closed_port: int) -> None:
    address = f"127.0.0.1:{closed_port}"
    options = ["--bootstrap-server", address, "--dlq", "q", "--rules", "orders.rul"]
    result = redrive("--debug", "run", *options)
    assert "Traceback" in result.stderr
    assert result.exit_code == 1


def test_one_address_that_answers_is_enough(
    folder: Path, closed_port: int, bootstrap_servers: str
) -> None:
    connection = read_settings(
        settings_file(f"127.0.0.1:{closed_port},{bootstrap_servers}")
    ).job.connection
    name = "a.topic.that.is.not.there"
    right = Right(resource=Resource.TOPIC, name=name, operation="Read", purpose="")
    access.check_access(connection, [right])


def test_a_server_that_is_no_broker_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "COORDINATOR", 0.6)
    with socket.create_server(("127.0.0.1", 0)) as server:
        result = run_on(server.getsockname()[1])
    assert result.exit_code == 1
    assert "does not answer as a Kafka broker with PLAINTEXT" in result.stderr


@pytest.mark.parametrize(
    ("sign_in", "said"),
    [
        ('security_protocol = "SSL"', "refuses the sign-in with SSL: SSL handshake failed: "),
        (AS_ALICE, "refuses the sign-in as alice with SASL_PLAINTEXT: SASL PLAIN mechanism hand"),
    ],
)
def test_a_cluster_that_does_not_let_us_in_is_told(
    folder: Path, bootstrap_servers: str, sign_in: str, said: str
) -> None:
    Path("password").write_text("hunter2")
    path = settings_file(bootstrap_servers)
    path.write_text(path.read_text().replace("[[", f"{sign_in}\n[["))
    result = redrive("run", "-c", "redrive.toml", code=1)
    assert said in result.stderr
    assert "see security_protocol" in result.stderr
    assert "hunter2" not in result.stderr


def test_a_folder_that_cannot_be_written_is_told(folder: Path, bootstrap_servers: str) -> None:
    Path("file").write_text("")
    result = run_on(bootstrap_servers, "--directory", "file/state", code=1)
    assert "the job's folder" in result.stderr
    assert "cannot be written: not a directory" in result.stderr


class Process:
    """The command in a process of its own, with a job that only obeys."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(PRETEND), *arguments], stderr=subprocess.PIPE, text=True
        )
        self.said = ""

    def wait_for(self, text: str) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line
            if text in line:
                return
        raise AssertionError(f"the process ended without saying {text!r}:\n{self.said}")

    def end(self) -> int:
        assert self.process.stderr is not None
        self.said += self.process.stderr.read()
        return self.process.wait(timeout=PATIENCE)


@pytest.fixture
def start(folder: Path, bootstrap_servers: str) -> Iterator[Callable[..., Process]]:
    """Start the job of ``redrive.toml`` and wait until it handles dead letters."""
    settings_file(bootstrap_servers)
    started = []

    def start(*more: str, settings: Sequence[str] = ("-c", "redrive.toml")) -> Process:
        process = Process("run", *settings, *more)
        started.append(process)
        process.wait_for("handling the dead letters of orders.dlq")
        return process

    yield start
    for process in started:
        process.process.kill()
        process.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_job_in_order(
    start: Callable[..., Process], number: signal.Signals
) -> None:
    """The process ends with code 0 and says which signal it was; its pid file goes with it."""
    job = start()
    pid_file = Path(".redrive/orders/redrive.pid")
    assert int(pid_file.read_text()) == job.process.pid
    job.process.send_signal(number)
    job.process.send_signal(number)  # a second one changes nothing
    assert job.end() == 0
    assert f"stopped: {number.name}" in job.said
    assert "Traceback" not in job.said
    assert not pid_file.exists()


def test_a_job_without_a_settings_file_is_asked_without_one(
    start: Callable[..., Process], bootstrap_servers: str
) -> None:
    Path("redrive.toml").unlink()
    options = ("--bootstrap-server", bootstrap_servers, "--dlq", "orders.dlq")
    start("--rules", "orders.rul", settings=options)
    kept = Path(".redrive/orders.dlq/redrive.toml")
    assert read_settings(kept).job.directory == kept.parent.absolute()
    assert f"goes on with {kept}" in redrive("restart", code=0).stdout
    assert "No dead letters" in redrive("groups", code=0).stdout
    other = Path(".redrive/returns") / kept.name
    other.parent.mkdir()
    other.touch()
    refused = redrive("groups", code=2)
    assert "2 jobs were started without one" in refused.stderr
    assert f"-c {kept}, or -c {other}" in refused.stderr


def test_hangup_goes_on_with_new_settings(start: Callable[..., Process]) -> None:
    job = start()
    Path("other.rul").write_text(RULES)
    path = Path("redrive.toml")
    path.write_text(path.read_text().replace("orders.rul", "other.rul"))
    job.process.send_signal(signal.SIGHUP)
    job.wait_for("restarted with other.rul")
    job.process.terminate()
    assert job.end() == 0


def test_hangup_with_errors_leaves_the_old_job_running(start: Callable[..., Process]) -> None:
    job = start()
    Path("orders.rul").write_text("ACTION(FORWARD)\n")
    job.process.send_signal(signal.SIGHUP)
    job.wait_for("not restarted, the job continues with the old settings")
    assert "orders.rul:1:8" in job.said
    assert job.process.poll() is None
    Path("orders.rul").write_text(RULES)
    job.process.send_signal(signal.SIGHUP)
    job.wait_for("restarted with orders.rul")


def restarted(*more: str) -> Result:
    return CliRunner().invoke(restart, ["-c", "redrive.toml", *more], standalone_mode=False)


def test_restart_waits_for_the_result(start: Callable[..., Process]) -> None:
    job = start()
    for _ in range(2):
        result = restarted()
        assert result.exception is None
        assert f"process {job.process.pid} goes on with redrive.toml" in result.stdout
        assert "the query was restarted" in result.stdout
    job.wait_for("restarted with orders.rul")


def test_restart_tells_which_tables_changed(start: Callable[..., Process]) -> None:
    start()
    rules = Path("orders.rul")
    rules.write_text("* the same\n" + rules.read_text())
    assert "no table changed in meaning: parked messages keep" in restarted().stdout
    rules.write_text("RETRYINT(7)\n" + RULES)
    assert (
        "the meaning changed; parked and remaining messages are evaluated again"
        in restarted().stdout
    )
    assert "no table changed" in restarted().stdout


def test_restart_tells_why_not(start: Callable[..., Process]) -> None:
    start()
    path = Path("redrive.toml")
    path.write_text(path.read_text() + '[job]\ncores = 7\ndriver_memory = "3g"\n')
    result = restarted()
    assert str(result.exception) == (
        "not restarted, the job continues with the old settings: a running job cannot change"
        " its cores and "
        "driver memory"
    )


def test_restart_shows_errors_without_asking_the_job(start: Callable[..., Process]) -> None:
    job = start()
    path = Path("redrive.toml")
    path.write_text(path.read_text().replace("orders.rul", "nothing.rul"))
    assert "1 error in the settings" in str(restarted().exception)
    assert job.process.poll() is None


def test_restart_without_a_job_says_so(start: Callable[..., Process]) -> None:
    job = start()
    job.process.kill()
    job.end()
    assert Path(".redrive/orders/redrive.pid").exists()
    result = restarted()
    assert "no job runs in" in str(result.exception)
    start()
    assert restarted().exception is None


def test_the_start_is_logged_without_secrets(
    folder: Path, bootstrap_servers: str, start: Callable[..., Process]
) -> None:
    """The first JSON line has the settings in it, defaults filled in, and where they are from."""
    job = start("--log-format", "json", "--instance", "1/2")
    entries = [json.loads(line) for line in job.said.splitlines()]
    assert [entry["event"] for entry in entries] == ["start", "started"]
    assert entries[0]["kafka"]["bootstrap_servers"] == bootstrap_servers
    assert (entries[0]["settings"], entries[0]["instance"]) == ("redrive.toml", "1/2")
    assert not [key for key in entries[0]["kafka"] if "password" in key]


def test_an_error_that_ends_the_job_is_in_its_log(folder: Path, bootstrap_servers: str) -> None:
    path = settings_file(bootstrap_servers, '[log]\nfile = "redrive.log"\n')
    fault = "from redrive.errors import FatalFault\n"
    fault += "def fail(configuration, control, **_):\n    raise FatalFault('fenced')\n"
    program = "from redrive.__main__ import main\nfrom redrive.command import run\n"
    program += f"{fault}run._job = lambda: fail\nmain()\n"
    ended = python("-c", program, "run", "-c", path, code=1)
    assert ended.stderr == "error: fenced\n"
    assert "ERROR   ended by an error: fenced" in Path("redrive.log").read_text()


def test_reload_logs_who_asked_for_it_and_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = read_settings(settings_file("localhost:1"))
    settings.job.directory.mkdir(parents=True)
    monkeypatch.setattr(run, "_configure_log", lambda *_, **__: None)
    RestartRecord(settings.job.directory, settings.job.share).ask("ann (ticket 4711)")
    source: Any = SimpleNamespace(read=lambda: settings)
    with caplog.at_level("INFO", "redrive"):
        job = run._reload(source, settings.job, logs_output=True)
    assert job.operator == "ann (ticket 4711)"
    assert "read again for ann (ticket 4711)" in caplog.text

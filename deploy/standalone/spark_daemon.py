"""Start and stop this machine's part of a Spark standalone cluster: a master, workers, or both.

The pyspark package brings Spark's classes, but not the scripts that start its daemons (``sbin``).
Run this with the Python that Redrive is installed in; it needs nothing else.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from redrive.broker.process import is_alive, send_signal, spawn, wait_until_gone
from redrive.errors import EnvironmentFault, RedriveError
from redrive.java import find_java

_START_TIMEOUT: Final = 60.0  # seconds; a start takes 3 s on an idle machine with 2 cores
_STOP_TIMEOUT: Final = 30.0  # seconds; an orderly stop takes 1 s
_POLL_INTERVAL: Final = 0.1  # seconds
_LOG_TAIL: Final = 5  # lines of the log that an error quotes

_CLASSES: Final = {
    "master": "org.apache.spark.deploy.master.Master",
    "worker": "org.apache.spark.deploy.worker.Worker",
}
_READY: Final = re.compile("elected leader|Successfully registered with master")
"""What the log says once a master or a worker can be used."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """One daemon of a folder, by its pid file."""

    directory: Path
    name: str
    """``master``, or ``worker-`` and the worker's name."""

    @property
    def kind(self) -> str:
        """``master`` or ``worker``."""
        return self.name.partition("-")[0]

    @property
    def log(self) -> Path:
        """Its log file; the one of the start before is beside it, ending in ``.1``."""
        return self.directory / f"{self.name}.log"

    @property
    def pid(self) -> int:
        """Its process; 0 if it does not run, whatever the pid file says."""
        try:
            pid = int(self._pid_file.read_text())
        except FileNotFoundError:
            return 0
        return pid if is_alive(pid, _CLASSES[self.kind]) else 0

    def start(self, command: list[str]) -> None:
        """Start it in the background, and wait until it is of use.

        Args:
            command: Program and arguments.

        Raises:
            EnvironmentFault: It ended, or was not ready in time and was stopped again.
        """
        if self.log.exists():
            self.log.replace(f"{self.log}.1")
        self._pid_file.write_text(f"{spawn(command, self.log, folder=self.directory)}\n")
        deadline = time.monotonic() + _START_TIMEOUT
        while not _READY.search(self.log.read_text(errors="replace")):
            if not self.pid:
                raise self._failure("ended while it was starting")
            if time.monotonic() > deadline:
                self.stop()
                raise self._failure(f"was not ready within {_START_TIMEOUT:.0f} s")
            time.sleep(_POLL_INTERVAL)

    def stop(self) -> None:
        """Stop it in an orderly way, a worker with its executors, and wait until it is gone.

        Raises:
            EnvironmentFault: It did not end in time; it is left alone.
        """
        if pid := self.pid:
            send_signal(pid, _CLASSES[self.kind], signal.SIGTERM)
            if not wait_until_gone(pid, _CLASSES[self.kind], _STOP_TIMEOUT):
                raise self._failure(f"has not stopped within {_STOP_TIMEOUT:.0f} s")
        self._pid_file.unlink(missing_ok=True)

    @property
    def _pid_file(self) -> Path:
        return self.directory / f"{self.name}.pid"

    def _failure(self, what: str) -> EnvironmentFault:
        lines = self.log.read_text(errors="replace").splitlines()
        said = [line for line in lines if not line.startswith("\t")]  # without Java's stack frames
        message = "\n".join([f"the {self.kind} {what}; its log ends in", *said[-_LOG_TAIL:]])
        return EnvironmentFault(message, hint=f"see {self.log}")


def _daemons(directory: Path) -> Iterator[Daemon]:
    """Every daemon that was started in a folder and not stopped, workers first."""
    for path in sorted(directory.glob("*.pid"), reverse=True):
        yield Daemon(directory, path.stem)


def _set_environment(directory: Path, host: str, options: dict[str, str]) -> None:
    """Tell Spark what it takes from the environment; executors inherit it from their worker."""
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ["SPARK_HOME"] = str(_spark_home())
    os.environ["SPARK_LOCAL_IP"] = host
    # Executors that are killed leave their scratch files: they belong where they are seen.
    os.environ.setdefault("SPARK_LOCAL_DIRS", str(directory / "scratch"))
    ours = " ".join(f'"-D{name}={value}"' for name, value in options.items())
    theirs = os.environ.get("SPARK_DAEMON_JAVA_OPTS", "")
    os.environ["SPARK_DAEMON_JAVA_OPTS"] = f"{ours} {theirs}".strip()


def _spark_home() -> Path:
    """The folder of the installed pyspark, found without importing it."""
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        hint = "run this with the Python that Redrive is installed in"
        raise EnvironmentFault(f"{sys.executable} has no pyspark", hint=hint)
    return Path(pyspark.origin).parent


def _run(daemon: Daemon, arguments: list[str], *, foreground: bool) -> None:
    """Become the daemon, or start it in the background and say where it is."""
    command = [str(_spark_home() / "bin" / "spark-class"), _CLASSES[daemon.kind], *arguments]
    daemon.directory.mkdir(parents=True, exist_ok=True)
    if foreground:
        os.chdir(daemon.directory)
        os.execv(command[0], command)  # noqa: S606 - a list of arguments, no shell line
    if pid := daemon.pid:
        click.echo(f"{daemon.name} already runs as process {pid}")
        return
    daemon.start(command)
    click.echo(f"{daemon.name} runs as process {daemon.pid}; its log is {daemon.log}")


def _common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of what starts a daemon."""
    host = click.option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        help="Name or address of this machine, to listen on and to be reached at; "
        "the default is reached from this machine only.",
    )
    web_port = click.option(
        "--web-port",
        type=click.IntRange(0, 65535),
        help="Port of the daemon's own web page; 0 for any free one.  "
        "[default: 8080 for a master, 8081 for a worker, or the next free one]",
    )
    foreground = click.option(
        "--foreground",
        is_flag=True,
        help="Stay, and log to standard error, as supervisors and containers want it.",
    )
    return host(web_port(foreground(_directory(command))))


_directory = click.option(
    "--directory",
    "-d",
    type=click.Path(file_okay=False, path_type=Path, resolve_path=True),
    default=Path(".redrive") / "spark",
    show_default=True,
    help="Folder for pid files, logs and the work of executors.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Start and stop a Spark standalone master and workers on this machine.

    \b
    python spark_daemon.py start-master
    python spark_daemon.py start-worker spark://127.0.0.1:7077 --cores 2 --memory 4g
    python spark_daemon.py status
    python spark_daemon.py stop

    Whoever reaches a master can let its workers run programs: give it an address that others can
    reach only together with a secret, as docs/running.md tells.
    """  # noqa: D301 - \b keeps click from wrapping the examples


@main.command()
@_common_options
@click.option(
    "--port", type=click.IntRange(1, 65535), default=7077, show_default=True, help="Its port."
)
def start_master(
    directory: Path, *, host: str, port: int, web_port: int | None, foreground: bool
) -> None:
    """Start the master, and wait until it can be used.

    Example: python spark_daemon.py start-master --host 192.0.2.10
    """
    options = {
        # It would take programs from anybody, without the secret.
        "spark.master.rest.enabled": "false",
        # A master that is started again knows its workers and the job that runs on them.
        "spark.deploy.recoveryMode": "FILESYSTEM",
        "spark.deploy.recoveryDirectory": str(directory / "recovery"),
    }
    _set_environment(directory, host, options)
    arguments = ["--host", host, "--port", str(port), *_given("--webui-port", web_port)]
    _run(Daemon(directory, "master"), arguments, foreground=foreground)


@main.command()
@_common_options
@click.argument("master")
@click.option("--name", default="1", show_default=True, help="Tells workers of one folder apart.")
@click.option("--cores", type=click.IntRange(min=1), help="Cores to offer.  [default: all]")
@click.option("--memory", help="Memory to offer, such as 4g.  [default: all but 1 GiB]")
def start_worker(
    directory: Path,
    *,
    master: str,
    name: str,
    host: str,
    web_port: int | None,
    cores: int | None,
    memory: str | None,
    foreground: bool,
) -> None:
    """Start a worker for MASTER, and wait until the master knows it.

    Example: python spark_daemon.py start-worker spark://192.0.2.10:7077 --host 192.0.2.11
    """
    _set_environment(directory, host, {})
    daemon = Daemon(directory, f"worker-{name}")
    arguments = [
        *("--host", host),
        *_given("--webui-port", web_port),
        *_given("--cores", cores),
        *_given("--memory", memory),
        *("--work-dir", str(directory / daemon.name)),
        master,
    ]
    _run(daemon, arguments, foreground=foreground)


def _given(option: str, value: object) -> list[str]:
    """An option of Spark's, if it was given to us."""
    return [] if value is None else [option, str(value)]


@main.command()
@_directory
@click.argument("names", nargs=-1)
def stop(directory: Path, *, names: tuple[str, ...]) -> None:
    """Stop the daemons NAMES, or all of the folder, workers first.

    Example: python spark_daemon.py stop worker-1
    """
    for daemon in list(_daemons(directory)):
        if not names or daemon.name in names:
            daemon.stop()
            click.echo(f"{daemon.name} is stopped")


@main.command()
@_directory
def status(directory: Path) -> None:
    """Tell which daemons of the folder run; exit code 1 if one died, or if there is none.

    Example: python spark_daemon.py status
    """
    states = {daemon.name: daemon.pid for daemon in _daemons(directory)}
    for name, pid in sorted(states.items()):
        click.echo(f"{name}  {f'running, process {pid}' if pid else 'died'}")
    if not states or not all(states.values()):
        raise SystemExit(1)


def _command_line() -> NoReturn:
    try:
        sys.exit(main(prog_name=Path(sys.argv[0]).name))
    except RedriveError as error:
        sys.exit(f"error: {error.message}\nhint: {error.hint}")


if __name__ == "__main__":
    _command_line()

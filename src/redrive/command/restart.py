"""``redrive restart``: let a running job go on with its settings and tables as they are now."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from redrive.command.process import PidFile, RestartRecord
from redrive.errors import EnvironmentFault, RedriveError
from redrive.settings import Option, read_settings

__all__ = ["restart"]

_LOOK: Final = 0.1
"""Seconds between two looks at the job's answer."""


@click.command()
@click.option(
    "-c",
    "--config",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="The settings that the job was started with.",
)
@click.option("--instance", metavar="N/M", help="Which of several instances, such as 1/2.")
@click.option("--directory", metavar="DIR", help="The job's folder, if it was started with one.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the job's answer.",
)
def restart(path: Path, instance: str | None, directory: str | None, timeout: float) -> None:
    """Let a running job go on with its settings and rules tables as they are now.

    The running batch ends first. If anything is wrong with the new settings or tables, the job
    goes on with the old ones, and this command says why. A table that has changed decides afresh
    about every message that is parked or remains.

    \b
    redrive restart -c redrive.toml

    Exit codes: 0 restarted, 1 not restarted, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    given = {"instance": instance, "directory": directory}
    options = [
        Option(("application", key), f"--{key}", value) for key, value in given.items() if value
    ]
    # Errors in tables show here already, before the job is asked.
    job = read_settings(path, options=options).job
    record = RestartRecord(job.directory, job.share)
    owner = PidFile(job.directory, job.share)
    pid = owner.owner()
    if pid is None:
        raise EnvironmentFault(
            f"no job runs in {job.directory}", hint=f"start it: redrive run -c {path}"
        )
    before = record.read()["number"]
    _signal(pid)
    answer = _answer(owner, record, before, timeout)
    if not answer["restarted"]:
        for finding in answer["findings"]:
            click.echo(finding, err=True)
        raise RedriveError(
            f"not restarted, the job goes on as before: {answer['message']}", hint=answer["hint"]
        )
    click.echo(f"process {pid} goes on with {path} and its rules tables as they are now")


def _signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGHUP)
    except OSError as error:
        raise EnvironmentFault(f"process {pid} can't be signalled: {error.strerror}") from error


def _answer(
    owner: PidFile, record: RestartRecord, before: int, timeout: float
) -> Mapping[str, Any]:
    """What the job says about the restart that follows number ``before``."""
    deadline = time.monotonic() + timeout
    while True:
        answer = record.read()
        if answer["number"] > before:
            return answer
        if owner.owner() is None:
            raise EnvironmentFault("the job ended", hint="its log says why")
        if time.monotonic() > deadline:
            raise EnvironmentFault(
                f"the job has not answered within {timeout:g} s",
                hint="a long batch may still be running; the log will say what became of it",
            )
        time.sleep(_LOOK)

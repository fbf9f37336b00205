"""``redrive restart``: let a running job go on with its settings and tables as they are now."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from redrive.command.options import instance_options, read_instance
from redrive.errors import RedriveError
from redrive.operations.restart import RestartAnswer
from redrive.operations.restart import restart as restart_job
from redrive.printable import printable

__all__ = ["restart"]

_NOTHING_MOVES: Final = (
    "parked messages keep their count, and what remains stays as it is until its table changes"
)


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
@instance_options
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
    goes on with the old ones, and this command says why. A table that has changed in meaning
    decides afresh about every message that is parked or remains; one that has not leaves them
    alone. The command says which are which.

    \b
    redrive restart -c redrive.toml

    Exit codes: 0 restarted, 1 not restarted, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    # Errors in tables show here already, before the job is asked.
    job = read_instance(path, instance, directory)
    answer = restart_job(job, timeout=timeout)
    if answer.message:
        for finding in answer.findings:
            click.echo(printable(finding), err=True)
        raise RedriveError(
            f"not restarted, the job goes on as before: {answer.message}", hint=answer.hint
        )
    click.echo(f"process {answer.pid} goes on with {path} and its rules tables as they are now")
    for line in _tables(answer):
        click.echo(printable(line))


def _tables(answer: RestartAnswer) -> Iterator[str]:
    """What the restart means for messages that are parked or remain."""
    for name in answer.changed:
        yield f"{name}: another table; what is parked or remains is decided afresh"
    if answer.changed:
        for name in answer.unchanged:
            yield f"{name}: the same table; {_NOTHING_MOVES}"
    elif answer.unchanged:
        yield f"no table changed in meaning, so {_NOTHING_MOVES}"

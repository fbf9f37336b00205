"""``redrive ledger``: maintains the ledger."""

from __future__ import annotations

from pathlib import Path

import click

from redrive.command.options import config_option
from redrive.configuration import JobConfiguration
from redrive.errors import UsageError
from redrive.outcomes.open_letters import write_open_letters
from redrive.outcomes.storage import locked
from redrive.outcomes.table import LedgerTable
from redrive.printable import counted
from redrive.settings import read_settings


@click.group()
def ledger() -> None:
    """Maintain the ledger, while no job runs.

    \b
    redrive ledger compact    merge small files, as a running job does by itself
    redrive ledger rebuild    make the ledger again from the outcomes topic
    """  # noqa: D301 - \b keeps click from wrapping the examples


@ledger.command()
@config_option
def compact(config: Path) -> None:
    """Merge small files, and delete obsolete ones."""
    job = _job(config)
    with locked(job.ledger.path):
        table = LedgerTable.open(job.ledger.path, bridges_outages=True)
        if table is None:
            raise UsageError(
                f"there is no ledger in {job.ledger.path}", hint="`redrive run` creates it"
            )
        done = table.compact()
        write_open_letters(job.ledger.path)
    click.echo(
        f"{done.files_before} files merged into {done.files_after}, {done.files_deleted} deleted"
    )


@ledger.command()
@config_option
def rebuild(config: Path) -> None:
    """Delete the ledger and make it again from the outcomes topic.

    Nothing is lost while the topic keeps its records: forever, unless its retention was changed.
    """
    job = _job(config)
    with locked(job.ledger.path):
        pass  # report a running job before Spark is started
    click.echo("Starting Spark ...", err=True)
    from redrive.streaming.projection import rebuild as rebuild_ledger  # noqa: PLC0415 - slow to import
    from redrive.streaming.session import Spark  # noqa: PLC0415

    def progress(number: int) -> None:
        click.echo(f"{counted(number, 'outcome')} ...", err=True)

    spark = Spark(job)
    try:
        session = spark.session
        total = spark.translated(
            "rebuild of the ledger", lambda: rebuild_ledger(session, job, progress)
        )
    finally:
        spark.stop()
    click.echo(f"The ledger {job.ledger.path} holds {counted(total, 'outcome')}")


def _job(config: Path) -> JobConfiguration:
    job = read_settings(config).job
    if not job.ledger.enabled:
        raise UsageError(f"the ledger is disabled in {config}", hint="set ledger.enabled = true")
    return job

"""``redrive setup``: the jars that Spark and the broker need, and the Java that runs them."""

from __future__ import annotations

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from redrive.errors import EnvironmentFault
from redrive.jars import fetch_jars, jar_directory, locked_jars, verify_jars
from redrive.java import find_java

__all__ = ["setup"]


@click.command()
@click.option("--verify", is_flag=True, help="Compare the content of every jar with the lock.")
def setup(*, verify: bool) -> None:
    """Fetch and verify the jars that Spark and the broker need.

    This needs a network once; nothing that Redrive does later needs it. A mirror or a private
    repository is named in Ivy settings: ~/.ivy2/ivysettings.xml, or a file that
    REDRIVE_IVY_SETTINGS names.

    \b
    redrive setup
    redrive setup --verify
    """  # noqa: D301 - \b keeps click from wrapping the examples
    click.echo(f"Java: {find_java()}")
    _fetch()
    if verify:
        verify_jars()
    _prepare_start()
    proof = "SHA-256 sums compared" if verify else "complete"
    click.echo(f"Jars: {len(locked_jars())} in {jar_directory()}, {proof}")


def _prepare_start() -> None:
    """Make Spark start sooner; without it everything works too."""
    from redrive.streaming.class_archive import (  # noqa: PLC0415 - slow to import
        archive_path,
        make_archive,
    )

    if archive_path(find_java()).exists():
        return
    click.echo("Preparing Spark's start, which takes about half a minute ...", err=True)
    try:
        make_archive()
    except EnvironmentFault as fault:
        click.echo(f"note: {fault.message}", err=True)
        click.echo(f"hint: {fault.hint}", err=True)


def _fetch() -> None:
    """Fetch what is missing, with a bar on a terminal and two lines elsewhere."""
    columns = (TextColumn("Fetching jars"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None, visible=False)

        def show(done: int, total: int) -> None:
            if done == 0 and not console.is_terminal:
                click.echo("Fetching jars, which takes about a minute ...", err=True)
            bar.update(task, completed=done, total=total, visible=True)

        fetch_jars(progress=show)

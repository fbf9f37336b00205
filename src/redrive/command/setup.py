"""``redrive setup``: fetches the jars that Spark and the broker need."""

from __future__ import annotations

import click

from redrive.broker.kafka_programs import broker_archive
from redrive.command.output import print_notes, progress_bar
from redrive.errors import EnvironmentFault
from redrive.java import (
    JarGroup,
    fetch_jars,
    find_java,
    jar_directory,
    jar_files,
    locked_jars,
    verify_jars,
)


@click.command()
@click.option("--verify", is_flag=True, help="Compare the content of every jar with the lock.")
@click.option(
    "--print-jars",
    is_flag=True,
    help="Print the jars that a Spark session of your own needs, separated by commas.",
)
def setup(*, verify: bool, print_jars: bool) -> None:
    """Fetch and verify the jars that Spark and the broker need.

    This needs the network once; afterwards Redrive works offline. Name a mirror or a private
    repository in Ivy settings: ~/.ivy2/ivysettings.xml, or the file in REDRIVE_IVY_SETTINGS.

    \b
    redrive setup
    redrive setup --verify
    spark-submit --jars "$(redrive setup --print-jars)" job.py
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if not print_jars:
        click.echo(f"Java: {find_java()}")
    with progress_bar("Fetching jars") as show:
        fetch_jars(progress=show)
    if verify:
        verify_jars()
    if print_jars:
        groups = (JarGroup.SPARK, JarGroup.DELTA)
        click.echo(",".join(str(path) for group in groups for path in jar_files(group)))
        return
    _archive_classes()
    proof = "SHA-256 sums compared" if verify else "complete"
    click.echo(f"Jars: {len(locked_jars())} in {jar_directory()}, {proof}")


def _archive_classes() -> None:
    """Speed up the start of Spark and the embedded broker; this is optional."""
    from redrive.streaming.session import spark_archive  # noqa: PLC0415 - slow to import

    java = find_java()
    for archive in (spark_archive(java), broker_archive(java)):
        if archive.path.exists():
            continue
        click.echo(f"Archiving the classes of {archive.program}, up to half a minute ...", err=True)
        try:
            archive.make()
        except EnvironmentFault as fault:
            print_notes([fault.message, fault.hint])

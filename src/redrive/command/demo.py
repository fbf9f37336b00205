"""``redrive demo``: the whole job on sample dead letters and an embedded broker."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

import click
import orjson
from rich.console import Console

from redrive.demo import Demonstration, Scenario
from redrive.errors import UsageError

__all__ = ["demo"]

_FEWEST: Final = 50
"""Messages below which some kinds would be missing."""
_INTERRUPTED: Final = 130
"""Exit code after Ctrl+C, as shells have it."""


@click.command()
@click.option(
    "--messages",
    "-n",
    type=click.IntRange(_FEWEST, 1_000_000),
    default=10_000,
    show_default=True,
    help="How many dead letters to make.",
)
@click.option("--seed", type=click.IntRange(0), help="Make the same ones as another demo.")
@click.option(
    "--directory",
    "-d",
    type=click.Path(file_okay=False, path_type=Path),
    help="New folder for everything the demo writes; by default one that is removed.",
)
@click.option("--keep", is_flag=True, help="Leave the broker running, to look around.")
@click.option("--fast", is_flag=True, help="Retry every second; over in a few seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def demo(
    context: click.Context,
    *,
    messages: int,
    seed: int | None,
    directory: Path | None,
    keep: bool,
    fast: bool,
    as_json: bool,
) -> None:
    """Run the whole job on sample dead letters and an embedded broker.

    A generator makes dead letters of many kinds; the job handles them by a sample table while you
    watch; at last kafka-python reads everything on the broker and the demo checks what became of
    each single message. Nothing is left behind, unless you want it.

    \b
    redrive demo
    redrive demo --messages 300 --fast
    redrive demo --keep --directory demo

    Exit codes: 0 it adds up, 1 it does not, 2 usage, 130 interrupted.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if keep and directory is None:
        raise UsageError(
            "--keep needs a folder to keep things in", hint="redrive demo --keep --directory demo"
        )
    make = Scenario.fast if fast else Scenario.usual
    scenario = make(messages, secrets.randbelow(1_000_000) if seed is None else seed)
    try:
        report = Demonstration(scenario, directory=directory, keep=keep).run()
    except KeyboardInterrupt:
        click.echo("interrupted; everything that was started is stopped", err=True)
        context.exit(_INTERRUPTED)
    if as_json:
        click.echo(orjson.dumps(report.document(), option=orjson.OPT_INDENT_2))
    else:
        report.show(Console(highlight=False))
        if directory is not None:
            _tell_kept(directory, keep=keep)
    context.exit(0 if report.reconciliation.adds_up else 1)


def _tell_kept(directory: Path, *, keep: bool) -> None:
    click.echo(f"\nEverything is in {directory}: settings, table, logs, the broker's data.")
    broker = directory / "broker"
    if not keep:
        click.echo(f"  redrive broker start -d {broker}    start the broker again")
    click.echo(f"  redrive status -c {directory / 'redrive.toml'}")
    click.echo(f"  redrive broker stop -d {broker}")

"""``redrive demo``: the whole job on sample messages and an embedded broker."""

from __future__ import annotations

import secrets
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click
from rich.console import Console

from redrive.broker.ports import free_port
from redrive.command.options import json_option
from redrive.command.output import print_json
from redrive.console.command import check_console
from redrive.demo.demonstration import Demonstration
from redrive.demo.kafka import KafkaDeadLetters
from redrive.demo.mq import MqDeadLetters
from redrive.errors import UsageError

_FEWEST: Final = 50
"""Minimum number of messages; with fewer some kinds would be missing."""
_OF_MQ: Final = 10_000
_OF_KAFKA: Final = 2_000
"""Fewer, since many of them wait for half a minute."""
_KAFKA: Final = "kafka"
_REMOVED: Final = ("mq", "mqe")
"""Demos of networks; Redrive 0.1.0 was the last version that had them."""
_INTERRUPTED: Final = 130
"""Exit code after Ctrl+C, as in shells."""


def _known(context: click.Context, parameter: click.Parameter, which: str | None) -> str | None:
    del context, parameter
    if which in _REMOVED:
        message = f"redrive demo {which} was removed: the last version that has it is 0.1.0"
        raise UsageError(message, hint=f"examples/{which}/README.md has its network to try by hand")
    if which not in {None, _KAFKA}:
        raise UsageError(f"{which} is not a demo", hint=f"redrive demo, or redrive demo {_KAFKA}")
    return which


@click.command()
@click.argument("which", metavar="[kafka]", required=False, callback=_known)
@click.option(
    "--messages",
    "-n",
    type=click.IntRange(_FEWEST, 1_000_000),
    show_default=f"{_OF_MQ}; {_OF_KAFKA} for kafka",
    help="How many messages to make.",
)
@click.option("--seed", type=click.IntRange(0), help="Random seed, to repeat a demo.")
@click.option(
    "--directory",
    "-d",
    type=click.Path(file_okay=False, path_type=Path),
    help="New folder for the demo's files; by default a temporary one.",
)
@click.option("--keep", is_flag=True, help="Keep the broker running afterwards.")
@click.option(
    "--console",
    "shows_console",
    is_flag=True,
    help="Afterwards run the job and the web console on the demo's data until Ctrl+C.",
)
@click.option("--fast", is_flag=True, help="Retry every second; done in a few seconds.")
@json_option
@click.pass_context
def demo(
    context: click.Context,
    which: str | None,
    *,
    messages: int | None,
    seed: int | None,
    directory: Path | None,
    keep: bool,
    shows_console: bool,
    fast: bool,
    as_json: bool,
) -> None:
    """Run the whole job on sample dead letters and an embedded broker.

    A generator makes dead letters of IBM MQ of many kinds, and the job handles them by a sample
    table: a queue is full, another one is missing for a minute. At the end kafka-python reads all
    topics, and the demo checks every message. Everything is removed afterwards, except with --keep
    or --directory.

    With kafka, they are dead letters of Kafka Connect, Spring and Kafka Streams in four schemes,
    under one table with back-off. A topic that many return to is missing for half a minute,
    and an application fails again, for some messages in every round.

    \b
    redrive demo
    redrive demo --messages 300 --fast
    redrive demo --keep --directory demo
    redrive demo kafka

    Exit codes: 0 every message as expected, 1 not, 2 usage, 130 interrupted.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if keep and directory is None:
        raise UsageError("--keep needs --directory", hint="redrive demo --keep --directory demo")
    make, default = (KafkaDeadLetters, _OF_KAFKA) if which else (MqDeadLetters, _OF_MQ)
    script = make(
        messages or default, secrets.randbelow(1_000_000) if seed is None else seed, fast=fast
    )
    with ExitStack() as stack:
        if shows_console:
            check_console()
            temporary = stack.enter_context(TemporaryDirectory(prefix="redrive-demo-"))
            directory, keep = directory or Path(temporary) / "demo", True
        try:
            report = Demonstration(script, directory=directory, keep=keep).run()
        except KeyboardInterrupt:
            click.echo("interrupted; everything is stopped", err=True)
            context.exit(_INTERRUPTED)
        if as_json:
            print_json(report.document())
        else:
            report.show(Console(highlight=False))
        if shows_console:
            assert directory is not None
            _serve(directory)
        elif directory is not None and not as_json:
            _name_places(directory, keep=keep)
    context.exit(0 if report.adds_up else 1)


def _name_places(directory: Path, *, keep: bool) -> None:
    click.echo(f"\nEverything is in {directory}: settings, table, logs, the broker's data.")
    broker = directory / "broker"
    if not keep:
        click.echo(f"  redrive broker start -d {broker}    start the broker again")
    click.echo(f"  redrive status -c {directory / 'redrive.toml'}")
    click.echo(f"  redrive broker stop -d {broker}")


def _serve(directory: Path) -> None:
    from redrive.console.server import serve_console  # noqa: PLC0415 - only with the extra

    settings, redrive = directory / "redrive.toml", [sys.executable, "-m", "redrive"]
    with (directory / "run.log").open("wb") as log:
        job = subprocess.Popen([*redrive, "run", "-c", settings], stdout=log, stderr=log)
        try:
            serve_console(settings, "127.0.0.1", free_port())
        finally:
            job.terminate()
            job.wait()
            subprocess.run(
                [*redrive, "broker", "stop", "-d", directory / "broker"],
                check=False,
                stdout=subprocess.DEVNULL,
            )

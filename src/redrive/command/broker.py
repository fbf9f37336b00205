"""``redrive broker``: a real single-node Kafka in the background."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import orjson

from redrive.broker import BrokerState, BrokerStatus, EmbeddedBroker
from redrive.java import find_java

__all__ = ["broker"]

_DEFAULT_DIRECTORY = Path(".redrive") / "broker"


def _common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every subcommand has."""
    directory = click.option(
        "--directory",
        "-d",
        type=click.Path(file_okay=False, path_type=Path),
        default=_DEFAULT_DIRECTORY,
        show_default=True,
        help="Folder with the broker's data and log.",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
    return directory(as_json(command))


@click.group()
def broker() -> None:
    """Run a real single-node Kafka broker in the background.

    It listens on this machine only and keeps its data over restarts.

    \b
    redrive broker start --port 9092
    redrive broker status
    redrive broker stop
    """  # noqa: D301 - \b keeps click from wrapping the examples


@broker.command()
@_common_options
@click.option(
    "--port",
    "-p",
    type=click.IntRange(1, 65535),
    help="Port for clients; by default the one of the last start, or else a free one.",
)
@click.option(
    "--property",
    "properties",
    metavar="NAME=VALUE",
    multiple=True,
    help="A further broker property; may be repeated.",
)
def start(directory: Path, *, as_json: bool, port: int | None, properties: tuple[str, ...]) -> None:
    """Start the broker and wait until it is ready.

    \b
    redrive broker start --port 9092
    redrive broker start --property message.max.bytes=10000000
    """  # noqa: D301 - \b keeps click from wrapping the examples
    embedded = EmbeddedBroker(directory, port=port, properties=_parse(properties))
    if not as_json:
        click.echo(f"Starting Kafka on {find_java()} ...", err=True)
    started = embedded.start()
    status = embedded.status()
    _print(status, as_json=as_json, note="" if started else "it was running already")


@broker.command()
@_common_options
def stop(directory: Path, *, as_json: bool) -> None:
    """Stop the broker in an orderly way; its data stays.

    Example: redrive broker stop
    """
    embedded = EmbeddedBroker(directory)
    stopped = embedded.stop()
    _print(embedded.status(), as_json=as_json, note="" if stopped else "it was not running")


@broker.command()
@_common_options
@click.pass_context
def status(ctx: click.Context, directory: Path, *, as_json: bool) -> None:
    """Tell whether the broker runs (exit code 0) or not (1).

    Example: redrive broker status --json
    """
    found = EmbeddedBroker(directory).status()
    _print(found, as_json=as_json)
    if found.state is not BrokerState.RUNNING:
        ctx.exit(1)


@broker.command()
@_common_options
def wipe(directory: Path, *, as_json: bool) -> None:
    """Delete the data of a broker that is stopped.

    Example: redrive broker wipe
    """
    embedded = EmbeddedBroker(directory)
    embedded.wipe()
    _print(embedded.status(), as_json=as_json, note="its data is deleted")


def _parse(properties: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in properties]
    for name, equals, _ in pairs:
        if not (name and equals):
            message = f"{name!r} is not of the form NAME=VALUE"
            raise click.BadParameter(message, param_hint="--property")
    return {name: value for name, _, value in pairs}


def _print(status: BrokerStatus, *, as_json: bool, note: str = "") -> None:
    if as_json:
        click.echo(orjson.dumps(_as_json(status)))
        return
    click.echo(f"The broker in {status.directory} is {status.state}" + (note and f"; {note}"))
    if status.pid:
        click.echo(f"  bootstrap server  {status.bootstrap_servers}")
        click.echo(f"  process           {status.pid}")
    if status.log.exists():
        click.echo(f"  log               {status.log}")


def _as_json(status: BrokerStatus) -> dict[str, str | int]:
    return {
        "state": status.state,
        "bootstrap_servers": status.bootstrap_servers,
        "pid": status.pid,
        "directory": str(status.directory),
        "log": str(status.log),
    }

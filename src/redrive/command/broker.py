"""``redrive broker``: a real Kafka in the background, of one broker."""

from __future__ import annotations

from pathlib import Path

import click

from redrive.broker import BrokerState, EmbeddedBroker
from redrive.command.options import combined, repeated_option
from redrive.command.output import print_json
from redrive.java import find_java

_DEFAULT_DIRECTORY = Path(".redrive") / "broker"


_common_options = combined(
    click.option(
        "--directory",
        "-d",
        type=click.Path(file_okay=False, path_type=Path),
        default=_DEFAULT_DIRECTORY,
        show_default=True,
        help="Folder with the broker's data and log.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one line of JSON."),
)


@click.group()
def broker() -> None:
    """Run a Kafka broker in the background.

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
    help="Port for clients; by default that of the last start, or a free one.",
)
@repeated_option(
    "--property", "properties", metavar="NAME=VALUE", help_text="A further broker property."
)
def start(
    directory: Path,
    *,
    as_json: bool,
    port: int | None,
    properties: tuple[str, ...],
) -> None:
    """Start the broker and wait until it is ready.

    \b
    redrive broker start --port 9092
    redrive broker start --property message.max.bytes=10000000
    """  # noqa: D301 - \b keeps click from wrapping the examples
    pairs = [text.partition("=") for text in properties]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise click.BadParameter(f"{name!r} is not NAME=VALUE", param_hint="--property")
    further = {name: value for name, _, value in pairs}
    embedded = EmbeddedBroker(directory, port=port, properties=further)
    if not as_json:
        click.echo(f"Starting Kafka on {find_java()} ...", err=True)
    started = embedded.start()
    _print(embedded, as_json=as_json, note="" if started else "it was already running")


@broker.command()
@_common_options
def stop(directory: Path, *, as_json: bool) -> None:
    """Stop the broker; its data stays.

    Example: redrive broker stop
    """
    embedded = EmbeddedBroker(directory)
    stopped = embedded.stop()
    _print(embedded, as_json=as_json, note="" if stopped else "it was not running")


@broker.command()
@_common_options
@click.pass_context
def status(ctx: click.Context, directory: Path, *, as_json: bool) -> None:
    """Show whether the broker runs (exit code 0) or not (1).

    Example: redrive broker status --json
    """
    if _print(EmbeddedBroker(directory), as_json=as_json) is not BrokerState.RUNNING:
        ctx.exit(1)


@broker.command()
@_common_options
def wipe(directory: Path, *, as_json: bool) -> None:
    """Delete the data of a broker that is stopped.

    Example: redrive broker wipe
    """
    embedded = EmbeddedBroker(directory)
    embedded.wipe()
    _print(embedded, as_json=as_json, note="its data is deleted")


def _print(embedded: EmbeddedBroker, *, as_json: bool, note: str = "") -> BrokerState:
    status = embedded.status()
    if as_json:
        content = {
            "state": status.state,
            "bootstrap_servers": status.bootstrap_servers,
            "pid": status.pid,
            "directory": str(status.directory),
            "log": str(status.log),
        }
        print_json(content, indent=False)
        return status.state
    click.echo(f"The broker in {status.directory} is {status.state}" + (note and f"; {note}"))
    if status.pid:
        click.echo(f"  bootstrap server  {status.bootstrap_servers}")
        click.echo(f"  process           {status.pid}")
    if status.log.exists():
        click.echo(f"  log               {status.log}")
    return status.state

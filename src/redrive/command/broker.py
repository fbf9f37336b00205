"""``redrive broker``: a real Kafka in the background, of one broker or of several."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from redrive.broker import BrokerState, BrokerStatus, EmbeddedBroker, EmbeddedCluster
from redrive.command.options import combined, number_option, repeated_option
from redrive.command.output import print_json
from redrive.errors import UsageError
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
    """Run a Kafka broker, or a cluster of brokers, in the background.

    They listen on this machine only and keep their data over restarts.

    \b
    redrive broker start --port 9092
    redrive broker start --brokers 3
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
@number_option(
    "--brokers",
    "Brokers of the cluster: by default the existing ones, or one. With three, topics"
    " have three replicas and survive the loss of one broker.",
    most=9,
)
@repeated_option(
    "--property", "properties", metavar="NAME=VALUE", help_text="A further broker property."
)
def start(
    directory: Path,
    *,
    as_json: bool,
    port: int | None,
    brokers: int | None,
    properties: tuple[str, ...],
) -> None:
    """Start the broker and wait until it is ready.

    \b
    redrive broker start --port 9092
    redrive broker start --property message.max.bytes=10000000
    redrive broker start --brokers 3
    """  # noqa: D301 - \b keeps click from wrapping the examples
    pairs = [text.partition("=") for text in properties]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise click.BadParameter(f"{name!r} is not NAME=VALUE", param_hint="--property")
    embedded = _new_broker(directory, port, brokers, {name: value for name, _, value in pairs})
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
    embedded = _existing(directory)
    stopped = embedded.stop()
    _print(embedded, as_json=as_json, note="" if stopped else "it was not running")


@broker.command()
@_common_options
@click.pass_context
def status(ctx: click.Context, directory: Path, *, as_json: bool) -> None:
    """Show whether the broker runs (exit code 0) or not (1); of several, whether all of them do.

    Example: redrive broker status --json
    """
    states = _print(_existing(directory), as_json=as_json)
    if states != {BrokerState.RUNNING}:
        ctx.exit(1)


@broker.command()
@_common_options
def wipe(directory: Path, *, as_json: bool) -> None:
    """Delete the data of a broker that is stopped.

    Example: redrive broker wipe
    """
    embedded = _existing(directory)
    embedded.wipe()
    _print(embedded, as_json=as_json, note="its data is deleted")


def _existing(directory: Path) -> EmbeddedBroker | EmbeddedCluster:
    return EmbeddedCluster.found(directory) or EmbeddedBroker(directory)


def _new_broker(
    directory: Path, port: int | None, brokers: int | None, properties: Mapping[str, str]
) -> EmbeddedBroker | EmbeddedCluster:
    cluster = EmbeddedCluster.found(directory)
    if brokers is None:
        brokers = 1 if cluster is None else len(cluster.brokers)
    if brokers == 1 and cluster is None:
        return EmbeddedBroker(directory, port=port, properties=properties)
    if port is not None:
        message = "--port is for a single broker"
        raise click.BadParameter(message, param_hint="--port")
    if cluster is None and EmbeddedBroker(directory).status().bootstrap_servers:
        message = f"{directory} holds a single broker"
        raise UsageError(message, hint="name another folder, or `redrive broker wipe` it")
    return EmbeddedCluster(directory, brokers, properties=properties)


def _print(
    embedded: EmbeddedBroker | EmbeddedCluster, *, as_json: bool, note: str = ""
) -> set[BrokerState]:
    status = embedded.status()
    each = [status] if isinstance(status, BrokerStatus) else status
    servers = ",".join(one.bootstrap_servers for one in each)
    if as_json and isinstance(status, BrokerStatus):
        print_json(_as_json(status), indent=False)
    elif as_json:
        brokers = [_as_json(one) for one in each]
        print_json({"bootstrap_servers": servers, "brokers": brokers}, indent=False)
    else:
        for one in each:
            click.echo(f"The broker in {one.directory} is {one.state}" + (note and f"; {note}"))
            if one.pid:
                click.echo(f"  bootstrap server  {one.bootstrap_servers}")
                click.echo(f"  process           {one.pid}")
            if one.log.exists():
                click.echo(f"  log               {one.log}")
        if not isinstance(status, BrokerStatus):
            click.echo(f"bootstrap servers {servers}")
    return {one.state for one in each}


def _as_json(status: BrokerStatus) -> dict[str, str | int]:
    return {
        "state": status.state,
        "bootstrap_servers": status.bootstrap_servers,
        "pid": status.pid,
        "directory": str(status.directory),
        "log": str(status.log),
    }

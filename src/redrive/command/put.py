"""``redrive put``: a message by MQ names, written to the intake of a queue manager."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from redrive.command.options import network_options
from redrive.errors import EnvironmentFault, UsageError
from redrive.operations.network import read_network
from redrive.operations.put import NewMessage, checked_put_topic
from redrive.operations.put import put as put_message

__all__ = ["put"]


@click.command()
@click.argument("queue_manager", metavar="QM")
@click.argument("queue", metavar="QUEUE[@OBJECTQMGR]")
@network_options
@click.option("--data", metavar="TEXT", help="The body; by default it is read from --file.")
@click.option(
    "--file",
    "body_file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    default="-",
    metavar="FILE",
    help="File that holds the body, byte by byte; by default, and as -, standard input.",
)
@click.option("--key", metavar="TEXT", help="Key of the record; equal keys keep their order.")
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="A message property, or a field as JMS_IBM_MQMD_ReplyToQ=ANSWERS. May be repeated.",
)
@click.option("--persistent/--not-persistent", default=None, help="Default: as the queue says.")
@click.option(
    "--expiry",
    type=click.IntRange(1, 2**31 - 1),
    metavar="TENTHS",
    help="Tenths of a second after which the message is dropped. Default: never.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="How often the message is put.",
)
def put(  # noqa: PLR0917 - click passes the arguments by name
    queue_manager: str,
    queue: str,
    config: Path | None,
    bootstrap_server: str,
    files: Sequence[str],
    data: str | None,
    body_file: Path,
    key: str | None,
    properties: Sequence[str],
    persistent: bool | None,  # noqa: FBT001 - click passes it by name
    expiry: int | None,
    count: int,
) -> None:
    """Put a message to QUEUE, as an application does that is connected to QM.

    \b
    redrive put QM1 ORDERS --data 'two chairs' --property colour=blue
    redrive put QM1 PAYROLL@QM2 --file salaries.bin --persistent

    OBJECTQMGR is the queue manager that the application names beside the queue; without it the
    field is blank. The running job takes the message to where the names lead; redrive resolve
    shows where that is.

    Prints topic:partition:offset of each message once the cluster has it: the ID for redrive
    history.

    Exit codes: 0 put, 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    name, manager = _names(queue)
    message = NewMessage(
        queue=name,
        queue_manager=manager,
        key=key,
        persistent=persistent,
        expiry=expiry,
        properties=[_property(one) for one in properties],
    )
    message.headers()  # what is wrong is told before the cluster is asked
    network = read_network(config, bootstrap_server, files)
    topic = checked_put_topic(network, queue_manager)
    delivery = put_message(network, topic, message, _body(data, body_file), count=count)
    for position in delivery.positions:
        click.echo(position)
    if delivery.refusal:
        raise EnvironmentFault(
            f"{len(delivery.positions)} of {count} messages are on {topic}: {delivery.refusal}",
            hint="the body is longer than MAXMSGL of the queue manager and max.message.bytes allow"
            if delivery.is_too_large
            else "redrive put again what is missing",
        )


def _names(queue: str) -> tuple[str, str]:
    """The names that the application gives: queue, and queue manager or nothing."""
    name, at, manager = queue.partition("@")
    if not name or (at and not manager):
        raise UsageError(f"{queue!r} is no QUEUE or QUEUE@OBJECTQMGR", hint="such as PAYROLL@QM2")
    return name, manager


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"--property {text} has no value", hint="write --property NAME=VALUE")
    return name, value


def _body(data: str | None, file: Path) -> bytes:
    if data is not None:
        return data.encode()
    if str(file) != "-":
        return file.read_bytes()
    if sys.stdin.isatty():
        click.echo("Type the body and end it with Ctrl+D.", err=True)
    return sys.stdin.buffer.read()

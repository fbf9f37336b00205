"""``redrive put``: puts a message by MQ names on the intake of a queue manager."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from redrive.command.options import network_options, number_option, repeated_option
from redrive.command.put_options import (
    checked_at,
    put_options,
    read_put_names,
    read_reply_to,
    read_report,
)
from redrive.errors import EnvironmentFault, RedriveError, UsageError
from redrive.operations.network import Network, read_network
from redrive.operations.put import NewMessage, checked_put_topic, putting_user
from redrive.operations.put import put as put_message
from redrive.operations.put_trace import cluster_tracer


@click.command()
@put_options
@network_options
@click.option("--data", metavar="TEXT", help="The body; by default it is read from --file.")
@click.option(
    "--file",
    "body_file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    default="-",
    metavar="FILE",
    help="File with the body as bytes; - and the default are standard input.",
)
@click.option("--key", metavar="TEXT", help="Key of the record; equal keys keep their order.")
@repeated_option(
    "--property",
    "properties",
    metavar="NAME=VALUE",
    help_text="A message property, or a field as JMS_IBM_MQMD_ReplyToQ=ANSWERS.",
)
@number_option(
    "--priority", "Priority of the message. Default: as the queue says.", least=0, most=9
)
@number_option(
    "--expiry",
    "Tenths of a second after which the message is dropped. Default: never.",
    most=2**31 - 1,
    metavar="TENTHS",
)
@click.option(
    "--bind",
    default="",
    metavar="OPEN",
    help="Name of an open whose puts go to one instance of a cluster queue. Default: each put"
    " chooses.",
)
@click.option("--new-msg-id", is_flag=True, help="A new MsgId in place of the given one.")
@click.option("--new-correl-id", is_flag=True, help="A new CorrelId for each message.")
@click.option(
    "--set-identity",
    is_flag=True,
    help="UserIdentifier, AccountingToken and ApplIdentityData are those of --property.",
)
@number_option("--count", "How often the message is put.", default=1)
def put(  # noqa: PLR0917 - click passes the arguments by name
    names: Sequence[str],
    at: str,
    config: Path | None,
    bootstrap_server: str,
    files: Sequence[str],
    data: str | None,
    body_file: Path,
    key: str | None,
    properties: Sequence[str],
    persistent: bool | None,  # noqa: FBT001 - click passes it by name
    priority: int | None,
    expiry: int | None,
    reports: Sequence[str],
    reply_to: str,
    bind: str,
    count: int,
    *,
    new_msg_id: bool,
    new_correl_id: bool,
    set_identity: bool,
) -> None:
    """Put a message to QUEUE, as an application does.

    \b
    redrive put ORDERS --at QM1 --data 'two chairs' --property colour=blue
    redrive put PAYROLL@QM2 --at QM1 --file salaries.bin --persistent
    redrive put ORDERS --at QM1 --data 'a lamp' --report COA --reply-to ANSWERS

    QM is the queue manager that the application names with the queue (ObjectQMgrName); without it
    the field is blank. --at is the manager that it is connected to, and is not needed if there is
    only one. The running job resolves the names and delivers the message. redrive resolve with the
    same names shows where it would go; a warning says if that is not a queue.

    Prints topic:partition:offset of each message once the cluster has it: the ID for redrive
    history.

    Exit codes: 0 put, 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    target, at = read_put_names("put", names, at)
    message = NewMessage(
        queue=target.queue,
        queue_manager=target.queue_manager,
        key=key,
        persistent=persistent,
        priority=priority,
        expiry=expiry,
        report=read_report(reports),
        reply_to=read_reply_to(reply_to),
        bind=bind,
        properties=[_property(one) for one in properties],
        new_msg_id=new_msg_id,
        new_correl_id=new_correl_id,
        sets_identity=set_identity,
    )
    # Report usage errors before asking the cluster.
    for report in message.reports_in_vain():
        click.echo(f"warning: {report}", err=True)
    network = read_network(config, bootstrap_server, files)
    at = at or checked_at("", network.topology.manager_names)
    message = replace(message, user=putting_user(network))
    topic = checked_put_topic(network, at)
    body = _body(data, body_file)
    for problem in _problems(network, at, message, body):
        click.echo(f"warning: {problem}", err=True)
    delivery = put_message(network, topic, message, body, count=count)
    for position in delivery.positions:
        click.echo(position)
    if delivery.refusal:
        raise EnvironmentFault(
            f"{len(delivery.positions)} of {count} messages are on {topic}: {delivery.refusal}",
            hint="the body is longer than MAXMSGL of the queue manager and max.message.bytes allow"
            if delivery.is_too_large
            else "put the missing messages again",
        )


def _problems(network: Network, at: str, message: NewMessage, body: bytes) -> Iterator[str]:
    try:
        with network.cluster() as cluster:
            trace = cluster_tracer(network, cluster).trace(at, message, body)
    except RedriveError as problem:
        yield f"whether the message will reach its queue is not known: {problem.message}"
        return
    if not trace.is_good:
        end = f"{trace.end} {trace.final}".strip()
        yield f"as far as this user can see, the message will not reach its queue: {end}"
        if trace.problem is not None:
            why = f"{trace.problem.code or ''} {trace.problem.detail}".strip()
            yield f"{why}; redrive resolve with the same names shows the way"


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

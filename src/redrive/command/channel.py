"""``redrive channel``: channels and connections of queue managers, and their messages."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from redrive.command.options import combined, json_option, optional_config_option, table_options
from redrive.command.output import print_json, print_notes, print_table
from redrive.kafka.cluster import without_leader
from redrive.operations.channel import ChannelStatus, channel_status, set_channels
from redrive.operations.channel import trigger as trigger_transmission
from redrive.operations.depths import Depth
from redrive.operations.durations import duration, parse_duration
from redrive.operations.dynamic_queues import (
    OpenedQueue,
    close_dynamic_queue,
    dynamic_queues,
    open_dynamic_queue,
)
from redrive.operations.network import network_of_settings
from redrive.operations.states import set_put_enabled
from redrive.operations.undelivered import release
from redrive.printable import counted

_channel_arguments = combined(
    click.argument("queue_manager", metavar="QM"),
    click.argument("name", default="", metavar="[CHANNEL]"),
    optional_config_option,
)


@click.group()
def channel() -> None:
    """Start, stop and show the channels of a queue manager.

    \b
    redrive channel status QM1
    redrive channel stop QM1 QM1.QM2
    redrive channel start QM1 QM1.QM2

    A channel belongs to the sending queue manager. In MQ Everyplace it is a connection; that of a
    home-server queue belongs to the manager that pulls, and is named after the one pulled from.
    Without CHANNEL the command is for all of them. A stopped channel holds its messages on the
    transmission queue, in order. The running job applies the change within seconds, and the state
    is kept. The job stops a channel at a message that no queue accepts at its receiver, not even a
    dead-letter queue, unless the settings say on_undeliverable = "keep aside".

    Exit codes: 0 done, 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples


@channel.command()
@_channel_arguments
def start(queue_manager: str, name: str, config: Path | None) -> None:
    """Start a channel, or all channels of QM.

    Undeliverable messages are retried once.

    Example: redrive channel start QM1 QM1.QM2
    """
    _set(queue_manager, name, config, is_running=True)


@channel.command()
@_channel_arguments
def stop(queue_manager: str, name: str, config: Path | None) -> None:
    """Stop a channel, or all channels of QM.

    Example: redrive channel stop QM1 QM1.QM2
    """
    _set(queue_manager, name, config, is_running=False)


@channel.command()
@_channel_arguments
@table_options
def status(queue_manager: str, name: str, config: Path | None, *, as_json: bool) -> None:
    """Show each channel of QM: its state, and how many messages wait for how long.

    Example: redrive channel status QM1 --json

    Retried are messages that the receiving end tries to put again, MRRTY times, because their queue
    is full or put-inhibited; the channel is paused meanwhile. Remaining are undeliverable messages:
    redrive browse QM --remaining shows them. A channel is retrying if no queue manager of the
    topology has its receiver.
    """
    channels = channel_status(network_of_settings(config), queue_manager, name)
    if as_json:
        print_json([channel_document(channel_) for channel_ in channels])
        return
    rows = [
        {
            "channel": channel_.topic.channel[1],
            "state": channel_.state,
            "to": channel_.topic.to,
            "topic": channel_.topic.topic,
            "waiting": "no topic" if channel_.waiting is None else str(channel_.waiting),
            "oldest": _age(channel_.waiting),
            "retried": str(channel_.retried) if channel_.retried.messages else "",
            "remaining": channel_.remaining or None,
        }
        for channel_ in channels
    ]
    print_table(rows, right=["waiting", "retried", "remaining"])
    for channel_ in channels:
        if channel_.because:
            state = "stopped by the job" if channel_.is_stopped_by_job else channel_.state
            click.echo(f"{channel_.topic.channel[1]} is {state}: {channel_.because}")
    if any(channel_.remaining for channel_ in channels):
        click.echo(f"redrive browse {queue_manager} --remaining shows undeliverable messages")
    if any(channel_.waiting is None for channel_ in channels):
        click.echo("redrive topology apply creates the topics that are missing")


def _age(depth: Depth | None) -> str:
    return "" if depth is None or depth.age is None else duration(depth.age)


def _set(queue_manager: str, name: str, config: Path | None, *, is_running: bool) -> None:
    network = network_of_settings(config)
    for manager, channel_name in set_channels(network, queue_manager, name, is_running=is_running):
        click.echo(f"{channel_name} of {manager} is {'started' if is_running else 'stopped'}")


def channel_document(status: ChannelStatus) -> Mapping[str, Any]:
    """A channel as ``redrive channel status --json`` prints it."""
    topic, waiting = status.topic, status.waiting
    return {
        "queue_manager": topic.channel[0],
        "channel": topic.channel[1],
        "state": status.state,
        "because": status.because,
        "to": topic.to,
        "queue": topic.queue,
        "topic": topic.topic,
        "waiting": waiting and waiting.messages,
        "is_exact": waiting and waiting.is_exact,
        "oldest_seconds": waiting and waiting.age,
        "retried": status.retried.messages,
        "remaining": status.remaining,
    }


_queue_arguments = combined(
    click.argument("queue_manager", metavar="QM"),
    click.argument("name", metavar="QUEUE"),
    optional_config_option,
)


@click.group()
def queue() -> None:
    """Enable and disable puts, make dynamic queues, release messages.

    \b
    redrive queue disable put QM1 ORDERS
    redrive queue open QM1 REPLY.MODEL --name 'APP.*' --lease 1h
    redrive queue release QM1

    QUEUE may be local, an alias or a remote definition of QM: a put fails with MQRC_PUT_INHIBITED
    if any object on its path does not allow it. The running job applies the change within seconds,
    and the state is kept.

    Exit codes: 0 done, 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples


def _add_switch(verb: str, *, put_enabled: bool) -> None:
    """Add ``queue enable`` or ``queue disable``, each for one operation: ``put``."""
    example = f"\n\nExample: redrive queue {verb} put QM1 ORDERS"
    state = f"{verb}d"

    @queue.group(verb, help=f"{verb.title()} an operation on a queue.{example}")
    def switch() -> None:
        pass

    @switch.command(
        "put",
        help=f"{verb.title()} puts to QUEUE of QM, as with PUT({state.upper()}).{example}",
    )
    @_queue_arguments
    def put(queue_manager: str, name: str, config: Path | None) -> None:
        set_put_enabled(network_of_settings(config), queue_manager, name, put_enabled=put_enabled)
        click.echo(f"puts to {name}@{queue_manager} are {state}")


_add_switch("enable", put_enabled=True)
_add_switch("disable", put_enabled=False)


@queue.command(name="release")
@click.argument("queue_manager", metavar="QM")
@click.argument("name", default="", metavar="[QUEUE]")
@optional_config_option
def release_kept(queue_manager: str, name: str, config: Path | None) -> None:
    """Retry the undeliverable messages of QM once.

    QUEUE is a transmission queue of QM; by default all of them, and the messages put to QM itself.
    The running job puts the messages, or keeps them again; redrive browse QM --remaining shows
    them. A channel that an undeliverable message stopped is started by redrive channel start, which
    releases its messages too.

    Example: redrive queue release QM1 QM2
    """
    count, silent = release(network_of_settings(config), queue_manager, name)
    print_notes(without_leader(silent))
    where = f"{name}@{queue_manager}" if name else queue_manager
    click.echo(f"{counted(count, 'message')} of {where} released")


@queue.command(name="open")
@_queue_arguments
@click.option(
    "--name",
    "dynamic_name",
    default="AMQ.*",
    show_default=True,
    metavar="NAME",
    help="DynamicQName; an asterisk at its end becomes 16 generated digits.",
)
@click.option(
    "--lease",
    default="10m",
    show_default=True,
    metavar="TIME",
    help="How long a temporary queue lives: 30s, 10m, 2h, 1d.",
)
@json_option
def open_queue(
    queue_manager: str,
    name: str,
    config: Path | None,
    dynamic_name: str,
    lease: str,
    *,
    as_json: bool,
) -> None:
    """Make a dynamic queue from the model queue QUEUE of QM, or renew the lease of one.

    \b
    redrive queue open QM1 REPLY.MODEL --name 'APP.*' --lease 1h
    redrive queue open QM1 APP.5C1D0A2B3C4D5E6F --lease 1h

    Prints the name of the queue, for ReplyToQ, and the topic that holds its messages. Where MQ
    deletes a temporary queue when its opener ends, here its lease ends: puts to it fail with
    MQRC_UNKNOWN_OBJECT_NAME then, and a minute later the job deletes the topic. A permanent queue
    (DEFTYPE(PERMDYN)) has no lease.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    seconds = parse_duration(lease)
    if not seconds:
        raise click.BadParameter(
            f"{lease} is not a time such as 30s, 10m, 2h", param_hint="--lease"
        )
    network = network_of_settings(config)
    opened = open_dynamic_queue(
        network, queue_manager, name, dynamic_name=dynamic_name, lease=seconds
    )
    if as_json:
        print_json(_queue_json(opened))
    else:
        click.echo(f"{opened.queue.queue}  topic {opened.topic}, {_lease(opened)}")


@queue.command(name="close")
@_queue_arguments
@click.option("--purge", "purges", is_flag=True, help="Delete a permanent queue with its messages.")
def close_queue(queue_manager: str, name: str, config: Path | None, *, purges: bool) -> None:
    """Delete the dynamic queue QUEUE of QM with its topic.

    A temporary queue goes with its messages, as in MQ; a permanent one that holds messages needs
    --purge.

    Example: redrive queue close QM1 APP.5C1D0A2B3C4D5E6F
    """
    closed = close_dynamic_queue(network_of_settings(config), queue_manager, name, purges=purges)
    click.echo(f"{name}@{queue_manager} is deleted, with topic {closed.topic}")


@queue.command(name="list")
@click.argument("queue_manager", default="", metavar="[QM]")
@optional_config_option
@table_options
def list_queues(queue_manager: str, config: Path | None, *, as_json: bool) -> None:
    """Show the dynamic queues of QM, or of all queue managers.

    Example: redrive queue list QM1
    """
    queues = dynamic_queues(network_of_settings(config), queue_manager)
    if as_json:
        print_json([_queue_json(opened) for opened in queues])
        return
    if not queues:
        click.echo("no dynamic queue is open; redrive queue open makes one from a QMODEL")
        return
    rows = [
        {
            "queue": f"{opened.queue.queue}@{opened.queue.queue_manager}",
            "model": opened.queue.model,
            "lease": _lease(opened),
            "messages": "no topic" if opened.messages is None else f"≤ {opened.messages}",
            "topic": opened.topic,
        }
        for opened in queues
    ]
    print_table(rows, right=["messages"])


def _lease(opened: OpenedQueue) -> str:
    until = opened.queue.until
    if until is None:
        return "permanent"
    left = until / 1000 - time.time()
    return f"closes in {duration(math.ceil(left))}" if left > 0 else "closed"


def _queue_json(opened: OpenedQueue) -> Mapping[str, Any]:
    queue = opened.queue
    until = None if queue.until is None else datetime.fromtimestamp(queue.until / 1000, UTC)
    return {
        "queue_manager": queue.queue_manager,
        "queue": queue.queue,
        "model": queue.model,
        "topic": opened.topic,
        "until": until and until.isoformat(timespec="milliseconds"),
        "messages": opened.messages,
    }


@click.command()
@click.argument("queue_manager", metavar="QM")
@optional_config_option
def trigger(queue_manager: str, config: Path | None) -> None:
    """Send the waiting messages of QM of MQ Everyplace once.

    \b
    redrive trigger MOON

    It sends the messages on QM's asynchronous definitions, and QM's home-server queues pull,
    whatever the state of the connection. Only messages that wait now are moved, not later ones.

    Prints the number of released messages.

    Exit codes: 0 done, also if nothing waits; 1 error; 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    count = trigger_transmission(network_of_settings(config), queue_manager)
    print_notes(without_leader(count.silent))
    number = "" if count.is_exact or count.silent else "≤ "
    click.echo(f"{number}{counted(count.messages, 'message')} released at {queue_manager}")

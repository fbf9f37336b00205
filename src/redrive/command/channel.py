"""``redrive channel``: the channels and connections of queue managers, and what waits for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import orjson

from redrive.command.options import config_option, json_option
from redrive.command.status import print_uncut, table
from redrive.operations.channel import ChannelStatus, channel_status, set_channels
from redrive.operations.durations import duration
from redrive.operations.network import network_of_settings

__all__ = ["channel"]


def _arguments(command: Any) -> Any:  # noqa: ANN401 - a decorator, typed as click's own are
    """The arguments and options that every subcommand has."""
    manager = click.argument("queue_manager", metavar="QM")
    name = click.argument("name", default="", metavar="[CHANNEL]")
    return manager(name(config_option(command)))


@click.group()
def channel() -> None:
    """Start and stop the channels of a queue manager, and see what waits for them.

    \b
    redrive channel status QM1
    redrive channel stop QM1 QM1.QM2
    redrive channel start QM1 QM1.QM2

    A channel belongs to the queue manager that sends; in MQ Everyplace it is a connection, and a
    home-server queue's belongs to the one that pulls, by the name of the one it pulls from. Without
    CHANNEL all of them are meant. A stopped channel holds its messages on the transmission queue,
    in order; the running job follows within a moment, and the state outlasts it. The job itself
    stops a channel at a message that its receiver can put nowhere, not even on a dead-letter queue,
    unless the settings say on_undeliverable = "keep aside".

    Exit codes: 0 done, 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples


@channel.command()
@_arguments
def start(queue_manager: str, name: str, config: Path | None) -> None:
    """Let a channel move messages, or all channels of QM.

    What its receiver could put nowhere is tried once more.

    Example: redrive channel start QM1 QM1.QM2
    """
    _set(queue_manager, name, config, is_running=True)


@channel.command()
@_arguments
def stop(queue_manager: str, name: str, config: Path | None) -> None:
    """Let a channel hold its messages, or all channels of QM.

    Example: redrive channel stop QM1 QM1.QM2
    """
    _set(queue_manager, name, config, is_running=False)


@channel.command()
@_arguments
@json_option
def status(queue_manager: str, name: str, config: Path | None, *, as_json: bool) -> None:
    """Show each channel of QM: its state, and how many messages wait for how long.

    Example: redrive channel status QM1 --json

    Retried are messages that the receiving end tries to put again, MRRTY times, because their queue
    is full or takes no puts; the channel is paused meanwhile. Remaining are those that it could put
    nowhere, not even on a dead-letter queue: redrive browse QM --remaining shows them.
    """
    found = channel_status(network_of_settings(config), queue_manager, name)
    if as_json:
        click.echo(orjson.dumps([_as_json(one) for one in found], option=orjson.OPT_INDENT_2))
        return
    numbers = ("waiting", "retried", "remaining")
    shown = table(
        "channel", "state", "to", "topic", "waiting", "oldest", "retried", "remaining",
        right=numbers,
    )  # fmt: skip
    for one in found:
        topic, waiting = one.topic, one.waiting
        count = "no topic" if waiting is None else str(waiting)
        oldest = "" if waiting is None or waiting.age is None else duration(waiting.age)
        retried = str(one.retried) if one.retried.messages else ""
        kept = str(one.remaining) if one.remaining else ""
        names = (topic.channel[1], one.state, topic.to, topic.topic)
        shown.add_row(*names, count, oldest, retried, kept)
    print_uncut(shown)
    for one in found:
        if one.because:
            click.echo(f"{one.topic.channel[1]} was stopped by the job: {one.because}")
    if any(one.remaining for one in found):
        click.echo(f"redrive browse {queue_manager} --remaining shows what could be put nowhere")
    if any(one.waiting is None for one in found):
        click.echo("redrive topology apply creates the topics that are missing")


def _set(queue_manager: str, name: str, config: Path | None, *, is_running: bool) -> None:
    network = network_of_settings(config)
    for manager, one in set_channels(network, queue_manager, name, is_running=is_running):
        click.echo(f"{one} of {manager} is {'started' if is_running else 'stopped'}")


def _as_json(status: ChannelStatus) -> Mapping[str, Any]:
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

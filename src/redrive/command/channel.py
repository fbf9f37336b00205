"""``redrive channel``: the channels and connections of queue managers, and what waits for them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import orjson

from redrive.command.control import open_cluster, states_in, write_states
from redrive.command.network import (
    Network,
    config_option,
    json_option,
    network_of_settings,
    unknown,
)
from redrive.command.status import console, table
from redrive.configuration import JobConfiguration
from redrive.errors import UsageError
from redrive.kafka.cluster import Cluster
from redrive.messages import TopicPartition
from redrive.operations.durations import duration
from redrive.topology.layout import QueueTopic, TopicRole, topics_of
from redrive.topology.states import States, channel_entry

__all__ = ["Waiting", "channel", "channels_of", "waiting_on"]

_READ_TIMEOUT: Final = 10.0
"""Seconds for reading the first message that waits on each partition."""


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
    in order; the running job follows within a moment, and the state outlasts it.

    Exit codes: 0 done, 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples


@channel.command()
@_arguments
def start(queue_manager: str, name: str, config: Path | None) -> None:
    """Let a channel move messages, or all channels of QM.

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
    """
    network = network_of_settings(config)
    topics = _chosen(network, queue_manager, name)
    job = network.required_job()
    with open_cluster(job.connection) as cluster:
        states = states_in(job, cluster)
        found = [_status(job, cluster, states, one) for one in topics]
    if as_json:
        documents = [one.document() for one in found]
        click.echo(orjson.dumps(documents, option=orjson.OPT_INDENT_2))
        return
    shown = table("channel", "state", "to", "topic", "waiting", "oldest", right=("waiting",))
    for one in found:
        topic = one.topic
        waiting = "no topic" if one.waiting is None else str(one.waiting)
        oldest = "" if one.age is None else duration(one.age)
        shown.add_row(topic.channel[1], one.state, topic.to, topic.topic, waiting, oldest)
    console().print(shown)
    if any(one.waiting is None for one in found):
        click.echo("redrive topology apply creates the topics that are missing")


def channels_of(network: Network, queue_manager: str) -> list[QueueTopic]:
    """The transmission topics whose channels a queue manager moves, pulled ones included.

    Args:
        network: The definitions.
        queue_manager: One of its managers.
    """
    return [
        one
        for one in topics_of(network.topology)
        if one.role is TopicRole.TRANSMISSION and one.channel[0] == queue_manager and one.channel[1]
    ]


@dataclass(frozen=True, slots=True)
class Waiting:
    """What the job has not taken from a transmission topic."""

    messages: int
    """How many, at most: offsets also count the ends of transactions."""
    oldest: int | None
    """When the oldest was put, in milliseconds since the epoch; None if none waits."""
    ends: Mapping[TopicPartition, int]
    """Offset after the last one, of each partition on which one waits."""


def waiting_on(job: JobConfiguration, cluster: Cluster, topic: str) -> Waiting:
    """What waits on a transmission topic.

    Args:
        job: The application that takes messages from it.
        cluster: Its cluster.
        topic: The topic, which exists.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    extents = cluster.extents(cluster.lanes([topic]))
    committed = cluster.committed(job.application, extents)
    firsts = {lane: max(committed.get(lane) or 0, one.first) for lane, one in extents.items()}
    firsts = {lane: first for lane, first in firsts.items() if first < extents[lane].end}
    times = {}
    if firsts:
        for message in cluster.read(firsts, seconds=_READ_TIMEOUT, until=lambda _: True):
            lane = TopicPartition(str(message.topic()), int(message.partition() or 0))
            times[lane] = message.timestamp()[1]
    # A partition on which no message is found holds the ends of transactions only.
    return Waiting(
        messages=sum(extents[lane].end - firsts[lane] for lane in times),
        oldest=min(times.values(), default=None),
        ends={lane: extents[lane].end for lane in times},
    )


def _set(queue_manager: str, name: str, config: Path | None, *, is_running: bool) -> None:
    network = network_of_settings(config)
    topics = _chosen(network, queue_manager, name)
    channels = dict.fromkeys(one.channel for one in topics)
    job = network.required_job()
    write_states(job, [channel_entry(*one, is_running=is_running) for one in channels])
    for manager, one in channels:
        click.echo(f"{one} of {manager} is {'started' if is_running else 'stopped'}")


def _chosen(network: Network, queue_manager: str, name: str) -> Sequence[QueueTopic]:
    found = channels_of(network, network.checked_manager(queue_manager))
    if not found:
        raise UsageError(
            f"queue manager {queue_manager} moves no messages to others",
            hint="a channel needs a definition at the sending manager and a transmission queue",
        )
    chosen = [one for one in found if name in {"", one.channel[1]}]
    if not chosen:
        known = list(dict.fromkeys(one.channel[1] for one in found))
        raise unknown(f"queue manager {queue_manager} has no channel {name}", name, known)
    return chosen


@dataclass(frozen=True, slots=True)
class _Status:
    """One transmission topic and the channel that empties it."""

    topic: QueueTopic
    state: str
    waiting: int | None
    """Messages; None if there is no topic."""
    age: float | None
    """Seconds since the oldest was put; None if none waits."""

    def document(self) -> Mapping[str, Any]:
        return {
            "queue_manager": self.topic.channel[0],
            "channel": self.topic.channel[1],
            "state": self.state,
            "to": self.topic.to,
            "queue": self.topic.queue,
            "topic": self.topic.topic,
            "waiting": self.waiting,
            "oldest_seconds": self.age,
        }


def _status(job: JobConfiguration, cluster: Cluster, states: States, one: QueueTopic) -> _Status:
    state = _state(one, states)
    if not cluster.partitions([one.topic]):
        return _Status(one, state, None, None)
    waiting = waiting_on(job, cluster, one.topic)
    age = None if waiting.oldest is None else max(0.0, time.time() - waiting.oldest / 1000)
    return _Status(one, state, waiting.messages, age)


def _state(one: QueueTopic, states: States) -> str:
    decided = states.running.get(one.channel)
    if decided if decided is not None else one.is_running:
        return "running"
    return "pulled on trigger" if decided is None and one.is_pulled else "stopped"

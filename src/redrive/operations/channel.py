"""Start, stop and trigger channels and connections, and show what waits for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import sources_of, topology_of
from redrive.engine.commands import States, channel_entry, release_entry
from redrive.errors import UsageError
from redrive.kafka.cluster import Cluster
from redrive.operations.depths import (
    FEW,
    NO_DEPTH,
    Depth,
    depths_of_group,
    kept_at_head,
    retried,
)
from redrive.operations.network import Network, check_topics, unknown
from redrive.operations.states import read_states, write_states
from redrive.operations.undelivered import release_entries, undelivered
from redrive.topology.layout import QueueTopic, TopicRole, Topology, topics_of
from redrive.topology.mqe.objects import (
    AliasConnection,
    DirectConnection,
    Mode,
    MqeRemoteQueue,
    ViaConnection,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStatus:
    """One transmission topic and the channel that empties it."""

    topic: QueueTopic
    state: str
    """``running``, ``paused``, ``stopped`` or ``pulled on trigger``; without a receiver as in
    ``Resting``."""
    because: str
    """Why the job stopped it or it is idle; empty if an operator stopped it, or it runs."""
    is_stopped_by_job: bool
    waiting: Depth | None
    """Messages that the job has not taken from the topic, and an undeliverable one at its head;
    None if there is no topic."""
    retried: Depth
    """Messages that the receiving end retries while the channel is paused (MRRTY)."""
    remaining: int
    """Messages that no queue of the receiving manager accepted."""


class HeldMessages(NamedTuple):
    """Messages that wait for a channel or a connection that does not move them."""

    waiting: Depth
    place: str
    """``QUEUE@QM`` of their transmission queue; empty for a connection without one."""
    because: str

    def __str__(self) -> str:
        if not self.place:
            return f"puts over it fail: {self.because}"
        return f"{self.waiting} on {self.place} wait: {self.because}"


def is_moving(topic: QueueTopic, states: States) -> bool:
    """Whether the channel of a transmission topic runs, and every connection that it uses."""
    return states.moves(topic.channel, topic.via, is_running=topic.is_running)


def why_held(topology: Topology, topic: QueueTopic, states: States) -> str:
    """Why the messages of a transmission topic do not move; empty if they do."""
    is_of_mqe = topic.queue_manager not in topology.mq
    on_way = (topic.channel, *topic.via)
    stopped = next((hop for hop in on_way if hop in states.stopped), None)
    if stopped is not None:
        return _why_stopped(*stopped, states, is_of_mqe=is_of_mqe)
    if not topic.to:
        return topic.resting.because if topic.resting else ""
    if is_moving(topic, states):
        return ""
    queue = f"{topic.queue} of {topic.queue_manager}"
    if is_of_mqe:
        start = f"redrive channel start {' '.join(topic.channel)}"
        return f"{queue} keeps its messages until a trigger ({start})"
    return f"transmission queue {queue} has GET(DISABLED): its channel stops"


def _why_stopped(manager: str, name: str, states: States, *, is_of_mqe: bool) -> str:
    what = "connection" if is_of_mqe else "channel"
    because = states.why_stopped.get((manager, name), "")
    why = f"{what} {name} of {manager} is stopped" + f" ({because})" * bool(because)
    return f"{why}; redrive channel start {manager} {name} starts it"


def held_messages(job: JobConfiguration, cluster: Cluster) -> list[HeldMessages]:
    """What waits for channels that do not move it, and stopped connections, by place."""
    if not sources_of(job):
        return []
    topology, states = topology_of(job.topology), read_states(job, cluster)
    resting = {
        topic.topic: topic
        for topic in topics_of(topology)
        if topic.role is TopicRole.TRANSMISSION and why_held(topology, topic, states)
    }
    depths = depths_of_group(cluster, job.application, resting, most=FEW)
    held = [
        HeldMessages(depths[name], topic.place, why_held(topology, topic, states))
        for name, topic in resting.items()
        if name in depths and depths[name].messages
    ]
    managers = {manager.name for manager in topology.mqe.queue_managers}
    connections = sorted(connection for connection in states.stopped if connection[0] in managers)
    held += [
        HeldMessages(NO_DEPTH, "", _why_stopped(*connection, states, is_of_mqe=True))
        for connection in connections
    ]
    return held


def set_channels(
    network: Network, queue_manager: str, channel: str, *, is_running: bool
) -> list[tuple[str, str]]:
    """Start or stop a channel, or all channels of a queue manager if no channel is named.

    The manager is the sender; for a home-server queue, the one that pulls. A channel that is
    started retries its undeliverable messages, as in IBM MQ.

    Returns:
        Queue manager and name of each channel.

    Raises:
        UsageError: The names are not defined, or there is no job.
        ProtocolError: Others kept writing concurrently, or the broker did not answer.
        EnvironmentFault: The broker cannot be reached, or refused.
    """
    channels = _channels(network, queue_manager, channel)
    job = network.required_job()
    entries = [channel_entry(*pair, is_running=is_running) for pair in channels]
    if is_running:
        with network.cluster() as cluster:
            entries += release_entries(job, cluster, _blocked_topics(network.topology, channels))
    write_states(job, entries)
    return channels


def channel_status(network: Network, queue_manager: str, channel: str) -> list[ChannelStatus]:
    """The state of a channel, or of all of a queue manager, and what waits for them.

    The manager is the sender; for a home-server queue, the one that pulls.

    Raises:
        UsageError: The names are not defined, or there is no job.
        EnvironmentFault: The broker cannot be reached, or refused.
    """
    chosen = _channels(network, queue_manager, channel)
    topics = [
        topic
        for topic in topics_of(network.topology)
        if topic.role is TopicRole.TRANSMISSION
        and not {topic.channel, *topic.via}.isdisjoint(chosen)
    ]
    job = network.required_job()
    with network.cluster() as cluster:
        states = read_states(job, cluster)
        depths = depths_of_group(cluster, job.application, [topic.topic for topic in topics])
        again = retried(cluster, network, topics)
        at_head = kept_at_head(cluster, network, topics)
        kept, _ = undelivered(job, cluster, [topic for topic in topics if topic.is_read])
    remaining = Counter(message.source.topic for message in kept)
    statuses = []
    for topic in topics:
        tried = again.get(topic.topic, NO_DEPTH)
        waiting = depths.get(topic.topic)
        if waiting is not None:
            waiting += at_head.get(topic.topic, NO_DEPTH)
        status = ChannelStatus(
            topic=topic,
            state=_state(topic, states, is_paused=tried.messages > 0),
            because=_because(network.topology, topic, states),
            is_stopped_by_job=topic.channel in states.why_stopped,
            waiting=waiting,
            retried=tried,
            remaining=remaining[topic.topic],
        )
        statuses.append(status)
    shown = {topic.channel for topic in topics}
    return statuses + [_without_queue(pair, states) for pair in chosen if pair not in shown]


def _without_queue(channel: tuple[str, str], states: States) -> ChannelStatus:
    """A connection of MQ Everyplace for which no queue keeps messages: its puts are synchronous."""
    manager, name = channel
    topic = QueueTopic(
        topic="", role=TopicRole.TRANSMISSION, queue_manager=manager, to=name, channel=channel
    )
    return ChannelStatus(
        topic=topic,
        state=_state(topic, states, is_paused=False),
        because="",
        is_stopped_by_job=False,
        waiting=NO_DEPTH,
        retried=NO_DEPTH,
        remaining=0,
    )


def trigger(network: Network, queue_manager: str) -> Depth:
    """Release the messages that wait at a manager of MQ Everyplace (``triggerTransmission``).

    It sends the messages on its asynchronous definitions, and its home-server queues pull, whatever
    the state of the connection. Only messages that wait now are moved, not later ones.

    Returns:
        How many messages were released.

    Raises:
        UsageError: The manager has nothing to trigger, or there is no job.
        ProtocolError: Others kept writing concurrently, or the broker did not answer.
        EnvironmentFault: A topic is missing, or the broker cannot be reached, or refused.
    """
    topics = _triggered_topics(network, network.checked_manager(queue_manager))
    job = network.required_job()
    with network.cluster() as cluster:
        check_topics(cluster, topics)
        ends = cluster.ends(cluster.led(topics)[0])
        depths = depths_of_group(cluster, job.application, topics)
    waiting = sum(depths.values(), NO_DEPTH)
    if waiting.messages:
        write_states(job, [release_entry(lane, offset) for lane, offset in ends.items()])
    return waiting


def _channels(network: Network, queue_manager: str, channel: str) -> list[tuple[str, str]]:
    network.checked_manager(queue_manager)
    channels = [
        topic.channel
        for topic in topics_of(network.topology)
        if topic.role is TopicRole.TRANSMISSION
        and topic.channel[0] == queue_manager
        and topic.channel[1]
    ]
    manager = network.topology.mqe.queue_manager(queue_manager)
    channels += [
        (queue_manager, connection.name)
        for connection in (manager.connections if manager else ())
        if isinstance(connection, DirectConnection | ViaConnection | AliasConnection)
    ]
    if not channels:
        raise UsageError(
            f"queue manager {queue_manager} sends no messages to others",
            hint="define a channel at the sending manager, and its transmission queue",
        )
    chosen = [pair for pair in dict.fromkeys(channels) if channel in {"", pair[1]}]
    if not chosen:
        known = list(dict.fromkeys(name for _, name in channels))
        raise unknown(f"queue manager {queue_manager} has no channel {channel}", channel, known)
    return chosen


def _blocked_topics(topology: Topology, channels: Collection[tuple[str, str]]) -> list[QueueTopic]:
    """The topics whose messages may remain because channels were stopped.

    In MQ Everyplace these are all topics: a put crosses several managers at once, and fails where a
    connection is stopped.
    """
    everywhere = {manager.name for manager in topology.mqe.queue_managers}
    is_of_mqe = any(manager in everywhere for manager, _ in channels)
    return [
        topic
        for topic in topics_of(topology)
        if topic.is_read
        and (
            topic.channel in channels
            or (is_of_mqe and everywhere.intersection((topic.queue_manager, topic.to)))
        )
    ]


def _triggered_topics(network: Network, queue_manager: str) -> list[str]:
    """The topics that a trigger moves: see ``triggerTransmission`` in docs/resolution-mqe.md.

    Messages of store-and-forward queues are pushed or pulled without it.
    """
    manager = network.topology.mqe.queue_manager(queue_manager)
    if manager is None:
        raise UsageError(
            f"{queue_manager} is a queue manager of IBM MQ, which has no triggerTransmission",
            hint=f"redrive channel start {queue_manager} starts its channels",
        )
    asynchronous = {
        (queue.name, queue.queue_manager)
        for queue in manager.queues
        if isinstance(queue, MqeRemoteQueue) and queue.mode is Mode.ASYNC
    }
    topics = [
        topic.topic
        for topic in topics_of(network.topology)
        if topic.role is TopicRole.TRANSMISSION
        and (
            (topic.queue_manager == queue_manager and (topic.queue, topic.to) in asynchronous)
            or (topic.is_pulled and topic.channel[0] == queue_manager)
        )
    ]
    if not topics:
        raise UsageError(
            f"queue manager {queue_manager} defines nothing asynchronous and no home-server queue",
            hint="there is nothing to trigger",
        )
    return topics


def _because(topology: Topology, topic: QueueTopic, states: States) -> str:
    if topic.channel in states.stopped:
        return states.why_stopped.get(topic.channel, "")
    is_pulled = _state(topic, states, is_paused=False) == "pulled on trigger"
    return "" if is_pulled else why_held(topology, topic, states)


def _state(topic: QueueTopic, states: States, *, is_paused: bool) -> str:
    if is_moving(topic, states):
        if topic.resting is not None:
            return topic.resting.state
        return "paused" if is_paused else "running"
    is_stopped = states.stopped.intersection((topic.channel, *topic.via))
    return "pulled on trigger" if not is_stopped and topic.is_pulled else "stopped"

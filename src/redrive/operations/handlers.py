"""The state of each handler, as the broker shows it, and how to resume one that lost its position.

``redrive.streaming.supervision`` watches the job as a whole, which is healthy while anything moves.
Here each handler is judged separately, so that a stalled one is seen beside busy ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from redrive.checkpoints.control import LostPosition, lost_positions
from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import sources_of
from redrive.engine.commands import Resume, ResumeFrom
from redrive.errors import UsageError
from redrive.kafka.cluster import Cluster, next_offsets
from redrive.kafka.deadline import ONE_TRY
from redrive.messages import TopicPartition
from redrive.operations.network import open_cluster, unknown
from redrive.operations.process import this_user
from redrive.operations.states import read_control, read_states, write_states


@dataclass(frozen=True, slots=True)
class ReadTopic:
    """A topic that a handler, or a queue manager, reads."""

    name: str
    """The handler; the topic itself if a queue manager reads it."""
    topic: str
    lost: Mapping[TopicPartition, LostPosition]
    """The positions it lost; empty while it runs."""
    is_resumed: bool = False
    """Whether an operator resumed it, and the job has yet to apply that."""
    is_missing: bool = False
    """Whether the topic does not exist; the handler waits for it."""
    is_denied: bool = False
    """Whether this user may not read it; the job's user probably may not either."""


def read_topics(job: JobConfiguration) -> list[ReadTopic]:
    """Every topic that the job reads, and whether its handler is stopped."""
    with open_cluster(job.connection) as cluster:
        existing, states = cluster.topics(), read_states(job, cluster)
        entries = read_control(job, cluster)
        names = {handler.identity.topic: handler.identity.name for handler in job.handlers}
        names |= {topic: topic for topic in sources_of(job) if topic not in names}
        denied = cluster.unreadable(names)
    every, topics = lost_positions(entries), []
    for topic, name in names.items():
        lost = {lane: position for lane, position in every.items() if position.source == topic}
        answer = states.resumes.get(topic)
        is_resumed = (
            bool(lost)
            and answer is not None
            and all(answer.answers(lane, position.found) for lane, position in lost.items())
        )
        is_missing, is_denied = topic not in existing, topic in denied
        topics.append(ReadTopic(name, topic, lost, is_resumed, is_missing, is_denied))
    return topics


def resume(
    job: JobConfiguration, name: str, begin: ResumeFrom, purpose: str
) -> Mapping[TopicPartition, LostPosition]:
    """Resume a stopped handler, named by itself or by its topic.

    The running job applies it within seconds.

    Returns:
        The lost positions; with the latest offset it also skips the records there.

    Raises:
        UsageError: There is no such handler, or it is not stopped.
        ProtocolError: Others kept writing concurrently, or the broker did not answer.
        EnvironmentFault: The broker cannot be reached, or refused.
    """
    known = read_topics(job)
    topic = next((topic for topic in known if name in {topic.name, topic.topic}), None)
    if topic is None:
        names = [topic.name for topic in known]
        raise unknown(f"application {job.application} has no handler {name}", name, names)
    if not topic.lost:
        raise UsageError(
            f"the handler {name} is not stopped", hint="redrive handler list shows all handlers"
        )
    lanes = {lane: position.found for lane, position in topic.lost.items()}
    operator = job.operator or this_user()
    answer = Resume(topic=topic.topic, lanes=lanes, begin=begin, operator=operator, purpose=purpose)
    write_states(job, [answer.entry()])
    return topic.lost


class HandlerState(StrEnum):
    """State of one handler."""

    RUNNING = "running"
    """It handles its dead letters, or there are none."""
    WAITING = "waiting"
    """Its dead-letter topic does not exist."""
    STOPPED = "stopped"
    """Dead letters wait on a partition of its topic, and none of them has been handled for
    ``stalled_after`` seconds; or a partition has had no leader for as long; or it lost its
    position, which the job itself reports."""


class HandlerWatch:
    """Derives the states of a job's handlers from successive committed offsets."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._moved: dict[TopicPartition, tuple[int | None, float]] = {}
        """By lane with work, the committed offset and when it was first seen."""

    def look(self, configuration: JobConfiguration, now: float) -> dict[str, HandlerState]:
        """The state of each handler, by its name; ``now`` is in seconds since 1970."""
        topics = {
            handler.identity.name: handler.identity.topic for handler in configuration.handlers
        }
        existing = self._cluster.topics()
        standing = self._stalled_topics(configuration, now)
        states = {}
        for name, topic in topics.items():
            known = HandlerState.STOPPED if topic in standing else HandlerState.RUNNING
            states[name] = known if topic in existing else HandlerState.WAITING
        return states

    def _stalled_topics(self, configuration: JobConfiguration, now: float) -> set[str]:
        lanes, silent = self._cluster.led(
            handler.identity.topic for handler in configuration.handlers
        )
        extents = self._cluster.extents(lanes)
        committed = self._cluster.committed(configuration.application, lanes)
        is_latest = configuration.starting_offsets == "latest"
        at = {
            lane: extent.position(committed[lane], from_end=is_latest)
            for lane, extent in extents.items()
        }
        ends = {lane: extent.end for lane, extent in extents.items()}
        waiting: dict[TopicPartition, int | None] = dict.fromkeys(silent)
        waiting |= {lane: offset for lane, offset in at.items() if offset < ends[lane]}
        before, self._moved = self._moved, {}
        for lane, offset in waiting.items():
            known = before.get(lane)
            self._moved[lane] = known if known and known[0] == offset else (offset, now)
        still = [
            lane
            for lane, (_, since) in self._moved.items()
            if now - since >= configuration.stalled_after
        ]
        # Only transaction markers may follow the last record.
        starts = {lane: at[lane] for lane in still if lane in at}
        records = next_offsets(self._cluster, starts, ends, seconds=ONE_TRY) if starts else {}
        return {lane.topic for lane in still if lane in silent or records[lane] < ends[lane]}

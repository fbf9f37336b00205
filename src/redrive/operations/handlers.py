"""Handlers that are stopped because they lost their position, and how to resume them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from redrive.checkpoints.control import LostPosition, lost_positions
from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import sources_of
from redrive.engine.commands import Resume, ResumeFrom
from redrive.errors import UsageError
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

"""Writing what an operator decides into the control topic of a running application."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from redrive.checkpoints.control import ControlTopic, read_entries
from redrive.command.preflight import check_broker
from redrive.configuration import JobConfiguration
from redrive.errors import TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.streaming.topics import TopicAdministration, own_topics
from redrive.topology.states import Entry, States, states_of

__all__ = ["ANSWER_TIMEOUT", "open_cluster", "states_in", "write_states"]

ANSWER_TIMEOUT: Final = 10.0
"""Seconds to wait for one answer of the cluster."""
_ATTEMPTS: Final = 4
_PAUSE: Final = 0.5
"""Seconds between two attempts."""


def open_cluster(connection: Connection) -> Cluster:
    """The cluster, once it has answered.

    Args:
        connection: The cluster.

    Raises:
        EnvironmentFault: It can't be reached, or lets nobody in.
    """
    check_broker(connection)
    return Cluster.open(connection, timeout=ANSWER_TIMEOUT)


def states_in(job: JobConfiguration, cluster: Cluster) -> States:
    """The states that operators have decided on.

    Args:
        job: The application.
        cluster: Its cluster.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    if not cluster.partitions([job.control_topic]):
        return States()
    return states_of(read_entries(job.connection, job.control_topic))


def write_states(job: JobConfiguration, entries: Iterable[Entry]) -> None:
    """Write entries in one transaction; the running job follows within a moment.

    Without a control topic, as the job never ran, it is created: the first run finds the states.

    Args:
        job: The application.
        entries: What was decided.

    Raises:
        TransientFault: Others kept writing at the same moment, or the broker gave no answer.
        EnvironmentFault: The broker refused.
    """
    check_broker(job.connection)
    _create_topic(job)
    written = dict(entries)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            ControlTopic(job.connection, job.control_topic).write(written)
        except TransientFault:
            # Whoever opens the topic after us fences our writer; the next attempt fences theirs.
            if attempt == _ATTEMPTS:
                raise
            time.sleep(_PAUSE)
        else:
            return


def _create_topic(job: JobConfiguration) -> None:
    with Cluster.open(job.connection, timeout=ANSWER_TIMEOUT) as cluster:
        if cluster.partitions([job.control_topic]):
            return
    topics = [one for one in own_topics(job, {}) if one.name == job.control_topic]
    administration = TopicAdministration(job.connection)
    try:
        administration.ensure(topics)
    finally:
        administration.close()

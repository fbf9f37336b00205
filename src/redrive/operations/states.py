"""Operators' changes on the tables topic of an application, which a running job applies."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from redrive.checkpoints.control import Entries, read_entries
from redrive.checkpoints.own_topics import state_topic
from redrive.checkpoints.states import StatesWriter, read_earlier
from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import in_states
from redrive.engine.commands import Entry, Removal, States, queue_entry, states_of
from redrive.errors import FencedFault, OutcomeUnknown, TransientFault
from redrive.kafka.access import check_access
from redrive.kafka.administration import TopicAdministration
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import AGAIN
from redrive.operations.network import Network, queue_names, unknown
from redrive.outcomes.acknowledgements import Acknowledgement, acknowledgements_of

_ATTEMPTS: Final = 4


def read_control(job: JobConfiguration, cluster: Cluster) -> Entries:
    """The entries of the job's control topic; empty before its first start."""
    is_there = cluster.partitions([job.control_topic])
    return read_entries(cluster, job.control_topic) if is_there else {}


def read_decisions(job: JobConfiguration, cluster: Cluster) -> Entries:
    """The entries of all changes by operators, as the job sees them."""
    existing = cluster.topics()
    entries: Entries = {}
    # In this order, as the job reads them: those of an earlier version are replaced.
    if job.control_topic in existing:
        entries.update(read_earlier(cluster, job.control_topic))
    if job.tables_topic in existing:
        entries.update(read_entries(cluster, job.tables_topic))
    return entries


def read_states(job: JobConfiguration, cluster: Cluster) -> States:
    """The states by operators as of now; otherwise as ``read_decisions``."""
    return states_of(read_decisions(job, cluster)).as_of(int(time.time() * 1000))


def with_states(network: Network) -> Network:
    """A network with the changes of operators and opens; unchanged without a job."""
    if network.job is None:
        return network
    with network.cluster() as cluster:
        states = read_states(network.job, cluster)
    return replace(network, topology=in_states(network.topology, states))


def acknowledgements_in_effect(
    job: JobConfiguration, cluster: Cluster
) -> tuple[Acknowledgement, ...]:
    """The acknowledgements of remaining messages in effect, by their end."""
    if job.tables_topic not in cluster.topics():
        return ()
    entries = read_entries(cluster, job.tables_topic)
    return acknowledgements_of(states_of(entries).acknowledged, datetime.now(UTC))


def ensure_topics(job: JobConfiguration) -> None:
    """Create the topics that a ``StatesWriter`` needs, if the job never ran."""
    TopicAdministration(job.connection).ensure(
        [state_topic(job.control_topic), state_topic(job.tables_topic)]
    )


def write_states(job: JobConfiguration, entries: Iterable[Entry]) -> None:
    """Write entries in one transaction; the running job applies them within seconds.

    If the job never ran, its topics are created, and the first run finds the states.

    Raises:
        ProtocolError: Others kept writing concurrently, or the broker did not answer.
        EnvironmentFault: The broker cannot be reached, or refused.
    """
    written = list(entries)
    change_states(job, lambda _: written)


def change_states(
    job: JobConfiguration, change: Callable[[Entries], Collection[Entry | Removal]]
) -> None:
    """Write entries that depend on the present ones; changes are serialised.

    ``change`` is called again if others wrote meanwhile.

    Raises:
        ProtocolError: Others kept writing concurrently, or the broker did not answer.
        EnvironmentFault: The broker cannot be reached, or refused.
    """
    check_access(job.connection)
    ensure_topics(job)
    with Cluster(job.connection) as cluster:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with StatesWriter(cluster, job.application, "writer") as writer:
                    written = change(read_decisions(job, cluster))
                    if written:
                        writer.write(written)
            except (TransientFault, FencedFault, OutcomeUnknown):
                # A later writer, or a start, fences our writer; the next attempt fences theirs.
                if attempt == _ATTEMPTS:
                    raise
                time.sleep(AGAIN)
            else:
                return


def set_put_enabled(network: Network, queue_manager: str, queue: str, *, put_enabled: bool) -> None:
    """Enable or disable puts to a local, alias or remote queue, whatever its definition says.

    Raises:
        UsageError: The names are not defined, or there is no job.
        ProtocolError: Others kept writing concurrently, or the broker did not answer.
        EnvironmentFault: The broker cannot be reached, or refused.
    """
    known = queue_names(network.topology, network.checked_manager(queue_manager))
    if queue not in known:
        raise unknown(f"queue manager {queue_manager} has no queue {queue}", queue, known)
    entry = queue_entry(queue=queue, queue_manager=queue_manager, put_enabled=put_enabled)
    write_states(network.required_job(), [entry])

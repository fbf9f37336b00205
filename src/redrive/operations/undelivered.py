"""Messages that no queue of a queue manager accepted, not even a dead-letter queue.

The job keeps a copy of each on a topic of its own, by source topic, until changed definitions place
it or an operator releases it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from redrive.configuration import JobConfiguration, OnUndeliverable
from redrive.engine.commands import Entry, release_entry
from redrive.engine.names import HandlerIdentity, remaining_topic
from redrive.kafka.cluster import Cluster
from redrive.kafka.records import StoredRecord
from redrive.messages import TopicPartition
from redrive.operations.network import Network, unknown
from redrive.operations.put import names_of
from redrive.operations.states import write_states
from redrive.topology.layout import QueueTopic, TopicRole, Topology, topics_of
from redrive.topology.names import Names


@dataclass(frozen=True, slots=True)
class Undelivered:
    """An undeliverable message."""

    source: QueueTopic
    """Its source: an intake, or a transmission queue on which MQ would leave it."""
    record: StoredRecord

    @property
    def waits_on(self) -> str:
        """``QUEUE@QM`` of its transmission queue, or whose intake it was put to."""
        return self.source.place

    @property
    def names(self) -> Names:
        """The names that it was put to."""
        return names_of(self.record.headers)


def sources_of_queue(topology: Topology, queue_manager: str, queue: str) -> list[QueueTopic]:
    """The topics from which the job takes messages that a manager sends.

    ``queue`` is a transmission queue; empty for all of them, and for the intake.
    """
    return [
        topic
        for topic in topics_of(topology)
        if topic.is_read and topic.queue_manager == queue_manager and queue in {"", topic.queue}
    ]


def undelivered(
    job: JobConfiguration, cluster: Cluster, sources: Sequence[QueueTopic]
) -> tuple[list[Undelivered], Collection[TopicPartition]]:
    """Undeliverable messages from some topics, by time, and partitions without a leader."""
    by_topic = {remaining_topic(job.application, source.topic): source for source in sources}
    return _kept_on(cluster, by_topic)


def handler_of(network: Network, topic: QueueTopic) -> HandlerIdentity | None:
    """The handler that reads the topic of a dead-letter queue; None if none does."""
    handlers = network.job.handlers if network.job else ()
    identities = (handler.identity for handler in handlers if handler.identity.topic == topic.topic)
    return next(identities, None)


def kept_for(network: Network, cluster: Cluster, topics: Iterable[QueueTopic]) -> list[Undelivered]:
    """Messages that are kept for a queue and belong to its head, by time.

    In IBM MQ an undeliverable message is there, but not with ``on_undeliverable = "keep aside"``,
    and on a dead-letter queue what no rule placed.
    """
    job, by_topic = network.job, dict[str, QueueTopic]()
    if job is None:
        return []
    stays = job.on_undeliverable is not OnUndeliverable.KEEP_ASIDE
    for topic in topics:
        if stays and topic.role is TopicRole.TRANSMISSION and topic.is_read:
            by_topic[remaining_topic(job.application, topic.topic)] = topic
        if (handler := handler_of(network, topic)) is not None:
            by_topic[handler.remaining_topic] = topic
    return _kept_on(cluster, by_topic)[0] if by_topic else []


def release(
    network: Network, queue_manager: str, queue: str
) -> tuple[int, Collection[TopicPartition]]:
    """Make the running job retry undeliverable messages once.

    ``queue`` is a transmission queue; empty for all of them, and for the intake.

    Returns:
        How many messages are released, and the partitions without a leader, which were left out.

    Raises:
        UsageError: The names are not defined, or there is no job.
        ProtocolError: Others kept writing concurrently, or the broker did not answer.
        EnvironmentFault: The broker cannot be reached, or refused.
    """
    sources = sources_of_queue(network.topology, network.checked_manager(queue_manager), queue)
    if not sources:
        known = [source.queue for source in sources_of_queue(network.topology, queue_manager, "")]
        problem = f"{queue} is not a transmission queue of {queue_manager}"
        raise unknown(problem, queue, [name for name in dict.fromkeys(known) if name])
    job = network.required_job()
    with network.cluster() as cluster:
        messages, silent = undelivered(job, cluster, sources)
        entries = release_entries(job, cluster, sources)
    if messages:
        write_states(job, entries)
    return len(messages), silent


def release_entries(
    job: JobConfiguration, cluster: Cluster, sources: Sequence[QueueTopic]
) -> list[Entry]:
    """The entries that release the undeliverable messages of some topics."""
    topics = [remaining_topic(job.application, source.topic) for source in sources]
    ends = cluster.ends(cluster.led(topics)[0])
    return [release_entry(lane, end) for lane, end in ends.items() if end]


def _kept_on(
    cluster: Cluster, by_topic: Mapping[str, QueueTopic]
) -> tuple[list[Undelivered], Collection[TopicPartition]]:
    """The live copies on topics, each with its source, and partitions without a leader."""
    lanes, silent = cluster.led(by_topic)
    kept: dict[tuple[str, bytes | None], StoredRecord] = {}
    for record in cluster.read(dict.fromkeys(lanes, 0)):
        key = record.lane.topic, record.key
        kept.pop(key, None)
        if record.value is not None:
            kept[key] = record
    copies = sorted(kept.values(), key=lambda copy: copy.timestamp)
    return [Undelivered(by_topic[copy.lane.topic], copy) for copy in copies], silent

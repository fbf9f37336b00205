"""The queues of the cluster at this moment: which exist, what they take, how full they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import (
    TopicPartition as ClientPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not in the stub's list
    AclOperation,
    AdminClient,
    ConfigResource,
    ResourceType,
)

from redrive.kafka.offsets import EARLIEST, LATEST, OffsetSpec, list_offsets
from redrive.messages import TopicPartition

if TYPE_CHECKING:
    from redrive.kafka.connection import Connection
    from redrive.topology.put import QueueLimits

_TOPICS_AGE = 5.0
"""Seconds after which the list of topics is fetched again."""
_MISS_AGE = 0.5
"""Seconds between two fetches because of a topic that is not in the list."""
_RIGHTS_AGE = 10.0
"""Seconds after which the right to write to a topic is asked again."""
_LIMIT_AGE = 60.0
"""Seconds after which a topic's max.message.bytes is asked again."""
_ANSWER_TIMEOUT = 10.0
"""Seconds to wait for one answer of the broker."""
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's own default, taken when a topic's setting may not be read."""


class ClusterQueues:
    """Answers about queues, remembered for moments only.

    A broker that does not answer changes nothing: the last answer stands, and the put itself will
    meet the outage.
    """

    def __init__(self, connection: Connection, clock: Callable[[], float] = time.monotonic) -> None:
        """Open the client that asks.

        Args:
            connection: The cluster.
            clock: Seconds from an arbitrary start.
        """
        self._admin = AdminClient({**connection.librdkafka(), "log_level": 2})
        self._clock = clock
        self._names: frozenset[str] = frozenset()
        self._names_at = float("-inf")
        self._limits: dict[str, tuple[float, int]] = {}
        self._rights: dict[str, tuple[float, bool]] = {}

    def topics(self) -> Container[str]:
        """The topics that exist; asking for one that is missing looks again."""
        if self._clock() - self._names_at > _TOPICS_AGE:
            self._refresh()
        return self

    def __contains__(self, topic: object) -> bool:
        """Whether a topic exists."""
        if topic not in self._names and self._clock() - self._names_at > _MISS_AGE:
            self._refresh()
        return topic in self._names

    def max_message_bytes(self, topic: str) -> int:
        """The largest record the topic takes, in bytes."""
        known = self._limits.get(topic)
        if known is not None and self._clock() - known[0] < _LIMIT_AGE:
            return known[1]
        size = self._fetch_limit(topic)
        self._limits[topic] = self._clock(), size
        return size

    def may_write(self, topic: str) -> bool:
        """Whether this user may write to the topic; yes when the broker does not say.

        One record for a topic that may not be written to ends a whole transaction, and the client
        does not tell which record it was: so this is asked before.
        """
        known = self._rights.get(topic)
        if known is not None and self._clock() - known[0] < _RIGHTS_AGE:
            return known[1]
        allowed = self._fetch_right(topic)
        self._rights[topic] = self._clock(), allowed
        return allowed

    def depth(self, topic: str, limits: QueueLimits) -> int | None:
        """The lag of the queue's consumer group; None without a group (design 4)."""
        if not limits.consumer_group:
            return None
        try:
            return self._lag(topic, limits.consumer_group)
        except KafkaException:
            return None

    def _refresh(self) -> None:
        self._names_at = self._clock()
        try:
            self._names = frozenset(self._admin.list_topics(timeout=_ANSWER_TIMEOUT).topics)
        except KafkaException:
            return

    def _fetch_limit(self, topic: str) -> int:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            answer = self._admin.describe_configs([resource], request_timeout=_ANSWER_TIMEOUT)
            return int(answer[resource].result()["max.message.bytes"].value)
        except (KafkaException, KeyError, TypeError, ValueError):
            return DEFAULT_MAX_MESSAGE_BYTES

    def _fetch_right(self, topic: str) -> bool:
        try:
            answer = self._admin.describe_topics(
                TopicCollection([topic]),
                include_authorized_operations=True,
                request_timeout=_ANSWER_TIMEOUT,
            )
            operations = answer[topic].result().authorized_operations
        except KafkaException:
            return True
        return not operations or AclOperation.WRITE in operations

    def _lag(self, topic: str, group: str) -> int:
        names = self._admin.list_topics(topic, timeout=_ANSWER_TIMEOUT).topics[topic].partitions
        lanes = [ClientPartition(topic, number) for number in names]
        asked = ConsumerGroupTopicPartitions(group, lanes)
        answer = self._admin.list_consumer_group_offsets([asked])[group].result(_ANSWER_TIMEOUT)
        ends = self._offsets(lanes, LATEST)
        starts = self._offsets(lanes, EARLIEST)
        lag = 0
        for entry in answer.topic_partitions:
            lane = TopicPartition(entry.topic, entry.partition)
            committed = entry.offset if entry.offset >= 0 else starts[lane]
            lag += max(0, ends[lane] - max(committed, starts[lane]))
        return lag

    def _offsets(self, lanes: list[ClientPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        asked = {TopicPartition(lane.topic, lane.partition): spec for lane in lanes}
        return list_offsets(self._admin, asked, timeout=_ANSWER_TIMEOUT)

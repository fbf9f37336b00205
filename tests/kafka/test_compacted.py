"""A compacted topic is read from the oldest record that is kept to its end."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from redrive.kafka.cluster import Cluster
from redrive.kafka.compacted import CompactedTopic
from redrive.kafka.connection import Connection
from redrive.messages import TopicPartition


def test_what_is_gone_is_passed_over_and_the_rest_is_read_and_followed(
    bootstrap_servers: str, topics: Any, produce: Any
) -> None:
    """Whoever configured retention as well keeps a topic that can be read."""
    name = topics("kept", config={"cleanup.policy": "compact,delete"})
    produce(name, [{"key": b"%d" % number, "value": b"x"} for number in range(5)])
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    (gone,) = admin.delete_records([ClientPartition(name, 0, 3)]).values()
    gone.result()
    cluster = Cluster(Connection(bootstrap_servers=bootstrap_servers))
    with closing(CompactedTopic(cluster, TopicPartition(name, 0))) as kept:
        assert [one.key for one in kept.records_to_end()] == [b"3", b"4"]
        produce(name, [{"key": b"5", "value": b"y"}])
        assert [one.value for one in kept.records_to_end()] == [b"y"]

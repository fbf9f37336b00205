"""A compacted topic is read from the oldest record that is kept to its end."""

from __future__ import annotations

from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from redrive.kafka.compacted import CompactedTopic
from redrive.kafka.connection import Connection


def test_what_is_gone_is_passed_over_and_the_rest_is_read_and_followed(
    bootstrap_servers: str, topics: Any, produce: Any
) -> None:
    """Whoever configured retention as well keeps a topic that can be read."""
    name = topics("kept", config={"cleanup.policy": "compact,delete"})
    produce(name, [{"key": b"%d" % number, "value": b"x"} for number in range(5)])
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    (gone,) = admin.delete_records([TopicPartition(name, 0, 3)]).values()
    gone.result()
    with CompactedTopic(Connection(bootstrap_servers=bootstrap_servers), name) as kept:
        assert kept.read_to_end() == [("3", b"x"), ("4", b"x")]
        produce(name, [{"key": b"5", "value": b"y"}])
        assert kept.read_to_end() == [("5", b"y")]

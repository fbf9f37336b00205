"""A compacted topic is read from the oldest record that is kept to its end."""

from __future__ import annotations

from contextlib import closing

from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from tests.conftest import KafkaClient

from redrive.kafka.cluster import Cluster
from redrive.kafka.compacted import CompactedTopic
from redrive.messages import TopicPartition


def test_what_is_gone_is_passed_over_and_the_rest_is_read_and_followed(kafka: KafkaClient) -> None:
    name = kafka.topic("kept", config={"cleanup.policy": "compact,delete"})
    kafka.produce(name, [{"key": b"%d" % number, "value": b"x"} for number in range(5)])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    (gone,) = admin.delete_records([ClientPartition(name, 0, 3)]).values()
    gone.result()
    cluster = Cluster(kafka.connection)
    with closing(CompactedTopic(cluster, TopicPartition(name, 0))) as kept:
        assert [record.key for record in kept.records_to_end()] == [b"3", b"4"]
        kafka.produce(name, [{"key": b"5", "value": b"y"}])
        assert [record.value for record in kept.records_to_end()] == [b"y"]

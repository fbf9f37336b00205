"""Three brokers as one cluster: run by ``make resilience``, because it takes a minute."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from tests.conftest import PATIENCE, eventually, read_records
from tests.several_brokers import SeveralBrokers

TOPIC = "survivors"


def test_a_commit_is_seen_on_a_partition_whose_only_broker_was_away(tmp_path: Path) -> None:
    """Brokers 4.3.0 to 4.4.0 fail this: the marker is never written there (KAFKA-20734)."""
    with SeveralBrokers(tmp_path / "broker", 3) as cluster:
        servers = cluster.bootstrap_servers
        admin = KafkaAdminClient(bootstrap_servers=servers)
        alone = NewTopic("alone", 1, 1, topic_configs={"min.insync.replicas": "1"})
        admin.create_topics([NewTopic(TOPIC, 1, 3), alone], wait_for_metadata=True)
        (leader,) = (
            partition["leader_id"]
            for partition in admin.describe_topics(["alone"])[0]["partitions"]
        )
        admin.close()
        producer = Producer({"bootstrap.servers": servers, "transactional.id": "one"})
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        for topic in (TOPIC, "alone"):
            producer.produce(topic, b"both")
        producer.flush(PATIENCE)
        cluster.brokers[leader - 1].stop()
        producer.commit_transaction(PATIENCE)
        cluster.brokers[leader - 1].start()

        def is_seen() -> bool:
            return [record.value for record in read_records(servers, TOPIC, "alone")] == [
                b"both"
            ] * 2

        eventually(is_seen, "both records are seen")

"""Three brokers as one cluster: run by ``make resilience``, because it takes a minute."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from tests.conftest import PATIENCE, eventually, read_records

from redrive.broker import BrokerState, EmbeddedCluster
from redrive.errors import UsageError

TOPIC = "survivors"


def test_of_three_brokers_one_may_be_lost(tmp_path: Path) -> None:
    """A topic has three replicas, so it is written and read while a broker is killed and away."""
    assert redrive(tmp_path, "start", "--brokers", "3", "--property", "num.io.threads=2") == 0
    cluster = EmbeddedCluster.found(tmp_path / "broker")
    assert cluster is not None
    try:
        # While a broker is away this client may ask it, and gives up where that refuses.
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        admin.create_topics([NewTopic(TOPIC, 1, 3)], wait_for_metadata=True)
        admin.close()
        write(cluster.bootstrap_servers, b"with three")
        cluster.brokers[0].kill()
        assert redrive(tmp_path, "status") == 1
        write(cluster.bootstrap_servers, b"with two")
        assert redrive(tmp_path, "start") == 0
        assert {one.state for one in cluster.status()} == {BrokerState.RUNNING}
        values = [record.value for record in read_records(cluster.bootstrap_servers, TOPIC)]
        assert values == [b"with three", b"with two"]
        with pytest.raises(UsageError, match="has 3 brokers"):
            EmbeddedCluster(tmp_path / "broker", 2)
    finally:
        assert redrive(tmp_path, "stop") == 0
    assert redrive(tmp_path, "wipe") == 0
    assert not list(tmp_path.glob("broker/*"))


def redrive(tmp_path: Path, action: str, *options: str) -> int:
    """Exit code of ``redrive broker``."""
    command = [sys.executable, "-m", "redrive", "broker", action, *options]
    return subprocess.run([*command, "-d", tmp_path / "broker"], check=False).returncode


def write(servers: str, value: bytes) -> None:
    """Append one record to a topic with three replicas."""
    # An idempotent producer of this client waits half a minute for the broker that is away.
    producer = KafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=False)
    producer.send(TOPIC, value).get(timeout=PATIENCE)
    producer.close()


def test_a_commit_is_seen_on_a_partition_whose_only_broker_was_away(tmp_path: Path) -> None:
    """Brokers 4.3.0 to 4.4.0 fail this: the marker is never written there (KAFKA-20734)."""
    with EmbeddedCluster(tmp_path / "broker", 3) as cluster:
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

"""The embedded broker and what the shared fixtures promise about it."""

from __future__ import annotations

import json
import socket
from contextlib import closing, suppress
from pathlib import Path
from random import seed
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import MetadataEmptyBrokerList
from tests.commands import python, redrive
from tests.conftest import PATIENCE, KafkaClient, eventually

from redrive.broker import BrokerState, EmbeddedBroker
from redrive.broker.configuration import free_port
from redrive.errors import EnvironmentFault, UsageError


def test_records_are_read_back_as_they_were_written(kafka: KafkaClient) -> None:
    topic = kafka.topic("orders", partitions=2)
    headers = [("a", b"1"), ("b", b""), ("a", b"2")]
    kafka.produce(
        topic,
        [
            {"key": b"k", "value": b"one", "headers": headers, "partition": 1, "timestamp_ms": 5},
            {"key": None, "value": b"two", "partition": 1},
            {"value": b"other", "partition": 0},
        ],
    )
    first, second = (record for record in kafka.read(topic) if record.partition == 1)
    assert (first.key, first.value, first.timestamp) == (b"k", b"one", 5)
    assert [tuple(header) for header in first.headers] == headers
    assert (second.key, second.value) == (None, b"two")


def test_what_a_transaction_aborted_is_not_read(kafka: KafkaClient) -> None:
    topic = kafka.topic()
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": kafka.unique_name("writer"),
        }
    )
    producer.init_transactions(30)
    for value, end in ((b"kept", "commit_transaction"), (b"dropped", "abort_transaction")):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(PATIENCE)
        getattr(producer, end)(30)
    assert kafka.values(topic) == [b"kept"]


def test_an_unknown_topic_is_not_created_by_asking(admin: Any, bootstrap_servers: str) -> None:
    errors: list[Any] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "topic.metadata.propagation.max.ms": 0}
    )
    producer.produce("no-such-topic", b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert [error.name() for error in errors] == ["UNKNOWN_TOPIC_OR_PART"]
    assert "no-such-topic" not in admin.list_topics()


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A broker that tests of this module may stop and kill; each leaves it running.

    Its folder has a name that a path of Java's or a line of properties could stumble over.
    """
    with EmbeddedBroker(tmp_path_factory.mktemp("own, brökér = #1 "), heap="256m") as running:
        yield running


def test_data_and_port_survive_a_stop(own_broker: EmbeddedBroker) -> None:
    address = own_broker.bootstrap_servers
    _write(address, b"before the stop")
    own_broker.pause()
    assert own_broker.stop()
    assert own_broker.status().state is BrokerState.STOPPED
    assert own_broker.start()
    assert own_broker.bootstrap_servers == address
    assert _read(address)[-1] == b"before the stop"


def test_a_broker_that_does_not_stop_in_time_is_killed(own_broker: EmbeddedBroker) -> None:
    address = own_broker.bootstrap_servers
    _write(address, b"before the late stop")
    assert own_broker.stop(timeout=0.0)
    assert own_broker.status().state is BrokerState.STOPPED
    assert own_broker.start()
    assert _read(address)[-1] == b"before the late stop"


def test_data_and_port_survive_a_kill(own_broker: EmbeddedBroker) -> None:
    address = own_broker.bootstrap_servers
    _write(address, b"before the kill")
    own_broker.pause()
    own_broker.kill()
    status = own_broker.status()
    assert (status.state, status.pid) == (BrokerState.DIED, 0)
    assert own_broker.start()
    assert own_broker.status().state is BrokerState.RUNNING
    assert own_broker.bootstrap_servers == address
    assert _read(address)[-1] == b"before the kill"


def test_a_paused_broker_answers_nobody_and_goes_on_when_resumed(
    own_broker: EmbeddedBroker,
) -> None:
    _write(own_broker.bootstrap_servers, b"before the pause")
    own_broker.pause()
    assert own_broker.status().state is BrokerState.UNREACHABLE
    with pytest.raises(EnvironmentFault, match="does not answer"):
        own_broker.start()
    own_broker.resume()
    eventually(lambda: own_broker.status().state is BrokerState.RUNNING, "the broker answers")

    def is_read() -> bool:
        # After a long pause the controller lets the broker in again a moment later.
        with suppress(MetadataEmptyBrokerList):
            return _read(own_broker.bootstrap_servers)[-1] == b"before the pause"
        return False

    eventually(is_read, "the broker has its data")


def test_a_second_start_does_nothing(own_broker: EmbeddedBroker) -> None:
    pid = own_broker.status().pid
    directory = own_broker.log.parent
    assert not EmbeddedBroker(directory).start()
    assert own_broker.status().pid == pid
    with pytest.raises(UsageError, match="already runs"):
        EmbeddedBroker(directory, port=1).start()


def test_a_running_broker_is_not_wiped(own_broker: EmbeddedBroker) -> None:
    with pytest.raises(UsageError, match="is running"):
        own_broker.wipe()


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EnvironmentFault, match=f"port {port} is in use"):
            EmbeddedBroker(tmp_path, port=port).start()
    assert EmbeddedBroker(tmp_path).status().state is BrokerState.STOPPED


def test_processes_that_choose_the_same_port_do_not_both_get_it() -> None:
    choice = "from random import seed; from redrive.broker.configuration import free_port; seed(1)"
    seed(1)
    port = free_port()
    assert int(python("-c", f"{choice}; print(free_port())", code=0).stdout) != port
    socket.create_server(("127.0.0.1", port)).close()


def test_a_failing_start_quotes_the_log(tmp_path: Path) -> None:
    embedded = EmbeddedBroker(tmp_path, properties={"log.retention.bytes": "many"})
    with pytest.raises(EnvironmentFault, match=r"log\.retention\.bytes") as caught:
        embedded.start()
    assert str(embedded.log) in caught.value.hint


def test_wiping_leaves_strange_files_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    embedded = EmbeddedBroker(tmp_path)
    (tmp_path / "data").mkdir()
    embedded.wipe()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_command_starts_tells_stops_and_wipes(tmp_path: Path) -> None:
    assert _redrive(tmp_path, "status")[:2] == (1, "stopped")
    command = ("-m", "redrive", "broker", "start", "--json", "-d", tmp_path / "broker")
    started = json.loads(python(*command, code=0).stdout)
    address = started["bootstrap_servers"]
    assert started["state"] == "running"
    try:
        _write(address, b"by command")
        assert _redrive(tmp_path, "status") == (0, "running", address)
        assert _redrive(tmp_path, "wipe")[0] == 2
    finally:
        assert _redrive(tmp_path, "stop")[:2] == (0, "stopped")
    assert _redrive(tmp_path, "wipe") == (0, "stopped", "")
    assert not list(tmp_path.glob("broker/*"))


def _redrive(tmp_path: Path, action: str) -> tuple[int, str, str]:
    """Exit code, state and address that ``redrive broker`` gives."""
    result = redrive("broker", action, "--json", "-d", tmp_path / "broker")
    answer = json.loads(result.stdout) if result.stdout else {}
    return result.exit_code, answer.get("state", ""), answer.get("bootstrap_servers", "")


def _write(address: str, value: bytes) -> None:
    """Append one record to the topic ``survivors``, made when it is not there."""
    admin = KafkaAdminClient(bootstrap_servers=address)
    if "survivors" not in admin.list_topics():
        admin.create_topics([NewTopic("survivors", 1, 1)], wait_for_metadata=True)
    admin.close()
    producer = KafkaProducer(bootstrap_servers=address, acks="all", enable_idempotence=False)
    producer.send("survivors", value).get(timeout=PATIENCE)
    producer.close()


def _read(address: str) -> list[bytes]:
    """Every value in the topic ``survivors``."""
    partition = TopicPartition("survivors", 0)
    values: list[bytes] = []
    with closing(
        KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    ) as consumer:
        consumer.assign([partition])
        while consumer.position(partition) < consumer.end_offsets([partition])[partition]:
            values += [record.value for record in consumer.poll(100).get(partition, [])]
    return values

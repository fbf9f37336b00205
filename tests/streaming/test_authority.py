"""A queue that this user may not write to, on a broker that checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    NewTopic,
    ResourcePattern,
    ResourceType,
)
from tests.streaming.conftest import RunningJob

from redrive.broker import EmbeddedBroker
from redrive.configuration import JobConfiguration
from redrive.kafka.connection import Connection


@pytest.fixture
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with an authorizer that lets everybody do what no rule forbids."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:nobody",
    }
    with EmbeddedBroker(tmp_path_factory.mktemp("guarded"), properties=properties) as broker:
        yield broker.bootstrap_servers


def test_a_put_that_is_not_authorised_fails_with_2035_and_harms_no_other(
    guarded: str,
    configure: Callable[..., JobConfiguration],
    start_job: Callable[[JobConfiguration], RunningJob],
) -> None:
    """The broker says no to one target: that attempt fails, the rest of the batch is delivered."""
    admin = KafkaAdminClient(bootstrap_servers=guarded)
    admin.create_topics(
        [NewTopic(name, 1, 1) for name in ("a.dlq", "open", "secret")], wait_for_metadata=True
    )
    # A topic that may not even be described does not exist, as far as this user can tell.
    admin.create_acls(
        [
            _acl(ACLOperation.DESCRIBE, ACLPermissionType.ALLOW),
            _acl(ACLOperation.WRITE, ACLPermissionType.DENY),
        ]
    )
    producer = Producer({"bootstrap.servers": guarded})
    for number in range(20):
        target = b"secret" if number % 5 == 0 else b"open"
        headers: list[tuple[str, str | bytes | None]] = [
            ("mqdlh.Reason", b"2053"),
            ("mqdlh.DestQName", target),
        ]
        producer.produce("a.dlq", b"%d" % number, headers=headers)
    producer.flush()
    configuration = configure(
        {"a.dlq": "WAIT(NO)\nACTION(RETRY)\n"}, connection=Connection(bootstrap_servers=guarded)
    )
    start_job(configuration).join()
    values = _values(guarded, "open")
    assert sorted(map(int, values)) == [n for n in range(20) if n % 5]
    outcomes = [
        json.loads(value)
        for number in range(4)
        for value in _values(guarded, configuration.outcomes_topic, number)
    ]
    refused = [outcome for outcome in outcomes if outcome["target_queue"] == "secret"]
    assert [outcome["reason"] for outcome in refused] == [2035] * 4
    assert len(outcomes) == 20
    admin.close()


def _acl(operation: ACLOperation, permission: ACLPermissionType) -> ACL:
    return ACL(
        principal="User:ANONYMOUS",
        host="*",
        operation=operation,
        permission_type=permission,
        resource_pattern=ResourcePattern(ResourceType.TOPIC, "secret"),
    )


def _values(servers: str, topic: str, partition: int = 0) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=servers, isolation_level="read_committed", enable_auto_commit=False
    )
    lane = TopicPartition(topic, partition)
    consumer.assign([lane])
    consumer.seek_to_beginning(lane)
    end, values = consumer.end_offsets([lane])[lane], []
    while consumer.position(lane) < end:
        values += [r.value for records in consumer.poll(200).values() for r in records]
    consumer.close()
    return values

"""A queue that this user may not write to, on a broker that checks."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    NewTopic,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from tests.conftest import eventually, send_records
from tests.streaming.conftest import Jobs, letter

from redrive.broker import EmbeddedBroker
from redrive.kafka.connection import Connection
from redrive.operations.handlers import read_topics
from redrive.streaming import upkeep


@pytest.fixture(scope="module")
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
    jobs: Jobs, guarded: str
) -> None:
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
    configuration = jobs.configure(
        {"a.dlq": "WAIT(NO)\nACTION(RETRY)\n"}, connection=Connection(bootstrap_servers=guarded)
    )
    jobs.start(configuration).join()
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


def test_a_topic_that_may_not_be_read_stops_its_handler_only(
    jobs: Jobs, guarded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_LAYOUT_AGE", 0.5)
    admin = KafkaAdminClient(bootstrap_servers=guarded)
    names = ("open.dlq", "secret.dlq", "target")
    admin.create_topics([NewTopic(name, 1, 1) for name in names], wait_for_metadata=True)
    send_records(guarded, "secret.dlq", [letter(2053, "x", b"secret 1")])
    denial = [
        _acl(ACLOperation.DESCRIBE, ACLPermissionType.ALLOW, "secret.dlq"),
        _acl(ACLOperation.READ, ACLPermissionType.DENY, "secret.dlq"),
    ]
    admin.create_acls(denial)
    table = "ACTION(FWD) FWDQ('target') HEADER(NO)\n"
    configuration = jobs.configure(
        {"open.dlq": table, "secret.dlq": table}, connection=Connection(bootstrap_servers=guarded)
    )

    def placed(values: set[bytes]) -> None:
        eventually(lambda: set(_values(guarded, "target")) >= values or running.error, "placed")
        assert sorted(_values(guarded, "target")) == sorted(values)

    def is_said(times: int) -> bool:
        stops = [facts for said, facts in running.warnings if "handler is stopped" in said]
        assert {facts["topic"] for facts in stops} <= {"secret.dlq"}
        return len(stops) == times or bool(running.error)

    send_records(guarded, "open.dlq", [letter(2053, "x", b"open 1")])
    running = jobs.start(configuration)
    placed({b"open 1"})
    assert is_said(1)
    every = ResourcePatternFilter(ResourceType.TOPIC, "secret.dlq", ACLResourcePatternType.ANY)
    listed = {topic.topic: topic.is_denied for topic in read_topics(configuration)}
    assert listed == {"open.dlq": False, "secret.dlq": True}
    admin.delete_acls([ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, every)])
    placed({b"open 1", b"secret 1"})
    admin.create_acls(denial)
    eventually(lambda: is_said(2), "the handler is stopped again")
    send_records(guarded, "open.dlq", [letter(2053, "x", b"open 2")])
    placed({b"open 1", b"secret 1", b"open 2"})
    running.stop()
    admin.close()


def _acl(operation: ACLOperation, permission: ACLPermissionType, topic: str = "secret") -> ACL:
    return ACL(
        principal="User:ANONYMOUS",
        host="*",
        operation=operation,
        permission_type=permission,
        resource_pattern=ResourcePattern(ResourceType.TOPIC, topic),
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

"""The topic of a group's rounds is created when a rule first puts to it, like the original one."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from tests.configurations import handled, job_of
from tests.engine.failed_processing import spring

from redrive.configuration.deciders import DeciderFactory
from redrive.engine.facts import Facts, Questions, TopicFacts
from redrive.engine.slice import Slice, SliceSettings
from redrive.engine.sources import PartitionRecords
from redrive.kafka.administration import NewTopic
from redrive.kafka.facts import ClusterFacts
from redrive.messages import DeadLetterDecoder, OutputRecord, Records, TopicPartition

THERE = "orders.billing.retry"
NEW = NewTopic(THERE, 4, {}, 3)


@dataclass
class Topics:
    """A cluster on which ``orders`` has four partitions with three replicas each."""

    refusal: int | None = None
    """The code with which it refuses to create a topic."""
    settings: dict[str, str] = field(default_factory=dict)
    created: list[NewTopic] = field(default_factory=list)
    validated: list[NewTopic] = field(default_factory=list)

    def descriptions(self, names: Any, *, with_rights: bool = False) -> dict[str, Any]:
        del with_rights
        known = {"orders", *(created.name for created in self.created)}
        leader, replicas = SimpleNamespace(id=1), [1, 2, 3]
        partitions = [
            SimpleNamespace(id=number, leader=leader, isr=replicas, replicas=replicas)
            for number in range(4)
        ]
        topic = SimpleNamespace(partitions=partitions, authorized_operations=None)
        return {name: topic if name in known else None for name in names}

    def settings_of(self, names: Any, *, explicit_only: bool = False) -> dict[str, Any]:
        del explicit_only
        return dict.fromkeys(names, self.settings)

    def topic_ids(self, names: Any) -> dict[str, str]:
        """The identities of topics, which no rule here asks for."""
        assert not names
        return {}

    def create(self, topic: NewTopic, *, validate_only: bool) -> KafkaError | None:
        """Creates a topic, or says why not."""
        if self.refusal is not None:
            return KafkaError(self.refusal)
        (self.validated if validate_only else self.created).append(topic)
        return None


def decided(topics: Topics, *, creates: bool = True, **more: Any) -> tuple[Any, dict[str, Any]]:
    """The put, if there is one, and the outcome of a dead letter of partition 0 of ``orders``."""
    cluster: Any = topics
    answers = ClusterFacts(cluster, creates=creates).answers
    facts = Facts(lambda: 0.0)
    table = "DIALECT(KAFKA)\nACTION(RETRY) TO(GROUP) BACKOFF(1s,1,1s)\n"
    factory = DeciderFactory(job_of(handled("DLQ", table), **more), facts)
    decider, kind = factory.deciders()["DLQ"]
    letter = spring(OutputRecord("orders", b"k", b"{}", [], 5), 7, 5)
    headers = [letter.headers or []]
    records = Records([letter.key], [letter.value], headers, [letter.timestamp], [0])
    part = PartitionRecords(TopicPartition("DLQ", 0), decider, kind, records)
    work = Slice(
        [part], DeadLetterDecoder(), facts, SliceSettings(outcomes_topic="outcomes", now=1_000_000)
    )
    work.resume({})
    while questions := work.decide():
        work.learn(answers(questions))
    put = next(
        (output for _, output in work.outputs if output.topic not in {"outcomes", "remaining"}),
        None,
    )
    outcome = next(output for _, output in work.outputs if output.topic == "outcomes")
    return put, json.loads(outcome.value or b"")


def test_it_is_created_with_the_partitions_and_replicas_of_the_original() -> None:
    topics = Topics()
    put, outcome = decided(topics)
    assert topics.created == [NEW]
    assert (put.topic, put.key, put.partition) == (THERE, b"k", 0)
    assert (outcome["result"], outcome["target_topic"]) == ("retried", THERE)
    decided(topics)
    assert topics.created == [NEW]


def test_it_keeps_and_accepts_what_the_original_does() -> None:
    inherited = {
        "max.message.bytes": "5000000",
        "retention.ms": "-1",
        "cleanup.policy": "compact,delete",
        "message.timestamp.type": "LogAppendTime",
    }
    topics = Topics(settings={**inherited, "segment.ms": "1000"})
    decided(topics)
    assert topics.created[0].settings == inherited


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"retention.ms": "86400000"}, TopicFacts(retention=86_400_000)),
        ({"retention.ms": "-1"}, TopicFacts()),
        ({"retention.ms": "5", "cleanup.policy": "compact"}, TopicFacts(wants_keys=True)),
        (
            {"retention.ms": "5", "cleanup.policy": "compact,delete"},
            TopicFacts(wants_keys=True, retention=5),
        ),
        ({"message.timestamp.type": "LogAppendTime"}, TopicFacts(stamps_records=True)),
    ],
)
def test_facts_say_how_a_record_lives(settings: dict[str, str], expected: TopicFacts) -> None:
    cluster: Any = Topics(settings=settings)
    facts = ClusterFacts(cluster).answers(Questions(frozenset({"orders"}))).topics["orders"]
    assert (facts.retention, facts.wants_keys, facts.stamps_records) == (
        expected.retention, expected.wants_keys, expected.stamps_records,
    )  # fmt: skip


def test_a_view_only_asks_whether_it_could_be_created() -> None:
    topics = Topics()
    assert decided(topics, creates=False)[0].topic == THERE
    assert (topics.created, topics.validated) == ([], [NEW])


@pytest.mark.parametrize("creates", [True, False])
def test_the_first_records_of_a_new_topic_have_a_time_with_which_it_keeps_them(
    *, creates: bool
) -> None:
    put, outcome = decided(Topics(settings={"retention.ms": "60000"}), creates=creates)
    assert (put.timestamp, dict(put.headers)["redrive.timestamp"]) == (1_000_000, b"5")
    assert "with the time of the put" in outcome["detail"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "MQRC_NOT_AUTHORIZED"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "MQRC_NOT_AUTHORIZED"),
        (KafkaError.POLICY_VIOLATION, "MQRC_RESOURCE_PROBLEM"),
        (KafkaError.INVALID_REPLICATION_FACTOR, "MQRC_RESOURCE_PROBLEM"),
    ],
)
@pytest.mark.parametrize("creates", [True, False])
def test_a_topic_that_can_not_be_created_is_a_failed_attempt(
    code: int, reason: str, *, creates: bool
) -> None:
    put, outcome = decided(Topics(refusal=code), creates=creates)
    assert put is None
    assert (outcome["result"], outcome["reason_name"]) == ("remains", reason)
    assert f"topic {THERE} cannot be created: " in outcome["detail"]


def test_the_settings_name_it() -> None:
    put, _ = decided(Topics(), group_topic="retry-{group}-{topic}")
    assert put.topic == "retry-billing-orders"

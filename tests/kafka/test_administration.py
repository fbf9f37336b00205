"""Topics are created and grown, and never changed otherwise."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from tests.conftest import KafkaClient, eventually

from redrive.errors import EnvironmentFault
from redrive.kafka.administration import NewTopic, TopicAdministration
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection


@pytest.fixture
def administration(bootstrap_servers: str) -> TopicAdministration:
    return TopicAdministration(Connection(bootstrap_servers=bootstrap_servers))


@pytest.fixture
def retention(bootstrap_servers: str) -> Callable[[str], str]:
    """What the cluster says of a topic's ``retention.ms``."""
    cluster = Cluster(Connection(bootstrap_servers=bootstrap_servers))
    return lambda topic: str(cluster.settings_of([topic])[topic]["retention.ms"])


def test_what_is_missing_is_created_with_its_settings(
    kafka: KafkaClient, administration: TopicAdministration, retention: Callable[[str], str]
) -> None:
    topic = NewTopic(kafka.unique_name("kept"), 3, {"retention.ms": "-1"}, replication_factor=1)
    administration.ensure([topic])
    assert administration.partitions()[topic.name] == 3
    assert retention(topic.name) == "-1"
    administration.ensure([topic])


def test_partitions_are_added_and_never_taken(
    kafka: KafkaClient, administration: TopicAdministration, retention: Callable[[str], str]
) -> None:
    name = kafka.topic("grown", partitions=2, config={"retention.ms": "1000"})
    administration.ensure([NewTopic(name, 4, {"retention.ms": "-1"})])
    administration.ensure([NewTopic(name, 1)])
    _await(lambda: administration.partitions()[name] == 4)
    assert retention(name) == "1000"


def test_a_topic_that_exists_by_now_is_as_good(
    kafka: KafkaClient, administration: TopicAdministration
) -> None:
    administration.create([NewTopic(kafka.topic("there"), 1)])


def test_a_refusal_says_which_topic_and_why(
    kafka: KafkaClient, administration: TopicAdministration
) -> None:
    topic = NewTopic(kafka.unique_name("odd"), 1, {"cleanup.policy": "sometimes"})
    with pytest.raises(EnvironmentFault, match=f"does not create topic {topic.name}.*sometimes"):
        administration.create([topic], validate_only=True)
    assert topic.name not in administration.partitions()


def test_a_cluster_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.kafka.administration.COORDINATOR", 0.3)
    with pytest.raises(EnvironmentFault, match="localhost:1 does not list its topics") as caught:
        TopicAdministration(Connection(bootstrap_servers="localhost:1")).partitions()
    assert "bootstrap_servers" in caught.value.hint


def test_a_topic_that_the_broker_shows_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = LateBroker(shows=3)
    administration_of(broker, monkeypatch).create([NewTopic(f"late{n}", 1) for n in range(3)])
    assert not broker.hidden


def test_a_created_topic_that_the_broker_never_shows_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    administration = administration_of(LateBroker(shows=2), monkeypatch)
    with pytest.raises(EnvironmentFault, match="created topic late2 and does not show it"):
        administration.create([NewTopic(f"late{n}", 1) for n in range(3)])


class LateBroker:
    """An admin client whose broker shows one more of the new topics in each answer."""

    def __init__(self, *, shows: int) -> None:
        self._left = shows
        self.hidden: list[str] = []

    def create_topics(self, topics: list[Any], **_: Any) -> dict[str, Future[None]]:
        self.hidden = [topic.topic for topic in topics]
        return {name: _answer(None) for name in self.hidden}

    def describe_topics(self, asked: TopicCollection, **_: Any) -> dict[str, Future[None]]:
        if self._left:
            self._left -= 1
            self.hidden.pop(0)
        unknown = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return {
            name: _answer(unknown if name in self.hidden else None) for name in asked.topic_names
        }


def administration_of(broker: LateBroker, monkeypatch: pytest.MonkeyPatch) -> TopicAdministration:
    """Never waits without progress."""
    monkeypatch.setattr("redrive.kafka.administration.AdminClient", lambda _: broker)
    monkeypatch.setattr("redrive.kafka.administration.SILENCE", 0.0)
    return TopicAdministration(Connection(bootstrap_servers="late:1"))


def _answer(error: KafkaException | None) -> Future[None]:
    answer: Future[None] = Future()
    if error is None:
        answer.set_result(None)
    else:
        answer.set_exception(error)
    return answer


def _await(condition: Callable[[], Any]) -> None:
    """New partitions are seen a moment later."""
    eventually(condition, "new partitions are seen")

"""Messages for other clusters arrive once, in order, or return as dead letters."""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import Mock

import pytest
from kafka.admin import KafkaAdminClient, NewTopic
from tests.conftest import eventually, read_records
from tests.streaming.conftest import Jobs, configuration_of, letter

from redrive.broker.embedded import EmbeddedBroker
from redrive.checkpoints.control import ControlTopic
from redrive.checkpoints.epoch import RunIdentity, begin_run, fencer_of
from redrive.checkpoints.instances import Share
from redrive.checkpoints.own_topics import state_topic, waiting_topic
from redrive.configuration import JobConfiguration
from redrive.engine.names import cluster_topic
from redrive.errors import RecreatedFault, TransientFault
from redrive.kafka.administration import TopicAdministration
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.messages import TopicPartition as Lane
from redrive.messages import own_headers as own
from redrive.streaming.forwarding import Forwarder

MESSAGES: Final = 1_000
KILLS: Final = 2
TABLE: Final = "DIALECT(KAFKA)\nACTION(FWD) FWDT('eu:{topic}') HEADER(NO)\n"


@pytest.fixture(scope="module")
def abroad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """The broker of another cluster."""
    with EmbeddedBroker(tmp_path_factory.mktemp("abroad")) as running:
        yield running


@pytest.fixture
def there(abroad: EmbeddedBroker) -> Iterator[Callable[..., str]]:
    """Make topics of the other cluster."""
    client = KafkaAdminClient(bootstrap_servers=abroad.bootstrap_servers)

    def create(name: str, **config: str) -> str:
        client.create_topics([NewTopic(name, 1, 1, topic_configs=config)], wait_for_metadata=True)
        return name

    yield create
    client.close()


@contextmanager
def forwarding(configuration: JobConfiguration) -> Iterator[None]:
    """A run that forwards meanwhile."""
    ended = threading.Event()
    thread = threading.Thread(target=forward, args=(configuration, ended))
    thread.start()
    yield
    ended.set()
    thread.join()


def forward(configuration: JobConfiguration, ended: threading.Event | None = None) -> None:
    """Forward as a run of the job does, until it is to end or somebody kills the process."""
    with ControlTopic(Cluster(configuration.connection), configuration.control_topic) as entries:
        run = begin_run(
            entries,
            fencer_of(configuration.connection),
            application=configuration.application,
            share=Share(1, 1),
            details={},
        )
    Forwarder(configuration, run, "eu", lambda *_, **__: None).run(ended or threading.Event())


@pytest.fixture
def application(jobs: Jobs, abroad: EmbeddedBroker) -> JobConfiguration:
    """An application that forwards to the other cluster, with its topics."""
    other = Connection(bootstrap_servers=abroad.bootstrap_servers)
    configuration = jobs.configure({}, clusters={"eu": other})
    TopicAdministration(configuration.connection).ensure(
        [
            state_topic(configuration.control_topic),
            waiting_topic(cluster_topic(configuration.application, "eu")),
        ]
    )
    return configuration


def values(servers: str, topic: str) -> list[bytes]:
    return [record.value for record in read_records(servers, topic)]


def to(topic: str, value: bytes) -> dict[str, Any]:
    """A record that is to be forwarded to a topic of the other cluster."""
    return {"value": value, "headers": [(own.FORWARD, own.Forward(topic, "DLQ").value)]}


def _more_than(count: int, servers: str, topic: str) -> bool:
    return len(values(servers, topic)) > count


def test_each_message_arrives_once_and_in_order_or_returns_once_whenever_the_process_dies(
    jobs: Jobs, application: JobConfiguration, abroad: EmbeddedBroker, there: Callable[..., str]
) -> None:
    dead_letters, known = jobs.topic("DLQ"), there(f"{application.application}.known")
    small = there(f"{application.application}.small", **{"max.message.bytes": "2000"})
    targets = [known, known, known, small, f"{application.application}.missing"]
    chosen = random.Random(5)
    sent: dict[str, list[bytes]] = {target: [] for target in targets}
    records = []
    for number in range(MESSAGES):
        target = chosen.choice(targets) if number % 100 < 5 else known
        value = b"%d" % number + (
            chosen.randbytes(3_000) if target == small and number % 2 else b""
        )
        sent[target].append(value)
        header = own.FORWARD, own.Forward(target, dead_letters).value
        records.append({"value": value, "headers": [header, ("x", b"1")]})
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=forward, args=(application,), daemon=True)
    process.start()
    for part in range(KILLS):
        before = len(values(abroad.bootstrap_servers, known))
        jobs.produce(
            cluster_topic(application.application, "eu"),
            records[part * MESSAGES // KILLS : (part + 1) * MESSAGES // KILLS],
        )
        eventually(partial(_more_than, before, abroad.bootstrap_servers, known), "some arrive")
        time.sleep(chosen.uniform(0.0, 0.5))
        process.kill()
        process.join()
        process = context.Process(target=forward, args=(application,), daemon=True)
        process.start()
    fits = [value for value in sent[small] if len(value) < 2_000]
    returned = [*sent[targets[-1]], *(value for value in sent[small] if len(value) > 2_000)]
    eventually(
        lambda: (
            len(values(abroad.bootstrap_servers, known)) >= len(sent[known])
            and len(jobs.read(dead_letters)) >= len(returned)
        ),
        "the messages arrive",
    )
    process.kill()
    process.join()
    assert values(abroad.bootstrap_servers, known) == sent[known]
    assert values(abroad.bootstrap_servers, small) == fits
    assert Counter(jobs.values(dead_letters)) == Counter(returned)


def test_a_topic_of_the_same_name_has_an_offset_of_its_own_on_the_other_cluster(
    jobs: Jobs, application: JobConfiguration, abroad: EmbeddedBroker, there: Callable[..., str]
) -> None:
    known = there(f"{application.application}.known")
    topic = cluster_topic(application.application, "eu")
    topics = TopicAdministration(application.connection)

    def has_arrived(expected: list[bytes]) -> bool:
        return values(abroad.bootstrap_servers, known) == expected

    for count in (5, 3):
        before = values(abroad.bootstrap_servers, known)
        sent = [b"%d of %d" % (number, count) for number in range(count)]
        jobs.produce(topic, [to(known, value) for value in sent])
        with forwarding(application):
            eventually(partial(has_arrived, before + sent), "they arrive once")
        topics.delete([topic])
        eventually(lambda: topic not in topics.partitions(), "the topic is gone")
        topics.ensure([waiting_topic(topic)])


def test_what_was_forwarded_is_deleted_at_the_end(
    jobs: Jobs, application: JobConfiguration, abroad: EmbeddedBroker, there: Callable[..., str]
) -> None:
    known = there(f"{application.application}.known")
    lane = Lane(cluster_topic(application.application, "eu"), 0)
    for number in range(2):
        jobs.produce(lane.topic, [to(known, b"%d" % number)])
        with forwarding(application):
            eventually(partial(_more_than, number, abroad.bootstrap_servers, known), "it arrives")
        extent = Cluster(application.connection).extents([lane])[lane]
        assert extent.first == extent.end == number + 1


def test_a_message_is_forwarded_by_a_rule_and_what_the_other_cluster_refuses_remains(
    jobs: Jobs, abroad: EmbeddedBroker, there: Callable[..., str]
) -> None:
    servers = abroad.bootstrap_servers
    queue, known = jobs.topic("DLQ"), there("orders.review")
    missing = "orders.missing"
    rules = f"""DIALECT(KAFKA) RETRYINT(1)
DESTQ(GOOD) ACTION(FWD) FWDT('eu:{known}') HEADER(NO)
DESTQ(BAD) ACTION(FWD) FWDT('eu:{missing}') HEADER(NO)
"""
    job = jobs.start(
        jobs.configure({queue: rules}, clusters={"eu": Connection(bootstrap_servers=servers)})
    )
    jobs.produce(queue, [letter(2053, "GOOD", b"one"), letter(2053, "BAD", b"two")])
    eventually(lambda: values(servers, known) == [b"one"] or job.error, "the message arrives")
    job.check()
    eventually(lambda: job.results().get("remains") == 1, "the refused one remains")
    assert job.results()["forwarded"] == 2, "a refusal counts as the attempt of the rule"
    assert dict(read_records(servers, known)[0].headers)["redrive.rule"] == b"2"
    assert missing not in Cluster(Connection(bootstrap_servers=servers)).topics()


LANE = Lane("redrive-app-to-eu", 0)


@dataclass
class OneCluster:
    """The answers of one cluster about the topic that is forwarded."""

    topic_id: str = "old"
    extent: tuple[int, int] = (0, 5)
    position: int | None = None
    has_topic: bool = True

    def extents(self, _: object) -> dict[Lane, tuple[int, int]]:
        return {LANE: self.extent}

    def topics(self) -> dict[str, int]:
        return {LANE.topic: 1} if self.has_topic else {}

    def topic_ids(self, _: object) -> dict[str, str]:
        return {LANE.topic: self.topic_id}

    def committed(self, *_: object, **__: object) -> dict[Lane, int | None]:
        return {LANE: self.position}


def forwarder(folder: Path, home: OneCluster, there: OneCluster) -> Any:
    """A forwarder of the topic, which has forwarded up to offset 5."""
    configuration = configuration_of(folder, "localhost:1", {"dlq": "ACTION(DISCARD)"})
    clusters = {"eu": configuration.connection}
    configuration = replace(configuration, application="app", clusters=clusters)
    run = RunIdentity("app", Share(1, 1), 1)
    forwarder: Any = Forwarder(configuration, run, "eu", lambda *_, **__: None)
    forwarder._home, forwarder._there, forwarder._forward, forwarder._return = (
        home,
        there,
        Mock(),
        Mock(),
    )
    forwarder._position, forwarder._topic_id = 5, "old"
    return forwarder


@pytest.mark.parametrize("end", [5, 9])
def test_recreated_topic_is_forwarded_from_its_beginning_however_much_it_holds(
    tmp_path: Path, end: int
) -> None:
    home = OneCluster(topic_id="new", extent=(0, end))
    work = forwarder(tmp_path, home, OneCluster())
    with pytest.raises(RecreatedFault):
        work.committed([LANE])
    ended, begun = threading.Event(), []

    def begin(first: int) -> None:
        begun.append(first)
        ended.set()

    work._begin, work._records, work._clear = begin, lambda _: [], Mock()
    work._serve(ended, Mock())
    assert begun == [0]


def test_deleted_topic_of_the_other_cluster_repeats_no_message(tmp_path: Path) -> None:
    work = forwarder(tmp_path, OneCluster(position=3), OneCluster(has_topic=False))
    with pytest.raises(TransientFault, match="certain is offset 3") as caught:
        work._begin(0)
    assert "create it there" in caught.value.hint

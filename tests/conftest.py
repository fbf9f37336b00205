"""What tests share: a real broker, topics of their own, and an independent Kafka client.

Everything here that reads or writes uses kafka-python, a second implementation of the protocol,
so that it audits the client that the product uses.
"""

from __future__ import annotations

import gc
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from hypothesis import settings
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata
from tests.configurations import job_of

from redrive.broker import EmbeddedBroker
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.messages import TopicPartition as Lane
from redrive.streaming.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Time never decides a test: the machine may be busy.
settings.register_profile("redrive", deadline=None, max_examples=40)
settings.register_profile("fuzz", deadline=None, max_examples=1_000)
settings.load_profile("redrive")

PATIENCE = 240.0
"""Seconds that a test waits for something to happen before it fails: many times what a quiet
machine needs. Nothing that is to happen has a smaller bound."""

_TESTS = Path(__file__).parent
_LONGEST = (
    "streaming", "demo", "transcripts", "console", "outcomes", "simulation", "runtime", "deploy",
    "conformance", "what_if", "logs", "engine", "rules",
)  # fmt: skip
"""Folders whose files take longest, in this order: they start brokers, Spark, or a long search."""
_numbers = itertools.count(1)
_LARGEST_RECORD = 16 * 1024 * 1024
"""Bytes: topics decide what is too large, not the client."""


def eventually(holds: Callable[[], Any], what: str, *, every: float = 0.1) -> None:
    """Waits until something holds, looking every so many seconds.

    Costly checks come less often: they take processor time from what is awaited.
    """
    deadline = time.monotonic() + PATIENCE
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(max(every, min(2.0, 2 * (time.monotonic() - begun))))
        begun = time.monotonic()


def pytest_collection() -> None:
    """Collects without searching for garbage: none of thousands of tests is any."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What was collected stays, so garbage is no longer searched for in it."""
    gc.freeze()
    gc.enable()


def pytest_configure() -> None:
    """Let Ctrl+C interrupt, also where a shell started the tests in the background.

    There it is ignored, and every process that a test starts would inherit that.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Runs as short as these spend a third of the processor on Java's second compiler.
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
    # Set in many containers; each process that a test starts would compile every module anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run have other vectors, other schedules of the simulation, or new transcripts."""
    parser.addoption(
        "--vectors",
        type=Path,
        default=Path(__file__).parent / "vectors",
        metavar="DIR",
        help="folder of the test vectors (default: the project's own)",
    )
    parser.addoption(
        "--seed",
        type=int,
        metavar="N",
        help="the one schedule to run and to print: pytest tests/simulation --seed N -s",
    )
    parser.addoption(
        "--schedules",
        type=int,
        metavar="N",
        default=150,
        help="the number of schedules to run: pytest tests/simulation --schedules N",
    )
    parser.addoption(
        "--write-transcripts",
        action="store_true",
        help="write what commands and pages answer: pytest tests/transcripts --write-transcripts",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that all workers end at about the same time."""
    ranks = {name: rank for rank, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.relative_to(_TESTS).parts[0], len(ranks)))


@dataclass
class KafkaClient:
    """A broker, its topics, and what lies on them."""

    bootstrap_servers: str
    admin: KafkaAdminClient
    test: str
    """What the names of its topics begin with."""

    @property
    def connection(self) -> Connection:
        """As the product connects."""
        return Connection(bootstrap_servers=self.bootstrap_servers)

    def unique_name(self, name: str) -> str:
        """A name, of a consumer group or of a topic not yet there, that no other test uses.

        It ends in the one asked for, so that a failure shows which is meant.
        """
        return f"{self.test}-{next(_numbers)}.{name}"

    def queue_manager(self) -> str:
        """The name of a queue manager that no other test uses."""
        return f"QM{next(_numbers)}"

    def topic(
        self, name: str = "topic", *, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Makes a topic of a name that no other test uses."""
        full_name = self.unique_name(name)
        self.create(full_name, partitions=partitions, config=config)
        return full_name

    def create(
        self, *names: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Makes topics of exactly these names."""
        topics = [NewTopic(name, partitions, 1, topic_configs=dict(config or {})) for name in names]
        self.admin.create_topics(topics, wait_for_metadata=True)

    def produce(self, topic: str, records: Iterable[Mapping[str, Any]]) -> None:
        """Writes records: ``produce(topic, [{"value": b"x", "headers": [...]}, ...])``.

        Each record is what ``KafkaProducer.send`` takes beside the topic: ``key``, ``value``,
        ``headers``, ``partition``, ``timestamp_ms``.
        """
        send_records(self.bootstrap_servers, topic, records)

    def read(self, *topics: str) -> list[Any]:
        """Every committed record of topics, those of one partition in offset order.

        Reading ends at the last stable offsets as they were when it began.
        """
        return read_records(self.bootstrap_servers, *topics, admin=self.admin)

    def values(self, *topics: str) -> list[Any]:
        """The values of every committed record of topics."""
        return [record.value for record in self.read(*topics)]

    def commit(self, group: str, topic: str, offset: int) -> None:
        """Commits how far a consumer group has come on partition 0 of a topic."""
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap_servers, group_id=group, enable_auto_commit=False
        )
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.commit({partition: OffsetAndMetadata(offset, "", -1)})
        consumer.close()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker for the whole run, started when the first test asks for it."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap_servers(broker: EmbeddedBroker) -> str:
    return broker.bootstrap_servers


@pytest.fixture(scope="session")
def admin(bootstrap_servers: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    yield client
    client.close()


@pytest.fixture
def kafka(
    bootstrap_servers: str, admin: KafkaAdminClient, request: pytest.FixtureRequest
) -> KafkaClient:
    """The shared broker, with names for this test."""
    test = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60].strip("-")
    return KafkaClient(bootstrap_servers, admin, test)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session for the whole run, as the job would start it."""
    session = start_session(job_of(directory=tmp_path_factory.mktemp("spark")))
    yield session
    session.stop()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, which is empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def without_leader(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make partitions seem to have no leader: ``without_leader("orders:1")``; asking them fails."""

    taken: set[Lane] = set()

    def take(*names: str) -> None:
        taken.clear()
        taken.update(
            Lane(topic, int(number))
            for topic, _, number in (name.rpartition(":") for name in names)
        )

    monkeypatch.setattr(Cluster, "leaderless", lambda _, lanes: taken & frozenset(lanes))
    for question in ("extents", "ends", "read"):
        asked = getattr(Cluster, question)

        def ask(
            self: Cluster, lanes: Iterable[Lane], *rest: Any, asked: Any = asked, **named: Any
        ) -> Any:
            assert taken.isdisjoint(lanes)
            return asked(self, lanes, *rest, **named)

        monkeypatch.setattr(Cluster, question, ask)
    return take


class RawName(str):  # noqa: SLOT000 - the bytes are kept beside the text
    """A header name of any bytes, for what takes names as text and encodes them."""

    _raw: bytes

    def __new__(cls, raw: bytes) -> Self:
        name = super().__new__(cls, raw.decode(errors="replace"))
        name._raw = raw
        return name

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """The bytes, whatever they are."""
        del encoding, errors
        return self._raw


def send_records(bootstrap_servers: str, topic: str, records: Iterable[Mapping[str, Any]]) -> None:
    """What ``KafkaClient.produce`` does."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap_servers, acks="all", max_request_size=_LARGEST_RECORD
    )
    try:
        sent = [producer.send(topic, **record) for record in records]
        producer.flush()
        for future in sent:
            future.get(timeout=PATIENCE)
    finally:
        producer.close()


def read_records(
    bootstrap_servers: str, *names: str, admin: KafkaAdminClient | None = None
) -> list[Any]:
    """What ``KafkaClient.read`` does."""
    if admin is None:
        with closing(KafkaAdminClient(bootstrap_servers=bootstrap_servers)) as own:
            return read_records(bootstrap_servers, *names, admin=own)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    with closing(consumer):
        partitions = partitions_of(admin, names)
        return list(_records_to_end(consumer, partitions)) if partitions else []


def partitions_of(admin: KafkaAdminClient, names: Iterable[str]) -> list[TopicPartition]:
    """The partitions of topics; a consumer would ask about every topic that the broker has."""
    return [
        TopicPartition(topic["name"], partition["partition_index"])
        for topic in admin.describe_topics([*names])
        for partition in topic["partitions"]
    ]


def ended_process() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def _records_to_end(consumer: KafkaConsumer, partitions: list[TopicPartition]) -> Iterator[Any]:
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    ends = consumer.end_offsets(partitions)
    # Positions and not records: the last offsets may be transaction markers.
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        for records in consumer.poll(timeout_ms=100).values():
            yield from records

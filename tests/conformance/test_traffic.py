"""The vectors as traffic: what the job does with a message is what its decisions alone give.

The puts of all vectors are made at once, on one job. Each test then compares where one message came
to lie, what it carries there and its outcomes with what is decided in memory for the same
definitions; that this is what the vectors say is tested without a broker.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from tests.conformance.traffic_networks import (
    LONGEST,
    InexpressibleError,
    Numbered,
    network_text,
    numbered,
)
from tests.conformance.traffic_traces import MessageTrace, message_trace, put_of
from tests.conformance.vectors import FURTHER_PUTS, FURTHER_ROUTES, OWN, Vector, load, vector_id
from tests.conftest import PATIENCE, read_records
from tests.streaming.conftest import RunningJob, configuration_of

from redrive.checkpoints.control import read_entries
from redrive.configuration import JobConfiguration
from redrive.configuration.deciders import topology_of
from redrive.engine.commands import channel_entry, states_of
from redrive.engine.names import remaining_topic
from redrive.engine.outcome import Result
from redrive.kafka.administration import TopicAdministration
from redrive.kafka.cluster import Cluster
from redrive.messages import decode_dead_letter
from redrive.messages.dead_letters import remove_header
from redrive.messages.fields import Headers, read_text
from redrive.operations.states import write_states
from redrive.streaming.topics import own_topics
from redrive.topology.layout import QueueTopic, TopicRole, topics_of
from redrive.topology.names import put_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEMS = ("mq_open", "mq_routes", "mqe_puts")
FURTHER = Path(__file__).parent / "traffic"
"""Ends that the vectors leave open, in their form; they are run with every set."""
OWN_VECTORS = Path(__file__).parents[1] / "vectors"
T = TypeVar("T")
_TOPICS_AT_ONCE = 100
_QUIET = 3.0
"""Seconds without anything new after which every message is at rest."""
_FIELD = "JMS_IBM_MQMD_"
_NAMES = {"redrive.oq", "redrive.oqm"}


def why_left_out(stem: str, vector: Vector) -> str:
    """Why a vector cannot be traffic; empty if it can.

    Args:
        stem: The file that it is from.
        vector: The vector.
    """
    try:
        case = numbered(stem, vector, 0)
        message_trace(case, case.topology)
    except InexpressibleError as problem:
        return str(problem)
    except (LookupError, ValueError) as problem:
        return f"it is not understood: {problem!r}"
    return ""


@dataclass
class Seen:
    """The result of one message."""

    lying: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    """Its records by topic, the intake left out."""
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    """In the order of its puts."""


@dataclass(frozen=True)
class Traffic:
    """What the job did."""

    cases: Mapping[str, tuple[Numbered, MessageTrace]]
    """Puts, and their results in memory, by id."""
    topics: Mapping[str, QueueTopic]
    """The topics of all networks, by name."""
    seen: Mapping[str, Seen]
    """By identity of the message."""
    caused: Mapping[str, list[Any]]
    """Reports on queues, by the id of the vector."""
    discovered: frozenset[tuple[str, str, str]]
    """Definitions that puts created."""

    def messages(self, case: Numbered) -> Iterator[Seen]:
        for copy in range(copies(case)):
            yield self.seen[f"{put_topic(case.at)}:0:{copy}"]


def copies(case: Numbered) -> int:
    """How often a vector puts its message."""
    return int(case.vector["put"].get("repeat", 1))


@pytest.fixture(scope="module")
def traffic(
    vectors_directory: Path,
    bootstrap_servers: str,
    admin: KafkaAdminClient,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Traffic]:
    """All vectors that can be traffic, on one job; every message has come to rest."""
    cases = {
        case.id: (case, message_trace(case, case.topology))
        for case in expressible(vectors_directory, FURTHER, OWN)
    }
    ones, traces = zip(*cases.values(), strict=True)
    networks = [case.network for case in ones if case.network is not None]
    scripts = [script for case in ones for script in case.scripts]
    sources = (*scripts, *([network_text(networks)] if networks else []))
    topics = {topic.topic: topic for topic in topics_of(topology_of(sources))}
    create(admin, topics)
    directory = tmp_path_factory.mktemp("traffic")
    configuration = configuration_of(
        directory, bootstrap_servers, {}, application="traffic", topology=sources
    )
    set_channels(configuration, traces)
    put_all(bootstrap_servers, ones)
    job = RunningJob(configuration, spark).start()
    awaited = sum(copies(case) * len(trace.results) for case, trace in cases.values())
    wait_until_at_rest(job, awaited)
    job.stop()
    read = [remaining_topic("traffic", name) for name, topic in topics.items() if topic.is_read]
    records = read_records(bootstrap_servers, *topics, *read)
    outcome_records = read_records(bootstrap_servers, configuration.outcomes_topic)
    outcomes = [json.loads(record.value) for record in outcome_records]
    entries = read_entries(Cluster(configuration.connection), configuration.tables_topic)
    seen = seen_of(records, outcomes)
    yield Traffic(cases, topics, seen, caused_by(topics, records), states_of(entries).discovered)
    # So many topics would slow every other job of the session down.
    for some in parts([*topics, *read]):
        admin.delete_topics(some)


def expressible(*directories: Path) -> Iterator[Numbered]:
    """The vectors of some folders that can be traffic, each with a number of its own."""
    numbers = itertools.count(1)
    for directory, stem in itertools.product(directories, STEMS):
        for vector in load(directory, stem):
            if not why_left_out(stem, vector):
                yield numbered(stem, vector, next(numbers))


def create(admin: KafkaAdminClient, topics: Mapping[str, QueueTopic]) -> None:
    """Makes the topics, a part of them at a time."""
    settings = {"max.message.bytes": str(2 * LONGEST)}
    missing = [NewTopic(name, 1, 1, topic_configs=settings) for name in topics]
    for some in parts(missing):
        admin.create_topics(some, wait_for_metadata=True)


def parts(topics: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many topics as one request should have, again and again."""
    for first in range(0, len(topics), _TOPICS_AT_ONCE):
        yield topics[first : first + _TOPICS_AT_ONCE]


def set_channels(configuration: JobConfiguration, traces: tuple[MessageTrace, ...]) -> None:
    """Starts and stops channels before the job does."""
    TopicAdministration(configuration.connection).ensure(own_topics(configuration, {}))
    states = {channel: state for trace in traces for channel, state in trace.running.items()}
    entries = (channel_entry(*channel, is_running=state) for channel, state in states.items())
    write_states(configuration, entries)


def put_all(bootstrap_servers: str, ones: tuple[Numbered, ...]) -> None:
    """Puts each message on its intake."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap_servers, acks="all", max_request_size=2 * LONGEST
    )

    def put(case: Numbered) -> None:
        record = put_of(case)
        for _ in range(copies(case)):
            producer.send(
                record.topic,
                record.value,
                key=record.key,
                headers=record.headers,
                timestamp_ms=record.timestamp,
            )

    with ThreadPoolExecutor() as pool:  # the first look at each topic takes its time
        list(pool.map(put, ones))
    producer.flush()
    producer.close()


def wait_until_at_rest(job: RunningJob, awaited: int) -> None:
    """Waits until all inputs are handled and nothing follows, or until nothing more happens.

    What is missing or too much is for the tests to find, each for its vector.
    """
    assert job.is_started.wait(PATIENCE)
    records, since = -1, time.monotonic()
    while time.monotonic() - since < (_QUIET if records >= awaited else PATIENCE):
        job.check()
        if job.records != records:
            records, since = job.records, time.monotonic()
        time.sleep(0.1)


def seen_of(records: list[Any], outcomes: list[dict[str, Any]]) -> dict[str, Seen]:
    """The result of each message, by its identity."""
    seen: dict[str, Seen] = defaultdict(Seen)
    for record in records:
        identity = dict(record.headers).get("redrive.id")
        if identity is not None:
            seen[identity.decode()].lying[record.topic].append(record)
    for outcome in sorted(outcomes, key=lambda outcome: int(outcome["hop"])):
        seen[outcome["message"]].outcomes.append(outcome)
    return seen


def caused_by(topics: Mapping[str, QueueTopic], records: list[Any]) -> dict[str, list[Any]]:
    """Reports and copies where applications find them, by their key, which is the message's."""
    by_case: dict[str, list[Any]] = defaultdict(list)
    for record in records:
        place, fields = topics.get(record.topic), dict(record.headers)
        # What was put has the identity of its intake; what the job makes is seen first elsewhere.
        first = read_text(fields.get("redrive.id")).partition(":")[0]
        was_put = first in topics and topics[first].role is TopicRole.PUTS
        if place and place.role is TopicRole.QUEUE and not was_put:
            by_case[record.key.decode()].append(record)
    return by_case


def is_report(record: Any) -> bool:
    """Whether its MsgType is MQMT_REPORT."""
    return dict(record.headers).get(f"{_FIELD}MsgType") == b"4"


# Job and decisions


@pytest.mark.vectors(*STEMS, leave_out=why_left_out)
def test_put(stem: str, vector: Vector, traffic: Traffic) -> None:
    """Every message of the vector is where the decisions in memory put it, and as they left it."""
    case, trace = traffic.cases[vector_id(stem, vector)]
    for seen in traffic.messages(case):
        assert [outcome["result"] for outcome in seen.outcomes] == trace.results
        assert seen.outcomes[-1]["reason"] == trace.reason, seen.outcomes[-1]["detail"]
        places = [record.topic for record in trace.records]
        last = seen.outcomes[-1]
        if trace.results[-1] == Result.REMAINS:
            places.append(remaining_topic("traffic", last["topic"]))
        assert {topic: len(records) for topic, records in seen.lying.items()} == dict.fromkeys(
            places, 1
        )
        for record in trace.records:
            (lying_record,) = seen.lying[record.topic]
            assert carried(lying_record) == carried(record)
    created = {lying for lying in traffic.discovered if lying[0].endswith(_number(case))}
    assert created == trace.discovered


@pytest.mark.parametrize("vector", FURTHER_ROUTES, ids=lambda vector: vector["id"])
def test_further_route(vector: Vector, traffic: Traffic) -> None:
    """What receivers, channels and dead-letter queues do that no vector tells."""
    test_put("mq_routes", vector, traffic)
    case, _ = traffic.cases[vector_id("mq_routes", vector)]
    expect = case.vector["expect"]
    made = traffic.caused.get(case.id, ())
    reports = [
        (traffic.topics[record.topic].place, int(dict(record.headers)[f"{_FIELD}Feedback"]))
        for record in made
    ]
    assert all(map(is_report, made))
    assert reports == [tuple(report) for report in expect.get("reports", ())]


@pytest.mark.parametrize("vector", FURTHER_PUTS, ids=lambda vector: vector["id"])
def test_further_put(vector: Vector, traffic: Traffic) -> None:
    """What stores, pulls and dead letters of MQ Everyplace do that no vector tells."""
    test_put("mqe_puts", vector, traffic)


def _number(case: Numbered) -> str:
    return case.at[case.at.rindex(".") :]


def carried(record: Any) -> tuple[Any, ...]:
    """Key, body, names and headers of a message, and why and for whom it is a dead letter."""
    letter = decode_dead_letter(record.value, record.headers)
    body, headers = remove_header(letter, record.value, record.headers)
    names = {name: raw for name, raw in headers if name in _NAMES}
    if letter.header is None:
        return record.key, body, names, own(headers)
    header = letter.header
    why = (header.reason, header.dest_q_name, header.dest_q_mgr_name)
    return record.key, body, names, own(headers), why


def own(headers: Headers) -> dict[str, str]:
    """The headers that are not Redrive's, without the MsgId, which each copy of a put has anew."""
    return {
        name: read_text(raw)
        for name, raw in headers
        if not name.startswith("redrive.") and name != f"{_FIELD}MsgId"
    }


# What runs at all


def test_most_vectors_of_our_own_are_traffic() -> None:
    counted = {
        stem: sum(not why_left_out(stem, vector) for vector in load(OWN_VECTORS, stem))
        for stem in STEMS
    }
    assert counted == {"mq_open": 63, "mq_routes": 11, "mqe_puts": 35}

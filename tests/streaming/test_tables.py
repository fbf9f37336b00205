"""What tables do in the job, on a real broker and a real Spark, audited by kafka-python.

Most scenarios share a job: each has topics and a table of its own. One job, which either emitter
runs, is ended by WAIT; another one is stopped and goes on with other tables.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from tests.conftest import KafkaClient, eventually
from tests.engine.failed_processing import GROUPS, SCHEMES, dropping, envelope, nameless
from tests.streaming.conftest import Jobs, RunningJob, configuration_of, letter

from redrive.configuration import (
    EmitterChoice,
    HandlerConfiguration,
    JobConfiguration,
    TransformConfiguration,
)
from redrive.engine.breaker import BreakerSettings
from redrive.messages import OutputRecord
from redrive.messages import own_headers as own
from redrive.messages.schemes import OwnScheme
from redrive.rules import parse
from redrive.rules.backoff import JITTER
from redrive.topology.put import QueueLimits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DROPPING = (dropping(envelope), dropping(nameless))
"""They leave out the headers of the record; the second does not name the record either."""
Failures = Mapping[tuple[str, bytes], Sequence[int]]
"""Milliseconds of the failures, by topic and value of a record."""
_numbers = itertools.count(1)


def connect(topic: str, error: str, **record: Any) -> dict[str, Any]:
    """A record that a sink of Kafka Connect could not write, an hour ago by default."""
    failure = {
        "topic": topic,
        "partition": "1",
        "offset": "7",
        "connector.name": "sink",
        "task.id": "0",
        "stage": "TASK_PUT",
        "class.name": "org.acme.Sink",
        "exception.class.name": "org.acme.WriteException",
        "exception.message": error,
    }
    headers = [(f"__connect.errors.{name}", text.encode()) for name, text in failure.items()]
    hour_ago = int(time.time() * 1000) - 3_600_000
    return {"headers": [("x", b"1"), *headers], "timestamp_ms": hour_ago, **record}


@dataclass
class Scenario(KafkaClient):
    """A dead-letter topic with its table, and the topics that the table names."""

    table: str
    job: RunningJob | None = None
    """The job that handles it, or has done so."""

    @property
    def dlq(self) -> str:
        return self.topic_of("dlq")

    def topic_of(self, name: str) -> str:
        """The topic with a name: in a table ``{prefix}name``."""
        return f"{self.test}{name}"

    def letters(self, *records: Mapping[str, Any]) -> None:
        self.produce(self.dlq, records)

    def on(self, name: str) -> list[Any]:
        """What lies on one of its topics."""
        return self.read(self.topic_of(name))

    @property
    def handler(self) -> HandlerConfiguration:
        assert self.job is not None
        handlers = self.job.configuration.handlers
        return next(handler for handler in handlers if handler.identity.topic == self.dlq)

    def outcomes(self) -> list[dict[str, Any]]:
        """Its outcomes, those of one message in their order."""
        assert self.job is not None
        values = self.values(self.job.configuration.outcomes_topic)
        outcomes = [json.loads(value) for value in values]
        return [outcome for outcome in outcomes if outcome["handler"] == self.dlq]

    def results(self) -> Counter[str]:
        return Counter(outcome["result"] for outcome in self.outcomes())


Make = Callable[..., Scenario]


@pytest.fixture(scope="module")
def make(bootstrap_servers: str, admin: KafkaAdminClient) -> Make:
    """Make a scenario: ``make(table, dlq=2, orders=3)`` has topics of these partitions."""

    def made(table: str, **topics: int) -> Scenario:
        scenario = Scenario(bootstrap_servers, admin, f"s{next(_numbers)}.", table)
        for name, partitions in topics.items():
            scenario.create(scenario.topic_of(name), partitions=partitions)
        return scenario

    return made


def start(
    spark: SparkSession, folder: Path, scenarios: Sequence[Scenario], **settings: Any
) -> RunningJob:
    tables = {each.dlq: each.table.format(prefix=each.test) for each in scenarios}
    servers = scenarios[0].bootstrap_servers
    job = RunningJob(configuration_of(folder, servers, tables, **settings), spark).start()
    for scenario in scenarios:
        scenario.job = job
    return job


# What WAIT ends, whoever emits


def retried(make: Make) -> Scenario:
    """The target does not exist."""
    scenario = make(
        "WAIT(NO) RETRYINT(2)\nACTION(RETRY) RETRY(3)\nACTION(FWD) FWDQ('{prefix}dead')\n",
        dlq=2, dead=1,
    )  # fmt: skip
    scenario.letters(*(letter(2053, "nowhere") for _ in range(20)))
    return scenario


def refused(make: Make) -> Scenario:
    """Two messages fit, and two are too large, for the topic and for the limit of the queue."""
    scenario = make("WAIT(NO)\nACTION(RETRY)\n", dlq=1, short=1, closed=1)
    small, short = scenario.topic_of("small"), scenario.topic_of("short")
    scenario.create(small, config={"max.message.bytes": "2000"})
    scenario.letters(
        letter(2053, small, b"fits"), letter(2053, small, random.Random(1).randbytes(5_000)),
        letter(2053, short, b"12345"), letter(2053, short, b"123456"),
        letter(2053, scenario.topic_of("closed")), letter(2053, small, b"fits too"),
    )  # fmt: skip
    return scenario


def written_by_programs(make: Make) -> Scenario:
    """Dead letters of Connect, Spring and Streams, one of a format of one's own, and none."""
    scenario = make(
        "WAIT(NO)\n"
        "REASON(MQRC_FORMAT_ERROR) ACTION(FWD) FWDQ('{prefix}dead') HEADER(YES)\n"
        "ACTION(RETRY)\n",
        dlq=1, orders=4, dead=1,
    )  # fmt: skip
    orders = scenario.topic_of("orders")
    topic = orders.encode()
    headers: dict[bytes, list[tuple[str, bytes]]] = {
        b"connect": [
            ("__connect.errors.topic", topic),
            ("__connect.errors.partition", b"3"),
            ("__connect.errors.exception.class.name", b"a.TimeoutException"),
        ],
        b"spring": [
            ("kafka_original-topic", topic),
            ("kafka_original-partition", b"\0\0\0\2"),
            ("kafka_exception-cause-fqcn", b"a.TimeoutException"),
            ("kafka_exception-stacktrace", b"x" * 1000),
        ],
        b"streams": [
            ("__streams.errors.exception", b"a.TimeoutException: away"),
            ("__streams.errors.topic", topic),
            ("__streams.errors.partition", b"99"),
        ],
        b"unreadable": [
            ("__streams.errors.exception", b"a.SerializationException: no"),
            ("__streams.errors.topic", topic),
            ("__streams.errors.stacktrace", b"x" * 1000),
        ],
        json.dumps(
            {"failed": {"topic": orders, "partition": 1}, "payload": {"order": 7}}
        ).encode(): [],
    }
    scenario.letters(
        *(
            {"key": b"k", "value": value, "headers": [("a", b"1"), *more]}
            for value, more in headers.items()
        ),
        {"value": b"no dead letter"},
    )
    return scenario


def told_apart(make: Make) -> Scenario:
    """The text of the error, the body and its size say where a dead letter goes."""
    scenario = make(
        "DIALECT(KAFKA) WAIT(NO) RETRYINT(1)\n"
        "ERRMSG(/timed? ?out/) TOPIC({prefix}orders) ACTION(RETRY)\n"
        "JSON('$.n',/^[02468]$/) ACTION(DISCARD)\n"
        "SIZE(>100) ACTION(FWD) FWDT('{prefix}slow')\n"
        "CONNECTOR(?*) ACTION(FWD) FWDT('{prefix}&CONNECTOR') HEADER(NO) TRANSFORM(seen)\n",
        dlq=2, orders=3, slow=1, sink=1,
    )  # fmt: skip
    orders = scenario.topic_of("orders")
    scenario.letters(
        *(
            connect(
                orders,
                ("timeout", "broken")[number % 2],
                value=b'{"n": %d%s}' % (number % 10, b" " * (100 if number % 4 == 3 else 0)),
                key=b"k%d" % number,
            )
            for number in range(40)
        ),
        connect(orders, "broken", value=b'{"n": 4}'),
        {"value": b"no dead letter"},
    )
    return scenario


DELAYED = 40
"""Messages that wait as long as their rule says."""


def delayed(make: Make) -> Scenario:
    """Each try has a delay of its own."""
    table = "DIALECT(KAFKA) WAIT(NO)\nACTION(RETRY) RETRY(3) BACKOFF(1s,2,2s)\n"
    scenario = make(table, dlq=2)
    scenario.letters(
        *(connect("nowhere", "e", value=b"v", partition=n % 2) for n in range(DELAYED))
    )
    return scenario


KEYS = [None, *(b"k%d" % number for number in range(6))]


def ordered(make: Make) -> Scenario:
    """Two messages of each key, of which the first fails twice."""
    scenario = make(
        "DIALECT(KAFKA) ORDER(KEY) WAIT(NO) RETRYINT(1)\n"
        "TOPIC(nowhere) ACTION(RETRY) RETRY(2) BACKOFF(1s,2,2s)\n"
        "ACTION(FWD) FWDT('{prefix}done') HEADER(NO)\n",
        dlq=2, done=1,
    )  # fmt: skip
    scenario.letters(
        *(
            connect(topic, "e", value=value, key=key, partition=number % 2)
            for topic, value in (("nowhere", b"first"), ("elsewhere", b"second"))
            for number, key in enumerate(KEYS)
        )
    )
    return scenario


def ending_in_a_marker(make: Make) -> Scenario:
    """Dead letters of a transaction."""
    scenario = make("WAIT(NO)\nACTION(DISCARD)\n", dlq=1)
    settings = {"bootstrap.servers": scenario.bootstrap_servers, "transactional.id": scenario.dlq}
    producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(scenario.dlq, **letter(1, "x"))
    producer.commit_transaction(60)
    return scenario


Scenarios = Mapping[str, Scenario]


@pytest.fixture(scope="module", params=[EmitterChoice.DRIVER, EmitterChoice.LANES])
def ended(
    request: pytest.FixtureRequest,
    make: Make,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Scenarios:
    """The scenarios above, on a job that WAIT has ended, and then on another one."""
    parts = (
        retried, refused, written_by_programs, told_apart, delayed, ordered, ending_in_a_marker,
    )  # fmt: skip
    scenarios = {part.__name__: part(make) for part in parts}
    target = scenarios["refused"].topic_of
    envelope_of_ours = OwnScheme(
        name="envelope",
        recognise="$.failed.topic",
        payload="$.payload",
        parts={"origin.topic": "$.failed.topic", "origin.partition": "$.failed.partition"},
    )
    job = start(
        spark,
        tmp_path_factory.mktemp("ended"),
        [*scenarios.values()],
        emitter=request.param,
        limits={
            target("short"): QueueLimits(max_message_length=5),
            target("closed"): QueueLimits(put_enabled=False),
        },
        schemes=(envelope_of_ours,),
        transforms=(
            TransformConfiguration("seen", b'[{"op": "add", "path": "/seen", "value": true}]'),
        ),
    )
    job.join()
    # What a short retention does.
    last = scenarios["ending_in_a_marker"]
    last.admin.delete_records({TopicPartition(last.dlq, 0): -1})
    second = RunningJob(job.configuration, spark).start()
    second.join()
    for scenario in scenarios.values():
        scenario.job = second
    return scenarios


def test_retries_are_never_early_and_go_on_to_the_next_rule(ended: Scenarios) -> None:
    """Three tries at least RETRYINT apart, then the catch-all; WAIT(NO) waits for them."""
    scenario = ended["retried"]
    assert len(scenario.on("dead")) == 20
    attempts: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for outcome in sorted(scenario.outcomes(), key=lambda outcome: int(outcome["attempt"])):
        attempts[outcome["origin"]].append(outcome)
    assert len(attempts) == 20
    for course in attempts.values():
        assert [(outcome["rule_line"], outcome["result"]) for outcome in course] == [
            (2, "parked"), (2, "parked"), (2, "parked"), (3, "forwarded"),
        ]  # fmt: skip
        times = [outcome["time"] for outcome in course]
        assert all(later - earlier >= 2000 for earlier, later in pairwise(times))
        assert course[0]["reason_name"] == "MQRC_UNKNOWN_OBJECT_NAME"


def test_what_kafka_refuses_is_a_failed_attempt_of_that_message_only(ended: Scenarios) -> None:
    scenario = ended["refused"]
    outcomes = sorted(scenario.outcomes(), key=lambda outcome: int(outcome["offset"]))
    assert [outcome["reason"] for outcome in outcomes] == [0, 2030, 0, 2030, 2051, 0]
    assert [record.value for record in scenario.on("small")] == [b"fits", b"fits too"]
    assert [record.value for record in scenario.on("short")] == [b"12345"]
    assert not scenario.on("closed")


def test_dead_letters_of_four_programs_go_back_to_their_partitions(ended: Scenarios) -> None:
    """Connect, Spring, Streams and a format of one's own; by key where there is no such partition.

    Their headers are gone, the payload is out of its envelope, other headers stay.
    """
    scenario = ended["written_by_programs"]
    back = {record.value: record for record in scenario.on("orders")}
    places = {value: record.partition for value, record in back.items()}
    assert places.pop(b"streams") in range(4)
    assert places == {b"connect": 3, b"spring": 2, b'{"order":7}': 1}
    for record in back.values():
        assert record.key == b"k"
        assert [pair for pair in record.headers if not pair[0].startswith("redrive.")] == [
            ("a", b"1")
        ]
    (forwarded,) = scenario.on("dead")
    assert forwarded.value == b"unreadable"
    assert [name for name, _ in forwarded.headers if name.startswith("__")] == [
        "__streams.errors.exception",
        "__streams.errors.topic",
    ]
    assert sorted(outcome["form"] for outcome in scenario.outcomes()) == [
        "connect", "envelope", "kafka-streams", "kafka-streams", "none", "spring-retry-topic",
    ]  # fmt: skip
    assert scenario.results()["remains"] == 1


def test_each_dead_letter_goes_where_its_own_text_and_body_say(ended: Scenarios) -> None:
    """Expressions, JSON, size, inserts, a transformation; back to its partition."""
    scenario = ended["told_apart"]
    put, sink = scenario.on("orders"), scenario.on("sink")
    assert {record.value.endswith(b',"seen":true}') for record in sink} == {True}
    assert len(put) == 20
    assert {record.partition for record in put} == {1}
    assert [pair for pair in put[0].headers if not pair[0].startswith("redrive.")] == [("x", b"1")]
    assert (len(scenario.on("slow")), len(sink)) == (10, 10)
    # Connect's dead letters have the record's time, so each waits its delay from the first look on.
    assert scenario.results() == {
        "parked": 20, "retried": 20, "forwarded": 20, "discarded": 1, "remains": 1,
    }  # fmt: skip


def test_each_delay_of_a_backoff_is_never_early(ended: Scenarios) -> None:
    scenario = ended["delayed"]
    topic = scenario.handler.identity.backoff_topic
    delays = parse(scenario.table).required().backoff_partitions
    due = {
        f"{topic}:{copy.partition}:{copy.offset}": copy.timestamp
        + 1000 * delays.seconds(copy.partition)
        for copy in scenario.read(topic)
    }
    outcomes = scenario.outcomes()
    attempts = Counter(outcome["attempt"] for outcome in outcomes)
    assert attempts == {1: 2 * DELAYED, 2: DELAYED, 3: DELAYED}
    assert scenario.results() == {"parked": 3 * DELAYED, "remains": DELAYED}
    late = [
        outcome["time"] - due[outcome["outcome"]]
        for outcome in outcomes
        if outcome["outcome"] in due
    ]
    assert len(late) == 3 * DELAYED
    assert min(late) >= 0


def test_under_order_a_message_waits_behind_an_earlier_one_of_its_key(ended: Scenarios) -> None:
    """The first of each key fails twice, and goes on before the second; without keys it does not.

    However often the job looks, one outcome says that a message waits behind another.
    """
    scenario = ended["ordered"]
    done = defaultdict(list)
    for record in scenario.on("done"):
        done[record.key].append(record.value)
    assert done.pop(None) == [b"second", b"first"]
    assert done == {key: [b"first", b"second"] for key in KEYS if key}
    held = Counter(
        outcome["message"] for outcome in scenario.outcomes() if "waits behind" in outcome["detail"]
    )
    assert len(held) == len(KEYS) - 1
    assert set(held.values()) == {1}


def test_a_marker_that_expired_behind_the_last_record_is_no_loss(ended: Scenarios) -> None:
    scenario = ended["ending_in_a_marker"]
    assert scenario.results() == {"discarded": 3}
    assert scenario.job
    assert scenario.job.records == 0, "whatever WAIT ended has nothing left for the next job"


# What another table decides, after a stop


@pytest.fixture(scope="module")
def restarted(
    make: Make, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Scenarios:
    """A job was stopped and its directory lost; the next has other tables, the last the same."""
    changed = make("RETRYINT(3600)\nREASON(2053) ACTION(RETRY) RETRY(9)\n", dlq=2, dead=1)
    changed.letters(*[letter(2053, "nowhere")] * 6, *[letter(1, "x")] * 4)
    aged = make(
        "DIALECT(KAFKA) WAIT(NO) RETRYINT(1)\n"
        "KEY(bad) ACTION(QUARANTINE)\n"
        "KEY(kept) ACTION(IGNORE)\n"
        "AGE(>4s) ACTION(FWD) FWDT('{prefix}old')\n"
        "ACTION(RETRY) RETRY(1000)\n",
        dlq=1, old=1,
    )  # fmt: skip
    now = int(time.time() * 1000)
    aged.letters(
        *(
            connect("nowhere", "e", value=b"v", key=key, timestamp_ms=now)
            for key in (b"bad", b"kept", b"young")
        )
    )
    postponed = make("DIALECT(KAFKA)\nACTION(RETRY) RETRY(3) BACKOFF(1h,1,1h)\n", dlq=2)
    postponed.letters(*(connect("nowhere", "e", value=b"v", partition=n % 2) for n in range(10)))
    counted = make("RETRYINT(2) WAIT(NO)\nACTION(RETRY) RETRY(3)\n", dlq=1)
    full = make("WAIT(NO) RETRYINT(1)\nACTION(RETRY) RETRY(100)\n", dlq=1, orders=1)
    orders, group = full.topic_of("orders"), full.topic_of("group")
    full.commit(group, orders, 0)
    full.letters(*(letter(2053, orders, b"%d" % number) for number in range(5)))
    limits = {orders: QueueLimits(max_depth=3, consumer_group=group)}
    scenarios = [changed, aged, postponed, counted, full]
    first = start(spark, tmp_path_factory.mktemp("restarted"), scenarios, limits=limits)

    def wait_for(scenario: Scenario, **results: int) -> None:
        eventually(
            lambda: first.error or scenario.results() >= Counter(results),
            f"{scenario.table}: {results}",
            every=0.3,
        )
        first.check()

    wait_for(full, retried=3, parked=4)  # each of two messages failed twice
    full.commit(group, orders, 3)
    wait_for(full, retried=5)
    wait_for(changed, parked=6, remains=4)
    wait_for(postponed, parked=10)
    wait_for(aged, forwarded=1)
    counted.letters(letter(2053, "nowhere"))
    wait_for(counted, parked=1)
    first.stop()
    shutil.rmtree(first.configuration.directory)
    changed.table = "WAIT(NO)\nACTION(FWD) FWDQ('{prefix}dead')\n"
    aged.table = postponed.table = "WAIT(NO)\nACTION(DISCARD)\n"
    application = first.configuration.application
    folder = first.configuration.directory.parent
    start(spark, folder, scenarios, application=application, limits=limits).join()
    start(spark, folder, scenarios, application=application, limits=limits).join()
    return {
        "changed": changed, "aged": aged, "postponed": postponed, "counted": counted, "full": full,
    }  # fmt: skip


def test_a_changed_table_evaluates_what_is_parked_and_what_remains_afresh(
    restarted: Scenarios,
) -> None:
    scenario = restarted["changed"]
    assert len(scenario.on("dead")) == 10
    copies = scenario.read(scenario.handler.identity.remaining_topic)
    live = {record.key: record.value for record in copies}
    assert set(live.values()) == {None}
    assert restarted["postponed"].results() == {"parked": 10, "discarded": 10}
    assert scenario.job
    assert scenario.job.records == 0, "the same tables go on where they were"


def test_age_moves_a_message_on_and_quarantine_outlasts_the_table(restarted: Scenarios) -> None:
    scenario = restarted["aged"]
    (forwarded,) = scenario.on("old")
    assert forwarded.key == b"young"
    young = scenario.on("dlq")[2]
    course = [
        outcome for outcome in scenario.outcomes() if outcome["origin"] == f"{scenario.dlq}:0:2"
    ]
    last = max(course, key=lambda outcome: int(outcome["time"]))
    assert last["result"] == "forwarded"
    assert last["time"] - young.timestamp > 4000
    copies = scenario.read(scenario.handler.identity.remaining_topic)
    assert {record.key: record.value for record in copies} == {
        f"{scenario.dlq}:0:0".encode(): b"v", f"{scenario.dlq}:0:1".encode(): None,
    }  # fmt: skip


def test_the_same_table_goes_on_with_its_counts_after_a_lost_directory(
    restarted: Scenarios,
) -> None:
    outcomes = restarted["counted"].outcomes()
    assert sorted(outcome["attempt"] for outcome in outcomes) == [1, 2, 3]


def test_a_full_queue_fails_with_2053_until_its_consumer_has_caught_up(
    restarted: Scenarios,
) -> None:
    scenario = restarted["full"]
    assert sorted(record.value for record in scenario.on("orders")) == [b"%d" % n for n in range(5)]
    full = [outcome for outcome in scenario.outcomes() if outcome["reason"]]
    assert {outcome["reason"] for outcome in full} == {2053}
    assert {outcome["origin"] for outcome in full} == {f"{scenario.dlq}:0:{n}" for n in (3, 4)}


# What comes back from processing, and breakers


@contextmanager
def failing_consumer(
    servers: str, dlq: str, *topics: str, is_well: Event | None = None
) -> Iterator[Future[Failures]]:
    """A consumer whose processing fails twice, or always, and that writes dead letters.

    The value of a record says in which way, and how often: ``connect always``. Nothing fails once
    the event is set.

    Yields:
        The failures, once the consumer has ended with the context.
    """
    failures: defaultdict[tuple[str, bytes], list[int]] = defaultdict(list)
    schemes = {scheme.__name__: scheme for scheme in (*SCHEMES, *DROPPING)}
    is_over = Event()

    def dead_letters(records: Sequence[Any]) -> Iterator[OutputRecord]:
        for record in records if is_well is None or not is_well.is_set() else ():
            known, (scheme, how_often, *_) = (
                failures[record.topic, record.value],
                record.value.decode().split(),
            )
            if how_often == "always" or len(known) < 2:
                known.append(int(time.time() * 1000))
                failed = OutputRecord(
                    record.topic, record.key, record.value, list(record.headers), record.timestamp
                )
                yield schemes[scheme](failed, record.offset, known[-1])

    def run() -> Failures:
        producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        settings: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        consumer = KafkaConsumer(
            *topics,
            bootstrap_servers=servers,
            isolation_level="read_committed",
            metadata_max_age_ms=500,  # a topic may come later
            **settings,
        )
        with closing(consumer):
            while not is_over.is_set():
                for records in consumer.poll(timeout_ms=100).values():
                    for dead_letter in dead_letters(records):
                        more: Any = {
                            "headers": dead_letter.headers,
                            "timestamp": dead_letter.timestamp,
                        }
                        producer.produce(dlq, dead_letter.value, dead_letter.key, **more)
                producer.flush()
        return failures

    with ThreadPoolExecutor(1) as threads:
        try:
            yield threads.submit(run)
        finally:
            is_over.set()


def test_what_fails_in_processing_has_its_rounds_and_no_more(jobs: Jobs) -> None:
    dlq, dead = jobs.topic("dlq"), jobs.topic("dead")
    delays = {jobs.topic("growing"): (1, 2, 2), jobs.topic("steady"): (1, 1, 1)}
    growing, steady = delays
    table = (
        "DIALECT(KAFKA) RETRYINT(1)\n"
        f"TOPIC({growing}) ACTION(RETRY) RETRY(3) BACKOFF(1s,2,2s)\n"
        f"TOPIC({steady}) ACTION(RETRY) RETRY(3)\n"
        f"ACTION(FWD) FWDT('{dead}')\n"
    )
    names = [scheme.__name__ for scheme in SCHEMES]
    values = [f"{name} {often}".encode() for name in names for often in ("always", "twice")]
    hour_ago = int(time.time() * 1000) - 3_600_000
    for topic in delays:
        jobs.produce(
            topic, [{"key": b"k", "value": value, "timestamp_ms": hour_ago} for value in values]
        )
    running = jobs.start(jobs.configure({dlq: table}))
    with failing_consumer(jobs.bootstrap_servers, dlq, *delays) as processing:
        running.wait_for_records(1)
        eventually(
            lambda: len(jobs.read(dead)) >= len(values) or running.error or processing.done(),
            "all that always fail are given up",
        )
        running.stop()
    failures = processing.result()
    given_up = Counter(jobs.values(dead))
    assert given_up == {value: len(delays) for value in values if value.endswith(b"always")}
    for topic, seconds in delays.items():
        puts: defaultdict[bytes, list[int]] = defaultdict(list)
        for record in jobs.read(topic):
            rounds = own.read_own(record.headers).rounds
            puts[record.value] += [rounds.put_at] if rounds else []
        # What recovered had to come again before the others were given up, or never.
        assert {value: len(times) for value, times in puts.items()} == {
            value: 3 if value.endswith(b"always") else 2 for value in values
        }
        least = 1000 * (1 - JITTER if topic == growing else 1)
        for value, times in puts.items():
            rounds_of = zip(failures[topic, value], times, seconds, strict=False)
            early = [put - failed < least * delay for failed, put, delay in rounds_of]
            assert not any(early), (topic, value)


def test_only_the_group_that_failed_sees_its_rounds(jobs: Jobs) -> None:
    dlq, dead, orders = jobs.topic("dlq"), jobs.topic("dead"), jobs.topic("orders", partitions=3)
    table = (
        "DIALECT(KAFKA) RETRYINT(1)\n"
        f"TOPIC({orders}) ACTION(RETRY) TO(GROUP) RETRY(3)\n"
        f"TOPIC({orders}) ACTION(FWD) FWDT('{dead}')\n"
    )
    groups = {scheme.__name__: group for scheme, group in GROUPS.items() if scheme in SCHEMES}
    values = [f"{name} always".encode() for name in groups]
    jobs.produce(orders, [{"key": b"k", "value": value, "partition": 0} for value in values])
    theirs = [f"{orders}.{group}.retry" for group in sorted({*groups.values()})]
    configuration = jobs.configure({dlq: table})
    running = jobs.start(configuration)
    with failing_consumer(jobs.bootstrap_servers, dlq, orders, *theirs) as processing:
        eventually(
            lambda: len(jobs.read(dead)) >= len(values) or running.error or processing.done(),
            "all are given up",
        )
        running.stop()
    processing.result()
    assert Counter(jobs.values(orders)) == dict.fromkeys(values, 1)
    assert Counter(jobs.values(dead)) == dict.fromkeys(values, 1)
    rounds = [record for topic in theirs for record in jobs.read(topic)]
    assert {(record.topic, record.value) for record in rounds} == {
        (f"{orders}.{group}.retry", f"{name} always".encode()) for name, group in groups.items()
    }
    outcomes = jobs.outcomes(configuration)
    put = Counter(outcome["message"] for outcome in outcomes if outcome["result"] == "retried")
    # A broker that is busy may not have the new topic in time: that put is a failed attempt.
    failed = Counter(
        outcome["message"]
        for outcome in outcomes
        if outcome["result"] == "parked" and outcome["reason"]
    )
    assert put == Counter(own.read_own(record.headers).identity for record in rounds)
    assert put + failed == dict.fromkeys(put, 3)
    assert {(record.partition, record.key) for record in rounds} == {(0, b"k")}
    made = [topic for topic in jobs.admin.list_topics() if topic.startswith(f"{orders}.")]
    assert sorted(made) == theirs
    assert {len(topic["partitions"]) for topic in jobs.admin.describe_topics(theirs)} == {3}


def with_breaker(configuration: JobConfiguration, failures: int) -> JobConfiguration:
    """The configuration with breakers that probe every second."""
    (handler,) = configuration.handlers
    settings = BreakerSettings(failures, probe_interval=1.0)
    return replace(configuration, handlers=(replace(handler, breaker=settings),))


@pytest.mark.parametrize("emitter", [EmitterChoice.DRIVER, EmitterChoice.LANES])
def test_while_a_target_is_away_its_retries_wait_and_use_up_no_attempt(
    jobs: Jobs, emitter: EmitterChoice
) -> None:
    """More looks than RETRY allows; once the topic is there each is placed by its first attempt."""
    dlq, letters = jobs.topic("dlq", partitions=2), 500
    target = f"{dlq}.target"
    jobs.produce(
        dlq, [connect(target, "e", value=b"%d" % n, partition=n % 2) for n in range(letters)]
    )
    table = "DIALECT(KAFKA) RETRYINT(1)\nACTION(RETRY) RETRY(2)\nACTION(DISCARD)\n"
    configuration = with_breaker(jobs.configure({dlq: table}, emitter=emitter), 20)
    running = jobs.start(configuration)

    def opened() -> list[object]:
        return [facts["state"] for message, facts in running.warnings if "breaker" in message]

    def closed() -> list[object]:
        return [facts for message, facts in running.notices if "breaker" in message]

    running.wait_for_records(4 * letters)
    jobs.create(target, partitions=2)
    eventually(lambda: len(jobs.read(target)) >= letters or running.error, "all are placed")
    # Another run of the query, or a worker that sees the topic later, opens it once more.
    eventually(lambda: len(closed()) >= len(opened()) or running.error, "each breaker closed")
    running.stop()
    placed = jobs.read(target)
    assert Counter(record.value for record in placed) == {b"%d" % n: 1 for n in range(letters)}
    rounds = [own.read_own(record.headers).rounds for record in placed]
    assert {round_ and round_.by_rule for round_ in rounds} == {((0, 1),)}
    outcomes = jobs.outcomes(configuration)
    assert Counter(outcome["result"] for outcome in outcomes)["retried"] == letters
    assert {outcome["reason"] for outcome in outcomes} == {0}
    waited = {outcome["detail"] for outcome in outcomes if outcome["result"] == "parked"}
    waited.remove("round 1 of 2 is 1 s after the failure")
    assert all(
        "breaker open since" in why and "puts in a row were refused" in why for why in waited
    )
    assert set(opened()) == {"open"}
    assert len(closed()) == len(opened())


def test_while_all_rounds_of_a_group_fail_only_probes_go(jobs: Jobs) -> None:
    dlq, dead, orders = jobs.topic("dlq"), jobs.topic("dead"), jobs.topic("orders")
    values = [b"spring always %d" % number for number in range(30)]
    jobs.produce(orders, [{"key": b"k", "value": value} for value in values])
    table = f"DIALECT(KAFKA) RETRYINT(1)\nACTION(RETRY) RETRY(4)\nACTION(FWD) FWDT('{dead}')\n"
    configuration = with_breaker(jobs.configure({dlq: table}), 10)
    running, is_well = jobs.start(configuration), Event()

    def all_were_put() -> bool:
        last = {outcome["message"]: outcome["result"] for outcome in jobs.outcomes(configuration)}
        return set(last.values()) == {"retried"}

    def probes() -> int:
        return sum("probe" in outcome["detail"] for outcome in jobs.outcomes(configuration))

    with failing_consumer(jobs.bootstrap_servers, dlq, orders, is_well=is_well) as processing:
        eventually(lambda: probes() >= 3 or running.error or processing.done(), "probes went")
        is_well.set()
        eventually(lambda: running.error or all_were_put(), "nothing waits any more")
        running.stop()
    processing.result()
    assert jobs.read(dead) == []
    counted: Counter[bytes] = Counter()
    for record in jobs.read(orders):
        rounds = own.read_own(record.headers).rounds
        if rounds is not None:
            counted[record.value] = max(counted[record.value], sum(n for _, n in rounds.by_rule))
    assert set(counted) == set(values)
    assert max(counted.values()) <= 3

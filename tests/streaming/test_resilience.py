"""Nothing that a broker, an operator or a single record does makes the job stand still."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.clients import create
from benchmarks.processes import has_producer, processes_of
from confluent_kafka import Producer
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError
from tests.commands import redrive
from tests.configurations import write_settings
from tests.conftest import PATIENCE, RawName, eventually, read_records
from tests.engine.failed_processing import ENVELOPE, NAMELESS, connect, envelope, spring, streams
from tests.outcomes.s3_server import BUCKET, S3
from tests.several_brokers import SeveralBrokers
from tests.streaming.conftest import Jobs, RunningJob, configuration_of, letter
from tests.streaming.served_job import ServedJob
from tests.streaming.test_tables import DROPPING, failing_consumer

from redrive.broker import EmbeddedBroker
from redrive.checkpoints.control import read_entries
from redrive.checkpoints.epoch import RunEntry, RunIdentity
from redrive.checkpoints.instances import Share
from redrive.configuration import DataLoss, EmitterChoice, JobConfiguration, LedgerConfiguration
from redrive.engine.commands import Replay, ResumeFrom, To
from redrive.engine.decision import TimestampMode
from redrive.errors import FatalFault, UsageError
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import TRANSACTION
from redrive.messages import OutputRecord
from redrive.operations.handlers import read_topics, resume
from redrive.operations.replay.plan import Plan, places_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


BOTH_EMITTERS = pytest.mark.parametrize("emitter", [EmitterChoice.DRIVER, EmitterChoice.LANES])
FOR_EVER = "RETRYINT(1)\nACTION(RETRY) RETRY(9999)\n"
"""A table that tries again until it works."""


def bodies(records: list[Any]) -> list[bytes]:
    return sorted(record.value for record in records)


# -- a broker that goes and comes back -------------------------------------------------------------

DOWN = 10.0
"""Seconds that a broker is away."""
STANDING = 25.0
"""Seconds that a broker stands still: longer than the client waits for any answer."""


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker that tests of this module may stop, kill and pause."""
    with EmbeddedBroker(tmp_path_factory.mktemp("own-broker")) as broker:
        yield broker


class Traffic:
    """A job on a broker of its own, and numbered dead letters for it.

    Every fifth is tried twice in vain and then forwarded, the others are delivered at once.
    """

    DEAD_LETTERS, ORDERS, DEAD = "dlq", "orders", "dead"
    TABLE = f"RETRYINT(1)\nACTION(RETRY) RETRY(2)\nACTION(FWD) FWDQ('{DEAD}')\n"

    def __init__(self, broker: EmbeddedBroker, folder: Path, spark: SparkSession) -> None:
        servers = broker.bootstrap_servers
        counts = {self.DEAD_LETTERS: 3, self.ORDERS: 2, self.DEAD: 1}
        create(servers, *(NewTopic(name, count, 1) for name, count in counts.items()))
        self._read = partial(read_records, servers)
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "message.timeout.ms": int(PATIENCE * 1000),
            }
        )
        self._sent = 0
        self._lost: list[str] = []
        self.job = RunningJob(
            configuration_of(folder, servers, {self.DEAD_LETTERS: self.TABLE}), spark
        ).start()
        assert self.job.is_started.wait(PATIENCE)

    def send(self, count: int) -> None:
        for _ in range(count):
            number, self._sent = self._sent, self._sent + 1
            record = letter(2053, self.ORDERS if number % 5 else "nowhere", b"%d" % number)
            self._producer.produce(
                self.DEAD_LETTERS, key=b"%d" % (number % 9), on_delivery=self._delivered, **record
            )
        self._producer.poll(0)

    @contextmanager
    def load(self) -> Iterator[None]:
        """Sends dead letters all the time."""
        ended = threading.Event()

        def send() -> None:
            while not ended.wait(0.1):
                self.send(5)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def audit(self) -> None:
        """Checks, once everything was handled, that nothing is missing and nothing is twice."""
        assert self._producer.flush(PATIENCE) == 0
        assert not self._lost
        numbers = range(self._sent)
        eventually(lambda: self._finished() >= self._sent, "everything handled", every=1)
        assert self.job.is_alive
        tries = Counter((outcome["origin"], outcome["attempt"]) for outcome in self._outcomes())
        assert set(tries.values()) == {1}
        assert bodies(self._read(self.ORDERS)) == sorted(b"%d" % n for n in numbers if n % 5)
        dead = self._read(self.DEAD)
        ends = sorted(int(record.value.rpartition(b"MQSTR   ")[2][12:]) for record in dead)
        assert ends == [n for n in numbers if n % 5 == 0]

    def _outcomes(self) -> list[dict[str, Any]]:
        topic = self.job.configuration.outcomes_topic
        return [json.loads(record.value) for record in self._read(topic)]

    def _finished(self) -> int:
        self.job.check()
        return sum(outcome["result"] in {"retried", "forwarded"} for outcome in self._outcomes())

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._lost.append(str(error))


@pytest.fixture(scope="module")
def traffic(
    own_broker: EmbeddedBroker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Traffic]:
    """One job for all outages of its broker."""
    traffic = Traffic(own_broker, tmp_path_factory.mktemp("traffic"), spark)
    yield traffic
    traffic.job.stop()


def restart(broker: EmbeddedBroker) -> None:
    broker.stop()
    time.sleep(DOWN)
    broker.start()


def kill(broker: EmbeddedBroker) -> None:
    broker.kill()
    broker.start()


def pause(broker: EmbeddedBroker) -> None:
    broker.pause()
    try:
        time.sleep(STANDING)
    finally:
        broker.resume()


def test_a_broker_may_be_restarted_while_the_job_is_idle(
    traffic: Traffic, own_broker: EmbeddedBroker
) -> None:
    traffic.send(20)
    traffic.audit()
    restart(own_broker)
    traffic.send(20)
    traffic.audit()


@pytest.mark.parametrize("outage", [restart, kill, pause])
def test_a_broker_may_go_under_load(
    outage: Callable[[EmbeddedBroker], None], traffic: Traffic, own_broker: EmbeddedBroker
) -> None:
    with traffic.load():
        time.sleep(2)
        outage(own_broker)
        time.sleep(2)
    traffic.audit()


@pytest.mark.timeout(900)
def test_a_partition_without_a_leader_holds_its_own_lane_and_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Dead letters and retries of the other partition go on, a warning names the one that waits.

    What comes there when its broker is back is handled by the same job.
    """
    with SeveralBrokers(tmp_path / "brokers", 3, properties={"num.io.threads": "2"}) as cluster:
        servers = cluster.bootstrap_servers
        few = {"min.insync.replicas": "1"}
        letters = NewTopic("dlq", replica_assignments={0: [1], 1: [3]}, topic_configs=few)
        create(servers, letters, NewTopic("orders", 1, 3), NewTopic("dead", 1, 3))
        table = "RETRYINT(1)\nACTION(RETRY) RETRY(2)\nACTION(FWD) FWDQ('dead')\n"
        job = RunningJob(configuration_of(tmp_path, servers, {"dlq": table}), spark).start()
        try:
            assert job.is_started.wait(PATIENCE)
            send_pair(servers, 0, b"before")
            send_pair(servers, 1, b"before")
            eventually(lambda: ended(job) == 4, "both lanes were handled")
            cluster.brokers[2].kill()
            eventually(lambda: named(job, "dlq:1"), "the partition was named")
            send_pair(servers, 0, b"meanwhile")
            eventually(lambda: ended(job) == 6, "the other lane goes on, with its retries")
            cluster.brokers[2].start()
            send_pair(servers, 1, b"after")
            eventually(lambda: ended(job) == 8, "the lane came back by itself")
        finally:
            job.control.request_stop("the test is over")
            eventually(lambda: not job.is_alive, "the job ended")
        job.check()
        assert len(read_records(servers, "orders")) == len(read_records(servers, "dead")) == 4


def send_pair(servers: str, partition: int, body: bytes) -> None:
    """Sends a dead letter that is delivered at once, and one that is forwarded after two tries."""
    producer = Producer({"bootstrap.servers": servers, "message.timeout.ms": int(PATIENCE * 1000)})
    lost: list[Any] = []
    for queue in ("orders", "nowhere"):
        record = letter(2053, queue, body, partition=partition)
        producer.produce("dlq", on_delivery=lambda error, _: lost.append(error), **record)
    assert producer.flush(PATIENCE) == 0
    assert lost == [None, None]


def ended(job: RunningJob) -> int:
    """Dead letters that are done with."""
    job.check()
    results = job.results()
    return results.get("retried", 0) + results.get("forwarded", 0)


def named(job: RunningJob, lane: str) -> bool:
    """Whether a warning names a partition without a leader."""
    return any(
        "no leader" in warning and lane in str(facts) for warning, facts in list(job.warnings)
    )


# -- an operator's command that dies ---------------------------------------------------------------

DIES_IN_ITS_TRANSACTION = """
import pickle, sys, time
from pathlib import Path
from redrive.kafka import producer
from redrive.kafka.cluster import Cluster
from redrive.operations.replay.applying import accept

def hang(_):
    print("open", flush=True)
    time.sleep(3600)

producer.KafkaProducer.commit = hang
producer.TRANSACTION = 900.0  # so nobody can just have waited for the coordinator
job, plan = pickle.loads(Path(sys.argv[1]).read_bytes())
accept(job, Cluster(job.connection), plan, operator="ann", purpose="dies")
"""


def die_in_transaction(job: JobConfiguration, folder: Path) -> None:
    """Kills a command that applies a plan, between its records and its commit."""
    plan = Plan(
        replay=Replay(plan="0123456789ab", to=To.ATTEMPT),
        application=job.application,
        created="",
        messages={job.handlers[0].identity.name: places_of([f"{Traffic.DEAD_LETTERS}:0:0"])},
    )
    argument = folder / "plan"
    argument.write_bytes(pickle.dumps((job, plan)))
    with subprocess.Popen(
        [sys.executable, "-c", DIES_IN_ITS_TRANSACTION, str(argument)], stdout=subprocess.PIPE
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"open\n"
        command.kill()


def is_open(job: JobConfiguration) -> bool:
    """Whether a transaction is open on a topic that holds what operators decide."""
    with Cluster.open(job.connection, timeout=PATIENCE) as cluster:
        lanes = cluster.lanes([job.control_topic, job.tables_topic])
        return cluster.ends(lanes) != cluster.ends(lanes, committed_only=False)


@pytest.mark.timeout(900)
def test_a_command_that_dies_in_its_transaction_holds_nobody(
    traffic: Traffic, tmp_path: Path
) -> None:
    job, configuration = traffic.job, traffic.job.configuration
    with traffic.load():
        eventually(lambda: job.results().get("forwarded") or job.error, "retries have begun")
        die_in_transaction(configuration, tmp_path)
        first = len(job.batches)
        count = job.results()["forwarded"] + 50
        eventually(
            lambda: (
                (job.results()["forwarded"] >= count and len(job.batches) >= first + 5) or job.error
            ),
            "retries go on",
        )
        job.check()
        cluster = Cluster(configuration.connection)
        entries = read_entries(cluster, configuration.control_topic)
        run = RunIdentity("", Share(1, 1), entries["instance/1/1"]["run"])
        RunEntry(cluster, configuration.control_topic, run).check_current()
        assert is_open(configuration)
        longest = max(batch.seconds for batch in job.batches[first:])
        gaps = [(late.time - early.time) / 1000 for early, late in pairwise(job.batches[first:])]
        assert max(longest, *gaps) < TRANSACTION / 4  # some 0.5 s on a free machine
        job.stop()
        traffic.job = RunningJob(configuration, job.session).start()
        traffic.job.wait_for_records(50)
        assert not is_open(configuration)
    traffic.audit()


# -- what operators do to the job's progress -------------------------------------------------------


def test_forgotten_offsets_are_found_again_in_the_outcomes(jobs: Jobs) -> None:
    dlq, orders = jobs.topic("dlq", partitions=2), jobs.topic("orders")
    table = "RETRYINT(1) WAIT(NO)\nREASON(2053) ACTION(RETRY) RETRY(2)\n"
    first = [letter(2053, orders, b"%d" % number) for number in range(10)]
    jobs.produce(dlq, [*first, letter(2053, "nowhere"), letter(1, "x")])
    configuration = jobs.configure({dlq: table})
    jobs.start(configuration).join()
    before = jobs.outcomes(configuration)
    jobs.admin.delete_groups([configuration.application])
    jobs.produce(dlq, [letter(2053, orders, b"%d" % number) for number in range(10, 15)])
    again = jobs.start(configuration)
    again.join()
    assert any("offsets are missing" in warning for warning, _ in again.warnings)
    assert bodies(jobs.read(orders)) == sorted(b"%d" % number for number in range(15))
    assert len(jobs.outcomes(configuration)) == len(before) + 5

    jobs.admin.delete_groups([configuration.application])
    jobs.admin.delete_records(
        {TopicPartition(configuration.outcomes_topic, number): -1 for number in range(4)}
    )
    error = jobs.start(configuration).refused()
    assert "repeat everything that is still in the dead-letter topics" in str(error)
    assert "--reset-offsets" in str(error.hint)
    assert len(jobs.read(orders)) == 15


def test_forgotten_offsets_of_a_topic_made_anew_are_found_in_its_own_outcomes(jobs: Jobs) -> None:
    dlq, orders = jobs.topic("dlq"), jobs.topic("orders")
    configuration = jobs.configure({dlq: "WAIT(NO)\nREASON(2053) ACTION(RETRY)\n"})
    jobs.produce(dlq, [letter(2053, orders, b"old %d" % number) for number in range(6)])
    jobs.start(configuration).join()
    jobs.delete(dlq)
    jobs.create(dlq)
    new = [letter(2053, orders, b"new %d" % number) for number in range(8)]
    jobs.produce(dlq, new[:2])
    jobs.start(replace(configuration, on_data_loss=DataLoss.CONTINUE)).join()
    jobs.admin.delete_groups([configuration.application])
    jobs.produce(dlq, new[2:])
    assert configuration.on_data_loss is DataLoss.STOP
    jobs.start(configuration).join()
    expected = [b"new %d" % number for number in range(8)]
    expected += [b"old %d" % number for number in range(6)]
    assert bodies(jobs.read(orders)) == expected
    for incarnation, count in ((1, 6), (2, 8)):
        places = [
            outcome["offset"]
            for outcome in jobs.outcomes(configuration)
            if (outcome["topic"], outcome["incarnation"]) == (dlq, incarnation)
        ]
        assert sorted(places) == list(range(count))


def test_parked_messages_that_are_gone_stop_the_start_unless_allowed(jobs: Jobs) -> None:
    dlq = jobs.topic("dlq")
    configuration = jobs.configure({dlq: "RETRYINT(3600)\nACTION(RETRY) RETRY(2)\n"})
    jobs.produce(dlq, [letter(2053, "nowhere") for _ in range(3)])
    job = jobs.start(configuration)
    job.wait_for_records(3)
    job.stop()
    retry_topic = configuration.handlers[0].identity.retry_topic
    jobs.admin.delete_records({TopicPartition(retry_topic, 0): 2})
    assert f"{retry_topic}:0 holds offsets 2 to" in str(jobs.start(configuration).refused())
    allowed = jobs.start(replace(configuration, on_data_loss=DataLoss.CONTINUE))
    jobs.produce(dlq, [letter(2053, "nowhere")])
    allowed.wait_for_records(1)
    assert any(f"{retry_topic}:0" in str(facts) for _, facts in allowed.warnings)
    allowed.stop()


def test_own_topics_that_would_lose_messages_stop_the_start(jobs: Jobs) -> None:
    dlq = jobs.topic("dlq")
    configuration = jobs.configure({dlq: "ACTION(DISCARD)\n"})
    remaining = configuration.handlers[0].identity.remaining_topic
    retry = configuration.handlers[0].identity.retry_topic
    wrong = {
        remaining: {"cleanup.policy": "delete"},
        configuration.outcomes_topic: {"cleanup.policy": "compact"},
        retry: {"retention.ms": "60000", "message.timestamp.type": "LogAppendTime"},
    }
    jobs.admin.create_topics(
        [NewTopic(name, 1, 1, topic_configs=settings) for name, settings in wrong.items()]
    )
    refusal = jobs.start(configuration).refused()
    assert f"{remaining} has cleanup.policy=delete, not compact" in str(refusal)
    assert f"{configuration.outcomes_topic} has cleanup.policy=compact, not delete" in str(refusal)
    assert (
        f"--entity-name {retry} --add-config retention.ms=-1,message.timestamp.type=CreateTime"
    ) in str(refusal.hint)


def test_latest_loses_no_record_of_what_is_born_later(jobs: Jobs) -> None:
    old, later = jobs.topic("dlq"), jobs.unique_name("later")
    jobs.produce(old, [letter(1, "x") for _ in range(3)])
    table = "ACTION(DISCARD)\n"
    configuration = jobs.configure({old: table, later: table}, starting_offsets="latest")
    job = jobs.start(configuration)
    assert job.is_started.wait(PATIENCE)
    jobs.create(later, partitions=2)
    jobs.admin.create_partitions({old: 2})
    jobs.produce(later, [letter(1, "x", partition=number % 2) for number in range(10)])
    eventually(lambda: _takes(jobs.produce, old, 1), "the new partition can be written")
    job.wait_for_records(11)
    job.stop()
    jobs.admin.create_partitions({old: 3})  # while no job runs
    eventually(lambda: _takes(jobs.produce, old, 2), "the new partition can be written")
    second = jobs.start(configuration)
    second.wait_for_records(1)
    second.stop()
    handled = Counter(
        (outcome["topic"], outcome["partition"]) for outcome in jobs.outcomes(configuration)
    )
    assert handled == {(later, 0): 5, (later, 1): 5, (old, 1): 1, (old, 2): 1}


def _takes(produce: Any, topic: str, partition: int) -> bool:
    """Whether a partition that was just made took a dead letter."""
    try:
        produce(topic, [letter(1, "x", partition=partition)])
    except AssertionError:  # the client's list of partitions is still the old one
        return False
    return True


def test_what_remains_of_a_topic_outlives_its_recreation(jobs: Jobs) -> None:
    dlq = jobs.topic("dlq")
    configuration = jobs.configure({dlq: "WAIT(NO)\nREASON(1) ACTION(DISCARD)\n"})
    jobs.produce(dlq, [letter(2053, "x", b"old")])
    jobs.start(configuration).join()
    jobs.delete(dlq)
    jobs.create(dlq)
    jobs.produce(dlq, [letter(2053, "x", b"new")])
    jobs.start(replace(configuration, on_data_loss=DataLoss.CONTINUE)).join()
    copies = jobs.read(configuration.handlers[0].identity.remaining_topic)
    live = {record.key: record.value[-3:] for record in copies}
    assert live == {f"{dlq}:0:0".encode(): b"old", f"{dlq}~2:0:0".encode(): b"new"}


class RecreatedTopic:
    """A dead-letter topic under load, which is deleted and created again."""

    MOST = 6_000
    """Dead letters between two deletions, so that a busy machine has no backlog."""

    def __init__(self, jobs: Jobs, partitions: int) -> None:
        self.name, self.target = jobs.topic("dlq", partitions=partitions), jobs.topic("target")
        self.sent, self._limit = 0, self.MOST
        self._jobs, self._partitions = jobs, partitions
        self._ended = threading.Event()
        self._thread = threading.Thread()

    def load(self, *, at_once: int = 0) -> None:
        """Sends dead letters: some at once, then a thousand a second."""
        producer = Producer(
            {"bootstrap.servers": self._jobs.bootstrap_servers, "enable.idempotence": True}
        )
        self._ended, self._limit = threading.Event(), self.sent + self.MOST
        self._send(producer, at_once)
        self._thread = threading.Thread(target=self._run, args=(producer, self._ended), daemon=True)
        self._thread.start()

    def pause(self) -> None:
        """Ends the load; each of its dead letters is on the topic."""
        self._ended.set()
        self._thread.join()

    def recreate(self, partitions: int) -> None:
        """Deletes the topic with what the job has not read, and creates it."""
        self._jobs.admin.delete_topics([self.name])
        self._partitions = partitions
        eventually(lambda: _creates(self._jobs, self.name, partitions), "created", every=0.02)

    def ends(self) -> dict[int, int]:
        """How many dead letters each partition of the present topic has."""
        return Counter(record.partition for record in self._jobs.read(self.name))

    def _run(self, producer: Any, ended: threading.Event) -> None:
        while not ended.wait(0.05):
            self._send(producer, min(50, self._limit - self.sent))
        assert producer.flush(PATIENCE) == 0

    def _send(self, producer: Any, count: int) -> None:
        for _ in range(count):
            number, self.sent = self.sent, self.sent + 1
            record = letter(2053, self.target, b"%d" % number)
            producer.produce(self.name, partition=number % self._partitions, **record)
        producer.poll(0)


def _creates(jobs: Jobs, name: str, partitions: int) -> bool:
    try:
        jobs.admin.create_topics([NewTopic(name, partitions, 1)], wait_for_metadata=True)
    except TopicAlreadyExistsError:  # the deletion is not complete
        return False
    return True


@pytest.mark.parametrize("data_loss", [DataLoss.STOP, DataLoss.CONTINUE])
@BOTH_EMITTERS
def test_topics_recreated_under_load_are_each_handled_once(
    jobs: Jobs, emitter: EmitterChoice, data_loss: DataLoss
) -> None:
    topic, other = RecreatedTopic(jobs, 3), jobs.topic("dlq")
    table = "ACTION(RETRY)\n"
    configuration = jobs.configure(
        {topic.name: table, other: table}, emitter=emitter, on_data_loss=data_loss
    )
    topic.load()
    job = jobs.start(configuration)
    job.wait_for_records(35)
    for incarnation, partitions in enumerate((2, 2, 4), 2):
        topic.pause()
        topic.recreate(partitions)
        topic.load(at_once=2_000)
        if data_loss is DataLoss.STOP:
            eventually(lambda: _is_resumed(configuration, topic.name), "it resumes")
        is_read = partial(_handled, jobs, configuration, topic.name, incarnation)
        eventually(is_read, f"topic {incarnation} is read", every=1)
        job.check()
    topic.pause()
    ends = topic.ends()
    eventually(
        lambda: (
            {
                partition: len(offsets)
                for partition, offsets in _handled(jobs, configuration, topic.name, 4).items()
            }
            == ends
        ),
        "the last topic is handled",
        every=1,
    )
    job.stop()
    for incarnation in (1, 2, 3, 4):
        for offsets in _handled(jobs, configuration, topic.name, incarnation).values():
            assert sorted(offsets) == list(range(len(offsets))), "none skipped, none twice"
    counts = Counter(bodies(jobs.read(topic.target)))
    assert max(counts.values()) == 1
    assert counts.keys() >= {record.value[172:] for record in jobs.read(topic.name)}
    said = [str(facts) for _, facts in job.warnings]
    assert sum("was deleted and recreated: the old" in text for text in said) >= 3


def _is_resumed(configuration: JobConfiguration, topic: str) -> bool:
    """Resumes the handler of a topic if it is stopped."""
    stopped = [
        candidate
        for candidate in read_topics(configuration)
        if candidate.topic == topic and candidate.lost
    ]
    for _ in stopped:
        with suppress(UsageError):  # the answer before this one became visible meanwhile
            resume(configuration, topic, ResumeFrom.OLDEST, "it was meant")
    return bool(stopped)


def _handled(
    jobs: Jobs, configuration: JobConfiguration, topic: str, incarnation: int
) -> dict[int, list[int]]:
    """By partition, the offsets of a topic that have outcomes."""
    offsets: dict[int, list[int]] = {}
    for outcome in jobs.outcomes(configuration):
        if (outcome["topic"], outcome["incarnation"]) == (topic, incarnation):
            offsets.setdefault(outcome["partition"], []).append(outcome["offset"])
    return offsets


@pytest.mark.parametrize("partitions", [1, 0], ids=["fewer partitions", "deleted"])
def test_what_is_parked_is_retried_whatever_became_of_its_topic(
    jobs: Jobs, partitions: int
) -> None:
    """The partitions that the dead-letter topic no longer has are read like the others.

    Each of them is named.
    """
    dlq, orders = jobs.topic("dlq", partitions=4), jobs.topic("orders")
    configuration = jobs.configure({dlq: "RETRYINT(1)\nACTION(RETRY) RETRY(1000000)\n"})
    jobs.delete(orders)
    everything = sorted(b"%d" % number for number in range(20))
    letters = [letter(2053, orders, body, partition=n % 4) for n, body in enumerate(everything)]
    jobs.produce(dlq, letters)
    job = jobs.start(configuration)
    eventually(lambda: job.results().get("parked", 0) >= 20 or job.error, "all are parked")
    job.stop()
    jobs.delete(dlq)
    if partitions:
        jobs.create(dlq, partitions=partitions)
    jobs.create(orders)
    job = jobs.start(replace(configuration, on_data_loss=DataLoss.CONTINUE))
    eventually(lambda: job.results().get("retried", 0) >= 20 or job.error, "all were retried")
    job.stop()
    assert bodies(jobs.read(orders)) == everything
    said = " ".join(str(facts) for _, facts in job.warnings)
    for number in range(4 if partitions else 0):
        assert f"the old {dlq}:{number} is gone" in said


# -- what operators do to targets ------------------------------------------------------------------


def test_a_target_may_be_deleted_and_made_again(jobs: Jobs) -> None:
    """Meanwhile attempts fail with 2085; afterwards every message arrives exactly once."""
    dlq, orders = jobs.topic("dlq", partitions=2), jobs.topic("orders")
    configuration = jobs.configure({dlq: FOR_EVER})
    job = jobs.start(configuration)
    jobs.produce(dlq, [letter(2053, orders) for _ in range(5)])
    job.wait_for_records(5)
    jobs.delete(orders)
    jobs.produce(dlq, [letter(2053, orders, b"%d" % number) for number in range(20)])
    eventually(lambda: job.results().get("parked", 0) >= 40 or job.error, "two attempts failed")
    jobs.create(orders, partitions=2)
    eventually(lambda: job.results().get("retried", 0) >= 25 or job.error, "all were delivered")
    job.stop()
    assert bodies(jobs.read(orders)) == sorted(b"%d" % number for number in range(20))
    reasons = Counter(outcome["reason"] for outcome in jobs.outcomes(configuration))
    assert reasons.keys() == {0, 2085}
    assert reasons[0] == 25


def test_a_target_may_be_made_smaller(jobs: Jobs) -> None:
    """Large messages fail with 2030 from then on, small ones of the same batch arrive."""
    dlq, orders = jobs.topic("dlq"), jobs.topic("orders")
    configuration = jobs.configure({dlq: "RETRYINT(3600)\nACTION(RETRY)\n"})
    job = jobs.start(configuration)
    jobs.produce(dlq, [letter(2053, orders, b"first")])
    job.wait_for_records(1)
    change = ConfigResource(ConfigResourceType.TOPIC, orders, {"max.message.bytes": "2000"})
    jobs.admin.alter_configs([change])
    eventually(lambda: _is_too_small(jobs.produce, orders), "the change has arrived")
    noise = random.Random(1)  # nothing that compression makes small
    small = [b"%d" % number for number in range(20)]
    jobs.produce(
        dlq, [letter(2053, orders, body) for one in small for body in (one, noise.randbytes(5000))]
    )
    job.wait_for_records(41)
    job.stop()
    arrived = [body for body in bodies(jobs.read(orders)) if len(body) < 2000]
    assert arrived == sorted([b"first", *small])
    reasons = [outcome["reason"] for outcome in jobs.outcomes(configuration)]
    assert Counter(reasons) == {0: 21, 2030: 20}


def test_what_was_large_enough_to_be_compressed_is_put_back_compressed(jobs: Jobs) -> None:
    """Five times what its topic takes, uncompressed: as good as the producer that wrote it.

    Where the topic compresses worse than the job the broker refuses it, and nothing else. All is
    read by the product's own client here, as the other one does not know zstd.
    """
    chance = random.Random(1)
    words = [chance.randbytes(6).hex().encode() for _ in range(200)]
    body = b" ".join(chance.choices(words, k=400_000))
    assert len(body) > 5_000_000
    dlq, orders = jobs.topic("dlq"), jobs.topic("orders")
    fast = jobs.topic("fast", config={"compression.type": "lz4"})
    plain = jobs.topic("plain", config={"compression.type": "uncompressed"})
    producer = Producer({
        "bootstrap.servers": jobs.bootstrap_servers, "compression.type": "zstd",
        "message.max.bytes": 10_000_000,
    })  # fmt: skip
    for target in (orders, fast, plain):
        producer.produce(dlq, **letter(2053, target, body))
    assert producer.flush(60) == 0
    jobs.produce(dlq, [letter(2053, target, b"small") for target in (orders, fast, plain)])
    configuration = jobs.configure({dlq: "WAIT(NO)\nACTION(RETRY)\n"})
    jobs.start(configuration).join()

    def values(topic: str) -> list[bytes]:
        with Cluster.open(configuration.connection, timeout=PATIENCE) as cluster:
            lanes = dict.fromkeys(cluster.lanes([topic]), 0)
            return [record.value or b"" for record in cluster.read(lanes)]

    assert values(orders) == [body, b"small"]
    rows = map(json.loads, values(configuration.outcomes_topic))
    outcomes = sorted(rows, key=lambda row: row["offset"])
    assert [outcome["reason"] for outcome in outcomes] == [0, 2030, 2030, 0, 0, 0]
    assert [outcome["size"] > 5_000_000 for outcome in outcomes] == [True] * 3 + [False] * 3
    assert "MSG_SIZE_TOO_LARGE" in outcomes[1]["detail"]
    assert f"more than the 1048588 of topic {plain}" in outcomes[2]["detail"]


def _is_too_small(produce: Any, topic: str) -> bool:
    try:
        produce(topic, [{"value": bytes(5000)}])
    except MessageSizeTooLargeError:
        return True
    return False


def test_a_compacted_target_refuses_only_what_has_no_key(jobs: Jobs) -> None:
    dlq, latest = jobs.topic("dlq"), jobs.topic("latest", config={"cleanup.policy": "compact"})
    configuration = jobs.configure({dlq: "WAIT(NO) RETRYINT(1)\nACTION(RETRY)\n"})
    keys = [None, b"a", None, b"b"]
    jobs.produce(dlq, [letter(2053, latest, key=key) for key in keys])
    jobs.start(configuration).join()
    outcomes = sorted(jobs.outcomes(configuration), key=lambda outcome: outcome["offset"])
    assert [outcome["reason"] for outcome in outcomes if outcome["attempt"] == 1] == [
        2110,
        0,
        2110,
        0,
    ]
    assert [record.key for record in jobs.read(latest)] == [b"a", b"b"]


# -- single records --------------------------------------------------------------------------------

LARGE = {"max.message.bytes": str(8 * 1024 * 1024)}
"""What a topic of large messages is created with."""


@BOTH_EMITTERS
def test_records_of_any_shape_have_an_outcome(jobs: Jobs, emitter: EmitterChoice) -> None:
    dlq, big = (jobs.topic(name, config=LARGE) for name in ("dlq", "big"))
    orders = jobs.topic("orders")
    noise = random.Random(2)
    mqdead = ("JMS_IBM_MQMD_Format", b"MQDEAD")
    wide = [(f"h{number}", b"%d" % number) for number in range(500)]
    key, value, body = noise.randbytes(800_000), noise.randbytes(900_000), noise.randbytes(5 << 20)
    records = [
        letter(2053, orders, b"key", key=key),
        letter(2053, orders, b"header") | {"headers": [mqdead, ("large", value)]},
        letter(2053, orders, b"wide") | {"headers": [mqdead, *wide]},
        letter(2053, orders, body),
        letter(2053, orders, b""),
        {"value": None, "key": b"null"},
        {"value": b""},
        {"value": b"no header", "key": key, "headers": [("large", b"x")]},
        letter(2053, orders, b"last"),
    ]
    jobs.produce(dlq, records)
    table = (
        "WAIT(NO) RETRYINT(1)\n"
        "REASON(2053) ACTION(RETRY)\n"
        f"REASON(2053) ACTION(FWD) FWDQ('{big}')\n"
    )
    configuration = jobs.configure({dlq: table}, emitter=emitter)
    jobs.start(configuration).join()
    put = {record.value: record for record in jobs.read(orders)}
    assert put.keys() == {b"key", b"header", b"wide", b"", b"last"}
    assert put[b"key"].key == key
    assert ("large", value) in put[b"header"].headers
    assert [header for header in put[b"wide"].headers if header[0].startswith("h")] == wide
    assert [record.value[-len(body) :] for record in jobs.read(big)] == [body]
    outcomes = sorted(
        jobs.outcomes(configuration), key=lambda outcome: (outcome["offset"], outcome["attempt"])
    )
    first = [outcome for outcome in outcomes if outcome["topic"] == dlq]
    assert [(outcome["result"], outcome["reason"]) for outcome in first] == [
        ("retried", 0), ("retried", 0), ("retried", 0), ("parked", 2030), ("retried", 0),
        ("remains", 0), ("remains", 0), ("remains", 0), ("retried", 0),
    ]  # fmt: skip
    assert len(outcomes) == len(records) + 1
    remaining = jobs.read(configuration.handlers[0].identity.remaining_topic)
    assert [record.value for record in remaining] == [b"", b"", b"no header"]


@BOTH_EMITTERS
def test_header_names_that_are_not_utf_8_have_an_outcome(
    jobs: Jobs, emitter: EmitterChoice
) -> None:
    """A dead letter itself has them replaced; one that points at such a record remains.

    Those beside them are handled as ever.
    """
    dlq, work, orders = jobs.topic("dlq"), jobs.topic("work"), jobs.topic("orders")
    odd = [(RawName(b"caf\xe9"), b"2")]
    jobs.produce(
        work, [{"value": b"odd", "headers": odd}, {"value": b"even", "headers": [("a", b"1")]}]
    )
    own = letter(2053, orders, b"fresh")
    own["headers"] = [*own["headers"], *odd]
    details = [
        ("__dlq.errors.topic", work.encode()),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.group", b"workers"),
    ]
    jobs.produce(dlq, [own])
    # The other client wants a key or a value.
    producer = Producer({"bootstrap.servers": jobs.bootstrap_servers})
    for number in range(2):
        producer.produce(dlq, headers=[*details, ("__dlq.errors.offset", b"%d" % number)])
    assert producer.flush(PATIENCE) == 0
    table = f"WAIT(NO) RETRYINT(1)\nACTION(FWD) FWDQ('{orders}') HEADER(NO)\n"
    configuration = jobs.configure({dlq: table}, emitter=emitter)
    jobs.start(configuration).join()
    fresh, even = jobs.read(orders)
    assert (fresh.value, even.value) == (b"fresh", b"even")
    assert ("caf\ufffd", b"2") in fresh.headers
    outcomes = {outcome["offset"]: outcome for outcome in jobs.outcomes(configuration)}
    results = [outcomes[number]["result"] for number in range(3)]
    assert results == ["forwarded", "remains", "forwarded"]
    assert r"the name of header 1 (caf\xe9) is not UTF-8" in outcomes[1]["detail"]


@BOTH_EMITTERS
def test_a_message_too_large_to_be_kept_waits_as_a_pointer_and_blocks_nothing(
    jobs: Jobs, emitter: EmitterChoice
) -> None:
    dlq, big = (jobs.topic(name, config=LARGE) for name in ("dlq", "big"))
    orders = jobs.topic("orders")
    table = "WAIT(NO) RETRYINT(1)\nACTION(RETRY) RETRY(2)\n"
    configuration = jobs.configure({dlq: table}, emitter=emitter)
    identity = configuration.handlers[0].identity
    limit = {"max.message.bytes": "1000000"}
    jobs.admin.create_topics(
        [
            NewTopic(identity.retry_topic, 1, 1, topic_configs={**limit, "retention.ms": "-1"}),
            NewTopic(
                identity.remaining_topic, 1, 1, topic_configs={**limit, "cleanup.policy": "compact"}
            ),
        ],
        wait_for_metadata=True,
    )
    body = random.Random(3).randbytes(5 << 20)
    jobs.produce(dlq, [letter(2053, orders, body, key=b"k"), letter(2053, orders, b"last")])
    jobs.start(configuration).join()
    assert bodies(jobs.read(orders)) == [b"last"]
    outcomes = sorted(
        (outcome for outcome in jobs.outcomes(configuration) if outcome["origin"] == f"{dlq}:0:0"),
        key=lambda outcome: int(outcome["attempt"]),
    )
    assert [outcome["result"] for outcome in outcomes] == ["parked", "remains"]
    for outcome in outcomes:
        assert outcome["detail"].endswith(f"the original is at {dlq}:0:0")
    (copy,) = jobs.read(identity.remaining_topic)
    assert len(copy.value) < 100_000
    again = replace(
        configuration.handlers[0], rules=f"WAIT(NO)\nACTION(FWD) FWDQ('{big}') HEADER(NO)\n"
    )
    jobs.start(replace(configuration, handlers=(again,))).join()
    (put,) = jobs.read(big)
    assert (put.key, put.value) == (b"k", body)
    assert ("x", b"1") in put.headers


def test_workers_keep_counts_and_order_over_slices_and_refusals(jobs: Jobs) -> None:
    """Slices of 50 records, of which the broker refuses some for their age."""
    dlq = jobs.topic("dlq", partitions=3)
    orders = jobs.topic("orders", partitions=2)
    now = int(time.time() * 1000)
    refused = {number for number in range(30, 900) if number % 97 == 5}
    records = [
        letter(
            2053, orders, b"%d" % number, key=b"%d" % (number % 7),
            partition=number % 7 % 3, timestamp_ms=now - 7_200_000 * (number in refused),
        )
        for number in range(900)
    ]  # fmt: skip
    configuration = jobs.configure(
        {dlq: "RETRYINT(1)\nREASON(2053) ACTION(RETRY) RETRY(2)\n"},
        emitter=EmitterChoice.LANES,
        slice_records=50,
    )
    handler = replace(configuration.handlers[0], timestamp=TimestampMode.KEEP)
    configuration = replace(configuration, handlers=(handler,))
    job = jobs.start(configuration)
    jobs.produce(dlq, records[:30])
    job.wait_for_records(30)
    # What the workers know of the topic is not true any more.
    recent = {"message.timestamp.before.max.ms": "3600000"}
    jobs.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, orders, recent)])
    jobs.produce(dlq, records[30:])
    job.wait_for_records(900 + len(refused))
    job.stop()
    courses: dict[bytes, list[int]] = {}
    for record in jobs.read(orders):
        courses.setdefault(record.key, []).append(int(record.value))
    assert all(a < b for course in courses.values() for a, b in pairwise(course))
    arrived = sorted(number for course in courses.values() for number in course)
    assert arrived == sorted(set(range(900)) - refused)
    assert job.results() == {
        "retried": 900 - len(refused), "parked": len(refused), "remains": len(refused),
    }  # fmt: skip
    reasons = Counter(outcome["reason"] for outcome in jobs.outcomes(configuration))
    assert reasons == {0: 900 - len(refused), 2110: 2 * len(refused)}


# -- a topic that deletes by age -------------------------------------------------------------------

TWELVE_DAYS = 12 * 86_400_000
DELETES = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"}
"""Settings of a broker that deletes old records at once."""


DATED = replace(ENVELOPE, parts={**ENVELOPE.parts, "origin.timestamp": "$.time"})
"""A JSON envelope with the time of the record."""


def dated_envelope(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    letter = envelope(record, offset, now)
    failure = {**json.loads(letter.value or b""), "time": record.timestamp}
    return letter._replace(value=json.dumps(failure).encode())


def produce_record(producer: Producer, record: OutputRecord, topic: str) -> None:
    producer.produce(
        topic,
        record.value,
        record.key,
        headers=record.headers,  # type: ignore[arg-type]  # the stub has no null values
        timestamp=record.timestamp,
    )


AGES = {"days": TWELVE_DAYS, "minutes": 600_000}
"""Milliseconds from a record to its dead letter; topics of either age have its name."""
DAY, WEEK, EVER = (
    {"retention.ms": f"{milliseconds}"} for milliseconds in (86_400_000, 604_800_000, -1)
)
KEEPING = {
    "day": DAY,
    "week": WEEK,
    "ever": EVER,
    "compact": {"cleanup.policy": "compact"},
    "both": {"cleanup.policy": "compact,delete", **WEEK},
    "append": {"message.timestamp.type": "LogAppendTime", **DAY},
}
"""Settings by topic; a segment lives as long as its youngest record, so each age has topics."""
PROGRAMS = (connect, spring, streams, dated_envelope)


def produce_failures(
    producer: Producer, topics: Iterable[str], now: int
) -> tuple[dict[bytes, int], dict[str, int]]:
    """Writes three records of each program to each topic, and their dead letters to ``DLQ``.

    Those of twelve days failed a second after their record, the others fail now.

    Returns:
        The timestamp of each record by its value, and by dead letter the earliest time from which
        a delay counts: that of the failure where the dead letter tells it.
    """
    times: dict[bytes, int] = {}
    since: dict[str, int] = {}
    for topic in topics:
        age = topic.partition(".")[2]
        for offset, (program, _) in enumerate(product(PROGRAMS, range(3))):
            value = f"{topic} {offset}".encode()
            times[value] = own = now - AGES[age] + len(times)
            record = OutputRecord(topic, value, value, [], own)
            produce_record(producer, record, topic)
            failed = own + 1000 if age == "days" else now
            since[f"DLQ:0:{len(since)}"] = failed if program is spring else now
            produce_record(producer, program(record, offset, failed), "DLQ")
    assert producer.flush(PATIENCE) == 0
    return times, since


def await_deletions(producer: Producer, cluster: Cluster, topic: str) -> None:
    """Waits until the broker has looked at what every topic holds now, and has deleted it.

    When it has deleted a second old record it has looked at all since it deleted the first.
    """
    lane = TopicPartition(topic, 0)
    for _ in range(2):
        first = cluster.extents([lane])[lane].first
        old = OutputRecord(topic, None, b"", [], int(time.time() * 1000) - TWELVE_DAYS)
        produce_record(producer, old, topic)
        assert producer.flush(PATIENCE) == 0
        eventually(
            partial(_has_deleted, cluster, lane, first), "the old record is deleted", every=0.5
        )


def _has_deleted(cluster: Cluster, lane: TopicPartition, first: int) -> bool:
    return cluster.extents([lane])[lane].first > first


def test_puts_of_old_dead_letters_are_not_deleted_unread(
    spark: SparkSession, tmp_path: Path
) -> None:
    """None is early, and each record has its own time, on topics of every kind.

    What is made for a group keeps records for as long as the topic that it stands for.
    """
    delay, now = 5, int(time.time() * 1000)
    topics = {f"{name}.{age}": settings for name, settings in KEEPING.items() for age in AGES}
    topics["orders.days"] = DAY
    table = (
        f"DIALECT(KAFKA) RETRYINT({delay})\n"
        "TOPIC(orders.days) SCHEME(spring-dlt) ACTION(RETRY) TO(GROUP) RETRY(2)\n"
        "TOPIC(orders.days) ACTION(FWD) FWDT('parking') HEADER(NO)\n"
        "ACTION(RETRY) RETRY(2)\n"
    )
    group, made = "orders.days.billing.retry", {"DLQ": EVER, "parking": WEEK, "deleted": WEEK}
    with EmbeddedBroker(tmp_path / "broker", properties=DELETES) as broker:
        servers = broker.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers})
        every = {**made, **topics}.items()
        create(servers, *(NewTopic(name, 1, 1, topic_configs=config) for name, config in every))
        times, since = produce_failures(producer, topics, now)
        configuration = configuration_of(tmp_path, servers, {"DLQ": table}, schemes=(DATED,))
        job = RunningJob(configuration, spark).start()
        expected = {"retried": len(times) - 9, "forwarded": 9}
        eventually(lambda: job.error or expected.items() <= job.results().items(), "all are put")
        job.check()
        with closing(Cluster(configuration.connection)) as cluster:
            await_deletions(producer, cluster, "deleted")
            job.stop()
            (settings,) = cluster.settings_of([group], explicit_only=True).values()
        puts = {
            name: [
                record
                for record in read_records(servers, name)
                if "redrive.id" in dict(record.headers)
            ]
            for name in (*topics, "parking", group)
        }
        outcomes = map(json.loads, bodies(read_records(servers, configuration.outcomes_topic)))
        retried = [outcome for outcome in outcomes if outcome["result"] == "retried"]
    assert settings == DAY
    counts = {name: len(records) for name, records in puts.items()}
    ends = {"orders.days": 0, "parking": 9, group: 3}
    assert counts == dict.fromkeys(topics, 3 * len(PROGRAMS)) | ends
    stamped = {"day.days", "week.days", "both.days", "append.days", "append.minutes", *ends}
    for name, record in ((name, placed) for name, records in puts.items() for placed in records):
        own = times[record.value]
        assert int(dict(record.headers).get("redrive.timestamp", record.timestamp)) == own, name
        assert record.timestamp >= now if name in stamped else record.timestamp == own, name
    assert [
        outcome for outcome in retried if outcome["time"] < since[outcome["origin"]] + 1000 * delay
    ] == []


# -- an enrichment ---------------------------------------------------------------------------------


def with_header(frame: DataFrame) -> DataFrame:
    """An enrichment that adds a header."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the name the field uses

    name, value = F.lit("offset").alias("key"), F.col("offset").cast("string").cast("binary")
    added = F.array(F.struct(name, value.alias("value")))
    return frame.withColumn("headers", F.concat("headers", added))


def without_odd(frame: DataFrame) -> DataFrame:
    """An enrichment that drops rows, as it must not."""
    return frame.where("offset % 2 = 0")


@BOTH_EMITTERS
def test_an_enrichment_adds_a_header_to_what_is_decided(jobs: Jobs, emitter: EmitterChoice) -> None:
    dlq, orders = jobs.topic("dlq", partitions=2), jobs.topic("orders")
    jobs.produce(dlq, [letter(2053, orders, partition=number % 2) for number in range(10)])
    configuration = jobs.configure(
        {dlq: "WAIT(NO)\nACTION(RETRY)\n"}, emitter=emitter, enrichment=f"{__name__}:with_header"
    )
    jobs.start(configuration).join()
    added = [value for record in jobs.read(orders) for name, value in record.headers[3:4]]
    assert sorted(added) == sorted(b"%d" % number for number in [*range(5), *range(5)])


@BOTH_EMITTERS
def test_an_enrichment_that_drops_rows_ends_the_job_and_loses_none(
    jobs: Jobs, emitter: EmitterChoice
) -> None:
    dlq, orders = jobs.topic("dlq"), jobs.topic("orders")
    jobs.produce(dlq, [letter(2053, orders, b"%d" % number) for number in range(10)])
    table = "WAIT(NO)\nACTION(RETRY)\n"
    configuration = jobs.configure(
        {dlq: table}, emitter=emitter, enrichment=f"{__name__}:without_odd"
    )
    job = jobs.start(configuration)
    eventually(lambda: not job.is_alive, "the job ended")
    assert isinstance(job.error, FatalFault), job.error
    assert "without_odd" in str(job.error) or "drops" in str(job.error)
    jobs.start(replace(configuration, enrichment="")).join()
    assert jobs.values(orders) == [b"%d" % n for n in range(10)]


# -- the job's own machine -------------------------------------------------------------------------


def test_a_ledger_that_cannot_be_written_does_not_end_the_job(jobs: Jobs, tmp_path: Path) -> None:
    dlq, ledger = jobs.topic("dlq"), tmp_path / "ledger"
    ledger.write_text("a file in the folder's place")
    configuration = jobs.configure(
        {dlq: "ACTION(DISCARD)\n"}, ledger=LedgerConfiguration(path=ledger, enabled=True)
    )
    job = jobs.start(configuration)
    jobs.produce(dlq, [letter(1, "x")])
    job.wait_for_records(1)
    eventually(
        lambda: job.error or any("ledger" in warning for warning, _ in job.warnings),
        "the job said that the ledger cannot be written",
    )
    jobs.produce(dlq, [letter(1, "x")])
    job.wait_for_records(2)
    job.stop()


def test_a_process_ends_when_asked_though_its_broker_stands_still(
    folder: Path, own_broker: EmbeddedBroker
) -> None:
    """Until then `status --check` says that something is wrong."""
    settings_of("process", own_broker.bootstrap_servers, interval=1)
    process = start_process()
    try:
        assert check_status() == 0
        own_broker.pause()
        assert check_status() == 1
        process.send_signal(signal.SIGTERM)
        asked = time.monotonic()
        assert process.wait(timeout=PATIENCE) == 0, Path("job.log").read_text()
        assert time.monotonic() - asked < 60
    finally:
        own_broker.resume()
        process.kill()
        process.wait()
    eventually(lambda: not _lives(process.pid), "no process of its is left")


INTERVAL = 1500.0
"""Seconds between two attempts: longer than the test takes."""
SET_CLOCK = """
import pathlib, time
wall, ahead = time.time, pathlib.Path(__file__).with_name("ahead")
time.time = lambda: wall() + float(ahead.read_text())
time.time_ns = lambda: int(time.time() * 1e9)
"""
"""Every Python process of a job reads the wall's time as a test sets it (``sitecustomize``)."""


@pytest.mark.timeout(900)
def test_a_clock_set_forward_makes_nothing_early_whatever_begins_anew(
    folder: Path, own_broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart of the query, a new partition, and another process after a kill.

    Each at a time by which all would be due; the broker takes none that is an hour ahead.
    """
    servers = own_broker.bootstrap_servers
    Path("sitecustomize.py").write_text(SET_CLOCK)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    set_clock(-3000)
    settings_of("clock", servers, interval=INTERVAL)
    sent: list[int] = []

    def only_first_attempts(partition: int) -> None:
        """Two dead letters, one after the other, are handled, and nothing else is."""
        producer = Producer({"bootstrap.servers": servers})  # knows the partitions as they are now
        for _ in range(2):
            producer.produce("clock.dlq", partition=partition, **letter(2053, "nowhere"))
            assert producer.flush(PATIENCE) == 0
            sent.append(partition)
            eventually(lambda: len(outcomes()) >= len(sent), "it is handled")
        assert [outcome["attempt"] for outcome in outcomes()] == [1] * len(sent)

    def outcomes() -> list[dict[str, Any]]:
        records = read_records(servers, "redrive-clock-outcomes")
        return [json.loads(record.value) for record in records]

    process = start_process()
    try:
        only_first_attempts(0)
        set_clock(-1000)
        redrive("restart", "-c", "redrive.toml", code=0)
        only_first_attempts(0)
        set_clock(1000)
        admin = KafkaAdminClient(bootstrap_servers=servers)
        admin.create_partitions({"clock.dlq": NewPartitions(3)})
        admin.close()
        only_first_attempts(2)
        end_group(process)
        set_clock(3000)
        process = start_process()
        only_first_attempts(0)
    finally:
        end_group(process)


@pytest.mark.timeout(900)
def test_a_start_beside_commands_that_ask_who_runs_the_job_is_not_refused(
    folder: Path, own_broker: EmbeddedBroker
) -> None:
    """After kill -9, while other processes ask for the owner as often as they can."""
    settings_of("beside", own_broker.bootstrap_servers, interval=1)
    end_group(start_process())
    held = next(folder.rglob("redrive.pid")).parent
    asking = (
        "import sys; from pathlib import Path\n"
        "from redrive.checkpoints.instances import Share\n"
        "from redrive.operations.process import PidFile\n"
        "while True: PidFile(Path(sys.argv[1]), Share(1, 1)).owner()"
    )
    askers = [
        subprocess.Popen([sys.executable, "-c", asking, str(held)], start_new_session=True)
        for _ in range(2)
    ]
    try:
        end_group(start_process())
        redrive("status", code=0)
        end_group(start_process())
    finally:
        for asker in askers:
            end_group(asker)


OPEN = 190.0
"""Seconds that a transaction is open which hides dead letters."""


@pytest.mark.timeout(900)
def test_an_open_transaction_that_hides_dead_letters_is_told_until_it_ends(
    folder: Path, own_broker: EmbeddedBroker
) -> None:
    servers = own_broker.bootstrap_servers
    settings_of("hidden", servers, interval=1)
    process = start_process()
    opened = "an open transaction hides records"

    def warnings() -> list[str]:
        return [line for line in Path("job.log").read_text().splitlines() if opened in line]

    try:
        hiding = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": "importer-7",
                "transaction.timeout.ms": 300_000,
            }
        )
        hiding.init_transactions()
        hiding.begin_transaction()
        began = time.monotonic()
        hiding.produce("hidden.dlq", **letter(2053, "nowhere"), partition=0)
        hiding.flush()
        others = Producer({"bootstrap.servers": servers})
        for _ in range(30):
            others.produce("hidden.dlq", **letter(2053, "nowhere"), partition=0)
        others.flush()
        assert check_status() == 0
        eventually(warnings, "a warning")
        assert "importer-7" in warnings()[0]
        seconds = int(warnings()[0].partition("seconds=")[2].split()[0])
        assert 60 <= seconds < OPEN  # 61 on a free machine
        problem = json.loads(redrive("status", "--check", "--json", code=1).stdout)["problem"]
        assert "an open transaction on hidden.dlq:0 has hidden 31 records for " in problem
        assert "importer-7" in problem
        while time.monotonic() < began + OPEN:
            assert process.poll() is None
            time.sleep(1)
        problem = json.loads(redrive("status", "--check", "--json", code=1).stdout)["problem"]
        assert re.search(r"has hidden 31 records for ([3-9]|\d\d) min", problem)
        hiding.commit_transaction()
        eventually(lambda: check_status() == 0, "it has ended")
        ended = "the open transaction has ended"
        eventually(lambda: ended in Path("job.log").read_text(), "the log has its end")
        assert len(warnings()) == 1
    finally:
        end_group(process)


@dataclass
class Starter:
    """Processes of two applications that handle one queue, two instances each, and their words."""

    servers: str
    queue: str
    processes: dict[tuple[str, int], subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, kind: str, number: int, *options: str) -> None:
        """Starts an instance of ``run`` or of ``runmqdlq``."""
        words = {
            "run": ["run", "-c", "redrive.toml", "--directory", f"run{number}", *options],
            "runmqdlq": ["runmqdlq", self.queue, *options],
        }
        with self.log(kind, number).open("wb") as output, Path("shared.rul").open("rb") as table:
            self.processes[kind, number] = subprocess.Popen(
                [sys.executable, "-m", "redrive", *words[kind]],
                stdin=table,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "REDRIVE_BOOTSTRAP_SERVERS": self.servers},
            )

    @staticmethod
    def log(kind: str, number: int) -> Path:
        return Path(f"{kind}{number}.log")

    def has_begun(self, kind: str, number: int) -> bool:
        """Whether it handles messages, stands by or was refused."""
        words = ("handling the dead letters", "AMQ8708", "stands by")
        said = self.log(kind, number).read_text()
        return not self.runs(kind, number) or any(word in said for word in words)

    def runs(self, kind: str, number: int) -> bool:
        process = self.processes.get((kind, number))
        return process is not None and process.poll() is None

    def change(self, chance: random.Random, *chosen: tuple[str, int]) -> None:
        """Ends those that run, and starts the others, all at one moment."""
        for choice in chosen:
            if self.runs(*choice):
                self.end(*choice, chance.choice([signal.SIGKILL, signal.SIGTERM]))
            else:
                self.start(*choice)
        for choice in chosen:
            eventually(partial(self.has_begun, *choice), f"{choice} has begun")

    def count_refused(self) -> int:
        """Starts one instance of each application, and checks what a refused one says."""
        refused = 0
        for kind, other in (("run", self.queue), ("runmqdlq", "shop")):
            self.change(random.Random(), (kind, 1))
            if not self.runs(kind, 1):
                refused += 1
                *_, error, hint = self.log(kind, 1).read_text().splitlines()
                assert f"error: {self.queue} is handled by the application {other}" in error
                assert "hint: " in hint
        return refused

    def end_all(self) -> None:
        for process in self.processes.values():
            end_group(process)

    def end(self, kind: str, number: int, how: signal.Signals) -> None:
        process = self.processes[kind, number]
        if how is signal.SIGTERM:
            process.send_signal(how)
            process.wait(PATIENCE)
        end_group(process)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [17])
def test_two_applications_of_two_instances_put_each_message_once_in_any_order_of_starts(
    folder: Path, own_broker: EmbeddedBroker, seed: int
) -> None:
    del folder
    chance, queue, target = random.Random(seed), "shared.dlq", "shared.orders"
    servers = own_broker.bootstrap_servers
    settings_of("shared", servers, interval=1)
    settings = Path("redrive.toml")
    text = settings.read_text().replace('name = "shared"', 'name = "shop"\ninstance = "auto"', 1)
    settings.write_text(text)
    create(servers, NewTopic(target, 1, 1))
    producer = Producer({"bootstrap.servers": servers})
    starter, sent = Starter(servers, queue), 0
    every = [(kind, number) for kind in ("run", "runmqdlq") for number in (1, 2)]
    try:
        for step in range(8):
            for _ in range(20):
                record = letter(2053, target, b"%d" % sent)
                producer.produce(queue, partition=sent % 2, **record)
                sent += 1
            producer.flush()
            # At first both applications at one moment.
            starter.change(chance, *([every[0], every[2]] if step == 0 else [chance.choice(every)]))
        starter.end_all()
        if starter.count_refused() > 1:  # both began at one moment: neither has handled anything
            starter.start("run", 1, "--take-over", queue)
        read = partial(read_records, servers, target)
        eventually(lambda: len(read()) >= sent, "every message is put")
        assert sorted(int(record.value) for record in read()) == [*range(sent)]
    finally:
        starter.end_all()


@pytest.mark.timeout(900)
def test_a_worker_that_stands_still_is_ended_and_its_batch_is_handled_once(
    folder: Path, own_broker: EmbeddedBroker
) -> None:
    del folder
    servers, emitting = own_broker.bootstrap_servers, '[job]\nemitter = "lanes"\n'
    settings_of("still", servers, interval=1, more=emitting)
    queue, orders, later = "still.dlq", "still.orders", "still.later"
    create(servers, NewTopic(orders, 1, 1))
    producer, sent, log = Producer({"bootstrap.servers": servers}), 0, Path("job.log")

    def send() -> None:
        """A tenth of the dead letters is retried until its target is there."""
        nonlocal sent
        for _ in range(20):
            target = orders if sent % 10 else later
            producer.produce(queue, partition=sent // 10 % 2, **letter(2053, target, b"%d" % sent))
            sent += 1
        producer.poll(0)

    def is_put(least: int) -> bool:
        send()
        return process.poll() is not None or len(read_records(servers, orders)) >= least

    process = start_process()
    try:
        eventually(lambda: is_put(100), "both lanes are handled", every=0.5)
        stopped = next(
            worker for worker in processes_of(process.pid, "worker") if has_producer(worker)
        )
        os.kill(stopped, signal.SIGSTOP)
        eventually(lambda: is_put(0) and "was ended" in log.read_text(), "it is ended", every=0.5)
        assert f"pid={stopped}" in log.read_text()
        eventually(lambda: not Path(f"/proc/{stopped}").exists(), "its parent knows")
        more = len(read_records(servers, orders)) + 100
        eventually(lambda: is_put(more), "the lanes go on", every=0.5)
        create(servers, NewTopic(later, 1, 1))
        assert producer.flush(PATIENCE) == 0
        read = partial(read_records, servers, orders, later)
        eventually(lambda: len(read()) >= sent, "every message is put", every=1)
        assert sorted(int(record.value) for record in read()) == [*range(sent)]
    finally:
        end_group(process)


def settings_of(name: str, servers: str, *, interval: float, more: str = "") -> None:
    """Settings and a table, in this folder, of a job that tries again and again; and its topic."""
    create(servers, NewTopic(f"{name}.dlq", 2, 1))
    rules = f"RETRYINT({interval:g})\nACTION(RETRY) RETRY(9999)\n"
    write_settings(Path(), f"{name}.dlq", rules=rules, application=name, servers=servers, more=more)


def start_process() -> subprocess.Popen[bytes]:
    """A job of the settings in this folder, in a process group of its own, once it runs."""
    log = Path("job.log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "redrive", "run", "-c", "redrive.toml"],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    eventually(
        lambda: "handling the dead letters" in log.read_text() or process.poll() is not None,
        "the job runs",
    )
    assert process.poll() is None, log.read_text()
    return process


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def set_clock(ahead: float) -> None:
    """Sets the clock of all processes that ``SET_CLOCK`` was loaded by."""
    scratch = Path("ahead.new")
    scratch.write_text(f"{ahead:g}")
    scratch.replace("ahead")


def check_status() -> int:
    """The exit code of ``redrive status --check``."""
    return redrive("status", "--check").exit_code


def _lives(group: int) -> bool:
    """Whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@BOTH_EMITTERS
def test_a_program_that_drops_headers_has_its_rounds_and_no_more(
    jobs: Jobs, emitter: EmitterChoice
) -> None:
    """It writes a JSON envelope, with or without the offset of its record; the job starts anew."""
    dlq, dead, orders = jobs.topic("dlq"), jobs.topic("dead"), jobs.topic("orders")
    table = (
        "DIALECT(KAFKA) RETRYINT(1)\nACTION(RETRY) RETRY(4)\n"
        f"ACTION(FWD) FWDT('{dead}') HEADER(NO)\n"
    )
    values = [f"{scheme.__name__} always {n}".encode() for scheme in DROPPING for n in range(5)]
    configuration = jobs.configure({dlq: table}, schemes=(ENVELOPE, NAMELESS), emitter=emitter)
    running = jobs.start(configuration)
    jobs.produce(orders, [{"key": b"k", "value": value} for value in values])
    with failing_consumer(jobs.bootstrap_servers, dlq, orders) as processing:
        eventually(
            lambda: len(jobs.read(orders)) >= 3 * len(values) or running.error or processing.done(),
            "all have come back",
        )
        running.stop()
        second = jobs.start(configuration)
        eventually(
            lambda: len(jobs.read(dead)) >= len(values) or second.error or processing.done(),
            "all are given up",
        )
        second.stop()
    processing.result()
    assert Counter(jobs.values(dead)) == dict.fromkeys(values, 1)
    assert Counter(jobs.values(orders)) == dict.fromkeys(values, 1 + 4)
    messages = {message for job in (running, second) for message, _ in job.warnings}
    assert "a program drops headers" in messages


# -- a store of the ledger that is away ------------------------------------------------------------

AWAY = 120.0
"""Seconds that the store of a ledger is away."""


@pytest.mark.parametrize("is_silent", [False, True], ids=["closes connections", "never answers"])
def test_figures_are_right_again_after_the_store_of_the_ledger_was_away(
    jobs: Jobs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    *,
    is_silent: bool,
) -> None:
    dlq = jobs.topic("dlq")
    job = ServedJob(tmp_path, jobs.bootstrap_servers)
    request.addfinalizer(job.kill)

    def figure(name: str) -> float:
        values = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", job.get("/metrics")[1], re.MULTILINE)
        return sum(map(float, values))

    def remaining() -> float:
        return figure("redrive_remaining_messages")

    with S3.running(monkeypatch) as store:
        returned = threading.Event()

        def is_away(_method: str, _key: str) -> bool:
            if is_silent:
                returned.wait()
            return not returned.is_set()

        ledger = f'[ledger]\npath = "s3://{BUCKET}/x"\nendpoint = "{store.url}"\nregion = "eu"\n'
        settings = tmp_path / "redrive.toml"
        settings.write_text(f"{job.settings(dlq)}{ledger}allow_http = true\ninterval = 1\n")
        (tmp_path / "orders.rul").write_text("REASON(2030) ACTION(DISCARD)\n")
        jobs.produce(dlq, [letter(2053, "gone") for _ in range(240)])
        job.start(settings)
        job.says("handling the dead letters")
        eventually(lambda: remaining() == 240, "what remains is shown")

        store.dropped = is_away
        jobs.produce(dlq, [letter(2053, "gone") for _ in range(80)])
        away = time.time()
        time.sleep(AWAY)
        assert figure("redrive_broker_answer_timestamp_seconds") > away
        assert figure("redrive_ledger_answer_timestamp_seconds") < away + AWAY / 2
        returned.set()
        eventually(lambda: remaining() == 320, "what remains is right again")
        job.stopped()

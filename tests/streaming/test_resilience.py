"""Nothing that a broker, an operator or a single record does makes the job stand still."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic
from kafka.errors import MessageSizeTooLargeError
from tests.conftest import read_records
from tests.streaming.conftest import (
    PATIENCE,
    RunningJob,
    configuration_of,
    eventually,
    letter,
    outcomes_of,
)

from redrive.broker import EmbeddedBroker
from redrive.command import main
from redrive.configuration import DataLoss, EmitterChoice, JobConfiguration, LedgerConfiguration
from redrive.errors import ConfigurationError, FatalFault

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Configure = Callable[..., JobConfiguration]
StartJob = Callable[[JobConfiguration], RunningJob]

BOTH_EMITTERS = pytest.mark.parametrize("emitter", [EmitterChoice.DRIVER, EmitterChoice.LANES])
FOR_EVER = "RETRYINT(1)\nACTION(RETRY) RETRY(9999)\n"
"""A table that tries again until it works."""


def bodies(records: list[Any]) -> list[bytes]:
    """What records hold, sorted."""
    return sorted(record.value for record in records)


def refused_start(job: RunningJob) -> ConfigurationError:
    """Why a job did not start."""
    eventually(lambda: not job.is_alive, "the start was refused")
    assert isinstance(job.error, ConfigurationError), job.error
    return job.error


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
        admin = KafkaAdminClient(bootstrap_servers=servers)
        counts = {self.DEAD_LETTERS: 3, self.ORDERS: 2, self.DEAD: 1}
        topics = [NewTopic(name, count, 1) for name, count in counts.items()]
        admin.create_topics(topics, wait_for_metadata=True)
        admin.close()
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
        """Sends the next dead letters."""
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
        tries = Counter((one["origin"], one["attempt"]) for one in self._outcomes())
        assert set(tries.values()) == {1}
        assert bodies(self._read(self.ORDERS)) == sorted(b"%d" % n for n in numbers if n % 5)
        dead = self._read(self.DEAD)
        ends = sorted(int(record.value.rpartition(b"MQSTR   ")[2][12:]) for record in dead)
        assert ends == [n for n in numbers if n % 5 == 0]

    def _outcomes(self) -> list[dict[str, Any]]:
        return outcomes_of(self.job.configuration, self._read)

    def _finished(self) -> int:
        self.job.check()
        return sum(one["result"] in {"retried", "forwarded"} for one in self._outcomes())

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


@pytest.mark.timeout(900)
def test_a_broker_may_be_restarted_while_the_job_is_idle(
    traffic: Traffic, own_broker: EmbeddedBroker
) -> None:
    """What comes afterwards is handled as before."""
    traffic.send(20)
    traffic.audit()
    restart(own_broker)
    traffic.send(20)
    traffic.audit()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("outage", [restart, kill, pause])
def test_a_broker_may_go_under_load(
    outage: Callable[[EmbeddedBroker], None], traffic: Traffic, own_broker: EmbeddedBroker
) -> None:
    """Stopped, killed or standing still: everything is handled afterwards, nothing twice."""
    with traffic.load():
        time.sleep(2)
        outage(own_broker)
        time.sleep(2)
    traffic.audit()


# -- what operators do to the job's progress -------------------------------------------------------


def test_forgotten_offsets_are_found_again_in_the_outcomes(
    queues: Any, produce: Any, read_all: Any, admin: KafkaAdminClient,
    configure: Configure, start_job: StartJob,
) -> None:  # fmt: skip
    """Nothing is sent twice; with the outcomes gone too, the start is refused and says why."""
    dlq, orders = queues("dlq", partitions=2), queues("orders")
    table = "RETRYINT(1) WAIT(NO)\nREASON(2053) ACTION(RETRY) RETRY(2)\n"
    first = [letter(2053, orders, b"%d" % number) for number in range(10)]
    produce(dlq, [*first, letter(2053, "nowhere"), letter(1, "x")])
    configuration = configure({dlq: table})
    start_job(configuration).join()
    before = outcomes_of(configuration, read_all)
    admin.delete_groups([configuration.application])
    produce(dlq, [letter(2053, orders, b"%d" % number) for number in range(10, 15)])
    again = start_job(configuration)
    again.join()
    assert any("offsets are gone" in warning for warning, _ in again.warnings)
    assert bodies(read_all(orders)) == sorted(b"%d" % number for number in range(15))
    assert len(outcomes_of(configuration, read_all)) == len(before) + 5

    admin.delete_groups([configuration.application])
    admin.delete_records(
        {TopicPartition(configuration.outcomes_topic, number): -1 for number in range(4)}
    )
    error = refused_start(start_job(configuration))
    assert "do again everything that is still in the dead-letter topics" in str(error)
    assert "--reset-offsets" in str(error.hint)
    assert len(read_all(orders)) == 15


def test_parked_messages_that_are_gone_stop_the_start_unless_allowed(
    queues: Any, produce: Any, admin: KafkaAdminClient, configure: Configure, start_job: StartJob
) -> None:
    """Retention that overtakes the retry topic is told, not passed over."""
    dlq = queues("dlq")
    configuration = configure({dlq: "RETRYINT(3600)\nACTION(RETRY) RETRY(2)\n"})
    produce(dlq, [letter(2053, "nowhere") for _ in range(3)])
    job = start_job(configuration)
    job.wait_for_records(3)
    job.stop()
    retry_topic = configuration.handlers[0].identity.retry_topic
    admin.delete_records({TopicPartition(retry_topic, 0): 2})
    assert f"{retry_topic}:0 holds offsets 2 to" in str(refused_start(start_job(configuration)))
    allowed = start_job(replace(configuration, data_loss=DataLoss.CONTINUE))
    produce(dlq, [letter(2053, "nowhere")])
    allowed.wait_for_records(1)
    assert any(f"{retry_topic}:0" in str(facts) for _, facts in allowed.warnings)
    allowed.stop()


def test_own_topics_that_would_lose_messages_stop_the_start(
    queues: Any, admin: KafkaAdminClient, configure: Configure, start_job: StartJob
) -> None:
    """Every topic with another cleanup policy than its own is named, with what it needs."""
    dlq = queues("dlq")
    configuration = configure({dlq: "ACTION(DISCARD)\n"})
    remaining = configuration.handlers[0].identity.remaining_topic
    wrong = {remaining: "delete", configuration.outcomes_topic: "compact"}
    admin.create_topics(
        [NewTopic(name, 1, 1, topic_configs={"cleanup.policy": one}) for name, one in wrong.items()]
    )
    said = str(refused_start(start_job(configuration)))
    assert f"{remaining} has cleanup.policy=delete and needs compact" in said
    assert f"{configuration.outcomes_topic} has cleanup.policy=compact and needs delete" in said


def test_latest_loses_no_record_of_what_is_born_later(
    queues: Any, produce: Any, read_all: Any, admin: KafkaAdminClient, unique_name: Any,
    configure: Configure, start_job: StartJob,
) -> None:  # fmt: skip
    """It passes over what there was at the first start, and nothing else."""
    old, later = queues("dlq"), f"{unique_name('x')[-20:]}.later".lstrip(".-")
    produce(old, [letter(1, "x") for _ in range(3)])
    table = "ACTION(DISCARD)\n"
    configuration = configure({old: table, later: table}, starting_offsets="latest")
    job = start_job(configuration)
    assert job.is_started.wait(PATIENCE)
    admin.create_topics([NewTopic(later, 2, 1)], wait_for_metadata=True)
    admin.create_partitions({old: 2})
    produce(later, [letter(1, "x", partition=number % 2) for number in range(10)])
    eventually(lambda: _takes(produce, old, 1), "the new partition can be written")
    job.wait_for_records(11)
    job.stop()
    admin.create_partitions({old: 3})  # while no job runs
    eventually(lambda: _takes(produce, old, 2), "the new partition can be written")
    second = start_job(configuration)
    second.wait_for_records(1)
    second.stop()
    handled = Counter(
        (one["topic"], one["partition"]) for one in outcomes_of(configuration, read_all)
    )
    assert handled == {(later, 0): 5, (later, 1): 5, (old, 1): 1, (old, 2): 1}


def _takes(produce: Any, topic: str, partition: int) -> bool:
    """Whether a partition that was just made took a dead letter."""
    try:
        produce(topic, [letter(1, "x", partition=partition)])
    except AssertionError:  # the client's list of partitions is still the old one
        return False
    return True


def test_what_remains_of_a_topic_outlives_its_recreation(
    queues: Any, produce: Any, read_all: Any, admin: KafkaAdminClient,
    configure: Configure, start_job: StartJob,
) -> None:  # fmt: skip
    """The first record of the new topic does not take the place of the old one's first."""
    dlq = queues("dlq")
    configuration = configure({dlq: "WAIT(NO)\nREASON(1) ACTION(DISCARD)\n"})
    produce(dlq, [letter(2053, "x", b"old")])
    start_job(configuration).join()
    admin.delete_topics([dlq])
    eventually(lambda: dlq not in admin.list_topics(), "the topic is gone")
    admin.create_topics([NewTopic(dlq, 1, 1)], wait_for_metadata=True)
    produce(dlq, [letter(2053, "x", b"new")])
    start_job(replace(configuration, data_loss=DataLoss.CONTINUE)).join()
    copies = read_all(configuration.handlers[0].identity.remaining_topic)
    live = {record.key: record.value[-3:] for record in copies}
    assert live == {f"{dlq}:0:0".encode(): b"old", f"{dlq}~2:0:0".encode(): b"new"}


# -- what operators do to targets ------------------------------------------------------------------


def test_a_target_may_be_deleted_and_made_again(
    queues: Any, produce: Any, read_all: Any, admin: KafkaAdminClient,
    configure: Configure, start_job: StartJob,
) -> None:  # fmt: skip
    """Meanwhile attempts fail with 2085; afterwards every message arrives exactly once."""
    dlq, orders = queues("dlq", partitions=2), queues("orders")
    configuration = configure({dlq: FOR_EVER})
    job = start_job(configuration)
    produce(dlq, [letter(2053, orders) for _ in range(5)])
    job.wait_for_records(5)
    admin.delete_topics([orders])
    eventually(lambda: orders not in admin.list_topics(), "the topic is gone")
    produce(dlq, [letter(2053, orders, b"%d" % number) for number in range(20)])
    eventually(lambda: job.results().get("parked", 0) >= 40 or job.error, "two attempts failed")
    admin.create_topics([NewTopic(orders, 2, 1)], wait_for_metadata=True)
    eventually(lambda: job.results().get("retried", 0) >= 25 or job.error, "all were delivered")
    job.stop()
    assert bodies(read_all(orders)) == sorted(b"%d" % number for number in range(20))
    reasons = Counter(one["reason"] for one in outcomes_of(configuration, read_all))
    assert reasons.keys() == {0, 2085}
    assert reasons[0] == 25


def test_a_target_may_be_made_smaller(
    queues: Any, produce: Any, read_all: Any, admin: KafkaAdminClient,
    configure: Configure, start_job: StartJob,
) -> None:  # fmt: skip
    """Large messages fail with 2030 from then on, small ones of the same batch arrive."""
    dlq, orders = queues("dlq"), queues("orders")
    configuration = configure({dlq: "RETRYINT(3600)\nACTION(RETRY)\n"})
    job = start_job(configuration)
    produce(dlq, [letter(2053, orders, b"first")])
    job.wait_for_records(1)
    change = ConfigResource(ConfigResourceType.TOPIC, orders, {"max.message.bytes": "2000"})
    admin.alter_configs([change])
    eventually(lambda: _is_too_small(produce, orders), "the change has arrived")
    noise = random.Random(1)  # nothing that compression makes small
    small = [b"%d" % number for number in range(20)]
    produce(
        dlq, [letter(2053, orders, body) for one in small for body in (one, noise.randbytes(5000))]
    )
    job.wait_for_records(41)
    job.stop()
    arrived = [body for body in bodies(read_all(orders)) if len(body) < 2000]
    assert arrived == sorted([b"first", *small])
    reasons = [one["reason"] for one in outcomes_of(configuration, read_all)]
    assert Counter(reasons) == {0: 21, 2030: 20}


def _is_too_small(produce: Any, topic: str) -> bool:
    try:
        produce(topic, [{"value": bytes(5000)}])
    except MessageSizeTooLargeError:
        return True
    return False


def test_a_compacted_target_refuses_only_what_has_no_key(
    queues: Any, produce: Any, read_all: Any, configure: Configure, start_job: StartJob
) -> None:
    """Without a key an attempt fails with 2110; the others arrive."""
    dlq, latest = queues("dlq"), queues("latest", config={"cleanup.policy": "compact"})
    configuration = configure({dlq: "WAIT(NO) RETRYINT(1)\nACTION(RETRY)\n"})
    keys = [None, b"a", None, b"b"]
    produce(dlq, [letter(2053, latest, key=key) for key in keys])
    start_job(configuration).join()
    outcomes = sorted(outcomes_of(configuration, read_all), key=lambda one: one["offset"])
    assert [one["reason"] for one in outcomes if one["attempt"] == 1] == [2110, 0, 2110, 0]
    assert [record.key for record in read_all(latest)] == [b"a", b"b"]


# -- single records --------------------------------------------------------------------------------


@BOTH_EMITTERS
def test_records_of_any_shape_have_an_outcome(
    emitter: EmitterChoice, queues: Any, produce: Any, read_all: Any,
    configure: Configure, start_job: StartJob,
) -> None:  # fmt: skip
    """Large keys, headers and bodies, many headers, none at all: each is handled as it is."""
    large = {"max.message.bytes": str(8 * 1024 * 1024)}
    dlq, orders, big = queues("dlq", config=large), queues("orders"), queues("big", config=large)
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
    produce(dlq, records)
    table = (
        "WAIT(NO) RETRYINT(1)\n"
        "REASON(2053) ACTION(RETRY)\n"
        f"REASON(2053) ACTION(FWD) FWDQ('{big}')\n"
    )
    configuration = configure({dlq: table}, emitter=emitter)
    start_job(configuration).join()
    put = {record.value: record for record in read_all(orders)}
    assert put.keys() == {b"key", b"header", b"wide", b"", b"last"}
    assert put[b"key"].key == key
    assert ("large", value) in put[b"header"].headers
    assert [one for one in put[b"wide"].headers if one[0].startswith("h")] == wide
    assert [record.value[-len(body) :] for record in read_all(big)] == [body]
    outcomes = sorted(
        outcomes_of(configuration, read_all), key=lambda one: (one["offset"], one["attempt"])
    )
    first = [one for one in outcomes if one["topic"] == dlq]
    assert [(one["result"], one["reason"]) for one in first] == [
        ("retried", 0), ("retried", 0), ("retried", 0), ("parked", 2030), ("retried", 0),
        ("remains", 0), ("remains", 0), ("remains", 0), ("retried", 0),
    ]  # fmt: skip
    assert len(outcomes) == len(records) + 1
    remaining = read_all(configuration.handlers[0].identity.remaining_topic)
    assert [record.value for record in remaining] == [b"", b"", b"no header"]


def test_workers_keep_counts_and_order_over_slices_and_refusals(
    queues: Any, produce: Any, read_all: Any, admin: KafkaAdminClient,
    configure: Configure, start_job: StartJob,
) -> None:  # fmt: skip
    """Slices of 50 records, of which the broker refuses some for their age."""
    dlq = queues("dlq", partitions=3)
    orders = queues("orders", partitions=2)
    now = int(time.time() * 1000)
    refused = {number for number in range(30, 900) if number % 97 == 5}
    records = [
        letter(
            2053, orders, b"%d" % number, key=b"%d" % (number % 7),
            partition=number % 7 % 3, timestamp_ms=now - 7_200_000 * (number in refused),
        )
        for number in range(900)
    ]  # fmt: skip
    configuration = configure(
        {dlq: "RETRYINT(1)\nREASON(2053) ACTION(RETRY) RETRY(2)\n"},
        emitter=EmitterChoice.LANES,
        slice_records=50,
    )
    job = start_job(configuration)
    produce(dlq, records[:30])
    job.wait_for_records(30)
    # What the workers know of the topic is not true any more.
    recent = {"message.timestamp.before.max.ms": "3600000"}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, orders, recent)])
    produce(dlq, records[30:])
    job.wait_for_records(900 + len(refused))
    job.stop()
    courses: dict[bytes, list[int]] = {}
    for record in read_all(orders):
        courses.setdefault(record.key, []).append(int(record.value))
    assert all(a < b for course in courses.values() for a, b in pairwise(course))
    arrived = sorted(number for course in courses.values() for number in course)
    assert arrived == sorted(set(range(900)) - refused)
    assert job.results() == {
        "retried": 900 - len(refused), "parked": len(refused), "remains": len(refused),
    }  # fmt: skip
    reasons = Counter(one["reason"] for one in outcomes_of(configuration, read_all))
    assert reasons == {0: 900 - len(refused), 2110: 2 * len(refused)}


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
def test_an_enrichment_adds_a_header_to_what_is_decided(
    emitter: EmitterChoice, queues: Any, produce: Any, read_all: Any,
    configure: Configure, start_job: StartJob,
) -> None:  # fmt: skip
    """Every message has its own, behind those that it had."""
    dlq, orders = queues("dlq", partitions=2), queues("orders")
    produce(dlq, [letter(2053, orders, partition=number % 2) for number in range(10)])
    configuration = configure(
        {dlq: "WAIT(NO)\nACTION(RETRY)\n"}, emitter=emitter, enrichment=f"{__name__}:with_header"
    )
    start_job(configuration).join()
    added = [value for record in read_all(orders) for name, value in record.headers[3:4]]
    assert sorted(added) == sorted(b"%d" % number for number in [*range(5), *range(5)])


@BOTH_EMITTERS
def test_an_enrichment_that_drops_rows_ends_the_job_and_loses_none(
    emitter: EmitterChoice, queues: Any, produce: Any, read_all: Any,
    configure: Configure, start_job: StartJob,
) -> None:  # fmt: skip
    """The first row that it dropped is the first that the next start handles."""
    dlq, orders = queues("dlq"), queues("orders")
    produce(dlq, [letter(2053, orders, b"%d" % number) for number in range(10)])
    table = "WAIT(NO)\nACTION(RETRY)\n"
    configuration = configure({dlq: table}, emitter=emitter, enrichment=f"{__name__}:without_odd")
    job = start_job(configuration)
    eventually(lambda: not job.is_alive, "the job ended")
    assert isinstance(job.error, FatalFault), job.error
    assert "without_odd" in str(job.error) or "drops" in str(job.error)
    start_job(replace(configuration, enrichment="")).join()
    assert [record.value for record in read_all(orders)] == [b"%d" % n for n in range(10)]


# -- the job's own machine -------------------------------------------------------------------------


def test_a_ledger_that_cannot_be_written_does_not_end_the_job(
    queues: Any, produce: Any, tmp_path: Path, configure: Configure, start_job: StartJob
) -> None:
    """The job says so and runs on."""
    dlq, ledger = queues("dlq"), tmp_path / "ledger"
    ledger.write_text("a file in the folder's place")
    configuration = configure(
        {dlq: "ACTION(DISCARD)\n"}, ledger=LedgerConfiguration(path=ledger, enabled=True)
    )
    job = start_job(configuration)
    produce(dlq, [letter(1, "x")])
    job.wait_for_records(1)
    eventually(
        lambda: job.error or any("ledger" in warning for warning, _ in job.warnings),
        "the job said that the ledger can't be written",
    )
    produce(dlq, [letter(1, "x")])
    job.wait_for_records(2)
    job.stop()


@pytest.mark.timeout(900)
def test_a_process_ends_when_asked_though_its_broker_stands_still(
    own_broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then `status --check` says that something is wrong."""
    monkeypatch.chdir(tmp_path)
    servers = own_broker.bootstrap_servers
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([NewTopic("process.dlq", 2, 1)], wait_for_metadata=True)
    admin.close()
    Path("process.rul").write_text("RETRYINT(1)\nACTION(RETRY) RETRY(9999)\n")
    Path("redrive.toml").write_text(
        f'[application]\nname = "process"\n[kafka]\nbootstrap_servers = "{servers}"\n'
        '[[handlers]]\nqueue = "process.dlq"\nrules = "process.rul"\n'
    )
    log = Path("job.log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "redrive", "run", "-c", "redrive.toml"],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        eventually(lambda: "handling the dead letters" in log.read_text(), "the job runs")
        assert check_status() == 0
        own_broker.pause()
        assert check_status() == 1
        process.send_signal(signal.SIGTERM)
        asked = time.monotonic()
        assert process.wait(timeout=PATIENCE) == 0, log.read_text()
        assert time.monotonic() - asked < 60
    finally:
        own_broker.resume()
        process.kill()
        process.wait()
    eventually(lambda: not _lives(process.pid), "no process of its is left")


def check_status() -> int:
    """The exit code of ``redrive status --check``."""
    return CliRunner().invoke(main, ["status", "--check"]).exit_code


def _lives(group: int) -> bool:
    """Whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True

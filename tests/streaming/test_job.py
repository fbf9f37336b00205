"""The job on a real broker and a real Spark, audited by kafka-python."""

from __future__ import annotations

import json
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from kafka import TopicPartition
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from tests.commands import redrive
from tests.configurations import write_settings
from tests.conftest import KafkaClient, eventually
from tests.streaming.conftest import Jobs, RunningJob, configuration_of, letter

from redrive.checkpoints.control import ControlTopic
from redrive.checkpoints.instances import Share
from redrive.checkpoints.own_topics import state_topic
from redrive.checkpoints.tables import read_tables
from redrive.configuration import (
    DataLoss,
    EmitterChoice,
    HandlerConfiguration,
    JobConfiguration,
    Subscription,
)
from redrive.errors import (
    AlreadyRunningError,
    ConfigurationError,
    EnvironmentFault,
    TransientFault,
)
from redrive.java import find_java
from redrive.kafka.administration import TopicAdministration
from redrive.kafka.cluster import Cluster
from redrive.observe.observer import MetricsObserver
from redrive.operations.handlers import read_topics
from redrive.streaming import upkeep
from redrive.streaming.lifecycle import JobControl
from redrive.streaming.session import spark_archive
from redrive.streaming.start import StartFinder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# An old timestamp would let the broker delete the records of a test by their age.
STARTED = int(time.time() * 1000) - 2 * 3_600_000


class _InputRows(StreamingQueryListener):
    """Notes how many rows Spark says that it read, batch by batch."""

    def __init__(self, share: str) -> None:
        self._share = share
        self.rows: Counter[int] = Counter()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing was read yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        progress = event.progress
        share, _, _run = (progress.name or "").rpartition(" ")
        if share == self._share and progress.numInputRows:
            self.rows[progress.batchId] += progress.numInputRows

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing was read."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing will be read."""


@contextmanager
def _rows_that_spark_read(
    session: SparkSession, configuration: JobConfiguration
) -> Iterator[Counter[int]]:
    """The rows of each batch by Spark's own progress, while the job runs."""
    listener = _InputRows(f"redrive {configuration.application} {configuration.share}")
    session.streams.addListener(listener)
    try:
        yield listener.rows
    finally:
        session.streams.removeListener(listener)


@pytest.mark.parametrize("emitter", [EmitterChoice.DRIVER, EmitterChoice.LANES])
def test_each_dead_letter_goes_where_the_table_says_exactly_once(
    jobs: Jobs, emitter: EmitterChoice
) -> None:
    """Retried, forwarded, discarded, remaining: the message is unchanged, each has one outcome.

    What the job handled of each batch is what Spark counts as its input rows.
    """
    dlq, orders, dead = jobs.topic("dlq", partitions=3), jobs.topic("orders"), jobs.topic("dead")
    table = (
        "RETRYINT(1)\n"
        "REASON(2053) ACTION(RETRY)\n"
        "REASON(2051) ACTION(DISCARD)\n"
        f"REASON(2035) ACTION(FWD) FWDQ('{dead}')\n"
    )
    records = [
        letter(
            reason, orders, b"%d" % number, key=b"k%d" % (number % 5), timestamp_ms=STARTED + number
        )
        for number, reason in enumerate([2053, 2051, 2035, 9999] * 10)
    ]
    jobs.produce(dlq, [*records, {"value": b"no header"}, {"value": None, "key": b"null"}])
    configuration = jobs.configure({dlq: table}, emitter=emitter)
    with _rows_that_spark_read(jobs.spark, configuration) as read:
        job, observer = jobs.start(configuration), MetricsObserver(configuration)
        job.control.add_observer(observer)
        job.wait_for_records(42)
        handled = {batch.batch: batch.rows for batch in job.batches}
        # While the job runs: a query that is stopped behind a batch may not tell of it any more.
        eventually(lambda: read == handled, f"Spark's progress tells of the rows {handled}")
        job.stop()
    put = jobs.read(orders)
    assert sorted(int(record.value) for record in put) == list(range(0, 40, 4))
    for record in put:
        assert record.timestamp == STARTED + int(record.value)
        assert [h for h in record.headers if not h[0].startswith("redrive.")] == [
            ("JMS_IBM_MQMD_Format", b"MQSTR"), ("x", b"1"), ("x", b"2"),
        ]  # fmt: skip
    assert Counter(jobs.values(dead)) == Counter(r["value"] for r in records[2::4])
    results = Counter(outcome["result"] for outcome in jobs.outcomes(configuration))
    assert results == {"retried": 10, "discarded": 10, "forwarded": 10, "remains": 12}
    assert len(jobs.read(configuration.handlers[0].identity.remaining_topic)) == 12

    def metrics(name: str, **labels: str) -> float | None:
        of_job = {"application": configuration.application, **labels}
        return observer.metrics.registry.get_sample_value(name, of_job)

    by_result = {("2", "retried"): 10, ("3", "discarded"): 10, ("4", "forwarded"): 10}
    by_result |= {("", "remains"): 12}
    for (rule, result), count in by_result.items():
        labels = {"handler": dlq, "rule": rule, "result": result, "reason": ""}
        assert metrics("redrive_inputs_total", **labels) == count
    assert metrics("redrive_attempt_age_seconds_count", handler=dlq) == 42
    assert metrics("redrive_attempt_age_seconds_bucket", handler=dlq, le="3600.0") == 2
    for name in ("transaction_duration_seconds_count", "producers_opened_total", "epoch"):
        assert (metrics(f"redrive_{name}") or 0) > 0
    assert metrics("redrive_transaction_records_total") == 20 + 42 + 12


@pytest.mark.parametrize("emitter", [EmitterChoice.DRIVER, EmitterChoice.LANES])
def test_changed_tables_decide_while_the_query_goes_on(jobs: Jobs, emitter: EmitterChoice) -> None:
    dlq, dead = jobs.topic("dlq", partitions=2), jobs.topic("dead")
    first = replace(
        jobs.configure({dlq: "RETRYINT(3600)\nREASON(2053) ACTION(RETRY) RETRY(9)\n"}),
        emitter=emitter,
    )
    job = jobs.start(first)
    jobs.produce(
        dlq, [letter(2053, "nowhere") for _ in range(6)] + [letter(1, "x") for _ in range(4)]
    )
    job.wait_for_records(10)
    quick = f"RETRYINT(2)\nREASON(1) ACTION(FWD) FWDQ('{dead}')\nACTION(RETRY) RETRY(2)\n"
    second = replace(first, handlers=(replace(first.handlers[0], rules=quick),))
    job.control.request_restart(lambda: second)
    job.wait_for_records(10 + 4 + 2 * 6)  # each of the six has two attempts, 2 s apart
    assert (job.restarts, job.new_runs) == (1, 0)
    assert len(jobs.read(dead)) == 4
    last = replace(
        first, handlers=(replace(first.handlers[0], rules=f"ACTION(FWD) FWDQ('{dead}')"),)
    )
    job.control.request_restart(lambda: last)
    eventually(lambda: len(jobs.read(dead)) == 10, "what remained was placed")
    assert (job.restarts, job.new_runs) == (2, 0)
    job.control.request_restart(lambda: replace(last, slice_records=7))
    eventually(lambda: job.new_runs == 1, "other settings begin a run")
    jobs.produce(dlq, [letter(2, "y")])
    eventually(lambda: len(jobs.read(dead)) == 11, "the new run goes on")
    job.stop()
    retried = [outcome for outcome in jobs.outcomes(first) if outcome["action"] == "RETRY"]
    under_quick = [outcome for outcome in retried if outcome["rule_line"] == 3]
    for origin in {outcome["origin"] for outcome in under_quick}:
        early, late = sorted(
            outcome["time"] for outcome in under_quick if outcome["origin"] == origin
        )
        assert late - early >= 2_000


def test_a_missing_dead_letter_topic_is_waited_for_beside_others(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_LAYOUT_AGE", 0.5)
    here, later = jobs.topic("dlq"), jobs.unique_name("later")
    table = "ACTION(DISCARD)\n"
    job = jobs.start(jobs.configure({here: table, later: table}))
    jobs.produce(here, [letter(1, "x")])
    job.wait_for_records(1)
    assert any(facts.get("topic") == later for _, facts in job.notices)
    jobs.create(later, partitions=2)
    jobs.produce(later, [letter(1, "x", partition=1)])
    job.wait_for_records(2)


@pytest.mark.parametrize("others", [0, 1])
def test_a_job_that_wait_ends_fails_if_a_dead_letter_topic_does_not_exist(
    jobs: Jobs, others: int
) -> None:
    here = [jobs.topic("dlq") for _ in range(others)]
    for queue in here:
        jobs.produce(queue, [letter(1, "x")])
    missing = jobs.unique_name("missing")
    job = jobs.start(jobs.configure(dict.fromkeys([*here, missing], "WAIT(NO)\nACTION(DISCARD)\n")))
    eventually(lambda: not job.is_alive, "the job ended")
    assert job.records == others
    assert isinstance(job.error, EnvironmentFault)
    assert f"ends by WAIT, and {missing} does not exist" in job.error.message


def test_topics_of_a_subscription_come_and_go_while_the_job_runs(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_LAYOUT_AGE", 0.5)
    first, other, target = jobs.topic("dlq"), jobs.topic("not"), jobs.topic("target")
    later, excluded = f"{first}.later", f"{first}.test"
    jobs.create(excluded)
    table = "ACTION(RETRY)\n"
    whole = jobs.configure({first: table})
    template = replace(whole.handlers[0], is_subscribed=True)
    configuration = replace(
        whole,
        handlers=(),
        subscriptions=(
            Subscription(
                expressions=(f"{first}.*",), exclude=(".*test",), max_topics=500, handler=template
            ),
        ),
    )
    for topic in (first, other, excluded):
        jobs.produce(topic, [letter(2053, target, topic.encode())])
    job = jobs.start(configuration)
    job.wait_for_records(1)
    jobs.create(later, partitions=2)
    jobs.produce(later, [letter(2053, target, b"%d" % number) for number in range(5)])
    job.wait_for_records(6)
    assert [facts["added"] for said, facts in job.notices if "subscriptions" in said] == [later]
    jobs.admin.delete_topics([first])
    eventually(lambda: "does not exist yet" in str(job.notices), "the deleted one is waited for")
    known = read_topics(configuration.with_topics(jobs.admin.list_topics()))
    (gone,) = [topic for topic in known if topic.is_missing]
    assert gone.topic == first
    jobs.produce(later, [letter(2053, target, b"last")])
    job.wait_for_records(7)
    job.stop()
    placed = sorted(jobs.values(target))
    assert placed == sorted([b"0", b"1", b"2", b"3", b"4", b"last", first.encode()])


def test_two_instances_share_the_partitions_and_a_third_is_refused(jobs: Jobs) -> None:
    dlq = jobs.topic("dlq", partitions=4)
    table = "ACTION(DISCARD)\n"
    first = jobs.configure({dlq: table}, share=Share(1, 2))
    second = replace(first, share=Share(2, 2), directory=first.directory / "second")
    running = [jobs.start(first), jobs.start(second)]
    jobs.produce(dlq, [letter(1, "x", partition=number % 4) for number in range(40)])
    for job in running:
        job.wait_for_records(20)
    third = jobs.start(replace(first, share=Share(1, 4), directory=first.directory / "third"))
    eventually(lambda: third.error is not None, "the third instance was refused")
    assert isinstance(third.error, AlreadyRunningError)
    assert [job.records for job in running] == [20, 20]


def test_instances_that_come_and_go_share_the_partitions_out(jobs: Jobs) -> None:
    dlq = jobs.topic("dlq", partitions=4)

    def handle(*running: RunningJob) -> list[int]:
        before = [job.records for job in running]
        jobs.produce(dlq, [letter(1, "x", partition=number % 4) for number in range(40)])
        eventually(
            lambda: sum(job.records for job in running) >= sum(before) + 40, "all were handled"
        )
        return [job.records - known for job, known in zip(running, before, strict=True)]

    first = jobs.start(jobs.configure({dlq: "ACTION(DISCARD)\n"}, rebalances=True))
    assert handle(first) == [40]
    settings = first.configuration
    second = jobs.start(replace(settings, directory=settings.directory / "second"))
    eventually(second.is_started.is_set, "the second instance has its part")
    taken = "this instance took a share"
    eventually(lambda: (taken, {"share": "1/2"}) in first.notices, "the first gave its part up")
    assert handle(first, second) == [20, 20]
    first.stop()
    eventually(lambda: (taken, {"share": "1/1"}) in second.notices, "the second took over")
    assert handle(second) == [40]
    second.stop()
    assert len(jobs.outcomes(settings)) == 120


def test_second_application_is_refused_unless_it_handles_a_copy_on_purpose(jobs: Jobs) -> None:
    dlq = jobs.topic("dlq", partitions=2)
    table = {dlq: "ACTION(DISCARD)\n"}
    jobs.produce(dlq, [letter(1, "x", partition=number % 2) for number in range(10)])
    first = jobs.start(jobs.configure(table, application=f"{dlq}.first"))
    first.wait_for_records(10)
    second = jobs.configure(table, application=f"{dlq}.second")
    for running in (f"running: {socket.gethostname()}:{os.getpid()}", "not running"):
        error = jobs.start(second).refused()
        assert f"{dlq} is handled by the application {dlq}.first ({running})" in error.message
        assert f"{dlq}:0 to offset 5, {dlq}:1 to offset 5" in error.message
        assert f"--take-over {dlq}.first" in error.hint
        assert "--beside" in error.hint
        if first.is_alive:
            first.stop()
    assert second.control_topic not in Cluster(second.connection).topics()
    settings = write_settings(
        jobs.folder, dlq, application=second.application, servers=jobs.bootstrap_servers
    )
    printed = redrive("check", str(settings), code=0).stdout
    assert f"{dlq} is handled by the application {dlq}.first (not running)" in printed
    assert "[OTHER_APPLICATION]" in printed
    notes = json.loads(redrive("status", "-c", str(settings), "--json").stdout)["notes"]
    assert f"a start of {dlq}.second is refused" in " ".join(notes)
    copying = jobs.start(replace(second, beside=True))
    copying.wait_for_records(10)
    copying.stop()
    again = jobs.start(second)
    eventually(again.is_started.is_set, "it goes on")
    again.stop()
    assert again.records == 0


def test_application_continues_where_an_ended_one_has_stopped(jobs: Jobs) -> None:
    dlq = jobs.topic("dlq", partitions=2)
    table = {dlq: "REASON(1) ACTION(DISCARD)\nACTION(RETRY) RETRY(2)\n"}
    jobs.produce(dlq, [letter(1 + number // 4, "x", partition=number % 2) for number in range(6)])
    first = jobs.start(jobs.configure(table, application=f"{dlq}.first"))
    first.wait_for_records(6)
    taking = jobs.configure(table, application=f"{dlq}.second", take_over=f"{dlq}.first")
    second = jobs.start(taking)
    eventually(lambda: not second.is_alive, "the start was refused")
    assert isinstance(second.error, AlreadyRunningError)
    assert f"while it runs: {socket.gethostname()}:{os.getpid()}" in second.error.message
    first.stop()
    jobs.produce(dlq, [letter(1, "x", partition=number % 2) for number in range(4)])
    second = jobs.start(taking)
    second.wait_for_records(4)
    [facts] = [facts for message, facts in second.warnings if "are taken over" in message]
    assert (facts["parked"], facts["remaining"]) == (2, 0)
    error = jobs.start(first.configuration).refused()
    assert f"is handled by the application {dlq}.second (running" in error.message
    second.stop()
    assert second.records == 4
    back = jobs.start(replace(first.configuration, take_over=f"{dlq}.second"))
    jobs.produce(dlq, [letter(1, "x")])
    eventually(lambda: back.results().get("discarded") == 1, "the first one goes on")
    back.stop()


def test_an_instance_without_a_partition_is_well(jobs: Jobs) -> None:
    dlq = jobs.topic("dlq")
    shares = [Share(1, 2), Share(2, 2)]
    idle, busy = sorted(shares, key=lambda share: share.owns(TopicPartition(dlq, 0)))
    first = jobs.configure({dlq: "ACTION(DISCARD)\n"}, share=idle)
    waiting = jobs.start(first)
    eventually(waiting.is_started.is_set, "it has started")
    working = jobs.start(replace(first, share=busy, directory=first.directory / "second"))
    jobs.produce(dlq, [letter(1, "x")])
    working.wait_for_records(1)
    waiting.stop()
    working.stop()
    assert (waiting.records, waiting.warnings) == (0, [])


def test_what_is_purged_behind_an_aborted_transaction_ends_no_run(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_PURGE_AGE", 0.5)
    dlq = jobs.topic("dlq")
    configuration = jobs.configure({dlq: "RETRYINT(1)\nACTION(RETRY) RETRY(2)\nACTION(DISCARD)\n"})
    running = jobs.start(configuration)
    retry = configuration.handlers[0].identity.retry_topic
    producer = Producer({"bootstrap.servers": jobs.bootstrap_servers, "transactional.id": dlq})
    producer.init_transactions(60)
    for number in (1, 2):
        jobs.produce(dlq, [letter(2085, "nowhere")])
        running.wait_for_records(3 * number)  # tried twice, then discarded
        later = int(time.time() * 1000) + 2_000  # due when the copies were purged
        producer.begin_transaction()
        producer.produce(retry, b"aborted", partition=0, timestamp=later)
        producer.flush(60)
        producer.abort_transaction(60)
        time.sleep(4)
    running.stop()
    assert running.results() == {"parked": 4, "discarded": 2}
    assert not [message for message, _ in running.warnings if "run of the query" in message]


def test_a_topic_that_was_made_anew_stops_the_start_unless_allowed(jobs: Jobs) -> None:
    dlq = jobs.topic("dlq")
    configuration = jobs.configure({dlq: "WAIT(NO)\nACTION(DISCARD)\n"})
    jobs.produce(dlq, [letter(1, "x"), letter(1, "x")])
    jobs.start(configuration).join()
    jobs.delete(dlq)
    jobs.create(dlq)
    jobs.produce(dlq, [letter(1, "x") for _ in range(5)])
    assert "recreated" in str(jobs.start(configuration).refused())
    allowed = jobs.start(replace(configuration, on_data_loss=DataLoss.CONTINUE))
    allowed.join()
    assert allowed.records == 5


def test_a_folder_that_cannot_be_written_is_waited_for(jobs: Jobs) -> None:
    dlq = jobs.topic("dlq")
    configuration = jobs.configure({dlq: "ACTION(DISCARD)\n"})
    job = jobs.start(configuration)
    jobs.produce(dlq, [letter(2053, "x")])
    job.wait_for_records(1)
    # A file in the folder's place is refused as a full disk refuses: by an error of the machine.
    folder = configuration.own_directory
    moved = folder.rename(folder.with_name("moved"))
    folder.write_text("")
    job.control.request_restart(lambda: configuration)
    eventually(
        lambda: any("cannot be written" in str(facts.get("error")) for _, facts in job.warnings),
        "the job said that it waits",
    )
    assert job.is_alive
    folder.unlink()
    moved.rename(folder)
    jobs.produce(dlq, [letter(2053, "y")])
    job.wait_for_records(2)
    job.stop()


def _open_clients() -> int:
    """The clients of librdkafka in this process, where the kernel names its threads."""
    threads = Path("/proc/self/task").glob("*/comm")
    return sum(_name_in(thread) == "rdk:main" for thread in threads)


def _name_in(file: Path) -> str:
    """The name of a thread, which may end meanwhile."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def test_a_restart_in_the_process_takes_new_tables_and_refuses_wrong_ones(jobs: Jobs) -> None:
    """Errors leave the old job running; a good table goes live without a new process.

    No client of any of its runs is open when the job has ended.
    """
    dlq, dead = jobs.topic("dlq"), jobs.topic("dead")
    before = _open_clients()
    configuration = jobs.configure({dlq: "REASON(2053) ACTION(IGNORE)\n"})
    job = jobs.start(configuration)
    jobs.produce(dlq, [letter(2053, "x")])
    job.wait_for_records(1)

    def wrong() -> JobConfiguration:
        raise ConfigurationError("the table has errors")

    job.control.request_restart(wrong)
    eventually(lambda: job.refusals, "the wrong table was refused")
    assert job.is_alive
    # What Kafka contradicts is no different: a topic of the new application's would lose messages.
    other = jobs.topic("other.dlq")
    identity = replace(configuration.handlers[0].identity, name=other, queue=other, topic=other)
    spoilt = jobs.topic("spoilt", config={"cleanup.policy": "compact"})
    identity = replace(identity, retry_topic=spoilt, replay_topic="")
    doubtful = HandlerConfiguration(identity=identity, rules="ACTION(IGNORE)\n", rules_name="o")
    both = (*configuration.handlers, doubtful)
    job.control.request_restart(lambda: replace(configuration, handlers=both))
    eventually(lambda: len(job.refusals) > 1, "the settings that Kafka contradicts were refused")
    assert "would lose messages" in str(job.refusals[-1])
    handler = replace(configuration.handlers[0], rules=f"ACTION(FWD) FWDQ('{dead}')\n")
    job.control.request_restart(lambda: replace(configuration, handlers=(handler,)))
    eventually(lambda: job.restarts == 1, "the new table was taken")
    job.wait_for_records(2)
    assert len(jobs.read(dead)) == 1
    job.stop()
    eventually(lambda: _open_clients() <= before, "all clients of the job were closed")
    with Cluster(configuration.connection) as cluster:
        kept = read_tables(cluster, configuration.tables_topic).tables
    assert [record.text for record in kept] == [handler.rules, configuration.handlers[0].rules]
    # What an outcome names was kept before it was decided.
    for outcome in jobs.outcomes(configuration):
        [table] = [record for record in kept if record.hash.startswith(outcome["table"])]
        assert table.first_run * 1000 < outcome["time"] + 1


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system has no /proc")
def test_spark_uses_the_archive_of_classes_that_the_set_up_made(jobs: Jobs) -> None:
    gateway = jobs.spark.sparkContext._gateway
    assert gateway is not None
    maps = Path(f"/proc/{gateway.proc.pid}/maps").read_text()
    assert str(spark_archive(find_java()).path) in maps


def test_spark_looks_for_no_sources_of_packages(jobs: Jobs) -> None:
    jvm = jobs.spark.sparkContext._jvm
    assert jvm is not None
    assert jvm.java.lang.System.getenv("PYSPARK_DRIVER_PYTHON") == os.devnull
    assert os.environ["PYSPARK_DRIVER_PYTHON"] != os.devnull  # a spark-submit of the user's runs it


def test_a_new_topic_that_the_broker_does_not_show_yet_is_not_called_deleted(
    kafka: KafkaClient, bootstrap_servers: str, tmp_path: Path
) -> None:
    source = kafka.topic("dlq")
    configuration = configuration_of(tmp_path, bootstrap_servers, {source: "ACTION(RETRY)\n"})
    control = state_topic(configuration.control_topic)
    TopicAdministration(configuration.connection).ensure([control])
    with (
        Cluster(configuration.connection) as cluster,
        ControlTopic(cluster, configuration.control_topic) as entries,
        pytest.raises(TransientFault, match=r"does not show topic .*-remaining, or not yet"),
    ):
        StartFinder(configuration, JobControl(), cluster, entries).find({source: 1})

"""``redrive status`` says what a plain reader of the topics finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast

import orjson
import pytest
from tests.conftest import KafkaClient
from tests.outcomes.small_job import SmallJob, dead_letter

from redrive.errors import TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.records import StoredRecord
from redrive.messages import TopicPartition
from redrive.outcomes.ledger import Unseen
from redrive.outcomes.rows import moment
from redrive.outcomes.status import Precision, _count_records, _Queues, invalid_remaining, status_of
from redrive.outcomes.storage import local_path


@pytest.fixture
def job(small_job: SmallJob, now: int) -> SmallJob:
    """Dead letters of every fate: retried later, forwarded, discarded, remaining, invalid."""
    letters = [
        dead_letter(1, "2053", small_job.target),
        dead_letter(2, "2053", "nowhere"),
        dead_letter(3, "2053", "nowhere"),
        dead_letter(4, "2085"),
        dead_letter(5, "2051"),
        dead_letter(6, "2030"),
        {"key": b"invalid", "value": b"no header"},
        dead_letter(8, "2053", "nowhere"),
    ]
    for number, letter in enumerate(letters):
        letter |= {"partition": number % 2, "timestamp_ms": now - 600_000 + number}
    small_job.produce(letters)
    return small_job


def _naive(job: SmallJob) -> dict[str, Any]:
    """What the topics say, counted record by record with kafka-python."""
    identity = job.identity
    live: dict[bytes, Any] = {}
    for record in job.kafka.read(identity.remaining_topic):
        live.pop(record.key, None)
        if record.value is not None:
            live[record.key] = record
    outcomes = [
        orjson.loads(record.value) for record in job.kafka.read(job.configuration.outcomes_topic)
    ]
    remaining_now = {
        outcome["origin"]: outcome for outcome in outcomes if outcome["origin"].encode() in live
    }
    return {
        "depth": len(job.waiting(identity.topic)),
        "parked": len(job.waiting(identity.retry_topic)),
        "remaining": len(live),
        "quarantined": 0,
        "invalid": sum(outcome["form"] == "none" for outcome in remaining_now.values()),
        "totals": dict(Counter(outcome["result"] for outcome in outcomes)),
    }


def _answered(job: SmallJob) -> dict[str, Any]:
    [handler] = status_of(job.configuration).handlers
    assert handler.parked.precision is handler.remaining.precision is Precision.EXACT
    return {
        "depth": handler.waiting,
        "parked": handler.parked.number,
        "remaining": handler.remaining.number,
        "quarantined": handler.quarantined.number,
        "invalid": handler.invalid,
        "totals": handler.results.in_all,
    }


def test_a_partition_without_a_leader_is_named_and_hides_nothing_of_the_others(
    job: SmallJob, now: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.step(now - 400_000)
    silent = TopicPartition(job.identity.topic, 0)
    monkeypatch.setattr(Cluster, "leaderless", lambda _, lanes: frozenset({silent} & {*lanes}))
    asked = Cluster.extents

    def extents(self: Cluster, lanes: list[TopicPartition]) -> Any:
        assert silent not in lanes
        return asked(self, lanes)

    monkeypatch.setattr(Cluster, "extents", extents)
    status = status_of(job.configuration)
    (handler,) = status.handlers
    assert handler.waiting is None
    assert handler.results.in_all == _naive(job)["totals"]
    assert [str(silent) in note for note in status.notes[:1]] == [True]


def test_numbers_are_those_of_a_plain_reader_after_every_batch(job: SmallJob, now: int) -> None:
    assert _answered(job) == _naive(job) | {"totals": {}}
    for number in range(5):
        job.step(now - 400_000 + number * 60_000, most=3)
        assert _answered(job) == _naive(job)
    job.step(now, evaluate_remaining=True)
    assert _answered(job) == _naive(job)
    assert _naive(job)["totals"] == {
        "retried": 1,
        "forwarded": 1,
        "discarded": 1,
        "parked": 6,
        "remains": 10,
    }
    assert _naive(job)["remaining"] == 5


def test_messages_without_a_header_are_counted_from_what_remains(job: SmallJob, now: int) -> None:
    """The number is that of ``redrive status``, without a ledger; what was placed is left out."""
    with Cluster(job.configuration.connection) as cluster:
        job.step(now - 400_000)
        assert invalid_remaining(job.configuration, cluster) == {job.identity.queue: 1}
        assert _answered(job)["invalid"] == 1
        job.kafka.produce(
            job.identity.remaining_topic, [{"key": b"another", "value": b"no header"}]
        )
        assert invalid_remaining(job.configuration, cluster) == {job.identity.queue: 2}
        [invalid] = [
            record
            for record in job.kafka.read(job.identity.remaining_topic)
            if record.value == b"no header" and record.key != b"another"
        ]
        tombstone = {"key": invalid.key, "value": None, "partition": invalid.partition}
        job.kafka.produce(job.identity.remaining_topic, [tombstone])
        assert invalid_remaining(job.configuration, cluster) == {job.identity.queue: 1}


def test_the_next_retry_is_due_an_interval_after_the_failed_attempt(
    job: SmallJob, now: int
) -> None:
    job.step(now)
    placed = {"key": b"placed", "value": b"old", "timestamp_ms": now - 900_000}
    job.kafka.produce(job.identity.remaining_topic, [placed])  # its tombstone is not compacted yet
    [handler] = status_of(job.configuration).handlers
    assert handler.next_due == moment(now + 60_000)
    assert handler.oldest == moment(now - 600_000 + 1)


def test_rates_count_the_last_minute_and_the_last_hour(small_job: SmallJob, now: int) -> None:
    small_job.produce([dead_letter(1, "2051", partition=0) for _ in range(6)])
    ages = (7_200_000, 600_000, 1_000)
    for count, age in zip((3, 2, 1), ages, strict=True):
        small_job.step(now - age, most=count)
    answer = status_of(small_job.configuration, now=moment(now))
    [handler] = answer.handlers
    assert handler.results.in_all == {"discarded": 6}
    assert handler.results.last_hour == {"discarded": 3}
    assert handler.results.last_minute == {"discarded": 1}
    assert [(batch.time, batch.results) for batch in answer.batches] == [
        (moment(now - age), {"discarded": count})
        for age, count in ((1_000, 1), (600_000, 2), (7_200_000, 3))
    ]


def test_without_the_outcomes_the_topics_are_counted(
    kafka: KafkaClient, job: SmallJob, now: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.step(now - 400_000)
    job.step(now - 300_000)
    naive = _naive(job)
    headers = [("redrive.quarantine", b"1"), ("redrive.origin", b"orders:0:7")]
    kafka.produce(job.identity.remaining_topic, [{"key": b"x", "value": b"", "headers": headers}])
    missing = Unseen({}, {TopicPartition(job.configuration.outcomes_topic, 0): 1})
    monkeypatch.setattr("redrive.outcomes.ledger.outcomes_unseen", lambda *_: missing)
    answer = status_of(job.configuration)
    [handler] = answer.handlers
    assert (handler.parked.number, handler.remaining.number) == (
        naive["parked"], naive["remaining"],
    )  # fmt: skip
    quarantined = handler.quarantined
    assert (quarantined.number, quarantined.precision) == (1, Precision.EXACT)
    assert (handler.invalid, answer.outcomes, handler.results.in_all) == (None, None, {})
    (note,) = answer.notes
    assert note.startswith("the oldest outcomes were deleted from their topic")
    assert (note.endswith("; results are unknown"), answer.gap) == (True, "")


def test_what_could_not_be_counted_in_time_is_not_known(
    job: SmallJob, now: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of a number is no number: it is shown as ?, and --check is not 0."""
    job.step(now)
    monkeypatch.setattr("redrive.kafka.cluster.Cluster.read", _late)
    monkeypatch.setattr("redrive.kafka.cluster.Cluster.instances", lambda *_: ("host:1",))
    answer = job.run("status", "--check", code=1)
    [row] = [line for line in answer.stdout.splitlines() if line.startswith("orders ")]
    assert row.split()[3:6] == ["?", "?", "?"]
    assert "not all of them could be read in time" in answer.stdout
    status = job.json_of("status")
    assert status["problem"].startswith(
        "the number of waiting messages is unknown: there is no ledger in "
    )
    assert status["handlers"][0]["remaining"] == {"number": None, "precision": "unknown"}


def _late(*_: Any, **__: Any) -> Iterator[Any]:
    """Reading that has no time."""
    yield from ()
    raise TransientFault("too late")


def test_a_ledger_that_cannot_be_read_hides_nothing_that_the_broker_tells(
    job: SmallJob, now: int
) -> None:
    job.step(now)
    broken = local_path(job.configuration.ledger.path) / "_delta_log" / "00000000000000000000.json"
    broken.parent.mkdir(parents=True)
    broken.write_text("nothing that was written")
    answer = job.run("status", "--json", code=0)
    status = orjson.loads(answer.stdout)
    [handler] = status["handlers"]
    assert handler["waiting"] == _naive(job)["depth"]
    assert handler["parked"] == {"number": _naive(job)["parked"], "precision": "exact"}
    assert (status["outcomes"], handler["invalid"]) == (None, None)
    shown = job.run("status").stdout
    assert "cannot be used" in shown
    assert "No outcomes yet" not in shown


def test_an_empty_job_is_said_to_be_empty(small_job: SmallJob) -> None:
    answer = small_job.run("status", code=0)
    assert "No outcomes yet" in answer.output
    assert "not running" in answer.output


@pytest.mark.parametrize(
    ("offsets", "depth"),
    [
        ([4], (1, True)),  # one message and a marker
        ([], (0, True)),  # markers alone
        ([4, 5], (2, True)),
    ],
)
def test_markers_of_transactions_are_no_waiting_messages(
    offsets: list[int], depth: tuple[int, bool]
) -> None:
    lane = TopicPartition("dlq", 0)
    first: dict[TopicPartition, StoredRecord] = {}
    records = [StoredRecord(lane, offset, 0, None, b"x", []) for offset in offsets]
    cluster = cast("Cluster", Records(records))
    counts = _count_records(cluster, {lane: 4}, {lane: 6}, {"dlq"}, first)
    queues = _Queues(cluster, (), {lane: 2}, first, counts)
    assert queues.depth("dlq") == depth
    assert list(first) == [lane] * bool(offsets)


def test_many_offsets_are_not_counted() -> None:
    lane = TopicPartition("dlq", 0)
    record = StoredRecord(lane, 0, 0, None, b"x", [])
    cluster = cast("Cluster", Records([record]))
    counts = _count_records(cluster, {lane: 0}, {lane: 5_000}, {"dlq"}, {})
    queues = _Queues(cluster, (), {lane: 5_000}, {}, counts)
    assert queues.depth("dlq") == (5_000, False)


class Records:
    """A cluster with some records."""

    def __init__(self, records: list[StoredRecord]) -> None:
        self._records = records

    def read(
        self, _: object, *, seconds: float, until: Callable[[StoredRecord], bool]
    ) -> Iterator[StoredRecord]:
        """The records, up to the first that is enough."""
        del seconds
        for record in self._records:
            yield record
            if until(record):
                return

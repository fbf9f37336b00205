"""A put lives: its record gets a timestamp with which the target keeps it, and names its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine import jobs
from tests.engine.failed_processing import connect, spring, spring_retry_topic, streams
from tests.engine.jobs import MemoryJob
from tests.engine.known_cluster import KnownCluster
from tests.engine.samples import handler_of, outcomes_in, slice_of, written

from redrive.engine.decision import TimestampMode
from redrive.engine.facts import Original, RecordQuestion, TopicFacts
from redrive.engine.sources import SourceKind
from redrive.messages import DeadLetterDecoder, Headers, OutputRecord, Records, SchemeTable
from redrive.messages.schemes import OwnScheme
from redrive.operations.put import NewMessage
from redrive.topology.layout import SourceText
from redrive.topology.names import put_topic

DAY: Final = 86_400_000
NOW: Final = 20_000 * DAY
WAIT: Final = 2
"""Seconds of RETRYINT."""
ROUNDS: Final = f"DIALECT(KAFKA) RETRYINT({WAIT})\nACTION(RETRY) RETRY(3)\n"
ENVELOPE: Final = OwnScheme(
    name="envelope",
    recognise="$.error",
    payload="$.payload",
    parts={"origin.topic": "$.topic", "error.class": "$.error"},
)
SCHEMES: Final = SchemeTable([ENVELOPE.scheme()])
TARGETS: Final = {
    "a day": TopicFacts(retention=DAY),
    "seven days": TopicFacts(retention=7 * DAY),
    "forever": TopicFacts(),
    "compacts": TopicFacts(wants_keys=True),
    "compacts and deletes": TopicFacts(wants_keys=True, retention=DAY),
    "stamps by append": TopicFacts(retention=DAY, stamps_records=True),
    "accepts an hour": TopicFacts(timestamp_before_max=3_600_000),
}


def envelope(record: OutputRecord, offset: int, now: int) -> OutputRecord:
    """A program that wraps the value, and names no timestamp."""
    del offset
    failure = {"topic": record.topic, "error": "E", "payload": (record.value or b"").decode()}
    return OutputRecord("DLQ", record.key, json.dumps(failure).encode(), record.headers, now)


class Life(NamedTuple):
    """One step of a message: what the job writes for a record."""

    puts: list[OutputRecord]
    parked: list[OutputRecord]
    details: list[str]


def decided(
    read: OutputRecord,
    kind: SourceKind,
    now: int,
    cluster: KnownCluster,
    mode: TimestampMode = TimestampMode.AUTO,
    table: str = ROUNDS,
) -> Life:
    """What the job writes for one record at a time in milliseconds."""
    handler = handler_of(table, schemes=SCHEMES, timestamps=mode)
    records = Records([read.key], [read.value], [read.headers or []], [read.timestamp], [0])
    decoder = DeadLetterDecoder()
    outputs = cluster.decided(slice_of(records, handler, kind=kind, now=now, decoder=decoder))
    details = [outcome["detail"] for outcome in outcomes_in(outputs)]
    return Life(written(outputs, "orders"), written(outputs, "RETRY"), details)


def own_time_of(record: OutputRecord) -> int:
    """The timestamp that a record says is its own."""
    return int(dict(record.headers or []).get("redrive.timestamp") or record.timestamp)


@pytest.mark.parametrize("age", [600_000, 12 * DAY])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("scheme", [connect, spring, spring_retry_topic, streams, envelope])
def test_every_round_of_a_dead_letter_lives_waits_and_has_its_own_timestamp(
    scheme: Callable[[OutputRecord, int, int], OutputRecord], target: str, age: int
) -> None:
    facts = TARGETS[target]
    own_time = NOW - age
    record = OutputRecord("orders", b"k", b"{}", [], own_time)
    is_old = age > DAY
    failed_at, now = own_time + 1000 if is_old else NOW - 300, NOW
    if scheme is envelope:  # it names no other one
        own_time = failed_at
    for offset in range(3):
        letter = scheme(record, offset, failed_at)
        original = Original(record.key, record.value, record.headers or [], record.timestamp)
        at = RecordQuestion("orders", 0, offset)
        cluster = KnownCluster({"orders": facts}, records={at: original})
        life = decided(letter, SourceKind.DEAD_LETTERS, now, cluster)
        if not life.puts:
            now = life.parked[0].timestamp + 1000 * WAIT
            life = decided(life.parked[0], SourceKind.RETRIES, now, cluster)
        (put,) = life.puts
        assert now - failed_at >= 1000 * WAIT
        if facts.stamps_records:
            put = put._replace(timestamp=now)
        assert put.timestamp >= now - facts.retention // 2
        assert now - put.timestamp <= facts.timestamp_before_max
        assert own_time_of(put) == own_time
        is_renewed = put.timestamp != own_time and not facts.stamps_records
        assert ("with the time of the put" in life.details[0]) is is_renewed
        record, failed_at, now = put, now + 500, now + 800


HEADERS: Final[list[Headers]] = [
    [("mqdlh.Reason", b"2053"), ("mqdlh.DestQName", b"orders")],
    *(
        scheme(OutputRecord("orders", b"k", b"{}", [], at), 7, NOW - 5000).headers or []
        for scheme, at in product((connect, spring, spring_retry_topic), (0, NOW - 9 * DAY))
    ),
    [("dead-letter-reason", b"no"), ("dead-letter-topic", b"orders")],
    [
        ("delayed-retry-topic", b"orders"),
        ("delayed-retry-original-timestamp", b"%d" % (NOW - 9 * DAY)),
    ],
    [("delayed-retry-topic", b"orders"), ("delayed-retry-original-timestamp", b"nonsense")],
]
TABLES: Final = [ROUNDS, "ACTION(RETRY)\n", "ACTION(FWD) FWDQ('orders') HEADER(YES)\n"]
TIMES: Final = [0, 77, NOW - 9 * DAY, NOW - 5000, NOW + DAY]


@given(
    st.sampled_from(HEADERS),
    st.sampled_from(TABLES),
    st.sampled_from([*TARGETS.values(), TopicFacts(timestamp_after_max=50)]),
    st.sampled_from(TimestampMode),
    st.lists(st.sampled_from(TIMES), min_size=1, max_size=5),
)
def test_prepared_puts_have_the_timestamps_of_all_others(
    headers: Headers, table: str, facts: TopicFacts, mode: TimestampMode, times: list[int]
) -> None:
    rows = len(times)
    batch = [[b"k"] * rows, [b"x"] * rows, [headers] * rows, times, [*range(rows)]]
    odd: list[list[object]] = [[b"k"], [b"x"], [[("redrive.hops", b"1")]], [5], [rows]]
    alike = Records(*batch)  # type: ignore[arg-type]  # columns of one record type each
    mixed = Records(*(column + more for column, more in zip(batch, odd, strict=True)))  # type: ignore[operator]  # as above
    cluster = KnownCluster({"orders": facts})
    quick, careful = (
        cluster.decided(slice_of(records, handler_of(table, timestamps=mode), now=NOW))
        for records in (alike, mixed)
    )
    assert quick == careful[: len(quick)]


def test_a_forwarded_dead_letter_keeps_its_own_timestamp_not_that_of_its_record() -> None:
    failed_at = NOW - DAY
    letter = spring(OutputRecord("orders", b"k", b"{}", [], NOW - 9 * DAY), 1, failed_at)
    for facts in (TopicFacts(), TopicFacts(retention=DAY)):
        life = decided(
            letter,
            SourceKind.DEAD_LETTERS,
            NOW,
            KnownCluster({"orders": facts}),
            table="ACTION(FWD) FWDQ('orders')\n",
        )
        assert own_time_of(life.puts[0]) == failed_at


def test_a_waiting_copy_keeps_the_timestamp_of_the_record_that_came_back() -> None:
    facts = TopicFacts(retention=DAY)
    cluster = KnownCluster({"orders": facts})
    first = decided(
        envelope(OutputRecord("orders", b"k", b"{}", [], 5), 0, NOW - 9 * DAY),
        SourceKind.DEAD_LETTERS,
        NOW,
        cluster,
    )
    (put,) = decided(first.parked[0], SourceKind.RETRIES, NOW + 3000, cluster).puts
    again = envelope(put, 1, NOW + 4000)
    kept = handler_of("DIALECT(KAFKA)\nACTION(IGNORE)\n", schemes=SCHEMES)
    records = Records([again.key], [again.value], [again.headers or []], [again.timestamp], [1])
    decoder = DeadLetterDecoder()
    outputs = cluster.decided(slice_of(records, kept, now=NOW + 5000, decoder=decoder))
    (copy,) = written(outputs, "REMAINING")
    released = decided(copy, SourceKind.REMAINING, NOW + 60_000, cluster)
    assert own_time_of(released.puts[0]) == NOW - 9 * DAY


def test_kept_timestamps_are_said_to_die_young() -> None:
    """With ``timestamp = "keep"`` the outcome says what the topic will do."""
    facts = TopicFacts(retention=7 * DAY)
    letter = connect(OutputRecord("orders", b"k", b"{}", [], NOW - 12 * DAY), 0, NOW)
    cluster = KnownCluster({"orders": facts})
    parked = decided(letter, SourceKind.DEAD_LETTERS, NOW, cluster).parked[0]
    life = decided(parked, SourceKind.RETRIES, NOW + 3000, cluster, TimestampMode.KEEP)
    assert life.puts[0].timestamp == NOW - 12 * DAY
    assert "less than half of its life is left: orders keeps records for 7d" in life.details[0]
    lasting = KnownCluster({"orders": replace(facts, retention=365 * DAY)})
    assert decided(parked, SourceKind.RETRIES, NOW + 3000, lasting, TimestampMode.KEEP).details == [
        ""
    ]


def test_now_gives_every_record_the_time_of_the_put() -> None:
    letter = connect(OutputRecord("orders", b"k", b"{}", [], NOW - 5000), 0, NOW)
    parked = decided(letter, SourceKind.DEAD_LETTERS, NOW, KnownCluster()).parked[0]
    now = NOW + 3000
    life = decided(parked, SourceKind.RETRIES, now, KnownCluster(), TimestampMode.NOW)
    assert (life.puts[0].timestamp, own_time_of(life.puts[0])) == (now, NOW - 5000)
    assert life.details == ["with the time of the put"]


def test_a_record_that_came_back_from_connect_is_as_old_as_it_was() -> None:
    cluster = KnownCluster({"orders": TopicFacts(retention=DAY)})
    letter = connect(OutputRecord("orders", b"k", b"{}", [], NOW - 12 * DAY), 0, NOW)
    parked = decided(letter, SourceKind.DEAD_LETTERS, NOW, cluster).parked[0]
    (put,) = decided(parked, SourceKind.RETRIES, NOW + 3000, cluster).puts
    assert put.timestamp == NOW + 3000
    by_age = "DIALECT(KAFKA)\nAGE(>11d) ACTION(FWD) FWDT('orders') HEADER(NO)\nACTION(IGNORE)\n"
    back = connect(put, 1, NOW + 4000)
    kind = SourceKind.DEAD_LETTERS
    assert decided(back, kind, NOW + 5000, cluster, table=by_age).puts


def test_puts_of_applications_live_too() -> None:
    facts = TopicFacts(retention=100_000)
    source = SourceText("QM1.mqsc", b"DEFINE QLOCAL(A)\n", queue_manager="QM1")
    job = MemoryJob("ACTION(IGNORE)\n", (source,), KnownCluster({"QM1--A": facts}))
    headers = [
        *NewMessage(queue="A").headers(),
        ("redrive.id", b"orders:0:1"),
        ("redrive.timestamp", b"5"),
    ]
    old = OutputRecord(put_topic("QM1"), None, b"x", headers, 77)
    for record, timestamp, own_time in (
        (old, jobs.NOW, 77),
        (old._replace(timestamp=80_000), 80_000, 80_000),
    ):
        (outcome,) = job.decide(put_topic("QM1"), [record])
        (put,) = outcome.written
        assert (put.topic, put.timestamp, own_time_of(put)) == ("QM1--A", timestamp, own_time)
        assert ("with the time of the put" in outcome.row.detail) is (timestamp != own_time)

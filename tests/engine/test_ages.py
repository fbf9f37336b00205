"""How old dead letters are when they are attempted, and how late retries come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.samples import handler_of

from redrive.engine.sources import PartitionRecords, SourceKind
from redrive.engine.statistics import AGE_BOUNDS, LATENESS_BOUNDS, Ages
from redrive.messages import Headers, Records, TopicPartition
from redrive.messages import own_headers as own

HANDLER = handler_of()
"""Its table says RETRYINT(5)."""
NOW = 1_800_000_000_000
MILLISECONDS = st.integers(NOW - 2_000_000_000, NOW + 10_000)


def counted(seconds: list[float], bounds: tuple[float, ...]) -> list[int]:
    """How many seconds belong to each bucket, looked at one by one."""
    edges = [*bounds, float("inf")]
    return [
        sum(1 for second in seconds if below < second <= above)
        for below, above in zip([-1.0, *bounds], edges, strict=True)
    ]


def part(
    kind: SourceKind, timestamps: list[int], headers: list[Headers] | None = None
) -> PartitionRecords:
    """Records of one lane from offset 10 on."""
    number = len(timestamps)
    records = Records(
        [None] * number, [b""] * number, headers or [[]] * number, timestamps,
        list(range(10, 10 + number)),
    )  # fmt: skip
    topic = "RETRY" if kind is SourceKind.RETRIES else "DLQ"
    return PartitionRecords(TopicPartition(topic, 0), HANDLER, kind, records)


@given(st.lists(MILLISECONDS, max_size=10), st.integers(0, 30))
def test_a_fresh_dead_letter_is_as_old_as_its_timestamp_says(times: list[int], done: int) -> None:
    ages = Ages()
    ages.note(part(SourceKind.DEAD_LETTERS, times), done, NOW)
    seconds = [max(0, NOW - time) / 1000 for time in times[max(0, done - 10) :]]
    assert ages.lateness == {}
    if not seconds:
        assert ages.ages == {}
        return
    assert ages.ages["dlq"].counts == counted(seconds, AGE_BOUNDS)
    assert ages.ages["dlq"].total == pytest.approx(sum(seconds))


@given(st.lists(st.tuples(MILLISECONDS, st.none() | MILLISECONDS), min_size=1))
def test_a_retry_is_late_from_the_time_it_was_due(retries: list[tuple[int, int | None]]) -> None:
    """It is due RETRYINT after the failed attempt, and as old as the dead letter that it holds."""
    headers: list[Headers] = [
        [] if came is None else [("other", b"1"), (own.TIMESTAMP, own.number(came))]
        for _, came in retries
    ]
    ages = Ages()
    ages.note(part(SourceKind.RETRIES, [failed for failed, _ in retries], headers), 0, NOW)
    late = [max(0, NOW - 5_000 - failed) / 1000 for failed, _ in retries]
    old = [max(0, NOW - (failed if came is None else came)) / 1000 for failed, came in retries]
    assert ages.lateness["dlq"].counts == counted(late, LATENESS_BOUNDS)
    assert ages.ages["dlq"].counts == counted(old, AGE_BOUNDS)


def test_a_record_without_a_timestamp_has_no_age() -> None:
    """Kafka says -1 then; the others count all the same."""
    ages = Ages()
    ages.note(part(SourceKind.DEAD_LETTERS, [-1, NOW - 500, -1]), 0, NOW)
    assert (sum(ages.ages["dlq"].counts), ages.ages["dlq"].total) == (1, 0.5)


def test_what_no_rule_was_tried_on_has_no_age() -> None:
    ages = Ages()
    for kind in (SourceKind.REMAINING, SourceKind.REPLAYS):
        ages.note(part(kind, [NOW]), 0, NOW)
    assert ages == Ages()


@given(st.lists(st.lists(MILLISECONDS, min_size=1, max_size=5), min_size=2, max_size=4))
def test_ages_of_several_slices_add_up(slices: list[list[int]]) -> None:
    together, apart = Ages(), Ages()
    for times in slices:
        first = Ages()
        for ages in (together, first):
            ages.note(part(SourceKind.DEAD_LETTERS, times), 0, NOW)
        apart.add(first)
    assert apart.ages["dlq"].counts == together.ages["dlq"].counts
    assert apart.ages["dlq"].total == pytest.approx(together.ages["dlq"].total)

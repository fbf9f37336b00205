"""BACKOFF: delays against a naive reading, and the partitions on which messages wait for them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.rules import parse
from redrive.rules.backoff import JITTER, PARTITIONS, Backoff, BackoffPartitions

HEAD = "DIALECT(KAFKA) RETRYINT(7)\n"
FACTORS = st.sampled_from(["1", "1.1", "1.25", "1.5", "2", "3", "10", "100"])


def backoffs() -> st.SearchStrategy[Backoff]:
    return st.builds(
        lambda initial, factor, more: Backoff(initial, float(factor), initial + more),
        st.integers(1, 5_000),
        FACTORS,
        st.integers(0, 100_000),
    )


@given(backoffs(), st.integers(1, 400))
def test_delays_grow_by_the_factor_up_to_the_cap(backoff: Backoff, failures: int) -> None:
    exact = backoff.initial * Fraction(str(backoff.factor)) ** (failures - 1)
    assert abs(min(exact, Fraction(backoff.cap)) - backoff.delay(failures)) <= Fraction(51, 100)
    delays = [backoff.delay(number) for number in range(1, failures + 1)]
    assert backoff.total(failures) == sum(delays)
    assert backoff.distinct(failures) == tuple(sorted(set(delays)))


@given(backoffs())
def test_a_backoff_reads_back_as_it_was_written(backoff: Backoff) -> None:
    table = parse(f"{HEAD}ACTION(RETRY) RETRY(2) BACKOFF({backoff})").required()
    assert table.rules[0].backoff == backoff
    assert parse(table.canonical()).required() == table


def test_large_numbers_of_attempts_cost_nothing() -> None:
    assert Backoff(1, 100.0, 60).delay(999_999_999) == 60
    assert Backoff(1, 1.0, 60).total(999_999_999) == 999_999_999
    assert Backoff(30, 2.0, 3600).total(999_999_999) == 3600 * (999_999_999 - 7) + 30 * 127


delay_lists = st.lists(st.integers(1, 100_000), min_size=1, max_size=PARTITIONS, unique=True)


@given(delay_lists, st.integers(0, 500), st.integers(0, 2**32), st.data())
def test_a_message_waits_its_delay_less_jitter_on_a_partition_of_its_source(
    delays: list[int], source: int, jitter: int, data: st.DataObject
) -> None:
    partitions = BackoffPartitions(delays)
    delay = data.draw(st.sampled_from(delays))
    number = partitions.partition(source, delay, jitter)
    assert number // PARTITIONS == source
    assert delay * (1 - JITTER) < partitions.seconds(number) <= delay
    others = {partitions.partition(source, other, jitter) for other in delays}
    assert len(others) == len(delays)


@given(st.integers(0, 300), delay_lists)
def test_a_partition_that_no_delay_has_holds_nothing_back(source: int, delays: list[int]) -> None:
    partitions = BackoffPartitions(delays)
    used = {partitions.partition(source, delay, jitter) for delay in delays for jitter in range(16)}
    for number in range(source * PARTITIONS, (source + 1) * PARTITIONS):
        assert (partitions.seconds(number) > 0) == (number in used)
    assert BackoffPartitions([]).seconds(5) == 0


def test_messages_that_failed_together_come_back_apart() -> None:
    partitions = BackoffPartitions([10, 20, 40, 60])
    times = {
        partitions.seconds(partitions.partition(source, 60, jitter))
        for source in range(8)
        for jitter in range(4)
    }
    assert len(times) == 32
    assert max(times) - min(times) > 0.9 * JITTER * 60


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("30s", "BACKOFF has three parts, this has 1"),
        ("30s,2", "BACKOFF has three parts, this has 2"),
        ("30s,2,1h,4", "BACKOFF has three parts, this has 4"),
        ("0,2,1h", "0 is not a delay"),
        ("30x,2,1h", "30x is not a delay"),
        ("30s,2,long", "long is not a delay"),
        ("30s,0.5,1h", "0.5 is not a factor for delays"),
        ("30s,1.05,1h", "1.05 is not a factor for delays"),
        ("30s,x,1h", "x is not a factor for delays"),
        ("30s,101,1h", "101 is not a factor for delays"),
        ("1h,2,30s", "the longest delay 30s is less than the first one 1h"),
    ],
)
def test_every_mistake_in_a_backoff_is_told_at_its_place(value: str, message: str) -> None:
    result = parse(f"{HEAD}ACTION(RETRY) RETRY(2) BACKOFF({value})")
    [finding] = result.diagnostics
    assert (finding.code, finding.message) == ("BAD_VALUE", message)
    assert result.table is None
    assert (finding.line, finding.column) == (2, 32)
    assert "BACKOFF(30s,2,1h)" in finding.hint


def test_a_table_has_room_for_sixteen_delays() -> None:
    rule = "ACTION(RETRY) RETRY({}) BACKOFF({})\n"
    fits = rule.format(16, "1s,2,100d") + rule.format(9, "4s,2,100d")
    assert parse(HEAD + fits).table is not None
    [error] = parse(HEAD + rule.format(17, "1s,2,100d")).diagnostics
    assert (error.code, error.severity) == ("TOO_MANY_DELAYS", "error")


def test_order_takes_the_room_of_up_to_four_delays() -> None:
    ordered, rule = HEAD.replace(" ", " ORDER(KEY) "), "ACTION(RETRY) RETRY({}) BACKOFF({})\n"
    assert parse(ordered + rule.format(14, "1s,2,100d")).table is not None
    [error] = parse(ordered + rule.format(15, "1s,2,100d")).diagnostics
    assert (error.code, error.expected) == (
        "TOO_MANY_DELAYS", "at most 14 between all rules under ORDER(KEY)"
    )  # fmt: skip


def test_delays_are_exact_under_order() -> None:
    partitions = (
        parse(f"{HEAD.replace(' ', ' ORDER(KEY) ')}ACTION(RETRY) RETRY(2) BACKOFF(30s,2,1h)\n")
        .required()
        .backoff_partitions
    )
    waits = [partitions.seconds(partitions.partition(3, delay, 7)) for delay in (1, 4, 15, 30, 60)]
    assert waits == [1, 4, 15, 30, 60]
    assert [partitions.longest_within(limit) for limit in (0.2, 3.9, 29.9, 500)] == [1, 1, 15, 60]


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("ACTION(FWD) FWDT('t') BACKOFF(30s,2,1h)", "SINGLE_ATTEMPT"),
        ("ACTION(DISCARD) BACKOFF(30s,2,1h)", "NO_EFFECT"),
    ],
)
def test_a_backoff_without_effect_is_warned_of(rule: str, code: str) -> None:
    assert [finding.code for finding in parse(HEAD + rule).diagnostics] == [code]


def test_ibms_language_has_no_backoff() -> None:
    [finding] = parse("ACTION(RETRY) RETRY(2) BACKOFF(30s,2,1h)").diagnostics
    assert (finding.severity, "DIALECT(KAFKA)" in finding.hint) == ("error", True)

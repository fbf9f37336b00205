"""The audit of long runs: it finds what is planted, forgets what has ended, and no more."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Final

import pytest
from benchmarks.load import DEAD_LETTERS, OPEN, OUTCOMES
from benchmarks.reconciliation import Findings, Places, Reconciliation
from hypothesis import given
from hypothesis import strategies as some

LONG: Final = 60.0
"""Seconds: more than markers need, less than an outcome waits for its put."""


class Clock:
    """Time that stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def outcome(
    offset: int,
    result: str,
    attempt: int = 1,
    at: int = 0,
    *,
    appended: int | None = None,
    replay: str = "",
    reason: int = 2053,
) -> Any:
    """An outcome record; the name of each differs by its attempt, time and replay.

    Args:
        offset: Of the input.
        result: Its last outcome.
        attempt: Its number.
        at: What the job's clock showed, in milliseconds.
        appended: What the broker's clock showed; by default the same.
        replay: The replay that asked for it.
        reason: Why the attempt failed; 0 for one that was not made yet.
    """
    target = OPEN if result in {"retried", "forwarded"} else ""
    value = {
        "origin": f"{DEAD_LETTERS}:0:{offset}", "outcome": f"{offset}/{attempt}/{at}/{replay}",
        "result": result, "attempt": attempt, "time": at, "target_topic": target, "replay": replay,
        "reason": reason,
    }  # fmt: skip
    moment = at if appended is None else appended
    return SimpleNamespace(topic=OUTCOMES, value=json.dumps(value), timestamp=moment)


def put(offset: int, topic: str = OPEN) -> Any:
    headers = [("redrive.id", f"{DEAD_LETTERS}:0:{offset}".encode())]
    return SimpleNamespace(topic=topic, partition=0, key=b"k", headers=headers)


RIGHT: Final = (
    outcome(0, "retried"), put(0),
    outcome(1, "parked", 1, 0), outcome(1, "retried", 2, 2_000), put(1),
    outcome(2, "remains"),
    outcome(3, "retried"), put(3),
)  # fmt: skip


def found(
    *records: Any, is_settled: bool, tables_change: bool = False, offsets: Sequence[float] = (0.0,)
) -> Findings:
    """What is found in records, all at once or with a decision after each of them."""
    clock = Clock()
    reconciliation = Reconciliation(2.0, tables_change=tables_change, offsets=offsets, clock=clock)
    for record in records:
        reconciliation.take(record)
        if is_settled:
            clock.now += LONG
            reconciliation.settle()
    return reconciliation.finish({0: 4})


@pytest.fixture(params=[False, True], ids=["all at once", "bit by bit"])
def is_settled(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether what has ended is forgotten at once."""
    return request.param  # type: ignore[no-any-return]


def test_what_is_right_is_not_complained_of(*, is_settled: bool) -> None:
    findings = found(*RIGHT, is_settled=is_settled)
    assert findings.are_clean, findings
    assert (findings.inputs, findings.puts) == (4, 3)
    assert findings.results == {"retried": 3, "remains": 1}


@pytest.mark.parametrize("at", range(len(RIGHT)))
def test_whatever_is_missing_is_lost(at: int) -> None:
    findings = found(*RIGHT[:at], *RIGHT[at + 1 :], is_settled=False)
    assert bool(findings.lost) is (at != 2)


@pytest.mark.parametrize("at", range(len(RIGHT)))
def test_whatever_comes_twice_is_found_however_late(at: int, *, is_settled: bool) -> None:
    assert found(*RIGHT, RIGHT[at], is_settled=is_settled).duplicated


def test_a_put_on_another_target_is_lost_and_one_too_many() -> None:
    findings = found(outcome(0, "retried"), put(0, "elsewhere"), *RIGHT[2:], is_settled=False)
    assert len(findings.lost) == len(findings.duplicated) == 1


def test_a_retry_before_its_time_is_early(*, is_settled: bool) -> None:
    """RETRYINT counts from attempt to attempt."""
    early = (outcome(1, "parked", 1, 0), outcome(1, "retried", 2, 1_999), put(1))
    records = (*RIGHT[:2], *early, *RIGHT[5:])
    assert len(found(*records, is_settled=is_settled).early) == 1


def test_a_round_that_waits_is_no_attempt(*, is_settled: bool) -> None:
    waits = (outcome(1, "parked", 1, 0, reason=0), outcome(1, "retried", 1, 500), put(1))
    assert found(*RIGHT[:2], *waits, *RIGHT[5:], is_settled=is_settled).are_clean


@pytest.mark.parametrize(("shown", "appended", "count"), [(602_000, 1_500, 1), (602_000, 2_600, 0)])
def test_a_clock_that_was_set_excuses_nothing(
    shown: int, appended: int, count: int, *, is_settled: bool
) -> None:
    """The job's clock was 600 s ahead: the retry is early by the true time, 1.4 s, or 2 s after."""
    ahead = 600_000 if count == 0 else 600_600
    early = outcome(1, "retried", 2, shown, appended=appended)
    records = (*RIGHT[:2], outcome(1, "parked", 1, 0), early, put(1), *RIGHT[5:])
    findings = found(*records, is_settled=is_settled, offsets=[0.0, ahead / 1000])
    assert len(findings.early) == count
    assert not findings.lost


def test_a_replay_takes_up_what_remained_once(*, is_settled: bool) -> None:
    taken_up = outcome(2, "forwarded", 1, 9, replay="r1")
    findings = found(*RIGHT, taken_up, put(2), is_settled=is_settled)
    assert findings.are_clean, findings
    assert findings.results == {"retried": 3, "remains": 0, "forwarded": 1}
    for again in (taken_up, put(2), outcome(2, "remains", 1, 10)):
        assert found(*RIGHT, taken_up, put(2), again, is_settled=is_settled).duplicated
    assert found(*RIGHT, put(2), is_settled=is_settled).duplicated
    assert found(*RIGHT, taken_up, is_settled=is_settled).lost


def test_what_a_replay_left_alone_counts_for_nothing_but_once(*, is_settled: bool) -> None:
    skipped = outcome(3, "skipped", 1, 9, replay="r1")
    findings = found(*RIGHT, skipped, is_settled=is_settled)
    assert findings.are_clean, findings
    assert found(*RIGHT, skipped, skipped, is_settled=is_settled).duplicated


def test_who_was_never_retried_keeps_his_place(*, is_settled: bool) -> None:
    swapped = (outcome(3, "retried"), put(3), *RIGHT[2:6], outcome(0, "retried"), put(0))
    assert len(found(*swapped, is_settled=is_settled).disordered) == 1


def test_what_remains_may_be_decided_again_only_where_tables_change() -> None:
    again = (*RIGHT, outcome(2, "forwarded", 1, 5), put(2))
    assert found(*again, is_settled=True).duplicated
    changed = found(*again, is_settled=True, tables_change=True)
    assert changed.results["forwarded"] == 1
    # It comes behind a later one by right: it was not put at its first attempt.
    assert changed.are_clean, changed


@given(some.permutations(range(40)))
def test_places_know_what_they_hold_and_what_is_missing(order: list[int]) -> None:
    places = Places()
    for number, offset in enumerate(order[:30]):
        places.add(offset)
        assert len(places) == number + 1
    assert [number for number in range(40) if number in places] == sorted(order[:30])
    assert places.missing(40) == sorted(order[30:])

"""The audit of long runs: it finds what is planted, forgets what has ended, and no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

import pytest
from benchmarks.crash import DEAD_LETTERS, OPEN, OUTCOMES, Findings
from benchmarks.reconciliation import Places, Reconciliation
from hypothesis import given
from hypothesis import strategies as some

LONG: Final = 60.0
"""Seconds: more than markers need, less than an outcome waits for its put."""


class Clock:
    """Time that stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def outcome(offset: int, result: str, attempt: int = 1, at: int = 0) -> Any:
    """An outcome record; the name of each differs by its attempt."""
    target = OPEN if result in {"retried", "forwarded"} else ""
    value = {
        "origin": f"{DEAD_LETTERS}:0:{offset}", "outcome": f"{offset}/{attempt}/{at}",
        "result": result, "attempt": attempt, "time": at, "target_topic": target,
    }  # fmt: skip
    return SimpleNamespace(topic=OUTCOMES, value=json.dumps(value))


def put(offset: int, topic: str = OPEN) -> Any:
    """A record on a target."""
    headers = [("redrive.id", f"{DEAD_LETTERS}:0:{offset}".encode())]
    return SimpleNamespace(topic=topic, partition=0, key=b"k", headers=headers)


RIGHT: Final = (
    outcome(0, "retried"), put(0),
    outcome(1, "parked", 1, 0), outcome(1, "retried", 2, 2_000), put(1),
    outcome(2, "remains"),
    outcome(3, "retried"), put(3),
)  # fmt: skip


def found(*records: Any, is_settled: bool, tables_change: bool = False) -> Findings:
    """What is found in records, all at once or with a decision after each of them."""
    clock = Clock()
    one = Reconciliation(2.0, tables_change=tables_change, clock=clock)
    for record in records:
        one.take(record)
        if is_settled:
            clock.now += LONG
            one.settle()
    return one.finish({0: 4})


@pytest.fixture(params=[False, True], ids=["all at once", "bit by bit"])
def is_settled(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether what has ended is forgotten at once."""
    return request.param  # type: ignore[no-any-return]


def test_what_is_right_is_not_complained_of(*, is_settled: bool) -> None:
    """Every input once, with its put."""
    findings = found(*RIGHT, is_settled=is_settled)
    assert findings.are_clean, findings
    assert (findings.inputs, findings.puts) == (4, 3)
    assert findings.results == {"retried": 3, "remains": 1}


@pytest.mark.parametrize("at", range(len(RIGHT)))
def test_whatever_is_missing_is_lost(at: int) -> None:
    """A put or a final outcome; a missing attempt of several shows in no way."""
    findings = found(*RIGHT[:at], *RIGHT[at + 1 :], is_settled=False)
    assert bool(findings.lost) is (at != 2)


@pytest.mark.parametrize("at", range(len(RIGHT)))
def test_whatever_comes_twice_is_found_however_late(at: int, *, is_settled: bool) -> None:
    """Also when its input was forgotten long ago."""
    assert found(*RIGHT, RIGHT[at], is_settled=is_settled).duplicated


def test_a_put_on_another_target_is_lost_and_one_too_many() -> None:
    """The outcome names the only place where it may be."""
    findings = found(outcome(0, "retried"), put(0, "elsewhere"), *RIGHT[2:], is_settled=False)
    assert len(findings.lost) == len(findings.duplicated) == 1


def test_a_retry_before_its_time_is_early(*, is_settled: bool) -> None:
    """RETRYINT counts from attempt to attempt."""
    early = (outcome(1, "parked", 1, 0), outcome(1, "retried", 2, 1_999), put(1))
    records = (*RIGHT[:2], *early, *RIGHT[5:])
    assert len(found(*records, is_settled=is_settled).early) == 1


def test_who_was_never_retried_keeps_his_place(*, is_settled: bool) -> None:
    """The retried one may come at any place, the others by their offsets."""
    swapped = (outcome(3, "retried"), put(3), *RIGHT[2:6], outcome(0, "retried"), put(0))
    assert len(found(*swapped, is_settled=is_settled).disordered) == 1


def test_what_remains_may_be_decided_again_only_where_tables_change() -> None:
    """Then the last outcome counts, and its put."""
    again = (*RIGHT, outcome(2, "forwarded", 1, 5), put(2))
    assert found(*again, is_settled=True).duplicated
    changed = found(*again, is_settled=True, tables_change=True)
    assert changed.results["forwarded"] == 1
    # It comes behind a later one by right: it was not put at its first attempt.
    assert changed.are_clean, changed


@given(some.permutations(range(40)))
def test_places_know_what_they_hold_and_what_is_missing(order: list[int]) -> None:
    """Whatever the order in which offsets come: the same as a set."""
    places = Places()
    for number, offset in enumerate(order[:30]):
        places.add(offset)
        assert len(places) == number + 1
    assert [one for one in range(40) if one in places] == sorted(order[:30])
    assert places.missing(40) == sorted(order[30:])

"""The sum comes out if and only if every message became what it had to, exactly once."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.demo.world import observation, sample_walk, samples_of

from redrive.demo import Found, Observation, Outcome, Reconciliation, Record, reconcile

WALK = sample_walk()
SAMPLES = samples_of(5)

Damage = Callable[[Observation], Observation]


def _sound() -> Observation:
    return observation(WALK, SAMPLES, random.Random(5))


def _reconciled(damage: Damage) -> Reconciliation:
    return reconcile(SAMPLES, WALK, damage(_sound()))


@given(st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_a_faultless_job_adds_up(seed: int) -> None:
    """Whatever is refused now and then on the way."""
    samples = samples_of(seed)
    result = reconcile(samples, WALK, observation(WALK, samples, random.Random(seed)))
    assert result.adds_up
    assert result.problems == ()
    assert sum(result.ends.values()) == result.inputs == 100


def test_the_line_shows_the_sum() -> None:
    """In the words and the order of the manual."""
    ends = {"forwarded": 4, "retried": 3, "discarded": 2, "remaining": 1}
    result = Reconciliation(expected=10, inputs=10, ends=ends, lost=0, duplicated=0)
    assert result.adds_up
    assert str(result) == (
        "10 in = 4 forwarded + 3 retried + 2 discarded + 1 remaining, 0 lost, 0 duplicated"
    )


def test_messages_of_others_do_not_count() -> None:
    """The full queue is full of messages that are no samples."""
    other = Found("ORDERS:0:0", "ORDERS", None, Record(None, b"ordinary", (), 0))
    result = _reconciled(lambda seen: replace(seen, puts=[other, *seen.puts]))
    assert result.adds_up


@pytest.mark.parametrize(
    "damage",
    [
        lambda seen: replace(seen, puts=seen.puts[1:]),
        lambda seen: replace(seen, remaining=seen.remaining[1:]),
    ],
)
def test_a_message_that_is_nowhere_is_lost(damage: Damage) -> None:
    """Even though its outcome says where it should be."""
    result = _reconciled(damage)
    assert (result.lost, result.duplicated) == (1, 0)
    assert not result.adds_up


def _discarded_too(seen: Observation) -> Observation:
    """A discard of a message that was put as well."""
    put = seen.puts[0]
    place = next(found.place for found in seen.inputs if found.number == put.number)
    discard = Outcome(
        origin=place, time=0, rule_line=16, attempt=1, result="discarded", reason=0, topic=""
    )
    return replace(seen, outcomes=[discard, *seen.outcomes])


@pytest.mark.parametrize(
    "damage",
    [
        lambda seen: replace(seen, puts=[*seen.puts, seen.puts[0]]),
        lambda seen: replace(seen, puts=[*seen.puts, seen.remaining[0]]),
        lambda seen: replace(seen, remaining=[*seen.remaining, seen.puts[0]]),
        _discarded_too,
    ],
)
def test_a_message_with_two_effects_is_duplicated(damage: Damage) -> None:
    """Twice on a queue, on a queue and remaining, on a queue and discarded."""
    result = _reconciled(damage)
    assert (result.lost, result.duplicated) == (0, 1)
    assert not result.adds_up


def test_one_lost_and_one_duplicated_do_not_cancel_out() -> None:
    """Totals would hide it: both counts of the queue are the same."""
    result = _reconciled(
        lambda seen: replace(seen, puts=[seen.puts[1], seen.puts[1], *seen.puts[2:]])
    )
    assert (result.lost, result.duplicated) == (1, 1)


def _first_put(**changes: object) -> Damage:
    def damage(seen: Observation) -> Observation:
        first = seen.puts[0]
        record = replace(first.record, **changes)  # type: ignore[arg-type]
        return replace(seen, puts=[replace(first, record=record), *seen.puts[1:]])

    return damage


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (_first_put(value=b"other"), "the value on"),
        (_first_put(key=b"other"), "the key on"),
        (_first_put(headers=()), "the headers on"),
        (_first_put(timestamp=1), "the timestamp on"),
        (
            lambda seen: replace(
                seen, puts=[replace(seen.puts[0], topic="ELSEWHERE"), *seen.puts[1:]]
            ),
            "its last outcome says",
        ),
        (lambda seen: replace(seen, outcomes=seen.outcomes[1:]), "sample"),
        (lambda seen: replace(seen, inputs=seen.inputs[1:]), "never arrived"),
        (lambda seen: replace(seen, inputs=[seen.inputs[0], *seen.inputs]), "arrived 2 times"),
        (
            lambda seen: replace(
                seen, inputs=[*seen.inputs, replace(seen.inputs[0], number=None, place="x:0:0")]
            ),
            "x:0:0 is no sample",
        ),
        (
            lambda seen: replace(
                seen, outcomes=[*seen.outcomes, replace(seen.outcomes[0], origin="y:0:0")]
            ),
            "outcomes of y:0:0",
        ),
    ],
)
def test_whatever_else_is_wrong_is_told(damage: Damage, problem: str) -> None:
    """A byte, a place, a history, an input: the sum does not come out, and says why."""
    result = _reconciled(damage)
    assert not result.adds_up
    assert any(problem in told for told in result.problems)


def test_a_message_that_is_still_parked_does_not_add_up() -> None:
    """A job that ended too early is found out."""

    def damage(seen: Observation) -> Observation:
        put = next(found for found in seen.puts if found.topic == "ORDERS")
        place = next(found.place for found in seen.inputs if found.number == put.number)
        parked = [
            replace(it, result="parked", reason=2053, topic="") if it.origin == place else it
            for it in seen.outcomes
        ]
        return replace(seen, outcomes=parked, puts=[it for it in seen.puts if it is not put])

    result = _reconciled(damage)
    assert result.lost == 1
    assert any("is parked" in told for told in result.problems)

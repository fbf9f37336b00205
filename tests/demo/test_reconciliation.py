"""The sum comes out if and only if every message ended where it had to, exactly once."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.demo.world import ORDERS_DEMO, observation, place_of, sample_walk, samples_of, traces

from redrive.demo.cluster import Observation
from redrive.demo.messages import End, Found, Outcome, Record, State
from redrive.demo.reconciliation import Reconciliation, reconcile

WALK = sample_walk()
SAMPLES = samples_of(5)

Damage = Callable[[Observation], Observation]


def _reconciled(damage: Damage, seed: int = 5) -> Reconciliation:
    samples = samples_of(seed)
    seen = damage(observation(WALK, samples, random.Random(seed)))
    return reconcile(traces(samples, seen), ORDERS_DEMO.ends, counted="in")


@given(st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_a_faultless_job_adds_up(seed: int) -> None:
    """Whatever is refused now and then on the way."""
    result = _reconciled(lambda seen: seen, seed)
    assert result.problems == ()
    assert result.adds_up
    assert sum(result.ends.values()) == result.inputs == 100


def test_the_line_shows_the_sum() -> None:
    """In the words and the order of the manual."""
    ends = {"forwarded": 4, "retried": 3, "discarded": 2, "remaining": 1}
    result = Reconciliation(expected=10, inputs=10, counted="in", ends=ends, lost=0, duplicated=0)
    assert result.adds_up
    assert str(result) == (
        "10 in = 4 forwarded + 3 retried + 2 discarded + 1 remaining, 0 lost, 0 duplicated"
    )


def test_messages_of_others_do_not_count() -> None:
    """The full queue is full of messages that are none of the demo's."""
    other = Found("ORDERS:0:0", "ORDERS", None, Record(None, b"ordinary", ()))
    assert _reconciled(lambda seen: replace(seen, found=[other, *seen.found])).adds_up


def _first(seen: Observation, state: State) -> Found:
    return next(found for found in seen.found if found.state is state)


@pytest.mark.parametrize("state", [State.LEFT, State.REMAINING])
def test_a_message_that_is_nowhere_is_lost(state: State) -> None:
    """Even though its outcome says where it should be."""

    def damage(seen: Observation) -> Observation:
        gone = _first(seen, state)
        return replace(seen, found=[found for found in seen.found if found is not gone])

    result = _reconciled(damage)
    assert (result.lost, result.duplicated) == (1, 0)
    assert not result.adds_up


def _discarded_too(seen: Observation) -> Observation:
    """A discard of a message that was put as well."""
    put = _first(seen, State.LEFT)
    place = place_of(SAMPLES[put.number or 0])
    outcomes = [
        *seen.outcomes[place],
        replace(seen.outcomes[place][-1], result="discarded", topic=""),
    ]
    return replace(seen, outcomes={**seen.outcomes, place: outcomes})


@pytest.mark.parametrize(
    "damage",
    [
        lambda seen: replace(seen, found=[*seen.found, _first(seen, State.LEFT)]),
        lambda seen: replace(seen, found=[*seen.found, _first(seen, State.REMAINING)]),
        lambda seen: replace(
            seen, found=[*seen.found, replace(_first(seen, State.LEFT), state=State.REMAINING)]
        ),
        _discarded_too,
    ],
)
def test_a_message_with_two_ends_is_duplicated(damage: Damage) -> None:
    """Twice on a queue, twice remaining, on a queue and remaining, on a queue and discarded."""
    result = _reconciled(damage)
    assert (result.lost, result.duplicated) == (0, 1)
    assert not result.adds_up


def test_one_lost_and_one_duplicated_do_not_cancel_out() -> None:
    """Totals would hide it: both counts of the queue are the same."""

    def damage(seen: Observation) -> Observation:
        first, second = [one for one in seen.found if one.topic == "ORDERS"][:2]
        rest = [found for found in seen.found if found is not first]
        return replace(seen, found=[second, *rest])

    result = _reconciled(damage)
    assert (result.lost, result.duplicated) == (1, 1)


def _changed(**changes: object) -> Damage:
    def damage(seen: Observation) -> Observation:
        first = _first(seen, State.LEFT)
        record = replace(first.record, **changes)  # type: ignore[arg-type]
        rest = [found for found in seen.found if found is not first]
        return replace(seen, found=[replace(first, record=record), *rest])

    return damage


def _elsewhere(seen: Observation) -> Observation:
    first = _first(seen, State.LEFT)
    rest = [found for found in seen.found if found is not first]
    return replace(seen, found=[replace(first, topic="ELSEWHERE"), *rest])


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (_changed(value=b"other"), "the value on"),
        (_changed(key=b"other"), "the key on"),
        (_changed(headers=()), "the headers on"),
        (_changed(timestamp=1), "the timestamp on"),
        (_elsewhere, "ELSEWHERE, not"),
        (lambda seen: replace(seen, inputs=seen.inputs[1:]), "was put 0 times"),
        (lambda seen: replace(seen, inputs=[seen.inputs[0], *seen.inputs]), "was put 2 times"),
    ],
)
def test_whatever_else_is_wrong_is_named(damage: Damage, problem: str) -> None:
    """A byte, a place, an input: the sum does not come out, and says why."""
    result = _reconciled(damage)
    assert not result.adds_up
    assert any(problem in one for one in result.problems)


def test_a_message_comes_back_as_often_as_its_processing_fails() -> None:
    """It is one message all the same; once less or once more is wrong."""
    message = replace(SAMPLES[0], failures=1)
    seen = observation(WALK, [message], random.Random(5))
    for returns, adds_up in ((0, False), (1, True), (2, False)):
        again = [replace(seen.inputs[0], place=f"DEAD.LETTERS:0:9{it}") for it in range(returns)]
        came = traces([message], replace(seen, inputs=[*seen.inputs, *again]))
        result = reconcile(came, ORDERS_DEMO.ends, counted="in")
        assert result.adds_up == adds_up
        problem = f"message 0 ({message.kind}): was put {1 + returns} times, not 2"
        assert result.problems == (() if adds_up else (problem,))


def test_a_message_that_still_waits_does_not_add_up() -> None:
    """It is neither lost nor duplicated, and the job ended too early."""

    def damage(seen: Observation) -> Observation:
        first = _first(seen, State.LEFT)
        rest = [found for found in seen.found if found is not first]
        return replace(seen, found=[replace(first, state=State.WAITING), *rest])

    result = _reconciled(damage)
    assert (result.lost, result.duplicated) == (0, 0)
    assert not result.adds_up
    assert "+ 1 waiting" in str(result)


def test_a_dead_letter_for_another_reason_is_found() -> None:
    """It is in the right place, and why it is there is wrong."""
    [one] = traces(SAMPLES[:1], observation(WALK, SAMPLES[:1], random.Random(5)))
    [(end, found)] = one.ends
    outcome = Outcome(message="m", time=0, result="", topic="", rule_line=0, attempt=1, reason=2053)
    wanted = End(end.what, end.place, reason=2030)
    wrong = replace(
        one, message=replace(one.message, ends=(wanted,)), ends=[(end, found)], outcomes=[outcome]
    )
    [problem] = wrong.problems()
    assert "with reasons [2053], not 2030" in problem

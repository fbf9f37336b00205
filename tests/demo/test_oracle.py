"""The naive walk agrees with the table, with the rules library, and finds wrong histories."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.demo.oracle import fields_of
from tests.demo.world import observation, sample_table, sample_walk, samples_of, traces

from redrive.demo.messages import Message, Outcome
from redrive.demo.reconciliation import Trace
from redrive.rules import Matcher, resolve_target, select_rule

WALK = sample_walk()
seeds = st.integers(0, 2**32)


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_every_message_ends_as_its_script_says(seed: int) -> None:
    """The sample table does with each kind what the kind is there to show."""
    for sample in samples_of(seed):
        step, [end] = WALK.last_step(sample), sample.ends
        assert step.result.replace("remains", "remaining") == end.what
        if step.queue:
            assert step.queue == end.place


@given(seeds, st.integers(0, 60))
@settings(max_examples=20, deadline=None)
def test_the_walk_takes_the_rule_that_the_library_selects(seed: int, failures: int) -> None:
    """Two readings of the specification, one row at a time and by bits."""
    table = sample_table()
    matcher = Matcher(table)
    for sample in samples_of(seed):
        fields = fields_of(sample)
        if not fields:
            assert WALK.step(sample, failures).rule is None
            continue
        index = select_rule(table, matcher.candidates_of(fields), failures)
        step = WALK.step(sample, failures)
        assert step.rule == (None if index is None else table.rules[index])
        if step.queue:
            assert step.rule is not None
            assert step.queue == resolve_target(step.rule, fields).queue


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_an_allowed_history_has_no_problem(seed: int) -> None:
    """Whatever puts that may fail do."""
    samples = samples_of(seed)
    seen = observation(WALK, samples, random.Random(seed))
    assert [problem for one in traces(samples, seen) for problem in WALK.problems(one)] == []


def _of_kind(name: str) -> Message:
    return next(sample for sample in samples_of(3) if sample.kind == name)


def _refused_twice() -> Trace:
    """A message that is too long, and so forwarded by the next rule."""
    sample = _of_kind("longer than MAXMSGL")
    [one] = traces([sample], observation(WALK, [sample], random.Random(1)))
    assert [outcome.result for outcome in one.outcomes] == ["parked", "parked", "forwarded"]
    return one


@pytest.mark.parametrize(
    "damage",
    [
        lambda it: it[:0],
        lambda it: it[:-1],
        lambda it: it[1:],
        lambda it: [it[0], *it],
        lambda it: [*it, it[-1]],
        lambda it: [it[0], it[2]],
        lambda it: [replace(it[0], rule_line=1), *it[1:]],
        lambda it: [replace(it[0], attempt=2), *it[1:]],
        lambda it: [replace(it[0], reason=2053), *it[1:]],
        lambda it: [replace(it[0], result="remains"), *it[1:]],
        lambda it: [*it[:2], replace(it[2], result="retried")],
        lambda it: [*it[:2], replace(it[2], topic="ORDERS")],
    ],
)
def test_a_wrong_history_has_a_problem(damage: Callable[[list[Outcome]], list[Outcome]]) -> None:
    """Outcomes that are missing, too many, in the wrong order, or other than the table says."""
    one = _refused_twice()
    assert list(WALK.problems(replace(one, outcomes=damage(list(one.outcomes)))))


@pytest.mark.parametrize("changes", [{"topic": "ORDERS"}, {"rule_line": 1}, {"record": None}])
def test_a_wrong_copy_has_a_problem(changes: dict[str, object]) -> None:
    """On another queue, by another rule, or with the header that had to come off."""
    one = _refused_twice()
    [(end, found)] = one.ends
    assert found is not None
    if "record" in changes:
        changes = {"record": replace(found.record, headers=())}
    damaged = replace(found, **changes)  # type: ignore[arg-type]
    [_] = WALK.problems(replace(one, ends=[(end, damaged)]))


def test_a_full_queue_may_refuse_and_may_not() -> None:
    """Both is right; that a put which nothing hinders is refused is not."""
    first = WALK.step(_of_kind("for a full queue"), 0)
    assert first.refusals == {2053}
    assert not first.is_refused
    assert WALK.step(_of_kind("after a maintenance"), 0).refusals == frozenset()


def test_a_message_for_the_dead_letter_queue_itself_is_refused() -> None:
    """It would go in circles."""
    circular = next(
        sample
        for sample in samples_of(3, 500)
        if sample.kind == "for queues that never appear"
        and fields_of(sample)["DESTQ"] == "DEAD.LETTERS"
    )
    assert WALK.step(circular, 0).is_refused
    assert WALK.last_step(circular).result == "remains"

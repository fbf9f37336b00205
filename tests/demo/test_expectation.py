"""The naive walk agrees with the table, with the rules library, and finds wrong histories."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.demo.world import history, sample_table, sample_walk, samples_of

from redrive.demo import Outcome, Sample
from redrive.demo.expectation import _matches_text
from redrive.rules import Matcher, StringPattern, resolve_target, select_rule

WALK = sample_walk()
seeds = st.integers(0, 2**32)


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_every_kind_ends_as_it_says(seed: int) -> None:
    """The sample table does with each kind what the kind is there to show."""
    for sample in samples_of(seed):
        assert WALK.last_step(sample).result == sample.kind.end


@given(seeds, st.integers(0, 60))
@settings(max_examples=20, deadline=None)
def test_the_walk_takes_the_rule_that_the_library_selects(seed: int, failures: int) -> None:
    """Two readings of the specification, one row at a time and by bits."""
    table = sample_table()
    matcher = Matcher(table)
    for sample in samples_of(seed):
        if not sample.fields:
            assert WALK.step(sample, failures).rule is None
            continue
        index = select_rule(table, matcher.candidates_of(sample.fields), failures)
        step = WALK.step(sample, failures)
        assert step.rule == (None if index is None else table.rules[index])
        if step.queue:
            assert step.rule is not None
            assert step.queue == resolve_target(step.rule, sample.fields).queue


@given(st.text("AB *?", max_size=6), st.text("AB ", max_size=6))
def test_texts_match_as_in_the_library(pattern: str, text: str) -> None:
    """Wildcards, blanks inside and behind."""
    value = text.rstrip(" ")
    library = StringPattern(pattern or " ", 8)
    assert _matches_text(pattern or " ", value, 8) == library.matches(value)


@given(seeds)
@settings(max_examples=20, deadline=None)
def test_an_allowed_history_has_no_problem(seed: int) -> None:
    """Whatever puts that may fail do."""
    chance = random.Random(seed)
    for sample in samples_of(seed):
        assert list(WALK.problems(sample, list(history(WALK, sample, chance)))) == []


def _of_kind(name: str) -> Sample:
    return next(sample for sample in samples_of(3) if sample.kind.name == name)


TOO_LONG = _of_kind("longer than MAXMSGL")


def _long_history() -> list[Outcome]:
    """Refused twice, then forwarded by the next rule."""
    outcomes = list(history(WALK, TOO_LONG, random.Random(1)))
    assert [outcome.result for outcome in outcomes] == ["parked", "parked", "forwarded"]
    return outcomes


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
def test_a_wrong_history_has_a_problem(damage: object) -> None:
    """Outcomes that are missing, too many, in the wrong order, or other than the table says."""
    assert callable(damage)
    assert list(WALK.problems(TOO_LONG, damage(_long_history())))


def test_a_full_queue_may_refuse_and_may_not() -> None:
    """Both is right; that a put which nothing hinders is refused is not."""
    sample = _of_kind("for a full queue")
    first = WALK.step(sample, 0)
    assert first.refusals == {2053}
    assert not first.is_refused
    free = _of_kind("after a maintenance")
    assert WALK.step(free, 0).refusals == frozenset()


def test_a_message_for_the_dead_letter_queue_itself_is_refused() -> None:
    """It would go in circles."""
    kind = "for queues that never appear"
    circular = next(
        sample
        for sample in samples_of(3, 500)
        if sample.kind.name == kind and sample.fields["DESTQ"] == "DEAD.LETTERS"
    )
    assert WALK.step(circular, 0).is_refused
    assert WALK.last_step(circular).result == "remains"

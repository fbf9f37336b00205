"""A simulated world for the demo's own checks: a job that does what the specification says."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from redrive.demo import Found, Observation, Outcome, Sample, Scenario, Walk, generate
from redrive.demo.queues import DEAD_LETTER_QUEUE, QUEUES
from redrive.rules import RulesTable, parse

NOW = 1_767_225_600_000
INTERVAL = 6
REMAINING = "redrive-demo-DEAD.LETTERS-remaining"


def sample_table() -> RulesTable:
    """The table of the demo."""
    table = parse(Scenario.usual(100, 0).rules()).table
    assert table is not None
    return table


def sample_walk() -> Walk:
    """The walk through that table."""
    return Walk(sample_table(), QUEUES)


def samples_of(seed: int, count: int = 100) -> list[Sample]:
    """Samples of all kinds."""
    return list(generate(count, seed, NOW))


def history(walk: Walk, sample: Sample, chance: random.Random) -> Iterator[Outcome]:
    """A history that the specification allows: puts that may fail do so now and then."""
    failures = 0
    while True:
        step = walk.step(sample, failures)
        is_refused = step.is_refused or (bool(step.refusals) and chance.random() < 0.6)
        stays = is_refused and walk.step(sample, failures + 1).rule is not None
        result = ("parked" if stays else "remains") if is_refused else step.result
        yield Outcome(
            origin=origin(sample),
            time=NOW + failures * INTERVAL * 1000,
            rule_line=step.rule.line if step.rule else 0,
            attempt=failures + 1 if step.is_tried else 0,
            result=result,
            reason=min(step.refusals) if is_refused else 0,
            topic="" if is_refused else step.queue,
        )
        if result != "parked":
            return
        failures += 1


def origin(sample: Sample) -> str:
    """Where a sample lies on the dead-letter queue."""
    return f"{DEAD_LETTER_QUEUE}:{sample.number % 4}:{sample.number}"


def observation(walk: Walk, samples: Sequence[Sample], chance: random.Random) -> Observation:
    """Everything that lies on the broker after a job without a fault."""
    outcomes: list[Outcome] = []
    puts: list[Found] = []
    remaining: list[Found] = []
    for sample in samples:
        outcomes += history(walk, sample, chance)
        last = outcomes[-1]
        if last.result == "remains":
            place = f"{REMAINING}:0:{len(remaining)}"
            remaining.append(Found(place, REMAINING, sample.number, sample.dead_letter))
        elif last.result != "discarded":
            rule = walk.rule_at(last.rule_line)
            assert rule is not None
            record = walk.written(sample, rule)
            place = f"{last.topic}:0:{len(puts)}"
            puts.append(Found(place, last.topic, sample.number, record, last.rule_line))
    return Observation(
        inputs=[
            Found(origin(sample), DEAD_LETTER_QUEUE, sample.number, sample.dead_letter)
            for sample in samples
        ],
        puts=puts,
        remaining=remaining,
        outcomes=sorted(outcomes, key=lambda outcome: outcome.time),
    )

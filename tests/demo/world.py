"""A simulated world for the demo's own checks: a job that does what the specification says."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from tests.demo.oracle import Walk

from redrive.demo.cluster import Observation
from redrive.demo.messages import Found, Message, Outcome, State
from redrive.demo.reconciliation import Trace, trace
from redrive.demo.scripts import Orders
from redrive.demo.scripts.load import DEAD_LETTER_QUEUE
from redrive.demo.scripts.samples import generate
from redrive.rules import RulesTable

NOW = 1_767_225_600_000
INTERVAL = 6
ORDERS_DEMO = Orders(100, 0)


def sample_table() -> RulesTable:
    return ORDERS_DEMO.table


def sample_walk() -> Walk:
    return Walk(sample_table())


def samples_of(seed: int, count: int = 100) -> list[Message]:
    """Dead letters of all kinds."""
    return list(generate(count, seed, NOW))


def history(walk: Walk, sample: Message, chance: random.Random) -> Iterator[Outcome]:
    """A history that the specification allows: puts that may fail do so now and then."""
    failures = 0
    while True:
        step = walk.step(sample, failures)
        is_refused = step.is_refused or (bool(step.refusals) and chance.random() < 0.6)
        stays = is_refused and walk.step(sample, failures + 1).rule is not None
        result = ("parked" if stays else "remains") if is_refused else step.result
        yield Outcome(
            message=place_of(sample),
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


def place_of(sample: Message) -> str:
    """Where a sample lies on the dead-letter queue."""
    return f"{DEAD_LETTER_QUEUE}:{sample.number % 4}:{sample.number}"


def observation(walk: Walk, samples: Sequence[Message], chance: random.Random) -> Observation:
    """Everything that lies on the broker after a job without a fault."""
    outcomes = {place_of(sample): list(history(walk, sample, chance)) for sample in samples}
    return Observation(
        inputs=[Found(place_of(one), DEAD_LETTER_QUEUE, one.number, one.record) for one in samples],
        found=[
            found
            for sample in samples
            for found in _found(walk, sample, outcomes[place_of(sample)][-1])
        ],
        outcomes=outcomes,
    )


def _found(walk: Walk, sample: Message, last: Outcome) -> Iterator[Found]:
    if last.result == "remains":
        place, topic = f"remaining:0:{sample.number}", DEAD_LETTER_QUEUE
        yield Found(place, topic, sample.number, sample.record, State.REMAINING)
    elif last.result != "discarded":
        rule = walk.rule_at(last.rule_line)
        assert rule is not None
        record, place = walk.written(sample, rule), f"{last.topic}:0:{sample.number}"
        yield Found(place, last.topic, sample.number, record, rule_line=last.rule_line)


def traces(samples: Sequence[Message], seen: Observation) -> list[Trace]:
    """What the reconciliation knows about each sample."""
    return trace(samples, seen, ORDERS_DEMO.end_of)

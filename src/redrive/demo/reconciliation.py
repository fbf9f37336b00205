"""The reconciliation: every sample by its number, against everything that lies on the broker.

Nothing here asks the job. What counts is what a reader of committed records finds: the dead-letter
queue, the queues that messages were put on, the remaining topic and the outcomes topic.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from redrive.demo.expectation import Outcome, Walk
from redrive.demo.samples import Record, Sample
from redrive.rules import Action

__all__ = ["Found", "Observation", "Reconciliation", "reconcile"]


@dataclass(frozen=True, slots=True)
class Found:
    """A record that lies on a topic."""

    place: str
    """``topic:partition:offset``"""
    topic: str
    number: int | None
    """Number of the sample; None if it is none of ours."""
    record: Record
    """The record itself; of a remaining copy the dead letter that it is a copy of."""
    rule_line: int = 0
    """Line of the rule that put it there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything that was found on the broker."""

    inputs: Sequence[Found]
    """On the dead-letter queue."""
    puts: Sequence[Found]
    """On all other queues."""
    remaining: Sequence[Found]
    """On the remaining topic, what was taken away again not counted."""
    outcomes: Sequence[Outcome]
    """In the order of time."""


@dataclass(frozen=True)
class Reconciliation:
    """How the sum comes out."""

    expected: int
    """Dead letters that were generated."""
    inputs: int
    """Dead letters that were found."""
    ends: Mapping[str, int]
    """Messages by what became of them: forwarded, retried, discarded, remaining."""
    lost: int
    """Messages that are nowhere, without having been discarded."""
    duplicated: int
    """Messages with more than one effect."""
    problems: Sequence[str] = field(default=())
    """Everything else that is not as the specification wants it, a sentence each."""

    @cached_property
    def adds_up(self) -> bool:
        """Whether every message has become what it had to, exactly once."""
        counted = self.inputs == self.expected == sum(self.ends.values())
        return counted and not (self.lost or self.duplicated or self.problems)

    def __str__(self) -> str:
        parts = " + ".join(f"{count} {end}" for end, count in self.ends.items())
        return f"{self.inputs} in = {parts}, {self.lost} lost, {self.duplicated} duplicated"


def reconcile(samples: Sequence[Sample], walk: Walk, seen: Observation) -> Reconciliation:
    """Reconcile what was generated with what was found.

    Args:
        samples: Every sample, each with its number as its index.
        walk: What has to become of them.
        seen: What was found.
    """
    effects = _effects(walk, seen)
    ends = dict.fromkeys(("forwarded", "retried", "discarded", "remaining"), 0)
    for found in effects.values():
        ends[found[0].end] += 1
    return Reconciliation(
        expected=len(samples),
        inputs=len(seen.inputs),
        ends=ends,
        lost=sum(sample.number not in effects for sample in samples),
        duplicated=sum(len(found) > 1 for found in effects.values()),
        problems=tuple(_problems(samples, walk, seen, effects)),
    )


@dataclass(frozen=True, slots=True)
class _Effect:
    """One thing that became of a sample."""

    end: str
    found: Found | None = None
    """The record that shows it; None for a discard, which leaves only its outcome."""


def _effects(walk: Walk, seen: Observation) -> Mapping[int, Sequence[_Effect]]:
    """All effects on each sample, by its number."""
    effects: dict[int, list[_Effect]] = defaultdict(list)
    numbers = _numbers(seen)
    for found in seen.puts:
        if found.number is not None:
            rule = walk.rule_at(found.rule_line)
            end = "retried" if rule and rule.action is Action.RETRY else "forwarded"
            effects[found.number].append(_Effect(end, found))
    for found in seen.remaining:
        if found.number is not None:
            effects[found.number].append(_Effect("remaining", found))
    for outcome in seen.outcomes:
        if outcome.result == "discarded" and outcome.origin in numbers:
            effects[numbers[outcome.origin]].append(_Effect("discarded"))
    return effects


def _numbers(seen: Observation) -> Mapping[str, int]:
    """Place on the dead-letter queue -> number of the sample there."""
    return {found.place: found.number for found in seen.inputs if found.number is not None}


def _problems(
    samples: Sequence[Sample],
    walk: Walk,
    seen: Observation,
    effects: Mapping[int, Sequence[_Effect]],
) -> Iterator[str]:
    yield from _problems_of_inputs(samples, seen)
    histories = _histories(seen)
    for sample in samples:
        history = histories.get(sample.number, ())
        for problem in walk.problems(sample, history):
            yield _about(sample, problem)
        if history:
            for problem in _problems_of_effects(sample, walk, history[-1], effects):
                yield _about(sample, problem)


def _problems_of_inputs(samples: Sequence[Sample], seen: Observation) -> Iterator[str]:
    times = Counter(found.number for found in seen.inputs)
    for found in seen.inputs:
        if found.number is None or not found.number < len(samples):
            yield f"{found.place} is no sample"
        elif found.record != samples[found.number].dead_letter:
            yield _about(samples[found.number], f"was changed on its way to {found.place}")
    yield from (_about(it, "never arrived") for it in samples if it.number not in times)
    yield from (_about(samples[n or 0], f"arrived {c} times") for n, c in times.items() if c > 1)
    known = _numbers(seen)
    strays = {outcome.origin for outcome in seen.outcomes} - known.keys()
    yield from (f"there are outcomes of {origin}, which is no sample" for origin in sorted(strays))


def _histories(seen: Observation) -> Mapping[int, Sequence[Outcome]]:
    """The outcomes of each sample, by its number."""
    histories: dict[int, list[Outcome]] = defaultdict(list)
    numbers = _numbers(seen)
    for outcome in seen.outcomes:
        if outcome.origin in numbers:
            histories[numbers[outcome.origin]].append(outcome)
    return histories


def _problems_of_effects(
    sample: Sample, walk: Walk, last: Outcome, effects: Mapping[int, Sequence[_Effect]]
) -> Iterator[str]:
    """What of the effects does not agree with the last outcome."""
    end = "remaining" if last.result == "remains" else last.result
    for effect in effects.get(sample.number, ()):
        if effect.end != end:
            yield f"is {effect.end}, its last outcome says {end}"
        elif effect.found is not None:
            yield from _problems_of_copy(sample, walk, last, effect.found)


def _problems_of_copy(sample: Sample, walk: Walk, last: Outcome, found: Found) -> Iterator[str]:
    rule = walk.rule_at(last.rule_line)
    is_put = last.result != "remains"
    if is_put and (found.topic, found.rule_line) != (last.topic, last.rule_line):
        yield f"lies on {found.place}, its last outcome says {last.topic}"
    wanted = walk.written(sample, rule) if is_put and rule else sample.dead_letter
    for name in ("key", "value", "headers", "timestamp"):
        if getattr(found.record, name) != getattr(wanted, name):
            yield f"the {name} on {found.place} is not as it has to be"


def _about(sample: Sample, problem: str) -> str:
    return f"sample {sample.number} ({sample.kind}): {problem}"

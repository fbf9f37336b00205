"""What has to become of a sample: a naive walk through the rules table.

Written from the rules-table specification, sections 4 to 6, and from what is known about the demo's
queues. It shares the reading of the table with the job and nothing else: rules are asked one by
one, patterns are matched character by character.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from redrive.demo.queues import DEAD_LETTER_QUEUE, Queue
from redrive.demo.samples import Record, Sample
from redrive.messages import constant_value
from redrive.rules import Action, FieldValue, NumberPattern, Pattern, Rule, RulesTable

__all__ = ["Outcome", "Step", "Walk"]

_LOOPING: Final = constant_value("MQRC_LOOPING_PUBLICATION") or 0
_UNKNOWN: Final = constant_value("MQRC_UNKNOWN_OBJECT_NAME") or 0
_FULL: Final = constant_value("MQRC_Q_FULL") or 0
_TOO_BIG: Final = constant_value("MQRC_MSG_TOO_BIG_FOR_Q") or 0

_RESULTS: Final = {
    Action.RETRY: "retried",
    Action.FWD: "forwarded",
    Action.DISCARD: "discarded",
    Action.IGNORE: "remains",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an outcome record says became of a sample in one attempt."""

    origin: str
    """``topic:partition:offset`` of the dead letter."""
    time: int
    """Milliseconds since 1970."""
    rule_line: int
    """0 if no rule was applied."""
    attempt: int
    """From 1; 0 if nothing was attempted."""
    result: str
    reason: int
    """Why the attempt failed, or 0."""
    topic: str
    """Where the message was put; empty if it was not."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one attempt on a sample may come to."""

    rule: Rule | None
    """The rule that applies; None if there is none."""
    result: str
    """The result if the attempt succeeds."""
    queue: str = ""
    """Where the rule puts the message; empty if it puts nothing."""
    refusals: frozenset[int] = frozenset()
    """Reasons for which the put can be refused."""
    is_refused: bool = False
    """Whether the put is refused at any time, and not only now and then."""

    @property
    def is_tried(self) -> bool:
        """Whether a rule does something, and so an attempt is counted."""
        return self.rule is not None and self.rule.action is not Action.IGNORE


class Walk:
    """Walks a rules table with samples, in a world of known queues."""

    def __init__(self, table: RulesTable, queues: Mapping[str, Queue]) -> None:
        """Prepare to walk.

        Args:
            table: The rules table.
            queues: The queues that exist or will exist, by name.
        """
        self._table = table
        self._queues = queues
        self._rules = {rule.line: rule for rule in table.rules}

    def step(self, sample: Sample, failures: int) -> Step:
        """What the next attempt may come to.

        Args:
            sample: The dead letter.
            failures: How many attempts on it have failed.
        """
        rule = self._rule(sample, failures)
        if rule is None:
            return Step(None, "remains")
        result = _RESULTS[rule.action]
        if rule.action in {Action.DISCARD, Action.IGNORE}:
            return Step(rule, result)
        queue = _target(rule, sample.fields)
        reason, always = self._refusal(queue, len(self.written(sample, rule).value or b""))
        return Step(rule, result, queue, frozenset({reason} - {0}), always)

    def last_step(self, sample: Sample) -> Step:
        """The step that ends the walk, if every queue that is full or late is there in time."""
        failures = 0
        while (step := self.step(sample, failures)).is_refused:
            failures += 1
            if self.step(sample, failures).rule is None:
                return Step(None, "remains")
        return step

    def written(self, sample: Sample, rule: Rule) -> Record:
        """The record that a rule's put has to write (specification 4.3 to 4.6)."""
        keeps_header = rule.action is Action.FWD and rule.header
        return sample.dead_letter if keeps_header else sample.original

    def rule_at(self, line: int) -> Rule | None:
        """The rule that begins at a line of the table."""
        return self._rules.get(line)

    def problems(self, sample: Sample, outcomes: Sequence[Outcome]) -> Iterator[str]:
        """What of a sample's history contradicts the specification.

        Args:
            sample: The dead letter.
            outcomes: All its outcomes, in the order of time.
        """
        if not outcomes:
            yield "no outcome"
        for failures, outcome in enumerate(outcomes):
            allowed = list(self._allowed(sample, failures))
            found = _told(outcome)
            if found not in allowed:
                wanted = " or ".join(map(str, allowed))
                yield f"outcome {failures + 1} is {found}, not {wanted}"
            is_last = failures == len(outcomes) - 1
            if (outcome.result == "parked") is is_last:
                yield f"outcome {failures + 1} of {len(outcomes)} is {outcome.result}"

    def _rule(self, sample: Sample, failures: int) -> Rule | None:
        """The rule for so many failures (specification 6.1); none without a valid header."""
        tries = 0
        for rule in self._table.rules if sample.fields else ():
            if not all(_matches(it, sample.fields[name]) for name, it in rule.patterns.items()):
                continue
            tries += rule.retry
            if rule.action is Action.IGNORE or tries > failures:
                return rule
        return None

    def _refusal(self, name: str, length: int) -> tuple[int, bool]:
        """Why a queue may refuse a body of so many bytes, and whether it always does."""
        if name == DEAD_LETTER_QUEUE:
            return _LOOPING, True
        queue = self._queues.get(name)
        if queue is None:
            return _UNKNOWN, True
        limits = [queue.max_message_length, queue.max_message_bytes]
        if any(limit is not None and length > limit for limit in limits):
            return _TOO_BIG, True
        if queue.is_late:
            return _UNKNOWN, False
        return (_FULL, False) if queue.may_be_full else (0, False)

    def _allowed(self, sample: Sample, failures: int) -> Iterator[tuple[int, int, str, int, str]]:
        step = self.step(sample, failures)
        line = step.rule.line if step.rule else 0
        attempt = failures + 1 if step.is_tried else 0
        if not step.is_refused:
            yield line, attempt, step.result, 0, step.queue
        following = self.step(sample, failures + 1).rule
        for reason in step.refusals:
            yield line, attempt, "parked" if following else "remains", reason, ""


def _told(outcome: Outcome) -> tuple[int, int, str, int, str]:
    return outcome.rule_line, outcome.attempt, outcome.result, outcome.reason, outcome.topic


def _target(rule: Rule, fields: Mapping[str, FieldValue]) -> str:
    """The queue that a rule names; every queue manager of the demo has the same ones."""
    if rule.action is Action.RETRY:
        return str(fields["DESTQ"])
    substituted = {"&DESTQ": fields["DESTQ"], "&REPLYQ": fields["REPLYQ"]}
    return str(substituted.get(rule.forward_queue, rule.forward_queue))


def _matches(pattern: Pattern, value: FieldValue) -> bool:
    if isinstance(pattern, NumberPattern):
        return pattern.value is None or pattern.value == value
    return _matches_text(pattern.text, str(value), pattern.length)


@cache
def _matches_text(pattern: str, text: str, length: int) -> bool:
    """Whether a pattern matches a text in a field of ``length`` (specification 5.3)."""
    field = text.ljust(length)

    def match(rest: str, at: int) -> bool:
        if not rest:
            return not field[at:].strip(" ")
        if rest[0] == "*":
            return any(match(rest[1:], start) for start in range(at, length + 1))
        if at == length:
            return False
        fits = at < len(text) if rest[0] == "?" else field[at] == rest[0]
        return fits and match(rest[1:], at + 1)

    return match(pattern, 0)

"""What has to become of a dead letter of the demo: a naive walk through the rules table.

Written from the rules-table specification, sections 4 to 6, and from what is known about the demo's
queues. It shares the reading of the table with the job and nothing else: rules are asked one by
one, and patterns are matched as the naive reading of the specification does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from tests.rules.reference import text_matches

from redrive.demo.messages import Message, Outcome, Record
from redrive.demo.reconciliation import Trace
from redrive.demo.scripts.load import (
    DEAD_LETTER_QUEUE,
    INVOICES,
    MAX_MESSAGE_BYTES,
    MAX_MESSAGE_LENGTH,
    ORDERS,
    QUEUES,
)
from redrive.messages import constant_value, decode_dead_letter
from redrive.rules import Action, FieldValue, Rule, RulesTable
from redrive.rules.patterns import NumberPattern, Pattern, StringPattern

__all__ = ["Step", "Walk", "fields_of"]

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


@cache
def fields_of(message: Message) -> Mapping[str, FieldValue]:
    """The fields that rules look at; none without a valid header."""
    return decode_dead_letter(message.record.value, list(message.record.headers)).fields


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
    """Walks a rules table with dead letters, among the queues of the demo."""

    def __init__(self, table: RulesTable) -> None:
        self._table = table
        self._rules = {rule.line: rule for rule in table.rules}

    def step(self, message: Message, failures: int) -> Step:
        """What the next attempt may come to.

        Args:
            message: The dead letter.
            failures: How many attempts on it have failed.
        """
        rule = self._rule(message, failures)
        if rule is None:
            return Step(None, "remains")
        result = _RESULTS[rule.action]
        if rule.action in {Action.DISCARD, Action.IGNORE}:
            return Step(rule, result)
        queue = _target(rule, fields_of(message))
        reason, always = self._refusal(queue, len(self.written(message, rule).value or b""))
        return Step(rule, result, queue, frozenset({reason} - {0}), always)

    def last_step(self, message: Message) -> Step:
        """The step that ends the walk, if every queue that is full or late is there in time."""
        failures = 0
        while (step := self.step(message, failures)).is_refused:
            failures += 1
            if self.step(message, failures).rule is None:
                return Step(None, "remains")
        return step

    def written(self, message: Message, rule: Rule) -> Record:
        """The record that a rule's put has to write (specification 4.3 to 4.6)."""
        keeps_header = rule.action is Action.FWD and rule.header
        return message.record if keeps_header else message.original

    def rule_at(self, line: int) -> Rule | None:
        """The rule that begins at a line of the table."""
        return self._rules.get(line)

    def problems(self, one: Trace) -> Iterator[str]:
        """What of a dead letter's history and copies contradicts the specification.

        Args:
            one: The dead letter, all its outcomes, and everywhere it was found.
        """
        if not one.outcomes:
            yield "no outcome"
            return
        for failures, outcome in enumerate(one.outcomes):
            allowed = list(self._allowed(one.message, failures))
            found = _step_of(outcome)
            if found not in allowed:
                yield f"outcome {failures + 1} is {found}, not {' or '.join(map(str, allowed))}"
            is_last = failures == len(one.outcomes) - 1
            if (outcome.result == "parked") is is_last:
                yield f"outcome {failures + 1} of {len(one.outcomes)} is {outcome.result}"
        yield from self._problems_of_copies(one, one.outcomes[-1])

    def _problems_of_copies(self, one: Trace, last: Outcome) -> Iterator[str]:
        rule = self.rule_at(last.rule_line)
        is_put = last.result != "remains"
        wanted = self.written(one.message, rule) if is_put and rule else one.message.record
        for _, found in one.ends:
            if found is None:
                continue
            if is_put and (found.topic, found.rule_line) != (last.topic, last.rule_line):
                yield f"lies on {found.place}, its last outcome says {last.topic}"
            if found.record != wanted:
                yield f"the record on {found.place} is not as it has to be"

    def _rule(self, message: Message, failures: int) -> Rule | None:
        """The rule for so many failures (specification 6.1); none without a valid header."""
        tries = 0
        fields = fields_of(message)
        for rule in self._table.rules if fields else ():
            if not all(_matches(it, fields[name]) for name, it in rule.patterns.items()):
                continue
            tries += rule.retry
            if rule.action is Action.IGNORE or tries > failures:
                return rule
        return None

    @staticmethod
    def _refusal(name: str, length: int) -> tuple[int, bool]:
        """Why a queue may refuse a body of so many bytes, and whether it always does."""
        if name == DEAD_LETTER_QUEUE:
            return _LOOPING, True
        if name not in QUEUES:
            return _UNKNOWN, True
        if length > {**MAX_MESSAGE_LENGTH, **MAX_MESSAGE_BYTES}.get(name, length):
            return _TOO_BIG, True
        return {INVOICES: _UNKNOWN, ORDERS: _FULL}.get(name, 0), False

    def _allowed(self, message: Message, failures: int) -> Iterator[tuple[int, int, str, int, str]]:
        step = self.step(message, failures)
        line = step.rule.line if step.rule else 0
        attempt = failures + 1 if step.is_tried else 0
        if not step.is_refused:
            yield line, attempt, step.result, 0, step.queue
        following = self.step(message, failures + 1).rule
        for reason in step.refusals:
            yield line, attempt, "parked" if following else "remains", reason, ""


def _step_of(outcome: Outcome) -> tuple[int, int, str, int, str]:
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
    assert isinstance(pattern, StringPattern), "the demo's tables are IBM's"
    return text_matches(pattern.text, str(value), pattern.length)

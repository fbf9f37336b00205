"""Vectors of kind ``sequence``: behaviour over time, through the job's own code.

Topics in memory stand in for Kafka and the clock; handlers, attempts and the WAIT rule are those
that the job runs.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.conformance.rules_driver import OUTCOMES, HandlerDriver, MemoryTopics, dead_letter
from tests.conformance.vectors import Vector, is_subset

from redrive.engine.statistics import Failure
from redrive.messages import OutputRecord, constant_value
from redrive.rules import RulesTable, parse

_TIMES = {"once": 1, "twice": 2, "thrice": 3, "always": 1 << 30}
_HORIZON = 7 * 24 * 3600.0
"""Seconds of simulated time after which a handler counts as running forever."""
_EXACT = 0.001
"""Seconds within which the end of a handler is found."""


@dataclass
class Course:
    """What a simulated handler did."""

    attempts: list[dict[str, Any]] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    invalid: int = 0
    ended: float | None = None


class PutResults:
    """The outcome of each put on a queue, as a vector words it."""

    def __init__(self, wording: dict[str, str]) -> None:
        self._plans = {queue: _plan_of(text) for queue, text in wording.items()}

    def __call__(self, record: OutputRecord) -> int | None:
        """The reason with which this put fails, or None."""
        plan = self._plans.get(record.topic)
        if plan is None or plan[1] == 0:
            return None
        reason, left = plan
        self._plans[record.topic] = reason, left - 1
        return reason


def _plan_of(text: str) -> tuple[int, int]:
    symbol = re.match(r"MQRC_\w+|[0-9]+", text)
    if symbol is None:
        return (0, 0) if text.startswith("ok") else (2195, 1 << 30)
    name = symbol[0]
    reason = int(name) if name.isdigit() else constant_value(name)
    assert reason is not None, text
    number = re.search(r"([0-9]+) times", text)
    word = next((word for word in _TIMES if word in text), "always")
    return reason, int(number[1]) if number else _TIMES[word]


def arrivals_of(vector: Vector) -> list[tuple[float, OutputRecord]]:
    """The dead letters of a vector with their times, in order."""
    if "arrivals" in vector:
        return [
            (entry["t"], dead_letter(entry["message"], at=entry["t"]))
            for entry in vector["arrivals"]
        ]
    messages = vector.get("messages") or [vector["message"]]
    return [(0.0, dead_letter(message)) for message in messages]


def simulate(vector: Vector, topics: MemoryTopics, table: RulesTable) -> Course:
    """Runs the handler until it ends, or until nothing more can happen."""
    topics.refuse = PutResults(vector.get("put_results", {}))
    driver, course, now = HandlerDriver(topics, table), Course(), 0.0
    pending = arrivals_of(vector)
    while now < _HORIZON:
        while pending and pending[0][0] <= now:
            topics.topics["DLQ"].append(pending.pop(0)[1])
        summary = driver.step(now)
        if summary is not None:
            _note(course, topics, table, now)
            course.failures += [f for f, count in summary.failures.items() for _ in range(count)]
            course.invalid += summary.invalid.total()
            continue
        due = driver.due_at()
        if due is None and driver.wait.is_over(now):
            course.ended = now
            return course
        events = [due, pending[0][0] if pending else None, _end_of_wait(driver, now, due)]
        following = min((event for event in events if event is not None), default=None)
        if following is None:
            return course
        now = max(now, following)
    return course


def _end_of_wait(driver: HandlerDriver, now: float, due: float | None) -> float | None:
    seconds = driver.table.control.seconds_to_wait
    if seconds is None or due is not None:
        return None
    low, high = now, now + seconds
    while high - low > _EXACT:
        middle = (low + high) / 2
        low, high = (low, middle) if driver.wait.is_over(middle) else (middle, high)
    return high


def _note(course: Course, topics: MemoryTopics, table: RulesTable, now: float) -> None:
    lines = [rule.line for rule in table.rules]
    for record in topics.topics[OUTCOMES][len(course.outcomes) :]:
        outcome = json.loads(record.value or b"{}")
        course.outcomes.append(outcome)
        if outcome["attempt"]:
            rule = lines.index(outcome["rule_line"]) + 1
            course.attempts.append({"n": outcome["attempt"], "rule": rule, "t": now})


def left_on_queue(topics: MemoryTopics) -> int:
    """Dead letters that are still there: not read, parked, or remaining."""
    unread = [record for name in ("DLQ", "DLQ-retry") for record in topics.waiting(name)]
    live: dict[bytes | None, bytes | None] = {}
    for record in topics.topics["DLQ-remaining"]:
        live[record.key] = record.value
    return len(unread) + sum(value is not None for value in live.values())


@pytest.mark.vectors("rules", kinds=["sequence"])
def test_sequence(vector: Vector) -> None:
    """The handler does over time what the vector says."""
    table, topics = parse(vector["table"]).required(), MemoryTopics()
    if "crash" in vector:
        _check_crash(vector, topics, table)
    elif "table_replaced_by" in vector:
        _check_restart(vector, topics, table)
    else:
        _check_course(vector["expect"], simulate(vector, topics, table), topics)


def _check_crash(vector: Vector, topics: MemoryTopics, table: RulesTable) -> None:
    for _, record in arrivals_of(vector):
        topics.topics["DLQ"].append(record)
    assert HandlerDriver(topics, table).decided(0.0) is not None  # and dies before the commit
    for name, count in vector["expect"]["after_crash"].items():
        number = left_on_queue(topics) if name == "on_dlq" else _put_on(topics, name[3:])
        assert number == count, name
    HandlerDriver(topics, table).step(1.0)
    assert left_on_queue(topics) + sum(_put_on(topics, topic) for topic in _targets(topics)) == (
        len(arrivals_of(vector))
    )


def _put_on(topics: MemoryTopics, queue: str) -> int:
    return len(topics.topics[queue])


def _targets(topics: MemoryTopics) -> set[str]:
    own = {"DLQ", "DLQ-retry", "DLQ-remaining", OUTCOMES}
    return set(topics.topics) - own


def _check_restart(vector: Vector, topics: MemoryTopics, table: RulesTable) -> None:
    before = simulate(vector, topics, table)
    expect = vector["expect"]
    assert before.outcomes[-1]["action"] == expect["action_before_restart"]
    changed = parse(vector["table_replaced_by"]).required()
    after = Course(outcomes=list(before.outcomes))
    HandlerDriver(topics, changed).step(1000.0)
    _note(after, topics, changed, 1000.0)
    assert after.outcomes[-1]["action"] == expect["action_after_restart"]


def _check_course(expect: dict[str, Any], course: Course, topics: MemoryTopics) -> None:
    left, ended = left_on_queue(topics), course.ended
    tolerance = expect.get("tolerance_s", 0.5)
    observed = {
        "attempts_total": len(course.attempts),
        "history_cleared": left == 0,
        "ends": ended is not None,
        "exit": None if ended is None else 0,
        "on_queue_at_end": left,
        "AMQ8722_count": len(course.failures),
        "AMQ8722": [
            {"rule_line": failure.rule_line, "reason": failure.reason}
            for failure in course.failures
        ],
        "AMQ8721_count": course.invalid,
        # A measure, and names of IBM's messages, which are information only.
        "tolerance_s": tolerance,
        "ibm_messages": expect.get("ibm_messages"),
    }
    for name, value in expect.items():
        match name:
            case "attempts":
                _check_attempts(value, course, tolerance)
            case "final":
                _check_final(str(value), course, topics)
            case "ends_after_s":
                assert ended == pytest.approx(value, abs=tolerance)
            case "ends_after_s_at_least":
                assert ended is not None
                assert ended >= value
            case _:
                assert name in observed, f"the expectation {name!r} is not understood"
                assert is_subset(value, observed[name]), name


def _check_attempts(value: Any, course: Course, tolerance: float) -> None:
    assert len(course.attempts) == len(value), course.attempts
    for expected, actual in zip(value, course.attempts, strict=True):
        for member in expected.keys() & actual.keys():
            wanted = expected[member]
            assert actual[member] == (
                pytest.approx(wanted, abs=tolerance) if member == "t" else wanted
            )


def _check_final(text: str, course: Course, topics: MemoryTopics) -> None:
    target = re.search(
        r"(?:delivered|forwarded|put|sent|on|moved) (?:to |on )?([A-Z][\w./%]*)", text
    )
    if "left" in text or "remain" in text or "stays" in text:
        assert course.outcomes[-1]["result"] == "remains"
        assert left_on_queue(topics) > 0
    elif "discard" in text:
        assert course.outcomes[-1]["result"] == "discarded"
        assert left_on_queue(topics) == 0
    else:
        assert target is not None, f"the final state {text!r} is not understood"
        assert len(topics.topics[target[1]]) == 1
        assert left_on_queue(topics) == 0

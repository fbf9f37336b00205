"""The sum comes out if and only if every message ended where it had to, exactly once."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import replace

import pytest

from redrive.demo import client
from redrive.demo.client import (
    NUMBER_HEADER,
    BrokerRecords,
    OutcomeRecord,
    Record,
    TopicRecord,
    remaining_among,
)
from redrive.demo.reconciliation import DemoMessage, End, Reconciliation, trace

HEADER = ("dead letter", b"why")
Damage = Callable[[BrokerRecords], BrokerRecords]


def _number(number: int) -> tuple[str, bytes]:
    return (NUMBER_HEADER, b"%d" % number)


def _message(number: int, what: str, place: str, *, keeps_header: bool = False) -> DemoMessage:
    original = Record(b"key", b"value %d" % number, (_number(number),), 7)
    letter = replace(original, headers=(*original.headers, HEADER))
    end = End(what, place, keeps_header)
    refusals = 1 if what == "retried" else 0
    return DemoMessage(number, what, "DLQ", letter, original, end, refusals)


MESSAGES = [
    _message(0, "forwarded", "ASIDE", keeps_header=True),
    _message(1, "retried", "ORDERS:0"),
    _message(2, "discarded", ""),
    _message(3, "remaining", "DLQ"),
]
OWN = (("redrive.rule", b"3"), ("redrive.timestamp", b"7"))


def _outcome(number: int, result: str, reason: str = "") -> OutcomeRecord:
    return OutcomeRecord(f"DLQ:0:{number}", 0, result, 3, 1, reason)


def _observation() -> BrokerRecords:
    """What is on the broker after a job without a fault."""
    forwarded, retried, _, remaining = MESSAGES
    headers = (*forwarded.record.headers, *OWN)
    return BrokerRecords(
        inputs=[TopicRecord("DLQ", 0, message.number, message.record) for message in MESSAGES],
        ends=[
            ("arrived", TopicRecord("ASIDE", 0, 5, replace(forwarded.record, headers=headers))),
            ("arrived", TopicRecord("ORDERS", 0, 6, retried.original)),
            ("remaining", TopicRecord("DLQ", 0, 3, remaining.record)),
            ("arrived", TopicRecord("ORDERS", 0, 0, Record(None, b"none of the demo's", ()))),
        ],
        outcomes={
            "DLQ:0:0": [_outcome(0, "forwarded")],
            "DLQ:0:1": [_outcome(1, "parked", "MQRC_Q_FULL"), _outcome(1, "retried")],
            "DLQ:0:2": [_outcome(2, "discarded")],
            "DLQ:0:3": [_outcome(3, "remains")],
        },
    )


def _reconciled(damage: Damage) -> Reconciliation:
    return Reconciliation(trace(MESSAGES, damage(_observation())))


def test_faultless_job_adds_up_whatever_else_is_on_its_queues() -> None:
    result = _reconciled(lambda seen: seen)
    assert result.problems == []
    assert result.adds_up
    assert str(result) == (
        "4 in = 1 forwarded + 1 retried + 1 discarded + 1 remaining, 0 lost, 0 duplicated"
    )


def _without_end(index: int) -> Damage:
    return lambda seen: replace(seen, ends=[*seen.ends[:index], *seen.ends[index + 1 :]])


@pytest.mark.parametrize("index", [0, 1, 2])
def test_message_that_is_nowhere_is_lost(index: int) -> None:
    result = _reconciled(_without_end(index))
    assert (result.lost, result.duplicated, result.adds_up) == (1, 0, False)


def _with_end(what: str, number: int) -> Damage:
    stored = TopicRecord("DLQ", 0, 9, MESSAGES[number].record)
    return lambda seen: replace(seen, ends=[*seen.ends, (what, stored)])


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("what", ["arrived", "remaining", "waiting"])
def test_message_with_two_ends_is_duplicated(what: str, number: int) -> None:
    result = _reconciled(_with_end(what, number))
    assert (result.lost, result.duplicated, result.adds_up) == (0, 1, False)


def test_one_lost_and_one_duplicated_do_not_cancel_out() -> None:
    result = _reconciled(lambda seen: _with_end("remaining", 3)(_without_end(0)(seen)))
    assert (result.lost, result.duplicated, result.adds_up) == (1, 1, False)


def _with_first_end(topic: str = "ASIDE", what: str = "arrived", **changes: object) -> Damage:
    def damage(seen: BrokerRecords) -> BrokerRecords:
        record = replace(seen.ends[0][1].record, **changes)  # type: ignore[arg-type]
        return replace(seen, ends=[(what, TopicRecord(topic, 0, 5, record)), *seen.ends[1:]])

    return damage


def _with_outcomes(number: int, *outcomes: OutcomeRecord) -> Damage:
    return lambda seen: replace(seen, outcomes={**seen.outcomes, f"DLQ:0:{number}": outcomes})


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (_with_first_end(value=b"other"), "the value on ASIDE:0:5 changed"),
        (_with_first_end(key=b"other"), "the key on ASIDE:0:5 changed"),
        (_with_first_end(headers=(_number(0),)), "the headers on ASIDE:0:5 changed"),
        (
            _with_first_end(headers=MESSAGES[0].record.headers, timestamp=1),
            "the timestamp on ASIDE:0:5 changed",
        ),
        (_with_first_end("ELSEWHERE"), "ended forwarded ELSEWHERE:0:5, not forwarded ASIDE"),
        (_with_first_end(what="waiting"), "ended waiting ASIDE:0:5, not forwarded ASIDE"),
        (lambda seen: replace(seen, inputs=seen.inputs[1:]), "was put 0 times, not 1"),
        (
            lambda seen: replace(seen, inputs=[seen.inputs[0], *seen.inputs]),
            "was put 2 times, not 1",
        ),
        (_with_outcomes(0, _outcome(0, "retried")), "ended retried ASIDE:0:5, not forwarded"),
        (_with_outcomes(1, _outcome(1, "retried")), "0 attempts failed, not 1"),
    ],
)
def test_whatever_else_is_wrong_is_named(damage: Damage, problem: str) -> None:
    result = _reconciled(damage)
    assert not result.adds_up
    assert any(problem in text for text in result.problems)


@pytest.mark.parametrize(("returns", "adds_up"), [(0, False), (1, True), (2, False)])
def test_message_comes_back_as_often_as_its_processing_fails(returns: int, adds_up: bool) -> None:  # noqa: FBT001
    message = replace(MESSAGES[3], failures=1)
    seen = _observation()
    again = [
        TopicRecord(
            "DLQ", 0, 90 + number, replace(message.record, key=b"again", timestamp=90 + number)
        )
        for number in range(returns)
    ]
    last = (*[message.record], *(stored.record for stored in again))[-1]
    ends = [("remaining", TopicRecord("DLQ", 0, 3, last))]
    traces = trace([message], replace(seen, inputs=[*seen.inputs, *again], ends=ends))
    result = Reconciliation(traces)
    assert result.adds_up == adds_up
    problem = f"message 3 (remaining): was put {1 + returns} times, not 2"
    assert result.problems == ([] if adds_up else [problem])


def test_record_that_the_application_dead_lettered_again_is_no_end() -> None:
    assert _reconciled(_with_end("arrived", 1)).duplicated == 1
    seen = _with_end("arrived", 1)(_observation())
    assert Reconciliation(trace(MESSAGES, seen, {"DLQ:0:9"})).adds_up


def test_last_copy_of_each_key_remains_unless_it_is_a_tombstone() -> None:
    own = (("redrive.key", b"customer"), ("redrive.timestamp", b"5"), ("redrive.null", b""))
    copies = [
        Record(b"A:0:0", b"first", (_number(7),)),
        Record(b"A:0:1", b"placed later", ()),
        Record(b"A:0:0", b"", (_number(7), *own)),
        Record(b"A:0:1", None, ()),
    ]
    [stored] = remaining_among(copies)
    assert (stored.position, stored.number) == ("A:0:0", 7)
    assert stored.record.without_own_headers() == Record(b"customer", None, (_number(7),), 5)


def test_client_knows_none_of_our_code() -> None:
    tree = ast.parse(inspect.getsource(client))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    assert not any(str(module).startswith("redrive") for module in modules)

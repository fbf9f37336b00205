"""The demo with dead letters of Kafka: each kind ends where the table puts it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from redrive.demo.messages import End, Found, Outcome, Record, State
from redrive.demo.reconciliation import Trace
from redrive.demo.scripts import KafkaTeams
from redrive.demo.scripts.applications import DEAD_LETTER_TOPICS, KINDS, Kind, generate
from redrive.messages import decode_dead_letter, read_view, remove_header
from redrive.messages.schemes import KNOWN
from redrive.rules import FieldReader, explain, resolve_target
from redrive.rules.fields import RuleInput
from redrive.settings import read_settings

DEMO = KafkaTeams(200, 7, fast=True)
_DEEDS = {
    "DISCARD": "discarded", "FWD": "forwarded", "RETRY": "retried", "QUARANTINE": "remaining",
}  # fmt: skip


def test_the_files_are_read_as_settings(tmp_path: Path) -> None:
    """Four dead-letter topics, one table, and nothing that ``redrive check`` would say."""
    DEMO.write_files(tmp_path, "127.0.0.1:9")
    found = read_settings(tmp_path / "redrive.toml")
    assert [one.identity.topic for one in found.job.handlers] == list(DEAD_LETTER_TOPICS)
    assert "BACKOFF(1s,2,2s)" in found.job.handlers[0].rules
    assert found.warnings == ()


def test_the_same_seed_makes_the_same_dead_letters() -> None:
    """All kinds of them, in four schemes and in none."""
    assert generate(200, 7) == generate(200, 7) != generate(200, 8)
    assert {one.kind for one in DEMO.messages} == {one.name for one in KINDS}
    schemes = {
        read_view(one.record.key, one.record.value, list(one.record.headers)).scheme
        for one in DEMO.messages
    }
    assert schemes == {"connect", "spring-dlt", "spring-retry-topic", "kafka-streams", None}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_ends_where_the_table_says(kind: Kind) -> None:
    """By the explanation of one of its messages, which is taken back to what it was."""
    table = DEMO.table
    one = next(it for it in DEMO.messages if it.kind == kind.name)
    key, value, headers = one.record.key, one.record.value, list(one.record.headers)
    letter = decode_dead_letter(value, headers, key=key, schemes=KNOWN)
    view = read_view(key, value, headers)
    reader = FieldReader(table.asked)
    message = RuleInput(key, value, headers, 0, 0, view, view.error_message, view.origin.partition)
    told = zip(reader.names, reader.values(message), strict=True)
    fields = {**letter.fields, **{name: it for name, it in told if it is not None}}
    [end] = one.ends
    assert remove_header(letter, value, headers) == (value, list(one.original.headers))
    if not letter.is_dead_letter:
        assert end.what == "remaining"
        return
    first, *further = explain(table, fields).turns
    turn = further[-1] if end.what == "remaining" and further else first
    assert turn.rule is not None
    rule = table.rules[turn.rule]
    assert _DEEDS[rule.action.value] == end.what
    if rule.action.can_fail:
        queue, _ = resolve_target(rule, fields)
        assert queue == end.place.partition(":")[0]


@pytest.mark.parametrize(
    ("state", "action", "end"),
    [
        (State.LEFT, "RETRY", End("retried", "orders:3")),
        (State.LEFT, "FWD", End("forwarded", "orders")),
        (State.REMAINING, "", End("remaining", "orders")),
        (State.WAITING, "", End("waiting", "orders")),
    ],
)
def test_an_end_is_named_after_the_rule(state: State, action: str, end: End) -> None:
    """What was retried has to be on its partition."""
    rules = DEMO.table.rules
    line = next((rule.line for rule in rules if rule.action.value == action), 0)
    found = Found("orders:3:17", "orders", 0, Record(None, None, ()), state, line)
    assert DEMO.end_of(found) == end


@dataclass
class _Delivery:
    """A record of ``payments``, as kafka-python gives it."""

    offset: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]
    topic: str = "payments"
    partition: int = 2


def test_the_application_fails_as_often_as_the_message_wants() -> None:
    """A dead letter has all headers of the record; only the last delivery is an end."""
    demo = KafkaTeams(200, 7, fast=True)
    message = next(one for one in demo.messages if one.failures == 2)
    headers: Any = [*message.original.headers, ("redrive.rounds", b"as it was")]
    deliveries = [_Delivery(offset, b"k", b"v", headers) for offset in range(3)]
    put: list[tuple[str, Record]] = []
    service: Any = demo._payments
    service.process(SimpleNamespace(read=lambda: iter(deliveries)), SimpleNamespace(put=put.extend))
    assert [topic for topic, _ in put] == ["payments-dlt"] * 2
    for offset, (_, record) in enumerate(put):
        view = read_view(record.key, record.value, list(record.headers))
        assert list(record.headers[: len(headers)]) == headers
        assert (view.scheme, view.origin.topic, view.origin.offset) == (
            "spring-retry-topic", "payments", offset,
        )  # fmt: skip
    line = next(rule.line for rule in demo.table.rules if rule.action.value == "RETRY")
    ends = [
        demo.end_of(
            Found(f"payments:2:{it}", "payments", 0, Record(b"k", b"v", ()), rule_line=line)
        )
        for it in range(4)
    ]
    assert ends == [None, None, End("retried", "payments:2"), End("waiting", "payments")]


@pytest.mark.parametrize(("waited", "early"), [(1_599, 1), (2_000, 0)])
def test_a_round_before_its_delay_is_early(waited: int, early: int) -> None:
    """Counted from the failure before it; the first round, which may be late, does not count."""
    message = next(one for one in DEMO.messages if one.failures == 1)
    line = next(rule.line for rule in DEMO.table.rules if rule.action.value == "RETRY")
    failures = [Record(b"k", b"v", (), time) for time in (5_000, 60_000)]
    puts = (50_000, 60_000 + waited)  # by BACKOFF(1s,2,2s) two seconds, less a fifth at most
    trace = Trace(
        message=message,
        inputs=[Found(f"payments-dlt:1:{it.timestamp}", "", 0, it) for it in failures],
        ends=[],
        outcomes=[
            Outcome(
                message="payments-dlt:1:0", time=time, result="retried", topic="payments",
                rule_line=line, attempt=attempt, reason=0,
            )
            for attempt, time in enumerate(puts, 1)
        ],
    )  # fmt: skip
    rounds = DEMO.document([trace], {})["rounds"]
    assert (rounds["count"], rounds["early"]) == (1, early)

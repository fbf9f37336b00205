"""The dead letters of both demos: what they are, and that each ends where its table puts it."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from redrive.demo import kafka, mq
from redrive.demo.client import NUMBER_HEADER, Record, TopicRecord
from redrive.demo.kafka import KafkaDeadLetters
from redrive.demo.mq import MqDeadLetters
from redrive.demo.reconciliation import DemoMessage
from redrive.demo.script import MessageKind, Script, mixed
from redrive.messages import Headers, decode_dead_letter, read_view, remove_header
from redrive.messages.schemes import KNOWN
from redrive.rules import FieldReader, explain, parse, resolve_target
from redrive.rules.patterns import RuleInput
from redrive.settings import read_settings

MQ = MqDeadLetters(400, 7, fast=True)
KAFKA = KafkaDeadLetters(200, 7, fast=True)
SCRIPTS = [MQ, KAFKA]
KINDS = {kind.name: kind for kind in (*mq.KINDS, *kafka.KINDS)}
_ENDS = {
    "DISCARD": "discarded", "FWD": "forwarded", "RETRY": "retried", "QUARANTINE": "remaining",
    "IGNORE": "remaining",
}  # fmt: skip


def _first(script: Script) -> dict[str, DemoMessage]:
    """One message of each kind."""
    return {message.kind: message for message in reversed(script.messages)}


@pytest.mark.parametrize("script", SCRIPTS)
def test_files_are_the_settings_of_a_job(script: Script, tmp_path: Path) -> None:
    script.write_files(tmp_path, "127.0.0.1:9", ledger=False)
    settings = read_settings(tmp_path / "redrive.toml")
    assert [handler.identity.topic for handler in settings.job.handlers] == list(script.queues)
    assert settings.job.connection.bootstrap_servers == "127.0.0.1:9"
    assert not settings.job.ledger.enabled
    assert settings.warnings == ()
    clause = "RETRYINT(1)" if script is MQ else "BACKOFF(1s,2,2s)"
    assert clause in settings.job.handlers[0].rules


def test_same_seed_makes_the_same_dead_letters() -> None:
    assert list(mq.generate(50, 7, 0)) == list(mq.generate(50, 7, 0))
    assert list(mq.generate(50, 7, 0)) != list(mq.generate(50, 8, 0))
    assert kafka.generate(50, 7) == kafka.generate(50, 7) != kafka.generate(50, 8)


@pytest.mark.parametrize("kinds", [mq.KINDS, kafka.KINDS])
@pytest.mark.parametrize("count", [50, 1000])
def test_every_kind_is_mixed_in_by_its_share(kinds: list[MessageKind], count: int) -> None:
    numbers = Counter(kind.name for kind in mixed(kinds, count, random.Random(1)))
    total = sum(kind.share for kind in kinds)
    assert numbers.total() == count
    assert set(numbers) == {kind.name for kind in kinds}
    assert all(abs(numbers[kind.name] - count * kind.share / total) <= len(kinds) for kind in kinds)


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_message_has_its_number(script: Script) -> None:
    for number, message in enumerate(script.messages):
        assert message.number == number
        assert dict(message.record.headers)[NUMBER_HEADER] == b"%d" % number


@pytest.mark.parametrize("script", SCRIPTS)
def test_original_is_the_message_behind_its_header(script: Script) -> None:
    """Those of MQ are in several representations and forms; some have no header at all."""
    forms = set()
    for message in script.messages:
        value, headers = message.record.value, list(message.record.headers)
        letter = decode_dead_letter(value, headers, key=message.record.key, schemes=KNOWN)
        if not letter.is_dead_letter:
            assert message.original.value == value
            assert message.end.what == "remaining"
        forms.add((value or b"")[:8] if script is MQ else letter.scheme)
        assert remove_header(letter, value, headers) == (
            message.original.value, list(message.original.headers),
        )  # fmt: skip
    if script is MQ:
        assert {b"DLH \0\0\0\1", b"DLH \1\0\0\0", b"\xc4\xd3\xc8\x40\0\0\0\1"} <= forms
    else:
        assert len(forms) == 5


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_ends_where_the_table_says(name: str) -> None:
    script = MQ if name in _first(MQ) else KAFKA
    table = parse(script.rules, name=script.rules_name).required()
    message = _first(script)[name]
    key, value = message.record.key, message.record.value
    headers: Headers = list(message.record.headers)
    letter = decode_dead_letter(value, headers, key=key, schemes=KNOWN)
    if not letter.is_dead_letter:
        return
    view = read_view(key, value, headers)
    reader = FieldReader(table.asked)
    row = RuleInput(key, value, headers, 0, 0, view, view.error_message, view.origin.partition)
    read = zip(reader.names, reader.values(row), strict=True)
    fields = {**letter.fields, **{field: of for field, of in read if of is not None}}
    rule, failed = None, (message.refusals or 0) + message.failures
    for turn in explain(table, fields).turns:
        rule = None if turn.rule is None else table.rules[turn.rule]
        if rule is None or failed < rule.retry or not rule.action.can_fail:
            break
        failed -= rule.retry
    what = "remaining" if rule is None else _ENDS[rule.action.value]
    assert what == message.end.what
    if rule is not None and rule.action.can_fail:
        assert resolve_target(rule, fields).queue == message.end.place.partition(":")[0]


def test_payment_service_fails_as_often_as_the_message_wants() -> None:
    message = next(sent for sent in KAFKA.messages if sent.failures == 2)
    headers = (*message.original.headers, ("redrive.rounds", b"as it was"))
    results = [
        KAFKA.process(TopicRecord("payments", 2, offset, Record(b"k", b"v", headers)), offset)
        for offset in (1, 2, 3)
    ]
    for offset, letter in enumerate(results[:2], 1):
        assert letter is not None
        topic, record = letter
        view = read_view(record.key, record.value, list(record.headers))
        assert (topic, record.headers[: len(headers)]) == ("payments-dlt", headers)
        assert (view.scheme, view.origin.topic, view.origin.offset) == (
            "spring-retry-topic", "payments", offset,
        )  # fmt: skip
    assert results[2] is None


def test_retries_wait_as_long_as_the_tables_say() -> None:
    assert [MqDeadLetters(50, 1).least_wait(attempt) for attempt in (1, 2, 9)] == [6, 6, 6]
    waits = [KafkaDeadLetters(50, 1).least_wait(attempt) for attempt in (1, 2, 4, 9)]
    assert waits == pytest.approx([1.6, 3.2, 6.4, 6.4])

"""Tables in DIALECT(KAFKA) decide about dead letters of any scheme, message by message."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from tests.conformance.rules_driver import IDENTITY, OUTCOMES, HandlerDriver, MemoryTopics

from redrive.engine.cache import MatchedProfile, ProfileMatcher
from redrive.engine.message import Message
from redrive.messages import Headers, OutputRecord, SchemeTable, decode_dead_letter
from redrive.messages.schemes import OwnScheme
from redrive.rules import parse
from redrive.rules.backoff import JITTER, PARTITIONS

HEAD = "DIALECT(KAFKA) RETRYINT(10)\n"
HOUR = 3_600_000
BACKOFF = IDENTITY.backoff_topic


def connect(
    topic: str = "orders", *, message: str = "it failed", connector: str = "sink", **headers: str
) -> Headers:
    """What Kafka Connect puts on a record that a sink could not write."""
    prefix = "__connect.errors."
    return [
        (f"{prefix}topic", topic.encode()),
        (f"{prefix}partition", b"3"),
        (f"{prefix}offset", b"17"),
        (f"{prefix}connector.name", connector.encode()),
        (f"{prefix}stage", b"TASK_PUT"),
        (f"{prefix}exception.class.name", b"org.acme.WriteException"),
        (f"{prefix}exception.message", message.encode()),
        *((name.replace("_", "-"), value.encode()) for name, value in headers.items()),
    ]


def watermill(topic: str = "orders", *, message: str = "it failed", **headers: str) -> Headers:
    """What Watermill puts on a message of its poison queue, whose time is that of the failure."""
    return [
        ("topic_poisoned", topic.encode()),
        ("reason_poisoned", message.encode()),
        *((name.replace("_", "-"), value.encode()) for name, value in headers.items()),
    ]


def letter(headers: Headers, value: bytes = b"{}", key: bytes = b"k", at: int = 0) -> OutputRecord:
    """A record on the dead-letter queue."""
    return OutputRecord("DLQ", key, value, headers, at)


def driven(table: str, letters: list[OutputRecord]) -> tuple[MemoryTopics, HandlerDriver]:
    topics = MemoryTopics()
    topics.topics["DLQ"] += letters
    return topics, HandlerDriver(topics, parse(HEAD + table).required())


def outcomes(topics: MemoryTopics) -> list[dict[str, Any]]:
    return [json.loads(record.value or b"") for record in topics.topics[OUTCOMES]]


MATCHES = [
    ("SCHEME(connect)", True),
    ("SCHEME(spring-*)", False),
    ("TOPIC(orders)", True),
    ("TOPIC(ORDERS)", False),
    ("PARTITION(3)", True),
    ("PARTITION(<3)", False),
    ("GROUP(' ')", True),
    ("GROUP(?*)", False),
    ("CONNECTOR(/^s.nk$/)", True),
    ("STAGE(TASK_PUT|KEY_CONVERTER)", True),
    ("ERRCLASS(*.WriteException)", True),
    ("ROOTCLASS(org.acme.*)", True),
    ("ERRMSG(/fail(s|ed)$/)", True),
    ("ERRMSG(/^fail/)", False),
    ("ATTEMPTS(>=0)", False),
    ("ATTEMPTS(*)", True),
    ("AGE(>1h)", True),
    ("AGE(<=1h)", False),
    ("SIZE(>2)", True),
    ("SIZE(>1k)", False),
    ("KEY(k)", True),
    ("HEADER('x-tenant',acme|globex)", True),
    ("HEADER('x-none',acme)", False),
    ("JSON('$.order.items[1].sku',/^B/)", True),
    ("JSON('$.order.id',7)", True),
    ("JSON('$.order.none',7)", False),
    ("DESTQ('orders') SCHEME(connect) ERRMSG(/failed/)", True),
]
BODY = b'{"order": {"id": 7, "items": [{"sku": "A1"}, {"sku": "B2"}]}}'


@pytest.mark.parametrize(("pattern", "matches"), MATCHES)
def test_a_pattern_looks_at_what_the_dead_letter_says(pattern: str, *, matches: bool) -> None:
    table = f"{pattern} ACTION(DISCARD)\nACTION(IGNORE)\n"
    topics, driver = driven(table, [letter(connect(x_tenant="acme"), BODY)])
    driver.step(now=2 * 3600)
    (outcome,) = outcomes(topics)
    assert outcome["result"] == ("discarded" if matches else "remains")


def test_messages_of_one_kind_are_decided_one_by_one() -> None:
    table = (
        "ERRMSG(/timed out/) ACTION(FWD) FWDT('slow')\n"
        "JSON('$.n',>) ACTION(FWD) FWDT('x')\n".replace("JSON('$.n',>)", "JSON('$.n',1)")
        + "ACTION(FWD) FWDT('dead.&CONNECTOR.&TOPIC')\n"
    )
    letters = [
        letter(connect(message="timed out" if number % 2 else "no"), b'{"n": %d}' % (number % 3))
        for number in range(12)
    ]
    topics, driver = driven(table, letters)
    driver.step(now=1)
    expected = ["slow" if n % 2 else "x" if n % 3 == 1 else "dead.sink.orders" for n in range(12)]
    assert [outcome["target_topic"] for outcome in outcomes(topics)] == expected
    assert len(topics.topics["slow"]) == 6


def attempts_of(table: str, letters: list[OutputRecord]) -> list[tuple[int, float]]:
    """Lines of the rules that are tried and the times, while every put but one to dead fails."""
    topics, driver = driven(table, letters)
    topics.refuse = lambda record: None if record.topic == "dead" else 2053
    now = 0.0
    tried: list[tuple[int, float]] = []
    while driver.step(now):
        made = outcomes(topics)[len(tried) :]
        tried += [(outcome["rule_line"], outcome["time"] / 1000) for outcome in made]
        due = driver.due_at()
        if due is None:
            return tried
        now = due
    return tried


def test_a_backoff_grows_from_attempt_to_attempt_and_stops_at_its_cap() -> None:
    """Each wait is as the rule says, less its jitter; the next rule comes after the last.

    The delay of the first is over: the dead letter is old.
    """
    table = "ACTION(RETRY) RETRY(5) BACKOFF(30s,2,2m)\nACTION(FWD) FWDT('dead')\n"
    lines, times = zip(*attempts_of(table, [letter(watermill())]), strict=True)
    assert lines == (2, 2, 2, 2, 2, 3)
    waits = [after - before for before, after in pairwise(times)]
    for wait, delay in zip(waits, [60, 120, 120, 120, 10], strict=True):
        assert delay * (1 - JITTER) < wait <= delay


def test_each_rule_has_delays_of_its_own() -> None:
    """Without BACKOFF it is RETRYINT; a rule that comes later begins with its first delay."""
    table = (
        "ACTION(RETRY) RETRY(2) BACKOFF(100s,1,1h)\nACTION(RETRY) RETRY(2)\n"
        "ACTION(RETRY) RETRY(2) BACKOFF(7s,100,1000s)\n"
    )
    times = [time for _, time in attempts_of(table, [letter(watermill())])]
    waits = [after - before for before, after in pairwise(times)]
    for wait, delay in zip(waits, [100, 10, 10, 7, 700], strict=True):
        assert delay * (1 - JITTER) < wait <= delay
    assert waits[1:3] == [10, 10]


def test_messages_that_failed_together_come_back_apart_and_decided_again_the_same() -> None:
    table = "ACTION(RETRY) RETRY(2) BACKOFF(60s,1,60s)\n"
    topics, driver = driven(table, [letter(watermill()) for _ in range(200)])
    topics.refuse = lambda _: 2053
    works = [driver.decided(now=0) for _ in range(2)]
    first, again = (
        [
            (record.partition, record.timestamp)
            for _, record in work.outputs
            if record.topic == BACKOFF
        ]
        for work in works
        if work is not None
    )
    assert first == again
    assert len(first) == 200
    assert {partition for partition, _ in first} == set(range(PARTITIONS))


def test_what_waits_by_backoff_remains_on_the_partition_of_its_source() -> None:
    topics, driver = driven("ACTION(RETRY) RETRY(2) BACKOFF(60s,1,60s)\n", [letter(watermill())])
    topics.refuse = lambda _: 2053
    driver.step(now=0)
    driver.step(now=60)
    (kept,) = topics.topics[IDENTITY.remaining_topic]
    assert (kept.key, kept.partition) == (b"DLQ:0:0", 0)


def test_a_refused_put_of_one_message_goes_on_with_the_rules_of_that_message() -> None:
    table = (
        "TOPIC(orders) SIZE(*) ACTION(RETRY)\nERRMSG(/a/) ACTION(FWD) FWDT('a')\n"
        "ERRMSG(/b/) ACTION(FWD) FWDT('b')\n"
    )
    topics, driver = driven(table, [letter(watermill(message=text)) for text in ("b", "a", "c")])
    topics.refuse = lambda record: 2053 if record.topic == "orders" else None
    driver.step(now=0)
    assert [outcome["result"] for outcome in outcomes(topics)] == ["parked", "parked", "remains"]
    driver.step(now=10)
    assert [outcome["target_topic"] for outcome in outcomes(topics)[3:]] == ["b", "a"]


def test_hostile_messages_have_an_outcome() -> None:
    """Bodies that are no JSON or nested without end, headers of broken text, a huge key."""
    table = (
        "JSON('$.a[0].b',/x/) ACTION(DISCARD)\nHEADER('h',/\\x{FFFD}/) ACTION(DISCARD)\n"
        "KEY(/^(a|aa)+$/) ACTION(DISCARD)\nACTION(IGNORE)\n"
    )
    bodies = [b"", b"\xff", b"[" * 100_000, b'{"a":' * 5_000, b'{"a":[{"b":"x"}]}', b"null"]
    letters = [letter(connect(), body) for body in bodies]
    letters.append(letter([*connect(), ("h", b"\xff\x00")]))
    letters.append(letter(connect(message="\0"), key=b"a" * 200_000 + b"!"))
    topics, driver = driven(table, letters)
    driver.step(now=0)
    results = [outcome["result"] for outcome in outcomes(topics)]
    assert results == ["remains"] * 4 + ["discarded", "remains", "discarded", "remains"]


def test_rules_see_what_a_scheme_of_ones_own_tells() -> None:
    own_scheme = OwnScheme(
        name="mine",
        recognise="$.error.type",
        parts={"origin.topic": "$.topic", "error.message": "$.error.text", "failed_at": "$.at"},
    )
    schemes = SchemeTable([own_scheme.scheme()])
    table = parse(
        f"{HEAD}SCHEME(mine) TOPIC(orders) ERRMSG(/^boom/) AGE(>1h) ACTION(DISCARD)\n"
    ).required()
    matcher = ProfileMatcher(table, schemes)
    for text, at, candidates in (("boom!", 0, 1), ("no boom", 0, 0), ("boom!", 2 * HOUR, 0)):
        error = {"type": "a.B", "text": text}
        value = json.dumps({"error": error, "topic": "orders", "at": at}).encode()
        profile = decode_dead_letter(value, [], schemes=schemes)
        message = Message(None, value, [], 0, "", "", 0, profile=profile)
        match = matcher.match(message, 2 * HOUR)
        assert isinstance(match, MatchedProfile)
        assert match.candidates == candidates

"""What a sample of a topic shows, and the rules table that is made of it."""

from __future__ import annotations

import re
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.configurations import write_settings
from tests.conformance.rules_driver import HandlerDriver, MemoryTopics
from tests.conformance.vectors import load, octets
from tests.engine.failed_processing import EVERY, LATE, SCHEMES, karafka
from tests.engine.test_rounds import Application, waits
from tests.messages.samples import messages

from redrive.kafka.records import StoredRecord
from redrive.messages import (
    Headers,
    OutputRecord,
    TopicPartition,
    encode_header,
    new_header,
    read_view,
)
from redrive.messages.schemes import KNOWN, SCHEME_NAMES
from redrive.operations.identify import (
    PASSING,
    STAYING,
    Outlook,
    drafted_scheme,
    first_table,
    identified,
    outlook_of,
)
from redrive.rules import parse
from redrive.rules.backoff import JITTER
from redrive.settings import read_settings

VECTORS = Path(__file__).parents[1] / "vectors"
LETTERS = [
    (letter.key, letter.value, letter.headers or [])
    for fail in EVERY
    for letter in [fail(OutputRecord("orders", b"k", b"v", [], 5), 7, 9)]
]
"""A dead letter of each known scheme, and of two that are unknown here."""


def stored(offset: int, key: bytes | None, value: bytes | None, headers: Headers) -> StoredRecord:
    return StoredRecord(TopicPartition("dlq", 0), offset, 0, key, value, headers)


def test_each_scheme_in_a_mixed_topic_gets_its_name() -> None:
    """10,000 messages of all schemes, and some of none, are counted right, with an example each."""
    kinds: list[tuple[str, bytes | None, bytes | None, Headers]] = [
        (
            vector["expect"]["scheme"] or "none",
            octets(vector["key"]),
            octets(vector["value"]),
            [(name, octets(content)) for name, content in vector["headers"]],
        )
        for vector in load(VECTORS, "schemes")
    ]
    kinds += [(read_view(*letter).scheme or "none", *letter) for letter in LETTERS]
    assert {name for name, *_ in kinds} == {*SCHEME_NAMES, "none"}
    records = [stored(n, *kinds[n % len(kinds)][1:]) for n in range(10_000)]
    expected: dict[str, int] = {}
    for n in range(10_000):
        name = kinds[n % len(kinds)][0]
        expected[name] = expected.get(name, 0) + 1
    identification = identified("dlq", records, KNOWN)
    assert {name: scheme.count for name, scheme in identification.schemes.items()} == expected
    for scheme in identification.schemes.values():
        offset = int(scheme.example.rpartition(":")[2])
        assert kinds[offset % len(kinds)][0] == scheme.name
    assert identification.schemes["connect"].topics["orders"]
    assert identification.schemes["connect"].groups["jdbc-sink"]
    assert identification.schemes["kafka-streams"].errors["a.B"]


@given(st.lists(st.tuples(messages, st.none() | st.binary(max_size=4)), max_size=20))
def test_the_first_table_has_no_error_whatever_was_found(
    rows: list[tuple[tuple[bytes | None, Headers], bytes | None]],
) -> None:
    records = [stored(n, key, *message) for n, (message, key) in enumerate(rows)]
    identification = identified("dlq", records, KNOWN)
    assert (
        sum(scheme.count for scheme in identification.schemes.values())
        == identification.count
        == len(rows)
    )
    text = first_table(identification)
    result = parse(text)
    assert result.table is not None, [diagnostic.render() for diagnostic in result.diagnostics]
    assert "DISCARD" not in re.sub(r"^\*.*$", "", text, flags=re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 72


DRAFTS: list[tuple[bytes, Headers, dict[str, Any]]] = [
    (
        b"v",
        [("error", b"a.B: no stock"), ("original_topic", b"orders"), ("trace", b"1")],
        {"origin.topic": "orders", "error_class": "a.B"},
    ),
    (
        b"v",
        [("x-error-message", b"boom"), ("x-original-topic", b"t"), ("x-retry-count", b"3")],
        {"origin.topic": "t", "error_message": "boom", "attempts": 3},
    ),
    (
        b"v",
        [("topic", b"t"), ("partition", bytes([0, 0, 0, 7])), ("offset", bytes(7) + b"\5")],
        {"origin.topic": "t", "origin.partition": 7, "origin.offset": 5},
    ),
    (
        b'{"failed": {"topic": "t", "error": "a.B: c", "partition": 3}, "payload": {"id": 1}}',
        [],
        {"origin.topic": "t", "origin.partition": 3, "error_class": "a.B"},
    ),
    (
        b'{"exceptionClass": "a.B", "sourceTopic": "t", "failedAt": "2026-01-15T12:34:56Z"}',
        [],
        {"origin.topic": "t", "error_class": "a.B", "failed_at": 1_768_480_496_000},
    ),
]


@pytest.mark.parametrize(("value", "headers", "expected"), DRAFTS)
def test_draft_of_a_scheme_reads_the_message_it_is_made_of(
    value: bytes, headers: Headers, expected: dict[str, Any], tmp_path: Path
) -> None:
    assert read_view(b"k", value, headers).scheme is None
    identification = identified("orders.dlq", [stored(0, b"k", value, headers)], KNOWN)
    path = write_settings(tmp_path, "orders.dlq", more=identification.schemes["none"].draft)
    schemes = read_settings(path, asks=False).job.scheme_table
    view = read_view(b"k", value, headers, schemes=schemes)
    assert view.scheme == "own-orders-dlq"
    actual = {
        name: getattr(view.origin if "." in name else view, name.rpartition(".")[2])
        for name in expected
    }
    assert actual == expected


@given(
    st.binary(max_size=20) | st.text().map(str.encode), st.lists(st.tuples(st.text(), st.binary()))
)
def test_nothing_in_a_message_makes_drafting_raise(
    value: bytes, headers: list[tuple[str, bytes]]
) -> None:
    drafted_scheme("t", value, [*headers])
    assert not drafted_scheme("t", b'{"order": {"offset": 1}}', [("content-type", b"json")])


CLASSES = {
    Outlook.PASSES: ["java.net.SocketTimeoutException", "TimeoutError", "net.OpError", "ETIMEDOUT"],
    Outlook.STAYS: ["a.b.DataException", "KeyError", "System.NullReferenceException"],
    Outlook.UNKNOWN: ["com.acme.OddException", "a.B$C", "x y", "", "é.TimeoutExceptions"],
}
_CLAIM = re.compile(r"up to (\d+) (?:rounds, ([\d, and]+) seconds|attempts, (\d+) seconds apart)")


def failing(fail: Any, error: str) -> Any:
    """A library's way to write dead letters, for failures with one class of exception."""

    def failed(record: OutputRecord, offset: int, now: int) -> OutputRecord:
        letter: OutputRecord = fail(record, offset, now)
        pairs = letter.headers or []
        headers = [
            (name, raw and raw.replace(b"org.acme.WriteException", error.encode()))
            for name, raw in pairs
        ]
        return letter._replace(headers=headers)

    return failed


def starter(fail: Any, errors: list[str]) -> str:
    """The starter table of a topic with one dead letter for each class."""
    record = OutputRecord("orders", b"k", b"{}", [], 5)
    letters = [failing(fail, error)(record, n, 1_000) for n, error in enumerate(errors)]
    records = [
        stored(n, letter.key, letter.value, letter.headers or [])
        for n, letter in enumerate(letters)
    ]
    return first_table(identified("dlq", records, KNOWN))


def claim_of(text: str, line: int) -> list[int]:
    """The delays that the comment above a rule claims, in seconds; none if it says remains."""
    above: list[str] = []
    for comment in reversed(text.splitlines()[: line - 1]):
        if not comment.startswith("* "):
            break
        above.insert(0, comment.removeprefix("* "))
    claim = _CLAIM.search(" ".join(above))
    if claim is None:
        assert "remain" in " ".join(above)
        return []
    delays = [int(number) for number in re.findall(r"\d+", claim[2] or claim[3])]
    assert len(delays) == int(claim[1]) or claim[3]
    return delays if claim[2] else delays * (int(claim[1]) - 1)


@pytest.mark.parametrize("fail", [*SCHEMES, karafka], ids=lambda fail: fail.__name__)
def test_engine_does_what_the_comments_of_a_starter_table_claim(fail: Any) -> None:
    text = starter(fail, [*chain.from_iterable(CLASSES.values())])
    table = parse(text).required()
    names_class = fail.__name__ not in {"smallrye", "share_group", "karafka"}
    for outlook, errors in CLASSES.items():
        for error in errors[:2]:
            application = Application(failing(fail, error), table=text)
            application.run()
            last = application.outcomes[-1]
            assert last["result"] == "remains", last
            first = next(outcome for outcome in application.outcomes if outcome["rule_line"])
            expected = claim_of(text, first["rule_line"])
            assert len(application.puts) == len(expected)
            assert bool(expected) == (outlook is Outlook.PASSES and names_class)
            pairs = zip(waits(application), expected, strict=False)
            for number, (wait, delay) in enumerate(pairs):
                late = number == 0 and fail in LATE
                assert delay * (1 - JITTER) < wait <= delay or late
    retries = [rule for rule in table.rules if rule.action.value == "RETRY"]
    assert len(retries) == (len(CLASSES[Outlook.PASSES]) if names_class else 0)


def test_starter_table_of_mq_retries_what_may_pass() -> None:
    headers = [
        new_header([], reason=reason, queue="Q", queue_manager="", timestamp=0)
        for reason in (2053, 2085, 2110)
    ]
    records = [stored(n, b"k", encode_header(header), []) for n, header in enumerate(headers)]
    text = first_table(identified("dlq", records, KNOWN))
    table = parse(text).required()
    assert "DIALECT" not in text
    rules = [(rule.action.value, dict(rule.keywords())) for rule in table.rules]
    assert [action for action, _ in rules] == ["RETRY", "IGNORE", "IGNORE"]
    tries: list[float] = []
    topics, now = MemoryTopics(), 1_000.0
    topics.topics["DLQ"].append(OutputRecord("DLQ", b"k", encode_header(headers[0]), [], 5))

    def refuse(record: OutputRecord) -> int | None:
        if record.topic != "Q":
            return None
        tries.append(now)
        return 2053

    topics.refuse = refuse
    driver = HandlerDriver(topics, table)
    due: float | None = now
    while due is not None:
        now = max(now, due)
        driver.step(now)
        due = driver.due_at()
    assert [later - before for before, later in pairwise(tries)] == claim_of(
        text, table.rules[0].line
    )
    assert len(tries) == 30
    assert len(topics.topics["DLQ-remaining"]) == 1
    assert "REASON(MQRC_UNKNOWN_OBJECT_NAME) ACTION(RETRY) RETRY(30)" in text


def test_starter_table_of_a_mixed_topic_puts_nothing_that_nobody_knows() -> None:
    records = [stored(n, *LETTERS[n % len(LETTERS)]) for n in range(600)]
    text = first_table(identified("dlq", records, KNOWN))
    table = parse(text).required()
    assert {rule.action.value for rule in table.rules} == {"IGNORE"}


def test_starter_table_of_an_unknown_topic_says_that_no_rule_applies() -> None:
    text = first_table(identified("dlq", [stored(0, b"k", b"v", [("x", b"y")])], KNOWN))
    assert "No rule applies to messages of no scheme" in text
    assert "attempt" not in text
    assert [rule.action.value for rule in parse(text).required().rules] == ["IGNORE"]


@pytest.mark.parametrize("outlook", CLASSES)
def test_outlook_of_classes_of_several_languages(outlook: Outlook) -> None:
    assert {outlook_of(error) for error in CLASSES[outlook]} == {outlook}
    assert not PASSING & STAYING


def test_an_error_of_connect_is_not_the_error_of_a_connection() -> None:
    connect = "org.apache.kafka.connect.errors.ConnectException"
    field = "__connect.errors.exception.class.name"
    records = [
        stored(number, b"k", b"v", [("__connect.errors.topic", b"t"), (field, name.encode())])
        for number, name in enumerate(["java.net.ConnectException"] * 2 + [connect])
    ]
    lines = [line for line in first_table(identified("dlq", records, KNOWN)).splitlines() if line]
    rules = [line for line in lines if line[0] != "*" and "ROOTCLASS" in line]
    assert rules == [
        f"ROOTCLASS('{connect}') ACTION(IGNORE)",
        "TOPIC(?*) ROOTCLASS('*.ConnectException') +",
    ]


def test_the_first_table_offers_rounds_for_the_group_that_failed() -> None:
    headers: Headers = [
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.connector.name", b"sink"),
    ]
    text = first_table(identified("dlq", [stored(0, b"k", b"v", headers)], KNOWN))
    assert "orders.connect-sink.retry" in text
    assert all("TO(GROUP)" not in line for line in text.splitlines() if line[:1] != "*")
    plain = first_table(identified("dlq", [stored(0, b"k", b"v", headers[:1])], KNOWN))
    assert "TO(GROUP)" not in plain

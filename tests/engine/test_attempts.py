"""Attempts: two ways that write the same, limits, loops, copies that wait, tombstones."""

from __future__ import annotations

import os
import random
from base64 import b64decode
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.known_cluster import OPEN, KnownCluster
from tests.engine.samples import (
    NOW,
    TABLE,
    handler_of,
    outcomes_in,
    record,
    resolve_anything,
    slice_of,
    written,
)

from redrive.engine.decision import TimestampMode
from redrive.engine.facts import TopicFacts
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.sources import SourceKind
from redrive.messages import DeadLetterHeader, Headers, OutputRecord, Records, encode_header
from redrive.messages.own_headers import read_own
from redrive.topology.put import Destination, Refusal


def outputs_of(
    records: Records, handler: RulesDecider, *, cluster: KnownCluster = OPEN, **more: Any
) -> list[tuple[int, OutputRecord]]:
    """What one attempt on some records writes."""
    return cluster.decided(slice_of(records, handler, **more))


NAMES = (
    "JMS_IBM_MQMD_Format", "JMS_IBM_MQMD_Encoding", "x", "JMS_IBM_MQMD_ReplyToQ", "x",
    "JMS_IBM_MQMD_Persistence", "JMS_IBM_MQMD_Priority",
    "__connect.errors.topic", "__connect.errors.partition", "kafka_dlt-exception-stacktrace",
    "kafka_dlt-original-topic", "kafka_dlt-original-partition", "source_topic", "source_key",
    "source_partition", "original_partition", "kafka_dlt-original-consumer-group",
    "__connect.errors.offset", "kafka_dlt-original-offset", "source_offset", "__dlq.errors.topic",
    "__connect.errors.exception.message", "kafka_dlt-exception-message",
)  # fmt: skip
REASONS = (2053, 2035, 2085, 2051, 2052, 9999)


@st.composite
def uniform_batches(draw: st.DrawFn) -> Records:
    """Records that all carry the same header names, binary dead letters and others mixed."""
    layout = tuple(draw(st.lists(st.sampled_from(NAMES), max_size=5)))
    texts = st.sampled_from(
        [b"MQSTR", b"MQSTR   ", b"", b"Q1", b"7", b"273", b"2", b"-1", bytes(3) + b"\1", None]
    )
    rows = draw(st.integers(1, 8))
    values: list[bytes | None] = []
    for _ in range(rows):
        header = DeadLetterHeader(
            reason=draw(st.sampled_from(REASONS)),
            dest_q_name=draw(st.sampled_from(["", "Q1", "DLQ"])),
            format=draw(st.sampled_from(["MQSTR", ""])),
            encoding=draw(st.sampled_from([0, 273, 546])),
        )
        body = encode_header(header) + draw(st.binary(max_size=3))
        values.append(draw(st.sampled_from([body, body, body[:100], b"", None])))
    headers: list[Headers] = [[(name, draw(texts)) for name in layout] for _ in range(rows)]
    keys = [draw(st.sampled_from([None, b"", b"k"])) for _ in range(rows)]
    return Records(keys, values, headers, [5] * rows, list(range(10, 10 + rows)))


ANYTHING_BACK = "ACTION(RETRY)"
TO_THE_GROUP = "DIALECT(KAFKA)\nPARTITION(<2) ACTION(FWD) FWDT('Q2')\nACTION(RETRY) TO(GROUP)"
ANYTHING_ON = "ACTION(FWD) FWDQ(Q2) HEADER(YES)"
ONE_BY_ONE = """DIALECT(KAFKA)
KEY(k) SIZE(>173) ACTION(FWD) FWDT('Q1.&TOPIC') HEADER(NO)
HEADER('x',MQSTR|/^Q/) ACTION(FWD) FWDT('Q2')
SCHEME(mqdlh) SIZE(*) ACTION(RETRY)
KEY(' ') ACTION(QUARANTINE)
"""


def with_defaults(queue_manager: str, queue: str) -> Destination | Refusal:
    """Queues with DEFPSIST(YES) and DEFPRTY(7)."""
    resolution = resolve_anything(queue_manager, queue)
    return (
        resolution
        if isinstance(resolution, Refusal)
        else replace(resolution, persistence=1, priority=7)
    )


@pytest.mark.parametrize("table", [ANYTHING_BACK, ANYTHING_ON, ANYTHING_ON.replace("YES", "NO")])
@pytest.mark.parametrize("more", [[], [("redrive.hops", b"1")]])
def test_a_forward_settles_what_is_left_to_the_queue(table: str, more: Headers) -> None:
    """MQMD, Persistence and Priority: a message on a queue has DEFPSIST and DEFPRTY instead."""
    left: Headers = [("JMS_IBM_MQMD_Persistence", b"2"), ("JMS_IBM_MQMD_Priority", b"-1")]
    said: Headers = [("mqdlh.Reason", b"2053"), ("mqdlh.DestQName", b"Q2"), *left, *more]
    outputs = outputs_of(record(b"x", said), handler_of(table, resolve=with_defaults))
    headers = dict(written(outputs, "Q2")[0].headers or [])
    assert [headers[name] for name, _ in left] == [b"1", b"7"]


@given(
    uniform_batches(),
    st.sampled_from([TABLE, ANYTHING_BACK, ANYTHING_ON, ONE_BY_ONE, TO_THE_GROUP]),
)
def test_prepared_deliveries_write_what_the_careful_way_writes(
    records: Records, table: str
) -> None:
    """A quick path is only quick: every record it writes is the same, byte for byte.

    A record with other headers behind them makes the job take the careful way with all of them.
    """
    handler = handler_of(table, resolve=with_defaults)
    quick = outputs_of(records, handler)
    mixed = Records(
        [*records.keys, b"k"],
        [*records.values, b"x"],
        [*records.headers, [("other", b"1"), ("redrive.hops", b"1")]],
        [*records.timestamps, 5],
        [*records.offsets, records.offsets[-1] + 1],
    )
    careful = outputs_of(mixed, handler)
    assert quick == careful[: len(quick)]
    assert {entry for entry, _ in careful[len(quick) :]} <= {-1, len(records)}


def test_every_record_has_exactly_one_outcome_whatever_it_contains() -> None:
    broken: list[bytes | None] = [None, b"", b"DLH ", b"\x00" * 200, b"DLH \x00\x00\x00\x02" * 40]
    forged: list[Headers] = [[], [("mqdlh.Reason", None)], [("redrive.hops", b"-1"), ("", b"")]]
    for value in broken:
        for headers in forged:
            outputs = outputs_of(record(value, headers), handler_of())
            assert len(written(outputs, "OUT")) == 1


@pytest.mark.parametrize(("released", "attempt"), [(0, 2), (1, 1)])
def test_counts_begin_again_when_a_table_comes_back_that_another_had_replaced(
    released: int, attempt: int
) -> None:
    (parked,) = written(
        outputs_of(record(b"x", [("mqdlh.Reason", b"2053")]), handler_of()), "RETRY"
    )
    copy = record(b"x", parked.headers or [])
    again = slice_of(copy, handler_of(), kind=SourceKind.RETRIES, released=released)
    assert outcome_of(OPEN.decided(again))["attempt"] == attempt


def test_a_remaining_copy_keeps_null_keys_and_null_values_apart_from_empty_ones() -> None:
    place = handler_of("ACTION(FWD) FWDQ(Q)")
    for key in (None, b"", b"k"):
        for value in (None, b"", b"x"):
            (copy,) = written(outputs_of(record(value, [], key), handler_of()), "REMAINING")
            assert (copy.key, copy.partition) == (b"DLQ:3:0", 3)
            assert copy.value is not None
            dead: Headers = [*(copy.headers or []), ("mqdlh.Reason", b"1")]
            back = outputs_of(record(copy.value, dead, copy.key), place, kind=SourceKind.REMAINING)
            (put,) = written(back, "Q")
            assert (put.key, put.value) == (key, value)


def outcome_of(outputs: list[tuple[int, OutputRecord]]) -> dict[str, Any]:
    (outcome,) = written(outputs, "OUT")
    assert len(outcome.value or b"") < 64 * 1024
    return outcomes_in(outputs)[0]


def test_an_outcome_of_a_long_key_is_small_and_tells_length_and_hash() -> None:
    key = os.urandom(800_000)
    outputs = outputs_of(record(b"x", [("mqdlh.Reason", b"2035")], key), handler_of())
    assert written(outputs, "SECURITY")[0].key == key
    outcome = outcome_of(outputs)
    assert key.startswith(b64decode(outcome["key"]))
    assert (outcome["key_length"], outcome["key_sha256"]) == (800_000, sha256(key).hexdigest())


def test_an_outcome_of_a_long_header_value_is_small_and_tells_length_and_hash() -> None:
    name = "Q" * 900_000
    headers: Headers = [("mqdlh.Reason", b"2053"), ("mqdlh.DestQName", name.encode())]
    outcome = outcome_of(outputs_of(record(b"x", headers), handler_of()))
    digest = sha256(name.encode()).hexdigest()
    for text in (outcome["fields"]["DESTQ"], outcome["target_queue"]):
        assert text.startswith("QQQQ")
        assert text.endswith(f"({len(name)} characters, SHA-256 {digest})")


def test_a_remaining_copy_of_a_topic_made_anew_replaces_none_of_the_first() -> None:
    """Offsets start at 0 again; the copies have keys of their own, and so have their tombstones."""
    (first,) = written(outputs_of(record(b"x", []), handler_of()), "REMAINING")
    entries = outputs_of(record(b"x", []), handler_of(), incarnation=2)
    (second,) = written(entries, "REMAINING")
    assert {name: outcome_of(entries)[name] for name in ("outcome", "topic", "incarnation")} == {
        "outcome": "DLQ~2:3:0", "topic": "DLQ", "incarnation": 2,
    }  # fmt: skip
    assert (first.key, second.key) == (b"DLQ:3:0", b"DLQ~2:3:0")
    assert read_own(second.headers or []).identity == "DLQ~2:3:0"
    dead: Headers = [*(second.headers or []), ("mqdlh.Reason", b"2051")]
    back = outputs_of(record(b"x", dead, second.key), handler_of(), kind=SourceKind.REMAINING)
    assert [(gone.key, gone.value) for gone in written(back, "REMAINING")] == [(second.key, None)]


def refusal_by(facts: TopicFacts, key: bytes | None = b"k") -> dict[str, Any]:
    """The outcome of a put to a topic with these facts, which parks the message."""
    headers: Headers = [("mqdlh.Reason", b"2053"), ("mqdlh.DestQName", b"Q1")]
    cluster = KnownCluster({"Q1": facts})
    outputs = outputs_of(record(b"x", headers, key), handler_of(), cluster=cluster)
    assert not written(outputs, "Q1")
    outcome = outcome_of(outputs)
    assert outcome["result"] == "parked"
    return outcome


@pytest.mark.parametrize("field", ["timestamp_before_max", "timestamp_after_max"])
@pytest.mark.parametrize("mode", TimestampMode)
def test_a_timestamp_that_a_topic_refuses_becomes_that_of_the_put_unless_it_is_kept(
    field: str, mode: TimestampMode
) -> None:
    """If it is kept, the put fails before it is sent, with MQRC_FORMAT_ERROR; others are put."""
    limits: dict[str, Any] = {field: 50_000}
    offset = 50_001 if field == "timestamp_after_max" else -50_001
    headers: Headers = [("mqdlh.Reason", b"2053"), ("mqdlh.DestQName", b"Q1")]
    stamps = [NOW, NOW + offset, NOW]
    records = Records([None] * 3, [b"x"] * 3, [list(headers)] * 3, stamps, [0, 1, 2])
    cluster = KnownCluster({"Q1": TopicFacts(**limits)})
    outputs = outputs_of(records, handler_of(timestamps=mode), cluster=cluster)
    puts = written(outputs, "Q1")
    assert {put.timestamp for put in puts} == {NOW}
    if mode is not TimestampMode.KEEP:
        assert dict(puts[1].headers or [])["redrive.timestamp"] == b"%d" % (NOW + offset)
        assert outcomes_in(outputs)[1]["detail"].startswith("with the time of the put")
        return
    assert len(puts) == 2
    refused = outcomes_in(outputs)[1]
    assert (refused["offset"], refused["reason"]) == (1, 2110)
    assert f"a timestamp of {NOW + offset}" in refused["detail"]


def test_a_message_larger_than_its_topic_takes_is_refused_before_it_is_sent() -> None:
    """Headers and key count too, with MQRC_MSG_TOO_BIG_FOR_Q."""
    noise = random.Random(1).randbytes(1000)
    for facts, key in (
        (TopicFacts(max_message_bytes=1000), noise),
        (TopicFacts(max_message_bytes=1000, is_uncompressed=True), bytes(1000)),
    ):
        outcome = refusal_by(facts, key=key)
        assert outcome["reason"] == 2030
        assert "are more than the 1000 of topic Q1" in outcome["detail"]


CONNECT: Headers = [
    ("a", b"1"),
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"3"),
    ("__connect.errors.exception.stacktrace", b"x" * 9000),
]


SAID = "__connect.errors.exception.message"


@pytest.mark.parametrize("kind", [SourceKind.DEAD_LETTERS, SourceKind.RETRIES])
@pytest.mark.parametrize("more", [[], [("x", b"1")]])
def test_outcomes_have_the_messages_of_exceptions(kind: SourceKind, more: Headers) -> None:
    texts = [b"card declined", b'a "quote"\nand \xff', b"", None]
    headers: list[Headers] = [[*CONNECT, (SAID, b"older"), (SAID, text)] for text in texts]
    headers[0] = [*headers[0], *more]
    records = Records([b"k"] * 4, [b"x"] * 4, headers, [5] * 4, [*range(4)])
    for table in ("ACTION(FWD) FWDQ(Q2)", "ACTION(IGNORE)"):
        outcomes = outcomes_in(outputs_of(records, handler_of(table), kind=kind))
        assert [outcome.get("error_message") for outcome in outcomes] == [
            "card declined", 'a "quote"\nand \ufffd', None, None
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x" * 300, "x" * 300),
        ("x" * 301, f"{'x' * 300} ..."),
        (f"card {'4' * 290} 4111111111", f"card {'4' * 290} ..."),
        ("ä " * 10_000, f"{'ä ' * 150}..."),
    ],
)
def test_long_message_of_an_exception_ends_at_a_word(text: str, expected: str) -> None:
    headers = [*CONNECT, (SAID, text.encode())]
    outcome = outcome_of(outputs_of(record(b"x", headers), handler_of("ACTION(IGNORE)")))
    assert outcome["error_message"] == expected

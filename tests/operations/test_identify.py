"""What a sample of a topic shows, and the rules table that is made of it."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance.vectors import load, octets
from tests.messages.samples import messages

from redrive.kafka.records import StoredRecord
from redrive.messages import Headers, TopicPartition, encode_header, new_header
from redrive.messages.schemes import KNOWN, SCHEME_NAMES
from redrive.operations.first_table import first_table
from redrive.operations.identify import identified
from redrive.rules import parse

VECTORS = Path(__file__).parents[1] / "vectors"
MORE: dict[str, Headers] = {
    "smallrye-delayed-retry": [("delayed-retry-topic", b"t"), ("delayed-retry-count", b"1")],
    "wolverine": [("exception-type", b"a.B"), ("attempts", b"3")],
    "uforwarder": [("original_cluster", b"a")],
    "rabbitmq": [("x-death", b"[]")],
    "azure-service-bus": [("DeadLetterReason", b"MaxDeliveryCountExceeded")],
    "redrive": [("mqdlh.Reason", b"2053"), ("mqdlh.DestQName", b"Q")],
}


def stored(offset: int, key: bytes | None, value: bytes | None, headers: Headers) -> StoredRecord:
    return StoredRecord(TopicPartition("dlq", 0), offset, 0, key, value, headers)


def test_each_scheme_in_a_mixed_topic_gets_its_name() -> None:
    """10,000 messages of all schemes, and some of none, are counted right, with an example each."""
    kinds: list[tuple[str, bytes | None, bytes | None, Headers]] = [
        (
            vector["expect"]["scheme"] or "none",
            octets(vector["key"]),
            octets(vector["value"]),
            [(name, octets(told)) for name, told in vector["headers"]],
        )
        for vector in load(VECTORS, "schemes")
    ]
    kinds += [(name, b"k", b"v", headers) for name, headers in MORE.items()]
    header = new_header([], reason=2085, queue="Q", queue_manager="", timestamp=0)
    kinds += [("mqdlh", b"k", encode_header(header), []), ("none", b"k", b"v", [])]
    assert {name for name, *_ in kinds} == {*SCHEME_NAMES, "none"}
    records = [stored(n, *kinds[n % len(kinds)][1:]) for n in range(10_000)]
    expected: dict[str, int] = {}
    for n in range(10_000):
        name = kinds[n % len(kinds)][0]
        expected[name] = expected.get(name, 0) + 1
    found = identified("dlq", records, KNOWN)
    assert {name: one.count for name, one in found.schemes.items()} == expected
    for one in found.schemes.values():
        offset = int(one.example.rpartition(":")[2])
        assert kinds[offset % len(kinds)][0] == one.name
    assert found.schemes["connect"].topics["orders"]
    assert found.schemes["connect"].groups["jdbc-sink"]
    assert found.schemes["kafka-streams"].errors["a.B"]


@settings(max_examples=60)
@given(st.lists(st.tuples(messages, st.none() | st.binary(max_size=4)), max_size=20))
def test_the_first_table_has_no_error_whatever_was_found(
    rows: list[tuple[tuple[bytes | None, Headers], bytes | None]],
) -> None:
    """Names come from outside; none of them breaks the table, and nothing is discarded."""
    records = [stored(n, key, *message) for n, (message, key) in enumerate(rows)]
    found = identified("dlq", records, KNOWN)
    assert sum(one.count for one in found.schemes.values()) == found.count == len(rows)
    text = first_table(found)
    result = parse(text)
    assert result.table is not None, [one.render() for one in result.diagnostics]
    assert "DISCARD" not in re.sub(r"^\*.*$", "", text, flags=re.MULTILINE)
    assert max(map(len, text.splitlines())) <= 72


def test_the_first_table_has_a_rule_for_what_is_frequent() -> None:
    """What can't be read is kept, what may pass is tried again, each on its own topic."""

    def failed(topic: bytes, error: bytes) -> Headers:
        return [("__connect.errors.topic", topic), ("__connect.errors.exception.class.name", error)]

    kinds = [failed(b"orders", b"a.DataException"), failed(b"bills", b"b.TimeoutException")]
    found = identified("dlq", [stored(n, b"k", b"v", kinds[n % 3 == 0]) for n in range(9)], KNOWN)
    text = first_table(found)
    assert "* 6 messages of orders: DataException." in text
    table = parse(text).table
    assert table is not None
    rules = [(rule.action.value, dict(rule.keywords())) for rule in table.rules]
    assert [action for action, _ in rules] == ["IGNORE", "RETRY", "RETRY"]
    assert (
        "TOPIC('bills') +\n"
        "REASON(MQRC_Q_MGR_NOT_AVAILABLE) ACTION(RETRY) RETRY(5) BACKOFF(30s,2,10m)"
    ) in text


def test_the_first_table_offers_rounds_for_the_group_that_failed() -> None:
    """As a comment: the rule itself would put messages where nobody reads yet."""
    headers: Headers = [
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.connector.name", b"sink"),
    ]
    text = first_table(identified("dlq", [stored(0, b"k", b"v", headers)], KNOWN))
    assert "orders.connect-sink.retry" in text
    assert all("TO(GROUP)" not in line for line in text.splitlines() if line[:1] != "*")
    plain = first_table(identified("dlq", [stored(0, b"k", b"v", headers[:1])], KNOWN))
    assert "TO(GROUP)" not in plain


def test_an_empty_topic_has_a_table_too() -> None:
    """It has the rule for all that comes."""
    assert parse(first_table(identified("dlq", [], KNOWN))).table is not None

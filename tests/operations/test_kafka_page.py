"""The page on Kafka: its settings, tables and output are right, and do what it says."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest
from tests.settings.conftest import GOOD, RULES

from redrive.command.identify import shown
from redrive.kafka.records import StoredRecord
from redrive.messages import (
    Headers,
    SchemeTable,
    TopicPartition,
    decode_dead_letter,
    remove_header,
)
from redrive.messages.schemes import KNOWN
from redrive.operations.first_table import first_table
from redrive.operations.identify import identified
from redrive.rules import parse
from redrive.settings import read_settings

PAGE = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The examples of one language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def connect(offset: int, error: str, message: str) -> Headers:
    """What Connect writes about one record."""
    told = {
        "topic": "orders",
        "partition": "3",
        "offset": str(offset),
        "connector.name": "jdbc-sink",
        "task.id": "0",
        "stage": "VALUE_CONVERTER",
        "exception.class.name": f"org.apache.kafka.{error}",
        "exception.message": message,
    }
    return [(f"__connect.errors.{name}", value.encode()) for name, value in told.items()]


def test_what_is_identified_is_what_the_page_shows() -> None:
    """Output and table of the walk through a dead-letter queue of Connect's, line by line."""
    unreadable = connect(42, "connect.errors.DataException", "Unknown magic byte!")
    away = connect(57, "common.errors.TimeoutException", "no answer")
    records = [
        StoredRecord(TopicPartition("orders.dlq", 0), offset, 0, b"k", b"{}", headers)
        for offset, headers in enumerate([unreadable] * 3 + [away])
    ]
    found = identified("orders.dlq", records, KNOWN)
    assert blocks("text")[0].splitlines() == list(shown(found))
    assert blocks("rules")[0] == first_table(found)


def test_every_table_of_the_page_is_right() -> None:
    """None of them has an error."""
    for table in blocks("rules"):
        assert parse(table).table is not None


def test_the_schemes_of_the_page_read_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of its schemes together: the envelope, the headers, and what is assumed."""
    monkeypatch.chdir(tmp_path)
    Path("orders.rul").write_text(RULES)
    schemes = [block for block in blocks("toml") if "[schemes." in block]
    Path("redrive.toml").write_text(GOOD + "\n".join(schemes))
    table = SchemeTable(one.scheme() for one in read_settings(Path("redrive.toml")).job.schemes)
    envelope = blocks("json")[0].encode()
    letter = decode_dead_letter(envelope, [], schemes=table)
    assert (letter.scheme, letter.fields["DESTQ"]) == ("envelope", "orders")
    assert letter.view.error_class == "java.net.SocketTimeoutException"
    assert (letter.view.origin.partition, letter.view.attempts) == (3, 5)
    value, _ = remove_header(letter, envelope, [])
    assert orjson.loads(value or b"") == {"order": 4711}
    headers: Headers = [("x-error", b"a.B: c"), ("x-topic", b"t"), ("x-partition", bytes(4))]
    legacy = decode_dead_letter(b"x", headers, schemes=table)
    assert (legacy.scheme, legacy.view.error_class) == ("legacy", "a.B")
    assert decode_dead_letter(b"x", [], schemes=table).scheme == "plain"

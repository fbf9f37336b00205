"""Outcome records and ledgers of all kinds."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from random import Random
from typing import Any

import orjson

from redrive.configuration import LedgerFolder
from redrive.messages import NUMERIC_KEYWORDS, PATTERN_KEYWORDS
from redrive.outcomes.rows import Row, row_of
from redrive.outcomes.table import LedgerTable, arrow_of

START = 1_790_000_000_000
"""Milliseconds: the time of the first sample."""


def outcome(number: int, **members: Any) -> dict[str, Any]:
    """A sample outcome; members that are given win."""
    random = Random(number)
    place = f"orders.dlq:{number % 2}:{number}"
    fields = {
        name: random.randrange(-5, 3000)
        if name in NUMERIC_KEYWORDS
        else random.choice(["", "A", "ÄÖ 'x\""])
        for name in PATTERN_KEYWORDS
    }
    sample = {
        "outcome": place,
        "message": f"orders.dlq:{number % 2}:{number - random.randrange(3)}",
        "origin": place,
        "topic": "orders.dlq",
        "partition": number % 2,
        "offset": number,
        "time": START + number * 7_000_000,
        "size": random.randrange(1_000_000),
        "hop": random.randrange(3),
        "key": random.choice([None, "", b64encode(b"key").decode()]),
        "handler": random.choice(["orders", "payments"]),
        "queue_manager": "",
        "queue": "orders.dlq",
        "table": "a" * 64,
        "rule_line": random.randrange(5),
        "action": "FWD",
        "authority": "DEF",
        "attempt": random.randrange(4),
        "result": random.choice(["retried", "forwarded", "discarded", "parked", "remains"]),
        "reason": random.choice([0, 2053, 2085]),
        "reason_name": random.choice(["", "MQRC_Q_FULL"]),
        "detail": random.choice(["", "a\tdetail\nin two lines"]),
        "target_queue_manager": "",
        "target_queue": "Q",
        "target_topic": "q",
        "form": random.choice(["headers", "none"]),
        "job_version": "0.1.0",
        "fields": random.choice([fields, {}]),
    }
    if number % 3 == 0:
        sample |= {"traceparent": f"00-{number + 1:032x}-{number + 1:016x}-01"}
        sample |= {"error_class": "java.io.IOException", "consumer_group": "billing"}
        sample |= {"replay": "5f2ac9d01b7e", "operator": "ann@host", "purpose": "ticket 4711"}
    return {**sample, **members}


def remaining(topic: str, number: int, **members: Any) -> dict[str, Any]:
    """The outcome of a dead letter of Connect that remains, by its place; members given win."""
    place = f"{topic}:0:{number}"
    sample = {
        "origin": place, "outcome": place, "message": place, "result": "remains",
        "handler": "orders", "action": "IGNORE", "rule_line": 2, "form": "connect",
        "source_topic": topic, "source_offset": number, "message_offset": number,
        "reason": 0, "reason_name": "", "attempt": 0, "hop": 0, "key": None, "size": 2,
        "detail": "", "fields": {},
    }  # fmt: skip
    return outcome(number, **{**sample, **members})


def rows(outcomes: Iterable[dict[str, Any]], partitions: int = 3) -> list[Row]:
    """Outcomes as rows, as if they lay one after the other on the outcomes topic."""
    return [
        row_of(orjson.dumps(members), START, number % partitions, number // partitions)
        for number, members in enumerate(outcomes)
    ]


def row_with(**columns: Any) -> Row:
    """A row with these columns; the others are None."""
    return Row(**{**dict.fromkeys(Row._fields), **columns})


def append(path: LedgerFolder, new: list[Row]) -> None:
    """Appends rows to a ledger, which is made if there is none."""
    LedgerTable.create(path).append([arrow_of(new)])


def ledger_at(path: LedgerFolder) -> LedgerTable:
    """The table of a ledger that exists."""
    table = LedgerTable.open(path)
    assert table is not None
    return table

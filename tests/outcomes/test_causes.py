"""Dead letters by cause, counted as the ledger grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.outcomes.samples import START, append, outcome, rows

from redrive.outcomes.causes import Cause, CauseCounter
from redrive.outcomes.table import LedgerTable

STORIES: list[dict[str, Any]] = [
    {"error_class": "java.io.IOException", "consumer_group": "billing"},
    {"fields": {"REASON": 2053, "DESTQ": "orders"}},
    {"origin": "orders.dlq:0:1"},  # a later outcome of a dead letter
    {"form": "none"},
    {"handler": "intake"},  # a put
    {"error_class": "java.io.IOException", "consumer_group": "billing"},
    {"fields": {"REASON": 2053, "DESTQ": "orders"}},
    {"fields": {"REASON": 0, "DESTQ": "orders"}},
]
CAUSES = [
    ("java.io.IOException", "orders", "billing", 2, 0),
    ("MQRC_Q_FULL", "orders", "", 2, 1),
    ("no valid dead-letter header", "orders", "", 1, 3),
    ("0", "orders", "", 1, 7),
]


def test_each_dead_letter_counts_once_wherever_the_counts_are_cut(tmp_path: Path) -> None:
    """Later outcomes and puts don't; what came between two counts is in the second one."""
    plain = {
        "handler": "orders", "form": "headers", "error_class": None, "consumer_group": None,
        "fields": {"REASON": 2085, "DESTQ": "orders"},
    }  # fmt: skip
    every = [outcome(number, **{**plain, **one}) for number, one in enumerate(STORIES)]
    written = rows(every, partitions=2)
    for cut in range(1, len(every)):
        folder, counter = tmp_path / str(cut), CauseCounter()
        found: dict[tuple[str, str, str], tuple[int, float]] = {}
        for part in (written[:cut], written[cut:], []):
            if part:
                append(folder, part)
            table = LedgerTable.open(folder)
            assert table is not None
            assert counter.count_new(table, []) == []
            for one in counter.count_new(table, ["orders"]):
                assert isinstance(one, Cause)
                key = one.cause, one.destination, one.group
                count, first = found.get(key, (0, one.first))
                found[key] = count + one.count, min(first, one.first)
        assert found == {
            (cause, destination, group): (count, (START + number * 7_000_000) / 1000)
            for cause, destination, group, count, number in CAUSES
        }

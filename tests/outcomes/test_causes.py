"""Dead letters by cause, and repeated ones, counted as the ledger grows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.outcomes.samples import START, append, ledger_at, outcome, rows

from redrive.outcomes.causes import Cause, CauseCounter, RepeatCounter
from redrive.outcomes.rows import moment

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
    plain = {
        "handler": "orders", "form": "headers", "error_class": None, "consumer_group": None,
        "fields": {"REASON": 2085, "DESTQ": "orders"},
    }  # fmt: skip
    every = [outcome(number, **{**plain, **story}) for number, story in enumerate(STORIES)]
    written = rows(every, partitions=2)
    for cut in range(1, len(every)):
        folder, counter = tmp_path / str(cut), CauseCounter()
        causes: dict[tuple[str, str, str], tuple[int, float]] = {}
        for part in (written[:cut], written[cut:], []):
            if part:
                append(folder, part)
            table = ledger_at(folder)
            assert counter.count_new(table, []) == []
            for counted in counter.count_new(table, ["orders"]):
                assert isinstance(counted, Cause)
                key = counted.cause, counted.destination, counted.group
                count, first = causes.get(key, (0, counted.first))
                causes[key] = count + counted.count, min(first, counted.first)
        assert causes == {
            (cause, destination, group): (count, (START + number * 7_000_000) / 1000)
            for cause, destination, group, count, number in CAUSES
        }


_FAILED: dict[str, Any] = {
    "handler": "orders", "consumer_group": "billing", "failed_record": "orders:0:7", "hop": 0,
    "time": START, "form": "spring",
}  # fmt: skip
REPEATS: list[dict[str, Any]] = [
    {},
    {"result": "remains", "time": START + 1000},  # the consumer died before its commit
    {"failed_record": "orders:0:9"},  # a retry is another record
    {"failed_record": None},
    {"failed_record": None},
    {"consumer_group": "ledger"},
    {"handler": "other"},
    {"hop": 1},  # forwarded with the header of the failure
    {"origin": "orders.dlq:0:1", "result": "retried"},  # a later outcome of a dead letter
    {"failed_record": "orders:0:9"},
    {},
]
"""Dead letters of which the numbers 1, 9 and 10 repeat others."""


def test_each_repeated_dead_letter_counts_once_wherever_the_counts_are_cut(tmp_path: Path) -> None:
    written = rows(
        [outcome(number, **{**_FAILED, **story}) for number, story in enumerate(REPEATS)]
    )
    for cut in range(1, len(written)):
        folder, counter = tmp_path / str(cut), RepeatCounter(moment(START))
        counts = []
        for part in (written[:cut], written[cut:], []):
            if part:
                append(folder, part)
            table = ledger_at(folder)
            counts.append(counter.count_new(table, ["orders", "idle"], moment(START)))
        numbers = [count.get("orders", 0) for count in counts]
        assert numbers == [
            sum(place < cut for place in (1, 9, 10)),
            sum(place >= cut for place in (1, 9, 10)),
            0,
        ]
        assert {*counts[0], *counts[1], *counts[2]} == {"orders"}


def test_dead_letter_from_before_the_job_does_not_count_but_is_repeated(tmp_path: Path) -> None:
    hour = 3_600_000
    outcomes = [
        outcome(number, **{**_FAILED, "failed_record": failed, "time": START + hours * hour})
        for number, (failed, hours) in enumerate([("a", -25), ("b", -23), ("a", 0), ("b", 0)])
    ]
    append(tmp_path / "ledger", rows(outcomes))
    table = ledger_at(tmp_path / "ledger")
    counter = RepeatCounter(moment(START - hour))
    assert counter.count_new(table, [], moment(START)) == {}
    assert counter.count_new(table, ["orders"], moment(START)) == {"orders": 1}

"""How long a question takes over the outcomes of ten million attempts.

    python -m benchmarks.ask [--rows 10000000] [--json]

A ledger over twenty days in compacted files: of fifty dead letters 36 are forwarded at once, ten
wait for a second attempt, one is discarded, and two remain in the end. Each question is asked by
a process of its own, from its start to its end; each figure is the median of some runs. No broker
takes part: reading what is not in the ledger yet is timed by ``benchmarks.ledger``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from redrive.outcomes.columns import COLUMNS, Kind
from redrive.outcomes.table import LedgerTable

GOAL: Final = 2.0
"""Seconds for every question."""
RUNS: Final = 3
STEP: Final = 500_000
DAYS: Final = 20
PARTITIONS: Final = 4

QUESTIONS: Final[dict[str, str]] = {
    "ls": "letters(Selection(), limit=20)",
    "ls --reason --destq": "letters(Selection(reason=2053, destination='queue.100'), limit=20)",
    "ls --where": "letters(Selection(where=\"field_destq LIKE 'queue.1%'\"), limit=20)",
    "ls --status forwarded": "letters(Selection(state=State.FORWARDED), limit=20)",
    "groups": "groups(Selection(), limit=20)",
    "groups --status all": "groups(Selection(state=State.ALL), limit=20)",
}
"""What is asked of the inventory, by the command that asks it."""

PROGRAM: Final = """
import sys
from pathlib import Path
from redrive.outcomes.inventory import Inventory, Selection, State
from redrive.outcomes.ledger import Ledger
from redrive.outcomes.table import LedgerTable
with Inventory(Ledger(LedgerTable.open(Path(sys.argv[1])))) as inventory:
    assert inventory.{question}
"""

_TYPES: Final = {
    Kind.TEXT: pa.string(),
    Kind.INTEGER: pa.int32(),
    Kind.LONG: pa.int64(),
    Kind.BYTES: pa.binary(),
    Kind.TIME: pa.timestamp("us", "UTC"),
    Kind.DAY: pa.date32(),
}


def main() -> int:
    """Measures, prints, and returns 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="redrive-ask-") as folder:
        path = Path(folder, "ledger")
        fill(path, arguments.rows)
        seconds = {name: _timed(path, question) for name, question in QUESTIONS.items()}
    figures = {name: round(one, 2) for name, one in seconds.items()}
    if arguments.json:
        print(json.dumps({"rows": arguments.rows, "seconds": figures}))
    else:
        for name, one in figures.items():
            print(f"{name:<30}{one:>6.2f} s   goal {GOAL:g} s")
    return 0 if max(figures.values()) < GOAL else 1


def _timed(path: Path, question: str) -> float:
    """Seconds from the start of the process to its end, the median of some runs."""
    seconds = []
    for _ in range(RUNS + 1):
        started = time.perf_counter()
        program = PROGRAM.format(question=question)
        subprocess.run([sys.executable, "-c", program, str(path)], check=True)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


def fill(path: Path, rows: int) -> None:
    """A ledger of so many rows, in the files that compaction leaves.

    Args:
        path: Its folder, which is made.
        rows: How many, a multiple of five.
    """
    LedgerTable.create(path)
    newest = datetime.now(UTC).timestamp() * 1e6
    for start in range(0, rows, STEP):
        numbers = np.arange(start, min(start + STEP, rows))
        write_deltalake(path, _rows(numbers, newest, rows), mode="append")
    table = LedgerTable.open(path)
    assert table is not None
    table.compact()


def _rows(numbers: Any, newest: float, rows: int) -> pa.Table:  # noqa: ANN401 - an array of numpy
    """Every fifth row is a second attempt on the message four rows before."""
    second = numbers % 5 == 4
    letters = np.where(second, numbers - 4, numbers)
    count = len(numbers)
    places = pa.array([f"orders.dlq:{it % PARTITIONS}:{it}" for it in letters.tolist()])
    ages = (rows - numbers) * (DAYS * 86_400 * 1e6 / rows)
    times = pa.array((newest - 1e9 - ages).astype("int64"), pa.timestamp("us", "UTC"))
    reasons = pa.array(np.array([2053, 2085, 2035, 2051])[letters % 4].astype("int32"))
    known = {
        "time": times,
        "day": times.cast(pa.date32()),
        "outcome": pa.array(
            [
                f"redrive-shop-orders-retry:0:{number}" if number != letter else place
                for number, letter, place in zip(
                    numbers.tolist(), letters.tolist(), places.to_pylist(), strict=True
                )
            ]
        ),
        "message": places,
        "origin": places,
        "message_offset": pa.array(letters),
        "handler": pa.array(["orders"] * count),
        "result": pa.array(_results(letters, second)),
        "reason": reasons,
        "field_reason": reasons,
        "field_destq": pa.array([f"queue.{it % 300}" for it in letters.tolist()]),
        "message_key": pa.array([f"key-{it % 10_000}".encode() for it in letters.tolist()]),
        "outcomes_partition": pa.array((letters % PARTITIONS).astype("int32")),
        "outcomes_offset": pa.array(numbers),
        "malformed": pa.nulls(count, pa.string()),
    }
    others: dict[Kind, pa.Array] = {
        Kind.TEXT: pa.array(["text"] * count),
        Kind.INTEGER: pa.array([1] * count),
    }
    others[Kind.LONG] = others[Kind.INTEGER]
    return pa.table(
        [
            (known[it.name] if it.name in known else others[it.kind]).cast(_TYPES[it.kind])
            for it in COLUMNS
        ],
        names=[it.name for it in COLUMNS],
    )


def _results(letters: Any, second: Any) -> Any:  # noqa: ANN401 - arrays of numpy
    """Parked first and then mostly retried; of the others most are forwarded at once."""
    in_the_end = np.where(letters % 50 == 0, "remains", "retried")
    at_once = np.where(letters % 50 == 7, "discarded", "forwarded")
    at_once = np.where(letters % 50 == 13, "remains", at_once)
    first = np.where(letters % 5 == 0, "parked", at_once)
    return np.where(second, in_the_end, first)


if __name__ == "__main__":
    sys.exit(main())

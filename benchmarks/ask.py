"""How long a question takes over the outcomes of ten million attempts.

    python -m benchmarks.ask [--rows 10000000] [--folder LEDGER] [--only QUESTION] [--json]

A ledger over twenty days as maintenance leaves it: of fifty dead letters 36 are forwarded at once,
ten wait for a second attempt, one is discarded, and two remain in the end. Each question is asked
by a process of its own, from its start to its end; each figure is the median of some runs. No
broker takes part: reading what is not in the ledger yet is timed by ``benchmarks.ledger``. On a
machine with other work look at the processor seconds: two cores need half of them and more.
``--folder`` keeps the ledger, and asks one that is there already.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from benchmarks.command_line import parser, show
from benchmarks.ledger import rows_of
from deltalake import write_deltalake

from redrive.outcomes.open_letters import write_open_letters
from redrive.outcomes.table import LedgerTable

GOAL: Final = 2.0
"""Seconds for every question."""
RUNS: Final = 3
STEP: Final = 500_000
DAYS: Final = 20
PARTITIONS: Final = 4

QUESTIONS: Final[dict[str, str]] = {
    "ls": "inventory.letters(Selection(), limit=20)",
    "ls --reason --destq": "inventory.letters("
    "Selection(reason=2053, destination='queue.100'), limit=20)",
    "ls --where": "inventory.letters(Selection(where=\"field_destq LIKE 'queue.1%'\"), limit=20)",
    "ls --status forwarded": "inventory.letters(Selection(state=State.FORWARDED), limit=20)",
    "groups": "inventory.groups(Selection(), limit=20)",
    "groups --status all": "inventory.groups(Selection(state=State.ALL), limit=20)",
    "history, show": "ledger.find(Criteria(message='orders.dlq:0:{middle}'), limit=100)",
    "status": "ledger.flows(datetime.now(UTC)) and ledger.last_batches(5)",
}
"""What is asked of the ledger, by the command that asks it."""

PROGRAM: Final = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from redrive.outcomes.selection import Criteria
from redrive.outcomes.inventory import Inventory, Selection, State
from redrive.outcomes.ledger import Ledger
from redrive.outcomes.table import LedgerTable
ledger = Ledger(LedgerTable.open(Path(sys.argv[1])))
with Inventory(ledger) as inventory:
    assert {question}
"""


class Seconds(NamedTuple):
    """What a question took."""

    elapsed: float
    processor: float


def main() -> int:
    """Measures, prints, and returns 1 if a goal is missed."""
    asked = parser(__doc__, rows=10_000_000)
    asked.add_argument("--folder", type=Path, help="the ledger; by default one for this run")
    asked.add_argument("--only", choices=list(QUESTIONS), nargs="*", default=list(QUESTIONS))
    arguments = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="redrive-ask-") as folder:
        path = arguments.folder or Path(folder, "ledger")
        if not path.exists():
            fill(path, arguments.rows)
        middle = arguments.rows // 200 * 100
        figures = {
            name: timed(path, QUESTIONS[name].format(middle=middle)) for name in arguments.only
        }
    if arguments.json:
        document = {name: figure._asdict() for name, figure in figures.items()}
        show({"rows": arguments.rows, "seconds": document})
    else:
        for name, (elapsed, processor) in figures.items():
            print(f"{name:<24}{elapsed:>6.2f} s   goal {GOAL:g} s   processor {processor:.2f} s")
    return 0 if max(figure.elapsed for figure in figures.values()) < GOAL else 1


def timed(path: Path, question: str) -> Seconds:
    """What a process takes from its start to its end, the median of some runs."""
    runs = []
    for _ in range(RUNS + 1):
        started, before = time.perf_counter(), _processor()
        program = PROGRAM.format(question=question)
        subprocess.run([sys.executable, "-c", program, str(path)], check=True)
        runs.append(Seconds(time.perf_counter() - started, _processor() - before))
    return Seconds(*map(statistics.median, zip(*runs[1:], strict=True)))


def _processor() -> float:
    """Processor seconds of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
    write_open_letters(path)


def _rows(numbers: Any, newest: float, rows: int) -> pa.Table:  # noqa: ANN401 - an array of numpy
    """Every fifth row is a second attempt on the message four rows before."""
    second = numbers % 5 == 4
    letters = np.where(second, numbers - 4, numbers)
    count = len(numbers)
    places = _joined("orders.dlq:", letters % PARTITIONS, ":", letters)
    copies = _joined("redrive-shop-orders-retry:0:", numbers)
    ages = (rows - numbers) * (DAYS * 86_400 * 1e6 / rows)
    times = pa.array((newest - 1e9 - ages).astype("int64"), pa.timestamp("us", "UTC"))
    reasons = pa.array(np.array([2053, 2085, 2035, 2051])[letters % 4].astype("int32"))
    known = {
        "time": times,
        "day": times.cast(pa.date32()),
        "outcome": pc.if_else(pa.array(second), copies, places),
        "message": places,
        "origin": places,
        "message_offset": pa.array(letters),
        "handler": pa.array(["orders"] * count),
        "result": pa.array(_results(letters, second)),
        "reason": reasons,
        "field_reason": reasons,
        "field_destq": _joined("queue.", letters % 300),
        "message_key": _joined("key-", letters % 10_000),
        "outcomes_partition": pa.array((letters % PARTITIONS).astype("int32")),
        "outcomes_offset": pa.array(numbers),
        "malformed": pa.nulls(count, pa.string()),
    }
    return rows_of(known, count)


def _joined(*parts: Any) -> pa.Array:  # noqa: ANN401 - texts and arrays of numpy
    """Texts and numbers one after the other."""
    texts = [part if isinstance(part, str) else pa.array(part).cast(pa.string()) for part in parts]
    return pc.binary_join_element_wise(*texts, "")


def _results(letters: Any, second: Any) -> Any:  # noqa: ANN401 - arrays of numpy
    """Parked first and then mostly retried; of the others most are forwarded at once."""
    in_the_end = np.where(letters % 50 == 0, "remains", "retried")
    at_once = np.where(letters % 50 == 7, "discarded", "forwarded")
    at_once = np.where(letters % 50 == 13, "remains", at_once)
    first = np.where(letters % 5 == 0, "parked", at_once)
    return np.where(second, in_the_end, first)


if __name__ == "__main__":
    sys.exit(main())

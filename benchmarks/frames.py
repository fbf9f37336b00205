"""How fast ``redrive.dead_letters`` and ``RulesTable.decide`` are over a frame.

    python -m benchmarks.frames [--records 1000000] [--runs 3] [--json]

Spring's dead letters of 1 KB with eleven headers, one of them a stack trace of 2 KB, of 200 kinds.
They lie in Parquet files with the columns of Spark's Kafka source, on two cores and in the session
of ``redrive.session``. All contestants read all columns of these files, and Spark throws their
result away. They run in turns; the figure of each is its median:

    files          nothing but reading
    SQL            expressions of Spark that read three headers
    UDF            a function in Python that reads the same three
    dead_letters   eleven columns
    decide         a table of 20 rules
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import pyarrow as pa
from benchmarks.command_line import parser, show
from benchmarks.peers.dlq_route import Form, Work, profiles, record
from benchmarks.peers.matching import HEADERS
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

import redrive
from redrive.messages import Records, TopicPartition
from redrive.streaming.rows import arrow_batch

GOAL: Final = 15.0
"""Seconds for a million rows by ``decide``."""
WORK: Final = Work(Form.SPRING, 20, kinds=200)
_ROWS: Final = 20_000
"""Of a file."""
_NAMES: Final = tuple(HEADERS.values())
_AGREE: Final = (
    "by_udf = by_sql AND by_sql.TOPIC = origin_topic AND by_sql.GROUP = consumer_group"
    " AND by_sql.ROOTCLASS = error_root_class AND rule_line IS NOT NULL"
)
"""Of a row that all contestants have read."""
_Contestants: TypeAlias = Mapping[str, Callable[[DataFrame], DataFrame]]


def write(folder: Path, count: int) -> None:
    """Writes the dead letters."""
    fields = profiles(WORK.form, WORK.count)
    for start in range(0, count, _ROWS):
        numbers = range(start, min(start + _ROWS, count))
        rows = [record(WORK.form, number, fields[number % WORK.kinds]) for number in numbers]
        records = Records(
            [b"k%d" % number for number in numbers],
            [value for value, _ in rows],
            [headers for _, headers in rows],
            [1_760_000_000_000 + number for number in numbers],
            [*numbers],
        )
        batch = arrow_batch(TopicPartition("orders.dlq", 0), records)
        parquet.write_table(pa.Table.from_batches([batch]), folder / f"{start}.parquet")


def three_headers(headers: list[Any]) -> tuple[str, ...]:
    """What one would write by hand."""
    values = {header.key: header.value for header in headers}
    return tuple(bytes(values[name]).decode() for name in _NAMES)


def by_expressions(frame: DataFrame) -> DataFrame:
    """The same headers without Python."""
    texts = (
        f"decode(filter(headers, it -> it.key = '{header}')[0].value, 'UTF-8') AS {name}"
        for name, header in HEADERS.items()
    )
    return frame.selectExpr("*", f"struct({', '.join(texts)}) AS by_sql")


def contestants() -> _Contestants:
    """What each makes of the frame."""
    texts = ", ".join(f"{name}: string" for name in HEADERS)
    by_udf = udf(three_headers, f"struct<{texts}>", useArrow=True)("headers")
    return {
        "files": lambda frame: frame,
        "SQL": by_expressions,
        "UDF": lambda frame: frame.withColumn("by_udf", by_udf),
        "dead_letters": redrive.dead_letters,
        "decide": redrive.read_table(WORK.as_table()).decide,
    }


def measure(spark: SparkSession, folder: Path, runs: int) -> dict[str, list[float]]:
    """Seconds of each run of each contestant."""
    # Rows, as the Kafka source gives; over columns of Parquet the UDF of Spark 4.2.0 stands still.
    spark.conf.set("spark.sql.parquet.enableVectorizedReader", "false")
    frame = spark.read.parquet(str(folder))
    whole = reduce(lambda made, make: make(made), contestants().values(), frame.limit(1_000))
    assert whole.where(_AGREE).count() == whole.count() > 0
    seconds: dict[str, list[float]] = {name: [] for name in contestants()}
    for _ in range(runs):
        for name, make in contestants().items():
            begun = time.perf_counter()
            make(frame).write.format("noop").mode("overwrite").save()
            seconds[name].append(round(time.perf_counter() - begun, 2))
            print(f"{name}: {seconds[name][-1]} s", file=sys.stderr, flush=True)
    return seconds


def main() -> int:
    """Measures, prints, and returns 1 if the goal is missed."""
    options = parser(__doc__, records=1_000_000, runs=3).parse_args()
    with TemporaryDirectory(prefix="redrive-bench-") as name:
        folder = Path(name)
        (folder / "frames").mkdir()
        (folder / "orders.rul").write_text(WORK.as_table())
        write(folder / "frames", options.records)
        spark = redrive.session(
            {
                "application": {"name": "frames", "directory": str(folder / "job")},
                "kafka": {"bootstrap_servers": "localhost:1"},
                "handlers": [{"queue": "orders.dlq", "rules": str(folder / "orders.rul")}],
                "ledger": {"enabled": False},
            }
        )
        seconds = measure(spark, folder / "frames", options.runs)
        spark.stop()
    rates = {key: options.records / statistics.median(runs) for key, runs in seconds.items()}
    if options.json:
        show({"records": options.records, "seconds": seconds})
    else:
        for key, runs in seconds.items():
            shown = ", ".join(f"{run:.1f}" for run in runs)
            ratio = rates[key] / rates["UDF"]
            print(f"{key:<14}{rates[key]:>10,.0f}/s{ratio:>7.2f} of the UDF  {shown} s")
    return 0 if 1_000_000 / rates["decide"] < GOAL else 1


if __name__ == "__main__":
    sys.exit(main())

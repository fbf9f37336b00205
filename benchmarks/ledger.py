"""How long the commands take that read the ledger, and how fast it is written.

    python -m benchmarks.ledger [--rows 1000000] [--json]

A ledger of many rows over twenty days, the last 15 minutes of it in small files that nobody has
compacted yet, and 1,000 outcomes on the topic that it does not hold. Every command is a process of
its own, timed from its start to its end; each figure is the median of some runs. Then Spark
projects outcomes of full size into an empty ledger.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
from benchmarks.clients import Sent, produce
from benchmarks.command_line import broker, parser, show
from deltalake import write_deltalake

from redrive.configuration import JobConfiguration
from redrive.kafka.administration import NewTopic, TopicAdministration
from redrive.messages import NUMERIC_KEYWORDS, PATTERN_KEYWORDS
from redrive.outcomes.storage import local_path
from redrive.outcomes.table import SCHEMA, LedgerTable
from redrive.settings import read_settings
from redrive.streaming.topics import own_topics

RUNS: Final = 5
GOAL: Final = 2.0
"""Seconds for every command."""
PARTITIONS: Final = 4
SMALL_FILES: Final = 180
ROWS_OF_A_SMALL_FILE: Final = 100
DAYS: Final = 20
TAIL: Final = 1_000
RETRY_EVERY: Final = 3
"""One row in so many is about an older message."""
PROJECTED: Final = 200_000

SETTINGS: Final = """\
[application]
name = "{application}"
directory = "{application}"

[kafka]
bootstrap_servers = "{bootstrap_servers}"

[[handlers]]
queue = "orders.dlq"
name = "orders"
rules = "orders.rul"
"""
RULES: Final = "RETRYINT(60)\nREASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(5)\nACTION(FWD) FWDQ(DEAD)\n"


def main() -> int:
    """Measures, prints, and returns 1 if a goal is missed."""
    arguments = parser(__doc__, rows=1_000_000).parse_args()
    with broker() as (folder, servers):
        results = _commands(folder, servers, arguments.rows)
        figures = {name: round(seconds, 2) for name, seconds in results.items()}
        rate = _projection(folder, servers)
    if arguments.json:
        show({"rows": arguments.rows, "seconds": figures, "projection": round(rate)})
    else:
        for name, seconds in figures.items():
            print(f"{name:<40}{seconds:>6.2f} s   goal {GOAL:g} s")
        print(f"{'projection by Spark':<40}{rate / 1000:>6.1f} k outcomes/s")
    return 0 if max(figures.values()) < GOAL else 1


def _commands(folder: Path, bootstrap_servers: str, rows: int) -> dict[str, float]:
    job = _job(folder, bootstrap_servers, "reading")
    history, small = rows - SMALL_FILES * ROWS_OF_A_SMALL_FILE, ROWS_OF_A_SMALL_FILE
    table = LedgerTable.create(job.ledger.path)
    for start in range(0, history, 50_000):
        _append(local_path(job.ledger.path), start, min(50_000, history - start), history)
    table = LedgerTable.open(job.ledger.path) or table
    table.compact()
    for number in range(SMALL_FILES):
        _append(local_path(job.ledger.path), history + number * small, small, history)
    _fill_topic(job, bootstrap_servers, rows)
    config = ["-c", str(folder / "reading.toml")]
    commands = {
        "status": ["status"],
        "history ID, of long ago": ["history", _identity(_first(rows // 10))],
        "history ID, of the last minutes": ["history", _identity(_first(rows - 9))],
        "history ID, not in the ledger yet": ["history", _identity(rows + TAIL - 7)],
        "history --key": ["history", "--key", "key-77"],
        "history --reason --since": ["history", "--reason", "MQRC_Q_FULL", "--since", "1d"],
    }
    return {name: _timed([*command, *config]) for name, command in commands.items()}


def _timed(arguments: list[str]) -> float:
    """Seconds from the start of the process to its end, the median of some runs."""
    seconds = []
    for _ in range(RUNS + 1):
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "redrive", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        seconds.append(time.perf_counter() - started)
        assert done.returncode == 0, done.stderr
        assert "note:" not in done.stdout + done.stderr, done.stdout + done.stderr
    return statistics.median(seconds[1:])


def _job(folder: Path, bootstrap_servers: str, application: str) -> JobConfiguration:
    (folder / "orders.rul").write_text(RULES)
    config = folder / f"{application}.toml"
    config.write_text(SETTINGS.format(application=application, bootstrap_servers=bootstrap_servers))
    job = read_settings(config).job
    topics = TopicAdministration(job.connection)
    queue = NewTopic("orders.dlq", PARTITIONS)
    topics.ensure([queue, *own_topics(job, {queue.name: PARTITIONS})])
    return job


def _identity(number: int) -> str:
    return f"orders.dlq:{number % PARTITIONS}:{number}"


def _first(number: int) -> int:
    """The next number that stands for a message and not for a retry."""
    return number + (number % RETRY_EVERY == 0)


def _append(path: Path, start: int, count: int, history: int) -> None:
    """Rows ``start`` and following, as one file a day; a third of them are retries."""
    numbers = np.arange(start, start + count)
    messages = np.where(numbers % RETRY_EVERY == 0, np.maximum(0, numbers - 999), numbers)
    newest = datetime.now(UTC).timestamp() * 1e6
    ages = np.where(numbers < history, history - numbers, 0) * (DAYS * 86_400 * 1e6 / history)
    times = pa.array((newest - 1e9 - ages).astype("int64"), pa.timestamp("us", "UTC"))
    identities = pa.array([_identity(int(number)) for number in messages])
    reasons = pa.array(np.where(numbers % 7 == 0, 2053, 2085).astype("int32"))
    known = {
        "time": times,
        "day": times.cast(pa.date32()),
        "outcome": pa.array([_identity(int(number)) for number in numbers]),
        "message": identities,
        "message_offset": pa.array(messages),
        "origin": identities,
        "source_topic": pa.array(["orders.dlq"] * count),
        "handler": pa.array(["orders"] * count),
        "result": pa.array(["forwarded"] * count),
        "rule_line": pa.array((numbers % 40).astype("int32")),
        "reason": reasons,
        "field_reason": reasons,
        "message_key": pa.array([f"key-{number % 10_000}".encode() for number in messages]),
        "outcomes_partition": pa.array((numbers % PARTITIONS).astype("int32")),
        "outcomes_offset": pa.array(numbers // PARTITIONS),
        "malformed": pa.nulls(count, pa.string()),
    }
    write_deltalake(path, rows_of(known, count), mode="append")


def rows_of(known: Mapping[str, pa.Array], count: int) -> pa.Table:
    """Rows of the ledger of which only some columns matter; the others have any value."""
    texts, numbers = pa.array(["text"] * count), pa.array([1] * count)
    columns = [
        known.get(field.name, texts if field.type == pa.string() else numbers).cast(field.type)
        for field in SCHEMA
    ]
    return pa.table(columns, schema=SCHEMA)


def _fill_topic(job: JobConfiguration, bootstrap_servers: str, rows: int) -> None:
    """Records in the place of those that the ledger holds, and outcomes that it does not hold."""
    placeholders = ((number % PARTITIONS, b"-") for number in range(rows))
    _produce(job, bootstrap_servers, placeholders)
    _produce(job, bootstrap_servers, _outcomes(rows, TAIL))


def _outcomes(start: int, count: int) -> Iterator[tuple[int, bytes]]:
    """Partition and value of outcome records of the usual size."""
    numbers = range(start, start + count)
    return ((number % PARTITIONS, orjson.dumps(_outcome(number))) for number in numbers)


def _outcome(number: int) -> dict[str, Any]:
    return {
        "outcome": _identity(number),
        "message": _identity(number),
        "origin": _identity(number),
        "topic": "orders.dlq",
        "partition": number % PARTITIONS,
        "offset": number,
        "time": int(time.time() * 1000),
        "size": 500,
        "hop": 0,
        "key": b64encode(b"key-%d" % number).decode(),
        "handler": "orders",
        "queue_manager": "",
        "queue": "orders.dlq",
        "table": "0123456789abcdef",
        "rule_line": 7,
        "action": "FWD",
        "authority": "DEF",
        "attempt": 1,
        "result": "forwarded",
        "reason": 0,
        "reason_name": "",
        "detail": "",
        "target_queue_manager": "",
        "target_queue": "orders.in",
        "target_topic": "orders.in",
        "form": "headers",
        "job_version": "0.1.0",
        "fields": {name: 1 if name in NUMERIC_KEYWORDS else "TEXT" for name in PATTERN_KEYWORDS},
    }


def _produce(
    job: JobConfiguration, bootstrap_servers: str, records: Iterator[tuple[int, bytes]]
) -> None:
    sent = (Sent(job.outcomes_topic, partition, value) for partition, value in records)
    produce(bootstrap_servers, sent, compression_type="lz4")


def _projection(folder: Path, bootstrap_servers: str) -> float:
    """Outcomes a second that Spark projects, once it is warm."""
    from redrive.streaming.projection import rebuild  # noqa: PLC0415 - slow to import
    from redrive.streaming.session import start_session  # noqa: PLC0415 - slow to import

    job = _job(folder, bootstrap_servers, "writing")
    _produce(job, bootstrap_servers, _outcomes(0, PROJECTED))
    session = start_session(job)
    try:
        rebuild(session, job, lambda _: None)
        started = time.perf_counter()
        assert rebuild(session, job, lambda _: None) == PROJECTED
        return PROJECTED / (time.perf_counter() - started)
    finally:
        session.stop()


if __name__ == "__main__":
    sys.exit(main())

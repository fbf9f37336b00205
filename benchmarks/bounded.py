"""What a backlog costs while it is handled: memory and time of a transaction, from begin to end.

Two backlogs, each on a broker of its own: a few dead letters of 1 MB, and many of 500 bytes. While
``redrive run`` retries them to a queue, the memory of all its processes is taken every second (what
they share by its share), and the time of each transaction is read from the outcomes: two outcomes
of one partition are of two transactions where an offset between them is missing, its marker. Both
have to be as large at the end as after the first quarter.

    python -m benchmarks.bounded [--large 20000] [--small 1000000]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.job import PARTITIONS, cpu_seconds, create, resident_bytes, running_job
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.admin import NewTopic

from redrive.broker import EmbeddedBroker

_QUEUE: Final = "bounded.dlq"
_TARGET: Final = "bounded"
_OUTCOMES: Final = "redrive-bounded-outcomes"
_PATIENCE: Final = 120.0
"""Seconds without an outcome after which the job is given up."""
_LARGEST: Final = 4 * 1024 * 1024
_KEPT: Final = str(256 * 1024 * 1024)
"""Bytes of what was delivered that the broker keeps: nobody reads it here."""


def fill(servers: str, count: int, size: int) -> None:
    """Writes the backlog; bodies are random letters, half of which compress."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": "lz4",
            "message.max.bytes": _LARGEST,
            "linger.ms": 20,
        }
    )
    body = os.urandom(size // 20) * 20
    headers: list[tuple[str, str | bytes | None]] = [
        ("mqdlh.Reason", b"2053"),
        ("mqdlh.DestQName", _TARGET.encode()),
    ]
    for number in range(count):
        while True:
            try:
                producer.produce(_QUEUE, body, headers=headers, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def outcomes_until(servers: str, count: int) -> Iterator[Any]:
    """The committed outcomes, as they come, until there are as many as asked for."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench-bounded",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    while _OUTCOMES not in consumer.list_topics(timeout=10).topics:
        time.sleep(0.2)
    partitions = consumer.list_topics(timeout=10).topics[_OUTCOMES].partitions
    consumer.assign([TopicPartition(_OUTCOMES, number, 0) for number in partitions])
    seen, deadline = 0, time.monotonic() + _PATIENCE
    while seen < count:
        messages = [one for one in consumer.consume(5_000, 0.2) if one.error() is None]
        yield from messages
        seen += len(messages)
        if messages:
            deadline = time.monotonic() + _PATIENCE
        elif time.monotonic() > deadline:
            raise SystemExit(f"only {seen} of {count} outcomes came")
    consumer.close()


class Transactions:
    """Tells transactions apart by the markers between outcomes, and how long each was."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self._last: dict[int, tuple[int, int, int]] = {}
        self.seconds: list[float] = []
        """From the first record of one to the first of the next of its partition."""

    def add(self, message: Any) -> None:  # noqa: ANN401 - the client's message
        """Takes the next outcome of its partition."""
        partition, offset, at = message.partition(), message.offset(), message.timestamp()[1]
        before = self._last.get(partition)
        if before is None:
            self._last[partition] = offset, at, at
        elif offset == before[0] + 1:
            self._last[partition] = offset, before[1], at
        else:
            # Up to its last record: what follows may be a pause between two batches.
            self.seconds.append((before[2] - before[1]) / 1000)
            self._last[partition] = offset, at, at


def measure(count: int, size: int) -> dict[str, Any]:
    """Handles one backlog, and gives the figures.

    Args:
        count: Dead letters.
        size: Bytes of each body.
    """
    with tempfile.TemporaryDirectory(prefix="redrive-bounded-") as folder:
        properties = {
            "message.max.bytes": str(_LARGEST),
            "replica.fetch.max.bytes": str(_LARGEST),
            "log.retention.check.interval.ms": "5000",
        }
        with EmbeddedBroker(Path(folder) / "broker", properties=properties, heap="1g") as broker:
            servers = broker.bootstrap_servers
            kept = {"retention.bytes": _KEPT, "segment.bytes": str(64 * 1024 * 1024)}
            create(
                servers,
                NewTopic(_QUEUE, PARTITIONS, 1),
                NewTopic(_TARGET, PARTITIONS, 1, topic_configs=kept),
            )
            fill(servers, count, size)
            rules = {_QUEUE: "ACTION(RETRY)\n"}
            with running_job(servers, Path(folder) / "bounded", rules) as process:
                return _followed(servers, process.pid, count)


def _followed(servers: str, pid: int, count: int) -> dict[str, Any]:
    transactions = Transactions()
    memory: list[int] = []
    looked = began = 0.0
    for message in outcomes_until(servers, count):
        began = began or time.monotonic()
        transactions.add(message)
        if time.monotonic() - looked > 1:
            looked = time.monotonic()
            memory.append(sum(map(resident_bytes, cpu_seconds(pid))))
    seconds = time.monotonic() - began
    return {
        "dead letters": count,
        "seconds": round(seconds, 1),
        "rate": round(count / seconds),
        "memory of all processes by quarter, MB": [
            round(max(part) / 1e6) for part in quarters(memory)
        ],
        "longest transaction by quarter, s": [
            round(max(part), 2) for part in quarters(transactions.seconds)
        ],
        "transactions": len(transactions.seconds),
    }


def quarters(values: Sequence[Any]) -> list[Sequence[Any]]:
    """The values in four parts of about equal length, none of them empty."""
    if not values:
        return []
    cuts = [round(len(values) * number / 4) for number in range(5)]
    return [values[a : max(b, a + 1)] for a, b in itertools.pairwise(cuts) if a < len(values)]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--large", type=int, default=20_000, help="dead letters of 1 MB")
    parser.add_argument("--small", type=int, default=1_000_000, help="dead letters of 500 bytes")
    arguments = parser.parse_args()
    for count, size in ((arguments.large, 1_000_000), (arguments.small, 500)):
        if count:
            print(f"{size} bytes: {json.dumps(measure(count, size), indent=2)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

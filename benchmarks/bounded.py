"""What a backlog costs while it is handled: memory and time of a transaction, from begin to end.

Two backlogs, each on a broker of its own: a few dead letters of 1 MB, and many of 500 bytes. While
``redrive run`` retries them to a queue, the memory of all its processes (what they share by its
share) and its metrics of transactions are taken every second. Both have to be as large at the end
as after the first quarter.

    python -m benchmarks.bounded [--large 20000] [--small 1000000]
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final
from urllib.request import urlopen

from benchmarks.clients import Pairs, Sent, create, produce
from benchmarks.command_line import broker, parser, show
from benchmarks.job import PARTITIONS, cpu_seconds, resident_bytes, running_job
from confluent_kafka import Consumer, TopicPartition
from kafka.admin import NewTopic
from prometheus_client.parser import text_string_to_metric_families

from redrive.broker.configuration import free_port

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
    body = os.urandom(size // 20) * 20
    headers: Pairs = [
        ("mqdlh.Reason", b"2053"),
        ("mqdlh.DestQName", _TARGET.encode()),
    ]
    backlog = (Sent(_QUEUE, number % PARTITIONS, body, headers) for number in range(count))
    produce(servers, backlog, compression_type="lz4", message_max_bytes=_LARGEST)


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
        messages = [message for message in consumer.consume(5_000, 0.2) if message.error() is None]
        yield from messages
        seen += len(messages)
        if messages:
            deadline = time.monotonic() + _PATIENCE
        elif time.monotonic() > deadline:
            raise SystemExit(f"only {seen} of {count} outcomes came")
    consumer.close()


@dataclass(frozen=True)
class Look:
    """One look at the job."""

    memory: int
    """Bytes of all its processes."""
    seconds: float
    """Of all transactions so far."""
    within: Mapping[float, float]
    """How many of them took no longer than so many seconds."""


def look(pid: int, port: int) -> Look:
    """Looks at the job's processes and at its metrics."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    seconds, within = 0.0, {}
    for family in families:
        if family.name == "redrive_transaction_duration_seconds":
            for sample in family.samples:
                if sample.name.endswith("_sum"):
                    seconds = sample.value
                elif sample.name.endswith("_bucket"):
                    within[float(sample.labels["le"])] = sample.value
    return Look(sum(map(resident_bytes, cpu_seconds(pid))), seconds, within)


def measure(count: int, size: int) -> dict[str, Any]:
    """Handles one backlog, and gives the figures.

    Args:
        count: Dead letters.
        size: Bytes of each body.
    """
    properties = {
        "message.max.bytes": str(_LARGEST),
        "replica.fetch.max.bytes": str(_LARGEST),
        "log.retention.check.interval.ms": "5000",
    }
    kept = {"retention.bytes": _KEPT, "segment.bytes": str(64 * 1024 * 1024)}
    with broker(properties=properties, heap="1g") as (folder, servers):
        create(
            servers,
            NewTopic(_QUEUE, PARTITIONS, 1),
            NewTopic(_TARGET, PARTITIONS, 1, topic_configs=kept),
        )
        fill(servers, count, size)
        rules, port = {_QUEUE: "ACTION(RETRY)\n"}, free_port()
        more = f'[observe]\nlisten = "127.0.0.1:{port}"\n'
        with running_job(servers, folder / "bounded", rules, more) as process:
            return _followed(servers, process.pid, port, count)


def _followed(servers: str, pid: int, port: int, count: int) -> dict[str, Any]:
    looks: list[Look] = []
    looked = began = 0.0
    for _ in outcomes_until(servers, count):
        began = began or time.monotonic()
        if time.monotonic() - looked > 1:
            looked = time.monotonic()
            looks.append(look(pid, port))
    seconds = time.monotonic() - began
    looks.append(look(pid, port))
    parts = quarters(looks)
    ends = list(zip([looks[0], *(part[-1] for part in parts)], parts, strict=False))
    return {
        "dead letters": count,
        "seconds": round(seconds, 1),
        "rate": round(count / seconds),
        "memory of all processes by quarter, MB": [
            round(max(sample.memory for sample in part) / 1e6) for part in parts
        ],
        "transactions by quarter": [
            round(part[-1].within[inf] - before.within[inf]) for before, part in ends
        ],
        "mean of a transaction by quarter, s": [
            round(_mean(before, part[-1]), 3) for before, part in ends
        ],
        "all transactions within, by quarter, s": [
            _longest(before, part[-1]) for before, part in ends
        ],
    }


def _mean(first: Look, last: Look) -> float:
    return (last.seconds - first.seconds) / max(1.0, last.within[inf] - first.within[inf])


def _longest(first: Look, last: Look) -> float:
    """The smallest bound of the metric that held every transaction between two looks."""
    every = last.within[inf] - first.within[inf]
    return min(bound for bound, held in last.within.items() if held - first.within[bound] == every)


def quarters(values: Sequence[Any]) -> list[Sequence[Any]]:
    """The values in four parts of about equal length, none of them empty."""
    if not values:
        return []
    cuts = [round(len(values) * number / 4) for number in range(5)]
    return [values[a : max(b, a + 1)] for a, b in itertools.pairwise(cuts) if a < len(values)]


def main() -> int:
    """The command line."""
    arguments = parser(__doc__, large=20_000, small=1_000_000).parse_args()
    for count, size in ((arguments.large, 1_000_000), (arguments.small, 500)):
        if count:
            show({"bytes of a message": size, **measure(count, size)})
    return 0


if __name__ == "__main__":
    sys.exit(main())

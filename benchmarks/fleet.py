"""Many dead-letter topics in one job: its start, its rest, and its work.

    python -m benchmarks.fleet [--topics 200] [--partitions 6] [--rate 1000] [--seconds 60] [--json]

One entry of the settings names all topics by an expression, on embedded brokers without replicas. A
broker keeps a file open for each partition, three of four of which are on Redrive's own topics:
``--topics 1000`` needs ``--brokers 2`` where a process may open 20,000 files. Measured are the
time from the process's start to its first outcome, with Redrive's own topics to be made and once
more with them there; processor time and memory at rest; and, of dead letters that arrive at a
steady rate over all topics, the time from produce to visible. Halfway through, one topic is
deleted; its dead letters are not counted. ``--seconds 0`` measures the starts alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.clients import create, listener
from benchmarks.job import cpu_seconds, percentiles, resident_bytes, running_job, used_cores
from confluent_kafka import Consumer, Producer
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from tests.several_brokers import SeveralBrokers

RULES: Final = "ACTION(FWD) FWDQ('fleet.target') HEADER(NO)\n"
_HEADERS: Final[list[tuple[str, str | bytes | None]]] = [
    ("mqdlh.Reason", b"2053"),
    ("mqdlh.DestQName", b"nowhere"),
]
_WARM: Final = 45.0
"""Seconds after which Java has compiled what an idle job needs, and the ledger has been begun."""
_REST: Final = 20.0
"""Seconds over which rest is measured."""
_AT_ONCE: Final = 40
"""Topics that are created by one request."""
_HEAP: Final = "1g"
"""Of each broker; 384 MB are too few for 12,000 partitions."""
_ONE_REPLICA: Final = {"default.replication.factor": "1", "min.insync.replicas": "1"}
_PATIENCE: Final = 600.0
"""Seconds to wait for the first outcome, and for the last ones."""


def letter(producer: Producer, topic: str) -> None:
    """Writes a dead letter with the time of now."""
    producer.produce(topic, struct.pack("d", time.time()), headers=_HEADERS)
    producer.poll(0)


def first_outcome(consumer: Consumer, begun: float) -> float:
    """Seconds from a moment of ``time.monotonic()`` until something is on the target."""
    while time.monotonic() - begun < _PATIENCE:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            return round(time.monotonic() - begun, 1)
    raise SystemExit(f"no outcome within {_PATIENCE:g} s")


class Load:
    """Dead letters at a steady rate over all topics, and how long each takes."""

    def __init__(self, producer: Producer, consumer: Consumer, topics: list[str]) -> None:
        self._producer = producer
        self._consumer = consumer
        self.topics = topics
        self.sent = 0
        self._stopping = threading.Event()
        self._delays: list[float] = []

    def run(self, rate: float, seconds: float) -> list[float]:
        """Sends for some seconds, and returns the delays of all, in milliseconds."""
        self._delays, sent, begun = [], 0, time.monotonic()
        reader = threading.Thread(target=self._read, daemon=True)
        self._stopping.clear()
        reader.start()
        while (now := time.monotonic() - begun) < seconds:
            while sent < now * rate:
                letter(self._producer, self.topics[sent % len(self.topics)])
                sent += 1
            time.sleep(0.005)
        self._producer.flush()
        self.sent += sent
        last = time.monotonic() + _PATIENCE
        while len(self._delays) < sent and time.monotonic() < last:
            time.sleep(0.1)
        self._stopping.set()
        reader.join()
        if len(self._delays) != sent:
            raise SystemExit(f"{sent} dead letters were sent and {len(self._delays)} placed")
        return self._delays

    def _read(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(1000, timeout=0.05):
                if message.error() is None:
                    (at,) = struct.unpack("d", message.value() or b"")
                    self._delays.append((time.time() - at) * 1000)


def measure(servers: str, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All figures."""
    topics = [f"team{number}.dlq" for number in range(options.topics)]
    create(servers, NewTopic("fleet.target", 2, 1))  # first: a busy broker shows it late
    for begin in range(0, len(topics), _AT_ONCE):
        some = topics[begin : begin + _AT_ONCE]
        create(servers, *(NewTopic(topic, options.partitions, 1) for topic in some))
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    consumer = listener(servers, ["fleet.target"])
    settings = f"max_topics = {len(topics)}\n{options.more}"

    @contextlib.contextmanager
    def started() -> Iterator[tuple[int, float]]:
        """A job with a dead letter to handle: its process, and the seconds to the outcome."""
        letter(producer, topics[0])
        producer.flush()
        begun = time.monotonic()
        with running_job(servers, folder / "job", {r"/.*\.dlq/": RULES}, settings) as job:
            yield job.pid, first_outcome(consumer, begun)

    with started() as (_, first):
        pass
    with started() as (leader, later):
        load = Load(producer, consumer, topics)
        more = rest_and_work(servers, leader, load, options) if options.seconds else {}
    known = producer.list_topics(timeout=30).topics
    own = [topic for name, topic in known.items() if name.startswith("redrive-")]
    return {
        "topics": options.topics,
        "partitions": options.topics * options.partitions,
        "own topics": len(own),
        "own partitions": sum(len(topic.partitions) for topic in own),
        "first start to first outcome, s": first,
        "later start to first outcome, s": later,
        **more,
    }


def rest_and_work(
    servers: str, leader: int, load: Load, options: argparse.Namespace
) -> dict[str, Any]:
    """What the job, whose first process is given, takes at rest and under a load."""
    time.sleep(_WARM)
    idle = used_cores(leader, _REST)
    resident = sum(map(resident_bytes, cpu_seconds(leader)))
    steady = load.run(options.rate, options.seconds)
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.delete_topics([load.topics[-1]])
    admin.close()
    load.topics = load.topics[:-1]
    beside = load.run(options.rate, options.seconds)
    busy = sum(resident_bytes(pid) for pid in cpu_seconds(leader))
    return {
        "idle, cores": round(idle, 3),
        "resident at rest, MB": round(resident / 1e6),
        "resident after the load, MB": round(busy / 1e6),
        "rate, records/s": options.rate,
        "produce to visible, ms": percentiles(steady),
        "the same while one topic is deleted, ms": percentiles(beside),
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--more", default="", help="more lines of settings")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        SeveralBrokers(
            Path(folder), options.brokers, properties=_ONE_REPLICA, heap=_HEAP
        ) as brokers,
    ):
        figures = measure(brokers.bootstrap_servers, Path(folder), options)
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        shown = (
            ", ".join(f"{key} {figure}" for key, figure in value.items())
            if isinstance(value, dict)
            else value
        )
        print(f"{name:42} {shown}")


if __name__ == "__main__":
    main()

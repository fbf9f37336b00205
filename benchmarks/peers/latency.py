"""Produce to visible: what a contestant adds to a steady stream of dead letters.

It has the settings with which its throughput is measured. A record is late from the moment when it
is handed to a producer until a reader of committed records has it. Both are threads of this
process, on the cores of broker and contestant, alike for all.
"""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.clients import Sent, create, listener, send
from benchmarks.job import percentiles
from benchmarks.peers.contestants import Contestant
from benchmarks.peers.dlq_route import PARTITIONS, Work, backlog, number_of
from benchmarks.peers.measurement import started
from confluent_kafka import Consumer, Producer
from kafka.admin import NewTopic

RATES: Final = (200, 1_000, 5_000)
"""Records a second."""
_SECONDS: Final = 10.0
"""How long each rate lasts."""
_WARM: Final = (1_000, 6.0)
"""Rate and seconds of the stream before, which lets Java compile what it needs."""
_SETTLING: Final = 2.0
"""Seconds at the beginning of each rate that do not count."""
_BEHIND: Final = 5.0
"""Seconds after which a contestant that has not caught up does not keep up."""


class Stream:
    """Sends records at a rate, and notes when each came out.

    Args:
        servers: The broker.
        source: Topic that the contestant reads.
        work: The rules, with the targets of the run.
    """

    def __init__(self, servers: str, source: str, work: Work) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
        self._records = backlog(work, source, 10_000_000)
        self._sent: list[float] = []
        self._arrived: dict[int, float] = {}
        self._consumer = listener(servers, work.targets)
        self._stopping = threading.Event()
        self._reader = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        """Begins to read."""
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends."""
        self._stopping.set()
        self._reader.join()

    def first(self, process: subprocess.Popen[bytes], patience: float) -> None:
        """Sends a record now and then until one came out.

        Raises:
            SystemExit: None did.
        """
        end = time.monotonic() + patience
        while not self._arrived:
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"no record within {patience} s, exit code {process.poll()}")
            self._send(next(self._records))
            time.sleep(0.1)

    def delays(self, rate: int, seconds: float) -> list[float] | None:
        """Milliseconds from produce to visible of a steady stream; None if it was not kept up."""
        records = list(itertools.islice(self._records, int(rate * seconds)))
        first, begun = len(self._sent), time.monotonic()
        for number, record in enumerate(records):
            time.sleep(max(0.0, begun + number / rate - time.monotonic()))
            self._send(record)
        self._producer.flush()
        end = time.monotonic() + _BEHIND
        while len(self._arrived) < len(self._sent) and time.monotonic() < end:
            time.sleep(0.1)
        if len(self._arrived) < len(self._sent):
            return None
        counted = range(first + int(rate * _SETTLING), len(self._sent))
        return [1_000 * (self._arrived[number] - self._sent[number]) for number in counted]

    def _send(self, record: Sent) -> None:
        self._sent.append(time.monotonic())
        send(self._producer, record)
        self._producer.poll(0)

    def _read(self) -> None:
        consumer: Consumer = self._consumer
        message: Any  # its stub allows None where a consumed record has none
        while not self._stopping.is_set():
            for message in consumer.consume(1_000, 0.01):
                if message.error() is None:
                    self._arrived.setdefault(number_of(message.value()), time.monotonic())


def latency(
    contestant: Contestant, servers: str, work: Work, folder: Path, patience: float
) -> Iterator[dict[str, Any]]:
    """The percentiles of each rate in milliseconds, as long as the contestant keeps up.

    Args:
        contestant: Who runs.
        servers: The broker.
        work: The rules, with the targets of the run.
        folder: For the files of the run; it is made.
        patience: Seconds until the first record.

    Raises:
        SystemExit: No record came out.
    """
    source = f"dlq.{folder.name}"
    create(servers, NewTopic(source, PARTITIONS, 1))
    with (
        started(contestant, servers, source, work, folder) as process,
        Stream(servers, source, work) as stream,
    ):
        stream.first(process, patience)
        stream.delays(*_WARM)
        for rate in RATES:
            delays = stream.delays(rate, _SECONDS)
            yield {"rate": rate, **(percentiles(delays) if delays else {})}
            if delays is None:
                return

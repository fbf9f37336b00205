"""A broker that is stopped and started under the job: how soon dead letters are handled again.

``redrive run`` works on a broker that is stopped in an orderly way, is away for some seconds and
is started again, several times. Dead letters are sent once it serves; measured is the time from the
first answer of the broker to the last of them visible on its queue. Under load, dead letters come
all the time, and those that were sent before the stop are counted too: each has to arrive once.

    python -m benchmarks.outage [--rounds 20] [--down 10] [--rate 0]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.job import PARTITIONS, create, listener, running_job
from confluent_kafka import Consumer, Producer
from kafka.admin import NewTopic

from redrive.broker import EmbeddedBroker

_QUEUE: Final = "outage.dlq"
_TARGET: Final = "outage"
_NEWS: Final = 5
"""Dead letters that are sent when the broker serves again."""
_SETTLING: Final = 10.0
"""Seconds of work between two outages."""
_PATIENCE: Final = 300.0
"""Seconds after which a job that handles nothing is given up."""


class Traffic:
    """Numbered dead letters, and what arrived of them."""

    def __init__(self, servers: str) -> None:
        """Open the clients, which outlive an outage.

        Args:
            servers: The broker.
        """
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "linger.ms": 0,
                "log_level": 0,
                "enable.idempotence": True,
                "message.timeout.ms": int(_PATIENCE * 1000),
            }
        )
        self._consumer: Consumer = listener(servers, [_TARGET])
        self._lock = threading.Lock()
        self._sent = 0
        self._rate = 0.0
        self.arrived: Counter[int] = Counter()
        """How often each number was seen."""
        threading.Thread(target=self._stream, daemon=True).start()

    @property
    def sent(self) -> int:
        """How many were sent."""
        return self._sent

    def send(self, count: int) -> list[int]:
        """Sends dead letters; their numbers."""
        with self._lock:
            numbers = list(range(self._sent, self._sent + count))
            self._sent += count
        for number in numbers:
            self._producer.produce(
                _QUEUE,
                b"%d" % number,
                key=b"%d" % (number % 9),
                headers=[("mqdlh.Reason", b"2053"), ("mqdlh.DestQName", _TARGET.encode())],
            )
        self._producer.poll(0)
        return numbers

    @contextlib.contextmanager
    def streaming(self, rate: float) -> Iterator[None]:
        """Sends so many a second meanwhile."""
        self._rate = rate
        yield
        self._rate = 0.0

    def wait_for(self, numbers: list[int]) -> None:
        """Returns when all of them have arrived."""
        deadline = time.monotonic() + _PATIENCE
        while any(not self.arrived[number] for number in numbers):
            self.read(0.05)
            if time.monotonic() > deadline:
                raise SystemExit(f"nothing was handled for {_PATIENCE:g} s")

    def read(self, seconds: float) -> None:
        """Counts what arrives."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            message = self._consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.arrived[int(message.value() or b"")] += 1

    def _stream(self) -> None:
        while True:
            if self._rate:
                self.send(1)
            time.sleep(1 / self._rate if self._rate else 0.1)


def run(rounds: int, down: float, rate: float) -> dict[str, object]:
    """Stops and starts the broker so often; the report."""
    seconds: list[float] = []
    with tempfile.TemporaryDirectory(prefix="redrive-outage-") as folder:
        broker = EmbeddedBroker(Path(folder) / "broker")
        with broker:
            servers = broker.bootstrap_servers
            create(servers, NewTopic(_QUEUE, PARTITIONS, 1), NewTopic(_TARGET, 2, 1))
            traffic = Traffic(servers)
            rules = {_QUEUE: "RETRYINT(1)\nACTION(RETRY) RETRY(9999)\n"}
            with running_job(servers, Path(folder) / "outage-job", rules):
                traffic.wait_for(traffic.send(_NEWS))
                with traffic.streaming(rate):
                    for number in range(1, rounds + 1):
                        traffic.read(_SETTLING)
                        seconds.append(_outage(broker, traffic, down))
                        print(f"{number}: {seconds[-1]:.1f} s", file=sys.stderr, flush=True)
                traffic.wait_for(list(range(traffic.sent)))
                traffic.read(1.0)
    return {
        "down, s": down,
        "rate, records/s": rate,
        "handled again after, s": [round(one, 1) for one in seconds],
        "sent": traffic.sent,
        "lost": sum(not traffic.arrived[number] for number in range(traffic.sent)),
        "duplicated": sum(count > 1 for count in traffic.arrived.values()),
    }


def _outage(broker: EmbeddedBroker, traffic: Traffic, down: float) -> float:
    broker.stop()
    time.sleep(down)
    broker.start()
    begun = time.monotonic()
    traffic.wait_for(traffic.send(_NEWS))
    return time.monotonic() - begun


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--down", type=float, default=10, help="seconds that the broker is away")
    parser.add_argument("--rate", type=float, default=0, help="dead letters a second meanwhile")
    arguments = parser.parse_args()
    report = run(arguments.rounds, arguments.down, arguments.rate)
    print(json.dumps(report, indent=2))
    return 1 if report["lost"] or report["duplicated"] else 0


if __name__ == "__main__":
    sys.exit(main())

"""Kill -9 under a table in DIALECT(KAFKA): back-off, quarantine, pointers; count every effect.

Dead letters of Kafka Connect and of share groups arrive while the job is killed as by
``benchmarks.crash``. Some are tried again with growing delays, for a topic that comes late or takes
nothing so large; some are quarantined; some are pointers, whose payload is fetched from where it
was, or gone. The audit is that of ``benchmarks.crash``, and beyond it:

    - what a pointer stands for is put with the value of its original, byte for byte.

Run it as ``python -m benchmarks.crash_dialect --rounds 20`` (``make crash``); a printed seed
repeats it.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.crash import (
    DEAD_LETTERS,
    LAST,
    LATE,
    OPEN,
    PARTITIONS,
    SMALL,
    Findings,
    Job,
    Load,
    audit,
    create,
    create_topics,
    killed,
    main,
    read_committed,
    wait_until_settled,
    write_settings,
)
from benchmarks.job import Pairs
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.admin import NewTopic
from kafka.future import Future

from redrive.broker import EmbeddedBroker

ORIGINS: Final = "jobs"
"""The topic that pointers point at."""
ORIGINALS: Final = 3_000
_ORIGIN_PARTITIONS: Final = 3
_SHORTEST: Final = 0.8
"""Seconds: the first delay of the table's BACKOFF, with all of its jitter."""

TABLE: Final = f"""* Back-off, quarantine, pointers, lists and expressions.
DIALECT(KAFKA) RETRYINT(2)
SCHEME(share-group) ACTION(FWD) FWDT('{OPEN}') HEADER(NO)
HEADER('kind',kept) ACTION(QUARANTINE)
ERRMSG(/duplicate (key|row)/) ACTION(DISCARD)
CONNECTOR(sink-?) TOPIC({LATE}|{SMALL}) ACTION(RETRY) RETRY(4) BACKOFF(1s,2,3s)
CONNECTOR(sink-?) TOPIC({OPEN}) ACTION(RETRY)
CONNECTOR(?*) ACTION(FWD) FWDT('{LAST}')
"""

KINDS: Final = (
    (OPEN, "timed out", 60),  # back at once, on its partition
    (LATE, "timed out", 60),  # refused until the topic appears, or forwarded
    (SMALL, "timed out", 3000),  # refused for its size each time, then forwarded
    (OPEN, "duplicate key", 60),  # discarded
    (OPEN, "kept", 60),  # quarantined
    ("", "pointer", 0),  # fetched and forwarded
    ("", "gone", 0),  # a pointer at nothing: remains
    ("", "none", 60),  # of no scheme: remains
)
"""Topic, what is told, and size."""


class _Written(NamedTuple):
    """Where a record lies, in the form of kafka-python's answer."""

    partition: int
    offset: int

    def get(self, timeout: float) -> _Written:
        """It is there already."""
        del timeout
        return self


class DeadLetters(Load):
    """Produces numbered dead letters of Kafka's own schemes in a thread, at a steady rate."""

    def __init__(self, bootstrap_servers: str, rate: float, seed: int) -> None:
        super().__init__(bootstrap_servers, rate, seed)
        self._nulls = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 2})

    def _send(self, number: int) -> Future:
        topic, told, size = self._random.choice(KINDS)
        original = self._random.randrange(ORIGINALS)
        headers: Pairs = [("number", b"%d" % number)]
        if told in {"pointer", "gone"}:
            self.expected.append(str(original) if told == "pointer" else "")
            offset = original // _ORIGIN_PARTITIONS + (ORIGINALS if told == "gone" else 0)
            headers += _share_group(original % _ORIGIN_PARTITIONS, offset)
            # By its original: the order of what is put is kept for each key.
            return self._send_null(headers, original % PARTITIONS)
        self.expected.append("")
        if told != "none":
            headers += _connect(topic, told)
        headers.append(("kind", told.encode()))
        return self._producer.send(
            DEAD_LETTERS,
            key=b"k%d" % (number % 9),
            value=b"%08d" % number + self._random.randbytes(size),
            headers=headers,
            partition=number % 9 % PARTITIONS,
        )

    def _send_null(self, headers: Pairs, partition: int) -> _Written:
        """A record without key and value, which kafka-python does not write."""
        written: list[Any] = []
        self._nulls.produce(
            DEAD_LETTERS,
            headers=headers,
            partition=partition,
            on_delivery=lambda _, message: written.append(message),
        )
        self._nulls.flush()
        return _Written(written[0].partition(), written[0].offset())


def _connect(topic: str, message: str) -> Pairs:
    told = {
        "topic": topic,
        "partition": "0",
        "offset": "7",
        "connector.name": "sink-1",
        "stage": "TASK_PUT",
        "exception.class.name": "org.acme.WriteException",
        "exception.message": message,
        "exception.stacktrace": f"org.acme.WriteException: {message}\n\tat org.acme.Sink.put",
    }
    return [(f"__connect.errors.{name}", text.encode()) for name, text in told.items()]


def _share_group(partition: int, offset: int) -> Pairs:
    told = {"topic": ORIGINS, "partition": partition, "offset": offset, "group": "workers"}
    return [(f"__dlq.errors.{name}", str(it).encode()) for name, it in told.items()]


def _produce_originals(servers: str) -> None:
    create(servers, NewTopic(ORIGINS, _ORIGIN_PARTITIONS, 1))
    producer = KafkaProducer(bootstrap_servers=servers, acks="all", linger_ms=5)
    for number in range(ORIGINALS):
        producer.send(
            ORIGINS, _original(number), b"o%d" % number, partition=number % _ORIGIN_PARTITIONS
        )
    producer.flush()
    producer.close()


def _original(number: int) -> bytes:
    return b"original %08d" % number


def check_pointers(servers: str, load: Load, numbers: dict[tuple[int, int], int]) -> list[str]:
    """Pointers whose put is not their original.

    Args:
        servers: The broker.
        load: What was produced.
        numbers: Number of each input by partition and offset.
    """
    wrong = []
    for record in read_committed(servers, [OPEN]):
        partition, offset = dict(record.headers)["redrive.id"].decode().rsplit(":", 2)[1:]
        original = load.expected[numbers[int(partition), int(offset)]]
        if original and record.value != _original(int(original)):
            wrong.append(f"{partition}:{offset} was put as {record.value[:40]!r}")
    return wrong


def run(rounds: int, seed: int, *, rate: float = 150, patience: float = 180) -> Findings:
    """Runs the whole thing and gives the findings.

    Args:
        rounds: How often to kill.
        seed: Of everything random.
        rate: Dead letters a second.
        patience: Seconds to wait for a start, and for the end.
    """
    with (
        tempfile.TemporaryDirectory(prefix="redrive-crash-") as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
    ):
        directory, servers = Path(folder), broker.bootstrap_servers
        create_topics(servers)
        _produce_originals(servers)
        load = DeadLetters(servers, rate, seed)
        load.start()
        configure = partial(write_settings, directory, servers, table=TABLE)
        job = Job(configure("auto"), directory / "job.log")
        for number in killed(job, configure, servers, rounds=rounds, seed=seed, patience=patience):
            if number == max(1, rounds // 2):
                create(servers, NewTopic(LATE, 2, 1))
        numbers = load.stop()
        job.start()
        wait_until_settled(servers, len(numbers), patience)
        code = job.stop()
        findings = audit(servers, numbers, interval=_SHORTEST)
        findings.lost += check_pointers(servers, load, numbers)
        if code:
            findings.lost.append(f"the last job ended with exit code {code}")
        return findings


if __name__ == "__main__":
    sys.exit(main(run, __doc__))

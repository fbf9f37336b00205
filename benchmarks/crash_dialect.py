"""Kill -9 under a table in DIALECT(KAFKA): back-off, pointers, TRANSFORM; count every effect.

Dead letters of Kafka Connect and of share groups arrive while the job is killed as by
``benchmarks.crash``. Some are tried again with growing delays, for a topic that comes late or takes
nothing so large; some are quarantined, some transformed; some are pointers, whose payload is
fetched from where it was, or gone. The audit is that of all crash programs, and beyond it:

    - what a pointer stands for is put with the value of its original, byte for byte;
    - what is to be transformed is put so, and so is nothing else.

Run it as ``python -m benchmarks.crash_dialect --rounds 20`` (``make crash``); a printed seed
repeats it.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.clients import Sent, create, produce, read_committed
from benchmarks.crash import Crash
from benchmarks.engine import Scene, main
from benchmarks.load import DEAD_LETTERS, LAST, LATE, OPEN, PARTITIONS, SMALL, keyed
from benchmarks.reconciliation import Findings
from kafka.admin import NewTopic

ORIGINS: Final = "jobs"
"""The topic that pointers point at."""
ORIGINALS: Final = 3_000
_ORIGIN_PARTITIONS: Final = 3
_GONE: Final = 10**9
"""An offset that no topic reaches: what failed there is not mistaken for a put of the job."""

TABLE: Final = f"""* Back-off, quarantine, pointers, lists and expressions.
DIALECT(KAFKA) RETRYINT(2)
SCHEME(share-group) ACTION(FWD) FWDT('{OPEN}') HEADER(NO)
JSON('$.currency',XX) ACTION(RETRY) TRANSFORM(currency)
HEADER('kind',kept) ACTION(QUARANTINE)
ERRMSG(/duplicate (key|row)/) ACTION(DISCARD)
CONNECTOR(sink-?) TOPIC({LATE}|{SMALL}) ACTION(RETRY) RETRY(4) BACKOFF(1s,2,3s)
CONNECTOR(sink-?) TOPIC({OPEN}) ACTION(RETRY)
CONNECTOR(?*) ACTION(FWD) FWDT('{LAST}')
"""

KINDS: Final = (
    (OPEN, "wrong currency", 0),  # back with the right one
    (OPEN, "timed out", 60),  # back at once, on its partition
    (LATE, "timed out", 60),  # refused until the topic appears, or forwarded
    (SMALL, "timed out", 3000),  # refused for its size each time, then forwarded
    (OPEN, "duplicate key", 60),  # discarded
    (OPEN, "kept", 60),  # quarantined
    ("", "pointer", 0),  # fetched and forwarded
    ("", "gone", 0),  # a pointer at nothing: remains
    ("", "none", 60),  # of no scheme: remains
)
"""Topic, attributes, and size."""


@dataclass(kw_only=True)
class CrashDialect(Crash):
    """Dead letters of Kafka's own schemes."""

    table = TABLE
    interval = 0.8
    """The first delay of the table's BACKOFF, with all of its jitter."""

    def handled(self, folder: Path) -> str:
        """The handler, and the transformation."""
        patch = [{"op": "replace", "path": "/currency", "value": "EU"}]
        (folder / "currency.json").write_text(json.dumps(patch))
        return f'{super().handled(folder)}[transforms.currency]\njson_patch = "currency.json"\n'

    def prepare(self, scene: Scene) -> None:
        """Writes the originals that pointers stand for."""
        create(scene.servers, NewTopic(ORIGINS, _ORIGIN_PARTITIONS, 1))
        originals = (
            Sent(ORIGINS, number % _ORIGIN_PARTITIONS, _original(number), key=b"o%d" % number)
            for number in range(ORIGINALS)
        )
        produce(scene.servers, originals)

    def make(self, number: int, chance: random.Random) -> Sent:
        """A dead letter of one of ``KINDS``."""
        topic, failure, size = chance.choice(KINDS)
        headers = [("number", b"%d" % number)]
        if failure in {"pointer", "gone"}:
            original = chance.randrange(ORIGINALS)
            offset = original // _ORIGIN_PARTITIONS + (ORIGINALS if failure == "gone" else 0)
            place = {"topic": ORIGINS, "partition": original % _ORIGIN_PARTITIONS}
            where = {**place, "offset": offset, "group": "workers"}
            # By its original: the order of what is put is kept for each key.
            pointer = [*headers, *_headers("dlq", where)]
            return Sent(DEAD_LETTERS, original % PARTITIONS, None, list(pointer))
        if failure != "none":
            headers += _connect(topic, failure, _GONE + number)
        value = b"%08d" % number + chance.randbytes(size)
        if failure == "wrong currency":
            value = b'{"number":%d,"currency":"XX"}' % number
        return keyed(number, value, [*headers, ("kind", failure.encode())])

    def audit(self, scene: Scene) -> Findings:
        """As in every program; and what pointers stand for is what was put."""
        findings = super().audit(scene)
        findings.wrong += _wrong_originals(scene.servers)
        findings.wrong += _wrong_values(scene.servers)
        return findings


def _connect(topic: str, message: str, offset: int) -> list[tuple[str, bytes]]:
    parts = {
        "topic": topic,
        "partition": 0,
        "offset": offset,
        "connector.name": "sink-1",
        "stage": "TASK_PUT",
        "exception.class.name": "org.acme.WriteException",
        "exception.message": message,
        "exception.stacktrace": f"org.acme.WriteException: {message}\n\tat org.acme.Sink.put",
    }
    return _headers("connect", parts)


def _headers(scheme: str, parts: Mapping[str, object]) -> list[tuple[str, bytes]]:
    return [(f"__{scheme}.errors.{name}", str(value).encode()) for name, value in parts.items()]


def _original(number: int) -> bytes:
    return b"original %08d" % number


def _wrong_originals(servers: str) -> list[str]:
    """Pointers whose put is not their original."""
    originals: dict[str, bytes] = {}
    for record in read_committed(servers, [DEAD_LETTERS]):
        headers = dict(record.headers)
        if "__dlq.errors.offset" in headers:
            offset, partition = (
                int(headers[f"__dlq.errors.{name}"]) for name in ("offset", "partition")
            )
            identity = f"{DEAD_LETTERS}:{record.partition}:{record.offset}"
            originals[identity] = _original(offset * _ORIGIN_PARTITIONS + partition)
    return [
        f"{identity} was put as {(record.value or b'')[:40]!r}"
        for record in read_committed(servers, [OPEN])
        if (identity := dict(record.headers)["redrive.id"].decode()) in originals
        and record.value != originals[identity]
    ]


def _wrong_values(servers: str) -> list[str]:
    """What was put with another value than its dead letter has or its transformation makes."""
    letters = {
        f"{DEAD_LETTERS}:{record.partition}:{record.offset}": record.value
        for record in read_committed(servers, [DEAD_LETTERS])
        if record.value is not None
    }
    wrong = []
    for record in read_committed(servers, [OPEN, LATE, LAST]):
        identity = dict(record.headers)["redrive.id"].decode()
        value = letters.get(identity, record.value)
        if record.topic == OPEN and record.value.startswith(b"{"):
            value = value.replace(b"XX", b"EU")
        if record.value != value:
            wrong.append(f"{identity} was put as {record.value[:40]!r}")
    return wrong


if __name__ == "__main__":
    sys.exit(main(CrashDialect, __doc__))

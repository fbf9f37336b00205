"""How fast messages are read, decoded and stripped, on one core.

    python -m benchmarks.messages [--rows 100000] [--json]

Messages of 500 bytes with eight headers of the message descriptor and two others, in batches of
10,000, as a lane handles them; those of Kafka Connect's have its ten headers, a stack trace of
4,000 bytes among them. The garbage collector is off, as in the job. Each figure is the best of
some runs, in thousands of records per second.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from benchmarks.command_line import parser, show

from redrive.messages import (
    DeadLetterDecoder,
    DeadLetterHeader,
    Form,
    Headers,
    Records,
    Representation,
    add_header,
    read_view,
    remove_header,
)

BATCH = 10_000
RUNS = 5
GOALS = {"decode, binary": 700, "decode, header form": 400, "decode, Kafka Connect": 200}
"""Thousands of records per second."""


class Figure(NamedTuple):
    """One measured rate."""

    name: str
    thousand_records_per_second: float
    goal: int | None


def sample(number: int, variants: int, form: Form, chance: random.Random) -> tuple[bytes, Headers]:
    """One of ``variants`` kinds of dead letters; time, identifiers and body differ in each."""
    kind = number % variants
    headers: Headers = [
        ("traceparent", f"{chance.getrandbits(128):032x}".encode()),
        ("JMS_IBM_MQMD_MsgId", f"{chance.getrandbits(192):048x}".encode()),
        ("JMS_IBM_MQMD_MsgType", b"8"),
        ("JMS_IBM_MQMD_Persistence", b"1"),
        ("JMS_IBM_MQMD_Format", b"MQSTR   "),
        ("JMS_IBM_MQMD_Encoding", b"273"),
        ("JMS_IBM_MQMD_CodedCharSetId", b"1208"),
        ("JMS_IBM_MQMD_PutApplName", b"payments.%d" % (kind % 7)),
        ("JMS_IBM_MQMD_UserIdentifier", b"app%d" % (kind % 3)),
        ("content-type", b"application/json"),
    ]
    header = DeadLetterHeader(
        reason=2053 if kind % 2 else 2085,
        dest_q_name=f"APP.IN.{kind}",
        dest_q_mgr_name="QM1",
        encoding=546,
        coded_char_set_id=1208,
        format="MQSTR",
        put_appl_type=6,
        put_appl_name="amqrmppa",
        put_date="20260115",
        put_time=f"{chance.randrange(10**8):08}",
        representation=Representation("little", 819),
    )
    value, headers = add_header(header, chance.randbytes(328), headers, form=form)
    return value or b"", headers


def connect_sample(number: int, variants: int, chance: random.Random) -> tuple[bytes, Headers]:
    """One of ``variants`` kinds of Kafka Connect's dead letters; offset and message differ."""
    kind = number % variants
    error = f"org.apache.kafka.connect.errors.{'Data' if kind % 2 else 'Connect'}Exception"
    message = f"{error}: {chance.getrandbits(64):x}"
    frames = "\tat org.apache.kafka.connect.runtime.Worker.run(Worker.java:1)\n" * 60
    parts = {
        "topic": f"orders.{kind}",
        "partition": str(kind % 7),
        "offset": str(number),
        "connector.name": "jdbc-sink",
        "task.id": "0",
        "stage": "VALUE_CONVERTER",
        "class.name": "io.confluent.connect.avro.AvroConverter",
        "exception.class.name": error,
        "exception.message": message,
        "exception.stacktrace": f"{message}\n{frames}Caused by: java.io.IOException: x\n",
    }
    headers: Headers = [
        (f"__connect.errors.{name}", value.encode()) for name, value in parts.items()
    ]
    return chance.randbytes(500), headers


def batches(rows: int, variants: int, form: Form | None) -> list[pa.RecordBatch]:
    """The workload as Spark's Kafka source gives it; None stands for Kafka Connect's."""
    chance = random.Random(1)
    samples = [
        sample(number, variants, form, chance)
        if form is not None
        else connect_sample(number, variants, chance)
        for number in range(rows)
    ]
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    whole = pa.record_batch(
        {
            "key": pa.array([b"key"] * rows, pa.binary()),
            "value": pa.array([value for value, _ in samples], pa.binary()),
            "headers": pa.array([pairs for _, pairs in samples], headers),
            "timestamp": pa.array([0] * rows, pa.timestamp("us", tz="UTC")),
            "offset": pa.array(range(rows), pa.int64()),
        }
    )
    return [whole.slice(start, BATCH) for start in range(0, rows, BATCH)]


def rate(rows: int, work: Callable[[], object]) -> float:
    """Thousands of rows per second, the best of some runs."""
    best = min(_seconds(work) for _ in range(RUNS))
    return round(rows / best / 1000, 1)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def decode_all(parts: Iterable[Records]) -> None:
    """Decode by the batch with a decoder that knows nothing yet."""
    decoder = DeadLetterDecoder()
    for part in parts:
        decoder.decode(part)


def read_all(parts: Iterable[pa.RecordBatch]) -> None:
    """Read batches and forget them, as a lane does."""
    for part in parts:
        Records.from_arrow(part)


def view_all(parts: Iterable[Records]) -> None:
    """Read what each message says, as displays and rules about single messages do."""
    for part in parts:
        for key, value, headers in zip(part.keys, part.values, part.headers, strict=True):
            read_view(key, value, headers)


def remove_all(parts: Iterable[Records]) -> None:
    """Take the header off every message."""
    decoder = DeadLetterDecoder()
    for part in parts:
        codes, profiles = decoder.decode(part)
        for code, value, headers in zip(codes.tolist(), part.values, part.headers, strict=True):
            remove_header(profiles[code], value, headers)


def measure(rows: int) -> list[Figure]:
    """Every figure, with its goal if it has one."""
    gc.collect()
    gc.freeze()
    gc.disable()
    figures: dict[str, float] = {}
    forms = {"binary": Form.BINARY, "header form": Form.HEADERS, "Kafka Connect": None}
    for name, form in forms.items():
        parts = batches(rows, 20, form)
        figures[f"read from Arrow, {name}"] = rate(rows, partial(read_all, parts))
        records = [Records.from_arrow(part) for part in parts]
        figures[f"decode, {name}"] = rate(rows, partial(decode_all, records))
        figures[f"decode and remove, {name}"] = rate(rows, partial(remove_all, records))
        figures[f"view of each, {name}"] = rate(rows, partial(view_all, records))
    distinct = [Records.from_arrow(part) for part in batches(rows, rows, Form.BINARY)]
    figures["decode, all different"] = rate(rows, partial(decode_all, distinct))
    return [Figure(name, figure, GOALS.get(name)) for name, figure in figures.items()]


def main() -> None:
    """Measure and print."""
    arguments = parser(__doc__, rows=100_000).parse_args()
    figures = measure(arguments.rows)
    if arguments.json:
        show([figure._asdict() for figure in figures])
        return
    print(f"{'':36}{'k records/s':>12}{'goal':>8}")
    for name, figure, goal in figures:
        print(f"{name:36}{figure:12,.1f}{goal or '':>8}")


if __name__ == "__main__":
    main()

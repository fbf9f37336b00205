"""The job with rules in DIALECT(KAFKA) against the same job with IBM's, on Connect's dead letters.

    python -m benchmarks.dialect [--records 1000000] [--runs 2] [--json]

One backlog of dead letters with the nine headers that Kafka Connect adds, no two with the same text
of the error; 20 rules, of which the last five apply. Each contestant is a process of its own:

    ibm       patterns on the topic and the connector, in IBM's words
    shared    the same in the dialect's words, with expressions and lists
    one by one  as shared, with four expressions for the text of the error, an age and a JSON path
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks import job
from confluent_kafka import Producer
from kafka.admin import NewTopic

from redrive.broker import EmbeddedBroker

SOURCES: Final = tuple(f"orders.{number}" for number in range(5))
TEXTS: Final = ("timed out", "refused", "duplicate key", "null value", "unknown field")


def tables() -> Mapping[str, str]:
    """The rules of each contestant."""
    ibm = [f"DESTQ('other.{n}.*') APPLNAME('sink-{n}') ACTION(DISCARD)" for n in range(15)]
    shared = [
        f"TOPIC('other.{n}.*'|more.{n}) CONNECTOR(/^sink-{n}-/) STAGE(TASK_PUT) ACTION(DISCARD)"
        for n in range(15)
    ]
    alone = shared.copy()
    for number, text in enumerate(TEXTS[:4]):
        alone[number] = f"TOPIC('{SOURCES[number]}') ERRMSG(/{text}.* after {number}{{7}}$/)"
        alone[number] += " ACTION(DISCARD)"
    alone[4] = f"TOPIC('{SOURCES[4]}') AGE(>9d) ACTION(DISCARD)"
    alone[5] = f"TOPIC('{SOURCES[0]}') JSON('$.n',-1) ACTION(DISCARD)"
    places = list(zip(SOURCES, job.TARGETS, strict=True))
    by_queue = [f"DESTQ('{one}') ACTION(FWD) FWDQ('{to}') HEADER(NO)" for one, to in places]
    by_topic = [f"TOPIC('{one}') ACTION(FWD) FWDT('{to}') HEADER(NO)" for one, to in places]
    return {
        "ibm": "\n".join(["WAIT(NO)", *ibm, *by_queue, ""]),
        "shared": "\n".join(["DIALECT(KAFKA) WAIT(NO)", *shared, *by_topic, ""]),
        "one by one": "\n".join(["DIALECT(KAFKA) WAIT(NO)", *alone, *by_topic, ""]),
    }


def fill(servers: str, topic: str, count: int) -> None:
    """Writes the backlog."""
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 500_000}
    )
    for number in range(count):
        while True:
            try:
                producer.produce(
                    topic, b'{"n": %d, "rest": "%s"}' % (number, b"x" * 300), b"k%d" % number,
                    headers=_headers(number), partition=number % job.PARTITIONS,
                )  # fmt: skip
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def _headers(number: int) -> job.Pairs:
    told = {
        "topic": SOURCES[number % 5],
        "partition": "0",
        "offset": str(number),
        "connector.name": "sink-orders",
        "task.id": "0",
        "stage": "TASK_PUT",
        "class.name": "org.acme.OrdersSinkTask",
        "exception.class.name": "org.apache.kafka.connect.errors.ConnectException",
        "exception.message": f"{TEXTS[number % 5]}, order {number}, gave up after {number % 99} s",
    }
    return [(f"__connect.errors.{name}", text.encode()) for name, text in told.items()]


def measure(contestant: str, servers: str, directory: str, name: str) -> dict[str, float]:
    """One contestant, in this process."""
    return job.measure_job(servers, directory, name, "lanes", tables()[contestant])


def compared(servers: str, directory: str, count: int, runs: int) -> dict[str, Any]:
    """Records a second of each contestant, in turns."""
    backlog = NewTopic("backlog", job.PARTITIONS, 1)
    job.create(servers, backlog, *(NewTopic(target, 2, 1) for target in job.TARGETS))
    fill(servers, "backlog", count)
    rates: dict[str, list[float]] = {contestant: [] for contestant in tables()}
    for run in range(runs):
        for number, (contestant, values) in enumerate(rates.items()):
            name = f"dialect{run}x{number}"
            job.create(servers, NewTopic(f"redrive-{name}-outcomes", 4, 1))
            measured = _in_process(contestant, servers, directory, name)
            if not measured["batches"]:
                raise SystemExit("the backlog was one batch, which only warms up: --records more")
            values.append(measured["records"] / measured["seconds"])
    median = {contestant: statistics.median(values) for contestant, values in rates.items()}
    return {
        "backlog": count,
        "records/s": {name: round(rate) for name, rate in median.items()},
        "of ibm": {name: round(rate / median["ibm"], 2) for name, rate in median.items()},
    }


def _in_process(contestant: str, servers: str, directory: str, name: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.dialect", "--contestant", contestant]
    command += ["--servers", servers, "--directory", directory, "--name", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise SystemExit(f"{contestant} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    measured: dict[str, float] = json.loads(lines[-1])
    return measured


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000, help="more than one batch takes")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    for hidden in ("--contestant", "--servers", "--directory", "--name"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        place = options.servers, options.directory, options.name
        print(json.dumps(measure(options.contestant, *place)))
        return
    with (
        tempfile.TemporaryDirectory(prefix="redrive-bench-") as folder,
        EmbeddedBroker(Path(folder) / "broker") as broker,
    ):
        report = compared(broker.bootstrap_servers, folder, options.records, options.runs)
    if options.json:
        print(json.dumps(report, indent=2))
        return
    for name, rate in report["records/s"].items():
        print(f"{name:12} {rate:8,} records/s  {report['of ibm'][name]:.2f} of ibm")


if __name__ == "__main__":
    main()

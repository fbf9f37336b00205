"""The job with rules in DIALECT(KAFKA) against the same job with IBM's, on Connect's dead letters.

    python -m benchmarks.dialect [--records 1000000] [--runs 2] [--json]

One backlog of dead letters with the nine headers that Kafka Connect adds, no two with the same text
of the error; 20 rules, of which the last five apply. Each contestant is a process of its own:

    ibm       patterns on the topic and the connector, in IBM's words
    shared    the same in the dialect's words, with expressions and lists
    one by one  as shared, with four expressions for the text of the error, an age and a JSON path
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from typing import Any, Final

from benchmarks import job
from benchmarks.clients import Pairs, Sent, create, produce
from benchmarks.command_line import broker, hidden, in_process, parser, show
from kafka.admin import NewTopic

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
    by_queue = [f"DESTQ('{place}') ACTION(FWD) FWDQ('{to}') HEADER(NO)" for place, to in places]
    by_topic = [f"TOPIC('{place}') ACTION(FWD) FWDT('{to}') HEADER(NO)" for place, to in places]
    return {
        "ibm": "\n".join(["WAIT(NO)", *ibm, *by_queue, ""]),
        "shared": "\n".join(["DIALECT(KAFKA) WAIT(NO)", *shared, *by_topic, ""]),
        "one by one": "\n".join(["DIALECT(KAFKA) WAIT(NO)", *alone, *by_topic, ""]),
    }


def fill(servers: str, topic: str, count: int) -> None:
    """Writes the backlog."""
    produce(
        servers,
        (
            Sent(
                topic, number % job.PARTITIONS, b'{"n": %d, "rest": "%s"}' % (number, b"x" * 300),
                _headers(number), b"k%d" % number,
            )
            for number in range(count)
        ),
    )  # fmt: skip


def _headers(number: int) -> Pairs:
    parts = {
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
    return [(f"__connect.errors.{name}", text.encode()) for name, text in parts.items()]


def measure(contestant: str, servers: str, directory: str, name: str) -> dict[str, float]:
    """One contestant, in this process."""
    return job.measure_job(servers, directory, name, "lanes", tables()[contestant])


def compared(servers: str, directory: str, count: int, runs: int) -> dict[str, Any]:
    """Records a second of each contestant, in turns."""
    backlog = NewTopic("backlog", job.PARTITIONS, 1)
    create(servers, backlog, *(NewTopic(target, 2, 1) for target in job.TARGETS))
    fill(servers, "backlog", count)
    rates: dict[str, list[float]] = {contestant: [] for contestant in tables()}
    for run in range(runs):
        for number, (contestant, values) in enumerate(rates.items()):
            name = f"dialect{run}x{number}"
            create(servers, NewTopic(f"redrive-{name}-outcomes", 4, 1))
            place = "--servers", servers, "--directory", directory, "--name", name
            measured = in_process("benchmarks.dialect", contestant, *place)
            if not measured["batches"]:
                raise SystemExit("the backlog was one batch, which only warms up: --records more")
            values.append(measured["records"] / measured["seconds"])
    median = {contestant: statistics.median(values) for contestant, values in rates.items()}
    return {
        "backlog": count,
        "records/s": {name: round(rate) for name, rate in median.items()},
        "of ibm": {name: round(rate / median["ibm"], 2) for name, rate in median.items()},
    }


def main() -> None:
    """The command line."""
    asked = hidden(parser(__doc__, records=1_000_000, runs=2), *job.GIVEN)
    options = asked.parse_args()
    if options.contestant:
        place = options.servers, options.directory, options.name
        print(json.dumps(measure(options.contestant, *place)))
        return
    with broker() as (folder, servers):
        report = compared(servers, str(folder), options.records, options.runs)
    if options.json:
        show(report)
        return
    for name, rate in report["records/s"].items():
        print(f"{name:12} {rate:8,} records/s  {report['of ibm'][name]:.2f} of ibm")


if __name__ == "__main__":
    main()

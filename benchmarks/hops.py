"""Puts over one hop and over three, against the same records forwarded as dead letters.

A hop is one record read and one written by the job: from an intake to a queue of the same manager
is one, over two channels to a queue of the third manager are three. Each contestant works off the
same backlog on one embedded broker, in a process of its own:

    dead letters  500-byte messages with an MQDLH, forwarded by the last of 20 rules
    one hop       the same messages as puts to a local queue
    three hops    the same messages as puts to a remote queue two channels away

Run it as ``python -m benchmarks.hops``. The figures depend on the machine: compare the ratios.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from benchmarks.clients import Sent, create, produce
from benchmarks.command_line import broker, hidden, in_process, parser, show
from benchmarks.job import BODY, MD, PARTITIONS, TARGETS, configuration_of, dlh, fill
from kafka.admin import NewTopic

from redrive.configuration import JobConfiguration
from redrive.streaming.job import run
from redrive.streaming.lifecycle import BatchSummary, JobControl, JobObserver
from redrive.topology.files import read_topology
from redrive.topology.layout import SourceText, topics_of
from redrive.topology.names import put_topic

SCRIPTS: Final = (
    SourceText(
        "NEAR.mqsc",
        b"DEFINE QLOCAL(IN)\n"
        b"DEFINE QREMOTE(FAR) RNAME(IN) RQMNAME(END)\n"
        b"DEFINE QLOCAL(END) USAGE(XMITQ)\n"
        b"DEFINE CHANNEL(NEAR.TO.MIDDLE) CHLTYPE(SDR) CONNAME(m) XMITQ(END)\n",
    ),
    SourceText(
        "MIDDLE.mqsc",
        b"DEFINE QLOCAL(END) USAGE(XMITQ)\n"
        b"DEFINE CHANNEL(NEAR.TO.MIDDLE) CHLTYPE(RCVR)\n"
        b"DEFINE CHANNEL(MIDDLE.TO.END) CHLTYPE(SDR) CONNAME(e) XMITQ(END)\n",
    ),
    SourceText("END.mqsc", b"DEFINE QLOCAL(IN)\nDEFINE CHANNEL(MIDDLE.TO.END) CHLTYPE(RCVR)\n"),
)
HOPS: Final = {"dead letters": 1, "one hop": 1, "three hops": 3}


class Marks(JobObserver):
    """Notes when batches are done, and stops the job after the last record."""

    def __init__(self, total: int) -> None:
        self._total = total
        self.control: JobControl | None = None
        self.marks: list[tuple[float, int]] = []

    def batch(self, summary: BatchSummary) -> None:
        """A batch is committed."""
        self.marks.append((time.monotonic(), summary.records))
        if sum(count for _, count in self.marks) >= self._total and self.control is not None:
            self.control.request_stop("every record is where it belongs")

    def rate(self, hops: int) -> float:
        """Messages a second, all their hops done; the first batch warms up."""
        (first, _), (last, _) = self.marks[0], self.marks[-1]
        return sum(count for _, count in self.marks[1:]) / hops / (last - first)


def put_all(servers: str, queue: bytes, count: int) -> None:
    """Writes the backlog of puts: the bodies of ``benchmarks.job``, without dead-letter header."""
    body = bytes(len(dlh()[0])) + BODY
    puts = (
        Sent(
            put_topic("NEAR"), number % PARTITIONS, body,
            [("redrive.oq", queue), *MD, ("JMS_IBM_MQMD_MsgId", b"%048d" % number)],
            b"k%d" % (number % 1000),
        )
        for number in range(count)
    )  # fmt: skip
    produce(servers, puts)


def measure(contestant: str, servers: str, directory: str, count: int) -> float:
    """Messages a second of one contestant, in this process."""
    name = contestant.replace(" ", "")
    configuration: JobConfiguration = configuration_of(servers, directory, name, "lanes")
    configuration = replace(configuration, max_records_per_batch=50_000)
    if contestant != "dead letters":
        configuration = replace(configuration, handlers=(), topology=SCRIPTS)
    marks = Marks(count * HOPS[contestant])
    marks.control = JobControl(marks)
    run(configuration, marks.control)
    return marks.rate(HOPS[contestant])


def contest(count: int) -> dict[str, Any]:
    """Every contestant on a broker of its own, one after the other."""
    rates: dict[str, float] = {}
    fills: dict[str, Callable[[str], None]] = {
        "dead letters": lambda servers: fill(servers, "backlog", count),
        "one hop": lambda servers: put_all(servers, b"IN", count),
        "three hops": lambda servers: put_all(servers, b"FAR", count),
    }
    for contestant, fill_in in fills.items():
        with broker() as (folder, servers):
            _create_topics(servers)
            fill_in(servers)
            place = "--servers", servers, "--directory", folder, "--records", count
            rates[contestant] = in_process("benchmarks.hops", contestant, *place)["rate"]
    return {
        "unit": "messages/s",
        "backlog": count,
        "rates": {name: round(rate) for name, rate in rates.items()},
        "of the dead letters": {
            name: round(rate / rates["dead letters"], 2) for name, rate in rates.items()
        },
        "of the dead letters, by hop": {
            name: round(rate * HOPS[name] / rates["dead letters"], 2)
            for name, rate in rates.items()
        },
    }


def _create_topics(servers: str) -> None:
    topology = read_topology(SCRIPTS).topology
    if topology is None:
        raise ValueError("the definitions of the benchmark have errors")
    names = [topic.topic for topic in topics_of(topology)]
    create(
        servers,
        NewTopic("backlog", PARTITIONS, 1),
        *(NewTopic(name, 2, 1) for name in TARGETS),
        *(NewTopic(name, PARTITIONS, 1) for name in names),
    )


def main() -> int:
    """The command line."""
    asked = hidden(parser(__doc__, records=300_000), "contestant", "servers", "directory")
    given = asked.parse_args()
    if given.contestant:
        rate = measure(given.contestant, given.servers, given.directory, given.records)
        print(json.dumps({"rate": rate}))
    else:
        show(contest(given.records))
    return 0


if __name__ == "__main__":
    sys.exit(main())

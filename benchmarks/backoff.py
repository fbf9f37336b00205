"""How late attempts come whose rule has a BACKOFF.

    python -m benchmarks.backoff [--letters 2000] [--json]

Dead letters arrive for half a minute; each attempt fails, for the topic does not exist. The job is
started as an operator starts it. Told is the time from when an attempt is due until it is made and
until its outcome can be read, for each delay.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from benchmarks.clients import create, listener
from benchmarks.command_line import broker, parser, show
from benchmarks.job import percentiles, running_job
from confluent_kafka import Producer
from kafka.admin import NewTopic

from redrive.rules import parse
from redrive.rules.backoff import jitter_of

QUEUE: Final = "slow.dlq"
PARTITIONS: Final = 2
ARRIVAL: Final = 30.0
"""Seconds over which dead letters arrive."""
RULES: Final = "DIALECT(KAFKA)\nACTION(FWD) FWDT('nowhere') RETRY(5) BACKOFF(2s,2,16s)\n"
_GRACE: Final = 20.0
"""Seconds for the start of the job and the last attempt."""


def measure(servers: str, directory: Path, letters: int) -> dict[str, Any]:
    """Errors of due times by delay."""
    outcomes = "redrive-backoff-outcomes"
    create(servers, NewTopic(QUEUE, PARTITIONS, 1), NewTopic(outcomes, 4, 1))
    table = parse(RULES).required()
    backoff, waits = table.rules[0].backoff, table.backoff_partitions
    due: dict[str, tuple[int, float]] = {}
    made: defaultdict[int, list[float]] = defaultdict(list)
    seen: defaultdict[int, list[float]] = defaultdict(list)
    with running_job(servers, directory / "backoff", {QUEUE: RULES}):
        consumer = listener(servers, [outcomes])
        threading.Thread(target=_send, args=(servers, letters), daemon=True).start()
        deadline, left = time.monotonic() + ARRIVAL + 30 + 5 * _GRACE, letters
        while left and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            now, outcome = time.time() * 1000, json.loads(message.value() or b"{}")
            origin, attempt = outcome["origin"], outcome["attempt"]
            if attempt > 1:
                delay, moment = due.pop(origin)
                made[delay].append(outcome["time"] - moment)
                seen[delay].append(now - moment)
            if outcome["result"] == "parked" and backoff is not None:
                delay, source = backoff.delay(attempt), int(origin.split(":")[1])
                place = waits.partition(source, delay, jitter_of(origin, attempt))
                due[origin] = delay, outcome["time"] + 1000 * waits.seconds(place)
            left -= outcome["result"] == "remains"
    return {
        "unit": "ms",
        "letters that came to their end": letters - left,
        "due to attempt": {f"{delay} s": percentiles(made[delay]) for delay in sorted(made)},
        "due to visible": {f"{delay} s": percentiles(seen[delay]) for delay in sorted(seen)},
    }


def _send(servers: str, letters: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    begun = time.monotonic()
    for number in range(letters):
        headers: Any = [("mqdlh.Reason", b"2053"), ("mqdlh.DestQName", b"nowhere")]
        producer.produce(QUEUE, b"x" * 300, headers=headers, partition=number % PARTITIONS)
        producer.poll(0)
        time.sleep(max(0.0, begun + number * ARRIVAL / letters - time.monotonic()))
    producer.flush()


def main() -> int:
    """The command line."""
    given = parser(__doc__, letters=2_000).parse_args()
    with broker() as (folder, servers):
        show(measure(servers, folder, given.letters))
    return 0


if __name__ == "__main__":
    sys.exit(main())

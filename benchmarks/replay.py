"""How fast the job replays what remains, and how steady it is at a given rate.

    python -m benchmarks.replay [--records 200000] [--rate 1000] [--json]

Dead letters of 500 bytes with eight headers in 4 partitions, which no rule places. One plan puts
them on a queue as fast as it goes, a second one, about as many more as take half a minute, at the
given rate. A consumer at read_committed notes when each arrives, while the command still writes
instructions. The ceiling counts from the start of the command to the last arrival.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final

from benchmarks.clients import create, listener
from benchmarks.command_line import broker, parser, show
from benchmarks.job import PARTITIONS, fill, running_job
from confluent_kafka import Consumer
from kafka.admin import NewTopic

from redrive.configuration import JobConfiguration
from redrive.engine.commands import Replay, To
from redrive.kafka.cluster import Cluster
from redrive.operations.replay.applying import accept
from redrive.operations.replay.plan import Plan, new_plan_id
from redrive.settings import read_settings

GOAL: Final = 15_000
"""Messages a second."""
STEADY: Final = 0.1
"""How far the rate of a window may be from the one that was asked for."""
WINDOW: Final = 5.0
"""Seconds of a window."""
SECONDS: Final = 30
"""How long the replay at a rate takes."""
QUEUE: Final = "stuck"
TARGET: Final = "repaired"
PATIENCE: Final = 120.0
"""Seconds without any progress after which something is wrong."""
_BEGUN: Final = 1.0
"""Seconds at the beginning that are no part of a steady rate."""


def main() -> int:
    """Measures, prints, and returns 1 if a goal is missed."""
    arguments = parser(__doc__, records=200_000, rate=1_000).parse_args()
    with broker() as (folder, servers):
        figures = measured(servers, folder, arguments.records, arguments.rate)
    if arguments.json:
        show(figures)
    else:
        print(f"ceiling {figures['ceiling']:>10,.0f} messages/s   goal {GOAL:,}")
        print(
            f"at {arguments.rate:,}/s: {figures['slowest']:,.0f} to {figures['fastest']:,.0f} in"
            f" windows of {WINDOW:g} s   goal within {STEADY:.0%}"
        )
    is_steady = all(
        abs(figures[name] / arguments.rate - 1) <= STEADY for name in ("slowest", "fastest")
    )
    return 0 if figures["ceiling"] >= GOAL and is_steady else 1


def measured(servers: str, folder: Path, records: int, rate: int) -> dict[str, float]:
    """Messages a second: the ceiling, and of a replay at a rate the slowest and fastest window."""
    slow = rate * SECONDS
    create(servers, NewTopic(QUEUE, PARTITIONS, 1), NewTopic(TARGET, PARTITIONS, 1))
    fill(servers, QUEUE, records + slow)
    directory = folder / "replays"
    with running_job(servers, directory, {QUEUE: "REASON(1) ACTION(RETRY)\n"}):
        job = read_settings(directory / "redrive.toml").job
        await_handled(job, records + slow)
        each = records // PARTITIONS
        begun = time.monotonic()
        ceiling = records / (replayed(job, range(each), rate=None)[-1] - begun)
        seconds = replayed(job, range(each, each + slow // PARTITIONS), rate=rate)
    windows = rates(seconds)
    return {
        "records": records,
        "rate": rate,
        "ceiling": ceiling,
        "slowest": min(windows),
        "fastest": max(windows),
        "median": statistics.median(windows),
    }


def await_handled(job: JobConfiguration, count: int) -> None:
    """Waits until the job has decided about every dead letter."""
    cluster = Cluster.open(job.connection, timeout=PATIENCE)
    done, deadline = -1, time.monotonic() + PATIENCE
    while True:
        lanes = cluster.lanes([QUEUE])
        handled = sum(offset or 0 for offset in cluster.committed(job.application, lanes).values())
        if handled >= count:
            return
        if handled > done:
            done, deadline = handled, time.monotonic() + PATIENCE
        if time.monotonic() > deadline:
            end = (job.directory.parent / "log").read_text()[-3000:]
            raise SystemExit(f"the job decided about {done} of {count} dead letters:\n{end}")
        time.sleep(0.5)


def replayed(job: JobConfiguration, offsets: range, *, rate: float | None) -> list[float]:
    """When each message of a plan arrived on the target."""
    plan = Plan(
        replay=Replay(plan=new_plan_id(), to=To.QUEUE, queue=TARGET, rate=rate),
        application=job.application,
        created="",
        messages={QUEUE: {f"{QUEUE}:{number}": list(offsets) for number in range(PARTITIONS)}},
    )
    consumer = listener(job.connection.bootstrap_servers, [TARGET])
    with ThreadPoolExecutor() as pool, closing(consumer):
        arrived = pool.submit(arrivals, consumer, plan.count)
        accept(job, Cluster(job.connection), plan, operator="bench", purpose="bench")
        return arrived.result()


def arrivals(consumer: Consumer, count: int) -> list[float]:
    """When each of some messages came; all of one look came at one time."""
    times: list[float] = []
    deadline = time.monotonic() + PATIENCE
    while len(times) < count:
        messages = [
            message for message in consumer.consume(10_000, timeout=0.05) if message.error() is None
        ]
        now = time.monotonic()
        times += [now] * len(messages)
        if messages:
            deadline = now + PATIENCE
        if now > deadline:
            raise SystemExit(f"{len(times)} of {count} messages were replayed")
    return times


def rates(times: Sequence[float]) -> list[float]:
    """Messages a second of each whole window, without the beginning."""
    first = times[0] + _BEGUN
    count = int((times[-1] - first) / WINDOW)
    windows = [0] * max(1, count)
    for moment in times:
        number = int((moment - first) // WINDOW)
        if 0 <= number < len(windows):
            windows[number] += 1
    return [arrived / WINDOW for arrived in windows]


if __name__ == "__main__":
    sys.exit(main())

"""How fast puts are resolved, and how fast MQSC scripts are loaded, on one core.

    python benchmarks/resolution.py [--runs 5] [--json]

Topology: 1,000 queue managers with 100 objects each - 60 local queues, 15 aliases, 15 remote
definitions, 8 transmission queues, 2 queue manager aliases - and a cluster of all of them in which
a hundredth of the queues is known. Workloads:

    columns    5,000,000 puts in batches of 250,000, at random managers, to random names of theirs
    again      the same batches a second time: every name has been resolved before
    single     100,000 puts resolved one by one with all their steps, nothing remembered
    load       100,000 MQSC objects in the form of dmpmqcfg, read in one go

Goals: columns at 1,000,000 puts/s or more; load in less than 5 s. Times are CPU times, so that
other work on the machine counts little; each figure is the median of several runs.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from redrive.topology.mq.network import Network
from redrive.topology.mq.reader import read_mqsc
from redrive.topology.mq.resolution import open_queue
from redrive.topology.mq.resolver import ColumnarResolver
from redrive.topology.mq.results import OpenRequest
from redrive.topology.put import Destination

MANAGERS: Final = 1_000
BATCHES: Final = 20
BATCH: Final = 250_000
SINGLE: Final = 100_000
GOAL_PUTS: Final = 1_000_000
GOAL_LOAD: Final = 5.0

Batch = tuple[pa.Array, pa.Array, pa.Array]
"""Managers, queue manager names and queue names, one entry per put."""


def script(number: int) -> str:
    """The definitions of one queue manager, in the form of ``dmpmqcfg``."""
    peers = [f"QM{(number + step) % MANAGERS:04}" for step in (1, 2, 3, 5, 8, 13, 21, 34)]
    commands = [
        f"DEFINE CHANNEL('TO.QM{number:04}') +\n       CHLTYPE(CLUSRCVR) +\n       CLUSTER('ALL')"
    ]
    for n in range(60):
        cluster = " +\n       CLUSTER('ALL')" if n == 0 and number % 2 == 0 else ""
        commands.append(
            f"DEFINE QLOCAL('APP.Q{n:02}') +\n       DESCR('queue {n} of {number}') +\n"
            f"       MAXDEPTH(10000) +\n       DEFPSIST(YES){cluster}"
        )
    commands += (
        f"DEFINE QALIAS('APP.ALIAS{n:02}') +\n       TARGET('APP.Q{n:02}')" for n in range(15)
    )
    commands += (
        f"DEFINE QREMOTE('APP.REMOTE{n:02}') +\n       RNAME('APP.Q{n:02}') +\n"
        f"       RQMNAME('{peers[n % 8]}')"
        for n in range(15)
    )
    commands += (f"DEFINE QLOCAL('{peer}') +\n       USAGE(XMITQ)" for peer in peers)
    commands += (f"DEFINE QREMOTE('OLD{n}') +\n       RQMNAME('{peers[n]}')" for n in range(2))
    return "".join(f"{command} +\n       REPLACE\n" for command in commands)


def topology() -> Network:
    """1,000 queue managers."""
    return Network(
        read_mqsc(script(number), queue_manager=f"QM{number:04}").queue_manager
        for number in range(MANAGERS)
    )


def batches() -> list[Batch]:
    """Puts: most name a queue only, some a neighbour or an alias of one as well."""
    source = np.random.default_rng(7)
    managers = pa.array([f"QM{number:04}" for number in range(MANAGERS)])
    queues = pa.array(
        [
            f"APP.{kind}{n:02}"
            for kind, n in (("Q", 60), ("ALIAS", 15), ("REMOTE", 15))
            for n in range(n)
        ]
    )
    names = pa.array(["", "OLD0", "OLD1"])
    found = []
    for _ in range(BATCHES):
        at = source.integers(0, MANAGERS, BATCH, dtype=np.int32)
        queue = source.integers(0, len(queues), BATCH, dtype=np.int32)
        # Names of other managers go with plain queues, which exist everywhere.
        other = np.where((queue < 4) & (source.random(BATCH) < 0.5), 1, 0).astype(np.int32)
        found.append(
            (
                pa.DictionaryArray.from_arrays(pa.array(at), managers),
                pa.DictionaryArray.from_arrays(pa.array(other), names),
                pa.DictionaryArray.from_arrays(pa.array(queue), queues),
            )
        )
    return found


def seconds(work: Callable[[], object]) -> float:
    """CPU time of a piece of work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def resolve_all(resolver: ColumnarResolver, workload: Sequence[Batch]) -> None:
    """Resolve every batch, and see that every put has a destination."""
    for batch in workload:
        codes, answers = resolver.resolve(*batch)
        assert len(codes) == BATCH
        assert isinstance(answers[int(codes[0])], Destination)


def resolve_single(network: Network) -> None:
    """Resolve puts one by one."""
    source = random.Random(7)
    for _ in range(SINGLE):
        queue = f"APP.{source.choice(('Q', 'ALIAS', 'REMOTE'))}{source.randrange(15):02}"
        opened = open_queue(network, f"QM{source.randrange(MANAGERS):04}", OpenRequest(queue=queue))
        assert not opened.is_failed


def measure(runs: int) -> list[dict[str, Any]]:
    """All figures."""
    text = "".join(script(number).replace("'APP.", f"'A{number}.") for number in range(1_000))
    assert text.count("DEFINE ") >= 100_000
    load = [seconds(lambda: read_mqsc(text, queue_manager="QM")) for _ in range(runs)]
    network, workload = topology(), batches()
    first, again = [], []
    for _ in range(runs):
        resolver = ColumnarResolver(network)
        first.append(seconds(lambda resolver=resolver: resolve_all(resolver, workload)))  # type: ignore[misc]  # a default argument
        again.append(seconds(lambda resolver=resolver: resolve_all(resolver, workload)))  # type: ignore[misc]  # a default argument
    single = [seconds(lambda: resolve_single(network)) for _ in range(runs)]
    return [
        _rate("columns", BATCHES * BATCH, first, GOAL_PUTS),
        _rate("again", BATCHES * BATCH, again, GOAL_PUTS),
        _rate("single", SINGLE, single, None),
        {
            "workload": "load",
            "count": text.count("DEFINE "),
            "seconds": statistics.median(load),
            "per_second": text.count("DEFINE ") / statistics.median(load),
            "goal": f"< {GOAL_LOAD:g} s",
            "reached": statistics.median(load) < GOAL_LOAD,
        },
    ]


def _rate(name: str, count: int, times: Sequence[float], goal: int | None) -> dict[str, Any]:
    taken = statistics.median(times)
    return {
        "workload": name,
        "count": count,
        "seconds": taken,
        "per_second": count / taken,
        "goal": f">= {goal:,}/s" if goal else "",
        "reached": goal is None or count / taken >= goal,
    }


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    figures = measure(given.runs)
    if given.json:
        print(json.dumps(figures, indent=2))
        return
    print(f"{'workload':10} {'count':>10} {'seconds':>9} {'per second':>13}  goal")
    for row in figures:
        mark = "" if row["reached"] else "  MISSED"
        print(
            f"{row['workload']:10} {row['count']:>10,} {row['seconds']:>9.2f}"
            f" {row['per_second']:>13,.0f}  {row['goal']}{mark}"
        )


if __name__ == "__main__":
    main()

"""How fast puts are resolved, and how fast MQSC scripts are loaded, on one core.

    python -m benchmarks.resolution [--runs 5] [--json]

Topology: 1,000 queue managers with 100 objects each - 60 local queues, 15 aliases, 15 remote
definitions, 8 transmission queues, 2 queue manager aliases - and a cluster of all of them in which
a hundredth of the queues is known. Workloads:

    puts       100,000 puts resolved to topics, one by one as the job does it
    load       100,000 MQSC objects in the form of dmpmqcfg, read in one go

Goal: load in less than 5 s. Times are CPU times, so that other work on the machine counts little;
each figure is the median of several runs.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Any, Final

from benchmarks.command_line import parser, show

from redrive.topology.layout import Topology
from redrive.topology.mq.network import MqNetwork
from redrive.topology.mq.reader import read_mqsc
from redrive.topology.put import Destination
from redrive.topology.receiving import resolver_of

MANAGERS: Final = 1_000
PUTS: Final = 100_000
GOAL_LOAD: Final = 5.0


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


def topology() -> MqNetwork:
    """1,000 queue managers."""
    return MqNetwork(
        read_mqsc(script(number), queue_manager=f"QM{number:04}").queue_manager
        for number in range(MANAGERS)
    )


def seconds(work: Callable[[], object]) -> float:
    """CPU time of a piece of work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def resolve_puts(network: MqNetwork) -> None:
    """Resolve puts one by one, each at a manager that other puts were made at too."""
    source = random.Random(7)
    resolvers = [resolver_of(Topology(mq=network), name) for name in network.queue_managers]
    for _ in range(PUTS):
        queue = f"APP.{source.choice(('Q', 'ALIAS', 'REMOTE'))}{source.randrange(15):02}"
        answer = source.choice(resolvers).resolve(queue=queue, queue_manager="")
        assert isinstance(answer, Destination)


def measure(runs: int) -> list[dict[str, Any]]:
    """All figures."""
    text = "".join(script(number).replace("'APP.", f"'A{number}.") for number in range(1_000))
    objects = text.count("DEFINE ")
    assert objects >= 100_000
    load = [seconds(lambda: read_mqsc(text, queue_manager="QM")) for _ in range(runs)]
    network = topology()
    puts = [seconds(lambda: resolve_puts(network)) for _ in range(runs)]
    return [_figure("puts", PUTS, puts, None), _figure("load", objects, load, GOAL_LOAD)]


def _figure(name: str, count: int, times: list[float], goal: float | None) -> dict[str, Any]:
    taken = statistics.median(times)
    return {
        "workload": name,
        "count": count,
        "seconds": taken,
        "per_second": count / taken,
        "goal": f"< {goal:g} s" if goal else "",
        "reached": goal is None or taken < goal,
    }


def main() -> None:
    """Measure and print."""
    given = parser(__doc__, runs=5).parse_args()
    figures = measure(given.runs)
    if given.json:
        show(figures)
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

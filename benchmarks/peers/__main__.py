"""Redrive beside what one would use instead: dead letters routed by a table.

    python -m benchmarks.peers [--records 1000000] [--rounds 3] [--only NAME] [--report FILE]
    python -m benchmarks.peers --table [FILE]

Each contestant does the job of ``benchmarks.peers.dlq_route``, in turns, on one broker, and broker
and contestant have the same two cores. The second form writes the results into docs/benchmarks.md.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks.command_line import broker, parser
from benchmarks.peers.contestants import Contestant, contestants
from benchmarks.peers.dlq_route import Form, Work, fill
from benchmarks.peers.measurement import Field, median_of
from benchmarks.peers.report import write_tables

from redrive.broker import EmbeddedBroker

RESULTS: Final = Path(__file__).parents[1] / "results" / "peers.json"
_CORES: Final = 2
_BUSY: Final = 0.5
"""Load average before the start, above which the machine is called busy."""


def measure(
    work: Work, chosen: list[Contestant], count: int, rounds: int, patience: float
) -> dict[str, Any]:
    """All contestants on one set of rules and records."""
    runs: dict[str, list[dict[str, Any]]] = {it.name: [] for it in chosen}
    failed: dict[str, str] = {}
    with broker() as (folder, servers):
        fill(servers, work, count)
        pid = EmbeddedBroker(folder / "broker").status().pid
        ground = Field(servers, pid, work, count, folder=folder, patience=patience)
        for number in range(rounds):
            for contestant in chosen[number % len(chosen) :] + chosen[: number % len(chosen)]:
                if contestant.name in failed:
                    continue
                try:
                    runs[contestant.name].append(ground.run(contestant))
                    print(contestant.name, runs[contestant.name][-1], flush=True)
                except SystemExit as error:
                    failed[contestant.name] = str(error)
                    print(error, flush=True)
    return {
        "form": work.form, "rules": work.count, "records": count,
        "contestants": [
            {
                "name": it.name, "versions": it.versions, "remark": it.remark,
                "promise": "exactly once" if it.exactly_once else "at least once",
                "median": median_of(runs[it.name]), "runs": runs[it.name],
            }
            for it in chosen if runs[it.name] and it.name not in failed
        ],
        "failed": {name: text.splitlines()[0] for name, text in failed.items()},
    }  # fmt: skip


def main() -> int:
    """The command line."""
    asked = parser(__doc__, records=1_000_000, rounds=3, patience=3_600.0)
    asked.add_argument("--only", action="append", choices=[*contestants()])
    asked.add_argument("--rules", type=int, action="append", metavar="N")
    asked.add_argument("--form", type=Form, action="append", choices=[*Form])
    asked.add_argument("--report", type=Path, default=RESULTS)
    asked.add_argument("--table", action="store_true", help="write docs/benchmarks.md only")
    arguments = asked.parse_args()
    if arguments.table:
        write_tables(json.loads(arguments.report.read_text(encoding="utf-8")))
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # contestants and broker end too
    cores = sorted(os.sched_getaffinity(0))[:_CORES]
    load = os.getloadavg()[0]
    os.sched_setaffinity(0, cores)  # whatever is started from here on keeps it
    every = contestants()
    chosen = [it for name, it in every.items() if name in (arguments.only or every)]
    report: dict[str, Any] = {
        "cores": len(cores), "load before": round(load, 1), "busy": load > _BUSY, "sets": [],
    }  # fmt: skip
    for form in arguments.form or list(Form):
        for rules in arguments.rules or (20, 200, 2_000):
            work = Work(form, rules)
            report["sets"].append(
                measure(work, chosen, arguments.records, arguments.rounds, arguments.patience)
            )
            arguments.report.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(report, indent=1) + "\n"
            arguments.report.write_text(text, encoding="utf-8")
    if arguments.json:
        print(json.dumps(report))
    return 1 if any(it["failed"] for it in report["sets"]) else 0


if __name__ == "__main__":
    sys.exit(main())

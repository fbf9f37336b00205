"""Redrive beside what one would use instead: dead letters routed by a table.

    python -m benchmarks.peers [--records 1000000] [--rounds 3] [--only NAME] [--report FILE]
    python -m benchmarks.peers --latency [--only NAME]
    python -m benchmarks.peers --table [--report FILE]

Each contestant does the job of ``benchmarks.peers.dlq_route``, in turns, on one broker, and broker
and contestant have the same two cores. The report is written after each run; what it has of other
sets of rules, and of other contestants, stays. The last form writes it into docs/performance.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.command_line import broker, parser
from benchmarks.peers.contestants import CEILING, Contestant, contestants
from benchmarks.peers.dlq_route import PROFILES, Form, Work, fill
from benchmarks.peers.latency import latency
from benchmarks.peers.measurement import Field, median_of
from benchmarks.peers.report import write_page
from confluent_kafka import KafkaException
from kafka.errors import KafkaError

from redrive.broker import EmbeddedBroker
from redrive.errors import RedriveError

RESULTS: Final = Path(__file__).parents[1] / "results" / "peers.json"
_CORES: Final = 2
_BUSY: Final = 0.5
"""Load average before the start, above which the machine is called busy."""
_FAILURES: Final = (
    SystemExit, RedriveError, KafkaException, KafkaError, OSError, subprocess.SubprocessError,
)  # fmt: skip
"""What one contestant may meet; the others go on."""


class Report:
    """The results so far, in a file.

    Args:
        file: Where they are; it need not exist.
        facts: What holds for everything that is measured now.
    """

    def __init__(self, file: Path, facts: dict[str, Any]) -> None:
        self._file, self._facts = file, facts
        self._all: dict[str, Any] = {"sets": [], "latency": []}
        if file.exists():
            self._all = json.loads(file.read_text(encoding="utf-8"))

    def put(self, part: str, work: Work, entry: dict[str, Any]) -> None:
        """Writes what is known of a contestant, in place of what was.

        Args:
            part: ``sets`` or ``latency``.
            work: What it worked on.
            entry: Its name and results.
        """
        place: dict[str, Any] = {"form": work.form, "rules": work.count, "kinds": work.kinds}
        sets = [known for known in self._all[part] if place.items() <= known.items()]
        chosen = sets[0] if sets else place | {"contestants": []}
        others = [
            contestant
            for contestant in chosen["contestants"]
            if contestant["name"] != entry["name"]
        ]
        chosen |= self._facts | {"contestants": [*others, entry]}
        self._all[part] = [*(known for known in self._all[part] if known is not chosen), chosen]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self._all, indent=1) + "\n", encoding="utf-8")


def measure(
    report: Report, work: Work, chosen: Sequence[Contestant], options: argparse.Namespace
) -> bool:
    """All contestants on one set of rules and records; whether each did the job."""
    runs: dict[str, list[dict[str, Any]]] = {contestant.name: [] for contestant in chosen}
    failed: dict[str, str] = {}
    numbers = itertools.count(1)
    with broker() as (folder, servers):
        grounds = {}
        pid = EmbeddedBroker(folder / "broker").status().pid
        for share in sorted({contestant.share for contestant in chosen}):
            source, count = f"dlq.in.{share}", options.records // share
            fill(servers, work, source, count)
            grounds[share] = Field(
                servers, pid, work, source, count, folder=folder, patience=options.patience
            )
        for number in range(options.rounds):
            first = number % len(chosen)
            for contestant in [*chosen[first:], *chosen[:first]]:
                if failed.get(contestant.name):
                    continue
                # It runs when it is asked for its figures.
                run = map(grounds[contestant.share].run, [contestant], [f"peer{next(numbers)}"])
                failed[contestant.name] = _collect(contestant, run, runs[contestant.name])
                entry = {"median": median_of(runs[contestant.name]), "runs": runs[contestant.name]}
                entry |= {
                    "records": options.records // contestant.share,
                    "failed": failed[contestant.name],
                }
                report.put("sets", work, _about(contestant) | entry)
    return not any(failed.values())


def measure_latency(
    report: Report, chosen: Sequence[Contestant], options: argparse.Namespace
) -> bool:
    """Produce to visible at several rates; whether each contestant did the job."""
    failed = []
    with broker() as (folder, servers):
        for number, contestant in enumerate(chosen):
            work = Work(Form.SPRING, 200, f"quick{number}.")
            rates: list[dict[str, Any]] = []
            run = latency(contestant, servers, work, folder / f"quick{number}", options.patience)
            failed.append(_collect(contestant, run, rates))
            report.put("latency", work, _about(contestant) | {"rates": rates, "failed": failed[-1]})
    return not any(failed)


def _collect(
    contestant: Contestant, run: Iterable[dict[str, Any]], results: list[dict[str, Any]]
) -> str:
    """Adds the results of a run as they come; why it failed, if it did."""
    try:
        for result in run:
            results.append(result)
            print(contestant.name, result, flush=True)
    except _FAILURES as error:
        print(f"{contestant.name}: {error}", flush=True)
        return (str(error) or repr(error)).splitlines()[0]
    return ""


def _about(contestant: Contestant) -> dict[str, Any]:
    promise = "exactly once" if contestant.exactly_once else "at least once"
    return {
        "name": contestant.name,
        "versions": contestant.versions,
        "remark": contestant.remark,
        "promise": promise,
    }


def main() -> int:
    """The command line."""
    asked = parser(__doc__, records=1_000_000, rounds=3, patience=600.0)
    asked.add_argument("--only", action="append", choices=[*contestants()])
    asked.add_argument("--rules", type=int, action="append", metavar="N")
    asked.add_argument("--form", type=Form, action="append", choices=[*Form])
    asked.add_argument("--kinds", type=int, default=PROFILES, metavar="N")
    asked.add_argument("--report", type=Path, default=RESULTS)
    asked.add_argument("--latency", action="store_true", help="measure it, and no throughput")
    asked.add_argument("--table", action="store_true", help="write docs/performance.md only")
    options = asked.parse_args()
    if options.table:
        write_page(options.report.parent)
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # contestants and broker end too
    cores = sorted(os.sched_getaffinity(0))[:_CORES]
    load = os.getloadavg()[0]
    os.sched_setaffinity(0, cores)  # whatever is started from here on keeps it
    every = contestants()
    chosen = [contestant for name, contestant in every.items() if name in (options.only or every)]
    facts = {"cores": len(cores), "load before": round(load, 1), "busy": load > _BUSY}
    report = Report(options.report, facts)
    forms, rules = options.form or list(Form), options.rules or (20, 200, 2_000)
    if options.latency:
        live = [contestant for contestant in chosen if contestant.name != CEILING]
        return int(not measure_latency(report, live, options))
    works = [Work(form, count, kinds=options.kinds) for form in forms for count in rules]
    did = [measure(report, work, chosen, options) for work in works]
    return int(not all(did))


if __name__ == "__main__":
    sys.exit(main())

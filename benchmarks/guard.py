"""Whether Redrive still is as fast as it was, by ratios of one short run.

    python -m benchmarks.guard [--records 600000] [--runs 1] [--keep]

Ratios move little from machine to machine: the job against a plain loop on the same backlog, and
the matcher against an ordered loop over the same rules. Each is compared with what was kept in
``benchmarks/results/guard.json``; below the tolerance the exit code is 1. ``--keep`` keeps what is
measured instead.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from benchmarks import job
from benchmarks.command_line import broker, parser
from benchmarks.peers import matchers

KEPT: Final = Path(__file__).with_name("results") / "guard.json"
TOLERANCE: Final = 0.75
"""Of a ratio that was kept: runs on a busy machine differ by a fifth."""
_RULES: Final = (100, 1_000)
_PERCENT: Final = 10
"""Of the rules have a wildcard."""


def measure(records: int, runs: int) -> dict[str, float]:
    """The ratios, by name."""
    with broker() as (folder, servers):
        speeds_of_job = job.throughput(servers, str(folder), records, runs)
    ratios = {"job, of the plain loop": speeds_of_job["of the plain loop, input"]["job, lanes"]}
    for count in _RULES:
        rules = matchers.rules_of(count, _PERCENT)
        messages = matchers.messages_of(rules)
        speeds = [matcher(rules, messages, 2.0)[0] for matcher in (matchers.redrive, matchers.loop)]
        ratios[f"matcher, {count:,} rules, of an ordered loop"] = round(speeds[0] / speeds[1], 2)
    return ratios


def too_slow(measured: dict[str, float], kept: dict[str, float]) -> list[str]:
    """A line for each ratio that is below the tolerance."""
    return [
        f"{name}: {measured[name]}, kept {ratio}, at least {ratio * TOLERANCE:.2f} allowed"
        for name, ratio in kept.items()
        if measured[name] < ratio * TOLERANCE
    ]


def main() -> int:
    """The command line."""
    asked = parser(__doc__, records=600_000, runs=1)
    asked.add_argument("--keep", action="store_true", help="keep what is measured")
    options = asked.parse_args()
    measured = measure(options.records, options.runs)
    print(json.dumps(measured, indent=1))
    if options.keep or not KEPT.exists():
        KEPT.parent.mkdir(parents=True, exist_ok=True)
        KEPT.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
        return 0
    slow = too_slow(measured, json.loads(KEPT.read_text(encoding="utf-8")))
    print("\n".join(slow) or "as fast as it was")
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())

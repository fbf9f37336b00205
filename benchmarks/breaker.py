"""A target that is away while many retries wait for it: what a breaker keeps, and how it ends.

Dead letters of Kafka Connect come in for a topic that does not exist. The breaker opens; the job
may be killed meanwhile, and a breaker is closed at each start. Then the topic is made. Measured is
the time from then until all are placed, and the most that are placed in one second. Beyond the
audit of all crash programs:

    - every message is placed by its first attempt.

Run it as ``python -m benchmarks.breaker``; a printed seed repeats it.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.clients import Sent, read_committed
from benchmarks.engine import CrashProgram, Scene, main, option
from benchmarks.faults import OF_THE_JOB
from benchmarks.load import LATE, OUTCOMES, keyed
from benchmarks.reconciliation import Findings

TABLE: Final = """* Back-off for a few attempts, then nothing is left.
DIALECT(KAFKA) RETRYINT(2)
ACTION(RETRY) RETRY(3) BACKOFF(2s,2,30s)
ACTION(DISCARD)
"""


@dataclass(kw_only=True)
class Breaker(CrashProgram):
    """A target that comes late."""

    rounds: int = option(0, "how many faults while the target is away")
    rate: float = option(0.0, "dead letters a second beside those that wait from the beginning")
    commands: int = option(0, "operators' commands in each round")
    waiting: int = option(5_000, "dead letters in the beginning")
    away: float = option(600.0, "seconds for which the target is away")

    table = TABLE
    takes = OF_THE_JOB
    interval = 0.0  # nothing fails, so no attempt has to wait for another

    def make(self, number: int, chance: random.Random) -> Sent:
        """A dead letter of the topic that is away."""
        parts = {
            "topic": LATE, "partition": "0", "offset": "7", "connector.name": "sink-1",
            "exception.class.name": "org.acme.WriteException",
        }  # fmt: skip
        headers = [(f"__connect.errors.{name}", value.encode()) for name, value in parts.items()]
        return keyed(number, b"%08d" % number + chance.randbytes(60), headers)

    def handled(self, folder: Path) -> str:
        """The handler, with breakers."""
        return f"{super().handled(folder)}breaker = 20\n"

    def disturb(self, scene: Scene) -> None:
        """Lets everything wait, and faults happen, until the target appears."""
        began = time.monotonic()
        scene.load.add(self.waiting)
        for number in range(1, self.rounds + 1):
            self.one_round(scene, number, self.chosen(scene))
        with scene.supervised():
            time.sleep(max(0.0, began + self.away - time.monotonic()))
        self.created = 1000 * time.time()
        self.create_late(scene)

    def figures(self, scene: Scene) -> dict[str, Any]:
        """How soon all were placed, and how fast."""
        times = sorted(
            outcome["time"] for outcome in _outcomes(scene.servers) if outcome["result"] != "parked"
        )
        busiest = Counter(int(moment // 1000) for moment in times).most_common(1)
        return {
            "away, s": self.away,
            "first and last placed after, s": [
                round((moment - self.created) / 1000, 1) for moment in (times[:1] + times[-1:])
            ],
            "placed in the busiest second": busiest[0][1] if busiest else 0,
        }

    def audit(self, scene: Scene) -> Findings:
        """As in every program; and no attempt was used up."""
        findings = super().audit(scene)
        findings.wrong += [
            f"{outcome['message']} is {outcome['result']} by attempt {outcome['attempt']}"
            for outcome in _outcomes(scene.servers)
            if outcome["attempt"] > 1 or outcome["result"] not in {"parked", "retried"}
        ]
        return findings


def _outcomes(servers: str) -> list[dict[str, Any]]:
    return [json.loads(record.value) for record in read_committed(servers, [OUTCOMES])]


if __name__ == "__main__":
    sys.exit(main(Breaker, __doc__))

"""A broker that is stopped and started under the job: how soon dead letters are handled again.

A broker is stopped in an orderly way, is away for some seconds and is started again, several times.
Measured is the time from its first answer until an outcome of a dead letter is committed.

    python -m benchmarks.outage [--rounds 20] [--down 10] [--rate 100] [--commands 0]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from benchmarks.engine import CrashProgram, Scene, main, option


@dataclass(kw_only=True)
class Outage(CrashProgram):
    """A broker that comes and goes."""

    rate: float = option(1.0, "dead letters a second meanwhile")
    down: float = option(10.0, "seconds that the broker is away")

    takes = ("stop broker",)

    def prepare(self, scene: Scene) -> None:
        """Says for how long."""
        scene.down = self.down

    def figures(self, scene: Scene) -> dict[str, Any]:
        """How soon it was handled again, round by round."""
        again = [entry["handled again after"] for entry in scene.report.rounds]
        return {"down, s": self.down, "handled again after, s": again}


if __name__ == "__main__":
    sys.exit(main(Outage, __doc__))

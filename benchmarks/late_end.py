"""A commit that arrives a second time, in the next transaction: 1,000 times, every effect counted.

The trigger that Jepsen found in Kafka's transactions: the connection breaks while a client commits,
the client sends the commit again, and the first copy reaches the coordinator when the client's next
transaction is open, which it then ends in its middle. Here a relay between the broker and all its
clients, the job and operators' commands alike, makes it happen to every second request that ends a
transaction, and to a tenth of those that carry offsets, while dead letters arrive as in
``benchmarks.crash``.

    python -m benchmarks.late_end [--times 1000] [--rate 150]
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass

from benchmarks.engine import CrashProgram, Scene, main, option, say
from benchmarks.faults import LATE_COPY


@dataclass(kw_only=True)
class LateEnd(CrashProgram):
    """A relay through which everything passes."""

    times: int = option(1_000, "how many commits and aborts are to arrive twice")

    takes = ("late commits",)
    is_relayed = True
    emitters = ("driver",)

    def disturb(self, scene: Scene) -> None:
        """Rounds of late commits, until there were as many as asked for."""
        assert scene.relay is not None
        for number in itertools.count(1):
            self.one_round(scene, number, self.chosen(scene))
            say(f"{scene.relay.counts[LATE_COPY]} of {self.times}")
            if scene.relay.counts[LATE_COPY] >= self.times:
                break

    def figures(self, scene: Scene) -> dict[str, float]:
        """What the relay did, and what the broker said of late copies."""
        assert scene.relay is not None
        return dict(sorted(scene.relay.counts.items()))


if __name__ == "__main__":
    sys.exit(main(LateEnd, __doc__))

"""Faults inside a process of the product: a clock that is set, and a death inside a transaction.

Python imports this module when it starts with this folder in PYTHONPATH. The variables say what
happens: ``BENCHMARK_CLOCK`` names a file with the seconds (a float64) by which this process's
clock is ahead; ``BENCHMARK_DEATH`` is the step of a transaction at which it is killed.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import time
from pathlib import Path


def set_clock(file: Path) -> None:
    """Makes ``time.time`` and ``time.time_ns`` follow a file."""
    with file.open("rb") as opened:
        ahead = mmap.mmap(opened.fileno(), 8, access=mmap.ACCESS_READ)
    true, true_ns = time.time, time.time_ns
    time.time = lambda: true() + struct.unpack("d", ahead[:8])[0]
    time.time_ns = lambda: true_ns() + int(1e9 * struct.unpack("d", ahead[:8])[0])


def die_at(step: str) -> None:
    """Makes every producer kill this process at a step of its first transaction.

    Args:
        step: ``begun``, ``written``: records are on the broker and nothing is committed, or
            ``committed``: nobody has read the answer.
    """
    import confluent_kafka  # noqa: PLC0415 - only where it is wanted

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    class Dying(confluent_kafka.Producer):
        def begin_transaction(self, *given: float) -> None:
            super().begin_transaction(*given)
            if step == "begun":
                die()

        def commit_transaction(self, *given: float) -> None:
            self.flush(10)
            if step == "committed":
                super().commit_transaction(*given)
            die()

    confluent_kafka.Producer = Dying  # type: ignore[misc]


if "BENCHMARK_CLOCK" in os.environ:
    set_clock(Path(os.environ["BENCHMARK_CLOCK"]))
if "BENCHMARK_DEATH" in os.environ:
    die_at(os.environ["BENCHMARK_DEATH"])

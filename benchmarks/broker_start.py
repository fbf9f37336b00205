"""How long the embedded broker takes to start, with the archive of its classes and without.

Both kinds take turns. The seconds of the processor are those of the broker until it is ready, and
of the tool that formats its data.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple
from unittest.mock import patch

from benchmarks.command_line import parser, show
from benchmarks.job import cpu_seconds

from redrive.broker import EmbeddedBroker
from redrive.broker.kafka_programs import broker_archive
from redrive.java import ClassArchive, find_java


class Start(NamedTuple):
    """One start; both in seconds."""

    wall: float
    processor: float


def started(*, with_archive: bool) -> Start:
    """Starts a broker in a fresh folder, and stops it."""
    with TemporaryDirectory(prefix="redrive-bench-") as folder, ExitStack() as stack:
        if not with_archive:
            stack.enter_context(patch.object(ClassArchive, "options", lambda _: []))
        broker, before, began = EmbeddedBroker(Path(folder)), of_children(), time.monotonic()
        broker.start()
        wall = time.monotonic() - began
        stack.callback(broker.stop)
        own = sum(cpu_seconds(broker.status().pid).values())
        return Start(wall, own + of_children() - before)


def of_children() -> float:
    """Seconds of the processor that the processes took that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def spread(seconds: Sequence[float]) -> str:
    """Median, least and most."""
    return f"{median(seconds):.1f} s ({min(seconds):.1f} to {max(seconds):.1f})"


def main() -> int:
    """Measures and shows both kinds; 1 if there is no archive."""
    given = parser(__doc__, starts=5).parse_args()
    if not broker_archive(find_java()).path.exists():
        print("run `redrive setup` first, which makes the archive", file=sys.stderr)
        return 1
    starts: dict[str, list[Start]] = {"with": [], "without": []}
    for _ in range(given.starts):
        for name, starts_of_kind in starts.items():
            starts_of_kind.append(started(with_archive=name == "with"))
    if given.json:
        show(
            {
                name: [start._asdict() for start in starts_of_kind]
                for name, starts_of_kind in starts.items()
            }
        )
        return 0
    for name, starts_of_kind in starts.items():
        wall, processor = (spread(column) for column in zip(*starts_of_kind, strict=True))
        print(f"{name:8} the archive: {wall}, of the processor {processor}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

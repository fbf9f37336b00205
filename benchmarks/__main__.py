"""Every benchmark, one after the other: ``python -m benchmarks`` (``make bench``)."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

PROGRAMS: Final = (
    "guard",
    "matcher",
    "messages",
    "resolution",
    "ledger",
    "ask",
    "emission",
    "job",
    "hops",
    "dialect",
    "what_if",
    "frames",
    "replay",
)
"""Each is also a program of its own: ``python -m benchmarks.matcher --json``."""


def main() -> int:
    """Runs them all; the exit code is that of the first that failed, else 0."""
    worst = 0
    for name in PROGRAMS:
        print(f"\n== {name} ==", flush=True)
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False)
        worst = worst or done.returncode
    return worst


if __name__ == "__main__":
    sys.exit(main())

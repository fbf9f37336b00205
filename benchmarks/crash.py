"""Kill -9 under load, again and again, and count every effect.

Dead letters of every kind arrive while the driver, its Java, a worker or the whole job is killed at
random moments; now and then its directory is deleted, the emitter changes, or its clock is set.
Operators apply overlapping replays and cancel them meanwhile, by commands that are killed too.

Run it as ``python -m benchmarks.crash --rounds 20`` (``make crash``); a printed seed repeats it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.engine import CrashProgram, main
from benchmarks.faults import OF_THE_JOB


@dataclass(kw_only=True)
class Crash(CrashProgram):
    """One broker, and a job that is killed."""

    takes: ClassVar[Sequence[str]] = OF_THE_JOB


if __name__ == "__main__":
    sys.exit(main(Crash, __doc__))

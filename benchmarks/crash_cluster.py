"""A cluster of three brokers and the job: whatever dies or stands still, count every effect.

Dead letters arrive as in ``benchmarks.crash``. Beside what happens there, a broker or the
coordinator of the job's group is killed with -9; a broker or the whole job is stopped where it is
(SIGSTOP), the job for longer than a transaction may take; the brokers are restarted one after the
other; the broker that alone holds one partition of a target is away, while all else has to go on;
the job goes on with another table, by a restart in the process or after a kill.

Run it as ``python -m benchmarks.crash_cluster --rounds 20 --rate 400``; a printed seed repeats it,
``--report FILE`` keeps what happened.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from benchmarks.engine import CrashProgram, main
from benchmarks.faults import OF_THE_JOB


@dataclass(kw_only=True)
class CrashCluster(CrashProgram):
    """Three brokers and a job, any of which dies, and tables that change."""

    takes = (
        *OF_THE_JOB, "pause job", "stop job", "change table", "kill broker", "kill coordinator",
        "pause broker", "rolling restart", "no leader",
    )  # fmt: skip
    brokers = 3
    tables_change = True
    late_after = 1 / 3


if __name__ == "__main__":
    sys.exit(main(CrashCluster, __doc__))

"""Writes what this version keeps into ``fixtures/<version>``, for later versions to read.

    python -m tests.upgrade.write_fixtures

Run it once for a version, when it is released: a fixture is what that version wrote, and nobody
changes it afterwards. The job is the simulated one, so the records are those of the project's code.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.outcomes.samples import append, outcome, rows
from tests.simulation.clients import Network, simulated_clients, simulated_clock
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.job import APPLICATION, DEAD_LETTERS, RETRY, Instance, configuration
from tests.simulation.scheduler import Scheduler
from tests.upgrade.state import written

import redrive
from redrive.checkpoints.instances import Share
from redrive.engine.commands import Replay, To
from redrive.engine.names import control_topic, outcomes_topic, tables_topic
from redrive.messages import OutputRecord
from redrive.operations.replay.plan import Plan, places_of

FIXTURES = Path(__file__).parent / "fixtures"
TABLE = """RETRYINT(10)
REASON(2053) ACTION(RETRY) RETRY(2)
REASON(2035) ACTION(FWD) FWDQ(SECURITY) HEADER(YES)
REASON(2085) ACTION(DISCARD)
"""
LETTERS = ((2053, "Q0"), (2053, "NOWHERE"), (2035, "Q0"), (2085, "Q0"), (9999, "Q0"), (9999, "Q1"))
"""Reason and queue of the dead letters: put, parked, forwarded, discarded, and two that remain."""
LEDGER_ROWS = 12


def state() -> str:
    """Where a job stands that was killed while a message was parked and two remained."""
    scheduler = Scheduler(1, most_steps=5_000)
    cluster = SimulatedCluster()
    network = Network(cluster, scheduler)
    own = outcomes_topic(APPLICATION), control_topic(APPLICATION), tables_topic(APPLICATION)
    for name in (DEAD_LETTERS, *own):
        cluster.create(name)
    for name in ("Q0", "Q1", "SECURITY"):
        cluster.create(name)
    for number, (reason, queue) in enumerate(LETTERS):
        headers: list[tuple[str, bytes | None]] = [
            ("mqdlh.Reason", str(reason).encode()),
            ("mqdlh.DestQName", queue.encode()),
            ("number", b"%d" % number),
        ]
        key = b"key %d" % number if number % 2 else None
        now = int(scheduler.now * 1000)
        cluster.append(OutputRecord(DEAD_LETTERS, key, b"body %d" % number, headers, now, 0))

    def look() -> None:
        cluster.write_marker()
        if any(True for _ in cluster.visible(RETRY)):
            scheduler.kill_all()

    scheduler.on_step = look
    settings = configuration(network, TABLE, Share(1, 1))
    Instance("i0", network, settings, workers=0, is_over=lambda: False).start()
    with simulated_clients(), simulated_clock(scheduler):
        scheduler.run()
    cluster.expire()
    cluster.settle()
    return written(cluster)


def plan() -> Plan:
    return Plan(
        replay=Replay(plan="0123456789ab", to=To.QUEUE, queue="Q1", keeps_header=True),
        application=APPLICATION,
        created="2026-01-01T00:00:00Z",
        messages={"dlq": places_of([f"{DEAD_LETTERS}:0:4"])},
    )


def main() -> int:
    folder = FIXTURES / redrive.__version__
    if folder.exists():
        sys.stderr.write(f"{folder} is there: remove it first, if nobody has that version yet\n")
        return 1
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(state())
    plan().write(folder / "plan.json")
    append(folder / "ledger", rows(outcome(number) for number in range(LEDGER_ROWS)))
    for crc in folder.rglob(".*.crc"):
        crc.unlink()
    shutil.rmtree(folder / "ledger-projection", ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

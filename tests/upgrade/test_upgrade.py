"""What earlier versions kept is read: topics, progress, ledger, plans; what later ones keep is not.

``fixtures`` has a folder for each version, made by ``write_fixtures`` of that version.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.outcomes.samples import append, outcome, rows
from tests.simulation.audit import Audit, Condition
from tests.simulation.clients import Network, simulated_clients, simulated_clock
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.job import APPLICATION, REMAINING, REPLAY, Instance, configuration
from tests.simulation.scheduler import Scheduler
from tests.upgrade import state
from tests.upgrade.write_fixtures import FIXTURES, LEDGER_ROWS, TABLE

import redrive
from redrive.checkpoints.control import FORMAT, FORMAT_KEY
from redrive.checkpoints.instances import Share
from redrive.configuration import JobConfiguration
from redrive.engine.commands import Replay, Span, To
from redrive.engine.names import control_topic, outcomes_topic, tables_topic
from redrive.errors import ConfigurationError, EnvironmentFault
from redrive.kafka.cluster import Cluster
from redrive.messages import OutputRecord, TopicPartition
from redrive.messages import own_headers as own
from redrive.messages.reasons import Reason
from redrive.operations.replay.applying import Instructions
from redrive.operations.replay.plan import Plan
from redrive.outcomes.rows import INCARNATION
from redrive.outcomes.table import LedgerTable
from redrive.rules import parse

VERSIONS = pytest.mark.parametrize(
    "folder", sorted(FIXTURES.iterdir()), ids=lambda folder: str(folder.name)
)
MISSING = Condition("NOWHERE", Reason.UNKNOWN_OBJECT_NAME, 0.0)
"""The one topic that does not exist."""


class Upgraded:
    """A job of this version on what an earlier one left, at the time when that was killed."""

    def __init__(self, folder: Path) -> None:
        self.cluster = state.read((folder / "state.json").read_text())
        # As a start and every command does.
        self.cluster.create(tables_topic(APPLICATION), wants_keys=True)
        self.scheduler = Scheduler(1, most_steps=5_000)
        self.scheduler.now += 60.0
        self.network = Network(self.cluster, self.scheduler)
        self.scheduler.on_step = self.cluster.write_marker

    def settings(self, table: str = TABLE) -> JobConfiguration:
        return configuration(self.network, table, Share(1, 1))

    def run(self, table: str = TABLE) -> None:
        """Runs the job until nothing is left to do."""
        instance = Instance(
            "i0", self.network, self.settings(table), workers=0, is_over=lambda: True
        )
        instance.start()
        with simulated_clients(), simulated_clock(self.scheduler):
            self.scheduler.run()
        self.cluster.settle()

    def results(self) -> Counter[tuple[int, str]]:
        """Dead letters by number of their last attempt and its result."""
        last = {}
        for *_, record in self.cluster.visible(outcomes_topic(APPLICATION)):
            outcome = json.loads(record.value or b"")
            last[outcome["origin"]] = outcome["attempt"], outcome["result"]
        return Counter(last.values())


@VERSIONS
def test_a_job_goes_on_where_an_earlier_version_was_killed(folder: Path) -> None:
    job = Upgraded(folder)
    assert job.results()[1, "parked"] == 1
    job.run()
    assert not job.scheduler.errors
    assert not Audit(job.cluster, [MISSING], parse(TABLE).required()).run()
    assert job.results() == {
        (1, "retried"): 1, (1, "forwarded"): 1, (1, "discarded"): 1,
        (2, "remains"): 1, (0, "remains"): 2,
    }  # fmt: skip


@VERSIONS
def test_a_changed_table_decides_about_what_an_earlier_version_kept(folder: Path) -> None:
    job = Upgraded(folder)
    job.run("ACTION(FWD) FWDQ(Q1) HEADER(NO)")
    assert not job.scheduler.errors
    assert not Audit(job.cluster, [MISSING], None).run()
    put = {
        (record.key, record.value, dict(record.headers or [])["number"])
        for *_, record in job.cluster.visible("Q1")
    }
    assert put == {
        (b"key 1", b"body 1", b"1"),
        (None, b"body 4", b"4"),
        (b"key 5", b"body 5", b"5"),
    }


@VERSIONS
def test_a_plan_of_an_earlier_version_is_applied(folder: Path) -> None:
    job = Upgraded(folder)
    plan = Plan.read(folder / "plan.json")
    with simulated_clients(), simulated_clock(job.scheduler):
        for _ in range(2):
            cluster = Cluster(job.settings().connection)
            Instructions(job.settings(), cluster, plan, operator="ann", purpose="test").write()
    job.run()
    (put,) = [record for *_, record in job.cluster.visible("Q1")]
    assert put.value == b"body 4"


@VERSIONS
def test_a_plan_that_an_earlier_version_accepted_is_carried_out(folder: Path) -> None:
    job = Upgraded(folder)
    *_, copy = next(
        copy
        for copy in job.cluster.visible(REMAINING)
        if (copy[-1].value or b"").endswith(b"body 4")
    )
    plan, lane = "0123456789ab", TopicPartition(REPLAY, 0)
    replay = Replay(plan=plan, to=To.QUEUE, queue="Q1", spans={lane: Span(first=0, count=1)})
    key, value = replay.entry()
    entry = json.dumps(value).encode()
    job.cluster.append(OutputRecord(_control(), key.encode(), entry, None, 1, 0))
    job.cluster.create(REPLAY)
    headers = [*(copy.headers or []), (own.REPLAY, plan.encode())]
    job.cluster.append(OutputRecord(REPLAY, copy.key, copy.value, headers, 1, 0))
    job.run()
    assert not job.scheduler.errors
    (put,) = [record for *_, record in job.cluster.visible("Q1")]
    assert put.value == b"body 4"


@VERSIONS
def test_a_ledger_of_an_earlier_version_is_read_and_added_to(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    shutil.copytree(folder / "ledger", path)
    ledger = LedgerTable.create(path)
    assert ledger.size == LEDGER_ROWS
    sample = outcome(3)
    [row] = ledger.outcomes("SELECT * FROM ledger WHERE source_offset = 3")
    assert (row.outcome, row.time.timestamp() * 1000) == (sample["outcome"], sample["time"])
    assert row.source_incarnation is None
    assert (row.failed_at, row.record_time) == (None, None)
    [counted] = ledger.rows(f"WHERE {INCARNATION} = 1", columns="count(*) n")
    assert counted["n"] == LEDGER_ROWS
    assert ledger.positions() == {0: 4, 1: 4, 2: 4}
    append(path, rows([outcome(LEDGER_ROWS)]))
    assert LedgerTable.create(path).size == LEDGER_ROWS + 1


def test_there_is_a_fixture_of_this_version() -> None:
    """Else nobody could prove later that it is read: ``python -m tests.upgrade.write_fixtures``."""
    assert (FIXTURES / redrive.__version__).is_dir()


def test_a_run_says_in_which_format_the_state_is_kept() -> None:
    cluster = state.read((FIXTURES / redrive.__version__ / "state.json").read_text())
    entries = {record.key: record.value for *_, record in cluster.visible(_control())}
    entry = json.loads(entries[FORMAT_KEY.encode()] or b"")
    assert entry == {"format": FORMAT, "version": redrive.__version__}


def test_the_state_of_a_later_version_is_refused() -> None:
    job = Upgraded(FIXTURES / redrive.__version__)
    entry = json.dumps({"format": FORMAT + 1, "version": "99.0"}).encode()
    job.cluster.append(OutputRecord(_control(), FORMAT_KEY.encode(), entry, None, 1, 0))
    count = _records(job.cluster)
    job.run()
    ((_, error),) = job.scheduler.errors
    assert isinstance(error, ConfigurationError)
    assert "was written by redrive 99.0 in the format 3" in error.message
    assert _records(job.cluster) == count


def test_the_ledger_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    LedgerTable.create(path)
    DeltaTable(path).alter.set_table_properties({"redrive.format": "2"}, raise_if_not_exists=False)
    with pytest.raises(EnvironmentFault, match="has the format 2, and this version reads 1"):
        LedgerTable.open(path)


def _control() -> str:
    return control_topic(APPLICATION)


def _records(cluster: SimulatedCluster) -> int:
    return sum(len(log) for log in cluster.logs.values())

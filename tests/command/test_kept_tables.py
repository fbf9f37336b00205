"""``redrive tables`` and ``redrive restart``: the tables that ran, and the way back to one."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from tests.outcomes.conftest import small_job
from tests.outcomes.small_job import SmallJob, dead_letter

from redrive.checkpoints.control import ControlTopic, TableIdentity
from redrive.checkpoints.own_topics import state_topic
from redrive.checkpoints.tables import RunningTable, keep_tables
from redrive.errors import ConfigurationError, RedriveError
from redrive.kafka.administration import TopicAdministration
from redrive.kafka.cluster import Cluster
from redrive.messages import TopicPartition
from redrive.messages.schemes import OwnScheme, schemes_id
from redrive.operations.process import PidFile, this_user
from redrive.operations.restart import RestartRecord, changed_tables
from redrive.rules import parse
from redrive.settings import read_settings

__all__ = ["small_job"]

KEPT = "RETRYINT(9)\nACTION(IGNORE)\n"


def ran(
    small_job: SmallJob,
    *texts: str,
    schemes: tuple[OwnScheme, ...] = (),
    kept_schemes: tuple[OwnScheme, ...] | None = None,
) -> list[str]:
    """Let the job have run with some tables, the last of which decides; their hashes."""
    job = small_job.configuration
    TopicAdministration(job.connection).ensure([state_topic(job.tables_topic)])
    hashes = []
    for text in texts:
        table = parse(text).required()
        lines = tuple(rule.line for rule in table.rules)
        kept = schemes if kept_schemes is None else kept_schemes
        running = RunningTable("orders", table.hash, text, "orders.rul", lines, kept)
        cluster, now = Cluster(job.connection), time.time()
        keep_tables(cluster, job.tables_topic, [running], now=now, by="ann@mars")
        hashes.append(table.hash)
    identity = TableIdentity(hashes[-1] + schemes_id(schemes), 0, 0)
    lanes = [TopicPartition(small_job.identity.topic, number) for number in (0, 1)]
    with ControlTopic(Cluster(job.connection), job.control_topic) as control:
        control.set_tables(dict.fromkeys(lanes, identity))
    return hashes


@contextmanager
def running(small_job: SmallJob, refusal: RedriveError | None = None) -> Iterator[None]:
    """This process stands for the job: it answers a restart as the job does."""
    job = small_job.configuration
    record, running = RestartRecord(job.directory, job.share), job

    def restarted(*_: Any) -> None:
        nonlocal running
        if refusal is not None:
            record.write(refusal)
            return
        fresh = read_settings(Path(small_job.config_file)).job
        changed, unchanged = changed_tables(running, fresh)
        running = fresh
        record.write(None, changed=changed, unchanged=unchanged)

    job.directory.mkdir(parents=True, exist_ok=True)
    before = signal.signal(signal.SIGHUP, restarted)
    try:
        with PidFile.held(job):
            yield
    finally:
        signal.signal(signal.SIGHUP, before)


def rules_file(small_job: SmallJob) -> Path:
    return Path(small_job.config_file).with_name("orders.rul")


def test_every_table_that_ran_is_listed_and_what_cannot_be_read_is_never_none(
    small_job: SmallJob,
) -> None:
    missing = small_job.run("tables", code=1)
    assert "no tables are kept in" in missing.stderr
    now = small_job.configuration.handlers[0].rules
    first, second = ran(small_job, KEPT, now)
    listed = small_job.json_of("tables")
    assert listed["complete"]
    events = [
        (table["hash"], table["current"], table["last_by"], table["hits"])
        for table in listed["tables"]
    ]
    assert events == [(second, True, "ann@mars", None), (first, False, "ann@mars", None)]
    shown = small_job.run("tables").stdout
    assert first[:12] in shown
    assert second[:12] in shown
    job = small_job.configuration
    Cluster(job.connection).append(job.tables_topic, [(b"orders/x", b"nothing of ours")])
    strange = small_job.run("tables", "--json")
    assert not orjson.loads(strange.stdout)["complete"]
    assert "the entry orders/x of" in strange.stdout
    # A broken table in the file is no reason not to find the one before it.
    rules_file(small_job).write_text("ACTION(\n")
    assert small_job.run("tables", "show", first[:6], "--raw").stdout == KEPT
    wrong = small_job.run("tables", "show", "f00", code=2)
    assert "no kept table has a hash that begins with 'f00'" in wrong.stderr


def test_hits_are_counted_by_rule_though_comments_moved_its_line(small_job: SmallJob) -> None:
    text = small_job.configuration.handlers[0].rules
    ran(small_job, text)
    letters = [dead_letter(n, "2051") for n in range(2)]
    small_job.produce([*letters, dead_letter(3, "2053", "nowhere")])
    small_job.step(now=_milliseconds())
    unmoved = small_job.json_of("tables", "--hits")["tables"]
    assert [rule["hits"]["count"] for rule in unmoved] == [3]
    moved = f"* a comment\n* and one more\n{text}"
    [same] = ran(small_job, moved)
    listed = small_job.json_of("tables", "--hits")["tables"]
    assert [rule["hits"]["count"] for rule in listed] == [3]
    shown = small_job.json_of("tables", "show", same)
    assert [(rule["line"], rule["count"]) for rule in shown["rules"]] == [(4, 1), (5, 0), (6, 2)]
    assert shown["text"] == moved
    lines = small_job.run("tables", "show", same).stdout.splitlines()
    assert lines[-1].split()[0] == "2", "the number stands beside its rule"
    assert "ACTION(DISCARD)" in lines[-1]


def _milliseconds() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def test_going_back_writes_the_file_after_asking_and_keeps_what_it_held(
    small_job: SmallJob,
) -> None:
    file = rules_file(small_job)
    mistake = file.read_text()
    first, _ = ran(small_job, KEPT, mistake)
    words = ("restart", "--table", first[:8])
    with running(small_job):
        declined = small_job.run(*words, typed="n\n", code=1)
        assert "The present content is kept as orders.rul.2" in declined.stderr
        assert file.read_text() == mistake
        assert _beside(file) == {}
        done = small_job.run(*words, typed="y\n", code=0)
        assert "orders: the meaning changed; parked" in done.stdout
        assert "again; its former content is kept as orders.rul.2" in done.stdout
        assert file.read_text() == KEPT
        assert list(_beside(file).values()) == [mistake]
        again = small_job.run(*words)
        assert "holds the table" in again.stdout
        assert "no table changed in meaning" in again.stdout
        assert "redrive replay now" in again.stdout


def _beside(file: Path) -> Mapping[str, str]:
    """What else is in the folder of a table's file."""
    return {path.name: path.read_text() for path in file.parent.glob(f"{file.name}.*")}


def test_a_job_that_refuses_gets_its_file_back(small_job: SmallJob) -> None:
    file = rules_file(small_job)
    file.write_text("ACTION(\n")
    [first] = ran(small_job, KEPT)
    with running(small_job, ConfigurationError("a running job keeps its cores")):
        refused = small_job.run("restart", "--table", first, "--yes")
    assert refused.exit_code == 1
    assert (
        "not restarted, the job continues with the old settings: a running job keeps"
        in refused.stderr
    )
    assert file.read_text() == "ACTION(\n"
    assert _beside(file) == {}


def test_without_a_job_nothing_is_written(small_job: SmallJob) -> None:
    file = rules_file(small_job)
    before = file.read_text()
    [first] = ran(small_job, KEPT)
    result = small_job.run("restart", "--table", first, "--yes", code=1)
    assert "no job runs in" in result.stderr
    assert file.read_text() == before


def test_a_plan_shows_what_the_new_table_does_against_the_one_that_decides(
    small_job: SmallJob,
) -> None:
    file = rules_file(small_job)
    ran(small_job, file.read_text())
    small_job.produce([dead_letter(n, "2052", "gone") for n in range(5)])
    small_job.step(now=_milliseconds())
    plan = ("restart", "--plan")
    with running(small_job):
        same = small_job.run(*plan, typed="n\n")
        assert "no table changed in meaning" in same.stdout
        file.write_text(f"{file.read_text()}REASON(MQRC_Q_DELETED) ACTION(DISCARD)\n")
        asked = small_job.run(*plan, typed="n\n", code=1)
        assert "5" in asked.stdout
        assert "discard" in asked.stdout.lower()
        assert "goes on with" not in asked.stdout
        done = small_job.run(*plan, "--yes", code=0)
        assert "orders: the meaning changed" in done.stdout
        file.write_text("ACTION(FORWARD)\n")
        wrong = small_job.run(*plan, code=1)
        assert "not restarted, the job continues with the old settings: 1 error" in wrong.stderr
        assert "orders.rul:1:8: error" in wrong.stderr
        assert "^" in wrong.stderr


def test_a_plan_shows_what_other_schemes_alone_do(small_job: SmallJob) -> None:
    file, settings = rules_file(small_job), Path(small_job.config_file)
    file.write_text(text := f"{file.read_text()}ACTION(DISCARD)\n")
    bare = settings.read_text()
    whys = [{"value": b"x", "headers": [("x-why", b"late")], "partition": n % 2} for n in range(5)]
    small_job.produce(whys)
    small_job.step(now=_milliseconds())
    ran(small_job, text)
    plan = ("restart", "--plan")
    for setting, changed in (
        ("origin_topic", bare.replace("[[handlers]]", '[[handlers]]\norigin_topic = "shop"')),
        ("[schemes.mine]", f'{bare}[schemes.mine]\nrecognise = "x-why"\n'),
    ):
        settings.write_text(changed)
        with running(small_job):
            shown = small_job.run(*plan, typed="n\n").stdout
            assert f"{setting} of the settings differs" in shown
            assert "the tables mean the same" not in shown
            assert "NEWLY DISCARDED: 5 messages: REMAINS becomes DISCARD" in shown
    schemes = (OwnScheme(name="mine", recognise="x-why"),)
    ran(small_job, text, schemes=schemes)
    with running(small_job):
        same = small_job.run(*plan, typed="n\n").stdout
        assert "no table changed in meaning" in same
    settings.write_text(bare)
    with running(small_job):
        back = small_job.run(*plan, typed="n\n").stdout
        assert "5 messages: DISCARD (line 5) becomes REMAINS" in back
    # As an earlier version kept it, which knew nothing of schemes.
    ran(small_job, text, schemes=schemes, kept_schemes=())
    with running(small_job):
        lost = small_job.run(*plan, code=1)
        assert "the current [schemes] of orders are not kept" in lost.stderr


def test_who_asked_for_the_restart_is_told_to_the_job_once(small_job: SmallJob) -> None:
    job = small_job.configuration
    with running(small_job):
        small_job.run("restart", code=0)
    record = RestartRecord(job.directory, job.share)
    assert record.asked_by() == this_user()
    assert record.asked_by() == ""

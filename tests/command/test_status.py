"""``redrive status`` tells how the job is, and with --check by its exit code."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

import pytest
from tests.commands import redrive
from tests.configurations import write_settings
from tests.conftest import KafkaClient

from redrive.checkpoints.instances import Share
from redrive.engine.breaker import BreakerState
from redrive.operations.retention import Waiting
from redrive.operations.supervision import Activity, SupervisionState, supervision_file, write
from redrive.settings import read_settings

AGO = 242


@pytest.fixture
def config(kafka: KafkaClient, folder: Path) -> Path:
    """The settings of a job, in the working directory."""
    name = kafka.unique_name("status").replace("_", "-")
    return write_settings(Path(), "orders.dlq", application=name, servers=kafka.bootstrap_servers)


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker knows of a process that runs the job."""
    known = f"host:{os.getpid()}"
    monkeypatch.setattr("redrive.kafka.cluster.Cluster.instances", lambda *_: (known,))


def say(
    config: Path,
    state: Activity,
    *,
    share: str = "1/1",
    age: float = 0,
    breakers: tuple[BreakerState, ...] = (),
    stopped: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Let the job say how it is."""
    text = config.read_text().replace("[kafka]", f'instance = "{share}"\n[kafka]')
    other = config.with_name("other.toml")
    other.write_text(text)
    now = time.time()
    said = SupervisionState(
        time=now - age,
        pid=os.getpid(),
        state=state,
        since=now - AGO,
        step="commit",
        lane="orders.dlq:2",
        cause="the coordinator gave no answer",
        breakers=breakers,
        stopped=dict(stopped),
    )
    write(supervision_file(read_settings(other).job), said)


status = partial(redrive, "status")


def test_an_open_breaker_is_shown_and_is_no_problem_of_the_job(config: Path, member: None) -> None:
    since = time.time() - AGO
    shown = BreakerState("orders", 2, "ORDERS", "billing", "open", since, "20 of 20 came back")
    say(config, Activity.RUNNING, breakers=(shown,))
    result = status("--check", code=0)
    line = "breaker open: retries by the rule at line 2 of orders to ORDERS for group billing wait"
    assert line in result.output
    (breaker,) = json.loads(status("--json").output)["supervision"]["breakers"]
    assert (breaker["target"], breaker["state"]) == ("ORDERS", "open")


def test_a_job_that_runs_is_well(config: Path, member: None) -> None:
    say(config, Activity.RUNNING)
    result = status("--check", code=0)
    assert "because" not in result.stdout


@pytest.mark.parametrize("state", [Activity.WAITING, Activity.STOPPING])
def test_a_job_that_waits_or_stops_is_well_and_says_why(
    config: Path, member: None, state: Activity
) -> None:
    say(config, state)
    result = status("--check", code=0)
    assert f"{state} since" in result.stdout


def test_a_job_that_is_no_instance_yet_runs(config: Path) -> None:
    say(config, Activity.WAITING)
    title = status().stdout.splitlines()[0]
    assert f"(process {os.getpid()} is waiting: the coordinator gave no answer, its" in title


def test_a_stall_is_told_with_its_place_and_cause(config: Path, member: None) -> None:
    """Only --check makes an exit code of it."""
    say(config, Activity.STALLED)
    for arguments, code in (((), 0), (("--check",), 1)):
        result = status(*arguments, code=code)
        text = r"\(4 min \d+ s\), orders.dlq:2 at step commit, because the coordinator"
        assert re.search(text, result.stdout)


def test_json_has_the_state_and_the_problem(config: Path, member: None) -> None:
    say(config, Activity.STALLED)
    result = status("--check", "--json", code=1)
    content = json.loads(result.stdout)
    assert content["problem"].startswith("stalled since ")
    said = content["supervision"]
    assert (said["state"], said["lane"], said["step"]) == ("stalled", "orders.dlq:2", "commit")
    assert said["pid"] == os.getpid()


def test_a_job_that_is_silent_is_dead(config: Path, member: None) -> None:
    say(config, Activity.RUNNING, age=61)
    result = status("--check", code=1)
    assert "dead since" in result.stdout
    assert "(not running, its" in result.stdout


def test_a_job_on_another_machine_is_well_while_the_broker_knows_it(
    config: Path, member: None
) -> None:
    status("--check", code=0)


def test_each_instance_speaks_for_itself(config: Path, member: None) -> None:
    """--instance says which one is meant."""
    say(config, Activity.STALLED, share="2/2")
    status("--check", code=0)
    result = status("--check", "--instance", "2/2", code=1)
    assert "stalled since" in result.stdout


def test_a_share_that_nobody_has_is_a_problem(
    config: Path, member: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(config, Activity.RUNNING, share="1/2")
    monkeypatch.setattr("redrive.command.status.vacant_shares", lambda *_: (Share(2, 2),))
    result = status("--check", "--instance", "1/2")
    assert result.exit_code == 1
    said = "no instance works on the share 2/2: its partitions wait"
    assert said in result.stdout
    document = json.loads(status("--json", "--instance", "1/2").stdout)
    assert (document["vacant"], document["problem"]) == (["2/2"], said)


def test_a_handler_that_is_stopped_is_a_problem_with_one_reason(config: Path, member: None) -> None:
    why = "this user may not read topic orders.dlq"
    say(config, Activity.RUNNING, stopped={"orders.dlq": why})
    result = status("--check")
    assert result.exit_code == 1
    assert f"the handler of orders.dlq is stopped: {why}" in result.stdout
    assert "does not exist yet" not in result.stdout
    # Applications of other tests may have read the topic on this broker.
    notes = json.loads(status("--json").stdout)["notes"]
    assert all("is handled by the application" in note for note in notes)


def test_what_a_topic_will_delete_is_told(
    config: Path, member: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = Waiting(
        topic="orders.dlq", is_own=False, messages=9, retention=604_800.0, expiring=1204,
        first=time.time() + 12_000,
    )  # fmt: skip
    monkeypatch.setattr("redrive.command.status.expiring_of", lambda *_: (soon,))
    result = status("--check", code=0)
    said = " ".join(result.stdout.split())
    assert "orders.dlq deletes up to 1,204 messages before handling, the first in" in said
    assert "it keeps them for 7 d" in said
    (topic,) = json.loads(status("--json").stdout)["expiring"]
    assert (topic["topic"], topic["at_most"], topic["retention"]) == ("orders.dlq", 1204, 604_800.0)
    (handler,) = json.loads(status("--json").stdout)["handlers"]
    assert topic["handler"] == handler["handler"]


def test_what_waits_is_in_sight_while_a_table_is_broken(config: Path, kafka: KafkaClient) -> None:
    first, second = kafka.topic("one"), kafka.topic("two")
    expression = f"/{first.rpartition('-')[0]}-.*/"
    named = 'name = "orders"\nqueue = "orders.dlq"'
    bounded = f'queue = "{expression}"\nmax_topics = 1'
    config.write_text(config.read_text().replace(named, bounded))
    note = f"{expression} matches 1 more than max_topics = 1; not read: {second}"
    for table in ("ACTION(RETRY)\n", "ACTION(TRY)\n"):
        Path("orders.rul").write_text(table)
        document = json.loads(status("--json").stdout)
        assert [handler["topic"] for handler in document["handlers"]] == [first]
        assert note in document["notes"]
        assert first in redrive("handler", "list", code=0).stdout


@pytest.mark.usefixtures("member")
def test_a_handler_whose_queue_has_get_disabled_is_named(kafka: KafkaClient, folder: Path) -> None:
    manager = kafka.queue_manager()
    script = "DEF QL(DLQ) GET(DISABLED)\nALTER QMGR DEADQ(DLQ)\n"
    (folder / f"{manager}.mqsc").write_text(script)
    more = f'[topology]\nfiles = ["{manager}.mqsc"]\n'
    servers, application = kafka.bootstrap_servers, f"app{manager}"
    config = write_settings(folder, "DLQ", application=application, servers=servers, more=more)
    kafka.create(f"{manager}--DLQ")
    say(config, Activity.RUNNING)
    why = f"the handler DLQ waits: DLQ@{manager} has GET(DISABLED)"
    assert why in " ".join(redrive("status", "--check", code=0).output.split())
    kafka.produce(f"{manager}--DLQ", [{"value": b"x"}])
    assert why in " ".join(redrive("status", "--check", code=1).output.split())
    (handler,) = json.loads(redrive("status", "--json").stdout)["handlers"]
    assert (handler["waiting"], handler["is_exact"], handler["because"]) == (1, True, why)

"""Replays on a real broker: applied beside the running job, audited by kafka-python."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.commands import python, redrive
from tests.configurations import write_settings
from tests.conftest import eventually
from tests.streaming.conftest import Jobs, letter

from redrive.configuration import JobConfiguration
from redrive.engine.commands import Replay, To
from redrive.kafka.cluster import Cluster
from redrive.messages import TopicPartition
from redrive.operations.replay.applying import Instructions
from redrive.operations.replay.plan import Plan
from redrive.operations.replay.progress import cancel, statuses


def plan_of(job: JobConfiguration, plan: str, offsets: range, replay: Replay) -> Plan:
    """A plan about messages of the first handler, of partition 0."""
    queue = job.handlers[0].identity.name
    return Plan(
        replay=replace(replay, plan=plan),
        application=job.application,
        created="",
        messages={queue: {f"{queue}:0": list(offsets)}},
    )


def accepted(job: JobConfiguration, plan: Plan) -> Replay:
    cluster = Cluster(job.connection)
    return Instructions(job, cluster, plan, operator="ann", purpose="a test").write()


def wait_for(job: JobConfiguration, plan: str) -> None:
    cluster = Cluster(job.connection)
    eventually(lambda: statuses(job, cluster, plan=plan)[0].is_done, f"{plan} done")


def commands(
    configuration: JobConfiguration, queue: str, rules: str, folder: Path
) -> Callable[..., Any]:
    """Runs commands of one job with ``--json``, each of which has to succeed."""
    settings = write_settings(
        folder, handlers={queue: queue}, rules=rules, application=configuration.application,
        directory=configuration.directory, servers=configuration.connection.bootstrap_servers,
        more="[ledger]\nenabled = false\n",
    )  # fmt: skip

    def redrive(*words: str, run: Callable[[list[str]], str] = in_this_process) -> Any:
        return json.loads(run([*words, "-c", str(settings), "--json"]))

    return redrive


def in_this_process(words: list[str]) -> str:
    """What a command prints."""
    return redrive(*words, code=0).stdout


def in_a_process(words: list[str]) -> str:
    """What a command prints that is run by itself."""
    return python("-m", "redrive", *words, code=0).stdout


def test_overlapping_plans_applied_at_once_place_each_message_once(jobs: Jobs) -> None:
    dlq, repair = jobs.topic("dlq"), jobs.topic("repair")
    missing = f"{dlq}.orders"
    jobs.produce(dlq, [letter(2053, missing, b"%d" % number, key=b"k") for number in range(20)])
    configuration = jobs.configure({dlq: "REASON(2053) ACTION(RETRY) RETRY(1)\n"})
    job = jobs.start(configuration)
    job.wait_for_records(20)
    jobs.create(missing)
    elsewhere = Replay(to=To.QUEUE, queue=repair, keeps_header=True)
    plans = [
        plan_of(configuration, "back", range(12), Replay(to=To.ORIGINAL)),
        plan_of(configuration, "back", range(12), Replay(to=To.ORIGINAL)),
        plan_of(configuration, "elsewhere", range(8, 18), elsewhere),
    ]
    threads = [threading.Thread(target=accepted, args=(configuration, plan)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_for(configuration, "back")
    wait_for(configuration, "elsewhere")
    assert accepted(configuration, plans[0]).instructed == 12, "accepted once"
    accepted(configuration, plan_of(configuration, "rest", range(20), Replay(to=To.DISCARD)))
    wait_for(configuration, "rest")
    job.stop()
    put, sent = jobs.read(missing), jobs.read(repair)
    numbers = sorted(
        [int(record.value) for record in put] + [int(record.value[172:]) for record in sent]
    )
    assert numbers == list(range(18))
    outcomes = jobs.outcomes(configuration)
    replayed = [outcome for outcome in outcomes if "replay" in outcome]
    assert {(outcome["operator"], outcome["purpose"]) for outcome in replayed} == {
        ("ann", "a test")
    }
    results = Counter(outcome["result"] for outcome in replayed)
    assert results["retried"] + results["forwarded"] == 18
    assert results["discarded"] == 2
    every = statuses(configuration, Cluster(configuration.connection))
    assert len(replayed) == sum(progress.replay.instructed for progress in every)
    assert results["skipped"] == len(replayed) - 20, "the overlap"
    live = {
        record.key: record.value
        for record in jobs.read(configuration.handlers[0].identity.remaining_topic)
    }
    assert set(live.values()) == {None}


def test_the_command_plans_applies_and_tells(jobs: Jobs, tmp_path: Path) -> None:
    dlq, repair = jobs.topic("dlq"), jobs.topic("repair")
    jobs.produce(dlq, [letter(1, "x", b"%d" % number) for number in range(6)])
    rules, plan = "REASON(2053) ACTION(RETRY)\n", tmp_path / "plan.json"
    configuration = jobs.configure({dlq: rules})
    job = jobs.start(configuration)
    job.wait_for_records(6)
    redrive = commands(configuration, dlq, rules, tmp_path)
    planned = redrive("replay", "plan", "--to", repair, "--limit", "4", "-o", str(plan))
    assert (planned["count"], planned["warnings"]) == (4, [])
    for _ in range(2):
        done = redrive("replay", "apply", str(plan), "--because", "ticket", "--yes")
        assert (done["state"], done["results"]) == ("done", {"forwarded": 4})
    assert [entry["plan"] for entry in redrive("replay", "list")] == [planned["plan"]]
    discarded = redrive("discard", f"{dlq}:0:5", "--yes")
    assert discarded["results"] == {"discarded": 1}
    rest = redrive("replay", "now", "--to", repair, "--yes")
    assert (rest["planned"], rest["results"]) == (1, {"forwarded": 1})
    nothing = redrive("replay", "now", "--yes")
    assert nothing["count"] == 0
    assert redrive("replay", "status", planned["plan"])["because"] == "ticket"
    job.stop()
    assert sorted(int(record.value) for record in jobs.read(repair)) == [0, 1, 2, 3, 4]


def test_what_a_wrong_rule_discarded_comes_back_once_and_is_decided_by_the_corrected_table(
    jobs: Jobs, tmp_path: Path
) -> None:
    dlq, repair = jobs.topic("dlq"), jobs.topic("repair")
    jobs.produce(dlq, [letter(1, "x", b"%d" % number) for number in range(200)])
    configuration = jobs.configure({dlq: "ACTION(DISCARD)\n"})
    job = jobs.start(configuration)
    job.wait_for_records(200)
    job.stop()
    jobs.admin.delete_records({TopicPartition(dlq, 0): 30})
    right = f"ACTION(FWD) FWDQ('{repair}') HEADER(NO)\n"
    handler = replace(configuration.handlers[0], rules=right)
    job = jobs.start(replace(configuration, handlers=(handler,)))
    redrive = commands(configuration, dlq, right, tmp_path)
    (held,) = redrive("groups", "--status", "discarded")["held"]
    assert (held["topic"], held["held"], held["gone"]) == (dlq, 170, 30)
    assert held["until"], "the topic keeps records for a week"
    paths = [tmp_path / name for name in ("mine.json", "theirs.json")]
    for path in paths:
        planned = redrive(
            "replay", "plan", "--status", "discarded", "--to", "rules", "-o", str(path)
        )
        assert planned["count"] == 170
        assert planned["notes"] == [f"30 messages are gone from {dlq}, which has deleted them"]
        assert f"only on {dlq}, the first of them until " in planned["warnings"][0]["text"]
    plans = [Plan.read(path) for path in paths]
    threads = [threading.Thread(target=accepted, args=(configuration, plan)) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for plan, path in zip(plans, paths, strict=True):
        wait_for(configuration, plan.id)
        assert redrive("replay", "apply", str(path), "--yes")["state"] == "done"
    again = redrive("replay", "plan", "--status", "discarded")
    assert again["count"] == 0
    assert redrive("ls", "--status", "discarded")["total"] == 30
    assert redrive("ls", "--status", "all")["total"] == 200
    job.stop()
    assert sorted(int(record.value) for record in jobs.read(repair)) == [*range(30, 200)]
    results = Counter(outcome["result"] for outcome in jobs.outcomes(configuration))
    every = [
        progress.replay for progress in statuses(configuration, Cluster(configuration.connection))
    ]
    assert sum(replay.instructed + replay.placed for replay in every) == 340
    assert (results["discarded"], results["forwarded"]) == (200, 170)
    assert results["skipped"] == sum(replay.instructed for replay in every) - 170


def test_what_was_replayed_is_not_looked_at_by_a_new_table(jobs: Jobs) -> None:
    dlq, repair, dead = jobs.topic("dlq"), jobs.topic("repair"), jobs.topic("dead")
    jobs.produce(dlq, [letter(1, "x", b"%d" % number) for number in range(10)])
    configuration = jobs.configure({dlq: "REASON(2053) ACTION(RETRY)\n"})
    job = jobs.start(configuration)
    job.wait_for_records(10)
    order = Replay(to=To.QUEUE, queue=repair)
    accepted(configuration, plan_of(configuration, "p", range(0, 10, 2), order))
    wait_for(configuration, "p")
    job.stop()
    handler = replace(
        configuration.handlers[0], rules=f"WAIT(NO)\nACTION(FWD) FWDQ('{dead}') HEADER(NO)\n"
    )
    jobs.start(replace(configuration, handlers=(handler,))).join()
    assert sorted(int(record.value) for record in jobs.read(repair)) == [0, 2, 4, 6, 8]
    assert sorted(int(record.value) for record in jobs.read(dead)) == [1, 3, 5, 7, 9]


def test_a_rate_is_kept_and_the_rest_can_be_cancelled(jobs: Jobs) -> None:
    dlq, repair = jobs.topic("dlq"), jobs.topic("repair")
    # More than the rate lets out in a minute: a busy machine has not put them all when it cancels.
    count = 4_000
    jobs.produce(dlq, [letter(1, "x", b"%d" % number) for number in range(count)])
    configuration = jobs.configure({dlq: "REASON(2053) ACTION(RETRY)\n"})
    job = jobs.start(configuration)
    job.wait_for_records(count)
    job.stop()
    jobs.produce(dlq, [letter(1, "x", b"new")])
    order = Replay(to=To.QUEUE, queue=repair, rate=40)
    accepted(configuration, plan_of(configuration, "slow", range(count), order))
    only = jobs.start(replace(configuration, only_replays=True))
    eventually(lambda: only.records >= 20 or only.error, "some are put")
    eventually(lambda: only.records >= 140 or only.error, "more are put")
    cancel(configuration, Cluster(configuration.connection), "slow", "bob")
    wait_for(configuration, "slow")
    only.stop()
    outcomes = jobs.outcomes(configuration)
    times = sorted(outcome["time"] for outcome in outcomes if outcome["result"] == "forwarded")
    # A busy machine makes it slower, and a batch may be decided some time after it was planned.
    assert len(times) <= 40 * ((times[-1] - times[0]) / 1000 + 3)
    results = Counter(outcome["result"] for outcome in outcomes)
    assert results["forwarded"] == len(jobs.read(repair)) < count
    assert results["forwarded"] + results["cancelled"] == count
    assert results["remains"] == count, "the new dead letter waits"


def test_parked_messages_are_tried_now_or_no_more_and_all_others_wait(
    jobs: Jobs, tmp_path: Path
) -> None:
    dlq = jobs.topic("dlq")
    missing, plan = f"{dlq}.orders", tmp_path / "plan.json"
    letters = [
        letter(2053, missing, b"%d" % number, key=b"%d" % (number // 2)) for number in range(8)
    ]
    jobs.produce(dlq, letters)
    rules = "RETRYINT(3600)\nREASON(2053) ACTION(RETRY) RETRY(3)\n"
    configuration = jobs.configure({dlq: rules})
    job = jobs.start(configuration)
    job.wait_for_records(8)
    redrive = commands(configuration, dlq, rules, tmp_path)
    nothing = redrive("discard", f"{dlq}:0:2", "--yes")
    assert (nothing["count"], "`redrive parked`" in str(nothing["notes"])) == (0, True)
    again = redrive("parked", "now", f"{dlq}:0:5", "--yes")
    assert again["results"] == {"parked": 1}, "the queue is still not there"
    jobs.create(missing)
    once = redrive("parked", "now", f"{dlq}:0:3", "--yes", "--because", "it is there")
    assert (once["planned"], once["instructed"], once["results"]) == (1, 1, {"retried": 1})
    no_more = redrive("parked", "cancel", "--key", "0", "--yes")
    assert no_more["results"] == {"remains": 2}
    assert redrive("replay", "now", "--to", "original", "--yes")["results"] == {"retried": 2}
    job.stop()
    assert redrive("parked", "now", f"{dlq}:0:5", "-o", str(plan))["count"] == 1
    # In a process of its own: the job that it runs for the purpose ends its Spark.
    done = redrive("replay", "apply", str(plan), "--because", "ticket", "--yes", run=in_a_process)
    assert (done["state"], done["results"]) == ("done", {"retried": 1})
    assert sorted(int(record.value) for record in jobs.read(missing)) == [0, 1, 3, 5]
    waiting = redrive("ls", "--status", "parked")["dead_letters"]
    assert sorted(int(outcome["origin"].rpartition(":")[2]) for outcome in waiting) == [2, 4, 6, 7]
    assert {outcome["attempt"] for outcome in waiting} == {1}


def test_edited_messages_are_put_once_as_the_plan_showed_them(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dlq = jobs.topic("dlq")
    missing, patch = f"{dlq}.orders", tmp_path / "patch.json"
    bodies = [b'{"order":%d,"currency":"%b"}' % (n, b"USD" if n == 1 else b"EU") for n in range(3)]
    jobs.produce(dlq, [letter(2053, missing, body, key=b"k") for body in bodies])
    rules = "REASON(2053) ACTION(RETRY) RETRY(1)\n"
    configuration = jobs.configure({dlq: rules})
    job = jobs.start(configuration)
    job.wait_for_records(3)
    jobs.create(missing)
    redrive = commands(configuration, dlq, rules, tmp_path)
    patch.write_text(
        '[{"op": "test", "path": "/currency", "value": "EU"},'
        ' {"op": "replace", "path": "/currency", "value": "EUR"}]'
    )
    words = ["--json-patch", str(patch), "--set-header", "fixed=1"]
    plan = redrive("replay", "plan", *words)
    shown = {change["message"]: change for change in plan["changes"]}
    assert '+   "currency": "EUR"' in shown[f"{dlq}:0:0"]["lines"]
    assert "the value there is different" in shown[f"{dlq}:0:1"]["problem"]
    why = "the edit applies to 2 of 3 messages; 1 message is left out, unless you add"
    assert (plan["count"], plan["notes"]) == (2, [f"{why} --include-failing"])
    tried = redrive("replay", "plan", *words, "--include-failing")
    assert (tried["count"], tried["notes"]) == (3, ["the edit applies to 2 of 3 messages"])
    assert [warning["code"] for warning in tried["warnings"]] == ["order", "edit-fails"]
    assert [change["message"] for change in tried["changes"]] == [f"{dlq}:0:{n}" for n in range(3)]
    none = redrive("replay", "plan", *words, "--body", "$.order == 1")
    assert (none["count"], [change["message"] for change in none["changes"]]) == (0, [f"{dlq}:0:1"])
    done = redrive("replay", "now", *words, "--yes", "--because", "ticket")
    assert done["results"] == {"retried": 2}, "and the other has no failure"
    monkeypatch.setenv("VISUAL", "sed -i s/USD/EUR/")
    edited = redrive("replay", "--edit", f"{dlq}:0:1", "--yes", "--because", "by hand")
    assert edited["results"] == {"retried": 1}
    job.stop()
    put = {record.value: dict(record.headers) for record in jobs.read(missing)}
    assert len(jobs.read(missing)) == 3
    assert put.keys() == {b'{"order":%d,"currency":"EUR"}' % number for number in range(3)}
    assert put[b'{"order":0,"currency":"EUR"}']["fixed"] == b"1"
    assert "fixed" not in put[b'{"order":1,"currency":"EUR"}']
    last = {outcome["message"]: outcome for outcome in jobs.outcomes(configuration)}
    assert last[f"{dlq}:0:0"]["edit"].startswith("headers fixed; value sha256:")
    assert last[f"{dlq}:0:1"]["edit"].startswith("value sha256:")
    assert last[f"{dlq}:0:1"]["purpose"] == "by hand"

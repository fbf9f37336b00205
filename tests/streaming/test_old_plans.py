"""Plans that are applied when the broker has dropped what they are about: nothing is put twice."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from kafka.admin import ConfigResource, ConfigResourceType
from tests.conftest import PATIENCE
from tests.operations.test_old_plans import dying_after
from tests.streaming.conftest import Jobs, letter
from tests.streaming.test_replays import accepted, commands, plan_of, wait_for

from redrive.configuration import JobConfiguration
from redrive.engine.commands import Replay, To
from redrive.kafka.cluster import Cluster
from redrive.messages import TopicPartition

KEEPS = "REASON(2053) ACTION(RETRY)\n"
"""A table under which everything here remains."""
COUNT = 5
"""Dead letters of a test."""
CLEANED = 400.0
"""Seconds that the broker's cleaner may take for the passes that it needs; it takes a minute."""
FILLER = b"filler"
"""The key of records that only make the broker begin another segment."""


class Cleaner:
    """The broker's own, which keeps tombstones for no time at all instead of a day."""

    def __init__(self, job: JobConfiguration, jobs: Jobs) -> None:
        self._topic, self._jobs = job.handlers[0].identity.remaining_topic, jobs
        settings = {
            "delete.retention.ms": "0", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "100",
        }  # fmt: skip
        jobs.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, self._topic, settings)])

    def wait_for(self, origins: list[str]) -> None:
        """Waits until neither a copy nor a tombstone is left of some messages."""
        keys = {origin.encode() for origin in origins}
        deadline = time.monotonic() + CLEANED
        while keys & {record.key for record in self._jobs.read(self._topic)}:
            assert time.monotonic() < deadline, "the broker's cleaner did its work"
            self._jobs.produce(self._topic, [{"key": FILLER, "value": None}])
            time.sleep(1)


def purge_instructions(job: JobConfiguration) -> None:
    """Deletes what the job deletes from time to time: the instructions that it has carried out.

    No further: that the rest is only the end of a transaction could not be known any more.
    """
    lane = TopicPartition(job.handlers[0].identity.replay_topic, 0)
    cluster = Cluster(job.connection)
    cluster.delete_records({lane: cluster.committed(job.application, [lane])[lane] or 0})
    assert not list(cluster.read({lane: 0}, seconds=PATIENCE)), "every instruction is gone"


@pytest.mark.timeout(1500)
def test_a_plan_whose_messages_a_table_placed_long_ago_puts_none_of_them_again(
    jobs: Jobs, tmp_path: Path
) -> None:
    dlq, orders = jobs.topic("dlq"), jobs.topic("orders")
    jobs.produce(dlq, [letter(1, "x", b"%d" % number) for number in range(COUNT)])
    configuration = jobs.configure({dlq: KEEPS})
    job = jobs.start(configuration)
    job.wait_for_records(COUNT)
    job.stop()
    places = f"WAIT(NO)\nACTION(FWD) FWDQ('{orders}') HEADER(NO)\n"
    handler = replace(configuration.handlers[0], rules=places)
    placing = replace(configuration, handlers=(handler,))
    jobs.start(placing).join()
    expected = [b"%d" % number for number in range(COUNT)]
    assert sorted(jobs.values(orders)) == expected
    cleaner = Cleaner(configuration, jobs)
    cleaner.wait_for([f"{dlq}:0:{number}" for number in range(COUNT)])
    order = Replay(to=To.QUEUE, queue=orders)
    plan_of(configuration, "old", range(COUNT), order).write(tmp_path / "plan.json")
    redrive = commands(configuration, dlq, KEEPS, tmp_path)
    done = redrive("replay", "apply", str(tmp_path / "plan.json"), "--because", "late", "--yes")
    progress = {name: done[name] for name in ("state", "planned", "instructed", "placed", "gone")}
    assert progress == {"state": "done", "planned": 5, "instructed": 0, "placed": 5, "gone": 0}
    assert redrive("replay", "status", "old")["placed"] == COUNT
    jobs.start(placing).join()
    assert sorted(jobs.values(orders)) == expected


@pytest.mark.timeout(1500)
def test_a_plan_whose_apply_died_is_applied_again_when_its_instructions_are_purged(
    jobs: Jobs,
) -> None:
    dlq, orders = jobs.topic("dlq"), jobs.topic("orders")
    jobs.produce(dlq, [letter(1, "x", b"%d" % number) for number in range(COUNT)])
    configuration = jobs.configure({dlq: KEEPS})
    job = jobs.start(configuration)
    job.wait_for_records(COUNT)
    plan = plan_of(configuration, "dead", range(COUNT), Replay(to=To.QUEUE, queue=orders))
    with pytest.raises(KeyboardInterrupt), dying_after(2):
        accepted(configuration, plan)
    job.wait_for_records(COUNT + 2)
    job.stop()
    assert sorted(jobs.values(orders)) == [b"0", b"1"]
    cleaner = Cleaner(configuration, jobs)
    cleaner.wait_for([f"{dlq}:0:0", f"{dlq}:0:1"])
    purge_instructions(configuration)
    again = jobs.start(configuration)
    replay = accepted(configuration, plan)
    assert (replay.planned, replay.instructed, replay.placed) == (COUNT, COUNT, 0)
    wait_for(configuration, "dead")
    again.stop()
    assert sorted(jobs.values(orders)) == [b"%d" % n for n in range(COUNT)]

"""Plans that are older than the copies of their messages: what was placed is never placed again.

The real commands and the real job, on a simulated cluster whose cleaner drops tombstones.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulation.audit import OUTCOMES
from tests.simulation.clients import Network, simulated_clients, simulated_clock
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.job import (
    APPLICATION,
    DEAD_LETTERS,
    REMAINING,
    REPLAY,
    Instance,
    configuration,
)
from tests.simulation.scheduler import Scheduler

from redrive.checkpoints.instances import Share
from redrive.checkpoints.states import StatesWriter
from redrive.configuration import JobConfiguration
from redrive.engine.commands import Replay, To
from redrive.engine.names import control_topic, tables_topic
from redrive.errors import UsageError
from redrive.kafka.cluster import Cluster
from redrive.messages import OutputRecord, TopicPartition
from redrive.operations.replay import applying
from redrive.operations.replay.applying import Instructions
from redrive.operations.replay.plan import Plan

KEEPS = "REASON(2053) ACTION(RETRY)\n"
"""A table under which everything here remains."""
PLACES = "ACTION(FWD) FWDQ(Q1) HEADER(NO)\n"
DISCARDS = "ACTION(DISCARD)\n"


class Old:
    """A job, and dead letters that remain, unless its first table says otherwise."""

    def __init__(self, letters: int, table: str = KEEPS) -> None:
        self.scheduler = Scheduler(1, most_steps=20_000)
        self.cluster = SimulatedCluster()
        self.network = Network(self.cluster, self.scheduler)
        for name in (DEAD_LETTERS, OUTCOMES, "Q1"):
            self.cluster.create(name)
        for name in (control_topic(APPLICATION), tables_topic(APPLICATION)):
            self.cluster.create(name, wants_keys=True)
        self.scheduler.on_step = self.cluster.write_marker
        for number in range(letters):
            headers: list[tuple[str, bytes | None]] = [("mqdlh.Reason", b"1")]
            now = int(self.scheduler.now * 1000)
            record = OutputRecord(DEAD_LETTERS, b"k", b"%d" % number, headers, now, 0)
            self.cluster.append(record)
        self.run(table)

    def settings(self, table: str = KEEPS) -> JobConfiguration:
        return configuration(self.network, table, Share(1, 1))

    def run(self, table: str = KEEPS) -> None:
        """Runs the job until nothing is left to do, and purges what it is done with."""
        with simulated_clients(), simulated_clock(self.scheduler):
            Instance(
                f"i{len(self.scheduler.processes)}", self.network, self.settings(table),
                workers=0, is_over=lambda: True,
            ).start()  # fmt: skip
            self.scheduler.run()
        assert not self.scheduler.errors
        self.cluster.settle()

    def purge(self) -> None:
        """Deletes every instruction that was carried out, as the job's upkeep does."""
        lane = TopicPartition(REPLAY, 0)
        if lane in self.cluster.logs:
            self.cluster.starts[lane] = self.cluster.offsets.get((APPLICATION, lane), 0)

    def clean(self) -> None:
        """Leaves the last copy of what remains, and nothing of what does not: a day passes."""
        self.cluster.compact(REMAINING)
        for lane, _, entry, record in list(self.cluster.visible(REMAINING)):
            assert lane.topic == REMAINING
            if record.value is None:
                entry.record = None

    def lose_copies(self) -> None:
        """Empties the remaining topic."""
        for *_, entry, _ in list(self.cluster.visible(REMAINING)):
            entry.record = None

    def plan(
        self, name: str, offsets: Iterator[int] | range | list[int], *,
        is_undo: bool = False, to: To = To.QUEUE,
    ) -> Plan:  # fmt: skip
        return Plan(
            application=APPLICATION, created="",
            replay=Replay(plan=name, to=to, queue="Q1", is_undo=is_undo),
            messages={"dlq": {f"{DEAD_LETTERS}:0": list(offsets)}},
        )  # fmt: skip

    def apply(self, plan: Plan) -> Replay:
        """What ``redrive replay apply`` does."""
        with simulated_clients(), simulated_clock(self.scheduler):
            job = self.settings()
            cluster = Cluster(job.connection)
            replay = Instructions(job, cluster, plan, operator="ann", purpose="test").write()
        self.cluster.settle()
        return replay

    def puts(self) -> Counter[int]:
        """How often each message was put."""
        return Counter(int(record.value or b"") for *_, record in self.cluster.visible("Q1"))

    def results(self, plan: str) -> Counter[str]:
        """What the outcomes tell of a plan."""
        outcomes = [
            json.loads(record.value or b"") for *_, record in self.cluster.visible(OUTCOMES)
        ]
        return Counter(outcome["result"] for outcome in outcomes if outcome.get("replay") == plan)


def test_a_plan_whose_messages_a_table_placed_long_ago_puts_none_of_them_again() -> None:
    old = Old(5)
    plan = old.plan("p", range(5))
    old.run(PLACES)
    assert old.puts() == dict.fromkeys(range(5), 1)
    old.clean()
    replay = old.apply(plan)
    old.run(PLACES)
    assert old.puts() == dict.fromkeys(range(5), 1)
    assert (replay.planned, replay.instructed, replay.placed) == (5, 0, 5)
    assert replay.is_complete


def test_a_plan_of_another_cluster_is_refused() -> None:
    old = Old(2)
    plan = old.plan("p", range(2))
    with pytest.raises(UsageError, match="made on the cluster elsewhere"):
        old.apply(replace(plan, cluster="elsewhere"))
    old.run()
    assert not old.puts()
    old.apply(replace(plan, cluster=SimulatedCluster.identity))
    old.run()
    assert old.puts() == {0: 1, 1: 1}


def test_what_waits_for_its_next_attempt_is_not_restored() -> None:
    old = Old(3)
    old.lose_copies()
    for lane, *_, record in list(old.cluster.visible(OUTCOMES)):
        outcome = json.loads(record.value or b"")
        if outcome["origin"] != f"{DEAD_LETTERS}:0:2":
            value = json.dumps({**outcome, "topic": REMAINING, "result": "parked"}).encode()
            old.cluster.append(record._replace(value=value, partition=lane.partition))
    replay = old.apply(old.plan("p", range(3)))
    old.run()
    assert old.puts() == {2: 1}
    assert (replay.instructed, replay.placed) == (1, 0)


@contextmanager
def dying_after(writes: int) -> Iterator[None]:
    """``apply`` in chunks of two messages, which dies after so many transactions."""
    numbers = count()
    write = StatesWriter.write

    def dying(self: StatesWriter, *written: Any) -> None:
        if next(numbers) >= writes:
            raise KeyboardInterrupt
        write(self, *written)

    small = patch.object(applying, "_CHUNK_RECORDS", 2)
    with small, patch.object(StatesWriter, "write", dying):
        yield


@pytest.mark.parametrize("kind", ["remaining", "restored", "discarded"])
@pytest.mark.parametrize("writes", range(1, 5))
def test_a_plan_that_is_applied_again_after_its_instructions_were_purged_puts_nothing_twice(
    writes: int, kind: str
) -> None:
    """``apply`` dies after some chunk, the job carries out what there is, and a day passes."""
    old = Old(5, DISCARDS if kind == "discarded" else KEEPS)
    if kind == "restored":
        old.lose_copies()
    plan = old.plan("p", range(5), is_undo=kind == "discarded")
    with suppress(KeyboardInterrupt), dying_after(writes):
        old.apply(plan)
    old.run()
    done = sum(old.puts().values())
    old.purge()
    old.clean()
    replay = old.apply(plan)
    old.run()
    assert old.puts() == dict.fromkeys(range(5), 1)
    assert (replay.planned, replay.instructed, replay.placed) == (5, 5, 0)
    assert sum(old.results("p").values()) == 5
    assert done <= 5


def test_plans_that_restore_one_message_at_the_same_time_put_it_once() -> None:
    old = Old(2)
    old.lose_copies()
    chunks = Instructions._every_chunk
    is_first = iter([True])

    def slow(self: Instructions, *arguments: Any) -> Iterator[Any]:
        parts = list(chunks(self, *arguments))
        if next(is_first, False):
            old.apply(old.plan("first", range(2)))
            old.run()
            old.purge()
            old.clean()
        yield from parts

    with patch.object(Instructions, "_every_chunk", slow):
        replay = old.apply(old.plan("second", range(2)))
    old.run()
    assert old.puts() == {0: 1, 1: 1}
    assert old.results("first") == {"forwarded": 2}
    assert replay.placed + old.results("second")["skipped"] == 2


@pytest.mark.parametrize("is_fresh", [True, False])
@pytest.mark.parametrize("is_old", [True, False])
def test_discarded_messages_come_back_once_by_any_number_of_plans(
    *, is_fresh: bool, is_old: bool
) -> None:
    old = Old(4, DISCARDS if is_fresh else KEEPS)
    old.run(DISCARDS)  # those that remained have a tombstone now
    assert not old.apply(old.plan("plain", range(4))).instructed, "only who asks for it"
    if is_old:
        old.clean()
    for name in ("first", "second", "first"):
        old.apply(old.plan(name, range(3), is_undo=True))
    old.run(DISCARDS)
    assert old.puts() == dict.fromkeys(range(3), 1)
    assert (old.results("first"), old.results("second")) == ({"forwarded": 3}, {"skipped": 3})
    late = old.apply(old.plan("late", range(4), is_undo=True, to=To.RULES))
    assert (late.instructed, late.placed) == (1, 3)
    old.run(DISCARDS)
    assert old.results("late") == {"discarded": 1}
    old.apply(old.plan("again", range(4), is_undo=True))
    old.run(DISCARDS)
    assert old.puts() == dict.fromkeys(range(4), 1), "it was discarded again"


def test_discarded_messages_that_their_topic_has_deleted_or_never_had_stay_discarded() -> None:
    old = Old(4, DISCARDS)
    lane = TopicPartition(DEAD_LETTERS, 0)
    old.cluster.starts[lane] = 2
    plan = old.plan("p", range(4), is_undo=True)
    replay = old.apply(plan)
    assert (replay.planned, replay.instructed, replay.placed) == (4, 2, 0)
    with patch.object(Cluster, "topic_ids", lambda *_: {DEAD_LETTERS: "another"}):
        assert not old.apply(old.plan("q", range(4), is_undo=True)).instructed, "made anew"
    old.run(DISCARDS)
    assert old.puts() == {2: 1, 3: 1}


def apply_dying(old: Old, *, is_undo: bool = False) -> None:
    """A plan whose ``apply`` dies behind its first chunk, if it comes so far."""
    with suppress(KeyboardInterrupt), dying_after(2):
        old.apply(old.plan("ur" if is_undo else "r", [0, 2, 3], is_undo=is_undo))


Step = Callable[[Old], object]
STEPS: dict[str, Step] = {
    "the table places": lambda old: old.run(PLACES),
    "the table keeps": lambda old: old.run(),
    "a day passes": lambda old: old.clean(),
    "instructions are purged": lambda old: old.purge(),
    "copies are lost": lambda old: old.lose_copies(),
    "a plan is applied": lambda old: old.apply(old.plan("p", [0, 1, 2])),
    "another is applied": lambda old: old.apply(old.plan("q", [1, 2, 3])),
    "one is applied and dies": apply_dying,
    "the table discards": lambda old: old.run(DISCARDS),
    "discards are undone": lambda old: old.apply(old.plan("u", [0, 1, 2], is_undo=True)),
    "the rules undo discards": lambda old: old.apply(
        old.plan("v", [1, 2, 3], is_undo=True, to=To.RULES)
    ),
    "discards are undone, and it dies": lambda old: apply_dying(old, is_undo=True),
}


@settings(max_examples=12)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=3, max_size=9))
def test_no_message_is_put_twice_whatever_passes_between_plan_and_instruction(
    steps: list[str],
) -> None:
    old = Old(4)
    for step in steps:
        STEPS[step](old)
    old.run(PLACES)
    old.apply(old.plan("last", range(4)))
    old.apply(old.plan("undo", range(4), is_undo=True))
    old.run(PLACES)
    assert old.puts() == dict.fromkeys(range(4), 1)


@pytest.mark.parametrize("kept", [0, 4])
def test_a_plan_is_refused_where_outcomes_can_not_answer_for_its_messages(kept: int) -> None:
    old = Old(4)
    old.run(PLACES)
    old.clean()
    lanes = [lane for lane in old.cluster.logs if lane.topic == OUTCOMES]
    for lane in lanes:
        old.cluster.starts[lane] = old.cluster.end(lane) - kept
    before = {lane: old.cluster.end(lane) for lane in old.cluster.logs}
    if kept:  # what was final is known
        assert old.apply(old.plan("p", [3])).placed == 1
        return
    with pytest.raises(UsageError, match="the plan p is too old: 4 of its messages") as refused:
        old.apply(old.plan("p", range(4)))
    assert "such as DLQ:0:0" in refused.value.message
    assert OUTCOMES in refused.value.message
    assert "redrive replay plan" in refused.value.hint
    changed = {lane.topic for lane in before if before[lane] != old.cluster.end(lane)}
    assert not changed & {DEAD_LETTERS, REMAINING, OUTCOMES, "Q1"}
    assert not list(old.cluster.visible(REPLAY))


def test_a_restored_instruction_is_skipped_where_outcomes_since_are_gone() -> None:
    old = Old(2)
    old.lose_copies()
    old.apply(old.plan("p", range(2)))
    for lane in [log for log in old.cluster.logs if log.topic == OUTCOMES]:
        old.cluster.append(OutputRecord(OUTCOMES, b"", b"{}", None, 1, lane.partition))
        old.cluster.starts[lane] = old.cluster.end(lane)
    old.run()
    assert not old.puts()
    assert old.results("p") == {"skipped": 2}

"""Up to where held partitions are free: by age, by release, while a channel runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.checkpoints.clock import SteadyClock
from redrive.checkpoints.control import Wait
from redrive.checkpoints.held import (
    HeldChannel,
    HeldInstructions,
    HeldPartition,
    HeldPartitions,
    Kept,
    NewMessages,
    Parked,
    TransmissionQueue,
)
from redrive.engine.commands import NO_STATES, States
from redrive.messages import TopicPartition

LANE = TopicPartition("T", 0)
CHANNEL = ("A", "A.TO.B")
RUNNING = HeldChannel(CHANNEL)
STOPPED = HeldChannel(CHANNEL, is_running=False)
NOW = 1_000.0
"""Seconds since 1970."""


class Machine:
    """The clocks of a machine."""

    def __init__(self) -> None:
        self.wall, self.monotonic = NOW, 5.0

    def time(self) -> float:
        return self.wall

    def clock_gettime(self, _: int) -> float:
        return self.monotonic

    def go_on(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Clocks that a test moves."""
    machine_now = Machine()
    monkeypatch.setattr("redrive.checkpoints.clock.time", machine_now)
    return machine_now


class Timestamps:
    """A partition's timestamps in milliseconds, by offset; how often they were looked at."""

    def __init__(self, *timestamps: int) -> None:
        self._timestamps = timestamps
        self.looks = 0
        self.marks: dict[TopicPartition, int] = {}
        """Ends of partitions, of open transactions too."""

    def ends(
        self, lanes: Collection[TopicPartition], *, committed_only: bool = True
    ) -> Mapping[TopicPartition, int]:
        if not committed_only:
            return {lane: self.marks[lane] for lane in lanes}
        return dict.fromkeys(lanes, len(self._timestamps))

    def first_since(
        self, times: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        self.looks += 1
        positions = [*enumerate(self._timestamps)]
        return {
            lane: next((place for place in positions if place[1] >= time), (-1, -1))
            for lane, time in times.items()
        }


def free(
    partition: HeldPartition, offsets: Timestamps, *, begin: int = 0, states: States = NO_STATES
) -> int:
    """Up to where it is free."""
    ends = offsets.ends([LANE])
    return HeldPartitions([partition], offsets, SteadyClock.of_wall()).free(
        {LANE: begin}, ends, states
    )[LANE]


def test_a_parked_message_is_free_from_its_due_time_on(machine: Machine) -> None:
    due, late = int(NOW * 1000) - 5_000, int(NOW * 1000) - 4_999
    assert free(Parked(LANE, 0, interval=5), Timestamps(late, due)) == 0
    offsets = Timestamps(due - 1, due, late + 250, late + 251)
    partitions = HeldPartitions([Parked(LANE, 0, interval=5)], offsets, SteadyClock.of_wall())
    for pause, expected in ((0.0, 2), (0.2505, 2), (0.001, 3), (1.0, 4)):
        machine.go_on(pause)
        assert partitions.free({LANE: 0}, {LANE: 4}, NO_STATES) == {LANE: expected}
        assert expected != 2 or partitions.next_due == pytest.approx(NOW + 0.251)
    assert partitions.next_due == math.inf


@pytest.mark.usefixtures("machine")
def test_a_changed_table_says_anew_how_long_messages_wait() -> None:
    late = int(NOW * 1000) - 3_000
    other = Parked(TopicPartition("U", 0), 0, interval=5)
    offsets, states = Timestamps(late, late, late), NO_STATES
    both = [Parked(LANE, 0, interval=5), other]
    partitions = HeldPartitions(both, offsets, SteadyClock.of_wall())
    begin = {LANE: 0, other.lane: 0}
    ends = offsets.ends(begin)
    assert partitions.free(begin, ends, states) == {LANE: 0, other.lane: 0}
    partitions.change({LANE: Wait(2, 60)})
    assert partitions.free(begin, ends, states) == {LANE: 2, other.lane: 0}
    partitions.change({LANE: Wait(2, 3)})
    assert partitions.free(begin, ends, states) == {LANE: 3, other.lane: 0}


@pytest.mark.usefixtures("machine")
def test_a_changed_table_sets_everything_free_that_was_there() -> None:
    late = int(NOW * 1000)
    assert free(Parked(LANE, 0, 2, interval=5), Timestamps(late, late, late)) == 2
    assert free(Kept(LANE, 0, 2), Timestamps(0, 0, 0)) == 2
    assert free(Kept(LANE, 0), Timestamps(0, 0, 0)) == 0


@pytest.mark.usefixtures("machine")
def test_what_remains_is_released_once_by_a_person() -> None:
    states = States(releases={LANE: 2})
    assert free(Kept(LANE, 0), Timestamps(0, 0, 0), states=states) == 2
    assert free(Kept(LANE, 0), Timestamps(0, 0, 0), begin=2, states=states) == 2


@pytest.mark.usefixtures("machine")
def test_what_a_receiver_could_put_nowhere_stays_the_head_of_its_queue() -> None:
    queue = TransmissionQueue(TopicPartition("X", 0), 0, channel=RUNNING, head=LANE)
    both = [queue, Kept(LANE, 0)]
    ends = {queue.lane: 5, LANE: 3}
    for begin, expected in ((0, {queue.lane: 0, LANE: 2}), (2, {queue.lane: 5, LANE: 2})):
        partitions = HeldPartitions(both, Timestamps(), SteadyClock.of_wall())
        states = States(releases={LANE: 2})
        assert partitions.free({queue.lane: 0, LANE: begin}, ends, states) == expected


RETRY, REMAINING, REPLAY = (TopicPartition(name, 0) for name in ("retry", "remaining", "replay"))


@given(
    st.floats(1, 400),
    st.integers(0, 300),
    st.integers(0, 300),
    st.lists(st.floats(0.01, 3), min_size=1, max_size=30),
)
def test_a_changed_table_looks_at_what_waits_at_its_rate_and_at_all_of_it(
    rate: float, parked: int, remaining: int, pauses: list[float]
) -> None:
    machine = Machine()
    clocks = SimpleNamespace(monotonic=lambda: machine.monotonic)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redrive.checkpoints.held.time", clocks)
        patch.setattr("redrive.checkpoints.clock.time", machine)
        partitions = HeldPartitions(
            [
                Parked(RETRY, 0, parked, interval=3600.0),
                Kept(REMAINING, 0, remaining),
                HeldInstructions(REPLAY, 0, behind=REMAINING),
            ],
            Timestamps(*[int(NOW * 1000)] * 10_000),
            SteadyClock(NOW - machine.monotonic),
            rate=rate,
        )
        begin = {RETRY: 0, REMAINING: 0, REPLAY: 0}
        ends = {RETRY: parked + 2, REMAINING: remaining + 2, REPLAY: 1}
        looked_at = [(machine.monotonic, 0)]
        # Pauses that were drawn, then as many as it takes.
        for pause in [*pauses, *[1.0] * (3 + int((parked + remaining) / rate))]:
            free = partitions.free(begin, ends, NO_STATES)
            assert (free[REPLAY] == 1) == (begin[REMAINING] >= remaining)
            looked_at.append((machine.monotonic, free[RETRY] + free[REMAINING]))
            begin = {**free, REPLAY: 0}
            machine.go_on(pause)
        for earlier, first in looked_at:
            for later, last in looked_at:
                if later >= earlier:
                    assert last - first <= rate * (later - earlier) + rate + 2 + 1e-6
        assert (begin[RETRY], begin[REMAINING]) == (parked, remaining)
        assert not partitions.is_releasing


@pytest.mark.usefixtures("machine")
def test_what_is_due_does_not_wait_for_the_rate() -> None:
    due = int(NOW * 1000) - 5_000
    late = int(NOW * 1000)
    partition = Parked(LANE, 0, 4, interval=5)
    offsets = Timestamps(due, due, late, late)
    partitions = HeldPartitions([partition], offsets, SteadyClock.of_wall(), rate=1)
    assert partitions.free({LANE: 0}, offsets.ends([LANE]), NO_STATES)[LANE] == 2


def test_a_channel_that_runs_sets_free_what_arrives() -> None:
    for is_running in (True, False):
        channel = RUNNING if is_running else STOPPED
        queue = TransmissionQueue(LANE, 0, channel=channel)
        assert free(queue, Timestamps(0, 0)) == (2 if is_running else 0)
        changed = States(running={CHANNEL: not is_running})
        assert free(queue, Timestamps(0, 0), states=changed) == (0 if is_running else 2)


@pytest.mark.usefixtures("machine")
def test_what_a_receiver_tries_again_waits_for_its_time_and_for_the_channel() -> None:
    """MRTMR later, and only while the channel runs: a stopped one tries nothing."""
    due, late = int(NOW * 1000) - 500, int(NOW * 1000) - 499
    for channel, end in ((RUNNING, 1), (STOPPED, 0)):
        retried = Parked(LANE, 0, interval=0.5, channel=channel)
        assert free(retried, Timestamps(due, late)) == end


@given(read=st.integers(0, 3), parked=st.integers(0, 3), is_running=st.booleans())
def test_a_channel_moves_nothing_while_its_receiver_tries_again(
    *, read: int, parked: int, is_running: bool
) -> None:
    """MRRTY: as long as one message waits for the next try, due or not; then it goes on.

    Also one whose transaction readers do not see yet.
    """
    retries = TopicPartition("R", 0)
    channel = RUNNING if is_running else STOPPED
    queue = TransmissionQueue(LANE, 0, channel=channel, paused_by=retries)
    read = min(read, parked)
    offsets = Timestamps(0, 0)
    offsets.marks = {retries: parked}
    begin, ends = {LANE: 0, retries: read}, {LANE: 2, retries: read}
    free_until = HeldPartitions([queue], offsets, SteadyClock.of_wall()).free(
        begin, ends, NO_STATES
    )
    assert free_until[LANE] == (2 if is_running and read == parked else 0)


def test_a_person_releases_messages_of_a_stopped_channel_once() -> None:
    queue = TransmissionQueue(LANE, 0, channel=STOPPED)
    assert free(queue, Timestamps(0, 0, 0), states=States(releases={LANE: 2})) == 2


@given(
    st.integers(0, 5),
    st.integers(0, 9),
    st.sampled_from([
        Kept(LANE, 0), Parked(LANE, 0, interval=5.0), NewMessages(LANE, 0),
        Parked(LANE, 0, interval=5.0, channel=RUNNING), TransmissionQueue(LANE, 0, channel=RUNNING),
    ]),
    st.integers(0, 9),
)  # fmt: skip
def test_nothing_goes_backwards_and_nothing_is_free_that_is_not_there(
    begin: int, release: int, partition: HeldPartition, released: int
) -> None:
    partition = replace(partition, release=release)
    offset = free(
        partition, Timestamps(0, 1, 2, 3, 4), begin=begin, states=States(releases={LANE: released})
    )
    assert begin <= offset <= 5


def test_a_free_partition_is_read_to_its_end() -> None:
    offsets = Timestamps(0, int(NOW * 2_000))
    assert free(NewMessages(LANE, 0), offsets, begin=1) == 2
    assert offsets.looks == 0


def test_a_partition_without_waiting_messages_is_not_looked_at() -> None:
    offsets = Timestamps(0, 0)
    assert free(Parked(LANE, 0, interval=5), offsets, begin=2) == 2
    assert offsets.looks == 0

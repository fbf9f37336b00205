"""The pace of replays: a rate is kept from the start, and nothing comes in a burst."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.checkpoints.clock import SteadyClock
from redrive.checkpoints.held import HeldInstructions, HeldPartitions, Kept, Pace
from redrive.engine.commands import Replay, Span, States
from redrive.messages import TopicPartition

LANE = TopicPartition("replay", 0)
REMAINING = TopicPartition("remaining", 0)


@given(st.floats(0.2, 5_000), st.lists(st.floats(0.001, 30), min_size=1, max_size=60))
def test_a_lane_is_never_read_faster_than_its_rate(rate: float, pauses: list[float]) -> None:
    now, begin = 0.0, 0
    pace = Pace(lambda: now)
    reads = [(now, begin)]
    for pause in pauses:
        begin = pace.limit(LANE, begin, 1 << 60, rate)
        now += pause
        reads.append((now, begin))
    for earlier, first in reads:
        for later, last in reads:
            if later >= earlier:
                assert last - first <= rate * (later - earlier) + 1 + rate + 1e-6


@given(st.floats(0.5, 5_000))
def test_a_lane_that_is_looked_at_often_is_read_at_its_rate(rate: float) -> None:
    now, begin = 0.0, 0
    pace = Pace(lambda: now)
    for _ in range(400):
        begin = pace.limit(LANE, begin, 1 << 60, rate)
        now += 0.1
    assert abs(begin - rate * 39.9) <= 1 + 1e-6


def test_without_a_rate_everything_is_free() -> None:
    pace = Pace(lambda: 5.0)
    assert pace.limit(LANE, 0, 100, None) == 100
    assert pace.limit(LANE, 0, 100, 10.0) == 0


class _NoOffsets:
    def ends(self, lanes: object, *, committed_only: bool = True) -> dict[TopicPartition, int]:
        raise AssertionError(lanes, committed_only)

    def first_since(self, times: object) -> dict[TopicPartition, tuple[int, int]]:
        raise AssertionError(times)


@given(st.floats(0.2, 500), st.lists(st.tuples(st.floats(0.001, 5), st.booleans()), min_size=1))
def test_a_bound_on_another_pace_holds_however_seldom_it_is_asked(
    rate: float, looks: list[tuple[float, bool]]
) -> None:
    now, begin = 0.0, 0
    pace, bound = Pace(lambda: now), Pace(lambda: now, at_most=True)
    for pause, is_batch in looks:
        now += pause
        planned = pace.limit(LANE, begin, 1 << 60, rate)
        if is_batch:
            assert planned <= bound.limit(LANE, begin, 1 << 60, rate) + 1
            begin = planned


def _free(release: int, replay: Replay | None = None) -> dict[TopicPartition, int]:
    held = HeldPartitions(
        [
            Kept(REMAINING, 0, release),
            HeldInstructions(LANE, 0, behind=REMAINING),
        ],
        _NoOffsets(),
        SteadyClock.of_wall(),
    )
    states = States(replays={} if replay is None else {replay.plan: replay})
    return held.free({REMAINING: 5, LANE: 2}, {REMAINING: 9, LANE: 8}, states)


def test_instructions_wait_while_a_new_table_looks_at_what_remains() -> None:
    assert _free(release=9) == {REMAINING: 9, LANE: 2}
    assert _free(release=5) == {REMAINING: 5, LANE: 8}


def test_a_cancelled_replay_is_not_held_back_by_its_rate() -> None:
    replay = Replay(plan="p", rate=0.001, spans={LANE: Span(first=0, count=9)})
    assert _free(release=0, replay=replay)[LANE] == 2
    cancelled = Replay(plan="p", rate=0.001, cancelled_by="bob", spans=replay.spans)
    assert _free(release=0, replay=cancelled)[LANE] == 8

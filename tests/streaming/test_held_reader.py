"""How many rows a batch takes from each partition of the held source."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.messages import TopicPartition
from redrive.streaming.held_reader import _limited


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(1, 100))
def test_a_batch_is_full_and_no_partition_is_left_out(backlogs: list[int], most: int) -> None:
    lanes = [TopicPartition("T", number) for number in range(len(backlogs))]
    begin = dict.fromkeys(lanes, 10)
    free = {lane: 10 + backlog for lane, backlog in zip(lanes, backlogs, strict=True)}
    taken = [end - 10 for end in _limited(begin, free, most).values()]
    pairs = [*zip(taken, backlogs, strict=True)]
    assert all(min(1, backlog) <= took <= backlog for took, backlog in pairs)
    waiting = sum(map(bool, backlogs))
    assert sum(taken) <= max(most, waiting)
    assert sum(taken) >= min(most, sum(backlogs))
    cut = [took for took, backlog in pairs if took < backlog]
    assert not cut or min(cut) + 1 >= max(taken)

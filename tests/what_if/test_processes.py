"""Processes that share the work count together what one alone counts."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.configurations import job_of
from tests.engine.samples import handler_of
from tests.what_if.shares import counted, failed, killed
from tests.what_if.test_tally import NEW, OLD, answer_of, letters, tally_of, told

from redrive.errors import EnvironmentFault, TransientFault
from redrive.messages import OffsetRange
from redrive.what_if.processes import ShareProcesses
from redrive.what_if.sources import Over, Waiting
from redrive.what_if.totals import Totals

JOB = job_of()


@given(
    sizes=st.lists(st.tuples(st.sampled_from(Over), st.integers(1, 1_000)), max_size=12),
    number=st.integers(1, 5),
)
def test_every_partition_is_in_one_share(sizes: list[tuple[Over, int]], number: int) -> None:
    """Whole; and no share has more than the smallest one and its own smallest partition."""
    ranges: dict[Over, tuple[OffsetRange, ...]] = {}
    for partition, (over, size) in enumerate(sizes):
        one = OffsetRange(over.value, partition, 7, 7 + size)
        ranges[over] = (*ranges.get(over, ()), one)
    shares = Waiting(JOB, ranges).shares(number)
    assert 1 <= len(shares) <= number
    found = [(over, one) for it in shares for over, some in it.ranges.items() for one in some]
    assert Counter(found) == Counter((over, it) for over, some in ranges.items() for it in some)
    least = min(share.offsets for share in shares) if len(shares) == number else 0
    for share in shares:
        parts = [
            Waiting(JOB, {over: (one,)}).offsets
            for over, some in share.ranges.items()
            for one in some
        ]
        assert share.offsets <= least + (min(parts) if parts else 0) or len(parts) <= 1


@given(rows=letters, cut=st.integers(0, 40))
def test_counts_of_two_shares_add_up(rows: list[tuple[int, str]], cut: int) -> None:
    """To what is counted of all messages at once; samples are some of the first."""
    old, new = handler_of(OLD), handler_of(NEW)
    totals = Totals()
    for some in (rows[:cut], rows[cut:]):
        totals.add(tally_of(some, old, new).totals())
    whole, added = answer_of(rows), told(totals, old, new)
    for name in ("messages", "matrix", "rules", "never_matched"):
        assert getattr(added, name) == getattr(whole, name), name
    assert set(added.targets) == set(whole.targets)
    assert [(it.loss, it.old_line, it.new_line, it.count) for it in added.changes] == [
        (it.loss, it.old_line, it.new_line, it.count) for it in whole.changes
    ]
    for one, other in zip(added.changes, whole.changes, strict=True):
        assert len(one.samples) >= len(other.samples) > 0


def test_other_processes_count_and_tell_how_far_they_are() -> None:
    """Their totals are added; what one can't do is told; one that is gone is an error."""
    read: list[int] = []
    with ShareProcesses([counted, counted], read.append) as processes:
        totals = processes.totals()
    assert (sum(read), totals.messages) == (6, {Over.BACKLOG: 6})
    for share, error, told_as in (
        (failed, TransientFault, "orders:0 gave nothing for 30 s"),
        (killed, EnvironmentFault, "a process that tried tables ended with 7"),
    ):
        with ShareProcesses([share], read.append) as processes, pytest.raises(error) as found:
            processes.totals()
        assert found.value.message == told_as
        assert found.value.hint

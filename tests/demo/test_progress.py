"""The live view shows what the job reports."""

from __future__ import annotations

import io
from typing import Any, cast

import pytest
from rich.console import Console
from tests.demo.world import sample_table

from redrive.configuration import EmitterChoice, JobConfiguration
from redrive.demo.view import LiveView, Progress
from redrive.streaming.lifecycle import BatchSummary

CONFIGURATION = cast("JobConfiguration", None)  # observers of the demo do not look at it


class _Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def _batch(time: float, **results: int) -> BatchSummary:
    return BatchSummary(
        batch=1,
        time=int(time * 1000),
        records=sum(results.values()),
        results={("DEAD.LETTERS", 29, name): count for name, count in results.items()},
        seconds=0.1,
        emitter=EmitterChoice.DRIVER,
    )


@pytest.fixture
def clock() -> _Clock:
    """The time of a test."""
    return _Clock()


@pytest.fixture
def progress(clock: _Clock) -> Progress:
    """A job that has just started, with RETRYINT(6)."""
    progress = Progress(6, clock=clock)
    progress.started(CONFIGURATION)
    return progress


def test_parked_messages_are_those_not_due_yet(progress: Progress, clock: _Clock) -> None:
    """What is due is taken back by the job and counts no longer."""
    progress.batch(_batch(1000, parked=30, retried=10))
    clock.now = 1002.0
    progress.batch(_batch(1002, parked=5))
    clock.now = 1004.0
    snapshot = progress.snapshot()
    assert (snapshot.parked, snapshot.next_due, snapshot.elapsed) == (35, 2.0, 4.0)
    clock.now = 1007.0
    assert progress.snapshot().parked == 5
    clock.now = 1009.0
    assert progress.snapshot().next_due is None


def test_results_are_added_up_by_rule(progress: Progress) -> None:
    """Every attempt counts; a message ends once."""
    progress.batch(_batch(1000, parked=3, retried=1))
    progress.batch(_batch(1006, parked=1, retried=2))
    snapshot = progress.snapshot()
    assert snapshot.results == {(29, "parked"): 4, (29, "retried"): 3}
    assert snapshot.ended == 3


def test_the_rate_is_that_of_the_last_seconds(progress: Progress, clock: _Clock) -> None:
    """What was long ago does not count."""
    clock.now = 1100.0
    progress.batch(_batch(1100, retried=50))
    assert progress.snapshot().rate == 10
    clock.now = 1110.0
    assert progress.snapshot().rate == 0


@pytest.fixture
def view(progress: Progress) -> tuple[LiveView, io.StringIO]:
    """A view without a terminal, and what it wrote."""
    stream = io.StringIO()
    console = Console(file=stream, width=120)
    return LiveView(console, progress, sample_table(), 100, "{:.0f} s of load".format), stream


def test_the_picture_shows_every_rule_and_what_it_did(
    view: tuple[LiveView, io.StringIO], progress: Progress
) -> None:
    """With the line of the rule in the table."""
    progress.batch(_batch(1000, parked=12, retried=34))
    console = Console(file=io.StringIO(), width=120)
    console.print(view[0].picture())
    text = cast("Any", console.file).getvalue()
    [row] = [line for line in text.splitlines() if line.split()[:1] == ["29"]]
    assert "REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(50)" in row
    assert row.split()[-2:] == ["34", "12"]
    assert "34 of 100 done" in text
    assert "12 parked" in text
    assert "0 s of load" in text


def test_a_notice_is_a_line_where_there_is_no_terminal(view: tuple[LiveView, io.StringIO]) -> None:
    """With what differs from time to time."""
    view[0].notice("the query ended", error="no answer", lane="A:0")
    view[0].warning("stalled")
    assert view[1].getvalue() == "the query ended (error no answer, lane A:0)\nstalled\n"

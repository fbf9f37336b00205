"""The live view shows what the job reports."""

from __future__ import annotations

import io
from typing import Any, cast

import pytest
from rich.console import Console
from tests.demo.world import sample_table

from redrive.configuration import EmitterChoice, JobConfiguration
from redrive.demo.view import LiveView
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
def stream() -> io.StringIO:
    """What the view of a test wrote."""
    return io.StringIO()


@pytest.fixture
def view(clock: _Clock, stream: io.StringIO) -> LiveView:
    """The view of a job with RETRYINT(6) that has just started, without a terminal."""
    console, table = Console(file=stream, width=120), sample_table()
    assert table.control.retry_interval == 6
    view = LiveView(console, table, 100, "{:.0f} s of load".format, clock)
    assert view.line() == "the job is starting ..."
    view.started(CONFIGURATION)
    return view


def test_parked_messages_are_those_not_due_yet(view: LiveView, clock: _Clock) -> None:
    """What is due is taken back by the job and counts no longer."""
    view.batch(_batch(1000, parked=30, retried=10))
    clock.now = 1002.0
    view.batch(_batch(1002, parked=5))
    clock.now = 1004.0
    assert view.line().startswith("  4.0 s: ")
    assert view.line().endswith(", 35 parked, next due in 2.0 s")
    clock.now = 1007.0
    assert ", 5 parked, next" in view.line()
    clock.now = 1009.0
    assert view.line().endswith(", 0 parked")


def test_the_rate_is_that_of_the_last_seconds(view: LiveView, clock: _Clock) -> None:
    """What was long ago does not count; each message is done once."""
    clock.now = 1100.0
    view.batch(_batch(1100, retried=30, parked=20))
    assert "30 of 100 done, 10 a second" in view.line()
    clock.now = 1110.0
    view.batch(_batch(1110))
    assert "30 of 100 done, 0 a second" in view.line()


def test_the_picture_shows_every_rule_and_what_it_did(view: LiveView) -> None:
    """With the line of the rule in the table; every attempt counts."""
    view.batch(_batch(1000, parked=10, retried=34))
    view.batch(_batch(1000, parked=2))
    console = Console(file=io.StringIO(), width=120)
    console.print(view.picture())
    text = cast("Any", console.file).getvalue()
    [row] = [line for line in text.splitlines() if line.split()[:1] == ["29"]]
    assert "REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(50)" in row
    assert row.split()[-2:] == ["34", "12"]
    assert "34 of 100 done" in text
    assert "12 parked" in text
    assert "0 s of load" in text


def test_a_notice_is_a_line_where_there_is_no_terminal(view: LiveView, stream: io.StringIO) -> None:
    """With what differs from time to time."""
    view.notice("the query ended", error="no answer", lane="A:0")
    view.warning("stalled")
    assert stream.getvalue() == "the query ended (error no answer, lane A:0)\nstalled\n"

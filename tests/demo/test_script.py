"""A script plays beside the job: it waits with a bound, ends with the job, and stops it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, cast

import pytest
from rich.console import Console

from redrive.configuration import JobConfiguration
from redrive.demo.cluster import Cluster
from redrive.demo.script import Operator, Script, ScriptRunner, View
from redrive.errors import EnvironmentFault
from redrive.streaming.lifecycle import JobControl

JOB = cast("JobConfiguration", None)  # nothing here looks at it


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> Operator:
    """An operator for whom every look takes a minute that nobody waits for."""
    now = [0.0]
    operator = Operator(JOB, cast("Cluster", None), Console(file=io.StringIO()))

    def wait(_seconds: float) -> bool:
        now[0] += 60
        return operator.ended.is_set()

    monkeypatch.setattr(operator.ended, "wait", wait)
    monkeypatch.setattr("redrive.demo.script.time.monotonic", lambda: now[0])
    return operator


def test_a_wait_lasts_as_long_as_there_is_progress(operator: Operator) -> None:
    """On a slow machine an hour, if need be."""
    left: Iterator[list[int]] = iter([list(range(count)) for count in range(60, -1, -1)])
    operator.wait_until("have come", lambda: next(left))
    assert list(left) == []


def test_a_wait_in_vain_says_what_it_waited_for(operator: Operator) -> None:
    """With an example, so that one can look for it."""
    with pytest.raises(EnvironmentFault, match="2 never have come, such as A:0:1") as caught:
        operator.wait_until("have come", lambda: ["A:0:2", "A:0:1"])
    assert "log" in caught.value.hint


class _Script:
    def __init__(self, play: Any) -> None:
        self.play = play


def _run(operator: Operator, play: Any) -> tuple[ScriptRunner, JobControl]:
    control = JobControl()
    runner = ScriptRunner(cast("Script", _Script(play)), operator, control)
    runner.started(JOB)
    return runner, control


def test_the_job_stops_after_the_last_scene(operator: Operator) -> None:
    """Nothing else would end a job that routes puts."""
    runner, control = _run(operator, lambda _: None)
    runner.end()
    runner.check()
    assert control.stop_reason == "the demo is over"


def test_a_script_ends_with_the_job(operator: Operator) -> None:
    """Whatever it waits for: there is nothing to wait for any more."""
    runner, control = _run(operator, lambda it: it.wait_until("have come", lambda: [object()]))
    runner.end()
    runner.check()
    assert control.is_stopping


def _fail(_operator: Operator) -> None:
    raise EnvironmentFault("the broker is gone")


def test_a_script_that_fails_stops_the_job(operator: Operator) -> None:
    """Its failure is the demo's."""
    runner, control = _run(operator, _fail)
    runner.end()
    assert control.is_stopping
    with pytest.raises(EnvironmentFault, match="the broker is gone"):
        runner.check()


def test_what_keeps_the_job_from_its_work_is_shown() -> None:
    """Else somebody would wait before a demo that stands still without a word."""
    stream = io.StringIO()
    view = View(Console(file=stream))
    view.notice("a topic is awaited")
    view.warning("stalled", since="10:00")
    assert stream.getvalue() == "stalled (since 10:00)\n"

"""What a job reports about itself, and how it is shown."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.conftest import ended_process

from redrive.engine.breaker import BreakerState
from redrive.operations.supervision import Activity, SupervisionState, problem_of, read, write

NOW = datetime(2026, 3, 2, 12, 7, 7, tzinfo=UTC).timestamp()
RUNNING = SupervisionState(time=NOW - 2, pid=os.getpid(), state=Activity.RUNNING)
STALLED = SupervisionState(
    time=NOW - 2,
    pid=os.getpid(),
    state=Activity.STALLED,
    since=NOW - 242,
    step="commit",
    lane="orders.dlq:2",
    cause="the coordinator gave no answer",
)
OPEN = BreakerState("orders.dlq", 2, "orders", "billing", "open", NOW - 60, "20 of 20 came back")


@pytest.mark.parametrize("state", [RUNNING, STALLED, replace(RUNNING, breakers=(OPEN,))])
def test_what_was_written_is_read(tmp_path: Path, state: SupervisionState) -> None:
    path = tmp_path / "1-of-1" / "supervision.json"
    write(path, state)
    assert read(path) == state
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_on_a_full_disk_the_file_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(path: Path, _: bytes) -> None:
        path.touch()  # a name may find its place though no byte does
        raise OSError(error, os.strerror(error), str(path))

    path = tmp_path / "supervision.json"
    write(path, STALLED)
    monkeypatch.setattr(Path, "write_bytes", refuse)
    write(path, RUNNING)
    assert read(path) == RUNNING
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"state": "odd"}', '{"state": "running"}'])
def test_what_cannot_be_understood_is_nothing(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "supervision.json"
    if text is not None:
        path.write_text(text)
    assert read(path) is None


def test_a_stall_is_told_with_time_place_and_cause() -> None:
    assert STALLED.describe(NOW) == (
        "stalled since 12:03:05 UTC (4 min 2 s), orders.dlq:2 at step commit, "
        "because the coordinator gave no answer"
    )


def test_what_is_not_known_is_left_out() -> None:
    assert RUNNING.describe(NOW) == "running"
    assert replace(RUNNING, step="commit").describe(NOW) == "running, at step commit"
    assert replace(RUNNING, cause="it is early").describe(NOW) == "running, because it is early"


def test_a_state_that_began_on_another_day_tells_the_date() -> None:
    assert "since 2026-03-01 12:07:07 UTC (1 d)" in replace(STALLED, since=NOW - 86400).describe(
        NOW
    )


def test_a_process_that_is_gone_is_dead() -> None:
    gone = ended_process()
    state = replace(RUNNING, pid=gone)
    assert state.is_dead(NOW)
    assert state.describe(NOW) == f"dead since 12:07:05 UTC (2 s): process {gone} is gone"


@pytest.mark.parametrize(("age", "is_dead"), [(59, False), (61, True)])
def test_a_process_that_is_silent_for_a_minute_is_dead(age: float, *, is_dead: bool) -> None:
    state = replace(RUNNING, time=NOW - age)
    assert state.is_dead(NOW) is is_dead
    assert state.describe(NOW).startswith("dead since 12:06:06 UTC (1 min 1 s)") is is_dead


@pytest.mark.parametrize(
    ("state", "instances", "problem"),
    [
        (RUNNING, ("host:1",), ""),
        (RUNNING, (), ""),
        (None, ("elsewhere:1",), ""),
        (None, (), "no process runs the job"),
        (None, None, "the broker does not answer"),
        (RUNNING, None, "the broker does not answer"),
        (STALLED, ("host:1",), STALLED.describe(NOW)),
        (STALLED, None, STALLED.describe(NOW)),
        (replace(RUNNING, state=Activity.STOPPING), (), ""),
        (replace(RUNNING, time=NOW - 61), ("host:1",), "dead since 12:06:06 UTC (1 min 1 s): "),
    ],
)
def test_what_is_wrong_with_a_job(
    state: SupervisionState | None, instances: tuple[str, ...] | None, problem: str
) -> None:
    problem_found = problem_of(state, instances, NOW)
    assert problem_found.startswith(problem)
    assert bool(problem_found) is bool(problem)

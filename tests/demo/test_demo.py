"""The whole demo, small and fast, as a user starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from redrive.broker import EmbeddedBroker
from redrive.broker.process import is_alive

COMMAND = [sys.executable, "-m", "redrive", "demo", "--messages", "300", "--fast", "--seed", "7"]
PATIENCE = 500
"""Seconds: on an idle machine it takes thirty."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start demos in sessions of their own, so that signals reach all their processes.

    Everything that they leave in their temporary folder is seen.
    """
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, *options],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.terminate()  # the broker has to be stopped if a test failed
        process.communicate()


@pytest.mark.timeout(PATIENCE)
def test_the_demo_adds_up_and_leaves_nothing(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Every kind of outcome occurs, no retry is early, and the folder is gone."""
    process = start("--json")
    output, errors = process.communicate()
    assert process.returncode == 0, output + errors
    result = json.loads(output)
    assert result["adds_up"]
    assert result["problems"] == []
    ends = [result[end] for end in ("forwarded", "retried", "discarded", "remaining")]
    assert sum(ends) == result["in"] == 300
    assert min(ends) > 0
    assert result["retries"]["early"] == 0
    failures = {reason for rule in result["rules"] for reason in rule["failures"]}
    assert failures == {
        "MQRC_Q_FULL",
        "MQRC_UNKNOWN_OBJECT_NAME",
        "MQRC_MSG_TOO_BIG_FOR_Q",
        "MQRC_LOOPING_PUBLICATION",
    }
    assert list(tmp_path.glob("redrive-demo-*")) == []


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("after", ["Broker: ", "Dead letters: ", " done, "])
def test_ctrl_c_stops_everything(
    start: Callable[..., subprocess.Popen[str]], after: str, tmp_path: Path
) -> None:
    """Before the job, while it starts, while it runs: no process stays, no folder, no trace."""
    process = start()
    assert process.stderr is not None
    for line in process.stderr:
        if after in line:
            break
    [folder] = tmp_path.glob("redrive-demo-*")
    broker = EmbeddedBroker(folder / "broker").status()
    assert broker.pid
    time.sleep(1)  # somewhere in what comes next
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, rest = process.communicate()
    assert process.returncode == 130, rest
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert not is_alive(broker.pid, "broker.properties")
    assert list(tmp_path.glob("redrive-demo-*")) == []


def test_a_folder_in_use_is_a_usage_error(tmp_path: Path) -> None:
    """At once, and with what to do."""
    (tmp_path / "data").touch()
    done = subprocess.run(
        [*COMMAND, "--directory", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert "hint: name a new folder" in done.stderr


def test_keeping_needs_a_folder() -> None:
    """A temporary one would stay for ever."""
    done = subprocess.run([*COMMAND, "--keep"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "redrive demo --keep --directory demo" in done.stderr

"""A whole demo, small and fast, as a user starts it; and how demos wait and report."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console
from tests.commands import redrive

from redrive.broker import EmbeddedBroker
from redrive.broker.process import is_alive
from redrive.demo.client import OutcomeRecord, Record, TopicRecord
from redrive.demo.command import Demonstration, DemoReport, Play
from redrive.demo.mq import MqDeadLetters
from redrive.demo.reconciliation import DemoMessage, End, Trace
from redrive.errors import EnvironmentFault

SMALL = ["--messages", "60", "--fast", "--seed", "7"]


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A demo in a session of its own; what it leaves in its temporary folder is seen."""
    return subprocess.Popen(
        [sys.executable, "-m", "redrive", "demo", *SMALL, *arguments],
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_demo_of_mq_adds_up(tmp_path: Path) -> None:
    demo = _start(tmp_path, "mq", "--json")
    out, error = demo.communicate()
    assert demo.returncode == 0, out + error
    assert list(tmp_path.glob("redrive-demo-*")) == []
    result: dict[str, Any] = json.loads(out)
    assert result["adds_up"]
    assert (result["in"], result["lost"], result["duplicated"]) == (60, 0, 0)
    assert (result["problems"], result["retries"]["early"]) == ([], 0)
    ends = [result[end] for end in ("forwarded", "retried", "discarded", "remaining")]
    assert ends == [14, 30, 8, 8]
    assert {reason for kind in result["kinds"] for reason in kind["failures"]} >= {
        "MQRC_UNKNOWN_OBJECT_NAME",
        "MQRC_MSG_TOO_BIG_FOR_Q",
        "MQRC_Q_FULL",
    }


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    demo = _start(tmp_path)
    yield demo
    demo.terminate()  # the broker has to be stopped if a test failed
    demo.communicate()


def test_ctrl_c_stops_everything(running: subprocess.Popen[str], tmp_path: Path) -> None:
    assert running.stderr is not None
    for line in running.stderr:
        if "redrive run" in line:
            break
    [folder] = tmp_path.glob("redrive-demo-*")
    broker = EmbeddedBroker(folder / "broker").status()
    assert broker.pid
    time.sleep(1)  # somewhere in what comes next
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does
    _, rest = running.communicate()
    assert running.returncode == 130, rest
    assert "interrupted" in rest
    assert "Traceback" not in rest
    assert not is_alive(broker.pid, "broker.properties")
    assert list(tmp_path.glob("redrive-demo-*")) == []


def test_folder_in_use_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    refused = redrive("demo", "-n", "50", "--directory", tmp_path, code=2)
    assert "is not empty" in refused.stderr
    assert "hint: name a new folder" in refused.stderr


def test_keeping_the_broker_needs_a_folder() -> None:
    refused = redrive("demo", "--keep", code=2)
    assert "redrive demo --keep --directory demo" in refused.stderr


def test_removed_demo_names_what_remains_of_it() -> None:
    refused = redrive("demo", "mqe", code=2)
    assert "the last version that has it is 0.1.0" in refused.stderr
    assert "examples/mqe/README.md" in refused.stderr
    assert "is not a demo" in redrive("demo", "mqq", code=2).stderr


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """A play for which every look takes a minute that nobody waits for."""
    now = [0.0]
    clock = "redrive.demo.command.time"
    monkeypatch.setattr(f"{clock}.monotonic", lambda: now[0])
    monkeypatch.setattr(f"{clock}.sleep", lambda _: now.__setitem__(0, now[0] + 60))
    script = MqDeadLetters(50, 1)
    script.messages = ()
    silent = cast("Any", Demonstration(script, directory=None, keep=False))
    silent.say = lambda _: None
    client = cast("Any", type("Client", (), {"outcomes": lambda _: {}})())
    return Play(script, cast("Any", None), client, silent)


def test_wait_lasts_as_long_as_there_is_progress(play: Play) -> None:
    left = iter([[str(number) for number in range(count)] for count in range(60, -1, -1)])
    play._wait_until("came", lambda: next(left))
    assert list(left) == []


def test_wait_in_vain_says_what_it_waited_for(play: Play) -> None:
    with pytest.raises(EnvironmentFault, match="2 messages never came, such as A:0:1") as caught:
        play._wait_until("came", lambda: ["A:0:2", "A:0:1"])
    assert "log" in caught.value.hint


def _trace(*outcomes: tuple[int, str, int], again: int | None = None) -> Trace:
    """A message with time, reason and attempt of each outcome, and when it failed again."""
    record = Record(None, None, ())
    letters = [record, *([Record(None, None, (), again)] if again is not None else [])]
    return Trace(
        DemoMessage(0, "any", "A", record, record, End("retried", "A"), None, len(letters) - 1),
        [TopicRecord("DLQ", 0, offset, letter) for offset, letter in enumerate(letters)],
        [("retried", TopicRecord("A", 0, 0, record))],
        [
            OutcomeRecord("a", at, "parked" if reason else "retried", 1, attempt, reason)
            for at, reason, attempt in outcomes
        ],
    )


@pytest.mark.parametrize(
    ("trace", "early"),
    [
        (_trace((0, "MQRC_Q_FULL", 1), (6_000, "MQRC_Q_FULL", 2), (12_000, "", 3)), 0),
        (_trace((0, "MQRC_Q_FULL", 1), (5_999, "", 2)), 1),
        (_trace((0, "", 1), (26_000, "", 2), again=20_000), 0),
        (_trace((0, "", 1), (25_999, "", 2), again=20_000), 1),
    ],
)
def test_retry_before_its_time_is_early(trace: Trace, early: int) -> None:
    report = DemoReport(MqDeadLetters(50, 1), [trace])
    assert report.document()["retries"]["early"] == early
    assert report.adds_up is not bool(early)


def test_report_says_where_each_kind_ended_and_how_late_retries_were() -> None:
    steps = [
        _trace((0, "MQRC_Q_FULL", 1), (6_000 + number * 10, "", 2)) for number in range(1, 101)
    ]
    console = Console(file=(stream := io.StringIO()), width=120)
    DemoReport(MqDeadLetters(50, 1), steps).show(console)
    text = stream.getvalue()
    assert "100 failed: Q_FULL" in text
    assert "retried A" in text
    assert (
        "100 retries, none early, after their earliest time by 0.01 s (least), 0.50 s (p50),"
        in text
    )
    assert "0.99 s (p99)" in text
    assert "100 in = 0 forwarded + 100 retried" in text
    assert "every byte is as it must be" in text

"""The whole demos, small and fast, as a user starts them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.fault_proxy import HOST
from tests.commands import redrive
from tests.demo.delayed import late_answers
from tests.demo.oracle import Walk
from tests.demo.world import sample_table

from redrive.broker import EmbeddedBroker
from redrive.broker.process import is_alive
from redrive.demo.cluster import Cluster, Observation
from redrive.demo.messages import Message
from redrive.demo.reconciliation import trace
from redrive.demo.scripts import NETWORKS, Orders
from redrive.demo.scripts.samples import LONGEST_AGE, generate
from redrive.settings import read_settings

DEMO = [sys.executable, "-m", "redrive", "demo"]
SMALL = ["--messages", "100", "--fast", "--seed", "7"]
DELAY = 0.03
"""Seconds by which every answer of a slow broker is late."""


def _run(
    *arguments: str, folder: Path, program: list[str] = DEMO
) -> subprocess.CompletedProcess[str]:
    """Run a demo; what it leaves in its temporary folder is seen."""
    return subprocess.run(
        [*program, *arguments],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        port: int = listening.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def slow_demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Observation]:
    """The result of a demo with a slow broker, and everything that lies on the broker after it."""
    folder = tmp_path_factory.mktemp("slow") / "demo"
    port, advertised = _free_port(), _free_port()
    program = [sys.executable, "-m", "tests.demo.delayed", str(port), str(advertised), "demo"]
    with late_answers(advertised, port, DELAY) as proxy:
        try:
            options = ["--json", "--directory", str(folder), "--keep"]
            done = _run(*SMALL, *options, folder=folder.parent, program=program)
            assert done.returncode == 0, done.stdout + done.stderr
            job = read_settings(folder / "redrive.toml").job
            with Cluster(job) as cluster:
                seen = cluster.observe({"DEAD.LETTERS"}, lambda _: None)
        finally:
            EmbeddedBroker(folder / "broker").stop()
    assert len(proxy.clients) > 10
    return json.loads(done.stdout), seen


def test_the_demo_adds_up_on_a_slow_broker(slow_demo: tuple[dict[str, Any], Observation]) -> None:
    """With the same figures as on any other; every kind of outcome occurs, no retry is early."""
    result, _ = slow_demo
    assert result["adds_up"]
    assert result["problems"] == []
    ends = {end: result[end] for end in ("forwarded", "retried", "discarded", "remaining")}
    assert ends == {"forwarded": 28, "retried": 44, "discarded": 13, "remaining": 15}
    assert result["in"] == 100
    assert result["retries"]["early"] == 0
    failures = {reason for rule in result["rules"] for reason in rule["failures"]}
    assert failures == {
        "MQRC_Q_FULL",
        "MQRC_UNKNOWN_OBJECT_NAME",
        "MQRC_MSG_TOO_BIG_FOR_Q",
        "MQRC_LOOPING_PUBLICATION",
    }


def test_every_attempt_is_the_one_that_the_specification_wants(
    slow_demo: tuple[dict[str, Any], Observation],
) -> None:
    """The rule, its order, the result, the reason, and every byte of what was written."""
    _, seen = slow_demo
    walk = Walk(sample_table())
    traces = trace(_samples(seen), seen, Orders(100, 7, fast=True).end_of)
    assert len(traces) == 100
    problems = [(one.message.number, it) for one in traces for it in walk.problems(one)]
    assert problems == []


def _samples(seen: Observation) -> list[Message]:
    """The dead letters of that demo, made again from its seed and its time."""
    [first] = [one for one in seen.inputs if one.number == 0]
    return list(generate(100, 7, first.record.timestamp + LONGEST_AGE))


@pytest.mark.parametrize("network", sorted(NETWORKS))
def test_the_demo_of_a_network_adds_up(network: str, tmp_path: Path) -> None:
    """On a real broker, with a channel that stands still; nothing stays behind."""
    options = ["--messages", "60", "--seed", "7", "--json"]
    done = _run(network, *options, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["adds_up"]
    assert result["put"] == sum(result["ends"].values()) == 60
    assert {end for end, count in result["ends"].items() if count} == {
        "on queues", "dead letters", "expired", "remaining",
    }  # fmt: skip
    assert "redrive channel stop" in done.stderr
    assert list(tmp_path.glob("redrive-demo-*")) == []


def test_the_demo_of_kafka_adds_up(tmp_path: Path) -> None:
    """With a topic that is away, and an application that fails: no round is early, none missing."""
    options = ["--messages", "60", "--fast", "--seed", "7", "--json"]
    done = _run("kafka", *options, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["adds_up"]
    assert (result["in"], result["lost"], result["duplicated"]) == (60, 0, 0)
    away = next(one for one in result["kinds"] if one["place"] == "invoices")
    assert away["failures"]["MQRC_UNKNOWN_OBJECT_NAME"] >= away["messages"] > 0
    rounds = result["rounds"]
    number = {one["what"]: one["messages"] for one in result["kinds"]}
    assert (rounds["early"], rounds["poison"]) == (0, {"3": number["a poison message"]})
    recovered = number["a gateway that answers again after some rounds"]
    assert rounds["count"] >= 2 * number["a poison message"] + recovered
    assert list(tmp_path.glob("redrive-demo-*")) == []


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start demos in sessions of their own, so that signals reach all their processes.

    Everything that they leave in their temporary folder is seen.
    """
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*DEMO, *SMALL, *options],
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


@pytest.mark.parametrize("after", ["Dead letters: ", " done, "])
def test_ctrl_c_stops_everything(
    start: Callable[..., subprocess.Popen[str]], after: str, tmp_path: Path
) -> None:
    """While the job starts, and while it runs: no process stays, no folder, no trace."""
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
    refused = redrive("demo", "--directory", tmp_path, code=2)
    assert "is not empty" in refused.stderr
    assert "hint: name a new folder" in refused.stderr


def test_keeping_needs_a_folder() -> None:
    """A temporary one would stay for ever."""
    refused = redrive("demo", "--keep", code=2)
    assert "redrive demo --keep --directory demo" in refused.stderr


def test_a_network_has_no_fast_demo() -> None:
    """The option would have no effect, and an unknown network no demo."""
    refused = redrive("demo", "mq", "--fast", code=2)
    assert "hint: --messages 100" in refused.stderr
    redrive("demo", "mqq", code=2)

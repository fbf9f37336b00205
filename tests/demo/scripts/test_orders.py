"""The demo with dead letters: its settings, what its ends are called, and how its load moves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.demo.world import ORDERS_DEMO, samples_of

from redrive.demo.messages import End, Found, Message, Record, State
from redrive.demo.script import Operator
from redrive.demo.scripts import Orders
from redrive.demo.scripts.load import INVOICES, QUEUES, Load
from redrive.kafka.administration import NewTopic
from redrive.settings import read_settings


def test_the_files_are_read_as_settings(tmp_path: Path) -> None:
    """The demo's job is what ``redrive run -c`` would run."""
    demo = Orders(300, 1, fast=True)
    demo.write_files(tmp_path, "127.0.0.1:9")
    job = read_settings(tmp_path / "redrive.toml").job
    assert job.limits["ORDERS"].max_depth == demo.max_depth
    assert job.limits["TEXTS.SHORT"].max_message_length == 4096
    assert job.directory == tmp_path / "job"
    assert job.connection.bootstrap_servers == "127.0.0.1:9"
    assert "RETRYINT(1)" in job.handlers[0].rules


@pytest.mark.parametrize(
    ("state", "line", "end"),
    [
        (State.LEFT, 29, "retried"),
        (State.LEFT, 10, "forwarded"),
        (State.REMAINING, 0, "remaining"),
        (State.WAITING, 0, "waiting"),
    ],
)
def test_an_end_is_named_after_the_rule(state: State, line: int, end: str) -> None:
    """Lines 29 and 10 of the sample table are RETRY and FWD."""
    found = Found("A:0:0", "A", 0, Record(None, None, ()), state, line)
    assert ORDERS_DEMO.end_of(found) == End(end, "A")


class _Ended(Exception):
    pass


class _Cluster:
    """A broker in memory, with a consumer that finds whatever it is allowed to read."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.written = 0

    def create(self, topics: Iterable[NewTopic]) -> None:
        self.topics += [f"{topic.name} after {self.written}" for topic in topics]

    def put(self, records: Iterable[tuple[str, Record]]) -> list[str]:
        return [topic for topic, _ in records]

    def consumer(self, *_of: str) -> _Cluster:
        return self

    def read(self, at_most: int) -> range:
        return range(at_most)

    def close(self) -> None:
        """As a consumer."""


class _Operator:
    """An operator for whom a tick takes as long as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ticks: list[float]) -> None:
        self.cluster = _Cluster()
        self.messages: list[Message] = []
        self._ticks = iter(ticks)
        self._now = 0.0
        monkeypatch.setattr("redrive.demo.scripts.load.time.monotonic", lambda: self._now)

    def put(self, messages: Iterable[Message]) -> None:
        self.messages += messages
        self.cluster.written = len(self.messages)

    def pause(self, _seconds: float) -> None:
        try:
            self._now += next(self._ticks)
        except StopIteration:
            raise _Ended from None


@pytest.mark.parametrize("tick", [0.25, 30.0])
def test_the_late_queue_comes_after_the_last_dead_letter(
    tick: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow the machine is: else the job would end before they have come."""
    samples = samples_of(1)
    operator = _Operator(monkeypatch, [tick] * 100)
    load = Load(samples, depth=5, rate=1.0, feeding=5, late_by=1)
    load.prepare(cast("Operator", operator))
    with pytest.raises(_Ended):
        load.move(cast("Operator", operator), lambda: True)
    before = [f"{name} after 0" for name in ("DEAD.LETTERS", *QUEUES) if name != INVOICES]
    assert operator.cluster.topics == [*before, f"{INVOICES} after 100"]
    assert operator.messages == samples
    assert load.has_late_queue


def test_nothing_is_consumed_before_a_message_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue is full when the job starts, and the late queue missing."""
    operator = _Operator(monkeypatch, [1.0] * 20)
    load = Load(samples_of(1), depth=5, rate=3.0, feeding=5, late_by=1)
    with pytest.raises(_Ended):
        load.move(cast("Any", operator), lambda: False)
    assert (load.consumed, load.has_late_queue) == (0, False)
    operator = _Operator(monkeypatch, [1.0] * 20)
    with pytest.raises(_Ended):
        load.move(cast("Any", operator), lambda: True)
    assert load.consumed == 60

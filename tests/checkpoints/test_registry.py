"""A live instance is not pushed aside by one that is to refuse; a dead one holds nobody up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from redrive.checkpoints import machine, registry
from redrive.checkpoints.epoch import RunIdentity
from redrive.checkpoints.instances import Share
from redrive.checkpoints.registry import Registration
from redrive.errors import AlreadyRunningError, TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection

WHOLE = Share(1, 1)
CONNECTION = Connection(bootstrap_servers="localhost:1")


@dataclass
class World:
    """A broker, its group of live instances, and a clock that only waiting moves."""

    now: float = 1_000_000.0
    is_silent: bool = False
    """Whether the broker gives no answer."""
    members: set[str] = field(default_factory=set)
    entries: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def asked(self, _: str) -> tuple[str, ...]:
        if self.is_silent:
            raise TransientFault("no answer in time")
        return tuple(self.members)

    def member(self, _connection: object, _application: str, name: str, _topic: str) -> Any:
        self.members.add(name)
        return SimpleNamespace(end=lambda: self.members.discard(name))

    def began(self, *_: object, details: Mapping[str, Any], **__: object) -> RunIdentity:
        self.entries["instance/1/1"] = dict(details)
        return RunIdentity("app", WHOLE, 1)

    def begin(self, *, take_over: bool = False) -> Registration:
        """Another instance of the share begins a run."""
        one = Registration(Cluster(CONNECTION), "app", WHOLE)
        control = cast("Any", SimpleNamespace(entries=dict(self.entries)))
        one.begin_run(control, topic="control", take_over=take_over)
        return one


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """What a registration finds."""
    found = World()
    monkeypatch.setattr(registry, "time", found)
    monkeypatch.setattr(Cluster, "members", lambda _, application: found.asked(application))
    monkeypatch.setattr(registry, "Heartbeat", found.member)
    monkeypatch.setattr(registry, "begin_run", found.began)
    monkeypatch.setattr(registry, "fencer_of", lambda _: None)
    return found


def elsewhere(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens from now on happens on another machine, which has the same name."""
    world.now += 3600
    monkeypatch.setattr(machine, "process_table", lambda: "another boot")


def gone() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_no_answer_is_not_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the broker does not tell who lives, nothing is pushed aside, and the reason is told."""
    world.begin()
    before = dict(world.entries)
    elsewhere(world, monkeypatch)
    world.is_silent = True
    with pytest.raises(TransientFault, match=r"whether 1/1 on .* still runs is not known"):
        world.begin()
    assert world.entries == before
    world.begin(take_over=True)


def test_a_live_instance_is_not_pushed_aside(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither one of this machine nor one elsewhere; one that has ended is."""
    live = world.begin()
    with pytest.raises(AlreadyRunningError, match="already works"):
        world.begin()
    elsewhere(world, monkeypatch)
    with pytest.raises(AlreadyRunningError, match="already works"):
        world.begin()
    live.end_heartbeat()
    world.begin()


@pytest.mark.parametrize("is_same_machine", [True, False])
def test_a_process_is_looked_up_on_its_own_machine_only(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_same_machine: bool
) -> None:
    """A machine of the same name has other processes, whatever their numbers."""
    world.begin()
    world.entries["instance/1/1"] = {**world.entries["instance/1/1"], "pid": gone()}
    if is_same_machine:
        world.begin()
        return
    elsewhere(world, monkeypatch)
    with pytest.raises(AlreadyRunningError):
        world.begin()


def test_a_member_elsewhere_with_the_same_name_and_number_is_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers have short names and small numbers: a live one stands for no dead one."""
    dead = world.begin()
    dead.end_heartbeat()
    elsewhere(world, monkeypatch)
    other = Registration(Cluster(CONNECTION), "app", Share(2, 2))
    world.members.add(other.member)
    assert other.member.rpartition("@")[2] == dead.member.rpartition("@")[2]
    world.begin()


@pytest.mark.parametrize("ahead", [-7200.0, 7200.0])
def test_an_entry_of_another_time_of_day_refuses_nobody_for_long(
    world: World, monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    """The clocks of two machines may differ; the broker alone tells who lives."""
    world.begin().end_heartbeat()
    since = world.now + ahead
    elsewhere(world, monkeypatch)
    world.entries["instance/1/1"] = {**world.entries["instance/1/1"], "since": since}
    begun = world.now
    world.begin()
    assert world.now - begun <= 20


def test_an_instance_that_begins_counts_until_it_can_be_a_member(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its entry and its first heartbeat nobody else begins."""
    world.begin().end_heartbeat()
    elsewhere(world, monkeypatch)
    world.entries["instance/1/1"] = {**world.entries["instance/1/1"], "since": world.now}
    begun = world.now
    world.begin()
    assert world.now - begun >= 10


def test_an_instance_of_an_earlier_version_is_told_by_name_and_number(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry names no machine, so only the broker is asked."""
    world.entries["instance/1/1"] = {"host": "here", "pid": os.getpid(), "token": "t", "since": 0}
    world.members.add(f"redrive-app@here:{os.getpid()}")
    with pytest.raises(AlreadyRunningError):
        world.begin()
    world.members.clear()
    world.begin()

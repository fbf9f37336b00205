"""A live instance is not pushed aside by one that is to refuse; a dead one holds nobody up."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import ended_process

from redrive.checkpoints import machine, registry
from redrive.checkpoints.epoch import RunIdentity
from redrive.checkpoints.instances import Share
from redrive.checkpoints.registry import Registration, vacant_shares
from redrive.errors import AlreadyRunningError, TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.messages import TopicPartition

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

    def time_ns(self) -> int:
        return int(self.now * 1e9)

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
        registration = Registration(Cluster(CONNECTION), "app", WHOLE)
        control = cast("Any", SimpleNamespace(entries=dict(self.entries)))
        registration.begin_run(control, topic="control", take_over=take_over)
        return registration


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """What a registration finds."""
    world_now = World()
    monkeypatch.setattr(registry, "time", world_now)
    monkeypatch.setattr(Cluster, "members", lambda _, application: world_now.asked(application))
    monkeypatch.setattr(registry, "Heartbeat", world_now.member)
    monkeypatch.setattr(registry, "begin_run", world_now.began)
    monkeypatch.setattr(registry, "fencer_of", lambda _: None)
    return world_now


def elsewhere(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens from now on happens on another machine, which has the same name."""
    world.now += 3600
    monkeypatch.setattr(machine, "process_table", lambda: "another boot")


def test_no_answer_is_not_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.begin()
    before = dict(world.entries)
    elsewhere(world, monkeypatch)
    world.is_silent = True
    with pytest.raises(TransientFault, match=r"whether 1/1 on .* is still running is unknown"):
        world.begin()
    assert world.entries == before
    world.begin(take_over=True)


def test_a_live_instance_is_not_pushed_aside(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
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
    world.begin()
    world.entries["instance/1/1"] = {**world.entries["instance/1/1"], "pid": ended_process()}
    if is_same_machine:
        world.begin()
        return
    elsewhere(world, monkeypatch)
    with pytest.raises(AlreadyRunningError):
        world.begin()


def test_a_member_elsewhere_with_the_same_name_and_number_is_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    world.begin().end_heartbeat()
    elsewhere(world, monkeypatch)
    world.entries["instance/1/1"] = {**world.entries["instance/1/1"], "since": world.now}
    begun = world.now
    world.begin()
    assert world.now - begun >= 10


def test_an_instance_of_an_earlier_version_is_told_by_name_and_number(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.entries["instance/1/1"] = {"host": "here", "pid": os.getpid(), "token": "t", "since": 0}
    world.members.add(f"redrive-app@here:{os.getpid()}")
    with pytest.raises(AlreadyRunningError):
        world.begin()
    world.members.clear()
    world.begin()


@dataclass
class Instances:
    """Instances without fixed shares, which look in turn as the job does."""

    world: World
    alive: list[Registration] = field(default_factory=list)

    def start(self) -> Registration:
        """Another instance joins."""
        self.world.now += 1
        registration = Registration(Cluster(CONNECTION), "app", None)
        registration.join("control")
        self.alive.append(registration)
        return registration

    def settle(self, partitions: int) -> list[str]:
        """Lets all of them look until nothing changes any more; their shares, oldest first."""
        for _ in range(20):
            before = [instance.share for instance in self.alive]
            for instance in self.alive:
                self.look(instance, partitions)
            self.world.now += 1
            if [instance.share for instance in self.alive] == before:
                return list(map(str, before))
        raise AssertionError("there is no end of changes")

    def look(self, instance: Registration, partitions: int) -> None:
        """What an instance does once a second."""
        entries = self.world.entries
        share = instance.assigned(partitions)
        if share == instance.share:
            return
        instance.give_up(cast("Any", SimpleNamespace(entries=entries, write=self.write)))
        if share is not None and not instance.take(share, "control"):
            entries[f"instance/{share}"] = {"member": instance.member, "token": instance._token}

    def write(self, changed: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Writes entries; None removes one."""
        for key, entry in changed.items():
            self.world.entries.pop(key, None)
            if entry is not None:
                self.world.entries[key] = entry


@pytest.fixture
def instances(world: World, monkeypatch: pytest.MonkeyPatch) -> Instances:
    """Instances that share the partitions out among themselves; none yet."""
    monkeypatch.setattr(registry, "read_entries", lambda *_: world.entries)
    return Instances(world)


def test_instances_that_come_and_go_share_all_partitions_out(instances: Instances) -> None:
    instances.start()
    assert instances.settle(6) == ["1/1"]
    instances.start()
    assert instances.settle(6) == ["1/2", "2/2"]
    instances.start()
    assert instances.settle(6) == ["1/3", "2/3", "3/3"]
    instances.alive.pop(0).end_heartbeat()  # killed: its entry stays
    assert instances.settle(6) == ["1/2", "2/2"]


def test_a_share_whose_instance_is_gone_is_vacant(world: World, instances: Instances) -> None:
    asked = Cluster(CONNECTION), "app", "control", Share(1, 2)
    first, two = instances.start(), instances.start()
    instances.settle(4)
    assert vacant_shares(*asked) == ()
    two.end_heartbeat()
    assert vacant_shares(*asked) == (Share(2, 2),)
    instances.alive.remove(two)
    assert instances.settle(4) == ["1/1"]
    assert vacant_shares(*asked) == ()
    first.end_heartbeat()
    world.entries.clear()
    assert vacant_shares(*asked) == (Share(1, 2), Share(2, 2))


def test_an_instance_that_is_known_twice_counts_once(
    instances: Instances, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance, _ = instances.start(), instances.start()
    assert instances.settle(6) == ["1/2", "2/2"]
    members = (*instances.world.members, instance.member)
    monkeypatch.setattr(Cluster, "members", lambda *_: members)
    assert instances.settle(6) == ["1/2", "2/2"]


def test_an_instance_more_than_partitions_stands_by(instances: Instances) -> None:
    for _ in range(3):
        instances.start()
    assert instances.settle(2) == ["1/2", "2/2", "None"]
    instances.alive.pop(0).end_heartbeat()
    assert instances.settle(2) == ["1/2", "2/2"]


def test_what_an_instance_does_not_give_up_is_taken_in_the_end(instances: Instances) -> None:
    silent = instances.start()
    assert instances.settle(4) == ["1/1"]
    instances.alive.clear()
    late = instances.start()
    began = instances.world.now
    while late.share is None:
        instances.look(late, 4)
        instances.world.now += 1
    assert str(silent.share) == "1/1"
    assert str(late.share) == "2/2"
    assert 10 <= instances.world.now - began <= 20


def test_an_instance_that_the_broker_forgot_keeps_its_share(instances: Instances) -> None:
    instance = instances.start()
    instances.start()
    assert instances.settle(4) == ["1/2", "2/2"]
    instances.world.members.clear()
    assert str(instance.assigned(4)) == "1/2"


def test_an_instance_with_a_fixed_share_is_not_pushed_aside(
    world: World, instances: Instances
) -> None:
    fixed = world.begin()
    instance = instances.start()
    assert instance.take(Share(1, 1), "control")
    world.now += 60
    with pytest.raises(AlreadyRunningError, match="fixed share"):
        instance.take(Share(1, 1), "control")
    fixed.end_heartbeat()
    assert instances.settle(4) == ["1/1"]
    with pytest.raises(AlreadyRunningError, match="already works"):
        world.begin()


LANES = st.builds(TopicPartition, st.text(min_size=1), st.integers(0, 200))
TOTALS = st.integers(1, 12)


@given(lane=LANES, total=TOTALS)
def test_every_partition_belongs_to_one_share(lane: TopicPartition, total: int) -> None:
    shares = [Share(number, total) for number in range(1, total + 1)]
    assert [share.owns(lane) for share in shares].count(True) == 1


@given(lane=LANES, data=st.data(), totals=st.tuples(TOTALS, TOTALS))
def test_shares_with_a_partition_in_common_overlap(
    lane: TopicPartition, data: st.DataObject, totals: tuple[int, int]
) -> None:
    share, other = (Share(data.draw(st.integers(1, total)), total) for total in totals)
    assert share.overlaps(other) or not (share.owns(lane) and other.owns(lane))


def test_topics_of_one_partition_are_shared_out() -> None:
    lanes = [TopicPartition(f"team{number}.dlq", 0) for number in range(200)]
    counts = [sum(Share(number, 4).owns(lane) for lane in lanes) for number in range(1, 5)]
    assert sum(counts) == 200
    assert min(counts) > 25

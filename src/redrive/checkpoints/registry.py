"""Registration and heartbeat of instances.

An instance is alive if it is a member of a consumer group that serves no other purpose: the
broker's session timeout is the only clock involved. On this machine its pid is also checked, which
answers at once. Without an answer a starting instance waits. The right to emit does not depend on
this (``epoch``).

Instances without fixed shares (``instance = "auto"``) distribute the partitions among the members
of that group: each computes its new share, gives up its old one, waits until the others have done
the same, and takes the new one.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from redrive.checkpoints import machine
from redrive.checkpoints.control import read_entries
from redrive.checkpoints.epoch import (
    EntryStore,
    RunIdentity,
    begin_run,
    fencer_of,
    instance_key,
    overlapping,
)
from redrive.checkpoints.instances import AUTO, Share, assigned
from redrive.errors import AlreadyRunningError, TransientFault
from redrive.kafka.heartbeat import Heartbeat

if TYPE_CHECKING:
    from redrive.checkpoints.control import ControlTopic
    from redrive.kafka.cluster import Cluster

_STARTING: Final = 15.0
"""Seconds during which an instance counts as alive before it is a member."""

_AUTO: Final = f"{AUTO}-"
"""Prefix of the names of instances without fixed shares."""

_claimed_here: Final[set[str]] = set()
"""Tokens of the instances in this process."""


class Registration:
    """This instance's entry, from claim to release.

    This class is responsible for: refusing to start beside a live instance, or taking over from
    it; beginning runs; showing that this instance is alive; finding its share of the partitions,
    where shares are not fixed.
    """

    def __init__(self, cluster: Cluster, application: str, share: Share | None) -> None:
        """Prepare a registration; nothing is claimed yet.

        A given share is fixed; without one the live instances distribute the partitions.
        """
        self._cluster = cluster
        self._application = application
        self.share = self._fixed = share
        """The share of this instance; None until it takes one."""
        self._wanted: Share | None = None
        self._wanted_since = 0.0
        self.is_member = False
        """Whether the broker knew this instance at the last check."""
        self._host, self._pid = socket.gethostname(), os.getpid()
        self._token = uuid.uuid4().hex
        # Names sort a starting instance after all others, so that it displaces none of them.
        since = f"{_AUTO}{time.time_ns():020}-" if share is None else ""
        self.member = f"redrive-{application}-{since}{self._token}@{self._host}:{self._pid}"
        """The unique client id of the heartbeat."""
        self._heartbeat: Heartbeat | None = None

    def join(self, topic: str) -> None:
        """Start the heartbeat of this instance, by a consumer of the control topic."""
        if self._heartbeat is None:
            connection = self._cluster.connection
            self._heartbeat = Heartbeat(connection, self._application, self.member, topic)

    def assigned(self, partitions: int) -> Share | None:
        """The share that this instance should have among the live instances.

        The partitions are those of all topics read.

        Returns:
            None if it has none: it stands by, as there are more instances than partitions, or is
            not a member yet. A former member keeps its share.

        Raises:
            TransientFault: The broker did not answer in time.
        """
        everybody = self._cluster.members(self._application)
        self.is_member = self.member in everybody
        if not self.is_member:
            return self.share
        # An instance that rejoined, as after a broker restart, is listed twice for some seconds.
        members = frozenset(filter(self._rebalances, everybody))
        return assigned(members, self.member, partitions)

    def take(self, share: Share, topic: str) -> str:
        """Take another share, once no live instance works on part of it.

        The topic is the control topic.

        Returns:
            Names of the instances that still work on part of it; empty if the share is taken. A
            part that others do not give up in 15 s is taken from them, as they may not know of the
            change.

        Raises:
            AlreadyRunningError: A live instance has a fixed share, which it does not give up.
            TransientFault: The broker did not answer in time.
        """
        if share != self._wanted:
            self._wanted, self._wanted_since = share, time.monotonic()
        waited = time.monotonic() - self._wanted_since
        alive = self._alive(overlapping(read_entries(self._cluster, topic), share), waited)
        if alive and waited <= _STARTING:
            return _name(alive)
        fixed = {
            key: entry
            for key, entry in alive.items()
            if not self._rebalances(self._member_of(entry))
        }
        if fixed:
            raise AlreadyRunningError(
                f"an instance with a fixed share is running: {_name(fixed)}",
                hint='stop it, or restart it with instance = "auto" too',
            )
        self.share, self._wanted = share, None
        return ""

    def lose(self) -> None:
        """Note that another instance has taken the share, or part of it."""
        self.share = self._fixed

    def begin_run(
        self,
        control: ControlTopic,
        *,
        topic: str,
        take_over: bool,
        waiting: Callable[[str], None] = lambda _name: None,
    ) -> RunIdentity:
        """Claim the share for this instance, so that no other instance can emit for it.

        Args:
            control: The control topic, open for writing.
            topic: Name of the control topic, which the heartbeat consumer subscribes to.
            take_over: Whether to fence a live instance instead of refusing to start.
            waiting: Called with the name of an instance that may be dying, while waiting for it.

        Raises:
            AlreadyRunningError: A live instance works on an overlapping share.
            TransientFault: The broker did not answer in time, or none about an instance.
        """
        assert self.share is not None, "a share is taken before"
        if not take_over:
            self._wait_for_the_dead(overlapping(control.entries, self.share), waiting)
        details = {
            "host": self._host,
            "pid": self._pid,
            "processes": machine.process_table(),
            "member": self.member,
            "token": self._token,
            "since": time.time(),
        }
        run = begin_run(
            control,
            fencer_of(self._cluster.connection),
            application=self._application,
            share=self.share,
            details=details,
        )
        _claimed_here.add(self._token)
        self.join(topic)
        return run

    def release(self, control: EntryStore) -> None:
        """Remove this instance's entry, if it still owns it, and leave the live instances."""
        self.end_heartbeat()
        self.give_up(control)

    def give_up(self, control: EntryStore) -> None:
        """Remove this instance's entry, if it still owns it; it has no share any more."""
        if self.share is None:
            return
        entry = control.entries.get(instance_key(self.share))
        if entry and entry.get("token") == self._token:
            control.write({instance_key(self.share): None})
        self.lose()

    def end_heartbeat(self) -> None:
        """Leave the group of live instances."""
        _claimed_here.discard(self._token)
        if self._heartbeat is not None:
            self._heartbeat.end()
            self._heartbeat = None

    def _wait_for_the_dead(
        self, others: Mapping[str, Mapping[str, Any]], waiting: Callable[[str], None]
    ) -> None:
        begun = time.monotonic()
        reported: set[str] = set()
        while alive := self._alive(others, waited := time.monotonic() - begun):
            name = _name(alive)
            if waited > _STARTING:
                raise AlreadyRunningError(
                    f"an instance already works on an overlapping share: {name}",
                    hint='stop it, give this one another share (instance = "1/2"),'
                    ' or set on_conflict = "take over"',
                )
            if name not in reported:
                reported.add(name)
                waiting(name)
            time.sleep(0.5)

    def _alive(
        self, others: Mapping[str, Mapping[str, Any]], waited: float
    ) -> dict[str, Mapping[str, Any]]:
        suspects = {key: entry for key, entry in others.items() if not self._is_dead(entry)}
        if not suspects:
            return {}
        try:
            members = self._cluster.members(self._application)
        except TransientFault as fault:
            raise TransientFault(
                f"whether {_name(suspects)} is still running is unknown: {fault.message}",
                hint="nothing is emitted until the broker tells; if that instance is gone for"
                ' certain, set on_conflict = "take over"',
            ) from fault
        return {
            key: entry
            for key, entry in suspects.items()
            if self._member_of(entry) in members or (waited <= _STARTING and _is_starting(entry))
        }

    def _rebalances(self, member: str) -> bool:
        return member.startswith(f"redrive-{self._application}-{_AUTO}")

    def _member_of(self, entry: Mapping[str, Any]) -> str:
        earlier = f"redrive-{self._application}@{entry.get('host')}:{entry.get('pid')}"
        return str(entry.get("member", earlier))

    def _is_dead(self, entry: Mapping[str, Any]) -> bool:
        if entry.get("token") == self._token:
            return True  # its own entry: this instance begins another run
        # Certain only for processes that this process can see.
        if entry.get("processes") != machine.process_table():
            return False
        pid = entry.get("pid")
        if pid == self._pid:  # in a container the new process may have the pid of the old one
            return entry.get("token") not in _claimed_here
        return not isinstance(pid, int) or not machine.runs(pid)


def vacant_shares(
    cluster: Cluster, application: str, topic: str, share: Share
) -> tuple[Share, ...]:
    """The shares without a live instance.

    ``share`` is any share, for the total number; ``topic`` is the control topic.

    Raises:
        TransientFault: The broker did not answer in time.
    """
    every = [Share(number, share.total) for number in range(1, share.total + 1)]
    entries, members = read_entries(cluster, topic), cluster.members(application)
    return tuple(
        candidate
        for candidate in every
        if not any(
            entry.get("member") in members for entry in overlapping(entries, candidate).values()
        )
    )


def _is_starting(entry: Mapping[str, Any]) -> bool:
    """Whether an instance may not be a member yet; clocks may differ, so only for a short time."""
    return abs(time.time() - float(entry.get("since", 0))) < _STARTING


def _name(alive: Mapping[str, Mapping[str, Any]]) -> str:
    return ", ".join(
        f"{key.partition('/')[2]} on {entry.get('host')} (process {entry.get('pid')})"
        for key, entry in alive.items()
    )

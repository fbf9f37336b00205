"""Other applications of Redrive that have positions on the topics of a job.

Each application has its own positions, so a second one handles everything again. A start asks for
the positions of the others before its own first one on a topic; later starts continue. To be found,
an application needs a control topic that this user may see.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redrive.checkpoints.control import ControlTopic, read_entries
from redrive.checkpoints.instances import Share
from redrive.checkpoints.registry import Registration
from redrive.engine.names import applications_of, control_topic, instances_group, own_prefix
from redrive.errors import (
    AlreadyRunningError,
    ConfigurationError,
    FatalFault,
    ProtocolError,
)
from redrive.kafka.administration import group_positions, groups_with_members
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import AGAIN, ANSWER
from redrive.messages import TopicPartition
from redrive.printable import counted

_TAKEN: Final = "taken/"
"""Prefix of the keys of topics whose positions another application took over."""
_DYING: Final = 15.0
"""Seconds for an application that was just killed to be missed: more than its session's timeout."""
_SHOWN: Final = 3
"""Maximum partitions named in one message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherApplication:
    """An application with positions on some topics of another job."""

    name: str
    positions: Mapping[TopicPartition, int]
    instances: tuple[str, ...] | None
    """``host:process`` of those that run; None if unknown."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics on which it has positions."""
        return tuple(dict.fromkeys(lane.topic for lane in self.positions))

    @property
    def sentence(self) -> str:
        """What it handles, who runs it and how far it is."""
        shown = sorted(self.positions.items())
        places = ", ".join(f"{lane} to offset {offset}" for lane, offset in shown[:_SHOWN])
        more = ", ..." if len(shown) > _SHOWN else ""
        running = who_runs(self.instances)
        return (
            f"{' and '.join(self.topics[:_SHOWN])} {'is' if len(self.topics) == 1 else 'are'}"
            f" handled by the application {self.name} ({running}), which has read {places}{more}"
        )


def who_runs(instances: Sequence[str] | None) -> str:
    """Which instances of an application run, each ``host:process``; None if unknown."""
    if instances is None:
        return "unknown whether it runs"
    return f"running: {', '.join(instances)}" if instances else "not running"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherApplications:
    """The other applications on some topics."""

    found: tuple[OtherApplication, ...] = ()
    hidden: tuple[str, ...] = ()
    """Applications whose positions this user may not see."""

    def named(self, name: str) -> OtherApplication | None:
        """The application of a name, if it has positions."""
        return next((application for application in self.found if application.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopics:
    """The topics that an application has not handled yet, or no longer may."""

    unknown: frozenset[str] = frozenset()
    """Topics without an earlier position of its own."""
    taken: frozenset[str] = frozenset()
    """Topics whose positions another application took over."""

    def __or__(self, other: NewTopics) -> NewTopics:
        return NewTopics(unknown=self.unknown | other.unknown, taken=self.taken | other.taken)

    @property
    def all(self) -> frozenset[str]:
        """All of them."""
        return self.unknown | self.taken

    @classmethod
    def of(cls, entries: Mapping[str, Mapping[str, Any]], topics: Iterable[str]) -> NewTopics:
        """Those among some topics, by the entries of the application's control topic."""
        topics = frozenset(topics)
        return cls(
            unknown=frozenset(
                name for name in topics if not entries.get(f"topic/{name}", {}).get("identity")
            ),
            taken=frozenset(name for name in topics if f"{_TAKEN}{name}" in entries),
        )


def new_topics(cluster: Cluster, application: str, topics: Collection[str]) -> NewTopics:
    """The topics that an application has not handled yet, or no longer may.

    Args:
        cluster: The cluster, which was asked for its topics.
        application: The application.
        topics: The topics that it is to read.

    Raises:
        TransientFault: The broker did not answer in time.
    """
    control = control_topic(application)
    entries = read_entries(cluster, control) if cluster.partitions([control]) else {}
    return NewTopics.of(entries, topics)


def other_applications(
    cluster: Cluster, application: str, topics: Collection[str]
) -> OtherApplications:
    """The other applications with positions on some topics, whether they run or not.

    Args:
        cluster: The cluster; a client for each application found stays open in it.
        application: The application that asks.
        topics: The topics that it is to read.

    Raises:
        TransientFault: The broker did not answer in time: it is unknown.
    """
    existing = cluster.topics()
    names = sorted(applications_of(existing) - {application})
    lanes = cluster.lanes(topics)
    if not names or not lanes:
        return OtherApplications()
    connection = cluster.connection
    known = group_positions(connection, names, lanes)
    quiet = {instances_group(name): name for name in names if known[name] == {}}
    for group in groups_with_members(connection, [*quiet]):
        # Its first positions may be in a transaction that has just been committed.
        known[quiet[group]] = _settled_positions(cluster, quiet[group], lanes)
    return OtherApplications(
        found=tuple(
            OtherApplication(name=name, positions=positions, instances=_instances(cluster, name))
            for name, positions in known.items()
            if positions
        ),
        hidden=tuple(name for name, positions in known.items() if positions is None),
    )


def _settled_positions(
    cluster: Cluster, application: str, lanes: Collection[TopicPartition]
) -> dict[TopicPartition, int] | None:
    try:
        committed = cluster.committed(application, lanes, stable=True)
    except FatalFault:
        return None  # the user may not see them
    return {lane: offset for lane, offset in committed.items() if offset is not None}


def _instances(cluster: Cluster, application: str) -> tuple[str, ...] | None:
    try:
        return cluster.instances(application)
    except FatalFault:
        return None  # the user may not see them


def notes_about_others(cluster: Cluster, application: str, topics: Collection[str]) -> list[str]:
    """What a user has to know about other applications on the topics of a job.

    An ended one is mentioned only if it would make a start of the job refuse.

    Raises:
        TransientFault: The broker did not answer in time.
    """
    others = other_applications(cluster, application, topics)
    new = new_topics(cluster, application, topics).all
    notes = []
    for other in others.found:
        if not new.isdisjoint(other.topics):
            notes.append(f"{other.sentence}: a start of {application} is refused, and says how on")
        elif other.instances:
            notes.append(f"{other.sentence}: both handle all messages")
    if others.hidden and new:
        names = ", ".join(others.hidden)
        notes.append(f"this user may not see whether other applications handle the same: {names}")
    return notes


def refusal(cluster: Cluster, other: OtherApplication) -> ConfigurationError:
    """The error of a start beside another application, with the three ways on."""
    return ConfigurationError(
        f"{other.sentence}: this job would handle all of it again",
        hint=f"run an instance of {other.name}: the same settings with its name; or take over its"
        f" positions by --take-over {other.name} once it is stopped"
        f"{_what_stays(cluster, other.name)}; or handle a copy of everything on purpose by"
        " --beside",
    )


def _what_stays(cluster: Cluster, application: str) -> str:
    counts = waiting_messages(cluster, application)
    if counts is None or not any(counts):
        return ""
    parked, remaining = counts
    return f" ({counted(parked, 'parked message')} and {remaining} remaining ones stay with it)"


def waiting_messages(cluster: Cluster, application: str) -> tuple[int, int] | None:
    """How many messages of an application are parked and remain; None if not all can be read."""
    prefix = own_prefix(application)
    own = [name for name in cluster.topics() if name.startswith(prefix)]
    parked = cluster.lanes(name for name in own if name.endswith(("-retry", "-retry-backoff")))
    remaining = cluster.lanes(name for name in own if name.endswith("-remaining"))
    copies: set[tuple[TopicPartition, bytes | None]] = set()
    count = 0
    try:
        extents = cluster.extents([*parked, *remaining])
        committed = cluster.committed(application, parked)
        starts = {lane: extents[lane].position(committed.get(lane)) for lane in extents}
        ends = {lane: extent.end for lane, extent in extents.items()}
        for record in cluster.read(starts, ends, seconds=ANSWER):
            key = record.lane, record.key
            if not record.lane.topic.endswith("-remaining"):
                count += record.value is not None
            elif record.value is None:
                copies.discard(key)
            else:
                copies.add(key)
    except ProtocolError:
        return None
    return count, len(copies)


def take_over(
    cluster: Cluster, other: OtherApplication, *, topics: Collection[str], by: str
) -> dict[TopicPartition, int]:
    """The positions of an application that does not run and cannot continue on these topics.

    Its runs are fenced as by another start of it, and its control topic names the topics, so that
    its own next start on them is refused like a first one.

    Args:
        cluster: The cluster.
        other: The application.
        topics: The topics that the other application takes over.
        by: That application.

    Raises:
        AlreadyRunningError: It runs.
        TransientFault: The broker did not answer in time, or this user lacks a right.
    """
    control = control_topic(other.name)
    _await_end(cluster, other.name)
    registration = Registration(cluster, other.name, Share(1, 1))
    try:
        with ControlTopic(cluster, control) as entries:
            try:
                registration.begin_run(entries, topic=control, take_over=False)
                entries.write({f"{_TAKEN}{name}": {"by": by} for name in topics})
                lanes = [lane for lane in other.positions if lane.topic in topics]
                committed = cluster.committed(other.name, lanes, stable=True)
            finally:
                registration.release(entries)
    except AlreadyRunningError as error:
        raise _still_runs(other.name, error.message) from error
    except FatalFault as fault:
        raise ConfigurationError(
            f"the positions of {other.name} cannot be taken over: {fault.message}",
            hint="this user needs the rights of that application too: see redrive acls with its"
            " settings",
        ) from fault
    return {lane: offset for lane, offset in committed.items() if offset is not None}


def kept_again(topics: Iterable[str]) -> dict[str, None]:
    """What to write to an application's control topic once it handles topics again."""
    return {f"{_TAKEN}{name}": None for name in topics}


def _await_end(cluster: Cluster, application: str) -> None:
    deadline = time.monotonic() + _DYING
    while members := cluster.members(application):
        if time.monotonic() > deadline:
            raise _still_runs(
                application, ", ".join(member.rpartition("@")[2] for member in members)
            )
        time.sleep(AGAIN)


def _still_runs(application: str, detail: str) -> AlreadyRunningError:
    return AlreadyRunningError(
        f"the positions of {application} cannot be taken over while it runs: {detail}",
        hint="stop it first",
    )


def no_positions(name: str, topics: Iterable[str]) -> ConfigurationError:
    """The error of a take-over from an application without positions."""
    return ConfigurationError(
        f"the application {name} has no position on {' or '.join(sorted(topics))}",
        hint="redrive status -c with its settings shows its topics; a start without take_over"
        " begins at the oldest message",
    )

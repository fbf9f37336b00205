"""States that an operator changes while the job runs: channels, queues, released messages.

They are entries of the application's compacted tables topic, so they last over restarts. Whoever
decides by them - the source that holds transmission queues, the emitters - follows the topic; a
change is seen within a moment, never in the middle of a transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from redrive.messages import TopicPartition
from redrive.topology.replays import CANCELLED, REPLAY, Replay, free_by_order, read_replays

_CHANNEL: Final = "channel/"
_QUEUE: Final = "queue/"
_RELEASE: Final = "release/"
_DISCOVERED: Final = "discovered/"
STATE_KINDS: Final = (_CHANNEL, _QUEUE, _RELEASE, _DISCOVERED, REPLAY, CANCELLED)

Entry = tuple[str, dict[str, Any]]
"""Key and value of one entry of the tables topic."""


def channel_entry(
    queue_manager: str, channel: str, *, is_running: bool, because: str = ""
) -> Entry:
    """The entry that starts or stops a channel.

    Args:
        queue_manager: The sending manager; of a home-server queue, the one that pulls.
        channel: Name of the channel, or of the connection in MQ Everyplace.
        is_running: Whether it moves messages.
        because: Why the job stopped it; empty if a person decided.
    """
    why = {"because": because} if because else {}
    return f"{_CHANNEL}{queue_manager}/{channel}", {"running": is_running, **why}


def queue_entry(*, queue: str, queue_manager: str, put_enabled: bool) -> Entry:
    """The entry that enables or disables puts to a queue, whatever its definition says.

    Args:
        queue: The queue: local, alias or remote.
        queue_manager: The manager that owns the queue; empty for a queue of kind ``kafka``.
        put_enabled: Whether puts are allowed.
    """
    return f"{_QUEUE}{queue_manager}/{queue}", {"put": put_enabled}


def release_entry(lane: TopicPartition, offset: int) -> Entry:
    """The entry that sets free what waits on one partition, once (``triggerTransmission``).

    Args:
        lane: The partition.
        offset: Messages below it are free, whatever the state of the channel.
    """
    return f"{_RELEASE}{lane.topic}/{lane.partition}", {"offset": offset}


def discovered_entry(at: str, queue: str, queue_manager: str) -> Entry:
    """The entry that keeps a definition which queue discovery created.

    Args:
        at: The manager that has the definition.
        queue: Its queue.
        queue_manager: The queue's manager.
    """
    key = f"{_DISCOVERED}{at}/{queue}@{queue_manager}"
    return key, {"at": at, "queue": queue, "queue_manager": queue_manager}


@dataclass(frozen=True, slots=True)
class States:
    """All states at one moment; what no entry names is as it is defined."""

    running: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    """Whether channels run, by queue manager and channel."""
    why_stopped: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Why the job stopped channels, likewise; those that a person stopped are left out."""
    put_enabled: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    """Whether puts are allowed, by queue manager and queue."""
    releases: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Offsets below which messages are free."""
    discovered: frozenset[tuple[str, str, str]] = frozenset()
    """Remote definitions that were created: the manager, the queue and its own manager."""
    replays: Mapping[str, Replay] = field(default_factory=dict)
    """Accepted plans by their id."""


NO_STATES = States()
"""Everything is as it is defined."""


def states_of(entries: Mapping[str, Mapping[str, Any]]) -> States:
    """The states among the entries of a tables topic; entries of other kinds are left out."""
    running: dict[tuple[str, str], bool] = {}
    why_stopped: dict[tuple[str, str], str] = {}
    put_enabled: dict[tuple[str, str], bool] = {}
    releases: dict[TopicPartition, int] = {}
    discovered: set[tuple[str, str, str]] = set()
    for key, value in entries.items():
        kind, _, rest = key.partition("/")
        owner, _, name = rest.partition("/") if kind != "release" else rest.rpartition("/")
        match f"{kind}/", value:
            case "channel/", {"running": bool(state)}:
                running[owner, name] = state
                if not state and value.get("because"):
                    why_stopped[owner, name] = str(value["because"])
            case "queue/", {"put": bool(state)}:
                put_enabled[owner, name] = state
            case "release/", {"offset": int(offset)} if name.isdecimal():
                releases[TopicPartition(owner, int(name))] = offset
            case (
                "discovered/",
                {"at": str(at), "queue": str(queue), "queue_manager": str(manager)},
            ):
                discovered.add((at, queue, manager))
    replays = read_replays(entries)
    for lane, end in free_by_order(replays.values()).items():
        releases[lane] = max(end, releases.get(lane, 0))
    return States(
        running=running,
        why_stopped=why_stopped,
        put_enabled=put_enabled,
        releases=releases,
        discovered=frozenset(discovered),
        replays=replays,
    )

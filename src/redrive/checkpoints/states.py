"""States that an operator changes while the job runs: channels, queues, released messages.

They are entries of the application's compacted control topic, so they last over restarts. Whoever
decides by them - the source that holds transmission queues, the emitters - follows the topic; a
change is seen within a moment, never in the middle of a transaction.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from redrive.checkpoints.kafka import ClientConfig
from redrive.checkpoints.offsets import LATEST
from redrive.checkpoints.protocol import Lane

_CHANNEL: Final = "channel/"
_QUEUE: Final = "queue/"
_RELEASE: Final = "release/"
_DISCOVERED: Final = "discovered/"
_KINDS: Final = (_CHANNEL, _QUEUE, _RELEASE, _DISCOVERED)
_AT_ONCE: Final = 1_000
"""Entries taken at one look."""
_LOOK: Final = 0.05
"""Seconds of one look while the first ones are awaited."""
_FIRST_WAIT: Final = 10.0
"""Seconds that the first look waits for the entries that exist."""

Entry = tuple[str, dict[str, Any]]
"""Key and value of one entry of the control topic."""


def channel_entry(queue_manager: str, channel: str, *, is_running: bool) -> Entry:
    """The entry that starts or stops a channel.

    Args:
        queue_manager: The sending manager; of a home-server queue, the one that pulls.
        channel: Name of the channel, or of the connection in MQ Everyplace.
        is_running: Whether it moves messages.
    """
    return f"{_CHANNEL}{queue_manager}/{channel}", {"running": is_running}


def queue_entry(queue_manager: str, queue: str, *, put_enabled: bool) -> Entry:
    """The entry that enables or disables puts to a queue, whatever its definition says.

    Args:
        queue_manager: The manager that owns the queue; empty for a queue of kind ``kafka``.
        queue: The queue: local, alias or remote.
        put_enabled: Whether puts are allowed.
    """
    return f"{_QUEUE}{queue_manager}/{queue}", {"put": put_enabled}


def release_entry(lane: Lane, offset: int) -> Entry:
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
    put_enabled: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    """Whether puts are allowed, by queue manager and queue."""
    releases: Mapping[Lane, int] = field(default_factory=dict)
    """Offsets below which messages are free."""
    discovered: frozenset[tuple[str, str, str]] = frozenset()
    """Remote definitions that were created: the manager, the queue and its own manager."""


NO_STATES = States()
"""Everything is as it is defined."""


def states_of(entries: Mapping[str, Mapping[str, Any]]) -> States:
    """The states among the entries of a control topic; entries of other kinds are left out."""
    running: dict[tuple[str, str], bool] = {}
    put_enabled: dict[tuple[str, str], bool] = {}
    releases: dict[Lane, int] = {}
    discovered: set[tuple[str, str, str]] = set()
    for key, value in entries.items():
        kind, _, rest = key.partition("/")
        owner, _, name = rest.partition("/") if kind != "release" else rest.rpartition("/")
        match f"{kind}/", value:
            case "channel/", {"running": bool(state)}:
                running[owner, name] = state
            case "queue/", {"put": bool(state)}:
                put_enabled[owner, name] = state
            case "release/", {"offset": int(offset)} if name.isdecimal():
                releases[Lane(owner, int(name))] = offset
            case (
                "discovered/",
                {"at": str(at), "queue": str(queue), "queue_manager": str(manager)},
            ):
                discovered.add((at, queue, manager))
    return States(running, put_enabled, releases, frozenset(discovered))


class StatesFollower:
    """Follows the states of one application.

    This class is responsible for: one consumer of the control topic, which reads every entry from
    the start and then what is new; a broker that does not answer leaves the states as they are.
    """

    def __init__(self, client: ClientConfig, topic: str) -> None:
        """Start to follow.

        Args:
            client: librdkafka settings of the cluster.
            topic: The application's control topic, which exists.
        """
        self._client = client
        self._topic = topic
        self._entries: dict[str, dict[str, Any]] = {}
        self._states = NO_STATES
        self._is_complete = False
        self._consumer = Consumer(
            {
                **client,
                "group.id": "redrive-states-reader",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 2,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def states(self) -> States:
        """The states as far as they are known now; the same value as long as nothing changed.

        The first call waits until everything that is written has been read.
        """
        if not self._is_complete:
            self._is_complete = self._read_all()
        elif messages := self._consumer.consume(_AT_ONCE, timeout=0):
            self._take(messages)
        return self._states

    def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close()

    def _read_all(self) -> bool:
        partition = TopicPartition(self._topic, 0)
        deadline = time.monotonic() + _FIRST_WAIT
        try:
            end = self._end()
            while end and self._consumer.position([partition])[0].offset < end:
                if time.monotonic() > deadline:
                    return False
                # A call returns when it has all it may take or its time is over, never before.
                self._take(self._consumer.consume(_AT_ONCE, timeout=_LOOK))
        except KafkaException:
            return False
        return True

    def _end(self) -> int:
        """Behind everything that was written, also by a transaction that ends this moment."""
        admin = AdminClient({**self._client, "log_level": 2})
        lane = TopicPartition(self._topic, 0)
        asked = {lane: LATEST}
        answer = admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=_FIRST_WAIT
        )
        return int(answer[lane].result(_FIRST_WAIT).offset)

    def _take(self, messages: list[Any]) -> None:
        changed = False
        for message in messages:
            key = (message.key() or b"").decode(errors="replace")
            if message.error() is not None or not key.startswith(_KINDS):
                continue
            changed = True
            if message.value() is None:
                self._entries.pop(key, None)
            else:
                self._note(key, message.value())
        if changed:
            self._states = states_of(self._entries)

    def _note(self, key: str, content: bytes) -> None:
        try:
            value = orjson.loads(content)
        except orjson.JSONDecodeError:
            return
        if isinstance(value, dict):
            self._entries[key] = value

"""Who works on which share: registration, fencing and take-over (design 6, steps 2 and 5).

An instance enters itself in the control topic with the transactional ids it emits with. Whoever
starts on an overlapping share fences those ids before it reads any committed offset, so of two
instances only the later one can commit. Whether the other one is still alive is told by its
membership in a consumer group that serves no other purpose: the broker's session timeout is the
only clock involved.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from redrive.checkpoints.instances import Share
from redrive.errors import AlreadyRunningError, TransientFault
from redrive.kafka.producer import ClientConfig
from redrive.topology.names import instances_group

if TYPE_CHECKING:
    from redrive.checkpoints.control import ControlTopic
    from redrive.kafka.connection import Connection

_SESSION_TIMEOUT = 6.0
"""Seconds after which the broker drops a member that sends no heartbeat: its smallest default."""
_STARTING = 15.0
"""Seconds during which an instance counts as alive although it is no member yet."""
_ANSWER_TIMEOUT = 30.0
"""Seconds to wait for one answer of the broker."""


_claimed_here: set[str] = set()
"""Tokens of the instances that live in this process."""


class Registration:
    """This instance's entry, from claim to release.

    This class is responsible for:
        - refusing to start beside a live instance, or taking over from it;
        - fencing every transactional id that could still emit for this share;
        - showing that this instance is alive.
    """

    def __init__(
        self, connection: Connection, application: str, share: Share, ids: Iterable[str]
    ) -> None:
        """Prepare a registration; nothing is claimed yet.

        Args:
            connection: The cluster.
            application: The application's name.
            share: This instance's share of the partitions.
            ids: The transactional ids this instance emits with.
        """
        self._client = connection.librdkafka()
        self._application = application
        self._share = share
        self._ids = tuple(ids)
        self._host, self._pid = socket.gethostname(), os.getpid()
        self._token = uuid.uuid4().hex
        self._stopping = threading.Event()
        self._heart: threading.Thread | None = None

    def claim(
        self,
        control: ControlTopic,
        *,
        topic: str,
        take_over: bool,
        waiting: Callable[[str], None] = lambda _name: None,
    ) -> None:
        """Makes the share this instance's own.

        Args:
            control: The control topic, open for writing.
            topic: Name of the control topic, which the heartbeat consumer subscribes to.
            take_over: Whether to fence a live instance instead of refusing to start.
            waiting: Told the name of an instance that may be dying and is waited for.

        Raises:
            AlreadyRunningError: A live instance works on an overlapping share.
            TransientFault: The broker gave no answer in time.
        """
        others = self._overlapping(control)
        if not take_over:
            self._wait_for_the_dead(others, waiting)
        fence(self._client, {*self._ids, *(i for entry in others.values() for i in entry["ids"])})
        entry = {
            "ids": list(self._ids),
            "host": self._host,
            "pid": self._pid,
            "token": self._token,
            "since": time.time(),
        }
        control.write({**dict.fromkeys(others), self._key: entry})
        _claimed_here.add(self._token)
        self._start_heart(topic)

    def release(self, control: ControlTopic) -> None:
        """Takes this instance's entry back, if it is still its own."""
        self.stop_heart()
        entry = control.entries.get(self._key)
        if entry and entry.get("token") == self._token:
            control.write({self._key: None})

    def stop_heart(self) -> None:
        """Leaves the group of live instances."""
        self._stopping.set()
        _claimed_here.discard(self._token)
        if self._heart is not None:
            self._heart.join(timeout=10)

    @property
    def _key(self) -> str:
        return f"instance/{self._share}"

    def _overlapping(self, control: ControlTopic) -> dict[str, dict[str, Any]]:
        others = {}
        for key, entry in control.entries.items():
            kind, _, text = key.partition("/")
            if kind != "instance" or not isinstance(entry.get("ids"), list):
                continue
            with contextlib.suppress(ValueError):
                if self._share.overlaps(Share.parse(text)):
                    others[key] = entry
        return others

    def _wait_for_the_dead(
        self, others: dict[str, dict[str, Any]], waiting: Callable[[str], None]
    ) -> None:
        deadline = time.monotonic() + _STARTING
        told: set[str] = set()
        while True:
            alive = self._alive(others)
            if not alive:
                return
            name = _name(alive)
            if time.monotonic() > deadline:
                raise AlreadyRunningError(
                    f"an instance already works on an overlapping share: {name}",
                    hint='stop it, give this one another share (instance = "1/2"),'
                    ' or set on_conflict = "take over"',
                )
            if name not in told:
                told.add(name)
                waiting(name)
            time.sleep(0.5)

    def _alive(self, others: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        suspects = {key: entry for key, entry in others.items() if not self._is_dead(entry)}
        members = self._members() if suspects else set()
        return {
            key: entry
            for key, entry in suspects.items()
            if f"{entry.get('host')}:{entry.get('pid')}" in members
            or time.time() - float(entry.get("since", 0)) < _STARTING
        }

    def _is_dead(self, entry: dict[str, Any]) -> bool:
        # Known for sure on this machine only.
        if entry.get("host") != self._host:
            return False
        pid = entry.get("pid")
        if pid == self._pid:  # in a container the new process may bear the pid of the old one
            return entry.get("token") not in _claimed_here
        return not isinstance(pid, int) or not _runs(pid)

    def _members(self) -> set[str]:
        group = instances_group(self._application)
        try:
            admin = AdminClient({**self._client, "log_level": 2})
            described = admin.describe_consumer_groups([group], request_timeout=_ANSWER_TIMEOUT)
            members = described[group].result(_ANSWER_TIMEOUT).members
        except KafkaException:
            return set()
        return {member.client_id.rpartition("@")[2] for member in members}

    def _start_heart(self, topic: str) -> None:
        settings = {
            **self._client,
            "group.id": instances_group(self._application),
            "client.id": f"redrive-{self._application}@{self._host}:{self._pid}",
            "session.timeout.ms": int(_SESSION_TIMEOUT * 1000),
            "heartbeat.interval.ms": 2000,
            "max.poll.interval.ms": 3_600_000,
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
            "log_level": 2,
        }
        self._heart = threading.Thread(
            target=self._beat, args=(settings, topic), name="redrive-heartbeat", daemon=True
        )
        self._heart.start()

    def _beat(self, settings: dict[str, Any], topic: str) -> None:
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        while not self._stopping.is_set():
            consumer.poll(0.5)
        consumer.close()


def fence(client: ClientConfig, ids: Iterable[str]) -> None:
    """Initialises each transactional id once, which fences and aborts what it left behind.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    names = sorted(ids)
    with ThreadPoolExecutor(max_workers=max(1, len(names))) as pool:
        # Any failure is raised here, when its result is asked for.
        list(pool.map(lambda name: _fence_one(client, name), names))


def _fence_one(client: ClientConfig, name: str) -> None:
    producer = Producer({**client, "transactional.id": name, "log_level": 2})
    try:
        producer.init_transactions(_ANSWER_TIMEOUT)
    except KafkaException as exception:
        raise TransientFault(f"the transactional id {name} can't be fenced: {exception}") from (
            exception
        )


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _name(alive: dict[str, dict[str, Any]]) -> str:
    return ", ".join(
        f"{key.partition('/')[2]} on {entry.get('host')} (process {entry.get('pid')})"
        for key, entry in alive.items()
    )

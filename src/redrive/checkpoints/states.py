"""What operators decide, on the tables topic: following it while the job runs, and writing it.

Plans of replays, states of channels and queues and releases lie beside the kept tables, and not on
the control topic: a command that dies in its transaction hides what others commit behind it until
somebody ends that transaction. Readers take what is visible and wait for nothing. A command
registers its transactional id, so that the next start, or the next command that finds something
hidden, ends what it left open.

Earlier versions kept these entries on the control topic. They are read there first, and nobody
writes them there any more; what is said on the tables topic replaces them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

import orjson

from redrive.checkpoints.control import (
    FORMAT,
    FORMAT_KEY,
    Entries,
    check_format,
    commit_records,
    format_entry,
    read_entries,
    register,
)
from redrive.checkpoints.epoch import fence_all, fencer_of, new_operator_key, operator_ids
from redrive.engine.commands import NO_STATES, STATE_KINDS, Entry, States, states_of
from redrive.engine.names import control_topic, tables_topic
from redrive.errors import TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.compacted import CompactedTopic, Pair, await_visible
from redrive.kafka.connection import Connection
from redrive.kafka.producer import KafkaProducer
from redrive.messages import OutputRecord, TopicPartition

_PATIENCE: Final = 3.0
"""Seconds that a command waits for the transactions of others, before it ends them: a live one
takes less, and opens its producer again."""


class StatesFollower:
    """Follows the states of one application.

    This class is responsible for: what is known of them, from the first entry on; a broker that
    does not answer leaves the states as they are.
    """

    def __init__(self, connection: Connection, application: str) -> None:
        """Start to follow.

        Args:
            connection: The cluster.
            application: The application, whose control and tables topics exist.
        """
        self._entries: Entries = {}
        self._states = NO_STATES
        self._is_complete = False
        self._connection = connection
        self._control_topic = control_topic(application)
        self._topic = CompactedTopic(connection, tables_topic(application))
        self._known: dict[TopicPartition, int] = {}
        self._awaited: tuple[Mapping[TopicPartition, int], int] | None = None

    def states(self, *, to_the_end: bool = False) -> States:
        """The states as far as they are known now; the same value as long as nothing changed.

        The first call reads everything that is visible.

        Args:
            to_the_end: Whether every call does: at least what any other follower has seen before.

        Raises:
            TransientFault: Nothing could be read yet, or not everything that has to be. A channel
                that may be stopped must not be taken for running.
        """
        if not self._is_complete:
            self._entries = read_earlier(self._connection, self._control_topic)
            self._states = states_of(self._entries)
            self._take(self._topic.read_visible())
            self._is_complete = True
        elif to_the_end:
            self._take(self._topic.read_visible())
        else:
            with contextlib.suppress(TransientFault):
                self._take(self._topic.news())
        return self._states

    def known_ends(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Up to where every instruction's plan is among the states.

        Instructions are written in one transaction with their plan, but may be visible before it:
        its markers come one by one, and an open transaction of another command may hide it. It was
        written, though, when they became visible; so they count from the moment on when everything
        is visible that was written then. Nobody else waits meanwhile.

        Args:
            ends: Where partitions of replay topics end for readers; asked for before this call.
        """
        if any(end > self._known.get(lane, 0) for lane, end in ends.items()):
            with contextlib.suppress(TransientFault):
                self._look_for_plans(ends)
        return {lane: min(end, self._known.get(lane, 0)) for lane, end in ends.items()}

    def close(self) -> None:
        """Closes the consumer."""
        self._topic.close()

    def _look_for_plans(self, ends: Mapping[TopicPartition, int]) -> None:
        if self._awaited is None:
            self._awaited = dict(ends), self._topic.very_end()
        self.states(to_the_end=True)
        explained, written = self._awaited
        if self._topic.position >= written:
            self._known.update(explained)
            self._awaited = None

    def _take(self, pairs: list[Pair]) -> None:
        changed = False
        for key, content in pairs:
            if not key.startswith(STATE_KINDS):
                continue
            changed = True
            if content is None:
                self._entries.pop(key, None)
                continue
            with contextlib.suppress(orjson.JSONDecodeError):
                value = orjson.loads(content)
                if isinstance(value, dict):
                    self._entries[key] = value
        if changed:
            self._states = states_of(self._entries)


def read_earlier(connection: Connection, topic: str) -> Entries:
    """The states that an earlier version kept on the control topic.

    Args:
        connection: The cluster.
        topic: The control topic, which exists.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    entries = read_entries(connection, topic)
    return {key: value for key, value in entries.items() if key.startswith(STATE_KINDS)}


class StatesWriter:
    """Writes states in transactions; use it in a ``with`` statement.

    This class is responsible for: a producer that a start, and every other command, can fence; that
    all that was written before is visible when it is open, and what it wrote when it is closed.
    """

    def __init__(
        self,
        connection: Connection,
        application: str,
        name: str,
        *,
        lanes: Collection[TopicPartition] = (),
    ) -> None:
        """Open the producer, which fences and settles whatever used its id before.

        Args:
            connection: The cluster.
            application: The application, whose control and tables topics exist.
            name: Who excludes whom: writers of one name fence each other.
            lanes: Further partitions that its transactions write to.

        Raises:
            TransientFault: The broker gave no answer in time, or somebody fenced this writer.
            ConfigurationError: A later version has written the application's state.
        """
        self._connection = connection
        self._cluster = Cluster(connection)
        self._control_topic, self._topic = control_topic(application), tables_topic(application)
        self._lanes = [TopicPartition(self._topic, 0), *lanes]
        self._id = f"{self._topic}-{name}"
        self._key = new_operator_key(self._id)
        self._register()
        self._producer = KafkaProducer(connection.librdkafka(), self._id, self._id)
        try:
            self._producer.initialise()
            self._await_readers()
        except BaseException:
            self._producer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._await_readers()
                register(self._connection, self._control_topic, self._key, None)
        finally:
            self._producer.close()

    def write(self, entries: Iterable[Entry], records: Sequence[OutputRecord] = ()) -> None:
        """Writes entries, and other records with them, in one transaction.

        Raises:
            TransientFault: The broker refused, or gave no answer in time.
            FencedFault: Somebody else writes under this name, or the job starts.
            OutcomeUnknown: The answer to the commit was lost.
        """
        now = int(time.time() * 1000)
        states = [
            OutputRecord(self._topic, key.encode(), orjson.dumps(value), None, now, 0)
            for key, value in entries
        ]
        every = [(0, record) for record in [*records, *states]]
        commit_records(self._producer, every, f"the tables topic {self._topic}")

    def _register(self) -> None:
        """Makes the id known, and the form in which this version writes."""
        entries: Mapping[str, Mapping[str, Any]]
        entries = read_entries(self._connection, self._control_topic)
        check_format(entries, self._control_topic)
        if entries.get(FORMAT_KEY, {}).get("format") != FORMAT:
            register(self._connection, self._control_topic, FORMAT_KEY, format_entry())
        here = {"host": socket.gethostname(), "pid": os.getpid()}
        register(self._connection, self._control_topic, self._key, here)

    def _await_readers(self) -> None:
        """Waits until all that was written is visible, and ends what a dead command left open."""
        if await_visible(self._cluster, self._lanes, seconds=_PATIENCE):
            return
        entries = read_entries(self._connection, self._control_topic, to_the_very_end=True)
        found = operator_ids(entries).items()
        others = {key: one for key, one in found if one != self._id}
        fence_all(fencer_of(self._connection), set(others.values()))
        for key in others:
            register(self._connection, self._control_topic, key, None)
        if not await_visible(self._cluster, self._lanes):
            raise TransientFault(
                f"a transaction that is open on {self._topic} hides what operators decided",
                hint="look which client holds it: kafka-transactions.sh find-hanging",
            )

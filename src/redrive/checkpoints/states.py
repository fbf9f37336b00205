"""Operators' commands on the tables topic: followed while the job runs, and written.

Replay plans, states of channels and queues, and releases are on the tables topic, not on the
control topic: a command that dies in its transaction hides later commits until that transaction
ends. Readers take what is visible and never wait. A command registers its transactional id, so that
the next start, or the next command that finds something hidden, aborts its open transaction.

Earlier versions kept these entries on the control topic. They are read there first and no longer
written there; entries on the tables topic replace them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Self

from redrive.checkpoints.control import (
    FORMAT,
    FORMAT_KEY,
    Entries,
    check_format,
    commit_records,
    format_entry,
    key_of,
    read_entries,
    register,
    set_entry,
    value_of,
)
from redrive.checkpoints.epoch import fence_all, fencer_of, new_operator_key, operator_ids
from redrive.engine.commands import NO_STATES, STATE_KINDS, Entry, Removal, States, states_of
from redrive.engine.names import control_topic, tables_topic
from redrive.errors import FencedFault, TransientFault
from redrive.kafka.cluster import Cluster, settled_ends
from redrive.kafka.compacted import RARE_END_WAIT, CompactedTopic
from redrive.kafka.deadline import CONNECT
from redrive.kafka.producer import KafkaProducer
from redrive.kafka.records import StoredRecord
from redrive.messages import OutputRecord, TopicPartition


class StatesFollower:
    """Follows the states of one application.

    It knows them from the first entry on; while the broker does not answer, the states stay
    unchanged.
    """

    def __init__(self, cluster: Cluster, application: str) -> None:
        """Start to follow; the application's control and tables topics exist."""
        self._entries: Entries = {}
        self._states = NO_STATES
        self._is_complete = False
        self._cluster = cluster
        self._control_topic = control_topic(application)
        lane = TopicPartition(tables_topic(application), 0)
        self._topic = CompactedTopic(cluster, lane, end_wait=RARE_END_WAIT)
        self._known: dict[TopicPartition, int] = {}
        self._awaited: tuple[Mapping[TopicPartition, int], int] | None = None

    def states(self, *, to_the_end: bool = False) -> States:
        """The states known now; the same value while nothing changes.

        The first call reads everything that is visible, and with ``to_the_end`` every call does: it
        then sees at least what any other follower has seen.

        Raises:
            TransientFault: Nothing could be read yet, or not everything required. A channel that
                may be stopped must not count as running.
        """
        if not self._is_complete:
            self._entries = read_earlier(self._cluster, self._control_topic)
            self._states = states_of(self._entries)
            self._take(self._topic.visible())
            self._is_complete = True
        elif to_the_end:
            self._take(self._topic.visible())
        else:
            with contextlib.suppress(TransientFault):
                self._take(self._topic.new_records())
        return self._states

    def known_ends(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The offsets up to which the states have every instruction's plan.

        Instructions are written in one transaction with their plan, but may be visible before it:
        markers are written one by one, and another command's open transaction may hide the plan.
        The plan was written by the time they became visible, so they count once everything written
        by then is visible. Nothing else waits for this. The ends of the replay topics are those for
        readers, fetched before this call.
        """
        if any(end > self._known.get(lane, 0) for lane, end in ends.items()):
            with contextlib.suppress(TransientFault):
                self._look_for_plans(ends)
        return {lane: min(end, self._known.get(lane, 0)) for lane, end in ends.items()}

    def close(self) -> None:
        """Close the consumer."""
        self._topic.close()

    def _look_for_plans(self, ends: Mapping[TopicPartition, int]) -> None:
        if self._awaited is None:
            self._awaited = dict(ends), self._topic.very_end()
        self.states(to_the_end=True)
        explained, written = self._awaited
        if self._topic.position >= written:
            self._known.update(explained)
            self._awaited = None

    def _take(self, records: Iterable[StoredRecord]) -> None:
        changed = False
        for record in records:
            key = key_of(record)
            if key.startswith(STATE_KINDS):
                changed = True
                set_entry(self._entries, key, record.value)
        if changed:
            self._states = states_of(self._entries)


def read_earlier(cluster: Cluster, topic: str) -> Entries:
    """The states that an earlier version kept on the control topic, which exists.

    Raises:
        TransientFault: The broker did not answer in time.
    """
    entries = read_entries(cluster, topic)
    return {key: value for key, value in entries.items() if key.startswith(STATE_KINDS)}


class StatesWriter:
    """Writes states in transactions; use it in a ``with`` statement.

    This class is responsible for a producer that a start, and every other command, can fence;
    earlier entries are visible once it is open, its own once it is closed.
    """

    def __init__(
        self,
        cluster: Cluster,
        application: str,
        name: str,
        *,
        lanes: Collection[TopicPartition] = (),
    ) -> None:
        """Open the producer, which fences and settles earlier users of its id.

        Writers with the same name fence each other. The application's control and tables topics
        exist; the lanes are further partitions that the transactions write to.

        Raises:
            TransientFault: The broker did not answer in time, or another writer fenced this one.
            ConfigurationError: A later version has written the application's state.
        """
        self._cluster = cluster
        self._control_topic, self._topic = control_topic(application), tables_topic(application)
        self._lanes = [TopicPartition(self._topic, 0), *lanes]
        self._id = f"{self._topic}-{name}"
        self._keys: list[str] = []
        self._last: dict[str, bytes | None] = {}
        """What the last transaction wrote."""
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None:
                self._await_readers()
                for key in self._keys:
                    register(self._cluster, self._control_topic, key, None)
        finally:
            self._producer.close()

    def write(
        self, entries: Iterable[Entry | Removal], records: Sequence[OutputRecord] = ()
    ) -> None:
        """Write entries, and other records with them, in one transaction.

        Raises:
            TransientFault: The broker refused, or did not answer in time.
            FencedFault: Another writer of this name opened, or the job starts.
            OutcomeUnknown: The answer to the commit was lost.
        """
        entries = list(entries)
        if self._producer.may_arrive_late:
            self._fence_late_requests()
        now = int(time.time() * 1000)
        states = [
            OutputRecord(self._topic, key.encode(), value_of(value), None, now, 0)
            for key, value in entries
        ]
        every = [(0, record) for record in [*records, *states]]
        commit_records(self._producer, every, f"the tables topic {self._topic}")
        self._last = {key: value_of(value) for key, value in entries}

    def _open(self) -> None:
        self._register()
        self._producer = KafkaProducer(self._cluster.connection.librdkafka(), self._id, self._id)
        try:
            self._producer.initialise()
            self._await_readers()
        except BaseException:
            self._producer.close()
            raise

    def _fence_late_requests(self) -> None:
        """Replace the producer: a late copy of its commit could end its next transaction early.

        Records without their entry would be visible then, and be written again.

        Raises:
            FencedFault: Another writer of this name wrote meanwhile.
        """
        self._producer.close()
        self._open()
        entries = read_entries(self._cluster, self._topic)
        if any(value_of(entries.get(key)) != value for key, value in self._last.items()):
            raise FencedFault(f"another command wrote to {self._topic} as {self._id}")

    def _register(self) -> None:
        entries = read_entries(self._cluster, self._control_topic)
        check_format(entries, self._control_topic)
        if entries.get(FORMAT_KEY, {}).get("format") != FORMAT:
            register(self._cluster, self._control_topic, FORMAT_KEY, format_entry())
        here = {"host": socket.gethostname(), "pid": os.getpid()}
        self._keys.append(new_operator_key(self._id))
        register(self._cluster, self._control_topic, self._keys[-1], here)

    def _await_readers(self) -> None:
        """Wait until all entries are visible, and abort transactions of dead commands."""
        try:
            settled_ends(self._cluster, self._lanes, seconds=CONNECT)
        except TransientFault:
            entries = read_entries(self._cluster, self._control_topic, to_the_very_end=True)
            ids = operator_ids(entries)
            others = {
                key: producer_id for key, producer_id in ids.items() if producer_id != self._id
            }
            fence_all(fencer_of(self._cluster.connection), set(others.values()))
            for key in others:
                register(self._cluster, self._control_topic, key, None)
            settled_ends(self._cluster, self._lanes)

"""The topic of held keys: consumers park what belongs to a key that waits by ORDER(KEY).

A key is in the topic, below ``QUEUE/KEY``, while a message of it waits. ``QUEUE:PARTITION`` has the
position up to which dead letters are decided, and what they made wait is in the topic before it.
So a consumer that wrote a dead letter of a key knows that the topic lacks it, and not that the key
is free, until the position has passed it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final, TypeAlias

from redrive.checkpoints.control import commit_records
from redrive.checkpoints.epoch import RunEntry, RunIdentity
from redrive.checkpoints.protocol import Emitter
from redrive.configuration import JobConfiguration
from redrive.engine.facts import WaitingQuestion
from redrive.engine.names import HandlerIdentity, held_keys_topic
from redrive.errors import FatalFault, FencedFault, RedriveError
from redrive.kafka.cluster import Cluster
from redrive.kafka.compacted import CompactedTopic
from redrive.kafka.deadline import AGAIN, ONE_TRY
from redrive.kafka.producer import KafkaProducer
from redrive.kafka.waiting_keys import LiveOrder
from redrive.messages import OutputRecord, TopicPartition
from redrive.streaming.emission import GroupCluster
from redrive.streaming.lifecycle import JobControl

_LOOK: Final = 1.0
"""Seconds between two reads of waiting keys."""
_AT_ONCE: Final = 10_000
"""Maximum records of one transaction."""
_REMINDER: Final = 60.0
"""Seconds between two warnings."""

_Entries: TypeAlias = Mapping[bytes, bytes]
"""The topic, by the keys of its records."""


class HeldKeysTopic:
    """Writes the topic of held keys during one run.

    This class is responsible for one thread of one instance: the facts are those of the whole
    application, and a single writer keeps positions behind the keys that they cover.
    """

    def __init__(
        self, configuration: JobConfiguration, run: RunIdentity, control: JobControl
    ) -> None:
        """Begin to write, if a handler needs it and this instance has the topics that all share.

        A later run ends this one; ``control`` is warned while writing fails.
        """
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._queues = [handler.identity for handler in configuration.handlers if handler.held_keys]
        if not self._queues or not configuration.share.is_first:
            return
        self._warn, self._warned_at = control.warning, -_REMINDER
        self._topic = held_keys_topic(configuration.application)
        self._cluster = Cluster(configuration.connection)
        self._order = LiveOrder(self._cluster, configuration.application)
        client = configuration.connection.librdkafka()
        self._emitter = Emitter(
            partial(KafkaProducer, client, self._topic, configuration.application),
            GroupCluster(self._cluster, configuration),
            RunEntry(self._cluster, configuration.control_topic, run),
            time,
        )
        self._thread = threading.Thread(target=self._run, name="redrive-held-keys", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ends the thread; one that waits for an answer ends later and writes nothing more."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=ONE_TRY)

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                try:
                    self._write_changes()
                except RedriveError as fault:  # the rights may be granted, or the broker may return
                    self._emitter.drop_producer()
                    if time.monotonic() - self._warned_at >= _REMINDER:
                        self._warned_at = time.monotonic()
                        self._warn("held keys cannot be written", error=fault.message)
                    is_over = isinstance(fault, FatalFault | FencedFault)
                    self._ended.wait(ONE_TRY if is_over else AGAIN)
        finally:
            self._emitter.drop_producer()
            self._cluster.close()

    def _write_changes(self) -> None:
        producer = self._emitter.open()  # this settles another writer's last transaction
        written = self._read()
        while not self._ended.is_set():
            entries = self._entries(written)
            now = time.time_ns() // 1_000_000
            records = (
                OutputRecord(self._topic, key, value, [], now, 0)
                for key, value in changes(written, entries)
            )
            while part := [*enumerate(islice(records, _AT_ONCE))]:
                commit_records(producer, part, f"the topic {self._topic}")
            written = entries
            self._ended.wait(_LOOK)

    def _read(self) -> _Entries:
        topic = CompactedTopic(self._cluster, TopicPartition(self._topic, 0))
        try:
            latest = {record.key or b"": record.value for record in topic.records_to_end()}
        finally:
            topic.close()
        return {key: value for key, value in latest.items() if value is not None}

    def _entries(self, written: _Entries) -> dict[bytes, bytes]:
        """The current entries of the topic.

        Positions are read first: messages decided before them already wait.
        """
        partitions = self._cluster.topics()
        lanes = {
            queue: [
                TopicPartition(queue.topic, partition)
                for partition in range(partitions[queue.topic])
            ]
            for queue in self._queues
            if queue.topic in partitions
        }
        passed = self._order.passed([lane for some in lanes.values() for lane in some])
        since = str(time.time_ns() // 1_000_000).encode()
        entries = {
            key: written.get(key, since)
            for queue, some in lanes.items()
            for key in self._waiting_keys(queue, some)
        }
        for lane, position in passed.items():
            entries[f"{lane.topic}:{lane.partition}".encode()] = b"%d" % position
        return entries

    def _waiting_keys(
        self, queue: HandlerIdentity, lanes: Iterable[TopicPartition]
    ) -> Iterator[bytes]:
        prefix = f"{queue.topic}/".encode()
        for lane in lanes:
            for key in self._order.waiting(WaitingQuestion.of(queue, lane.partition)):
                yield prefix + key


def changes(written: _Entries, entries: _Entries) -> Iterator[tuple[bytes, bytes | None]]:
    """The records that turn what is written into the entries, with positions last."""
    gone = ((key, None) for key in written.keys() - entries.keys())
    fresh = ((key, value) for key, value in entries.items() if written.get(key) != value)
    yield from gone
    yield from sorted(fresh, key=lambda entry: b"/" not in entry[0])

"""The control topic: which table decided on which partition, and who works on it (design 6).

The topic has one partition and is compacted. Whoever writes to it opens a producer with one
transactional id for the whole application, so that two starting instances take turns: the second
fences the first before it reads, and the first cannot write what it concluded from old records.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from redrive.errors import TransientFault
from redrive.kafka.connection import Connection
from redrive.kafka.producer import ClientConfig
from redrive.messages import TopicPartition

_ANSWER_TIMEOUT = 30.0
"""Seconds to wait for one answer of the broker."""


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """The table that decides on one partition of a dead-letter topic, and what it set free."""

    table: str
    """Hash of the rules table."""
    retry_release: int
    """Parked messages below this offset of the retry partition are due at once."""
    remaining_release: int
    """Remaining messages below this offset are to be evaluated again."""


class ControlTopic:
    """Reads and writes the control topic; open one, use it, close it."""

    def __init__(self, connection: Connection, topic: str) -> None:
        """Opens the writer, which fences an instance that is about to write.

        Raises:
            TransientFault: The broker gave no answer in time.
        """
        self._topic = topic
        self._client = connection.librdkafka()
        self._producer = Producer(
            {**self._client, "transactional.id": f"{topic}-writer", "acks": "all", "log_level": 2}
        )
        try:
            self._producer.init_transactions(_ANSWER_TIMEOUT)
        except KafkaException as exception:
            raise TransientFault(f"the control topic {topic} can't be written: {exception}") from (
                exception
            )
        self.entries = read_compacted(self._client, topic)

    def write(self, entries: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Writes entries in one transaction; None removes an entry.

        Raises:
            TransientFault: Another instance opened the topic for writing meanwhile, or the broker
                gave no answer in time. Open the topic again.
        """
        if not entries:
            return
        try:
            self._producer.begin_transaction()
            for key, value in entries.items():
                content = None if value is None else orjson.dumps(value)
                self._producer.produce(self._topic, content, key.encode())
            self._producer.commit_transaction(_ANSWER_TIMEOUT)
        except KafkaException as exception:
            if exception.args[0].fatal():
                raise TransientFault(
                    "another instance of this application is starting at this moment",
                    hint="start this one again",
                ) from exception
            raise TransientFault(f"the control topic can't be written: {exception}") from exception
        for key, value in entries.items():
            if value is None:
                self.entries.pop(key, None)
            else:
                self.entries[key] = dict(value)

    def table_of(self, lane: TopicPartition) -> TableIdentity | None:
        """The table that last decided on a partition of a dead-letter topic."""
        entry = self.entries.get(_table_key(lane))
        with contextlib.suppress(TypeError):
            return None if entry is None else TableIdentity(**entry)
        return None

    def set_tables(self, tables: Mapping[TopicPartition, TableIdentity]) -> None:
        """Records the tables that decide from now on; errors as for ``write``."""
        self.write({_table_key(lane): asdict(identity) for lane, identity in tables.items()})

    def topic_of(self, name: str) -> str:
        """The identity that a topic had when its positions were committed; empty if unknown."""
        return str(self.entries.get(_topic_key(name), {}).get("identity", ""))

    def set_topics(self, identities: Mapping[str, str]) -> None:
        """Records the identities of topics; errors as for ``write``."""
        self.write({_topic_key(name): {"identity": one} for name, one in identities.items()})


def _topic_key(name: str) -> str:
    return f"topic/{name}"


def _table_key(lane: TopicPartition) -> str:
    return f"table/{lane.topic}/{lane.partition}"


def read_compacted(client: ClientConfig, topic: str) -> dict[str, dict[str, Any]]:
    """The live entries of a compacted topic with one partition, keys and JSON values as text.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    entries: dict[str, dict[str, Any]] = {}
    with contextlib.closing(_reader(client)) as consumer:
        for message in _records(consumer, topic):
            key = (message.key() or b"").decode(errors="replace")
            value = message.value()
            if value is None:
                entries.pop(key, None)
                continue
            with contextlib.suppress(orjson.JSONDecodeError):
                content = orjson.loads(value)
                if isinstance(content, dict):
                    entries[key] = content
    return entries


def _reader(client: ClientConfig) -> Consumer:
    return Consumer(
        {
            **client,
            "group.id": "redrive-control-reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "log_level": 2,
        }
    )


def _records(consumer: Consumer, topic: str) -> list[Message]:
    partition = ClientPartition(topic, 0)
    try:
        start, end = consumer.get_watermark_offsets(partition, timeout=_ANSWER_TIMEOUT)
        records: list[Message] = []
        consumer.assign([ClientPartition(topic, 0, start)])
        while start < end:
            records.extend(map(_checked, consumer.consume(1000, timeout=1.0)))
            position = consumer.position([partition])[0].offset
            start = max(start, position)
    except KafkaException as exception:
        raise TransientFault(f"the control topic {topic} can't be read: {exception}") from exception
    return records


def _checked(message: Message) -> Message:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    return message

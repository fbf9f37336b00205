"""States that an operator changes while the job runs: channels, queues, released messages.

They are entries of the application's compacted control topic, so they last over restarts. Whoever
decides by them - the source that holds transmission queues, the emitters - follows the topic; a
change is seen within a moment, never in the middle of a transaction.
"""

from __future__ import annotations

import time
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

from redrive.kafka.offsets import LATEST
from redrive.kafka.producer import ClientConfig
from redrive.topology.states import NO_STATES, STATE_KINDS, States, states_of

_AT_ONCE: Final = 1_000
"""Entries taken at one look."""
_LOOK: Final = 0.05
"""Seconds of one look while the first ones are awaited."""
_FIRST_WAIT: Final = 10.0
"""Seconds that the first look waits for the entries that exist."""


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
            if message.error() is not None or not key.startswith(STATE_KINDS):
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

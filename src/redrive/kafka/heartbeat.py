"""Heartbeat: membership in a consumer group that only shows that a process is alive."""

from __future__ import annotations

import threading
from typing import Final

from confluent_kafka import Consumer, KafkaError

from redrive.engine.names import instances_group
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import CLOSE, close_client, under_way
from redrive.kafka.errors import certificate_refusal

_SESSION_TIMEOUT: Final = 6.0
"""Seconds after which the broker drops a member that sends no heartbeat: its smallest default."""
_RENEWAL: Final = 5.0
"""Seconds until a refused certificate is read again."""


class Heartbeat:
    """One member of the group of an application's live instances."""

    def __init__(self, connection: Connection, application: str, name: str, topic: str) -> None:
        """Join the group, in its own thread, with a client id that ends in ``@host:process``.

        The topic is only subscribed to, which a group needs.
        """
        self._settings = {
            **connection.librdkafka(),
            "group.id": instances_group(application),
            "client.id": name,
            "session.timeout.ms": int(_SESSION_TIMEOUT * 1000),
            "heartbeat.interval.ms": 2000,
            "max.poll.interval.ms": 3_600_000,
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
            "log_level": 2,
        }
        self._topic = topic
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="redrive-heartbeat", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Leave the group; an unreachable broker notices by itself."""
        self._ending.set()
        with under_way("leaving the group of instances"):
            self._thread.join(timeout=CLOSE)

    def _beat(self) -> None:
        while not self._ending.is_set():
            errors: list[KafkaError] = []
            consumer = Consumer({**self._settings, "error_cb": errors.append})
            consumer.subscribe([self._topic])
            while not self._ending.is_set() and not any(map(certificate_refusal, errors)):
                errors.clear()
                consumer.poll(0.5)
            close_client(consumer.close, "the consumer of the group of instances")
            # A refused certificate may have expired: a new client reads the renewed one.
            self._ending.wait(_RENEWAL)

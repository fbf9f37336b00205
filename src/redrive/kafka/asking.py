"""Questions to a cluster: disposable clients, and strict deadlines.

A client without an answer, or with an answer for an older cluster, is dropped: a fresh client asks
the next question. Some errors of a client that survived a restart of its broker never go away
(FENCED_LEADER_EPOCH).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from redrive.errors import EnvironmentFault, TransientFault
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import LOOK, ONE_TRY, PAUSE, under_way
from redrive.kafka.errors import STALE_METADATA, error_of, translated
from redrive.kafka.reader import Readers

_Answer = TypeVar("_Answer")

_LONGEST_PAUSE: Final = 2.0
"""Maximum seconds between two attempts. Some errors come at once, such as that of a partition
without a leader, and each try opens clients anew."""

_HOPELESS: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - no public name
        KafkaError._AUTHENTICATION,  # noqa: SLF001
        KafkaError._SSL,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)
"""Errors after which waiting for a first answer is useless."""
AGAIN: Final = frozenset(
    {
        KafkaError._TIMED_OUT,  # noqa: SLF001 - no public name
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_CONTROLLER,
        *STALE_METADATA,
    }
)
"""Errors after which to retry with a fresh client."""


class AskingClients:
    """The clients of one cluster: an admin client, readers, and a consumer for each group."""

    def __init__(self, connection: Connection, *, timeout: float) -> None:
        """Create clients of a cluster; an answer may take ``timeout`` seconds."""
        self._settings = {**connection.librdkafka(), "log_level": 0}
        self.readers = Readers(connection)
        """Read records."""
        self._servers = connection.bootstrap_servers
        self._timeout = timeout
        self._failures: list[KafkaError] = []
        self._admin: AdminClient | None = None
        self._is_connected = False
        """Whether a broker has answered the admin client."""
        self._consumers: dict[tuple[str, bool], Consumer] = {}

    @property
    def admin(self) -> AdminClient:
        """The admin client; replaced after a question without an answer."""
        if self._admin is None:
            # A list, not a method of this object: a client in a reference cycle is destroyed in
            # whichever thread collects garbage, including its own.
            settings: dict[str, Any] = {**self._settings, "error_cb": self._failures.append}
            self._admin = AdminClient(settings)
        return self._admin

    def connected_admin(self, seconds: float) -> AdminClient:
        """The admin client, once a broker has answered it within ``seconds``.

        For questions to partition leaders: an unconnected client finds none, and retries only one
        second and then three seconds later.

        Raises:
            KafkaException: No broker answers.
        """
        admin = self.admin
        if not self._is_connected:
            admin.list_topics(timeout=seconds)
            self._is_connected = True
        return admin

    def consumer(self, group: str, *, stable: bool) -> Consumer:
        """A consumer that never subscribes, reads or commits, for questions about offsets.

        Args:
            group: The consumer group of whose offsets it asks.
            stable: Whether its answers wait for a transaction that moves offsets (KIP-447).
        """
        consumer = self._consumers.get((group, stable))
        if consumer is None:
            consumer = self._consumers[group, stable] = Consumer(
                {
                    **self._settings,
                    "group.id": group,
                    "enable.auto.commit": False,
                    # With read_committed the answer waits for a transaction that moves offsets.
                    "isolation.level": "read_committed" if stable else "read_uncommitted",
                }
            )
        return consumer

    def forget(self) -> None:
        """Drop every client; the next question opens new ones."""
        self._admin = None
        self._is_connected = False
        self._consumers.clear()
        self._failures.clear()
        self.readers.forget()

    def reach(self, ask: Callable[[float], _Answer]) -> _Answer:
        """The first answer of a cluster.

        Args:
            ask: The question, with the seconds that one attempt may take.

        Raises:
            EnvironmentFault: The cluster cannot be reached in time, or refuses this user.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return ask(PAUSE)
            except KafkaException as exception:
                self.admin.poll(0)
                failure = next(
                    (error for error in self._failures if error.code() in _HOPELESS), None
                )
                if failure is not None or time.monotonic() > deadline:
                    error = failure or exception.args[0]
                    raise EnvironmentFault(
                        f"the broker at {self._servers} cannot be reached: {error.str()}",
                        hint="check that it runs, bootstrap_servers and the security settings",
                    ) from exception

    def answer(self, step: str, ask: Callable[[float], _Answer]) -> _Answer:
        """The answer to a question, repeated by fresh clients until the time is over.

        The first attempt is short: a client that lost its coordinator never answers, and a slow
        broker answers the second attempt.

        Args:
            step: Name of the question, for the error.
            ask: The question, with the seconds that one attempt may take.

        Raises:
            TransientFault: No answer in time, or an error that retries cannot fix.
        """
        deadline = time.monotonic() + self._timeout
        seconds = min(ONE_TRY, self._timeout)
        pause = PAUSE
        while True:
            try:
                with under_way(step), translated(f"{step} at {self._servers}"):
                    return ask(seconds)
            except TransientFault as fault:
                error = error_of(fault.__cause__) if fault.__cause__ is not None else None
                code = None if error is None else error.code()
                left = deadline - time.monotonic()
                if code == KafkaError.UNSTABLE_OFFSET_COMMIT and left > 0:
                    time.sleep(LOOK)
                    continue
                self.forget()
                if left <= 0 or not (code is None or code in AGAIN):
                    raise
            seconds = max(ONE_TRY, left)
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)

"""The environment of the demo: continuous dead letters, a slow consumer, a late queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

from redrive.demo.cluster import Consumer
from redrive.demo.messages import Message, Record
from redrive.demo.script import Operator
from redrive.demo.scripts.dead_letters import BACKLOG
from redrive.kafka.administration import NewTopic

DEAD_LETTER_QUEUE: Final = "DEAD.LETTERS"
ORDERS: Final = "ORDERS"
"""The queue that is full when the job starts, because its consumer is slow."""
INVOICES: Final = "INVOICES.NEW"
"""The queue that does not exist yet when the job starts."""


QUEUES: Final = (
    *(ORDERS, INVOICES, "PAYMENTS", "SHIPMENTS", "CUSTOMERS", "EVENTS.SMALL", "TEXTS.SHORT"),
    *("WEB.REPLIES", "APP.REPLIES", "SECURITY.REVIEW", "TOO.BIG"),
)
"""Every queue that a message can be put to; other names are unknown."""
MAX_MESSAGE_BYTES: Final = {"EVENTS.SMALL": 16 * 1024}
"""``max.message.bytes`` of the topics that some samples exceed."""
MAX_MESSAGE_LENGTH: Final = {"TEXTS.SHORT": 4096}
"""MAXMSGL in the settings, likewise."""
SLOW_CONSUMER: Final = "order-processing"
_PARTITIONS: Final = 4
"""Partitions of the dead-letter queue."""
_TICK: Final = 0.25
"""Seconds between two steps."""


class Load:
    """The load of the demo with dead letters.

    Its speed is only for show: on a slow machine the result is the same.

    Args:
        messages: The dead letters, in the order in which they arrive.
        depth: Number of ordinary messages on the full queue initially.
        rate: Messages a second of the slow consumer.
        feeding: Seconds for which dead letters keep arriving once the job runs.
        late_by: Seconds before the late queue is created, at least.
    """

    def __init__(
        self, messages: Sequence[Message], depth: int, rate: float, feeding: float, late_by: float
    ) -> None:
        self._messages = messages
        self._depth = depth
        self._rate = rate
        self._feeding = feeding
        self._late_by = late_by
        self._backlog = round(len(messages) * BACKLOG)
        self.written = 0
        self.consumed = 0
        """Messages that the slow consumer has read."""
        self.has_late_queue = False

    def prepare(self, operator: Operator) -> None:
        """Create the topics, fill the full queue, and write the backlog of dead letters."""
        queues = [_topic(name) for name in QUEUES if name != INVOICES]
        operator.cluster.create([NewTopic(DEAD_LETTER_QUEUE, _PARTITIONS, {}), *queues])
        ordinary = (f"ordinary message {number}".encode() for number in range(self._depth))
        operator.cluster.put((ORDERS, Record(None, body, ())) for body in ordinary)
        self._write(operator, self._backlog)

    def move(self, operator: Operator, is_parked: Callable[[], bool]) -> None:
        """Run until the job has ended."""
        rest = len(self._messages) - self._backlog
        with closing(operator.cluster.consumer(ORDERS, SLOW_CONSUMER)) as consumer:
            began = last = time.monotonic()
            allowed = 0.0
            while True:
                operator.pause(_TICK)
                last, before = time.monotonic(), last
                arrived = min(1.0, (last - began) / self._feeding)
                self._write(operator, self._backlog + round(rest * arrived))
                if is_parked():
                    allowed = self._consume(consumer, allowed + (last - before) * self._rate)
                    self._create_late_queue(operator, last - began)

    def _consume(self, consumer: Consumer, allowed: float) -> float:
        if allowed >= 1:
            self.consumed += sum(1 for _ in consumer.read(int(allowed)))
        # Unused allowance is dropped.
        return allowed % 1

    def _create_late_queue(self, operator: Operator, elapsed: float) -> None:
        """Create the late queue, but not before every dead letter was written.

        Messages for it are parked until then, and a table with WAIT(NO) ends the job only when
        nothing is parked, so the job ends after the last dead letter, however slow this is.
        """
        is_due = elapsed >= self._late_by and self.written == len(self._messages)
        if is_due and not self.has_late_queue:
            operator.cluster.create([_topic(INVOICES)])
            self.has_late_queue = True

    def _write(self, operator: Operator, upto: int) -> None:
        operator.put(self._messages[self.written : upto])
        self.written = upto

    def describe(self, elapsed: float) -> str:
        """The load ``elapsed`` seconds after the start of the job, on one line."""
        appears = max(0.0, self._late_by - elapsed)
        late = "exists now" if self.has_late_queue else f"appears in {appears:.0f} s"
        return (
            f"{self.written} dead letters written; the slow consumer has read"
            f" {self.consumed} of {ORDERS}; {INVOICES} {late}"
        )


def _topic(queue: str) -> NewTopic:
    limit = MAX_MESSAGE_BYTES.get(queue)
    if limit is None:
        return NewTopic(queue, 1)
    # Uncompressed: a sample that is too large would fit otherwise.
    return NewTopic(queue, 1, {"max.message.bytes": str(limit), "compression.type": "uncompressed"})

"""The application that reads ``payments``: what it can't book becomes a dead letter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from redrive.demo.cluster import Cluster, Consumer
from redrive.demo.messages import NUMBER_HEADER, Message
from redrive.demo.scripts.applications import KINDS, Kind, dead_letter
from redrive.messages.own_headers import identity

_KINDS: Final = {one.name: one for one in KINDS}


class _BookingError(Exception):
    """A payment can't be booked."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind.message)
        self.kind = kind


class PaymentService:
    """Books each payment after the number of failures that its message has."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self.deliveries = Counter[int]()
        """How often each message came, by its number."""
        self.booked: dict[str, bool] = {}
        """``topic:partition:offset`` of every record that came, and whether it was booked."""

    def process(self, consumer: Consumer, cluster: Cluster) -> None:
        """Process what has come; what fails becomes a dead letter before the commit."""
        for record in consumer.read():
            try:
                self._book(record)
            except _BookingError as error:
                cluster.put([(error.kind.dead_letters, dead_letter(record, error.kind))])

    def _book(self, record: Any) -> None:  # noqa: ANN401 - untyped client
        message = self._messages[int(dict(record.headers)[NUMBER_HEADER])]
        self.deliveries[message.number] += 1
        succeeds = self.deliveries[message.number] > message.failures
        self.booked[identity(record.topic, record.partition, record.offset)] = succeeds
        if not succeeds:
            raise _BookingError(_KINDS[message.kind])

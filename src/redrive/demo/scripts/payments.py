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


class PaymentService:
    """Books each payment after as many failures as its message wants."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self.deliveries = Counter[int]()
        """How often each message came, by its number."""
        self.booked: dict[str, bool] = {}
        """``topic:partition:offset`` of every record that came, and whether it was booked."""

    def process(self, consumer: Consumer, cluster: Cluster) -> None:
        """Process what has come; what fails becomes a dead letter before the commit."""
        for record in consumer.read():
            if failed := self._book(record):
                cluster.put([(failed.dead_letters, dead_letter(record, failed))])

    def _book(self, record: Any) -> Kind | None:  # noqa: ANN401 - untyped client
        """Books a payment; returns the kind of its failure if it can't be booked."""
        message = self._messages[int(dict(record.headers)[NUMBER_HEADER])]
        self.deliveries[message.number] += 1
        succeeds = self.deliveries[message.number] > message.failures
        self.booked[identity(record.topic, record.partition, record.offset)] = succeeds
        return None if succeeds else _KINDS[message.kind]

"""The committed offsets of a consumer group."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from redrive.errors import TransientFault
from redrive.kafka.asking import AskingClients
from redrive.kafka.deadline import ONE_TRY
from redrive.messages import TopicPartition

_PENDING: Final = (
    "the offsets of {group} wait for a transaction to end. One of a process that died is ended by"
    " the broker after two minutes; one that is older hangs on the broker: find it with"
    " kafka-transactions.sh find-hanging, and end it with abort"
)


def committed_offsets(
    clients: AskingClients, group: str, lanes: Collection[TopicPartition], *, stable: bool
) -> dict[TopicPartition, int | None]:
    """The committed offsets of a group; arguments and result as for ``Cluster.committed``.

    Raises:
        TransientFault: The broker gave no answer in time, or a transaction that holds the offsets
            did not end.
    """
    places = [ClientPartition(*lane) for lane in lanes]
    if not places:
        return {}
    try:
        answer = clients.asked(
            f"committed offsets of {group}",
            lambda seconds: _committed(clients, group, places, seconds, stable=stable),
        )
    except TransientFault as fault:
        if not stable:
            raise
        # The client says no more than that time is over; whether the broker answers a short
        # question tells why.
        with contextlib.suppress(KafkaException):
            _committed(clients, group, places, ONE_TRY, stable=False)
            raise TransientFault(_PENDING.format(group=group)) from fault
        raise
    return {
        TopicPartition(entry.topic, entry.partition): entry.offset if entry.offset >= 0 else None
        for entry in answer
    }


def _committed(
    clients: AskingClients,
    group: str,
    places: list[ClientPartition],
    seconds: float,
    *,
    stable: bool,
) -> list[ClientPartition]:
    # By a consumer: the admin client ends the process (a null pointer in its handling of
    # OffsetFetch, librdkafka 2.16) when the group's coordinator has just moved.
    answer = clients.consumer(group, stable=stable).committed(places, timeout=seconds)
    for entry in answer:
        if entry.error is not None:
            raise KafkaException(entry.error)
    return answer

"""Questions that the admin client of librdkafka cannot ask, or not about many groups at once.

kafka-python asks them, by a client of its own for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from redrive.errors import OutcomeUnknown, TransientFault
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import ANSWER, CONNECT, GRACE, within
from redrive.messages import TopicPartition

_Answer = TypeVar("_Answer")

_MILLISECONDS: Final = 1000


class OpenTransaction(NamedTuple):
    """The oldest open transaction on a partition."""

    transactional_id: str
    """Empty if this user may not see it."""
    since: float | None
    """When it began, or wrote last, in seconds since 1970; None if unknown."""


def group_positions(
    connection: Connection, groups: Collection[str], lanes: Collection[TopicPartition]
) -> dict[str, dict[TopicPartition, int] | None]:
    """The committed offsets of several groups, by one request for each of their coordinators.

    Returns:
        By group the partitions with an offset; None if this user may not see the group.

    Raises:
        TransientFault: The broker did not answer in time.
    """
    if not groups or not lanes:
        return {group: {} for group in groups}
    from kafka.errors import AuthorizationError  # noqa: PLC0415 - slow to import

    def ask(client: Any) -> dict[str, dict[TopicPartition, int] | None]:  # noqa: ANN401 - untyped
        partitions = [_client_partition(lane) for lane in lanes]

        def offsets_of(names: Iterable[str]) -> dict[str, dict[TopicPartition, int] | None]:
            answers = client.list_group_offsets(dict.fromkeys(names, partitions))
            return {
                name: {
                    TopicPartition(place.topic, place.partition): position.offset
                    for place, position in offsets.items()
                    if position.offset >= 0
                }
                for name, offsets in answers.items()
            }

        try:
            return offsets_of(groups)
        except AuthorizationError:
            positions: dict[str, dict[TopicPartition, int] | None] = {}
            for group in groups:  # the answer does not say which one was refused
                try:
                    positions |= offsets_of([group])
                except AuthorizationError:
                    positions[group] = None
            return positions

    return _answer_of("positions of other applications", connection, ask)


def groups_with_members(connection: Connection, groups: Collection[str]) -> frozenset[str]:
    """The groups that have members, as far as this user may see them.

    Raises:
        TransientFault: The broker did not answer in time.
    """
    if not groups:
        return frozenset()

    def ask(client: Any) -> frozenset[str]:  # noqa: ANN401 - an untyped client
        described = client.describe_groups(list(groups))
        return frozenset(name for name, group in described.items() if group.get("members"))

    return _answer_of("members of other applications", connection, ask)


def open_transactions(
    connection: Connection, lanes: Collection[TopicPartition]
) -> dict[TopicPartition, OpenTransaction]:
    """The oldest open transaction on each partition that has one (KIP-664).

    Raises:
        TransientFault: The broker did not answer in time, or refuses the question.
    """

    def ask(client: Any) -> dict[TopicPartition, OpenTransaction]:  # noqa: ANN401 - as above
        described = client.describe_producers([_client_partition(lane) for lane in lanes])
        oldest = {
            TopicPartition(place.topic, place.partition): min(
                producers, key=lambda producer: producer.current_transaction_start_offset
            )
            for place, state in described.items()
            if (
                producers := [
                    producer
                    for producer in state.active_producers
                    if producer.current_transaction_start_offset >= 0
                ]
            )
        }
        ids = _transactional_ids(client, {producer.producer_id for producer in oldest.values()})
        begins = _begins(client, ids.values())
        transactions = {}
        for lane, producer in oldest.items():
            name = ids.get(producer.producer_id, "")
            since = begins.get(name, producer.last_timestamp)
            transactions[lane] = OpenTransaction(name, since / _MILLISECONDS if since > 0 else None)
        return transactions

    return _answer_of("open transactions", connection, ask) if lanes else {}


def _transactional_ids(client: Any, producers: Collection[int]) -> Mapping[int, str]:  # noqa: ANN401
    if not producers:
        return {}
    listed = client.list_transactions(producer_id_filters=list(producers))
    return {
        transaction.producer_id: transaction.transactional_id
        for broker in listed.values()
        for transaction in broker
    }


def _begins(client: Any, ids: Collection[str]) -> Mapping[str, int]:  # noqa: ANN401 - as above
    described = client.describe_transactions(list(ids)) if ids else {}
    return {name: transaction.transaction_start_time_ms for name, transaction in described.items()}


def _client_partition(lane: TopicPartition) -> Any:  # noqa: ANN401 - as above
    from kafka import TopicPartition as ClientPartition  # noqa: PLC0415 - slow to import

    return ClientPartition(*lane)


def _answer_of(step: str, connection: Connection, ask: Callable[[Any], _Answer]) -> _Answer:
    """The answer of a new client, which is closed again; the client retries by itself."""
    from kafka import KafkaAdminClient  # noqa: PLC0415 - slow to import
    from kafka.errors import KafkaError  # noqa: PLC0415 - as above

    def call() -> _Answer:
        client = KafkaAdminClient(
            **connection.kafka_python(),
            bootstrap_timeout_ms=int(CONNECT * _MILLISECONDS),
            request_timeout_ms=int(ANSWER * _MILLISECONDS),
        )
        try:
            return ask(client)
        finally:
            client.close()

    try:
        return within(step, ANSWER + GRACE, call)
    except (KafkaError, OSError, OutcomeUnknown, TimeoutError) as error:
        why = getattr(error, "message", "") or str(error) or type(error).__name__
        raise TransientFault(f"{step} at {connection.bootstrap_servers}: {why}") from error

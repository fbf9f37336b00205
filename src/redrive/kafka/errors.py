# ruff: noqa: SLF001 - the client names its own error codes with an underscore
"""What Kafka's error codes mean to the protocol: one table, one place.

The mapping to MQ reason codes is that of design 4; the split into culprits, innocents, lost answers
and fatal faults follows librdkafka's documented transaction semantics (its INTRODUCTION.md,
"Transactional producer"), checked against a broker.
"""

from __future__ import annotations

from enum import StrEnum

from confluent_kafka import KafkaError

from redrive.messages.constants import constant_value


class Kind(StrEnum):
    """What a failure says about the record or the process it happened to."""

    CULPRIT = "culprit"
    """This record can't be placed now: a failed attempt."""
    INNOCENT = "innocent"
    """Collateral damage of another record's failure: redo it."""
    TRANSIENT = "transient"
    """Nothing was decided; try the step again."""
    FATAL = "fatal"
    """A newer instance took over, or the broker will never accept this producer."""


def _reason(name: str) -> int:
    value = constant_value(name)
    if value is None:
        raise LookupError(name)
    return value


CULPRITS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: _reason("MQRC_UNKNOWN_OBJECT_NAME"),
    KafkaError._UNKNOWN_TOPIC: _reason("MQRC_UNKNOWN_OBJECT_NAME"),
    KafkaError._UNKNOWN_PARTITION: _reason("MQRC_UNKNOWN_OBJECT_NAME"),
    KafkaError.TOPIC_EXCEPTION: _reason("MQRC_UNKNOWN_REMOTE_Q_MGR"),
    KafkaError.POLICY_VIOLATION: _reason("MQRC_UNKNOWN_REMOTE_Q_MGR"),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _reason("MQRC_NOT_AUTHORIZED"),
    KafkaError.MSG_SIZE_TOO_LARGE: _reason("MQRC_MSG_TOO_BIG_FOR_Q"),
    KafkaError.INVALID_MSG_SIZE: _reason("MQRC_MSG_TOO_BIG_FOR_Q"),
    KafkaError.INVALID_RECORD: _reason("MQRC_FORMAT_ERROR"),
    KafkaError.INVALID_TIMESTAMP: _reason("MQRC_FORMAT_ERROR"),
    KafkaError.NOT_ENOUGH_REPLICAS: _reason("MQRC_RESOURCE_PROBLEM"),
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _reason("MQRC_RESOURCE_PROBLEM"),
    KafkaError.KAFKA_STORAGE_ERROR: _reason("MQRC_RESOURCE_PROBLEM"),
}
"""Codes that condemn one record, with the reason code of its failed attempt."""

INNOCENTS = frozenset(
    {
        KafkaError._PURGE_QUEUE,
        KafkaError._PURGE_INFLIGHT,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError._INCONSISTENT,
        KafkaError._INVALID_DIFFERENT_RECORD,  # KIP-467: a neighbour in the request was invalid
    }
)

FATAL = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError._FATAL,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_VERSION,
    }
)


def kind_of(error: KafkaError) -> Kind:
    """What ``error`` says; anything unknown is transient, which redoes the whole transaction."""
    if error.fatal() or error.code() in FATAL:
        return Kind.FATAL
    if error.code() in CULPRITS:
        return Kind.CULPRIT
    if error.code() in INNOCENTS:
        return Kind.INNOCENT
    return Kind.TRANSIENT


def reason_of(error: KafkaError) -> int:
    """The MQ reason code of a culprit's failed attempt.

    Raises:
        KeyError: The code does not condemn a record.
    """
    return CULPRITS[error.code()]

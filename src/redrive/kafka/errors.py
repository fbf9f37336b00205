# ruff: noqa: SLF001 - the client names its own error codes with an underscore
"""Kafka's error codes: one table of meanings, and the translation of clients' exceptions.

Codes map to MQ reason codes; the split into culprits, innocents, lost answers and fatal faults
follows librdkafka's documented transaction semantics (its INTRODUCTION.md, "Transactional
producer"), checked against a broker.
"""

from __future__ import annotations

import concurrent.futures
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from redrive.errors import FatalFault, FencedFault, OutcomeUnknown, ProtocolError, TransientFault
from redrive.kafka.reports import FailureKind
from redrive.kafka.tokens import token_problem, tokens_are_used
from redrive.messages.reasons import Reason

_CERTIFICATE_REFUSED: Final = re.compile(r"alert (.*certificate.*|unknown ca): SSL alert number")
"""OpenSSL's text for the alert of a broker that refuses or requires a client certificate."""

CULPRITS: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: Reason.UNKNOWN_OBJECT_NAME.value,
    KafkaError._UNKNOWN_TOPIC: Reason.UNKNOWN_OBJECT_NAME.value,
    KafkaError._UNKNOWN_PARTITION: Reason.UNKNOWN_OBJECT_NAME.value,
    KafkaError.TOPIC_EXCEPTION: Reason.UNKNOWN_REMOTE_Q_MGR.value,
    KafkaError.POLICY_VIOLATION: Reason.UNKNOWN_REMOTE_Q_MGR.value,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Reason.NOT_AUTHORIZED.value,
    KafkaError.MSG_SIZE_TOO_LARGE: Reason.MSG_TOO_BIG_FOR_Q.value,
    KafkaError.INVALID_MSG_SIZE: Reason.MSG_TOO_BIG_FOR_Q.value,
    KafkaError.INVALID_RECORD: Reason.FORMAT_ERROR.value,
    KafkaError.INVALID_TIMESTAMP: Reason.FORMAT_ERROR.value,
}
"""Codes that condemn one record, with the reason code of its failed attempt."""

UNANSWERED: Final = {
    KafkaError._MSG_TIMED_OUT,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.KAFKA_STORAGE_ERROR,
}
"""Codes of a partition that accepted nothing for as long as a record may wait."""

UNANSWERED_REASON: Final = Reason.RESOURCE_PROBLEM.value

INNOCENTS: Final = {
    # The answer of produce once the transaction must be aborted: it repeats the first error.
    KafkaError._STATE,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError._INCONSISTENT,
    KafkaError._INVALID_DIFFERENT_RECORD,  # KIP-467: a neighbour in the request was invalid
}

FENCED: Final = {
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
}

FATAL: Final = {
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_VERSION,
}

NOT_ALLOWED: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
"""Answers to a question that this user may not ask."""

SIGN_IN_REFUSED: Final = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
}

_NOT_SIGNED_IN: Final = frozenset(
    {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}
)
"""Not fatal with tokens: clients also report an expired token, and an OAuth server that issues
none, by these codes. ``check_access`` reports refusals at the start."""

_RIGHTS: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Read on a topic to read it, Write to write to it",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "Read on the group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Write on the transactional id",
}

STALE_METADATA: Final = {
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
"""Answers of a broker that just started, or to a client with outdated metadata: ask again, with a
fresh client (the old one never recovers from FENCED_LEADER_EPOCH)."""

PASSING: Final = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, *STALE_METADATA})
"""Errors that only report the state of a reading client; it recovers by itself."""

ASK_AGAIN: Final = PASSING | {
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_CONTROLLER,
}
"""Errors of a question after which to repeat it with a fresh client."""


def kind_of(error: KafkaError) -> FailureKind:
    """The meaning of ``error``; unknown errors are transient, which repeats the whole slice."""
    code = error.code()
    if code in _NOT_SIGNED_IN and tokens_are_used():
        return FailureKind.TRANSIENT
    for kind, codes in (
        (FailureKind.FENCED, FENCED),
        (FailureKind.FATAL, FATAL),
        (FailureKind.CULPRIT, CULPRITS),
        (FailureKind.UNANSWERED, UNANSWERED),
        (FailureKind.INNOCENT, INNOCENTS),
    ):
        if code in codes:
            return kind
    return FailureKind.TRANSIENT


def reason_of(error: KafkaError) -> int:
    """The MQ reason code of a failed attempt; 0 if the code condemns no record."""
    if error.code() in UNANSWERED:
        return UNANSWERED_REASON
    return CULPRITS.get(error.code(), 0)


def described(error: KafkaError) -> str:
    """Code and text of an error, for messages."""
    return f"{error.name()}: {error.str()}"


def error_of(exception: BaseException) -> KafkaError | None:
    """The client's error inside an exception; None for other exceptions."""
    if isinstance(exception, SystemError) and exception.__cause__ is not None:
        # The client reports a delivery while its own fatal error is already raised.
        return error_of(exception.__cause__)
    inner = exception.args[0] if isinstance(exception, KafkaException) and exception.args else None
    return inner if isinstance(inner, KafkaError) else None


@contextmanager
def translated(step: str, *, in_doubt: bool = False) -> Iterator[None]:
    """Turn the exceptions of a client into faults of the protocol.

    Args:
        step: The step, for the message: ``commit of redrive-orders-1``.
        in_doubt: Whether the result is unknown after a lost answer.

    Raises:
        TransientFault: The step was not taken and may be retried.
        OutcomeUnknown: The answer was lost.
        FencedFault: A newer producer of the id was opened.
        FatalFault: The broker will never accept it.
    """
    try:
        yield
    except (concurrent.futures.TimeoutError, TimeoutError) as exception:
        fault = OutcomeUnknown if in_doubt else TransientFault
        raise fault(f"{step}: no answer in time") from exception
    except (KafkaException, SystemError) as exception:
        error = error_of(exception)
        if error is None:
            raise TransientFault(f"{step}: {exception}") from exception
        raise fault_of(step, error, in_doubt=in_doubt) from exception


def fault_of(step: str, error: KafkaError, *, in_doubt: bool = False) -> ProtocolError:
    """The fault of an error; arguments as for ``translated``."""
    kind, text = kind_of(error), f"{step}: {described(error)}"
    if right := _RIGHTS.get(error.code()):
        text += f" (this user needs {right})"
    if problem := token_problem():
        text += f"; {problem}"
    if kind is FailureKind.FENCED:
        return FencedFault(text)
    if kind is FailureKind.FATAL:
        return FatalFault(
            text,
            hint="redrive acls prints the commands that grant the job's rights; the broker must be"
            " Kafka 2.5 or newer",
        )
    if in_doubt and not error.txn_requires_abort():
        return OutcomeUnknown(text)
    return TransientFault(text)


def certificate_refusal(error: KafkaError) -> str:
    """The broker's alert if it refused this client's certificate; empty for other errors."""
    match = _CERTIFICATE_REFUSED.search(error.str())
    return match[1] if match else ""

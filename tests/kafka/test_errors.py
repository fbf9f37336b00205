"""What Kafka's error codes mean, and that nothing a client raises gets past the translation."""

from __future__ import annotations

import concurrent.futures
from itertools import combinations

import pytest
from confluent_kafka import KafkaError, KafkaException

from redrive.errors import FatalFault, FencedFault, OutcomeUnknown, ProtocolError, TransientFault
from redrive.kafka.errors import (
    CULPRITS,
    FATAL,
    FENCED,
    INNOCENTS,
    STALE_METADATA,
    UNANSWERED,
    kind_of,
    reason_of,
    translated,
)
from redrive.kafka.reports import FailureKind
from redrive.messages import reason_name

TABLES = {
    FailureKind.CULPRIT: frozenset(CULPRITS),
    FailureKind.UNANSWERED: UNANSWERED,
    FailureKind.INNOCENT: INNOCENTS,
    FailureKind.FENCED: FENCED,
    FailureKind.FATAL: FATAL,
}


@pytest.mark.parametrize(
    ("kind", "code"),
    [(kind, code) for kind, codes in TABLES.items() for code in sorted(codes)],
    ids=lambda value: value if isinstance(value, str) else KafkaError(value).name(),
)
def test_a_code_has_the_meaning_of_its_table(kind: FailureKind, code: int) -> None:
    error = KafkaError(code)
    assert kind_of(error) is kind
    condemns = kind in {FailureKind.CULPRIT, FailureKind.UNANSWERED}
    assert bool(reason_of(error)) == condemns
    assert not condemns or reason_name(reason_of(error)).startswith("MQRC_")


def test_no_code_stands_in_two_tables() -> None:
    tables = [*TABLES.values(), STALE_METADATA]
    assert [first & second for first, second in combinations(tables, 2) if first & second] == []


def test_what_produce_answers_once_an_abort_is_required_is_an_innocent_s_report() -> None:
    assert kind_of(KafkaError(KafkaError._STATE)) is FailureKind.INNOCENT


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError.UNKNOWN, 9999])
def test_a_code_that_nobody_knows_does_the_slice_again(code: int) -> None:
    assert kind_of(KafkaError(code)) is FailureKind.TRANSIENT
    assert reason_of(KafkaError(code)) == 0


def fault_of(raised: Exception, *, in_doubt: bool = False) -> ProtocolError:
    """What a step that raised this is turned into."""
    with pytest.raises(ProtocolError) as caught, translated("commit of t", in_doubt=in_doubt):
        raise raised
    assert caught.value.message.startswith("commit of t: ")
    assert caught.value.__cause__ is raised
    return caught.value


@pytest.mark.parametrize("error", [TimeoutError, concurrent.futures.TimeoutError])
def test_no_answer_in_time_is_a_fault_like_any_other(error: type[Exception]) -> None:
    assert type(fault_of(error())) is TransientFault
    assert type(fault_of(error(), in_doubt=True)) is OutcomeUnknown


@pytest.mark.parametrize(
    ("code", "in_doubt", "fault"),
    [
        (KafkaError._TIMED_OUT, False, TransientFault),
        (KafkaError._TIMED_OUT, True, OutcomeUnknown),
        (KafkaError.PRODUCER_FENCED, True, FencedFault),
        (KafkaError.INVALID_PRODUCER_EPOCH, False, FencedFault),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, True, FatalFault),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, False, TransientFault),
    ],
)
def test_a_code_becomes_the_fault_that_says_what_to_do(
    code: int, fault: type[ProtocolError], *, in_doubt: bool
) -> None:
    raised = fault_of(KafkaException(KafkaError(code)), in_doubt=in_doubt)
    assert type(raised) is fault
    assert KafkaError(code).name() in raised.message


def test_a_transaction_that_has_to_be_aborted_leaves_nothing_in_doubt() -> None:
    error = KafkaError(KafkaError._TIMED_OUT, "late", txn_requires_abort=True)
    assert type(fault_of(KafkaException(error), in_doubt=True)) is TransientFault


def test_an_exception_around_a_client_s_own_is_looked_into() -> None:
    outer = SystemError("returned a result with an exception set")
    outer.__cause__ = KafkaException(KafkaError(KafkaError._FENCED))
    assert type(fault_of(outer)) is FencedFault


def test_what_is_no_fault_of_the_cluster_is_not_translated() -> None:
    with pytest.raises(ValueError, match="mine"), translated("commit of t"):
        raise ValueError("mine")

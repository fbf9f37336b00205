"""Calls with a deadline that holds, whatever the client does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.conftest import eventually

from redrive.errors import OutcomeUnknown, TransientFault
from redrive.kafka import deadline
from redrive.kafka.cluster import AskingClients
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import (
    DeadlineThread,
    abandoned_calls,
    answer_of,
    close_client,
    pause_after,
    unanswered,
    under_way,
    within,
)

FOREVER = 300.0
"""Seconds: longer than any test takes."""


@pytest.fixture
def thread() -> Iterator[DeadlineThread]:
    started = DeadlineThread("test")
    yield started
    started.end()


def test_an_answer_comes_back(thread: DeadlineThread) -> None:
    callers = {thread.run("ask", FOREVER, threading.get_ident) for _ in range(3)}
    assert len(callers) == 1
    assert callers != {threading.get_ident()}


def test_an_error_of_the_call_is_raised_where_it_was_asked_for(thread: DeadlineThread) -> None:
    def fail() -> None:
        raise LookupError("wrong")

    with pytest.raises(LookupError, match="wrong"):
        thread.run("fail", FOREVER, fail)
    assert thread.run("ask", FOREVER, lambda: 7) == 7


def test_a_call_that_never_returns_is_left_behind_in_time(thread: DeadlineThread) -> None:
    released, made = threading.Event(), threading.Event()
    before, begun = abandoned_calls(), time.monotonic()
    try:
        with pytest.raises(OutcomeUnknown, match=r"commit: .* within 0\.05 s"):
            thread.run("commit", 0.05, lambda: released.wait(FOREVER))
        assert abandoned_calls() == before + 1
        with pytest.raises(OutcomeUnknown, match="an earlier call of this client never returned"):
            thread.run("abort", FOREVER, made.set)
        assert time.monotonic() - begun < FOREVER / 10
    finally:
        released.set()
    assert not made.is_set()
    assert abandoned_calls() == before + 1


def test_a_client_that_cannot_be_closed_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "CLOSE", 0.05)
    released = threading.Event()

    class Consumer:
        def close(self) -> None:
            released.wait(FOREVER)

    close_client(Consumer().close, "the consumer of orders.dlq")
    assert "closing the consumer of orders.dlq" in unanswered()
    released.set()
    eventually(lambda: not unanswered(), "the consumer has closed")


def test_an_error_of_a_client_that_closes_is_raised() -> None:
    class Consumer:
        def close(self) -> None:
            raise RuntimeError("closed already")

    with pytest.raises(RuntimeError, match="closed already"):
        close_client(Consumer().close, "a consumer")


def test_what_a_process_waits_for_is_listed_as_long_as_it_does(thread: DeadlineThread) -> None:
    with under_way("the running batch"):
        pending = thread.submit("commit of x", unanswered)
        assert pending.answer(FOREVER)[0] == "the running batch"
        assert within("stop of y", FOREVER, unanswered) == ["the running batch", "stop of y"]
    assert unanswered() == []


def test_a_call_is_answered_whenever_it_is_asked_for(thread: DeadlineThread) -> None:
    goes_on = threading.Event()
    pending = thread.submit("start", lambda: goes_on.wait(FOREVER))
    assert not pending.is_made_within(0)
    goes_on.set()
    assert pending.is_made_within(FOREVER)
    assert pending.answer(0) is True


def test_a_future_that_breaks_its_own_timeout_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deadline, "GRACE", 0.0)
    with pytest.raises(TimeoutError):
        answer_of(Future(), 0.01)
    answered: Future[int] = Future()
    answered.set_result(7)
    assert answer_of(answered, FOREVER) == 7


def test_an_error_that_comes_at_once_is_asked_again_at_growing_intervals() -> None:
    clients = AskingClients(Connection(bootstrap_servers="127.0.0.1:1"), timeout=3.0)
    tries: list[float] = []

    def ask(seconds: float) -> None:
        tries.append(seconds)
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))

    with pytest.raises(TransientFault):
        clients.answer("offsets", ask)
    assert 2 <= len(tries) <= 7  # after 0, 0.1, 0.3, 0.7, 1.5, 3.0 seconds


def test_looks_take_their_share_of_a_core_at_most() -> None:
    assert pause_after(0.001, 1.0) == 1.0
    assert pause_after(0.2, 1.0, share=0.1) == pytest.approx(2.0)

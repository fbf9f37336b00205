"""Calls with a deadline that holds, whatever the client does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from redrive.errors import OutcomeUnknown
from redrive.kafka.deadline import DeadlineThread, abandoned_calls

FOREVER = 300.0
"""Seconds: longer than any test takes."""


@pytest.fixture
def thread() -> Iterator[DeadlineThread]:
    """A thread for calls."""
    started = DeadlineThread("test")
    yield started
    started.end()


def test_an_answer_comes_back(thread: DeadlineThread) -> None:
    """Call after call, from one thread that is not the caller's."""
    callers = {thread.run("ask", FOREVER, threading.get_ident) for _ in range(3)}
    assert len(callers) == 1
    assert callers != {threading.get_ident()}


def test_an_error_of_the_call_is_raised_where_it_was_asked_for(thread: DeadlineThread) -> None:
    """As it is; the thread goes on."""

    def fail() -> None:
        raise LookupError("wrong")

    with pytest.raises(LookupError, match="wrong"):
        thread.run("fail", FOREVER, fail)
    assert thread.run("ask", FOREVER, lambda: 7) == 7


def test_a_call_that_never_returns_is_left_behind_in_time(thread: DeadlineThread) -> None:
    """Whether it had its effect is unknown; the client in it is of no use any more."""
    released, made = threading.Event(), threading.Event()
    before, begun = abandoned_calls(), time.monotonic()
    try:
        with pytest.raises(OutcomeUnknown, match=r"commit: .* within 0\.05 s"):
            thread.run("commit", 0.05, lambda: released.wait(FOREVER))
        assert abandoned_calls() == before + 1
        with pytest.raises(OutcomeUnknown, match="an earlier call of this client never came back"):
            thread.run("abort", FOREVER, made.set)
        assert time.monotonic() - begun < FOREVER / 10
    finally:
        released.set()
    assert not made.is_set()
    assert abandoned_calls() == before + 1

"""Bounded waits for client calls that may never return.

Some calls of librdkafka ignore their timeout (``send_offsets_to_transaction``, when a coordinator
was lost: confluentinc/librdkafka 5456, 5511), others have none (``close``, ``begin_transaction``),
and Java may hang. Such a call runs in its own thread and is watched from outside; past its deadline
the thread and its client are abandoned.

Every wait has a name, its step. ``unanswered`` lists the steps that a process waits for, for its
last message when they never return::

    within("closing the consumer", CLOSE, consumer.close)
    with under_way("the running batch"):
        process(frame)
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from redrive.errors import OutcomeUnknown

_Answer = TypeVar("_Answer")

# Timeouts for Kafka clients, in seconds. An idle broker answers a connected client within 2 ms; a
# busy one answers within a second or two.

LOOK: Final = 0.01
"""Between polls for what comes within milliseconds: a record, or the end of a transaction."""
PAUSE: Final = 0.1
"""Between attempts of slower steps: a broker start, a new topic."""
AGAIN: Final = 0.5
"""Before retrying a step that another client just took."""
GLIMPSE: Final = 1.0
"""For optional details of an answer to a user: too short to notice."""
GRACE: Final = 2.0
"""For a client to give up by itself after its own timeout: it must not be destroyed before."""
CONNECT: Final = 3.0
"""To reach a broker that is optional: the first lost packet of a connection is resent after one
second, the next after two more."""
ONE_TRY: Final = 5.0
"""For one answer, if the caller asks again soon: twice what a busy broker needs."""
CLOSE: Final = ONE_TRY
"""For a client to close: its last requests take no longer."""
COORDINATOR: Final = 2 * ONE_TRY
"""For one answer of a coordinator: the client retries by itself if the coordinator moved, and never
answers if it was lost."""
ANSWER: Final = ONE_TRY + COORDINATOR
"""For an answer: one attempt, and a longer one by a fresh client, which must connect first."""
MESSAGE: Final = 20.0
"""For one record to be acknowledged; after that its partition counts as unavailable. Another leader
is elected within ten seconds, and pending records are then sent again."""
BROWSING: Final = 20.0
"""For searching a topic for a user, who then gets what was found."""
SILENCE: Final = 2 * ANSWER
"""Without progress, before a read or a change of topics is abandoned: a broker restart may take
this long."""
PATIENCE: Final = 60.0
"""For a broker to return, before the wait is reported as failed."""
TRANSACTION: Final = 2 * PATIENCE
"""After which a broker aborts an open transaction by itself. A slice takes some seconds, and a
restart aborts open transactions of its id, so this only bounds how long a dead machine blocks
readers."""

MOST_ABANDONED: Final = 8
"""Abandoned calls after which a process ends: each keeps a client and its threads."""

_abandoned: Final[list[str]] = []
_under_way: Final[dict[int, tuple[float, str]]] = {}
"""Start time and name of each step that this process waits for."""
_numbers: Final = itertools.count()


def abandoned_calls() -> int:
    """The number of calls of this process that missed their deadline and still run."""
    return len(_abandoned)


def unanswered() -> list[str]:
    """The steps that were abandoned, then those under way, the longest one first."""
    steps = list(_under_way.values())  # a copy: other threads begin and end steps meanwhile
    return [*_abandoned, *(step for _, step in sorted(steps))]


@contextmanager
def under_way(step: str) -> Iterator[None]:
    """List a step, such as ``the running batch``, as unanswered while its block runs."""
    number = next(_numbers)
    _under_way[number] = time.monotonic(), step
    try:
        yield
    finally:
        del _under_way[number]


class PendingCall(Generic[_Answer]):
    """A call submitted to a ``DeadlineThread``, and its result."""

    def __init__(self, thread: DeadlineThread, step: str, call: Callable[[], _Answer]) -> None:
        self._thread = thread
        self._step = step
        self._call = call
        self._is_made = threading.Event()
        self._error: BaseException | None = None
        self._answer: _Answer | None = None

    def is_made_within(self, seconds: float) -> bool:
        """Whether the call has returned, or returns within some seconds."""
        with under_way(self._step):
            return self._is_made.wait(seconds)

    def answer(self, seconds: float) -> _Answer:
        """The result of the call.

        Args:
            seconds: How long to wait; then its thread is abandoned.

        Raises:
            OutcomeUnknown: It did not return.
            BaseException: Whatever the call raised.
        """
        if not self.is_made_within(0 if self._thread.is_abandoned else seconds):
            self._thread.abandon(self._step)
            raise OutcomeUnknown(f"{self._step}: the client did not return within {seconds:g} s")
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]  # set unless there was an error

    def make(self) -> None:
        """Make the call; only for the thread."""
        try:
            self._answer = self._call()
        except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
            self._error = error
        self._is_made.set()


class DeadlineThread:
    """Makes calls one after the other, each with a strict deadline.

    It has one daemon thread, which does not delay the process's end.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[PendingCall[Any] | None] = SimpleQueue()
        self.is_abandoned = False
        """Whether a call missed its deadline: it may still use its client."""
        self.has_returned = False
        """Whether that call returned later."""
        self._abandoned_step = ""
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, step: str, call: Callable[[], _Answer]) -> PendingCall[_Answer]:
        """Begin a call; arguments and errors as for ``run``."""
        if self.is_abandoned:
            raise OutcomeUnknown(f"{step}: an earlier call of this client never returned")
        pending = PendingCall(self, step, call)
        self._calls.put(pending)
        return pending

    def run(self, step: str, seconds: float, call: Callable[[], _Answer]) -> _Answer:
        """The result of a call.

        Args:
            step: The name of the step, for the message.
            seconds: How long it may take.
            call: What to do.

        Raises:
            OutcomeUnknown: It did not return. This object and the client of the call are unusable.
            BaseException: Whatever the call raised.
        """
        return self.submit(step, call).answer(seconds)

    def end(self) -> None:
        """End the thread after its current call."""
        self._calls.put(None)

    def abandon(self, step: str) -> None:
        """Abandon the running call; only for ``PendingCall``."""
        with self._lock:
            if not self.is_abandoned:
                self.is_abandoned, self._abandoned_step = True, step
                _abandoned.append(step)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.make()
            with self._lock:
                if self.is_abandoned and not self.has_returned:
                    # The abandoned call returned later: its client is free.
                    self.has_returned = True
                    _abandoned.remove(self._abandoned_step)


def within(step: str, seconds: float, call: Callable[[], _Answer]) -> _Answer:
    """The result of a single call in its own thread; see ``DeadlineThread.run``."""
    thread = DeadlineThread(f"redrive: {step}")
    try:
        return thread.run(step, seconds, call)
    finally:
        thread.end()


def close_client(close: Callable[[], object], what: str) -> None:
    """Close a client, such as ``the consumer of orders.dlq``; abandon it if it does not return."""
    with suppress(OutcomeUnknown):
        within(f"closing {what}", CLOSE, close)


def answer_of(future: Future[_Answer], seconds: float) -> _Answer:
    """The result of a future of the admin client, whose request has its own timeout in seconds.

    Raises:
        TimeoutError: The client broke its own timeout.
        BaseException: Whatever the future raises.
    """
    return future.result(seconds + GRACE)


def pause_after(spent: float, least: float, *, share: float = 0.01) -> float:
    """The pause in seconds after a periodic check.

    The cost of a check grows with the number of partitions, so with thousands of them checks are
    less frequent.

    Args:
        spent: Seconds of processor time that the check took, without waits.
        least: The shortest pause, in seconds.
        share: Maximum share of one core for all checks.
    """
    return max(least, spent / share)

"""Calls that end in time even when the client does not.

Some calls of librdkafka ignore their timeout when a coordinator was lost
(``send_offsets_to_transaction``: confluentinc/librdkafka 5456, 5511). Such a call is made in a
thread of its own and watched from outside; past its deadline the thread, and the client in it, are
left behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from redrive.errors import OutcomeUnknown

_Answer = TypeVar("_Answer")

MOST_ABANDONED: Final = 8
"""Calls that never came back after which a process ends: each holds a client and its threads."""

_abandoned: Final[list[str]] = []
"""The steps that did not come back in this process."""


def abandoned_calls() -> int:
    """How many calls of this process are out that did not come back in time."""
    return len(_abandoned)


class _Call(Generic[_Answer]):
    """One call and what became of it."""

    def __init__(self, call: Callable[[], _Answer]) -> None:
        self._call = call
        self._is_made = threading.Event()
        self._error: BaseException | None = None
        self._answer: _Answer | None = None

    def make(self) -> None:
        try:
            self._answer = self._call()
        except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
            self._error = error
        self._is_made.set()

    def is_made_within(self, seconds: float) -> bool:
        return self._is_made.wait(seconds)

    def answer(self) -> _Answer:
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]  # set unless there was an error


class DeadlineThread:
    """Makes calls one after the other, each with a deadline that holds.

    This class is responsible for: one daemon thread, which nobody waits for when the process ends.
    """

    def __init__(self, name: str) -> None:
        """Start the thread.

        Args:
            name: For whoever looks at the process's threads.
        """
        self._calls: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        self.is_abandoned = False
        """Whether a call did not come back in time: it may still use its client."""
        self.has_returned = False
        """Whether that call came back after all."""
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def run(self, step: str, seconds: float, call: Callable[[], _Answer]) -> _Answer:
        """The answer of a call.

        Args:
            step: What is being done, for the message.
            seconds: How long it may take.
            call: What to do.

        Raises:
            OutcomeUnknown: It did not come back. This object, and whatever client the call used,
                are of no use any more.
            BaseException: Whatever the call raised.
        """
        if self.is_abandoned:
            raise OutcomeUnknown(f"{step}: an earlier call of this client never came back")
        one = _Call(call)
        self._calls.put(one)
        if not one.is_made_within(seconds):
            with self._lock:
                self.is_abandoned = True
                _abandoned.append(step)
            raise OutcomeUnknown(f"{step}: the client did not come back within {seconds:g} s")
        return one.answer()

    def end(self) -> None:
        """Lets the thread end after what it is doing."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call.make()
            self._note_late_return()

    def _note_late_return(self) -> None:
        """A call that was given up came back after all: nothing uses its client any more."""
        with self._lock:
            if self.is_abandoned and not self.has_returned:
                self.has_returned = True
                _abandoned.pop()

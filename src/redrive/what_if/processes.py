"""Processes that share the messages of a question, each with its own partitions.

A process reads, decides and counts by itself, and sends only its counts, so the data between
processes does not grow with the messages.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Self, TypeAlias

from redrive.errors import EnvironmentFault, RedriveError
from redrive.kafka.deadline import CLOSE
from redrive.what_if.totals import Totals

Share: TypeAlias = Callable[[Callable[[int], None]], Totals]
"""Tries the tables on a share of the messages, reports how many offsets it read, and returns its
counts. It goes to another process, so it can be pickled."""


class ShareProcesses:
    """One process for each share except the caller's own; use it in a ``with`` statement."""

    def __init__(self, shares: Sequence[Share], advance: Callable[[int], None]) -> None:
        """Start them; ``advance`` is called with the number of offsets read since the last call."""
        self._advance = advance
        self._processes = [_ShareProcess(share) for share in shares]

    def advance(self, number: int) -> None:
        """Report progress, including the processes'; raises ``RedriveError`` if one failed."""
        self._advance(number)
        for one in self._processes:
            one.look(self._advance, wait=False)

    def totals(self) -> Totals:
        """The final counts of all processes; raises ``RedriveError`` if one failed."""
        totals = Totals()
        for one in self._processes:
            totals.add(one.look(self._advance, wait=True))
        return totals

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._processes:
            one.end()


class _ShareProcess:
    def __init__(self, share: Share) -> None:
        # A fork would copy the threads and locks of Kafka's client in an inconsistent state.
        context = multiprocessing.get_context("spawn")
        self._connection, there = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(share, there), daemon=True)
        self._process.start()
        there.close()
        self._totals: Totals | None = None

    def look(self, advance: Callable[[int], None], *, wait: bool) -> Totals:
        """The counts of the process, empty until it is done; ``wait`` waits for that."""
        while self._totals is None and (wait or self._connection.poll()):
            try:
                found = self._connection.recv()
            except EOFError as error:
                self._process.join(CLOSE)
                raise EnvironmentFault(
                    f"a process that tried tables ended with {self._process.exitcode}",
                    hint="see its output above; it may have run out of memory",
                ) from error
            if isinstance(found, RedriveError):
                raise found
            if isinstance(found, int):
                advance(found)
            else:
                self._totals = found
        return self._totals or Totals()

    def end(self) -> None:
        self._process.terminate()
        self._process.join(CLOSE)
        self._connection.close()


def _work(share: Share, connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C ends the parent
    try:
        connection.send(share(connection.send))
    except RedriveError as error:
        connection.send(error)

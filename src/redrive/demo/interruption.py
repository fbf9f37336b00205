"""Ctrl+C, SIGTERM and SIGHUP end a demo in order."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

__all__ = ["Interruption"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Raises ``KeyboardInterrupt`` on a signal, except while something can be asked to end.

    Only the first signal counts.
    """

    def __init__(self) -> None:
        self._ask: Callable[[str], None] | None = None
        self._is_ignored = False
        self.came = False
        """Whether there was a signal."""

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Catches the signals, unless they were ignored before, as with ``nohup``."""
        old = {number: signal.getsignal(number) for number in _SIGNALS}
        caught = {n: handler for n, handler in old.items() if handler is not signal.SIG_IGN}
        for number in caught:
            signal.signal(number, self._handle)
        try:
            yield
        finally:
            for number, handler in caught.items():
                signal.signal(number, handler)

    @contextmanager
    def asking(self, ask: Callable[[str], None]) -> Iterator[None]:
        """For the time of the context, calls ``ask(signal name)``; raises at its end."""
        self._ask = ask
        try:
            yield
        finally:
            self._ask = None
            if self.came:
                # Also instead of an error: the interruption may have caused it.
                raise KeyboardInterrupt

    def ignore(self) -> None:
        """Ignore signals from now on: only cleaning up is left."""
        self._is_ignored = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._is_ignored or self.came:
            return
        self.came = True
        if self._ask is None:
            raise KeyboardInterrupt
        self._ask(signal.Signals(number).name)

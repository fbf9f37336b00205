"""The wish of a user or of the system that a demo ends."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

__all__ = ["Interruption"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """The wish of a user or of the system that the demo ends: Ctrl+C, SIGTERM, SIGHUP.

    It is raised as ``KeyboardInterrupt``, except while something runs that can be asked to end.
    One wish is enough: what comes after it changes nothing.
    """

    def __init__(self) -> None:
        self._ask: Callable[[str], None] | None = None
        self._is_deaf = False
        self.came = False
        """Whether there was one."""

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
        """For the time of the context, asks instead of raising; raises at its end.

        Args:
            ask: Asks what runs to end; gets the name of the signal.
        """
        self._ask = ask
        try:
            yield
        finally:
            self._ask = None
            if self.came:
                # Also if what was asked did not end well: that is not what matters now.
                raise KeyboardInterrupt

    def ignore(self) -> None:
        """From now on nothing is interrupted: what is left is cleaning up."""
        self._is_deaf = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._is_deaf or self.came:
            return
        self.came = True
        if self._ask is None:
            raise KeyboardInterrupt
        self._ask(signal.Signals(number).name)

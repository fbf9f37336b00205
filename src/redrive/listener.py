"""A listening socket that no number of connections exhausts.

Clients that connect and ask nothing must not keep out those that ask, nor take file descriptors
from the process. So connections are bounded, and a new one takes the place of one whose request is
not being answered: the oldest one of the address with most connections.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

BACKLOG: Final = 32
"""Connections that wait to be accepted. A server accepts as many before it handles any."""
IDLE: Final = 40.0
"""Seconds until a connection without a whole request is closed; a request's body has 30."""
_RESERVED: Final = 128
"""File descriptors that are left to the rest of the process."""
_FULL: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_REMINDER: Final = 60.0
"""Seconds between two log lines about refused connections."""

_log: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Connection:
    connection: socket.socket
    host: str
    since: float
    """When it was accepted or answered last, by the monotonic clock."""
    is_answered: bool = False
    is_ended: bool = False


class Listener(socket.socket):
    """Accepts a bounded number of connections, for any server of the standard library or asyncio.

    Args:
        host: An address or name of this machine.
        port: The port; 0 for any free one.
        most: Maximum connections; fewer where the process may open few files.

    Raises:
        OSError: The address cannot be bound.
    """

    def __init__(self, host: str, port: int, *, most: int) -> None:
        super().__init__(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        self.most = min(most, max(8, (_descriptors() - _RESERVED) // 2))
        self._connections: dict[Any, _Connection] = {}
        self._lock = threading.Lock()
        self._refused = Counter[str]()
        self._reported_at = -_REMINDER
        self._spare = os.open(os.devnull, os.O_RDONLY)
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.bind((host, port))
            self.listen(BACKLOG)
        except OSError:
            self.close()
            raise
        self.settimeout(0)
        # Connections inherit it. asyncio sets it only for sockets that name their protocol; without
        # it a body waits for the acknowledgement of its headers, which browsers delay by 40 ms.
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection; another one may be closed for it.

        Raises:
            BlockingIOError: No client waits.
        """
        while True:
            try:
                connection, address = super().accept()
            except OSError as error:
                if error.errno not in _FULL:
                    raise
                self._refuse_one()
                continue
            if self._has_room(address[0]):
                self._connections[address[:2]] = _Connection(
                    connection, address[0], time.monotonic()
                )
                return connection, address
            self._report(address[0])
            connection.close()

    @contextmanager
    def answering(self, client: Any) -> Iterator[None]:  # noqa: ANN401 - as ``accept`` returns it
        """While a whole request of a client is answered, its connection stays open."""
        known = None if client is None else self._connections.get(tuple(client[:2]))
        if known is None:
            yield
            return
        known.is_answered = True
        try:
            yield
        finally:
            known.is_answered, known.since = False, time.monotonic()

    def end_idle(self) -> None:
        """End connections that have sent no whole request in time; to be called now and then."""
        latest = time.monotonic() - IDLE
        with self._lock:
            for known in self._open():
                if not known.is_answered and known.since < latest:
                    _end(known)

    def close(self) -> None:
        """Stop to listen."""
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1
        super().close()

    def _open(self) -> list[_Connection]:
        for address, known in [*self._connections.items()]:
            if known.connection.fileno() < 0:
                del self._connections[address]
        return [known for known in self._connections.values() if not known.is_ended]

    def _has_room(self, host: str) -> bool:
        with self._lock:
            known = self._open()
            if len(known) < self.most:
                return True
            counts = Counter(connection.host for connection in known)
            idle = [connection for connection in known if not connection.is_answered]
            if not idle:
                return False
            _end(min(idle, key=lambda known: (-counts[known.host], known.since)))
        self._report(host)
        return True

    def _refuse_one(self) -> None:
        """Close a waiting connection, for which there is no file descriptor, by a spare one."""
        os.close(self._spare)
        try:
            super().accept()[0].close()
        finally:
            self._spare = os.open(os.devnull, os.O_RDONLY)
        self._report("others")

    def _report(self, host: str) -> None:
        self._refused[host] += 1
        if time.monotonic() - self._reported_at < _REMINDER:
            return
        worst = ", ".join(f"{address} ({n})" for address, n in self._refused.most_common(3))
        _log.warning(
            "too many connections, at most %d: closed those without a request; by client: %s",
            self.most, worst,
        )  # fmt: skip
        self._reported_at = time.monotonic()
        self._refused.clear()


def _end(known: _Connection) -> None:
    known.is_ended = True
    with suppress(OSError):  # the client may have ended it
        known.connection.shutdown(socket.SHUT_RDWR)


def _descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft

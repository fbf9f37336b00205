"""Ports of this machine."""

from __future__ import annotations

import socket
from random import randrange

from redrive.broker.configuration import HOST


def is_free(port: int) -> bool:
    """Whether a port is free."""
    with socket.socket() as probe:
        # A port whose last connections are still closing can be bound.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A currently free port."""
    # Below the ports of outgoing connections, one of which could otherwise
    # occupy the broker's port while the broker is down.
    while not is_free(port := randrange(20_000, 32_000)):  # noqa: S311 - a port is no secret
        pass
    return port

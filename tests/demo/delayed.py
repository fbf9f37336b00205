"""A demo whose broker answers late, as on a slow machine.

    python -m tests.demo.delayed PORT ADVERTISED demo --messages 300 --fast

Its broker listens at PORT and sends every client to ADVERTISED, where ``late_answers`` relays.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from functools import partial
from unittest.mock import patch

from benchmarks.fault_proxy import HOST, FaultProxy, Rule, What, running

from redrive.broker import EmbeddedBroker
from redrive.command import main


def late_answers(port: int, relayed: int, delay: float) -> AbstractContextManager[FaultProxy]:
    """Relay a port for the time of the context; every request waits, and so does its answer.

    Args:
        port: Where clients connect.
        relayed: Where the broker listens, now or later.
        delay: Seconds.
    """
    return running(port, relayed, [Rule("*", What.DELAY, seconds=delay)])


if __name__ == "__main__":
    _, listens, advertised, *arguments = sys.argv
    advertises = {"advertised.listeners": f"PLAINTEXT://{HOST}:{advertised}"}
    broker = partial(EmbeddedBroker, port=int(listens), properties=advertises)
    with patch("redrive.demo.environment.EmbeddedBroker", broker):
        main(arguments)

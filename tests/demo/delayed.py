"""A demo whose broker answers late, as on a slow machine.

    python -m tests.demo.delayed PORT ADVERTISED demo --messages 300 --fast

Its broker listens at PORT and sends every client to ADVERTISED, where ``late_answers`` relays.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, Thread
from unittest.mock import patch

from redrive.broker import EmbeddedBroker
from redrive.command import main

HOST = "127.0.0.1"
_CHUNK = 1024 * 1024


@contextmanager
def late_answers(port: int, relayed: int, delay: float) -> Iterator[list[object]]:
    """Relay a port for the time of the context; what comes back comes later.

    Args:
        port: Where clients connect.
        relayed: Where the broker listens, now or later.
        delay: Seconds.

    Yields:
        The addresses of the clients so far.
    """
    loop = asyncio.new_event_loop()
    listening = Event()
    clients: list[object] = []

    async def relay(client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        clients.append(answers.get_extra_info("peername"))
        await _relay(relayed, delay, client, answers)

    async def serve() -> None:
        server = await asyncio.start_server(relay, HOST, port)
        listening.set()
        async with server:
            await server.serve_forever()

    def run() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    task = loop.create_task(serve())
    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        assert listening.wait(30)
        yield clients
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        for one in asyncio.all_tasks(loop):
            one.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


async def _relay(
    relayed: int, delay: float, client: asyncio.StreamReader, answers: asyncio.StreamWriter
) -> None:
    """Carry one connection, until either side closes it."""
    try:
        server, requests = await asyncio.open_connection(HOST, relayed, limit=_CHUNK)
    except OSError:
        answers.close()
        return
    with suppress(OSError, asyncio.CancelledError):
        await asyncio.wait(
            [
                asyncio.create_task(_copy(client, requests, 0)),
                asyncio.create_task(_copy(server, answers, delay)),
            ],
            return_when=asyncio.FIRST_COMPLETED,
        )
    requests.close()
    answers.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, delay: float) -> None:
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            await asyncio.sleep(delay)
            target.write(data)
            await target.drain()


if __name__ == "__main__":
    _, listens, advertised, *arguments = sys.argv
    advertises = {"advertised.listeners": f"PLAINTEXT://{HOST}:{advertised}"}
    broker = partial(EmbeddedBroker, port=int(listens), properties=advertises)
    with patch("redrive.demo.environment.EmbeddedBroker", broker):
        main(arguments)

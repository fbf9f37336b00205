"""A relay between Kafka's clients and a broker that knows requests by name, and loses some.

The broker has to tell clients the relay's port (``advertised.listeners``): then everything passes
here, what the broker says to itself included. Kafka's frames are read as far as their header, and
the transactional id of requests that begin with one.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from math import inf
from threading import Event, Thread
from typing import Final

HOST: Final = "127.0.0.1"
_CHUNK: Final = 1024 * 1024
_LARGEST_FRAME: Final = 256 * 1024 * 1024
_NAMES: Final = {
    0: "Produce",
    1: "Fetch",
    10: "FindCoordinator",
    22: "InitProducerId",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    28: "TxnOffsetCommit",
}
"""API keys of the requests that rules can name (KIP-98)."""
_BEGIN_WITH_ID: Final = frozenset(
    {"AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"}
)
_FLEXIBLE: Final = 3
"""The first version that is written in another way (KIP-482); librdkafka sends older ones."""
_CONCURRENT_TRANSACTIONS: Final = 51
_ANSWER_TIMEOUT: Final = 10.0


class What(Enum):
    """The end of a request."""

    LATE_COPY = "late copy"
    """The connection breaks before the broker reads it; the client sends it again; the first copy
    arrives once the next transaction of the id has begun."""
    LOST_REQUEST = "lost request"
    """The connection breaks before the broker reads it."""
    LOST_ANSWER = "lost answer"
    """The broker has done it, and the connection breaks."""
    DELAY = "delay"
    """The request waits."""


@dataclass(frozen=True)
class Rule:
    """One kind of trouble."""

    request: str
    """A name, such as ``EndTxn``; ``*`` for every request."""
    what: What
    share: float = 1.0
    """Of the requests of this name."""
    seconds: float = 0.0
    """How long it waits; of a late copy, after the next transaction began, at most. One with
    ``inf`` waits for ``FaultProxy.deliver``."""
    times: float = inf
    """How often at most."""


@dataclass(frozen=True)
class _Request:
    name: str
    transactional_id: str
    frame: bytes


class FaultProxy:
    """The relay; ``running`` starts one."""

    def __init__(self, relayed: int, rules: Sequence[Rule], seed: int) -> None:
        """Does not listen yet.

        Args:
            relayed: Where the broker listens, now or later.
            rules: What to do; the first that names a request and is due decides.
            seed: Of everything random.
        """
        self._relayed = relayed
        self._rules = list(rules)
        self._random = random.Random(seed)
        self._applied: Counter[Rule] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._held: dict[str, list[tuple[bytes, float]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()
        """How often each thing was done, late copies by what the broker said of them."""
        self.clients: list[object] = []
        """The addresses of clients so far."""

    def apply(self, *rules: Rule) -> None:
        """From now on does as these rules say, each counted from the beginning."""
        self._rules, self._applied = list(rules), Counter()

    async def relay(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        """Carries one connection, until either side closes it."""
        self._loop = asyncio.get_running_loop()
        self.clients.append(answers.get_extra_info("peername"))
        try:
            server, requests = await asyncio.open_connection(HOST, self._relayed, limit=_CHUNK)
        except OSError:
            answers.close()
            return
        back = asyncio.create_task(_copy(server, answers))
        both = [asyncio.create_task(self._requests(client, requests, back)), back]
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for task in both:
            task.cancel()
        requests.close()
        answers.close()

    async def _requests(
        self,
        client: asyncio.StreamReader,
        broker: asyncio.StreamWriter,
        back: asyncio.Task[None],
    ) -> None:
        """Passes requests on, one after the other; returns where the connection is to break."""
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                request = await _read(client)
                rule = self._rule(request.name)
                if rule is not None:
                    self.counts[f"{rule.what.value} of {request.name}"] += 1
                if rule is not None and rule.what is What.DELAY:
                    await asyncio.sleep(rule.seconds)
                elif rule is not None and rule.what is What.LATE_COPY:
                    copies = self._held.setdefault(request.transactional_id, [])
                    copies.append((request.frame, rule.seconds))
                    return
                elif rule is not None and rule.what is What.LOST_REQUEST:
                    return
                elif rule is not None:
                    back.cancel()  # nothing that the broker says from now on is heard
                broker.write(request.frame)
                await broker.drain()
                if rule is not None and rule.what is What.LOST_ANSWER:
                    await asyncio.sleep(0.05)  # the broker reads what it got before it sees the end
                    return
                if request.name == "AddPartitionsToTxn":
                    self._deliver(request.transactional_id)

    def _rule(self, name: str) -> Rule | None:
        for rule in self._rules:
            is_left = self._applied[rule] < rule.times
            if is_left and rule.request in {name, "*"} and self._random.random() < rule.share:
                self._applied[rule] += 1
                return rule
        return None

    def deliver(self, transactional_id: str) -> None:
        """Lets the copies arrive now that wait for it; to be called from any thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(partial(self._deliver, transactional_id, asked=True))

    def _deliver(self, transactional_id: str, *, asked: bool = False) -> None:
        held = self._held.pop(transactional_id, [])
        self._held[transactional_id] = [
            request for request in held if request[1] == inf and not asked
        ]
        for frame, seconds in held:
            if asked or seconds != inf:
                later = 0 if asked else self._random.uniform(0, seconds)
                task = asyncio.create_task(self._arrive(frame, later))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _arrive(self, frame: bytes, seconds: float) -> None:
        """Lets a held request arrive, by a connection of its own."""
        await asyncio.sleep(seconds)
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            server, requests = await asyncio.open_connection(HOST, self._relayed)
            code = _CONCURRENT_TRANSACTIONS
            while code == _CONCURRENT_TRANSACTIONS:  # as if it had come a moment later
                requests.write(frame)
                await requests.drain()
                answer = await asyncio.wait_for(_frame(server), _ANSWER_TIMEOUT)
                (code,) = struct.unpack(">h", answer[12:14])  # size, correlation, throttle time
            self.counts[f"late copy was {'refused' if code else 'taken'}"] += 1
            requests.close()


@contextmanager
def running(
    port: int, relayed: int, rules: Sequence[Rule], *, seed: int = 0
) -> Iterator[FaultProxy]:
    """A relay for the time of the context.

    Args:
        port: Where clients connect.
        relayed: Where the broker listens, now or later.
        rules: What to do to requests.
        seed: Of everything random.
    """
    loop = asyncio.new_event_loop()
    listening = Event()
    proxy = FaultProxy(relayed, rules, seed)

    async def serve() -> None:
        server = await asyncio.start_server(proxy.relay, HOST, port, limit=_CHUNK)
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
        yield proxy
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        for pending in asyncio.all_tasks(loop):
            pending.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(_CHUNK):
            target.write(data)
            await target.drain()


async def _frame(source: asyncio.StreamReader) -> bytes:
    size = await source.readexactly(4)
    (length,) = struct.unpack(">i", size)
    if not 0 <= length <= _LARGEST_FRAME:
        raise OSError("this is no frame of Kafka's")
    return size + await source.readexactly(length)


async def _read(source: asyncio.StreamReader) -> _Request:
    """The next request: size, API key, version, correlation id, client id, body."""
    frame = await _frame(source)
    key, version, _, length = struct.unpack(">hhih", frame[4:14])
    name = _NAMES.get(key, str(key))
    transactional_id = ""
    if name in _BEGIN_WITH_ID and version < _FLEXIBLE:
        start = 14 + max(0, length)
        (length,) = struct.unpack(">h", frame[start : start + 2])
        transactional_id = frame[start + 2 : start + 2 + length].decode()
    return _Request(name, transactional_id, frame)

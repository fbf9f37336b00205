"""What the crash programs send: numbered dead letters of every kind, at a steady rate.

The table that decides about them uses every action, and some of its puts fail.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.clients import Sent, send
from confluent_kafka import KafkaError, Message, Producer

from redrive.messages import DeadLetterHeader, encode_header

APPLICATION: Final = "crash"
DEAD_LETTERS: Final = "crash.dlq"
OUTCOMES: Final = f"redrive-{APPLICATION}-outcomes"
PARTITIONS: Final = 4
OPEN, SMALL, LATE, LAST = "orders", "small", "late", "real.dead.queue"
REPAIR: Final = "repair"
"""Where operators put what remains."""
EDITED: Final = "edited"
"""Header that operators set in some of what they put there."""
TARGETS: Final = (OPEN, SMALL, LATE, LAST, REPAIR)

TABLE: Final = f"""* Every action, with failures on the way.
RETRYINT(2)
REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(3)
REASON(MQRC_UNKNOWN_OBJECT_NAME) ACTION(RETRY) RETRY(2)
REASON(MQRC_PUT_INHIBITED) ACTION(DISCARD)
REASON(MQRC_NOT_AUTHORIZED) ACTION(FWD) FWDQ('{OPEN}') HEADER(NO)
REASON(MQRC_Q_DELETED) ACTION(IGNORE)
ACTION(FWD) FWDQ('{LAST}')
"""
CHANGED: Final = f"""* What the other table leaves is placed, what it discards is left.
RETRYINT(2)
REASON(MQRC_Q_FULL) ACTION(RETRY) RETRY(2)
REASON(MQRC_UNKNOWN_OBJECT_NAME) ACTION(RETRY) RETRY(4)
REASON(MQRC_PUT_INHIBITED) ACTION(IGNORE)
REASON(MQRC_NOT_AUTHORIZED) ACTION(DISCARD)
REASON(MQRC_Q_DELETED) ACTION(FWD) FWDQ('{OPEN}')
ACTION(FWD) FWDQ('{LAST}')
"""
KINDS: Final = (
    (2053, OPEN, 60),  # delivered at once
    (2053, SMALL, 3000),  # refused for its size each time, then forwarded
    (2085, LATE, 60),  # refused until the queue appears, or forwarded
    (2051, OPEN, 60),  # discarded
    (2035, OPEN, 60),  # forwarded without header
    (2052, OPEN, 60),  # ignored: remains
    (0, "", 60),  # no dead-letter header: remains
)
MOSTLY_DELIVERED: Final = (70, 2, 8, 5, 5, 5, 5)
"""How many of a hundred dead letters are of each of the kinds."""
_AT_ONCE: Final = 1_000
"""Messages that are sent in one go at most."""
_PATIENCE: Final = 300.0
"""Seconds in which a message has to be on the broker, whatever happens to it."""


Make = Callable[[int, random.Random], Sent]
"""Makes the message of a number."""


def keyed(number: int, value: bytes, headers: Sequence[tuple[str, bytes]]) -> Sent:
    """A dead letter with one of nine keys, each of which stays on one partition."""
    place = number % 9 % PARTITIONS
    return Sent(DEAD_LETTERS, place, value, list(headers), b"k%d" % (number % 9))


def dead_letter(number: int, chance: random.Random, weights: Sequence[int] | None = None) -> Sent:
    """A dead letter of one of ``KINDS``.

    Args:
        number: Its number.
        chance: Chooses the kind.
        weights: How often to choose each kind; by default all alike.
    """
    reason, queue, size = chance.choices(KINDS, weights)[0]
    body = b"%08d" % number + chance.randbytes(size)
    if reason:
        body = (
            encode_header(DeadLetterHeader(reason=reason, dest_q_name=queue, format="MQSTR")) + body
        )
    return keyed(number, body, [("number", b"%d" % number)])


class Load:
    """Sends messages in a thread.

    Args:
        servers: The brokers.
        seed: Of everything random.
        make: Makes each message.
        rate: Messages a second; it may be changed.
    """

    def __init__(self, servers: str, seed: int, make: Make, rate: float = 0.0) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True,
                "message.timeout.ms": int(1000 * _PATIENCE), "log_level": 0,
                # A partition takes a new idempotent producer's second batch although the first was
                # refused, and then calls the first a duplicate: acknowledged, and not there.
                "max.in.flight.requests.per.connection": 1,
            }
        )  # fmt: skip
        self._make = make
        self._chance = random.Random(seed)
        self._due = 0.0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.rate = rate
        self.count = 0
        """How many were made."""
        self.acknowledged = 0
        """How many of them the client says are on a broker."""
        self.ends: dict[int, int] = {}
        """Offset behind the last one of each partition."""
        self.refused: list[str] = []

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def add(self, count: int) -> None:
        """Sends so many beside the rate, as fast as it goes."""
        with self._lock:
            self._due += count

    def stop(self) -> None:
        """Ends when all that is due is on a broker."""
        self.rate = 0.0
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(_PATIENCE)
        self.refused += [f"{left} were not acknowledged"] * bool(left)

    def _run(self) -> None:
        before = time.monotonic()
        while not self._stopping.wait(0.02) or self._due >= 1:
            now = time.monotonic()
            with self._lock:
                # Of a rate that cannot be reached, what is late does not add up.
                self._due += min((now - before) * self.rate, _AT_ONCE)
                count = min(int(self._due), _AT_ONCE)
                self._due -= count
            before = now
            for _ in range(count):
                self._send(self._make(self.count, self._chance))

    def _send(self, sent: Sent) -> None:
        self.count += 1
        send(self._producer, sent, on_delivery=self._delivered)
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.ends[message.partition() or 0] = (message.offset() or 0) + 1
            self.acknowledged += 1
        else:
            self.refused.append(str(error))

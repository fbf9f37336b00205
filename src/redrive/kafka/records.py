"""Records of a topic without the client's types, for all reading."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import dataclass
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, Self

from redrive.messages import Headers, TopicPartition
from redrive.messages import own_headers as own

if TYPE_CHECKING:
    from confluent_kafka import Message

_ask_headers: Final = methodcaller("headers")
"""``Message.headers``, called so that its result is checked. The client may return a list and leave
an exception set; Python's specialized method call does not check that, and the exception then
surfaces anywhere later."""
_CLIENT_FAULTS: Final = (SystemError, ValueError)
"""Errors of the client for headers that it cannot decode: today SystemError; UnicodeDecodeError, a
ValueError, would be right."""


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record on a topic."""

    lane: TopicPartition
    offset: int
    timestamp: int
    """Milliseconds since the epoch."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    """From ``headers_of``."""

    @property
    def original_time(self) -> int:
        """The timestamp of the record that this is a copy of, or its own."""
        original = own.read_own(self.headers).timestamp
        return self.timestamp if original is None else original

    @classmethod
    def of(cls, message: Message) -> Self:
        """A record from the client."""
        place: Any = message.topic(), message.partition(), message.offset()
        key: Any = message.key()
        value: Any = message.value()
        lane = TopicPartition(*place[:2])
        return cls(lane, place[2], message.timestamp()[1], key, value, headers_of(message))


def headers_of(message: Message) -> Headers:
    """The headers of a record, in order; no content makes this raise.

    Kafka's header names are UTF-8, but brokers do not check it. Like Java's and Spark's clients,
    this replaces invalid bytes with U+FFFD. Since that changes the name, ``redrive.unreadable``
    follows with the header's number. The headers of a message are read only once.
    """
    try:
        headers: Any = _ask_headers(message)
    except _CLIENT_FAULTS as fault:
        return _repaired(message, _undecoded(fault))
    return headers or []


def _repaired(message: Message, first: bytes) -> Headers:
    """The headers of a record with names that the client cannot decode.

    The second call of the client returns its list, with pairs that have no name. Unpacking such a
    pair would crash the process; its referents can be listed. ``first`` is the first name that is
    not UTF-8, if the client reported it.
    """
    try:
        pairs: Any = _ask_headers(message)
    except _CLIENT_FAULTS:
        return [(own.UNREADABLE, b"the client gives none of the headers")]
    headers: Headers = []
    undecodable: list[str] = []
    for number, pair in enumerate(pairs, 1):
        name, value = _parts(gc.get_referents(pair))
        if name is None:
            raw = b"" if undecodable else first
            undecodable.append(f"{number} ({ascii(raw)[2:-1]})" if raw else str(number))
            name = raw.decode(errors="replace") or "\ufffd"
        headers.append((name, value))
    problem = f"the name of header {', '.join(undecodable)} is not UTF-8"
    return [*headers, (own.UNREADABLE, problem.encode())]


def _parts(referents: Iterable[object]) -> tuple[str | None, bytes | None]:
    """Name and value of a pair, by their types: the order is not guaranteed."""
    name = value = None
    for referent in referents:
        if isinstance(referent, str):
            name = referent
        elif isinstance(referent, bytes):
            value = referent
    return name, value


def _undecoded(fault: BaseException) -> bytes:
    """The bytes that could not be decoded; empty if the client does not report them."""
    cause: BaseException | None = fault
    while cause is not None:
        if isinstance(cause, UnicodeDecodeError):
            return cause.object
        cause = cause.__cause__
    return b""

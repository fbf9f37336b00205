"""The puts of a network's demo: a generator that makes the same ones again from the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from redrive.demo.samples import NUMBER_HEADER
from redrive.messages import MQMD
from redrive.messages.own_headers import number as numeral
from redrive.topology.mq.resolver import QUEUE_HEADER, QUEUE_MANAGER_HEADER

__all__ = ["Act", "Kind", "Put", "generate_puts"]

_CUSTOMERS: Final = 40
"""Different keys."""
_GOODS: Final = ("chairs", "tables", "lamps", "shelves", "mirrors", "carpets")
_DESCRIPTOR: Final = {
    "Format": b"MQSTR",
    "Persistence": b"1",
    "Encoding": b"546",
    "CodedCharSetId": b"1208",
}
"""Fields of every message descriptor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of put: the names that an application gives, and what is special about it."""

    what: str
    """What it shows, in a few words."""
    at: str
    """The queue manager to which the application is connected."""
    queue: str
    """ObjectName."""
    queue_manager: str = ""
    """ObjectQMgrName."""
    length: int = 0
    """Bytes that the body has at least."""
    expiry: int = 0
    """Tenths of a second; 0 if it never expires. One that expires is made to wait longer."""

    @property
    def names(self) -> str:
        """``ORDERS@DEPOT``; a blank queue manager is left out."""
        return f"{self.queue}@{self.queue_manager}" if self.queue_manager else self.queue


@dataclass(frozen=True, slots=True)
class Act:
    """One part of a demo, and what is put in it."""

    name: str
    """What the part is called in the code."""
    shares: tuple[tuple[Kind, int], ...]
    """The kinds, each with its share of all messages of the demo."""


@dataclass(frozen=True, slots=True)
class Put:
    """One message that is put."""

    number: int
    """From 0, unique."""
    kind: Kind
    act: str
    """The part of the demo that it belongs to."""
    key: bytes
    body: bytes = field(repr=False)

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """Its headers on the intake, the names of the put among them."""
        kind = self.kind
        names = [(QUEUE_HEADER, kind.queue.encode())]
        if kind.queue_manager:
            names.append((QUEUE_MANAGER_HEADER, kind.queue_manager.encode()))
        return [*names, *self.message_headers]

    @property
    def message_headers(self) -> list[tuple[str, bytes]]:
        """The headers that have to arrive, unchanged."""
        fields = dict(_DESCRIPTOR)
        if self.kind.expiry:
            fields["Expiry"] = numeral(self.kind.expiry)
        described = [(MQMD[name].header, value) for name, value in fields.items()]
        return [(NUMBER_HEADER, numeral(self.number)), *described]


def generate_puts(acts: Sequence[Act], messages: int, seed: int) -> list[Put]:
    """Make the puts of a demo.

    Args:
        acts: Its parts.
        messages: How many puts; at least one for each kind of each part.
        seed: Decides about order, keys and bodies.

    Returns:
        The puts in the order of the parts, those of one part well mixed.
    """
    chance = random.Random(seed)  # noqa: S311 - repeatable, and nothing secret
    planned = [(act, kind, share) for act in acts for kind, share in act.shares]
    counts = _counts([share for _, _, share in planned], messages)
    puts: list[Put] = []
    for act in acts:
        kinds = [
            kind
            for (of, kind, _), count in zip(planned, counts, strict=True)
            if of is act
            for _ in range(count)
        ]
        chance.shuffle(kinds)
        puts += _made(act, kinds, len(puts), chance)
    return puts


def _counts(shares: Sequence[int], messages: int) -> list[int]:
    """So many messages in the proportion of the shares, none of them 0."""
    total = sum(shares)
    counts = [max(1, messages * share // total) for share in shares]
    largest = max(range(len(shares)), key=counts.__getitem__)
    counts[largest] += messages - sum(counts)
    if counts[largest] < 1:
        raise ValueError(f"{messages} messages are too few for {len(shares)} kinds")
    return counts


def _made(act: Act, kinds: Sequence[Kind], first: int, chance: random.Random) -> Iterator[Put]:
    for number, kind in enumerate(kinds, first):
        key = f"customer {chance.randrange(_CUSTOMERS)}".encode()
        body = f"{number}: {chance.randint(1, 99)} {chance.choice(_GOODS)}"
        yield Put(number, kind, act.name, key, body.ljust(kind.length, ".").encode())

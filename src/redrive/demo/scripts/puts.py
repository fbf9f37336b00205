"""The puts of a network's demo: a generator that makes the same ones again from the same seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from redrive.demo.messages import NUMBER_HEADER, End, Message, Record
from redrive.demo.scripts.places import DEAD_LETTERS, EXPIRED, ON_QUEUES, REMAINING
from redrive.messages import MQMD
from redrive.messages.own_headers import number as numeral
from redrive.topology.mq.resolver import QUEUE_HEADER, QUEUE_MANAGER_HEADER
from redrive.topology.names import put_topic

__all__ = ["LATE", "Kind", "Stage", "dead_letter", "generate_puts", "on_queue", "remaining"]

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


def on_queue(*places: str) -> tuple[End, ...]:
    """Messages end on one of these queues, each ``queue@manager``."""
    return tuple(End(ON_QUEUES, place) for place in places)


def dead_letter(place: str, reason: int = 0) -> tuple[End, ...]:
    """Messages end on a dead-letter queue, with a reason code."""
    return (End(DEAD_LETTERS, place, reason),)


def remaining(place: str, reason: int = 0) -> tuple[End, ...]:
    """Nothing can place the messages of a queue, which the job keeps."""
    return (End(REMAINING, place, reason),)


LATE: Final = (End(EXPIRED),)
"""Messages expire, and so are gone."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of put: the names that an application gives, and what is special about it."""

    name: str
    """What it shows, in a few words."""
    at: str
    """The queue manager to which the application is connected."""
    to: str
    """ObjectName, and after an ``@`` ObjectQMgrName unless it is blank."""
    ends: tuple[End, ...]
    """Where its messages may end, as ``redrive resolve`` says."""
    length: int = 0
    """Bytes that the body has at least."""
    expiry: int = 0
    """Tenths of a second; 0 if it never expires. One that expires is made to wait longer."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One part of a script, and what is put in it."""

    name: str
    shares: tuple[tuple[Kind, int], ...]
    """The kinds, each with its share of all messages of the demo."""


def generate_puts(stages: Sequence[Stage], messages: int, seed: int) -> list[Message]:
    """Make the messages of a demo.

    Args:
        stages: Its parts.
        messages: How many; at least one for each kind of each stage.
        seed: Decides about order, keys and bodies.

    Returns:
        The messages in the order of the stages, those of one stage well mixed.
    """
    chance = random.Random(seed)  # noqa: S311 - repeatable, and nothing secret
    counts = iter(_counts([share for one in stages for _, share in one.shares], messages))
    puts: list[Message] = []
    for stage in stages:
        kinds = [kind for kind, _ in stage.shares for _ in range(next(counts))]
        chance.shuffle(kinds)
        puts += [
            _message(number, kind, stage, chance) for number, kind in enumerate(kinds, len(puts))
        ]
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


def _message(number: int, kind: Kind, stage: Stage, chance: random.Random) -> Message:
    key = f"customer {chance.randrange(_CUSTOMERS)}".encode()
    body = f"{number}: {chance.randint(1, 99)} {chance.choice(_GOODS)}"
    value = body.ljust(kind.length, ".").encode()
    queue, _, queue_manager = kind.to.encode().partition(b"@")
    manager = ((QUEUE_MANAGER_HEADER, queue_manager),) if queue_manager else ()
    expiry = {"Expiry": numeral(kind.expiry)} if kind.expiry else {}
    fields = {**_DESCRIPTOR, **expiry}.items()
    headers = [(NUMBER_HEADER, numeral(number)), *((MQMD[it].header, of) for it, of in fields)]
    return Message(
        number=number,
        kind=kind.name,
        topic=put_topic(kind.at),
        record=Record(key, value, ((QUEUE_HEADER, queue), *manager, *headers)),
        original=Record(key, value, tuple(headers)),
        ends=kind.ends,
        stage=stage.name,
    )

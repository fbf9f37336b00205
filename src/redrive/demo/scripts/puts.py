"""The puts of a network's demo, generated from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, Final, Self

import yaml

from redrive.demo.messages import NUMBER_HEADER, End, Message, Record
from redrive.demo.scripts.places import DEAD_LETTERS, EXPIRED, ON_QUEUES, REMAINING
from redrive.messages import MQMD
from redrive.messages.own_headers import number as numeral
from redrive.messages.reasons import Reason
from redrive.topology.mq.resolver import QUEUE_HEADER, QUEUE_MANAGER_HEADER
from redrive.topology.names import put_topic

_CUSTOMERS: Final = 40
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
    """One kind of put: the names that an application uses, and its special properties."""

    name: str
    at: str
    """The queue manager to which the application is connected."""
    to: str
    """ObjectName, and after an ``@`` ObjectQMgrName unless it is blank."""
    ends: tuple[End, ...]
    """Where its messages may end, as ``redrive resolve`` shows."""
    length: int = 0
    """Minimum length of the body in bytes."""
    expiry: int = 0
    """Tenths of a second; 0 for never. An expiring message is kept waiting for longer."""
    stopped: tuple[tuple[str, str], ...] = ()
    """Connections that are stopped while it is put: queue manager and connection."""

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> Self:
        """A kind, as declared in the YAML file."""
        fields = dict(written)
        reason = fields.pop("reason", None)
        code = 0 if reason is None else Reason[reason]
        ends = tuple(
            End(what, place, code)
            for what in (ON_QUEUES, DEAD_LETTERS, EXPIRED, REMAINING)
            for place in fields.pop(what, ())
        )
        stopped = tuple((at, name) for at, name in fields.pop("stopped", ()))
        return cls(name=fields.pop("shows"), ends=ends, stopped=stopped, **fields)


@dataclass(frozen=True, slots=True)
class Stage:
    """One part of a script, and its puts."""

    name: str
    shares: tuple[tuple[Kind, int], ...]
    """The kinds, each with its share of all messages of the demo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A network of the folder ``examples``, and its demo."""

    name: str
    """Name of its folder, and of the YAML file that declares its demo."""
    title: str
    made: frozenset[str]
    """Headers that a put adds to a message."""
    stages: Sequence[Stage]
    script: Sequence[Mapping[str, Any]]
    """Steps: one method of ``NetworkOperator`` and its arguments each."""

    @classmethod
    def read(cls, name: str) -> Self:
        """Read the declaration of a demo."""
        text = files(__package__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
        written = yaml.safe_load(text)
        kinds = {key: Kind.read(kind) for key, kind in written["kinds"].items()}
        stages = [
            Stage(stage, tuple((kinds[kind], share) for kind, share in shares.items()))
            for stage, shares in written["stages"].items()
        ]
        made = frozenset(MQMD[field].header for field in written.get("made", ()))
        return cls(
            name=name, title=written["title"], made=made, stages=stages, script=written["script"]
        )


def generate_puts(example: Example, messages: int, seed: int) -> list[Message]:
    """The messages of a demo: stage by stage, mixed within each stage.

    Each kind of each stage has at least one; the seed determines order, keys and bodies.
    """
    chance = random.Random(seed)  # noqa: S311 - repeatable, and nothing secret
    stages = example.stages
    counts = iter(_counts([share for one in stages for _, share in one.shares], messages))
    puts: list[Message] = []
    for stage in stages:
        kinds = [kind for kind, _ in stage.shares for _ in range(next(counts))]
        chance.shuffle(kinds)
        puts += [
            replace(_message(number, kind, chance), stage=stage.name, made=example.made)
            for number, kind in enumerate(kinds, len(puts))
        ]
    return puts


def _counts(shares: Sequence[int], messages: int) -> list[int]:
    total = sum(shares)
    counts = [max(1, messages * share // total) for share in shares]
    largest = max(range(len(shares)), key=counts.__getitem__)
    counts[largest] += messages - sum(counts)
    if counts[largest] < 1:
        raise ValueError(f"{messages} messages are too few for {len(shares)} kinds")
    return counts


def _message(number: int, kind: Kind, chance: random.Random) -> Message:
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
    )

"""Sample dead letters, generated from a seed.

Each has the original message and the end it must reach, recorded by the generator, so that the demo
checks the result without the job's code.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from redrive.demo.messages import NUMBER_HEADER, End, Message, Record
from redrive.demo.scripts.dead_letters import read_kinds
from redrive.demo.scripts.load import DEAD_LETTER_QUEUE, ORDERS
from redrive.messages import (
    DeadLetterHeader,
    Form,
    Headers,
    Representation,
    add_header,
    constant_value,
    encode_header,
    new_header,
)
from redrive.rules import FieldValue

_MQMD: Final = "JMS_IBM_MQMD_"
_REPLY_QUEUE: Final = "&REPLYQ"
"""Stands for the message's own reply queue as its end."""
LONGEST_AGE: Final = 3_600_000
"""Maximum age of samples in milliseconds."""


@dataclass(frozen=True, slots=True)
class _Platform:
    representation: Representation
    application_type: str
    programs: tuple[str, ...]


_PLATFORMS: Final = (
    _Platform(Representation("big", 500), "MQAT_CICS", ("PAYR", "ORDT", "CUSQ")),
    _Platform(Representation("big", 1047), "MQAT_ZOS", ("NIGHTRUN", "BATCH01")),
    _Platform(Representation("big", 37), "MQAT_OS400", ("INVPGM", "ORDPGM")),
    _Platform(Representation("big", 819), "MQAT_AIX", ("orderd", "billing")),
    _Platform(Representation("little", 1208), "MQAT_JAVA", ("OrderService", "WebShop")),
    _Platform(Representation("little", 850), "MQAT_WINDOWS_NT", ("shop.exe", "erp.exe")),
)
_USERS: Final = ("alice", "bob", "svcorders", "svcweb", "MQUSER01")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of dead letters."""

    name: str
    share: int
    """Samples of this kind in a thousand."""
    end: str
    """retried, forwarded, discarded or remaining."""
    end_queue: str = ""
    """The queue of their end; empty for their original queue."""
    reason: str = ""
    queues: tuple[str, ...] = ()
    queue_manager: str = "QM.NEW"
    constants: Mapping[str, str] = field(default_factory=dict)
    """Fields of the message descriptor, with the name of the MQ constant."""
    user: str = ""
    """Empty for any."""
    reply_queues: tuple[str, ...] = ()
    lengths: tuple[int, int] = (60, 600)
    """Shortest and longest body, in bytes."""
    nulls: bool = False
    """Whether some have no body, like deletions in Kafka."""
    is_malformed: bool = False
    """Whether they have no valid dead-letter header."""


KINDS: Final = tuple(Kind(**fields) for fields in read_kinds("samples.yaml"))
"""Every kind of sample; the shares make a thousand."""


def generate(count: int, seed: int, now: int) -> Iterator[Message]:
    """Samples of all kinds in a random order; the same for the same arguments.

    From ``len(KINDS)`` on there is one of each kind. ``now`` is in milliseconds since 1970; samples
    are up to ``LONGEST_AGE`` older.
    """
    chance = random.Random(seed)  # noqa: S311 - repeatable samples are wanted
    kinds = [kind for kind, size in zip(KINDS, _sizes(count), strict=True) for _ in range(size)]
    chance.shuffle(kinds)
    for number, kind in enumerate(kinds[:count]):
        timestamp = now - LONGEST_AGE + number * LONGEST_AGE // count
        yield _Maker(chance, number, kind, timestamp).message()


def _sizes(count: int) -> Sequence[int]:
    total, rest = sum(kind.share for kind in KINDS), max(0, count - len(KINDS))
    others = [1 + rest * kind.share // total for kind in KINDS[1:]]
    return [max(1, count - sum(others)), *others]


class _Maker:
    def __init__(self, chance: random.Random, number: int, kind: Kind, timestamp: int) -> None:
        self._chance = chance
        self._number = number
        self._kind = kind
        self._timestamp = timestamp
        self._platform = chance.choice(_PLATFORMS)
        self._queue = chance.choice(kind.queues or ("",))

    def message(self) -> Message:
        descriptor = self._descriptor()
        original = self._original(descriptor)
        if self._kind.is_malformed:
            original = dead_letter = self._malformed(original)
        else:
            header = self._header(original.headers)
            form = Form.BINARY if self._chance.random() < 0.65 else Form.HEADERS  # noqa: PLR2004
            value, headers = add_header(header, original.value, list(original.headers), form=form)
            dead_letter = Record(original.key, value, tuple(headers), self._timestamp)
        return Message(
            number=self._number,
            kind=self._kind.name,
            topic=DEAD_LETTER_QUEUE,
            record=dead_letter,
            original=original,
            ends=(End(self._kind.end, self._end_queue(str(descriptor["ReplyToQ"]))),),
        )

    def _end_queue(self, reply_queue: str) -> str:
        match self._kind.end:
            case "discarded":
                return ""
            case "remaining":
                return DEAD_LETTER_QUEUE
        wanted = self._kind.end_queue or self._queue
        return reply_queue if wanted == _REPLY_QUEUE else wanted

    def _descriptor(self) -> dict[str, FieldValue]:
        chance, platform = self._chance, self._platform
        own = {name: _constant(value) for name, value in self._kind.constants.items()}
        # CICS has a special rule for nonpersistent messages.
        persistent = platform.application_type == "MQAT_CICS" or chance.random() < 0.7  # noqa: PLR2004
        return {
            "Format": "MQSTR",
            "Encoding": platform.representation.encoding,
            "CodedCharSetId": platform.representation.ccsid,
            "MsgType": _constant("MQMT_DATAGRAM"),
            "Persistence": int(persistent),
            "Feedback": 0,
            "MsgId": chance.randbytes(24).hex(),
            "ReplyToQ": chance.choice(self._kind.reply_queues or ("",)),
            "ReplyToQMgr": "QM.NEW" if self._kind.reply_queues else "",
            "UserIdentifier": self._kind.user or chance.choice(_USERS),
            "ApplIdentityData": chance.choice(("", "batch 7", "retail")),
            "PutApplType": _constant(platform.application_type),
            "PutApplName": chance.choice(platform.programs),
            **own,
        }

    def _original(self, descriptor: Mapping[str, FieldValue]) -> Record:
        chance = self._chance
        headers: Headers = [
            (NUMBER_HEADER, str(self._number).encode()),
            *((_MQMD + name, str(value).encode()) for name, value in descriptor.items()),
        ]
        if chance.random() < 0.3:  # noqa: PLR2004 - repeated names and a null: all legal
            headers += [("trace", chance.randbytes(8)), ("trace", b""), ("region", None)]
        key = None if chance.random() < 0.1 else f"customer-{chance.randrange(500)}".encode()  # noqa: PLR2004
        return Record(key, self._body(), tuple(headers), self._timestamp)

    def _body(self) -> bytes | None:
        if self._kind.nulls and self._chance.random() < 0.1:  # noqa: PLR2004
            return None
        text = f"sample {self._number}, {self._kind.name}: ".encode(
            self._platform.representation.codec
        )
        length = self._chance.randint(*self._kind.lengths)
        # Random bytes, which cannot be compressed.
        return (text + self._chance.randbytes(max(0, length - len(text))))[:length]

    def _header(self, headers: Sequence[tuple[str, bytes | None]]) -> DeadLetterHeader:
        plain = new_header(
            list(headers),
            reason=_constant(self._kind.reason),
            queue=self._queue,
            queue_manager=self._kind.queue_manager,
            timestamp=self._timestamp,
            put_appl_name="amqrmppa",
            put_appl_type=_constant("MQAT_QMGR"),
        )
        return DeadLetterHeader.from_fields(plain.fields(), self._platform.representation)

    def _malformed(self, plain: Record) -> Record:
        """A record that resembles a dead letter but is not one."""
        mqdlh = encode_header(
            DeadLetterHeader(reason=2053, representation=self._platform.representation)
        )
        version_2 = mqdlh[:4] + bytes(byte * 2 for byte in mqdlh[4:8]) + mqdlh[8:]
        body = plain.value or b""
        forms: tuple[tuple[bytes | None, Headers], ...] = (
            (mqdlh[: self._chance.randrange(4, len(mqdlh))], []),
            (version_2 + body, []),
            (body, []),
            (b"", []),
            (None, []),
            (body, [("mqdlh.Reason", b"queue full"), ("mqdlh.DestQName", ORDERS.encode())]),
            (body, [("mqdlh.DestQName", ORDERS.encode())]),
        )
        value, added = self._chance.choice(forms)
        return Record(plain.key, value, (*plain.headers, *added), self._timestamp)


def _constant(name: str) -> int:
    value = constant_value(name)
    if value is None:
        raise ValueError(f"{name} is not an MQ constant")
    return value

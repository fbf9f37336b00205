"""The demo with dead letters of IBM MQ: a full queue, a late one, and limits.

Each dead letter is generated from a seed, with its original message and the end that it must reach.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from redrive.demo.client import NUMBER_HEADER, Record, TopicRecord
from redrive.demo.reconciliation import DemoMessage, End
from redrive.demo.script import MessageKind, Script, mixed, read_kinds, rules_with
from redrive.kafka.administration import NewTopic
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

DEAD_LETTER_QUEUE: Final = "DEAD.LETTERS"
ORDERS: Final = "ORDERS"
"""The queue that is full when the job starts, because its consumer is slow."""
_INVOICES: Final = "INVOICES.NEW"
"""The queue that does not exist when the job starts."""
_QUEUES: Final = (
    *(ORDERS, "PAYMENTS", "SHIPMENTS", "CUSTOMERS", "TEXTS.SHORT"),
    *("WEB.REPLIES", "SECURITY.REVIEW", "TOO.BIG"),
)
"""The other queues that a message can be put to; further names are unknown."""
_PARTITIONS: Final = 4
_FULL_PARTS: Final = 8
"""The full queue has room for only this share of its messages, so that they need many retries."""
_READS_A_SECOND: Final = 3
"""How often the slow consumer reads."""
_LONGEST_AGE: Final = 3_600_000
"""Maximum age of a dead letter in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MqKind(MessageKind):
    """A kind of dead letters of IBM MQ."""

    keeps_header: bool = False
    """Whether they are forwarded with their header."""
    reason: str = ""
    queues: Sequence[str] = ("",)
    queue_manager: str = "QM.NEW"
    descriptor: Mapping[str, str] = field(default_factory=dict)
    """Fields of the message descriptor; a number has the name of its MQ constant."""
    lengths: tuple[int, int] = (60, 600)
    """Shortest and longest body, in bytes."""
    has_nulls: bool = False
    """Whether some have no body, like deletions in Kafka."""
    is_malformed: bool = False
    """Whether they have no valid dead-letter header."""


KINDS: Final = read_kinds("mq.yaml", MqKind)
"""Every kind of dead letters; the shares make a thousand."""

_PLATFORMS: Final = (
    (Representation("big", 500), "MQAT_CICS", "PAYR"),
    (Representation("big", 819), "MQAT_AIX", "orderd"),
    (Representation("little", 1208), "MQAT_JAVA", "OrderService"),
)
"""Representation, type and name of the programs that put messages."""


class MqDeadLetters(Script):
    """Dead letters of many kinds; the job ends by itself, because the table says WAIT(NO)."""

    rules_name = "sample.rul"
    queues = (DEAD_LETTER_QUEUE,)
    late = NewTopic(_INVOICES, 1)
    application_topic = ORDERS

    def __init__(self, messages: int, seed: int, *, fast: bool = False) -> None:
        self.title = f"mq with {messages} dead letters, seed {seed}"
        self._retry_interval = 1 if fast else 6
        self.rules = rules_with(self.rules_name, f"RETRYINT({self._retry_interval})")
        self.messages = list(generate(messages, seed, int(time.time() * 1000)))
        self.late_by = 3 if fast else 60
        draining = 4 if fast else 45
        orders = messages * KINDS[0].share // 1000
        self.application_reads = max(1, orders // (draining * _READS_A_SECOND))
        max_depth = max(5, orders // _FULL_PARTS)
        self.others = [
            (ORDERS, Record(None, b"ordinary %d" % number, ())) for number in range(max_depth)
        ]
        # Uncompressed: a dead letter that is too large would fit otherwise.
        small = {"max.message.bytes": str(16 * 1024), "compression.type": "uncompressed"}
        self.topics = [
            NewTopic(DEAD_LETTER_QUEUE, _PARTITIONS),
            NewTopic("EVENTS.SMALL", 1, small),
            *(NewTopic(queue, 1) for queue in _QUEUES),
        ]
        self.settings = (
            f'[queues."{ORDERS}"]\nmax_depth = {max_depth}\n'
            f'consumer_group = "demo-application"\n\n'
            f'[queues."TEXTS.SHORT"]\nmax_message_length = 4096\n\n'
        )

    def process(self, stored: TopicRecord, delivery: int) -> None:
        """The slow consumer: reading is all that it does; see ``Script.process``."""

    def least_wait(self, attempt: int) -> float:
        """RETRYINT, before every attempt; see ``Script.least_wait``."""
        del attempt
        return self._retry_interval


def generate(count: int, seed: int, now: int) -> Iterator[DemoMessage]:
    """Dead letters of all kinds, up to an hour older than ``now``, in milliseconds since 1970."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, and nothing secret
    for number, kind in enumerate(mixed(KINDS, count, chance)):
        timestamp = now - _LONGEST_AGE + number * _LONGEST_AGE // count
        yield _message(number, kind, timestamp, chance)


def _message(number: int, kind: MqKind, timestamp: int, chance: random.Random) -> DemoMessage:
    representation, application_type, program = chance.choice(_PLATFORMS)
    queue = chance.choice(kind.queues)
    descriptor: dict[str, FieldValue] = {
        "Format": "MQSTR",
        "Encoding": representation.encoding,
        "CodedCharSetId": representation.ccsid,
        "MsgType": _number("MQMT_DATAGRAM"),
        "Persistence": _number("MQPER_PERSISTENT"),
        "Feedback": 0,
        "MsgId": chance.randbytes(24).hex(),
        "UserIdentifier": chance.choice(("alice", "bob", "svcorders")),
        "PutApplType": _number(application_type),
        "PutApplName": program,
        **{
            name: _number(value) if value.startswith("MQ") else value
            for name, value in kind.descriptor.items()
        },
    }
    headers: Headers = [(NUMBER_HEADER, str(number).encode())]
    headers += [(f"JMS_IBM_MQMD_{name}", str(of).encode()) for name, of in descriptor.items()]
    if chance.random() < 0.3:  # noqa: PLR2004 - a repeated name is legal
        headers += [("trace", chance.randbytes(8)), ("trace", b"")]
    key: bytes | None = f"customer-{chance.randrange(500)}".encode()
    # Random bytes, which cannot be compressed.
    body: bytes | None = chance.randbytes(chance.randint(*kind.lengths))
    if chance.random() < 0.1:  # noqa: PLR2004
        key, body = (key, None) if kind.has_nulls else (None, body)
    original = record = Record(key, body, tuple(headers), timestamp)
    if kind.is_malformed:
        original = record = _malformed(original, representation, chance)
    else:
        plain = new_header(
            headers,
            reason=_number(kind.reason),
            queue=queue,
            queue_manager=kind.queue_manager,
            timestamp=timestamp,
            put_appl_name="amqrmppa",
            put_appl_type=_number("MQAT_QMGR"),
        )
        header = DeadLetterHeader.from_fields(plain.fields(), representation)
        form = Form.BINARY if chance.random() < 0.65 else Form.HEADERS  # noqa: PLR2004
        value, more = add_header(header, body, headers, form=form)
        record = Record(key, value, tuple(more), timestamp)
    place = kind.place or queue
    places = {"discarded": "", "remaining": DEAD_LETTER_QUEUE}
    end = End(kind.end, places.get(kind.end, place), kind.keeps_header)
    return DemoMessage(number, kind.name, DEAD_LETTER_QUEUE, record, original, end, kind.refusals)


def _malformed(plain: Record, representation: Representation, chance: random.Random) -> Record:
    """A record that resembles a dead letter but is not one."""
    header = encode_header(DeadLetterHeader(reason=2053, representation=representation))
    wrong_version = header[:4] + bytes(byte * 2 for byte in header[4:8]) + header[8:]
    body = plain.value or b""
    forms: tuple[tuple[bytes, Headers], ...] = (
        (header[: chance.randrange(4, len(header))], []),
        (wrong_version + body, []),
        (body, []),
        (body, [("mqdlh.Reason", b"queue full"), ("mqdlh.DestQName", ORDERS.encode())]),
    )
    value, added = chance.choice(forms)
    return Record(plain.key, value, (*plain.headers, *added), plain.timestamp)


def _number(constant: str) -> int:
    value = constant_value(constant)
    assert value is not None, f"{constant} is not an MQ constant"
    return value

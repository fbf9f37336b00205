"""Dead letters of four Kafka programs, generated from a seed.

As in ``samples``, each keeps the original message and the end it must reach.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from redrive.demo.cluster import Cluster, Consumer
from redrive.demo.messages import NUMBER_HEADER, End, Message, Record
from redrive.demo.scripts.dead_letters import read_kinds
from redrive.messages import Headers
from redrive.messages.own_headers import identity

PARTITIONS: Final = 4
"""Partitions of every topic that a program reads."""
AWAY: Final = "invoices"
"""The topic that does not exist when the job starts."""
PAYMENTS: Final = "payments"
"""The topic whose application runs in the demo."""
TOPICS: Final = ("orders", PAYMENTS, AWAY, "counts")
DEAD_LETTER_TOPICS: Final = ("orders.dlq", "payments-dlt", "invoices-dlt", "counts.dlq")
_WHEN: Final = 1_767_225_600_000
"""When the originals were written, in milliseconds since 1970."""
_LONG: Final = 3_000
"""Bytes of a stack trace."""
_CUSTOMERS: Final = 200


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of one message."""

    topic: str
    partition: int
    offset: int
    error: str
    """Class of the exception, or of its cause."""
    message: str
    stage: str
    """The stage of a sink."""


_Writer: TypeAlias = Callable[[Failure], Headers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of dead letters."""

    name: str
    share: int
    """Percentage of this kind."""
    scheme: str
    dead_letters: str
    topic: str = ""
    error: str = ""
    message: str = ""
    stage: str = ""
    end: str
    """retried, forwarded, discarded or remaining."""
    place: str = ""
    tenant: str = "shop"
    is_negative: bool = False
    """Whether the amount is negative."""
    is_binary: bool = False
    failures: tuple[int, ...] = (0,)
    """How often the application fails to process them again: one of these numbers."""


KINDS: Final = tuple(Kind(**fields) for fields in read_kinds("applications.yaml"))


def generate(messages: int, seed: int) -> list[Message]:
    """Make dead letters, at least one of each kind; the seed determines order and content."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, and nothing secret
    kinds = [*KINDS, *chance.choices(KINDS, [one.share for one in KINDS], k=messages - len(KINDS))]
    chance.shuffle(kinds)
    return [_message(number, kind, chance) for number, kind in enumerate(kinds)]


def _message(number: int, kind: Kind, chance: random.Random) -> Message:
    partition = chance.randrange(PARTITIONS)
    key = f"customer {chance.randrange(_CUSTOMERS)}".encode()
    amount = chance.randint(1, 99) * (-1 if kind.is_negative else 1)
    value = b'{"id": %d, "amount": %d}' % (number, amount)
    if kind.is_binary:
        value = b"\x00\xff" + number.to_bytes(4, "big") + chance.randbytes(chance.randrange(300))
    headers: Headers = [(NUMBER_HEADER, b"%d" % number), ("x-tenant", kind.tenant.encode())]
    failure = Failure(kind.topic, partition, number, kind.error, kind.message, kind.stage)
    written = _WRITERS[kind.scheme](failure)
    place = kind.place or kind.topic
    places = {
        "retried": f"{place}:{partition}",
        "forwarded": place,
        "discarded": "",
        "remaining": kind.dead_letters,
    }
    return Message(
        number=number,
        kind=kind.name,
        topic=kind.dead_letters,
        record=Record(key, value, (*headers, *written)),
        original=Record(key, value, tuple(headers), _WHEN if "spring" in kind.scheme else 0),
        ends=(End(kind.end, places[kind.end]),),
        failures=chance.choice(kind.failures),
    )


def dead_letter(record: Any, kind: Kind) -> Record:  # noqa: ANN401 - untyped client
    """A record that an application failed to process: its headers, then those of the failure."""
    failure = Failure(
        record.topic, record.partition, record.offset, kind.error, kind.message, kind.stage
    )
    headers = (*record.headers, *_WRITERS[kind.scheme](failure))
    return Record(record.key, record.value, headers)


def _stack(error: str, message: str) -> str:
    frame = "\n\tat com.example.Application.process(Application.java:42)"
    return f"{error}: {message}" + frame * (_LONG // len(frame))


def _connect(it: Failure) -> Headers:
    fields = {
        "topic": it.topic,
        "partition": str(it.partition),
        "offset": str(it.offset),
        "connector.name": "jdbc-sink",
        "task.id": "0",
        "stage": it.stage,
        "class.name": "io.confluent.connect.jdbc.JdbcSinkTask",
        "exception.class.name": it.error,
        "exception.message": it.message,
        "exception.stacktrace": _stack(it.error, it.message),
    }
    return [(f"__connect.errors.{name}", text.encode()) for name, text in fields.items()]


def _spring(prefix: str) -> _Writer:
    def write(it: Failure) -> Headers:
        wrapper = "org.springframework.kafka.listener.ListenerExecutionFailedException"
        return [
            (f"{prefix}exception-fqcn", wrapper.encode()),
            (f"{prefix}exception-cause-fqcn", it.error.encode()),
            (f"{prefix}exception-message", f"Listener failed; {it.message}".encode()),
            (f"{prefix}exception-stacktrace", _stack(wrapper, it.message).encode()),
            (f"{prefix}original-topic", it.topic.encode()),
            (f"{prefix}original-partition", it.partition.to_bytes(4, "big")),
            (f"{prefix}original-offset", it.offset.to_bytes(8, "big")),
            (f"{prefix}original-timestamp", _WHEN.to_bytes(8, "big")),
            (f"{prefix}original-timestamp-type", b"CreateTime"),
            ("kafka_dlt-original-consumer-group", f"{it.topic}-service".encode()),
        ]

    return write


def _retry_topic(it: Failure) -> Headers:
    return [
        *_spring("kafka_")(it),
        ("retry_topic-attempts", (4).to_bytes(4, "big")),
        ("retry_topic-original-timestamp", _WHEN.to_bytes(6, "big")),
        ("retry_topic-backoff-timestamp", (_WHEN + 60_000).to_bytes(6, "big")),
    ]


def _streams(it: Failure) -> Headers:
    fields = {
        "exception": f"{it.error}: {it.message}",
        "message": it.message,
        "topic": it.topic,
        "partition": str(it.partition),
        "offset": str(it.offset),
        "stacktrace": _stack(it.error, it.message),
    }
    return [(f"__streams.errors.{name}", text.encode()) for name, text in fields.items()]


_WRITERS: Final[dict[str, _Writer]] = {
    "connect": _connect,
    "spring-dlt": _spring("kafka_dlt-"),
    "spring-retry-topic": _retry_topic,
    "kafka-streams": _streams,
    "none": lambda _: [],
}


_KIND_OF: Final = {one.name: one for one in KINDS}


class _BookingError(Exception):
    """A payment cannot be booked."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind.message)
        self.kind = kind


class PaymentService:
    """The application that reads ``payments``: payments that it cannot book become dead letters.

    It books each payment after the number of failures that its message has.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self.deliveries = Counter[int]()
        """How often each message came, by its number."""
        self.booked: dict[str, bool] = {}
        """``topic:partition:offset`` of every record, and whether it was booked."""

    def process(self, consumer: Consumer, cluster: Cluster) -> None:
        """Process new records; failed ones become dead letters before the commit."""
        for record in consumer.read():
            try:
                self._book(record)
            except _BookingError as error:
                cluster.put([(error.kind.dead_letters, dead_letter(record, error.kind))])

    def _book(self, record: Any) -> None:  # noqa: ANN401 - untyped client
        message = self._messages[int(dict(record.headers)[NUMBER_HEADER])]
        self.deliveries[message.number] += 1
        succeeds = self.deliveries[message.number] > message.failures
        self.booked[identity(record.topic, record.partition, record.offset)] = succeeds
        if not succeeds:
            raise _BookingError(_KIND_OF[message.kind])

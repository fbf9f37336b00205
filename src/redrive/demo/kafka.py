"""The demo with dead letters of Kafka's programs: four schemes, one table, rounds, a late topic.

Each dead letter is generated from a seed, with its original message and the end that it must reach.
The payment service is an application as it should be: what it cannot process it dead-letters again,
with all headers of the record, before it commits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from redrive.demo.client import NUMBER_HEADER, Record, TopicRecord
from redrive.demo.reconciliation import DemoMessage, End
from redrive.demo.script import MessageKind, Script, mixed, read_kinds, rules_with
from redrive.kafka.administration import NewTopic
from redrive.messages import Headers

_PARTITIONS: Final = 4
"""Partitions of every topic that a program reads."""
_WHEN: Final = 1_767_225_600_000
"""When the originals of Spring were written, in milliseconds since 1970."""
_CUSTOMERS: Final = 200
_JITTER: Final = 0.2
"""The share by which a delay may be shorter than BACKOFF says."""
_INVOICES: Final = "invoices"
"""The topic that does not exist when the job starts."""
_PAYMENTS: Final = "payments"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaKind(MessageKind):
    """A kind of dead letters of Kafka's programs."""

    scheme: str
    queue: str
    """The topic of the dead letters."""
    topic: str = ""
    error: str = ""
    """Class of the exception, or of its cause."""
    message: str = ""
    stage: str = ""
    tenant: str = "shop"
    is_negative: bool = False
    is_binary: bool = False
    failures: Sequence[int] = (0,)
    """How often the application fails to process them again: one of these numbers."""


KINDS: Final = read_kinds("kafka.yaml", KafkaKind)
"""Every kind of dead letters; the shares make a hundred."""


class KafkaDeadLetters(Script):
    """A sink of Connect, two Spring applications and Kafka Streams; one topic is missing."""

    rules_name = "kafka.rul"
    queues = ("orders.dlq", "payments-dlt", "invoices-dlt", "counts.dlq")
    late = NewTopic(_INVOICES, _PARTITIONS)
    application_topic = _PAYMENTS

    def __init__(self, messages: int, seed: int, *, fast: bool = False) -> None:
        self.title = f"with {messages} dead letters in four schemes, seed {seed}"
        self._first, self._longest = (1, 2) if fast else (2, 8)
        self.rules = rules_with(self.rules_name, f"BACKOFF({self._first}s,2,{self._longest}s)")
        self.messages = generate(messages, seed)
        self.late_by = 3 if fast else 15
        places = sorted({kind.place for kind in KINDS if kind.place})
        self.topics = [
            *(NewTopic(topic, _PARTITIONS) for topic in ("orders", _PAYMENTS, "counts")),
            *(NewTopic(topic, 2) for topic in (*self.queues, *places)),
        ]

    def process(self, stored: TopicRecord, delivery: int) -> tuple[str, Record] | None:
        """Book a payment once it has failed often enough; see ``Script.process``."""
        message = self.messages[stored.number or 0]
        if delivery > message.failures:
            return None
        [kind] = (kind for kind in KINDS if kind.name == message.kind)
        record = stored.record
        failure = _WRITERS[kind.scheme](kind, stored.partition, stored.offset)
        return kind.queue, Record(record.key, record.value, (*record.headers, *failure))

    def least_wait(self, attempt: int) -> float:
        """BACKOFF, less its jitter; see ``Script.least_wait``."""
        delay: int = self._first * 2 ** (attempt - 1)
        return min(delay, self._longest) * (1 - _JITTER)


def generate(count: int, seed: int) -> list[DemoMessage]:
    """Dead letters of all kinds; the seed determines order and content."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, and nothing secret
    kinds = mixed(KINDS, count, chance)
    return [_message(number, kind, chance) for number, kind in enumerate(kinds)]


def _message(number: int, kind: KafkaKind, chance: random.Random) -> DemoMessage:
    partition = chance.randrange(_PARTITIONS)
    key = f"customer {chance.randrange(_CUSTOMERS)}".encode()
    amount = chance.randint(1, 99) * (-1 if kind.is_negative else 1)
    value = b'{"id": %d, "amount": %d}' % (number, amount)
    if kind.is_binary:
        value = b"\x00\xff" + number.to_bytes(4, "big") + chance.randbytes(chance.randrange(300))
    headers: Headers = [(NUMBER_HEADER, b"%d" % number), ("x-tenant", kind.tenant.encode())]
    failure = _WRITERS[kind.scheme](kind, partition, number)
    place = kind.place or kind.topic
    places = {"retried": f"{place}:{partition}", "discarded": "", "remaining": kind.queue}
    return DemoMessage(
        number,
        kind.name,
        kind.queue,
        record=Record(key, value, (*headers, *failure)),
        original=Record(key, value, tuple(headers), _WHEN if "spring" in kind.scheme else 0),
        end=End(kind.end, places.get(kind.end, place), keeps_header=kind.end == "forwarded"),
        refusals=kind.refusals,
        failures=chance.choice(kind.failures),
    )


_Writer: TypeAlias = Callable[[KafkaKind, int, int], Headers]
"""The headers of a failure: its kind, and partition and offset of the record."""


def _stack(error: str, message: str) -> str:
    frame = "\n\tat com.example.Application.process(Application.java:42)"
    return f"{error}: {message}" + frame * 50


def _connect(kind: KafkaKind, partition: int, offset: int) -> Headers:
    more = {
        "connector.name": "jdbc-sink",
        "task.id": "0",
        "stage": kind.stage,
        "class.name": "io.confluent.connect.jdbc.JdbcSinkTask",
        "exception.class.name": kind.error,
        "exception.message": kind.message,
        "exception.stacktrace": _stack(kind.error, kind.message),
    }
    return _texts("__connect.errors.", kind, partition, offset, more)


def _streams(kind: KafkaKind, partition: int, offset: int) -> Headers:
    more = {
        "exception": f"{kind.error}: {kind.message}",
        "message": kind.message,
        "stacktrace": _stack(kind.error, kind.message),
    }
    return _texts("__streams.errors.", kind, partition, offset, more)


def _texts(
    prefix: str, kind: KafkaKind, partition: int, offset: int, more: Mapping[str, str]
) -> Headers:
    fields = {"topic": kind.topic, "partition": f"{partition}", "offset": f"{offset}", **more}
    return [(f"{prefix}{name}", text.encode()) for name, text in fields.items()]


def _spring(kind: KafkaKind, partition: int, offset: int, prefix: str = "kafka_dlt-") -> Headers:
    wrapper = "org.springframework.kafka.listener.ListenerExecutionFailedException"
    return [
        (f"{prefix}exception-fqcn", wrapper.encode()),
        (f"{prefix}exception-cause-fqcn", kind.error.encode()),
        (f"{prefix}exception-message", f"Listener failed; {kind.message}".encode()),
        (f"{prefix}exception-stacktrace", _stack(wrapper, kind.message).encode()),
        (f"{prefix}original-topic", kind.topic.encode()),
        (f"{prefix}original-partition", partition.to_bytes(4, "big")),
        (f"{prefix}original-offset", offset.to_bytes(8, "big")),
        (f"{prefix}original-timestamp", _WHEN.to_bytes(8, "big")),
        (f"{prefix}original-timestamp-type", b"CreateTime"),
        ("kafka_dlt-original-consumer-group", f"{kind.topic}-service".encode()),
    ]


def _retry_topic(kind: KafkaKind, partition: int, offset: int) -> Headers:
    return [
        *_spring(kind, partition, offset, "kafka_"),
        ("retry_topic-attempts", (4).to_bytes(4, "big")),
        ("retry_topic-original-timestamp", _WHEN.to_bytes(6, "big")),
        ("retry_topic-backoff-timestamp", (_WHEN + 60_000).to_bytes(6, "big")),
    ]


_WRITERS: Final[dict[str, _Writer]] = {
    "connect": _connect,
    "spring-dlt": _spring,
    "spring-retry-topic": _retry_topic,
    "kafka-streams": _streams,
    "none": lambda *_: [],
}

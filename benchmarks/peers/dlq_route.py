"""The job that all contestants do: route dead letters from one topic to six by an ordered table.

The rules are data, from which everything else is made: Redrive's table, a CASE in SQL, and the JSON
that the other contestants read. ``expected`` is the reference: which rule takes a record.

Every record keeps key, value and headers but for the stack trace, which Redrive leaves behind too,
and gets two headers: ``redrive.id``, the place where it was read, and ``redrive.rule``, the line of
the rule.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

from benchmarks.clients import Sent, create, produce
from benchmarks.peers.matching import STACK_TRACE, is_wildcard
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from kafka.admin import NewTopic

from redrive.messages import DeadLetterHeader, Headers, Representation, encode_header

PARTITIONS: Final = 8
TARGETS: Final = 6
TARGET_PARTITIONS: Final = 2
KEYS: Final = 5_003
PROFILES: Final = 6_001
"""How many combinations of fields the records have at most."""
_BODY: Final = 1_024
"""Bytes of the value of a record."""


class Form(StrEnum):
    """Kinds of dead letters."""

    SPRING = "spring"
    """Headers of Spring Kafka, with a stack trace of two kilobytes."""
    MQDLH = "mqdlh"
    """IBM MQ's dead-letter header in front of the value."""


_TOPICS: Final = [
    f"shop{n % 50}.{('orders', 'card_payments', 'stock')[n % 3]}.v{n}" for n in range(3_000)
]
VALUES: Final[Mapping[Form, Mapping[str, Sequence[str]]]] = {
    Form.SPRING: {
        "TOPIC": _TOPICS,
        "GROUP": [f"billing-{n}" for n in range(40)],
        "ROOTCLASS": [f"com.acme.{'abc'[n % 3]}.Failure{n}Exception" for n in range(60)],
    },
    Form.MQDLH: {
        "DESTQ": [f"APP{n % 50}.{('ORDERS', 'CARD_PAY')[n % 2]}.Q{n}" for n in range(3_000)],
        "DESTQM": [f"QM{n}" for n in range(40)],
        "REASON": [str(n) for n in (2053, 2085, 2035, 2051, 2030, 2016, 2087, 2082)],
    },
}
"""Field -> the values that rules and records have there; the first one tells records apart most."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    line: int
    """In Redrive's table."""
    when: Mapping[str, str]
    """Field -> text, in which * stands for any characters and ? for one."""
    target: str


@dataclass(frozen=True, slots=True)
class Work:
    """The rules, and what is made of them.

    Args:
        form: Of the records.
        count: Number of rules; one in ten has a wildcard, and the last one takes every record.
        prefix: Of the names of the targets.
        kinds: How many combinations of fields the records have, beside the partition that they
            failed on.
    """

    form: Form
    count: int
    prefix: str = ""
    kinds: int = PROFILES

    @property
    def targets(self) -> list[str]:
        """The six topics."""
        return [f"{self.prefix}target.{number}" for number in range(TARGETS)]

    @property
    def rules(self) -> list[Rule]:
        """The rules in their order."""
        conditions = _conditions(self.form, self.count)
        return [
            Rule(number + 2, when, self.targets[target])
            for number, (when, target) in enumerate(conditions)
        ]

    def as_json(self) -> str:
        """What contestants other than Redrive and Spark read."""
        rules = [
            {"line": rule.line, "when": rule.when, "target": rule.target} for rule in self.rules
        ]
        whole = {"form": self.form, "fields": [*VALUES[self.form]], "rules": rules}
        return json.dumps(whole, indent=0)

    def as_table(self) -> str:
        """Redrive's rules table, one rule a line."""
        is_spring = self.form is Form.SPRING
        keyword = "FWDT" if is_spring else "FWDQ"
        lines = ["DIALECT(KAFKA) RETRYINT(5)" if is_spring else "RETRYINT(5)"]
        for rule in self.rules:
            patterns = [f"{name}({_quoted(name, text)})" for name, text in rule.when.items()]
            lines.append(" ".join([*patterns, f"ACTION(FWD) {keyword}('{rule.target}')"]))
        return "\n".join([*lines, ""])

    def as_case(self) -> str:
        """The rules in SQL, over columns named as the fields: target, blank, line of the rule."""
        branches = []
        for rule in self.rules:
            tests = [_condition(name, text) for name, text in rule.when.items()]
            asked = " AND ".join(tests) or "true"
            branches.append(f"WHEN {asked} THEN '{rule.target} {rule.line}'")
        return f"CASE {' '.join(branches)} END"


def _quoted(name: str, text: str) -> str:
    return text if name == "REASON" else f"'{text}'"


def _condition(name: str, text: str) -> str:
    if not is_wildcard(text):
        return f"`{name}` = '{text}'"
    escaped = text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"`{name}` LIKE '{escaped.replace('*', '%').replace('?', '_')}' ESCAPE '!'"


@cache
def _conditions(form: Form, count: int) -> list[tuple[Mapping[str, str], int]]:
    """Fields and number of the target of each rule."""
    chance, values = random.Random(count), VALUES[form]
    first, second, third = values
    made: list[tuple[Mapping[str, str], int]] = []
    for number in range(count - 1):
        when = {first: chance.choice(values[first])}
        if number % 10 == 3:
            when[first] = _with_wildcards(chance, when[first])
            when[second] = chance.choice(values[second])
        elif chance.random() < 0.5:
            when[second] = chance.choice(values[second])
        if chance.random() < 0.3:
            when[third] = chance.choice(values[third])
        made.append((when, chance.randrange(TARGETS - 1)))
    return [*made, ({}, TARGETS - 1)]


def _with_wildcards(chance: random.Random, text: str) -> str:
    head, middle, tail = text.split(".")
    return chance.choice([f"{head}.*", f"*.{middle}.{tail}", f"{head}.{middle}.{tail[0]}?*"])


def expected(rules: Sequence[Rule], fields: Mapping[str, str]) -> Rule:
    """The reference: the first rule of which every text takes the field."""
    return next(
        rule for rule in rules if all(takes(text, fields[name]) for name, text in rule.when.items())
    )


def takes(pattern: str, text: str) -> bool:
    """Whether a text with wildcards takes another, found without regular expressions."""
    if not is_wildcard(pattern):
        return pattern == text
    if pattern[0] == "*":
        return any(takes(pattern[1:], text[cut:]) for cut in range(len(text) + 1))
    return bool(text) and pattern[0] in {"?", text[0]} and takes(pattern[1:], text[1:])


# -- records -----------------------------------------------------------------------------------


@cache
def profiles(form: Form, count: int) -> list[Mapping[str, str]]:
    """Fields of the records: nine of ten are what some rule asks for, the others are any."""
    chance, values = random.Random(-count), VALUES[form]
    made: list[Mapping[str, str]] = []
    for _ in range(PROFILES):
        fields = {name: chance.choice(choices) for name, choices in values.items()}
        if chance.random() < 0.9:
            when, _ = chance.choice(_conditions(form, count))
            fields |= {name: _without_wildcards(chance, text) for name, text in when.items()}
        made.append(fields)
    return made


def _without_wildcards(chance: random.Random, text: str) -> str:
    return text.replace("*", f".{chance.randrange(100)}").replace("?", "v")


_TEXT: Final = random.Random(5).randbytes(40_000).hex()
_FRAMES: Final = [
    f"\tat com.acme.{'abc'[n % 3]}.Service{n}.handle{n % 7}(Service{n}.java:{n * 13 % 400})\n"
    for n in range(200)
]


def record(form: Form, number: int, fields: Mapping[str, str]) -> tuple[bytes, Headers]:
    """Value and headers of a dead letter."""
    cut = number * 7919 % 60_000
    body = f'{{"number":{number},"customer":"c{number % 9_973}","text":"'.encode()
    if form is Form.MQDLH:
        body = _dead_letter_header(fields["DESTQ"], fields["DESTQM"], int(fields["REASON"])) + body
        headers: Headers = [
            ("JMS_IBM_MQMD_Format", b"MQDEAD"), ("JMS_IBM_MQMD_MsgType", b"8"),
            ("JMS_IBM_MQMD_Persistence", b"1"), ("JMS_IBM_MQMD_PutApplName", b"payapp"),
            ("JMS_IBM_MQMD_MsgId", b"%048d" % number),
        ]  # fmt: skip
    else:
        headers = _spring(number, fields)
    return body + _TEXT[cut : cut + _BODY - len(body) - 2].encode() + b'"}', headers


@cache
def _dead_letter_header(queue: str, manager: str, reason: int) -> bytes:
    return encode_header(
        DeadLetterHeader(
            reason=reason, dest_q_name=queue, dest_q_mgr_name=manager, format="MQSTR",
            representation=Representation("little", 819),
        )
    )  # fmt: skip


def _spring(number: int, fields: Mapping[str, str]) -> Headers:
    cause = fields["ROOTCLASS"]
    message = f"Listener failed; order {number} refused"
    return [
        ("traceparent", b"00-%032x-%016x-01" % (number * 7919, number)),
        ("kafka_dlt-original-topic", fields["TOPIC"].encode()),
        ("kafka_dlt-original-partition", (number % 12).to_bytes(4, "big")),
        ("kafka_dlt-original-offset", number.to_bytes(8, "big")),
        ("kafka_dlt-original-timestamp", (1_760_000_000_000 + number).to_bytes(8, "big")),
        ("kafka_dlt-original-timestamp-type", b"CreateTime"),
        ("kafka_dlt-original-consumer-group", fields["GROUP"].encode()),
        (
            "kafka_dlt-exception-fqcn",
            b"org.springframework.kafka.listener.ListenerExecutionFailedException",
        ),
        ("kafka_dlt-exception-cause-fqcn", cause.encode()),
        ("kafka_dlt-exception-message", message.encode()),
        (STACK_TRACE, f"{cause}: {message}\n{_trace(cause)}".encode()),
    ]


@cache
def _trace(cause: str) -> str:
    """About two kilobytes of frames."""
    return "".join(random.Random(cause).sample(_FRAMES, 38))


def backlog(work: Work, source: str, count: int) -> Iterator[Sent]:
    """The records; those of one key are on one partition."""
    known = profiles(work.form, work.count)
    for number in range(count):
        value, headers = record(work.form, number, known[number % work.kinds])
        key = number % KEYS
        yield Sent(source, key % PARTITIONS, value, list(headers), b"k%d" % key)


def fill(servers: str, work: Work, source: str, count: int) -> None:
    """Writes the backlog."""
    create(servers, NewTopic(source, PARTITIONS, 1))
    records = backlog(work, source, count)
    produce(servers, records, compression_type="lz4", enable_idempotence=True)


# -- the check ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Findings:
    """What a reader of committed records found on the targets."""

    found: int = 0
    """Records."""
    lost: int = 0
    doubled: int = 0
    misrouted: int = 0
    """On another target, or with another rule, than the reference says."""
    changed: int = 0
    """With another key, value or header, or with a wrong identity."""
    reordered: int = 0
    """With the same headers in another order."""
    disordered: int = 0
    """Behind a later one of their key, or with their key on two partitions."""
    example: str = field(default="", compare=False)
    """A first one that is wrong."""

    def wrong(self, kind: str, what: str) -> None:
        """Counts one of a kind."""
        setattr(self, kind, getattr(self, kind) + 1)
        self.example = self.example or f"{kind}: {what}"

    def is_right(self, *, exactly_once: bool) -> bool:
        """Whether a contestant did the job as it promises."""
        always = self.lost or self.misrouted or self.changed
        return not always and not (exactly_once and (self.doubled or self.disordered))


class Check:
    """Compares what is on the targets with the reference.

    Args:
        work: The rules, with targets without a prefix.
        source: Topic of the records.
        count: How many there were.
    """

    def __init__(self, work: Work, source: str, count: int) -> None:
        self._work, self._count = work, count
        self._known = profiles(work.form, work.count)
        rules = work.rules
        self._rules = [expected(rules, fields) for fields in self._known]
        self._places: list[str] = []
        ends: Counter[int] = Counter()
        for number in range(count):
            partition = number % KEYS % PARTITIONS
            self._places.append(f"{source}:{partition}:{ends[partition]}")
            ends[partition] += 1

    def of(self, servers: str, work: Work) -> Findings:
        """Reads all targets.

        Args:
            servers: The broker.
            work: The same rules with the targets of a run.
        """
        findings, seen, skip = Findings(), bytearray(self._count), len(work.prefix)
        last: dict[tuple[str, bytes], tuple[int, int]] = {}
        for message in committed(servers, work.targets):
            findings.found += 1
            number = number_of(message.value())
            self.compare(findings, number, message, skip)
            if seen[number]:
                findings.wrong("doubled", str(number))
            seen[number] = 1
            way, partition = (message.topic(), message.key()), message.partition()
            before, place = last.get(way, (-1, partition))
            if number < before or place != partition:
                findings.wrong("disordered", f"{number} on {way} behind {before}")
            last[way] = max(number, before), partition
        findings.lost = seen.count(0)
        return findings

    def compare(
        self,
        findings: Findings,
        number: int,
        message: Any,  # noqa: ANN401 - its stub allows None where a record has none
        skip: int,
    ) -> None:
        """Counts what is wrong with a record.

        Args:
            findings: Where.
            number: Of the record.
            message: What was read.
            skip: Length of the prefix of the topic.
        """
        profile = number % self._work.kinds
        rule, headers = self._rules[profile], message.headers()
        added = dict(headers)
        seen = message.topic()[skip:], added.get("redrive.rule")
        if seen != (rule.target, b"%d" % rule.line):
            findings.wrong("misrouted", f"{number} is at {seen} instead of {rule}")
        value, original = record(self._work.form, number, self._known[profile])
        original = [header for header in original if header[0] != STACK_TRACE]
        kept = [header for header in headers if not header[0].startswith("redrive.")]
        if kept != original and sorted(kept) == sorted(original):
            findings.wrong("reordered", f"{number} has {headers} instead of {original}")
            kept = original
        is_kept = message.value() == value and kept == original
        identity = self._places[number].encode()
        if not is_kept or added.get("redrive.id") != identity or message.key() != _key(number):
            findings.wrong("changed", f"{number} has {headers} instead of {original}")


def _key(number: int) -> bytes:
    return b"k%d" % (number % KEYS)


def number_of(value: bytes) -> int:
    """The number of a record."""
    begin = value.index(b'{"number":') + 10
    return int(value[begin : value.index(b",", begin)])


def committed(servers: str, topics: Sequence[str]) -> Iterator[Any]:
    """Every committed record of some topics, each partition in the order of its offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "bench-check", "log_level": 0,
            "isolation.level": "read_committed", "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )  # fmt: skip
    lanes = [(topic, n) for topic in topics for n in range(TARGET_PARTITIONS)]
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for topic, n in lanes])
    left = set(lanes)
    while left:
        for message in consumer.consume(5_000, 1.0):
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                left.discard((message.topic(), message.partition()))
    consumer.close()


def write_rules(work: Work, folder: Path) -> Path:
    """Writes the rules as JSON."""
    file = folder / "rules.json"
    file.write_text(work.as_json(), encoding="utf-8")
    return file

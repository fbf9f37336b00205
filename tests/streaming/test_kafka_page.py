"""The first page and the page on Kafka, typed: they show what comes out, and what the job does.

Every ``$`` is run, on dead letters as the libraries write them; each section has its own job.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from kafka.admin import NewTopic
from tests.commands import redrive
from tests.conftest import eventually
from tests.streaming.conftest import Jobs

from redrive.messages import Headers
from redrive.settings import read_settings

DOCS = Path(__file__).parents[2] / "docs"
START, KAFKA = ((DOCS / name).read_text("utf-8") for name in ("start.md", "kafka.md"))
SERVERS = "localhost:9092"
"""The broker that the pages name."""
TOPICS = {
    "orders": 4,
    "shipments": 2,
    "counts": 7,
    "bills": 1,
    "tickets": 4,
}
"""Topics beside the dead-letter topics, with their partitions."""
WHEN = 1_767_225_600_000


def connect(offset: int, error: str, message: str) -> Headers:
    """What Connect writes about one record of ``orders``."""
    failure = {
        "topic": "orders",
        "partition": "3",
        "offset": str(offset),
        "connector.name": "jdbc-sink",
        "task.id": "0",
        "stage": "VALUE_CONVERTER",
        "class.name": "io.confluent.connect.avro.AvroConverter",
        "exception.class.name": f"org.apache.kafka.{error}",
        "exception.message": message,
    }
    headers = [(f"__connect.errors.{name}", value.encode()) for name, value in failure.items()]
    return [("trace", b"7c1"), *headers]


def spring(partition: int, cause: str, message: str) -> Headers:
    """What ``@RetryableTopic`` writes about one record of ``shipments``."""
    wrapper = b"org.springframework.kafka.listener.ListenerExecutionFailedException"
    return [
        ("kafka_original-topic", b"shipments"),
        ("kafka_original-partition", partition.to_bytes(4, "big")),
        ("kafka_original-offset", (77).to_bytes(8, "big")),
        ("kafka_original-timestamp", WHEN.to_bytes(8, "big")),
        ("kafka_original-timestamp-type", b"CreateTime"),
        ("kafka_dlt-original-consumer-group", b"ship"),
        ("kafka_exception-fqcn", wrapper),
        ("kafka_exception-cause-fqcn", cause.encode()),
        ("kafka_exception-message", message.encode()),
        ("retry_topic-attempts", (4).to_bytes(4, "big")),
        ("retry_topic-original-timestamp", WHEN.to_bytes(6, "big")),
    ]


def streams(offset: int) -> Headers:
    """What Kafka Streams writes about one record of ``counts``."""
    message = "Size of data received by IntegerDeserializer is not 4"
    error = "org.apache.kafka.common.errors.SerializationException"
    failure = {
        "exception": error,
        "message": message,
        "stacktrace": f"{error}: {message}\n\tat org.apache.kafka.common.serialization",
        "topic": "counts",
        "partition": "6",
        "offset": str(offset),
    }
    return [(f"__streams.errors.{name}", value.encode()) for name, value in failure.items()]


_UNREADABLE = [
    connect(offset, "connect.errors.DataException", "Unknown magic byte!")
    for offset in (42, 43, 44)
]
_AWAY = connect(57, "common.errors.TimeoutException", "no answer")
_ENVELOPE = (
    b'{"failed": {"topic": "tickets", "partition": 3, "error":'
    b' "java.net.SocketTimeoutException: read timed out", "tries": 5}, "payload": {"ticket": 4711}}'
)
DEAD_LETTERS: dict[str, list[tuple[bytes, bytes, Headers]]] = {
    "orders.dlq": [
        *((b"k-1", b"\x00\x00\x00\x00\x07\x02", headers) for headers in _UNREADABLE),
        (b"k-4711", b'{"order":4711}', _AWAY),
    ],
    "shipments-dlt": [
        (b"s-1", b'{"shipment":1}', spring(1, "java.net.SocketTimeoutException", "Read timed out")),
        (
            b"s-2",
            b"\xff",
            spring(
                0,
                "org.springframework.kafka.support.serializer.DeserializationException",
                "failed to deserialize",
            ),
        ),
    ],
    "counts.dlq": [(b"c-1", b"12345", streams(10)), (b"c-2", b"1", streams(11))],
    "tickets.dlq": [(b"t-1", _ENVELOPE, [])],
}


class Step(NamedTuple):
    """A command of a page, and what it prints."""

    arguments: list[str]
    printed: str

    @property
    def is_job(self) -> bool:
        """Whether it runs until it is stopped."""
        return self.arguments[0] == "run"


@dataclass
class Section:
    """What is typed under one heading, in a folder of its own: before its job runs, and after."""

    folder: Path
    before: list[Step]
    after: list[Step]

    def problems(self, steps: list[Step], servers: str) -> str:
        """Types commands; what they print that the page does not show."""
        os.chdir(self.folder)
        return "".join(differences(step, run(step, servers)) for step in steps)


def files_of(page: str) -> dict[str, str]:
    """The files that the page has one write: a block that has the name behind its language."""
    blocks = re.findall(r"^```\w+ (\S+)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return dict(blocks)


def sections_of(page: str, folder: Path, servers: str) -> Iterator[Section]:
    """What is typed, section by section; its files are written."""
    for number, text in enumerate(page.split("\n## ")[1:]):
        blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        steps = [step for block in blocks for step in _steps(block)]
        if not steps:
            continue
        own = folder / str(number)
        own.mkdir(parents=True)
        if "init" not in steps[0].arguments:
            for name, content in files_of(text).items():
                (own / name).write_text(content.replace(SERVERS, servers))
        [at] = (number for number, step in enumerate(steps) if step.is_job)
        yield Section(own, steps[:at], steps[at + 1 :])


def _steps(block: str) -> Iterator[Step]:
    for typed in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, printed = typed.partition("\n")
        program, *arguments = shlex.split(command)
        assert program == "redrive"
        yield Step(arguments, printed)


def run(step: Step, servers: str) -> str:
    """Types a command and yes; what it prints, with the page's broker for the real one."""
    arguments = [argument.replace(SERVERS, servers) for argument in step.arguments]
    done = redrive(*arguments, typed="y\n", code=0)
    return done.output.replace(servers, SERVERS)


def differences(step: Step, got: str) -> str:
    """What a command printed if it is not what the page shows; else nothing."""
    is_same = doctest.OutputChecker().check_output(
        step.printed.rstrip() + "\n", got.rstrip() + "\n", doctest.ELLIPSIS
    )
    return "" if is_same else f"$ redrive {shlex.join(step.arguments)}\n{got}"


class Producer:
    """Keeps what a program of the page would have sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def produce(self, topic: str, value: bytes, key: bytes, headers: list[tuple[str, Any]]) -> None:
        """As that of confluent-kafka, which takes texts as values of headers."""
        assert topic == "bills.dlq"
        raw = [(name, content.encode()) for name, content in headers]
        self.sent.append({"key": key, "value": value, "headers": raw})

    def flush(self) -> None:
        """Nothing waits."""


def written_by_python() -> list[dict[str, Any]]:
    """What the program of the page writes about a record that failed."""
    [program] = re.findall(r"^```python\n(.*?)^```", START, re.MULTILINE | re.DOTALL)
    made: dict[str, Any] = {}
    exec(compile(program, "docs/start.md", "exec"), made)  # noqa: S102 - our own page
    parts: dict[str, Any] = {
        "topic": "bills", "partition": 0, "offset": 5, "headers": None, "key": b"b-1",
        "value": b'{"bill":1}',
    }  # fmt: skip
    record = SimpleNamespace(**{name: (lambda part=part: part) for name, part in parts.items()})
    producer = Producer()
    made["write_dead_letter"](producer, record, TimeoutError("no answer"))
    return producer.sent


@pytest.fixture
def sections(jobs: Jobs) -> list[Section]:
    """What is typed, and a broker with the dead letters."""
    letters: dict[str, list[dict[str, Any]]] = {
        topic: [{"key": key, "value": value, "headers": headers} for key, value, headers in records]
        for topic, records in DEAD_LETTERS.items()
    }
    letters["bills.dlq"] = written_by_python()
    partitions = {**TOPICS, **dict.fromkeys(letters, 1)}
    jobs.admin.create_topics(
        [NewTopic(name, count, 1) for name, count in partitions.items()], wait_for_metadata=True
    )
    hour_ago = int(time.time() * 1000) - 3_600_000
    for topic, records in letters.items():
        jobs.produce(topic, [record | {"timestamp_ms": hour_ago} for record in records])
    return [
        section
        for name, page in (("start", START), ("kafka", KAFKA))
        for section in sections_of(page, jobs.folder / name, jobs.bootstrap_servers)
    ]


def test_what_is_typed_prints_what_the_pages_show(
    jobs: Jobs, sections: list[Section], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(jobs.folder)
    servers = jobs.bootstrap_servers
    problems = [section.problems(section.before, servers) for section in sections]
    assert (sections[0].folder / "orders.rul").read_text() == files_of(START)["orders.rul"]
    running = []
    for section in sections:
        job = read_settings(section.folder / "redrive.toml").job
        running.append(jobs.start(replace(job, ledger=replace(job.ledger, enabled=False))))
    for thread in running:
        thread.wait_for_records(1)
    # Schemes without the time of the failure wait their first delay.
    topics = ("orders", "bills", "tickets")
    eventually(lambda: all(map(jobs.read, topics)), "every retry is committed", every=0.5)
    for thread in running:
        thread.stop()
    problems += [section.problems(section.after, servers) for section in sections]
    assert "\n".join(filter(None, problems)) == ""

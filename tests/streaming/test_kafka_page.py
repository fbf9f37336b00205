"""The page on Kafka, typed: what comes out is what it shows, and the job does what it says.

Every ``$`` of the page is run, in one folder, on dead letters as the libraries write them. The jobs
of its sections run as one job with a handler for each.
"""

from __future__ import annotations

import doctest
import re
import shlex
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka.admin import NewTopic
from tests.commands import redrive
from tests.conftest import eventually
from tests.streaming.conftest import Jobs

from redrive.messages import Headers
from redrive.settings import read_settings

PAGE = Path(__file__).parents[2] / "docs" / "kafka.md"
SERVERS = "localhost:9092"
"""The broker that the page names."""
TOPICS = {
    "orders": 4,
    "shipments": 2,
    "shipments.unreadable": 1,
    "counts.unreadable": 1,
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


_UNREADABLE = connect(42, "connect.errors.DataException", "Unknown magic byte!")
_AWAY = connect(57, "common.errors.TimeoutException", "no answer")
_ENVELOPE = (
    b'{"failed": {"topic": "tickets", "partition": 3, "error":'
    b' "java.net.SocketTimeoutException: read timed out", "tries": 5}, "payload": {"ticket": 4711}}'
)
DEAD_LETTERS: dict[str, list[tuple[bytes, bytes, Headers]]] = {
    "orders.dlq": [
        *((b"k-1", b"\x00\x00\x00\x00\x07\x02", _UNREADABLE) for _ in range(3)),
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
    """A command of the page, and what it prints."""

    arguments: list[str]
    printed: str

    @property
    def is_job(self) -> bool:
        """Whether it runs until it is stopped."""
        return self.arguments[0] == "run" and "--dry-run" not in self.arguments


@dataclass
class Section:
    """What is typed under one heading, before its job runs and while it does."""

    before: list[Step]
    job: Step | None
    after: list[Step]

    @property
    def handler(self) -> tuple[str, str] | None:
        """Dead-letter topic and table of the job, if its command names them."""
        if self.job is None or "--dlq" not in self.job.arguments:
            return None
        arguments = self.job.arguments
        return arguments[arguments.index("--dlq") + 1], arguments[arguments.index("--rules") + 1]


def files_of(page: str) -> dict[str, str]:
    """The files that the page has one write: a block that has the name behind its language."""
    blocks = re.findall(r"^```\w+ (\S+)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return dict(blocks)


def sections_of(page: str) -> Iterator[Section]:
    """What is typed, section by section."""
    for text in page.split("\n## ")[1:]:
        blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        steps = [step for block in blocks for step in _steps(block)]
        at = next((n for n, step in enumerate(steps) if step.is_job), len(steps))
        yield Section(steps[:at], steps[at] if at < len(steps) else None, steps[at + 1 :])


def _steps(block: str) -> Iterator[Step]:
    for typed in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, printed = typed.partition("\n")
        program, *arguments = shlex.split(command)
        assert program == "redrive"
        yield Step(arguments, printed)


def run(step: Step, servers: str) -> str:
    """Types a command; what it prints, with the page's broker for the real one."""
    arguments = [argument.replace(SERVERS, servers) for argument in step.arguments]
    done = redrive(*arguments, code=0)
    return done.stdout.replace(servers, SERVERS)


def differences(step: Step, got: str) -> str:
    """What a command printed if it is not what the page shows; else nothing."""
    is_same = doctest.OutputChecker().check_output(
        step.printed.rstrip() + "\n", got.rstrip() + "\n", doctest.ELLIPSIS
    )
    return "" if is_same else f"$ redrive {shlex.join(step.arguments)}\n{got}"


@pytest.fixture
def folder(folder: Path, jobs: Jobs) -> Path:
    """A working directory with the files of the page, and a broker with the dead letters."""
    for name, text in files_of(PAGE.read_text(encoding="utf-8")).items():
        (folder / name).write_text(text.replace(SERVERS, jobs.bootstrap_servers), encoding="utf-8")
    partitions = {**TOPICS, **dict.fromkeys(DEAD_LETTERS, 1)}
    jobs.admin.create_topics(
        [NewTopic(name, count, 1) for name, count in partitions.items()], wait_for_metadata=True
    )
    hour_ago = int(time.time() * 1000) - 3_600_000
    for topic, letters in DEAD_LETTERS.items():
        jobs.produce(
            topic,
            [
                {"key": key, "value": value, "headers": headers, "timestamp_ms": hour_ago}
                for key, value, headers in letters
            ],
        )
    return folder


def test_what_is_typed_prints_what_the_page_shows(jobs: Jobs, folder: Path) -> None:
    sections = list(sections_of(PAGE.read_text(encoding="utf-8")))
    problems = [
        differences(step, run(step, jobs.bootstrap_servers))
        for section in sections
        for step in section.before
    ]
    tables = re.findall(r"^```rules\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    first = next(text for text in tables if text.startswith("* Starter table"))
    assert (folder / "orders.rul").read_text(encoding="utf-8") == first
    text = (folder / "redrive.toml").read_text(encoding="utf-8")
    named = [section.handler for section in sections if section.handler]
    text += "".join(
        f'[[handlers]]\nqueue = "{queue}"\nrules = "{table}"\n' for queue, table in named
    )
    (folder / "all.toml").write_text(text, encoding="utf-8")
    job = read_settings(folder / "all.toml").job
    assert {handler.identity.topic for handler in job.handlers} == set(DEAD_LETTERS)
    job = replace(job, ledger=replace(job.ledger, enabled=False))
    running = jobs.start(job)
    running.wait_for_records(sum(map(len, DEAD_LETTERS.values())))

    def count_results() -> Counter[str]:
        return Counter(outcome["result"] for outcome in jobs.outcomes(job))

    eventually(lambda: count_results()["retried"] == 3, "all retries are committed")
    running.stop()
    # Two of them are of schemes without the time of the failure: they wait their delay first.
    assert count_results() == {"forwarded": 3, "remains": 3, "parked": 2, "retried": 3}
    problems += [
        differences(step, run(step, jobs.bootstrap_servers))
        for section in sections
        for step in section.after
    ]
    assert "\n".join(filter(None, problems)) == ""

"""Make the corpus of dead letters: run programs of the real libraries on an embedded broker.

    python -m tests.libraries.make [streams] [connect] [spring] [smallrye]

Needs Maven and a JDK; Maven fetches the libraries that the ``pom.xml`` beside each program names.
Each library's dead letters are written to a file beside this one in the form of
``tests/vectors/schemes.yaml``, with the record that failed as ``original`` and the time of both.
What is expected of each is known from what was sent and from what the program throws; nothing of
ours reads them here.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import yaml
from confluent_kafka import Producer
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewTopic

from redrive.broker import EmbeddedBroker

FOLDER: Final = Path(__file__).parent
PATIENCE: Final = 400.0
"""Seconds for a program to start and to write its dead letters."""
TRACE: Final = [("trace", b"t-1")]


@dataclass(frozen=True)
class Case:
    """A record that fails, and what its dead letter says."""

    title: str
    topic: str
    dead: str
    """Topic of the dead letter."""
    expect: Mapping[str, Any]
    """Parts of the normalised view, besides the origin."""
    value: bytes | None = b"order 1"
    key: bytes | None = b"k1"
    headers: Sequence[tuple[str, bytes]] = field(default_factory=lambda: TRACE)
    sends: bool = True
    """Whether the record is sent; else an earlier case has sent it."""
    offset: int | None = None
    """Offset of the record that it names, if that is another one."""
    is_late: bool = False
    """Whether it is sent once the dead letters of the others are there."""


def _streams(title: str, topic: str, error: str, **more: Any) -> Case:
    pointer = bool(more.pop("pointer", False))
    expect = {"scheme": "kafka-streams", "pointer": pointer, "group": None}
    expect["error"] = {"class": error, "root_class": error}
    return Case(title, topic, "streams-dead", expect, **more)


def _connect(topic: str, stage: str, error: Mapping[str, Any], title: str) -> Case:
    sink = {"connector": f"{topic}-sink", "task": "0", "stage": stage}
    expect = {"scheme": "connect", **sink, "error": error, "pointer": False}
    return Case(title, topic, "connect-dead", expect)


# Spring names the first cause behind its own exceptions, not the innermost one, and the attempt to
# come.
_ILLEGAL: Final = "java.lang.IllegalStateException"
_LISTENER: Final = "org.springframework.kafka.listener.ListenerExecutionFailedException"
_SPRING: Final = "org.springframework.kafka.support.serializer.DeserializationException"
_SERIALIZATION: Final = "org.apache.kafka.common.errors.SerializationException"
_TOO_LARGE: Final = "org.apache.kafka.common.errors.RecordTooLargeException"


def _spring(title: str, topic: str, error: str, root: str, **more: Any) -> Case:
    expect = {"scheme": "spring-dlt", "group": "billing", **more.pop("expect", {})}
    expect["error"] = {"class": error, "root_class": root}
    return Case(title, topic, more.pop("dead", f"{topic}-dlt"), expect, **more)


def _smallrye(title: str, topic: str, dead: str, scheme: str, **more: Any) -> Case:
    error = {
        "class": _ILLEGAL,
        "root_class": "java.net.SocketTimeoutException",
        "message": "no answer",
    }
    expect = {"scheme": scheme, "error": error, **more.pop("expect", {})}
    return Case(title, topic, dead, expect, **more)


def _again(topic: str, retries: int) -> dict[str, Any]:
    origin = {"topic": topic, "partition": 0, "offset": 0}
    first = {"topic": "tries", "partition": 0, "offset": 0}
    return {"origin": origin, "first_origin": first, "hop": retries + 1, "attempts": retries}


CASES: Final[Mapping[str, Sequence[Case]]] = {
    "streams": [
        _streams("the value cannot be deserialised", "counts", _SERIALIZATION, value=b"12345"),
        _streams("processing fails", "orders", _ILLEGAL),
        _streams("processing of a tombstone fails", "orders", _ILLEGAL, value=None),
        # Its place alone says nothing: the original has neither key nor value either.
        _streams(
            "processing of a record without key and value fails",
            "orders",
            _ILLEGAL,
            key=None,
            value=None,
            pointer=True,
        ),
        _streams("a result cannot be serialised", "notes", _SERIALIZATION),
        _streams(
            "the client refuses a result: key and value are missing",
            "bills",
            _TOO_LARGE,
            pointer=True,
        ),
        # The library asks for the record when the broker answers: each names the newest one.
        *(
            _streams(
                f"the broker refuses result {number} of three",
                "slips",
                _TOO_LARGE,
                is_late=True,
                headers=[("trace", b"t-%d" % number)],
                offset=2,
            )
            for number in (1, 2, 3)
        ),
    ],
    "connect": [
        _connect(
            "json",
            "VALUE_CONVERTER",
            {"class": "org.apache.kafka.connect.errors.DataException"},
            "a converter fails",
        ),
        _connect(
            "flat",
            "TRANSFORMATION",
            {"class": "org.apache.kafka.connect.errors.DataException"},
            "a transform fails",
        ),
        _connect(
            "rows",
            "TASK_PUT",
            {
                "class": "org.apache.kafka.connect.errors.ConnectException",
                "root_class": "java.sql.SQLTransientConnectionException",
                "message": "cannot write",
            },
            "a sink reports an exception with a cause",
        ),
        _connect(
            "mute",
            "TASK_PUT",
            {"class": "java.lang.NullPointerException", "message": None},
            "a sink reports an exception without a message",
        ),
    ],
    "spring": [
        _spring("a listener fails", "payments", _LISTENER, _ILLEGAL),
        _spring("a listener fails with a tombstone", "payments", _LISTENER, _ILLEGAL, value=None),
        _spring(
            "the listener of a dead-letter topic fails too",
            "payments-dlt",
            _LISTENER,
            _ILLEGAL,
            sends=False,
            expect={"hop": 2, "first_origin": {"topic": "payments", "offset": 0}},
        ),
        _spring("a value cannot be deserialised", "amounts", _SPRING, _SPRING, value=b"12345"),
        _spring("a key cannot be deserialised", "names", _SPRING, _SPRING, key=b"12345"),
        _spring(
            "the recoverer keeps the header of the exception",
            "kept",
            _SPRING,
            _SPRING,
            value=b"12345",
        ),
        _spring(
            "the first retry topic of @RetryableTopic",
            "shipments",
            _LISTENER,
            _ILLEGAL,
            dead="shipments-retry",
            expect={"scheme": "spring-retry-topic", "group": "shipping", "attempts": 2},
        ),
        _spring(
            "the dead-letter topic of @RetryableTopic",
            "shipments",
            _LISTENER,
            _ILLEGAL,
            sends=False,
            expect={"scheme": "spring-retry-topic", "group": "shipping", "attempts": 4},
        ),
    ],
    "smallrye": [
        _smallrye("processing fails", "prices", "smallrye-dead", "smallrye-dead-letter"),
        _smallrye(
            "a value cannot be deserialised",
            "sizes",
            "smallrye-dead",
            "smallrye-dead-letter",
            value=b"12345",
            expect={
                "error": {"class": "org.apache.kafka.common.errors.RecordDeserializationException"}
            },
        ),
        _smallrye(
            "the first topic of delayed retries",
            "tries",
            "tries-retry_500",
            "smallrye-delayed-retry",
            expect={"attempts": 0},
        ),
        # Each failure on a topic of retries names that topic, also that on the dead-letter topic.
        _smallrye(
            "the second topic of delayed retries",
            "tries",
            "tries-retry_900",
            "smallrye-delayed-retry",
            sends=False,
            expect=_again("tries-retry_500", 1),
        ),
        _smallrye(
            "the dead-letter topic after delayed retries",
            "tries",
            "smallrye-dead",
            "smallrye-delayed-retry",
            sends=False,
            expect=_again("tries-retry_900", 2),
        ),
    ],
}


def versions(library: str) -> str:
    """The libraries and their versions, from the ``pom.xml``."""
    tree = ET.parse(FOLDER / library / "pom.xml")  # noqa: S314 - our own file
    version = tree.findtext("properties/library")
    named = []
    for dependency in tree.iterfind("dependencies/dependency"):
        name, number = (dependency.findtext(element) or "" for element in ("artifactId", "version"))
        if not name.startswith("slf4j"):
            named.append(f"{name} {number.replace('${library}', version or '')}")
    return ", ".join(named)


def class_path(library: str, folder: Path) -> str:
    jars = folder / "jars"
    subprocess.run(
        ["mvn", "-q", "-B", "dependency:build-classpath", f"-Dmdep.outputFile={jars}"],
        cwd=FOLDER / library,
        check=True,
    )
    path = jars.read_text("utf-8").strip()
    source = FOLDER / library / "DeadLetters.java"
    classes = folder / "classes"
    subprocess.run(
        ["javac", "-nowarn", "-parameters", "-cp", path, "-d", classes, source], check=True
    )
    return f"{classes}:{path}"


def vector_bytes(raw: bytes | None) -> dict[str, str] | None:
    if raw is None:
        return None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return {"hex": raw.hex()}
    is_text = all(character.isprintable() or character in "\n\t\r" for character in text)
    return {"text": text} if is_text else {"hex": raw.hex()}


def vector_record(record: Any) -> dict[str, Any]:
    return {
        "key": vector_bytes(record.key),
        "value": vector_bytes(record.value),
        "headers": [[name, vector_bytes(raw)] for name, raw in record.headers],
        "timestamp": record.timestamp,
    }


FURTHER: Final[Mapping[str, Mapping[str, str]]] = {
    "results": {}, "small": {"max.message.bytes": "200"}
}  # fmt: skip
"""Topics that programs write to, with their settings."""


class Run:
    """Topics and records of one library's program."""

    def __init__(self, servers: str, cases: Sequence[Case]) -> None:
        self.servers, self.cases = servers, cases
        names = {*(case.topic for case in cases), *(case.dead for case in cases)}
        topics = [NewTopic(name, 1, 1) for name in sorted(names)]
        topics += [NewTopic(name, 1, 1, topic_configs=more) for name, more in FURTHER.items()]
        admin = KafkaAdminClient(bootstrap_servers=servers)
        there = set(admin.list_topics())
        admin.create_topics([topic for topic in topics if topic.name not in there])
        admin.close()

    def send(self, *, late: bool) -> None:
        """Send the records that fail: the late ones, or the others."""
        producer = Producer({"bootstrap.servers": self.servers})
        for case in self.cases:
            if case.sends and case.is_late is late:
                producer.produce(case.topic, case.value, case.key, headers=list(case.headers))
        producer.flush()

    def read(self, topic: str) -> list[Any]:
        partition = TopicPartition(topic, 0)
        consumer = KafkaConsumer(bootstrap_servers=self.servers, isolation_level="read_committed")
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = consumer.end_offsets([partition])[partition]
        records: list[Any] = []
        while consumer.position(partition) < end:
            records += chain.from_iterable(consumer.poll(1_000).values())
        consumer.close()
        return records

    def dead_letters(self) -> list[tuple[Case, Any]]:
        """Each case with its dead letter; some are left out as long as they are not there."""
        waiting: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for dead in {case.dead for case in self.cases}:
            topics = {case.topic for case in self.cases if case.dead == dead}
            for record in self.read(dead):
                failed = [
                    raw.decode()
                    for _, raw in record.headers
                    if raw and raw.decode("latin-1") in topics
                ]
                if failed:
                    waiting[dead, failed[0]].append(record)
        return [
            (case, waiting[case.dead, case.topic].pop(0))
            for case in self.cases
            if waiting[case.dead, case.topic]
        ]

    def _await(self, cases: Sequence[Case]) -> list[tuple[Case, Any]]:
        """Wait for the dead letters of some cases."""
        deadline = time.monotonic() + PATIENCE
        while missing := [
            it.title for it in cases if it not in [case for case, _ in self.dead_letters()]
        ]:
            if time.monotonic() > deadline:
                raise SystemExit(f"no dead letter: {', '.join(missing)}")
            time.sleep(1)
        return self.dead_letters()

    def vectors(self, library: str, source: str) -> list[dict[str, Any]]:
        """The corpus of a library, once all dead letters are there."""
        self._await([case for case in self.cases if not case.is_late])
        self.send(late=True)
        pairs = self._await(self.cases)
        offsets: defaultdict[tuple[str, str], int] = defaultdict(int)
        vectors = []
        for number, (case, record) in enumerate(pairs, start=1):
            offset = offsets[case.topic, case.dead]
            offsets[case.topic, case.dead] += 1
            offset = offset if case.offset is None else case.offset
            original = self.read(case.topic)[offset]
            origin = {"topic": case.topic, "partition": 0, "offset": offset}
            vectors.append(
                {
                    "id": f"{library}-{number}",
                    "title": case.title,
                    **vector_record(record),
                    "original": vector_record(original),
                    "expect": {"origin": origin, **case.expect},
                    "source": source,
                }
            )
        return vectors


def make(library: str, servers: str, folder: Path) -> None:
    """Make the file of one library.

    Args:
        library: The folder of its program.
        servers: A broker that has none of its topics.
        folder: Takes files of the program.
    """
    folder.mkdir()
    path = class_path(library, folder)
    run = Run(servers, CASES[library])
    run.send(late=False)
    with (folder / "log").open("w") as log:
        command = ["java", "-cp", path, "DeadLetters", servers, str(folder)]
        program = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        vectors = run.vectors(library, f"{library}/DeadLetters.java")
    except SystemExit:
        sys.stderr.write((folder / "log").read_text("utf-8")[-4000:])
        raise
    finally:
        program.kill()
        program.wait()
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    made = f"# Dead letters of {versions(library)}, made on {day} by {library}/DeadLetters.java.\n"
    text = yaml.safe_dump(vectors, sort_keys=False, width=1_000_000, allow_unicode=True)
    (FOLDER / f"{library}.yaml").write_text(made + text, encoding="utf-8")
    sys.stdout.write(f"{library}: {len(vectors)} dead letters\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as name, EmbeddedBroker(Path(name) / "broker") as broker:
        for library in sys.argv[1:] or CASES:
            make(library, broker.bootstrap_servers, Path(name) / library)


if __name__ == "__main__":
    main()

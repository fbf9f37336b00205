"""The topics that two jobs left, as text, written to a broker.

The job ``shop`` read ten dead letters of the order system and seven of Kafka Connect. An operator
acknowledged one, replayed three, discarded one, and restarted the job with ``new.rul``; a last dead
letter came when it had stopped. The job ``chain`` moved ten puts of IBM MQ and MQ Everyplace. Its
channel OFFICE.DEPOT was stopped before the last three, and puts to OFFICE.DEAD were disabled.

Each line of the text is a topic, a record of the topic before it, or the position of a group. Where
a log has no record, there was a marker of a transaction or an aborted record.
"""

from __future__ import annotations

import json
import shutil
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata
from tests.conftest import PATIENCE, eventually

from redrive.broker import EmbeddedBroker

RECORDED = Path(__file__).parent / "recorded"
TOPICS = RECORDED / "topics.jsonl"
EXAMPLES = Path(__file__).parents[2] / "examples"
_ALL_TIMES = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
"""Records keep their times, whatever the clock of this machine says."""


@contextmanager
def recorded_jobs(folder: Path) -> Iterator[tuple[Path, str]]:
    """The folder of the recorded jobs, and a broker with their topics."""
    jobs = folder / "jobs"
    jobs.mkdir()
    with EmbeddedBroker(folder / "broker") as broker:
        copy_job(jobs, broker.bootstrap_servers)
        write_topics(broker.bootstrap_servers, TOPICS.read_text().splitlines())
        yield jobs, broker.bootstrap_servers


def copy_job(folder: Path, servers: str) -> None:
    """Copies the settings of the jobs, their tables and definitions to a folder."""
    sources = [*RECORDED.iterdir(), *(EXAMPLES / "mq").iterdir(), EXAMPLES / "mqe" / "network.yaml"]
    for path in sources:
        if path.name not in {TOPICS.name, "README.md", "redrive.toml"}:
            shutil.copy(path, folder)
    for settings in folder.glob("*.toml"):
        settings.write_text(settings.read_text().replace("localhost:9092", servers))


def write_topics(servers: str, lines: Iterable[str]) -> None:
    """Makes the topics, with their records at the same offsets, and commits the positions."""
    topics: list[Mapping[str, Any]] = []
    records: dict[TopicPartition, list[Mapping[str, Any]]] = defaultdict(list)
    offsets: dict[str, dict[TopicPartition, OffsetAndMetadata]] = defaultdict(dict)
    for line in map(json.loads, lines):
        if "topic" in line:
            topics.append(line)
        elif "group" in line:
            offset = OffsetAndMetadata(line["offset"], "", -1)
            offsets[line["group"]][TopicPartition(*line["lane"])] = offset
        else:
            records[TopicPartition(topics[-1]["topic"], line["of"][0])].append(line)
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        new = [
            NewTopic(
                topic["topic"], topic["partitions"], 1,
                topic_configs={**topic["config"], **_ALL_TIMES},
            )
            for topic in topics
        ]  # fmt: skip
        admin.create_topics(new, wait_for_metadata=True)
    plain = KafkaProducer(bootstrap_servers=servers, acks="all")
    transactional = KafkaProducer(bootstrap_servers=servers, transactional_id="recorded")
    transactional.init_transactions()
    consumer = KafkaConsumer(bootstrap_servers=servers)
    with closing(plain), closing(transactional), closing(consumer):
        for lane, log in records.items():
            _write(plain, transactional, consumer, lane, log)
    for group, positions in offsets.items():
        consumer = KafkaConsumer(
            bootstrap_servers=servers, group_id=group, enable_auto_commit=False
        )
        with closing(consumer):
            consumer.assign([*positions])
            consumer.commit(positions)


def _write(
    plain: KafkaProducer,
    transactional: KafkaProducer,
    consumer: KafkaConsumer,
    lane: TopicPartition,
    log: list[Mapping[str, Any]],
) -> None:
    """Writes the records of a partition; a marker fills a gap of one, an aborted record of two."""
    begin = 0

    def await_marker(offset: int) -> None:
        # A transaction ends before its marker is written.
        eventually(lambda: consumer.end_offsets([lane])[lane] == offset, "a marker", every=0.01)

    for end, line in enumerate(log, 1):
        following = log[end]["of"][1] if end < len(log) else line["of"][1] + 1
        gap = following - line["of"][1] - 1
        if end < len(log) and not gap:
            continue
        has_marker = gap % 2 == 1
        producer = transactional if has_marker else plain
        if has_marker:
            producer.begin_transaction()
        futures = [producer.send(lane.topic, partition=lane.partition, **_sent(record))
                for record in log[begin:end]]  # fmt: skip
        producer.flush()
        assert [future.get(timeout=PATIENCE).offset for future in futures] == [
            record["of"][1] for record in log[begin:end]
        ], lane
        position = line["of"][1] + 1
        if has_marker:
            producer.commit_transaction()
            await_marker(position := position + 1)
        for _ in range(gap // 2):
            transactional.begin_transaction()
            transactional.send(lane.topic, partition=lane.partition, value=b"aborted")
            transactional.flush()
            transactional.abort_transaction()
            await_marker(position := position + 2)
        begin = end


def _sent(line: Mapping[str, Any]) -> dict[str, Any]:
    headers = [(name, _bytes(value)) for name, value in line["headers"]]
    key, value = _bytes(line["key"]), _bytes(line["value"])
    return {"key": key, "value": value, "headers": headers, "timestamp_ms": line["of"][2]}


def _bytes(text: str | None) -> bytes | None:
    if text is None:
        return None
    return b64decode(text[7:]) if text.startswith("base64:") else text.encode("latin-1")

"""The state of an application as text: what its topics hold, and where its group stands."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from tests.simulation.cluster import Entry, Fate, SimulatedCluster, Transaction

from redrive.messages import OutputRecord, TopicPartition

_COMPACTED = ("-control", "-tables", "-remaining")
_ABORTED = Transaction("gone", 0.0, Fate.ABORTED)


def written(cluster: SimulatedCluster) -> str:
    """The state that a simulated cluster holds; every transaction on it has ended."""
    topics = [
        {
            "topic": topic.name,
            "id": topic.identity,
            "partitions": [
                [_entry(entry) for entry in cluster.logs[TopicPartition(topic.name, number)]]
                for number in range(topic.partitions)
            ],
        }
        for topic in cluster.topics.values()
    ]
    offsets = [[group, *lane, offset] for (group, lane), offset in sorted(cluster.offsets.items())]
    return json.dumps({"topics": topics, "offsets": offsets}, indent=1) + "\n"


def read(text: str) -> SimulatedCluster:
    """A simulated cluster that holds a state."""
    state = json.loads(text)
    cluster = SimulatedCluster()
    for described in state["topics"]:
        # The job refuses to start where these are not compacted.
        is_compacted = described["topic"].endswith(_COMPACTED)
        topic = cluster.create(
            described["topic"], len(described["partitions"]), wants_keys=is_compacted
        )
        topic.identity = described["id"]
        for number, entries in enumerate(described["partitions"]):
            log = cluster.logs[TopicPartition(described["topic"], number)]
            log += [_entry_of(described["topic"], number, entry) for entry in entries]
            # Clocks were right when it was written: a copy was parked when its timestamp says.
            cluster.attempted |= {entry["time"]: entry["time"] / 1000 for entry in entries if entry}
    for group, topic_name, number, offset in state["offsets"]:
        cluster.offsets[group, TopicPartition(topic_name, number)] = offset
    return cluster


def _entry(entry: Entry) -> Mapping[str, Any]:
    transaction, record = entry.transaction, entry.record
    if record is None or (transaction is not None and transaction.fate is not Fate.COMMITTED):
        return {}  # a marker, or a record that no reader gets to see
    return {
        "time": record.timestamp,
        "written": entry.written,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers or []],
    }


def _entry_of(topic: str, partition: int, entry: Mapping[str, Any]) -> Entry:
    if not entry:
        return Entry(None, _ABORTED, 0.0)
    headers = [(name, _bytes(value)) for name, value in entry["headers"]]
    key, value = _bytes(entry["key"]), _bytes(entry["value"])
    record = OutputRecord(topic, key, value, headers, entry["time"], partition)
    return Entry(record, None, entry["written"])


def _text(value: bytes | None) -> str | None:
    """Readable where it can be, so that a change of a fixture shows what changed."""
    if value is None:
        return None
    text = value.decode("latin-1")
    return text if text.isascii() and text.isprintable() else "base64:" + b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    if text is None:
        return None
    return b64decode(text[7:]) if text.startswith("base64:") else text.encode("latin-1")

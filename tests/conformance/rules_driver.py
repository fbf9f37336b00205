"""One handler on topics in memory: a ``Slice`` is decided, then written, and nothing ever fails.

Handlers, attempts and the WAIT rule are the job's own; what Spark and Kafka do is one call of
``step``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from typing import Any

import orjson
from tests.engine.known_cluster import OPEN
from tests.engine.samples import resolve_anything

from redrive.engine.attempts import Resolvers
from redrive.engine.facts import Facts
from redrive.engine.names import HandlerIdentity
from redrive.engine.outcome import read_put
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.slice import Slice, SliceSettings
from redrive.engine.sources import PartitionRecords, SourceKind
from redrive.engine.statistics import SliceSummary
from redrive.messages import (
    INTERNAL,
    DeadLetterDecoder,
    DeadLetterHeader,
    Form,
    Headers,
    OutputRecord,
    Records,
    Refused,
    Representation,
    TopicPartition,
    encode_header,
    mqmd_headers,
)
from redrive.messages.own_headers import OwnHeaders
from redrive.messages.schemes import KNOWN, SchemeTable
from redrive.rules import RulesTable
from redrive.rules.backoff import PARTITIONS
from redrive.streaming.wait import WaitRule
from redrive.topology.put import Destination, Refusal

OUTCOMES = "outcomes"
IDENTITY = HandlerIdentity(
    name="dlq", queue_manager="", queue="DLQ", topic="DLQ",
    retry_topic="DLQ-retry", remaining_topic="DLQ-remaining",
)  # fmt: skip


def dead_letter(
    message: dict[str, Any], form: Form = Form.HEADERS, *, at: float = 0
) -> OutputRecord:
    """A vector's message on the dead-letter queue."""
    descriptor = message["md"]
    body = bytes.fromhex(message.get("body_hex", ""))
    headers: Headers = list(mqmd_headers(descriptor).items())
    if message["dlh"] is not None:
        is_big = descriptor.get("Encoding", 0) & 0xF == 1
        ccsid = descriptor.get("CodedCharSetId", 0)
        representation = Representation("big" if is_big else "little", ccsid)
        header = DeadLetterHeader.from_fields(message["dlh"], representation)
        if form is Form.BINARY:
            body = encode_header(header) + body
        else:
            headers += [(f"mqdlh.{n}", str(v).encode()) for n, v in header.fields().items()]
    return OutputRecord("DLQ", b"key", body, headers, int(at * 1000), 0)


class MemoryTopics:
    """Topics of one partition, and how far each was handled."""

    def __init__(self) -> None:
        self.topics: dict[str, list[OutputRecord]] = defaultdict(list)
        self.committed: dict[str, int] = defaultdict(int)
        self.refuse: Callable[[OutputRecord], int | None] = lambda _record: None
        """The reason code with which a put fails, if it does; asked once for each."""

    def waiting(self, topic: str) -> list[OutputRecord]:
        """What was not handled yet."""
        return self.topics[topic][self.committed[topic] :]


class HandlerDriver:
    """One run of a handler with one rules table."""

    def __init__(
        self,
        topics: MemoryTopics,
        table: RulesTable,
        *,
        since: int | None = None,
        schemes: SchemeTable = KNOWN,
        resolve: Callable[[str, str], Destination | Refusal] = resolve_anything,
    ) -> None:
        """A start, at which everything that remains is evaluated again.

        ``since`` is that of ``PartitionRecords``.
        """
        self.since, self._schemes = since, schemes
        self.table = table
        self.cluster = OPEN
        self._facts = Facts(lambda: 0.0)
        self._topics = topics
        self._handler = RulesDecider(
            IDENTITY,
            table,
            Resolvers(lambda manager, queue, _: resolve(manager, queue)),
            hop_limit=25,
            schemes=schemes,
        )
        seconds = table.control.seconds_to_wait
        self.wait = WaitRule({"dlq": None if seconds is None else float(seconds)}, 0.0)
        self._parked = [
            TopicPartition(IDENTITY.retry_topic, 0),
            *(TopicPartition(IDENTITY.backoff_topic, number) for number in range(PARTITIONS)),
        ]
        self._released = len(topics.topics[IDENTITY.remaining_topic])

    def step(self, now: float) -> SliceSummary | None:
        """Handles everything that is free; None if nothing is.

        Args:
            now: Seconds.
        """
        work = self.decided(now)
        if work is None:
            return None
        for _, record in work.outputs:
            self._topics.topics[_log(record.topic, record.partition)].append(record)
        self._topics.committed.update({_log(*lane): end for lane, end in work.ends().items()})
        summary = work.summary()
        self.wait.useful(summary.active, now)
        return summary

    def _puts(self) -> dict[bytes, OwnHeaders]:
        outcomes = (orjson.loads(record.value or b"") for record in self._topics.topics[OUTCOMES])
        return dict(filter(None, map(read_put, outcomes)))

    def decided(self, now: float) -> Slice | None:
        """What is to be written, with every put answered; a crash here has no effect at all."""
        parts = [part for part in self._parts(now) if part.records.offsets]
        if not parts:
            return None
        settings = SliceSettings(outcomes_topic=OUTCOMES, now=int(now * 1000))
        self.cluster = replace(self.cluster, puts=self._puts())
        decoder = DeadLetterDecoder()
        work = Slice(parts, decoder, self._facts, settings)
        work.resume({})
        asked: set[int] = {INTERNAL}
        while True:
            puts = [(entry, put) for entry, put in self.cluster.decided(work) if entry not in asked]
            if not puts:
                return work
            asked.update(entry for entry, _ in puts)
            answers = [(entry, self._topics.refuse(put)) for entry, put in puts]
            work.refuse([Refused(entry, why, "refused") for entry, why in answers if why], ())

    def due_at(self) -> float | None:
        """When the first parked message of a lane is due: those behind it wait for it."""
        logs = (self._topics.waiting(_log(*lane)) for lane in self._parked)
        return min((self._due(log[0]) for log in logs if log), default=None)

    def _due(self, record: OutputRecord) -> float:
        if record.topic == IDENTITY.backoff_topic:
            interval = self.table.backoff_partitions.seconds(record.partition)
        else:
            interval = self.table.control.retry_interval
        return record.timestamp / 1000 + interval

    def _free(self, lane: TopicPartition, now: float) -> list[OutputRecord]:
        """What is due on a lane: all before the first record that is not."""
        parked = self._topics.waiting(_log(*lane))
        return list(takewhile(lambda record: self._due(record) <= now, parked))

    def _parts(self, now: float) -> list[PartitionRecords]:
        remaining = IDENTITY.remaining_topic
        free = max(0, self._released - self._topics.committed[remaining])
        return [
            self._part(SourceKind.DEAD_LETTERS, "DLQ", self._topics.waiting("DLQ")),
            *(
                self._part(SourceKind.RETRIES, lane.topic, self._free(lane, now), lane.partition)
                for lane in self._parked
            ),
            self._part(SourceKind.REMAINING, remaining, self._topics.waiting(remaining)[:free]),
        ]

    def _part(
        self, kind: SourceKind, topic: str, rows: list[OutputRecord], partition: int = 0
    ) -> PartitionRecords:
        start = self._topics.committed[_log(topic, partition)]
        records = Records(
            keys=[row.key for row in rows],
            values=[row.value for row in rows],
            headers=[list(row.headers or []) for row in rows],
            timestamps=[row.timestamp for row in rows],
            offsets=list(range(start, start + len(rows))),
        )
        lane = TopicPartition(topic, partition)
        return PartitionRecords(lane, self._handler, kind, records, since=self.since)


def _log(topic: str, partition: int) -> str:
    """Where the records of a lane are kept; only messages that wait by BACKOFF have several."""
    return f"{topic}:{partition}" if topic == IDENTITY.backoff_topic else topic

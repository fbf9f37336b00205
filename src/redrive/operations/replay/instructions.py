"""Applying a plan: one instruction for each message, on the replay topics that the job reads.

Instructions are written chunk by chunk. The transaction of a chunk also writes the plan's entry in
the control topic, which tells how far they are: so applying a plan again goes on where it was left,
two at once fence each other and write everything once, and a plan that was accepted as a whole is
not accepted again. Nothing here writes to any target: that is the job's part.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Final

from redrive.checkpoints.control import read_entries
from redrive.checkpoints.own_topics import replay_topic
from redrive.collector import collector_paused
from redrive.kafka.administration import TopicAdministration
from redrive.kafka.compacted import CompactedTopic
from redrive.kafka.records import StoredRecord, read_records
from redrive.messages import OutputRecord, TopicPartition
from redrive.messages import own_headers as own
from redrive.operations.replay.applied import AppliedPlan, PlannedLane
from redrive.operations.replay.entries import Writer, read_accepted, written_with_patience
from redrive.topology.replays import Replay, Span

__all__ = ["Instructions"]

_CHUNK_RECORDS: Final = 5_000
_CHUNK_BYTES: Final = 8 * 1024 * 1024
"""What one transaction carries: applying again does at most so much anew."""
_AT_ONCE: Final = 4
"""Partitions that are instructed by turns; each has a consumer, and a chunk in memory."""
_NONE: Final = -1
"""In the place of the offset of a copy that was taken away."""
_READ: Final = 600.0
"""Seconds for reading one partition of a remaining topic."""

Content = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]


class Instructions(AppliedPlan):
    """Writes the instructions of one plan.

    This class is responsible for: that each message of the plan has one instruction at most,
    whoever applies it and how often.
    """

    def write(self) -> Replay:
        """Writes what is not written yet, and returns the accepted replay.

        Raises:
            TransientFault: The broker gave no answer for a minute. Applying the plan again goes on.
            EnvironmentFault: The cluster refused to make a replay topic.
        """
        self._ensure_topics()
        with collector_paused():
            return written_with_patience(self._job, self._cluster, self._plan.plan, self._write_all)

    def _ensure_topics(self) -> None:
        counts = self._cluster.topics()
        TopicAdministration(self._job.connection).ensure(
            replay_topic(one.handler.identity.replay_topic, counts[one.handler.identity.topic])
            for one in self._lanes
            if one.handler.identity.topic in counts
        )

    def _write_all(self, writer: Writer) -> Replay:
        # Only now: whoever wrote before is fenced, and what he wrote is settled.
        accepted = read_accepted(self._job, self._cluster).get(self._plan.plan)
        replay = accepted or self._begun(writer)
        self._written(replay.instructed)
        if replay.is_complete or replay.cancelled_by:
            return replay
        for lane, records, span in self._every_chunk(replay.spans):
            replay = replace(
                replay,
                instructed=replay.instructed + len(records),
                spans={**replay.spans, lane.replay: span},
            )
            writer.write(records, replay)
            self._written(replay.instructed)
        ends = self._cluster.ends(replay.spans, committed_only=False)
        closed = {lane: replace(span, end=ends[lane]) for lane, span in replay.spans.items()}
        replay = replace(replay, spans=closed, is_complete=True)
        writer.write([], replay)
        return replay

    def _begun(self, writer: Writer) -> Replay:
        """The plan's first entry: from now on it is accepted."""
        remaining = self._cluster.extents([one.remaining for one in self._lanes])
        ends = self._cluster.ends([one.replay for one in self._lanes], committed_only=False)
        order = self._plan.order
        replay = Replay(
            plan=self._plan.plan,
            to=order.to,
            queue=order.target.queue,
            queue_manager=order.target.queue_manager,
            keeps_header=order.keeps_header,
            rate=order.rate,
            operator=self._operator,
            purpose=self._purpose,
            accepted=time.time(),
            planned=self._plan.count,
            spans={
                one.replay: Span(
                    first=ends[one.replay],
                    count=len(one.origins),
                    read=remaining[one.remaining].first,
                    until=remaining[one.remaining].end,
                )
                for one in self._lanes
            },
        )
        writer.write([], replay)
        return replay

    def _every_chunk(
        self, spans: Mapping[TopicPartition, Span]
    ) -> Iterator[tuple[PlannedLane, list[OutputRecord], Span]]:
        """What is still to be written, several lanes by turns: the job reads them side by side."""
        for start in range(0, len(self._lanes), _AT_ONCE):
            lanes = self._lanes[start : start + _AT_ONCE]
            chunks = [self._chunks(lane, spans[lane.replay]) for lane in lanes]
            for turn in zip_longest(*chunks):
                for lane, chunk in zip(lanes, turn, strict=True):
                    if chunk is not None:
                        yield lane, *chunk

    def _chunks(self, lane: PlannedLane, span: Span) -> Iterator[tuple[list[OutputRecord], Span]]:
        """What is still to be written for a lane, and how far it is then."""
        if span.read > span.until:
            return
        last = {
            key: offset if has_value else _NONE
            for key, offset, has_value in self._places(lane.remaining, span.until)
            if key in lane.origins
        }
        chunk: list[StoredRecord] = []
        size = 0
        for record in self._records(lane.remaining, span.read, span.until):
            if record.key is None or last.get(record.key) != record.offset:
                continue
            chunk.append(record)
            size += len(record.value or b"")
            if len(chunk) >= _CHUNK_RECORDS or size >= _CHUNK_BYTES:
                yield self._instructed_by(lane, chunk), replace(span, read=record.offset + 1)
                chunk, size = [], 0
        lost = {key for key in lane.origins if key not in last}
        if lost:
            # A copy may be gone because the job has carried out what this plan asked before.
            lost -= self._asked(lane)
        restored = self._restored(lane, lost)
        yield self._instructed_by(lane, chunk) + restored, replace(span, read=span.until + 1)

    def _asked(self, lane: PlannedLane) -> set[bytes]:
        """The messages of a lane for which this plan has an instruction."""
        topic = lane.replay.topic
        with CompactedTopic(
            self._job.connection, topic, partition=lane.replay.partition
        ) as instructions:
            records = map(StoredRecord.of, instructions.messages_to_end())
            return {
                record.key or b""
                for record in records
                if own.read_own(record.headers).replay == self._plan.plan
            }

    def _places(self, lane: TopicPartition, end: int) -> Iterator[tuple[bytes | None, int, bool]]:
        """Key and offset of each record, and whether it has a value; headers are not looked at."""
        first = self._cluster.extents([lane])[lane].first
        if first >= end:
            return
        for message in self._cluster.read(
            {lane: first}, seconds=_READ, until=lambda it: (it.offset() or 0) >= end - 1
        ):
            if (offset := message.offset() or 0) < end:
                key: Any = message.key()
                yield key, offset, message.value() is not None

    def _records(self, lane: TopicPartition, start: int, end: int) -> Iterator[StoredRecord]:
        first = max(start, self._cluster.extents([lane])[lane].first)
        if first >= end:
            return
        for record in read_records(
            self._cluster, {lane: first}, seconds=_READ, until=lambda it: it.offset >= end - 1
        ):
            if record.offset < end:
                yield record

    def _instructed_by(
        self, lane: PlannedLane, chunk: Sequence[StoredRecord]
    ) -> list[OutputRecord]:
        """Instructions in the order in which the messages came to their dead-letter queue."""
        ordered = sorted(chunk, key=lambda record: _offset_of(record.key or b""))
        return [self._instruction(lane, it.key, it.value, it.headers) for it in ordered]

    def _instruction(
        self,
        lane: PlannedLane,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]],
    ) -> OutputRecord:
        now = int(time.time() * 1000)
        told = [*headers, (own.REPLAY, self._plan.plan.encode())]
        return OutputRecord(lane.replay.topic, key, value, told, now, lane.partition)

    def _restored(self, lane: PlannedLane, lost: set[bytes]) -> list[OutputRecord]:
        """Instructions for messages whose copy is gone, from the dead letters themselves."""
        topic = lane.handler.identity.topic
        source, known = TopicPartition(topic, lane.partition), self._name_in_origins(topic)
        offsets = {
            _offset_of(one): one for one in lost if one.decode("ascii").rsplit(":", 2)[0] == known
        }
        if not offsets:
            return []
        return [
            self._instruction(lane, *_copy_of(record, offsets[record.offset]))
            for record in self._records(source, min(offsets), max(offsets) + 1)
            if record.offset in offsets
        ]

    def _name_in_origins(self, topic: str) -> str:
        """How dead letters of a topic as it is are named: one made anew has a number."""
        entries = read_entries(self._job.connection, self._job.control_topic)
        incarnation = int(entries.get(f"topic/{topic}", {}).get("incarnation", 1))
        return f"{topic}~{incarnation}" if incarnation > 1 else topic


def _offset_of(origin: bytes) -> int:
    return int(origin.rpartition(b":")[2])


def _copy_of(record: StoredRecord, origin: bytes) -> Content:
    """What the remaining copy of a dead letter would be, marked as restored."""
    mine = own.read_own(record.headers)
    headers = [
        *own.without_own(record.headers),
        (own.ID, mine.identity.encode("ascii") or origin),
        (own.ORIGIN, origin),
        (own.TIMESTAMP, own.number(max(0, record.timestamp))),
        (own.HOPS, own.number(mine.hops)),
        (own.RESTORED, b"1"),
    ]
    if record.key is not None:
        headers.append((own.KEY, record.key))
    if record.value is None:
        headers.append((own.NULL, b"1"))
    return origin, record.value if record.value is not None else b"", headers

"""Applying a plan of any kind.

For remaining messages it writes one instruction each on the replay topics that the job reads, chunk
by chunk. The transaction of a chunk also writes the plan's entry in the control topic, with the
number of instructions so far. So a second call continues where the first ended, concurrent calls
fence each other and write everything once, and a complete plan is not accepted again.

For parked messages it writes no instructions: the plan's entry names their copies. The lane of the
retry topic reads up to the last named copy, and retries it or lets it remain, as the plan says. So
a message that becomes due at the same time is taken once, by its own lane.

Nothing here writes to any target; the job does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from redrive.checkpoints.control import read_entries
from redrive.checkpoints.own_topics import MAX_MESSAGE_BYTES, waiting_topic
from redrive.checkpoints.states import StatesWriter
from redrive.collector import collector_paused
from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.engine.commands import Replay, Span
from redrive.engine.outcome import FINAL, Result
from redrive.errors import FencedFault, OutcomeUnknown, TransientFault, UsageError
from redrive.kafka.administration import TopicAdministration
from redrive.kafka.cluster import Cluster, Extent, settled_ends
from redrive.kafka.deadline import AGAIN, PATIENCE
from redrive.kafka.records import StoredRecord
from redrive.messages import OutputRecord, TopicPartition, cuts
from redrive.messages import own_headers as own
from redrive.operations.replay.plan import Plan
from redrive.operations.replay.progress import read_accepted
from redrive.operations.retention import HeldPlace, held_places
from redrive.operations.states import ensure_topics
from redrive.outcomes.ledger import LastOutcomes
from redrive.rules.backoff import PARTITIONS

_NONE: Final = -1
"""Stands for the offset of a removed copy."""


@dataclass(frozen=True, slots=True)
class PlannedLane:
    """The messages of a plan from one partition of a dead-letter topic."""

    handler: HandlerConfiguration
    partition: int
    origins: frozenset[bytes]

    @property
    def remaining(self) -> TopicPartition:
        """The lane of their remaining copies."""
        return TopicPartition(self.handler.identity.remaining_topic, self.partition)

    @property
    def replay(self) -> TopicPartition:
        """The lane of their instructions."""
        return TopicPartition(self.handler.identity.replay_topic, self.partition)


class Restorable(NamedTuple):
    """A message to be restored from its dead letter."""

    partition: int
    """Of the outcomes topic."""
    read_until: int
    """The offset up to which outcomes were read."""
    message: str
    """Its identity."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of the messages of one lane before they are instructed."""

    copies: Mapping[bytes, int]
    """The offset of the last remaining copy of each message that has one."""
    placed: int = 0
    """How many of the others have a final outcome; of discarded ones, another than that."""
    restorable: Mapping[bytes, Restorable] = field(default_factory=dict)
    """Those that remain without a copy, or are discarded."""


@dataclass(frozen=True, slots=True)
class PlannedMessages:
    """Looks for the messages of a plan; none that had a final outcome is restored."""

    _job: JobConfiguration
    _cluster: Cluster
    _plan: str
    _is_undo: bool = False
    """Whether the messages are discarded ones: outcomes decide alone, and copies do not matter."""

    def look(
        self, planned: Sequence[PlannedLane], spans: Mapping[TopicPartition, Span], *, is_new: bool
    ) -> dict[TopicPartition, Look]:
        """Look for the messages of every lane still to do, before anything is written.

        Returns:
            What is known, by the lane of instructions; completed lanes are left out.

        Raises:
            UsageError: There are no outcomes of a message without a copy.
        """
        lanes = [lane for lane in planned if spans[lane.replay].read <= spans[lane.replay].until]
        last = {
            lane.replay: {} if self._is_undo else self._last_places(lane, spans[lane.replay].until)
            for lane in lanes
        }
        absent = {
            lane.replay: {key for key in lane.origins if copies.get(key, _NONE) == _NONE}
            for lane, copies in zip(lanes, last.values(), strict=True)
        }
        if not is_new:
            # The job may have carried out earlier instructions of this plan.
            for lane in lanes:
                absent[lane.replay] -= self._instructed_keys(lane) if absent[lane.replay] else set()
        origins = [key.decode() for keys in absent.values() for key in keys]
        outcomes = (
            LastOutcomes.of(self._job, self._cluster, origins)
            if origins
            else LastOutcomes({}, {}, {})
        )
        lost = {
            lane.replay: {key for key in absent[lane.replay] if key not in last[lane.replay]}
            for lane in lanes
        }
        self._check_answers(outcomes, [key.decode() for keys in lost.values() for key in keys])
        return {
            lane.replay: Look(
                {key: place for key, place in last[lane.replay].items() if place != _NONE},
                sum(self._is_placed(outcomes, key) for key in absent[lane.replay]),
                self._restorable(lane, lost[lane.replay], outcomes, spans[lane.replay].until),
            )
            for lane in lanes
        }

    def _check_answers(self, outcomes: LastOutcomes, lost: Sequence[str]) -> None:
        unknown = sorted(origin for origin in lost if outcomes.result_of(origin) is None)
        if not unknown:
            return
        ledger = f"the ledger in {self._job.ledger.path} and " if self._job.ledger.enabled else ""
        raise UsageError(
            f"the plan {self._plan} is too old: {len(unknown)} of its messages, such as"
            f" {unknown[0]}, have no remaining copy, and {ledger}the topic"
            f" {self._job.outcomes_topic} lack the outcomes that show whether they"
            " were placed",
            hint="make a new plan of the remaining messages: `redrive replay plan`",
        )

    def _is_placed(self, outcomes: LastOutcomes, key: bytes) -> bool:
        known = outcomes.by_origin.get(key.decode())
        if known is None or self._plan in known.replays:
            return False
        return known.result != Result.DISCARDED if self._is_undo else known.result in FINAL

    def _restorable(
        self, lane: PlannedLane, lost: Collection[bytes], outcomes: LastOutcomes, until: int
    ) -> dict[bytes, Restorable]:
        """Messages that remain, have no copy, and were not yet asked for by this plan.

        Of a plan to undo a discard: those that are discarded.
        """
        restorable = {}
        wanted = Result.DISCARDED if self._is_undo else Result.REMAINS
        for key in lost:
            known = outcomes.by_origin[key.decode()]
            if known.result == wanted and self._plan not in known.replays:
                end = outcomes.ends[known.partition]
                restorable[key] = Restorable(known.partition, end, known.message)
        if restorable and not self._is_undo:
            # One that was retried meanwhile, and remains again, has a later copy than those read.
            end = settled_ends(self._cluster, [lane.remaining])[lane.remaining]
            for newer, *_ in self._cluster.places({lane.remaining: until}, {lane.remaining: end}):
                restorable.pop(newer or b"", None)
        return restorable

    def _instructed_keys(self, lane: PlannedLane) -> set[bytes]:
        ends = settled_ends(self._cluster, [lane.replay])
        return {
            record.key or b""
            for record in self._cluster.read({lane.replay: 0}, ends)
            if own.read_own(record.headers).replay == self._plan
        }

    def _last_places(self, lane: PlannedLane, until: int) -> dict[bytes, int]:
        return {
            key: offset if has_value else _NONE
            for key, offset, has_value in self._cluster.places(
                {lane.remaining: 0}, {lane.remaining: until}
            )
            if key is not None and key in lane.origins
        }


_CHUNK_RECORDS: Final = 5_000
_CHUNK_BYTES: Final = 8 * 1024 * 1024
"""Instructions in one transaction; an interruption loses at most these."""
_AT_ONCE: Final = 4
"""Partitions that are instructed round-robin; each has a consumer and a chunk in memory."""

Content = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]
MOST_PARKED: Final = 100_000
"""Maximum messages of a plan: its entry has their offsets, and every worker reads it."""


def accept(
    job: JobConfiguration,
    cluster: Cluster,
    plan: Plan,
    *,
    operator: str,
    purpose: str,
    written: Callable[[int], None] = lambda _: None,
) -> Replay:
    """Hand a plan to the job: instructions about remaining messages, or an entry about parked ones.

    ``written`` is called with the number of messages handed over, after each chunk.

    Returns:
        The accepted plan; the earlier one if it was already accepted.

    Raises:
        UsageError: The plan is of another application, too old, or has too many parked messages.
        TransientFault: The broker did not answer for a minute. Apply the plan again to continue.
        EnvironmentFault: The cluster refused to create a replay topic.
    """
    kind = ParkedMessages if plan.replay.to.is_about_parked else Instructions
    return kind(job, cluster, plan, operator=operator, purpose=purpose, written=written).write()


@dataclass
class _Applied:
    """A plan of any kind to apply, with the arguments of ``accept``."""

    job: JobConfiguration
    cluster: Cluster
    plan: Plan
    operator: str
    purpose: str
    written: Callable[[int], None] = lambda _: None

    def __post_init__(self) -> None:
        """Check that the plan is of this job and cluster."""
        plan, cluster = self.plan, self.cluster
        if plan.cluster and plan.cluster != cluster.identity:
            raise UsageError(
                f"the plan was made on the cluster {plan.cluster}, and this is {cluster.identity}:"
                " its offsets are of other messages here",
                hint="name the settings that it was made with, or make another plan",
            )
        self._lanes = list(_lanes_of(self.job, plan))

    def _replay(self, spans: Mapping[TopicPartition, Span], **more: Any) -> Replay:  # noqa: ANN401 - members of a replay
        return replace(
            self.plan.replay,
            operator=self.operator,
            purpose=self.purpose,
            accepted=time.time(),
            planned=self.plan.count,
            spans=spans,
            **more,
        )


def _lanes_of(job: JobConfiguration, plan: Plan) -> Iterator[PlannedLane]:
    if plan.application != job.application:
        raise UsageError(
            f"this is a plan for the application {plan.application}, not {job.application}",
            hint="name the settings of that application with -c",
        )
    handlers = {handler.identity.name: handler for handler in job.handlers}
    for name, places in plan.messages.items():
        handler = handlers.get(name)
        if handler is None:
            raise UsageError(
                f"the plan has messages of the handler {name}, which the settings do not have",
                hint="name the settings that it was made with, or make another plan",
            )
        yield from _lanes_of_handler(handler, places)


def _lanes_of_handler(
    handler: HandlerConfiguration, places: Mapping[str, Sequence[int]]
) -> Iterator[PlannedLane]:
    origins: dict[int, set[bytes]] = {}
    for place, offsets in places.items():
        partition = int(place.rpartition(":")[2])
        keys_of_partition = origins.setdefault(partition, set())
        keys_of_partition.update(f"{place}:{offset}".encode("ascii") for offset in offsets)
    for partition, keys in sorted(origins.items()):
        yield PlannedLane(handler, partition, frozenset(keys))


class Instructions(_Applied):
    """Writes at most one instruction for each message of a plan, however often it is applied."""

    def write(self) -> Replay:
        """Write the missing instructions, and return the replay; raises ``TransientFault``."""
        self._ensure_topics()
        with collector_paused():
            return write_with_retry(self.job, self.cluster, self.plan.id, self._write_all)

    def _ensure_topics(self) -> None:
        counts = self.cluster.topics()
        TopicAdministration(self.job.connection).ensure(
            waiting_topic(lane.handler.identity.replay_topic, counts[lane.handler.identity.topic])
            for lane in self._lanes
            if lane.handler.identity.topic in counts
        )

    def _write_all(self, states: StatesWriter) -> Replay:
        # Only now, as an earlier writer is fenced and its transaction has ended.
        accepted = read_accepted(self.job, self.cluster).get(self.plan.id)
        replay = accepted or self._new()
        self.written(replay.instructed)
        if replay.is_complete or replay.cancelled_by:
            return replay
        messages = PlannedMessages(self.job, self.cluster, self.plan.id, self.plan.replay.is_undo)
        looks = messages.look(self._lanes, replay.spans, is_new=accepted is None)
        if accepted is None:
            states.write([replay.entry()])  # from here on the plan is accepted
        for lane, records, span in self._every_chunk(replay.spans, looks):
            is_last = span.read > span.until
            replay = replace(
                replay,
                instructed=replay.instructed + len(records),
                placed=replay.placed + (looks[lane.replay].placed if is_last else 0),
                spans={**replay.spans, lane.replay: span},
            )
            states.write([replay.entry()], records)
            self.written(replay.instructed)
        ends = self.cluster.ends(replay.spans, committed_only=False)
        closed = {lane: replace(span, end=ends[lane]) for lane, span in replay.spans.items()}
        replay = replace(replay, spans=closed, is_complete=True)
        states.write([replay.entry()])
        return replay

    def _new(self) -> Replay:
        remaining = self.cluster.extents([lane.remaining for lane in self._lanes])
        ends = self.cluster.ends([lane.replay for lane in self._lanes], committed_only=False)
        spans = {
            lane.replay: Span(
                first=ends[lane.replay],
                count=len(lane.origins),
                read=remaining[lane.remaining].first,
                until=remaining[lane.remaining].end,
            )
            for lane in self._lanes
        }
        return self._replay(spans)

    def _every_chunk(
        self, spans: Mapping[TopicPartition, Span], looks: Mapping[TopicPartition, Look]
    ) -> Iterator[tuple[PlannedLane, list[OutputRecord], Span]]:
        """Instructions to write, from all lanes round-robin: the job reads them in parallel."""
        left = [lane for lane in self._lanes if lane.replay in looks]
        for start in range(0, len(left), _AT_ONCE):
            lanes = left[start : start + _AT_ONCE]
            chunks = [self._chunks(lane, spans[lane.replay], looks[lane.replay]) for lane in lanes]
            for turn in zip_longest(*chunks):
                for lane, chunk in zip(lanes, turn, strict=True):
                    if chunk is not None:
                        yield lane, *chunk

    def _chunks(
        self, lane: PlannedLane, span: Span, look: Look
    ) -> Iterator[tuple[list[OutputRecord], Span]]:
        last: list[OutputRecord] = []
        after = span
        for instructions, read in self._parts(lane, span, look):
            if last:
                yield last, after
            last, after = instructions, replace(span, read=read)
        yield last, replace(span, read=span.until + 1)

    def _parts(
        self, lane: PlannedLane, span: Span, look: Look
    ) -> Iterator[tuple[list[OutputRecord], int]]:
        """Instructions, and the offset up to which remaining copies became some."""
        starts, ends = {lane.remaining: span.read}, {lane.remaining: span.until}
        copies = self.cluster.read(starts, ends) if look.copies else ()
        current = (
            record for record in copies if look.copies.get(record.key or b"") == record.offset
        )
        for chunk in _chunks_of(current):
            # In the order in which the messages were dead-lettered.
            ordered = sorted(chunk, key=lambda record: _offset_of(record.key or b""))
            contents = ((record.key, record.value, record.headers) for record in ordered)
            yield self._instructions(lane, contents), chunk[-1].offset + 1
        for restored in self._restored_instructions(lane, look.restorable):
            yield restored, span.until

    def _instructions(self, lane: PlannedLane, contents: Iterable[Content]) -> list[OutputRecord]:
        (topic, partition), now = lane.replay, int(time.time() * 1000)
        replay = own.REPLAY, self.plan.id.encode()
        return [
            OutputRecord(topic, key, value, [*headers, replay], now, partition)
            for key, value, headers in contents
        ]

    def _restored_instructions(
        self, lane: PlannedLane, lost: Mapping[bytes, Restorable]
    ) -> Iterator[list[OutputRecord]]:
        """Instructions for messages without a copy, made from the dead letters, chunk by chunk."""
        held = self._held(lane) if lost else {}
        wanted: dict[TopicPartition, dict[int, bytes]] = {}
        for origin in lost:
            place, offset = held.get(origin.decode("ascii").rpartition(":")[0]), _offset_of(origin)
            if place is not None and place.holds(offset):
                wanted.setdefault(place.lane, {})[offset] = origin
        for source, offsets in wanted.items():
            records = (
                record
                for record in self.cluster.read({source: min(offsets)}, {source: max(offsets) + 1})
                if record.offset in offsets
            )
            for chunk in _chunks_of(records):
                if not held.keys() <= self._held(lane).keys():
                    return  # the topic was recreated while it was read
                contents = [
                    _copy_of(record, offsets[record.offset], lost[offsets[record.offset]])
                    for record in chunk
                ]
                yield self._instructions(lane, contents)

    def _held(self, lane: PlannedLane) -> dict[str, HeldPlace]:
        topic = lane.handler.identity.topic
        entries = read_entries(self.cluster, self.job.control_topic)
        # What the control topic does not know is not trusted.
        is_known = f"topic/{topic}" in entries
        return held_places(self.cluster, entries, [topic]) if is_known else {}


def _chunks_of(records: Iterable[StoredRecord]) -> Iterator[list[StoredRecord]]:
    """Records in chunks for one transaction."""
    chunk: list[StoredRecord] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += len(record.value or b"")
        if len(chunk) >= _CHUNK_RECORDS or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _offset_of(origin: bytes) -> int:
    return int(origin.rpartition(b":")[2])


def _copy_of(record: StoredRecord, origin: bytes, restorable: Restorable) -> Content:
    """What the remaining copy of a dead letter would be, marked as restored."""
    own_values = own.read_own(record.headers)
    content = cuts.RecordContent(record.key, record.value, own.without_own(record.headers))
    key, value, kept, cut = cuts.fitted(content, MAX_MESSAGE_BYTES)
    headers = [
        *kept,
        # That of its outcomes: its program may have dropped the header.
        (own.ID, restorable.message.encode("ascii") or origin),
        (own.ORIGIN, origin),
        (own.TIMESTAMP, own.number(max(0, record.timestamp))),
        (own.HOPS, own.number(own_values.hops)),
        (own.RESTORED, b"%d:%d" % (restorable.partition, restorable.read_until)),
    ]
    if own_values.timestamp is not None:
        headers.append((own.RECORD_TIME, own.number(own_values.timestamp)))
    if own_values.group_topic:
        headers.append((own.GROUP_TOPIC, own_values.group_topic.value))
    if cut:
        headers.append((own.CUT, cut.encode("ascii")))
    if key is not None:
        headers.append((own.KEY, key))
    if value is None:
        headers.append((own.NULL, b"1"))
    return origin, value if value is not None else b"", headers


class ParkedMessages(_Applied):
    """Writes the entry of a plan about parked messages once, however often it is applied.

    ``written`` is called partition by partition.
    """

    def write(self) -> Replay:
        """Accept the plan, unless it was accepted before; raises ``UsageError`` if too large."""
        if self.plan.count > MOST_PARKED:
            raise UsageError(
                f"{self.plan.count} parked messages are too many for one plan (at"
                f" most {MOST_PARKED})",
                hint=f"plan them in parts, with --limit {MOST_PARKED}",
            )
        return write_with_retry(self.job, self.cluster, self.plan.id, self._write)

    def _write(self, states: StatesWriter) -> Replay:
        every = read_accepted(self.job, self.cluster)
        accepted = every.get(self.plan.id)
        if accepted is not None:
            return accepted
        spans: dict[TopicPartition, Span] = {}
        for lane in self._lanes:
            spans.update(self._spans(lane))
            self.written(sum(span.count for span in spans.values()))
        instructed = sum(span.count for span in spans.values())
        replay = self._replay(spans, instructed=instructed, is_complete=True)
        for finished in self._finished_replays(every):
            states.write([finished.entry()])
        states.write([replay.entry()])
        return replay

    def _spans(self, lane: PlannedLane) -> Mapping[TopicPartition, Span]:
        """Where the messages are parked now; those no longer parked are left out."""
        places = self._waiting_places(lane)
        committed = self.cluster.committed(self.job.application, places, stable=True)
        extents = self.cluster.extents(places)
        _check_known(committed, extents)
        starts = {place: extents[place].position(committed[place]) for place in places}
        named: dict[TopicPartition, set[int]] = {}
        ends = {place: extent.end for place, extent in extents.items()}
        for record in self.cluster.read(starts, ends):
            if own.read_own(record.headers).origin.encode("ascii") in lane.origins:
                named.setdefault(record.lane, set()).add(record.offset)
        return {
            place: Span(
                first=starts[place],
                count=len(offsets),
                end=max(offsets) + 1,
                named=frozenset(offsets),
            )
            for place, offsets in named.items()
        }

    def _waiting_places(self, lane: PlannedLane) -> list[TopicPartition]:
        identity, existing = lane.handler.identity, self.cluster.topics()
        first = lane.partition * PARTITIONS
        places = [
            TopicPartition(identity.retry_topic, lane.partition),
            *(TopicPartition(identity.backoff_topic, first + n) for n in range(PARTITIONS)),
        ]
        return [place for place in places if place.partition < existing.get(place.topic, 0)]

    def _finished_replays(self, every: Mapping[str, Replay]) -> Iterator[Replay]:
        """Earlier plans that were carried out, without offsets that are no longer needed."""
        named = [
            replay for replay in every.values() if any(span.named for span in replay.spans.values())
        ]
        lanes = sorted({lane for replay in named for lane in replay.spans})
        committed = self.cluster.committed(self.job.application, lanes) if lanes else {}
        for replay in named:
            if all(
                (committed[lane] or 0) >= (span.end or 0) for lane, span in replay.spans.items()
            ):
                spans = {
                    lane: replace(span_of_lane, named=frozenset())
                    for lane, span_of_lane in replay.spans.items()
                }
                yield replace(replay, spans=spans)


def _check_known(
    committed: Mapping[TopicPartition, int | None], extents: Mapping[TopicPartition, Extent]
) -> None:
    """Check that the job's positions are known, which show what still waits."""
    for lane, extent in extents.items():
        if committed[lane] is None and extent.first < extent.end:
            raise TransientFault(
                f"which messages wait on {lane} is not known: the job's offset there has expired",
                hint="start the job, which recovers the offset, and apply the plan again",
            )


def write_with_retry(
    job: JobConfiguration, cluster: Cluster, plan: str, write: Callable[[StatesWriter], Replay]
) -> Replay:
    """The result of ``write``, retried while the broker does not answer or another command applies.

    ``write`` gets a producer that has fenced all others for the plan. The transaction of an earlier
    one has ended, and ``write`` adds what is missing.

    Raises:
        TransientFault: The broker did not answer for a minute. Apply the plan again to continue.
    """
    failing_since = time.monotonic()
    while True:
        before = _instructed_count(job, cluster, plan)
        try:
            with _writer(job, cluster, plan) as states:
                return write(states)
        except (TransientFault, FencedFault, OutcomeUnknown):
            # Another command that applies the same plan fences us, and we fence it.
            if _instructed_count(job, cluster, plan) != before:
                failing_since = time.monotonic()
            if time.monotonic() - failing_since > PATIENCE:
                raise
            time.sleep(AGAIN)


def _instructed_count(job: JobConfiguration, cluster: Cluster, plan: str) -> int:
    with contextlib.suppress(TransientFault):
        accepted = read_accepted(job, cluster).get(plan)
        return 0 if accepted is None else accepted.instructed
    return 0


def _writer(job: JobConfiguration, cluster: Cluster, plan: str) -> StatesWriter:
    if not {job.control_topic, job.tables_topic} <= cluster.topics().keys():
        ensure_topics(job)
    lanes = cluster.lanes(handler.identity.replay_topic for handler in job.handlers)
    return StatesWriter(cluster, job.application, f"replay-{plan}", lanes=lanes)

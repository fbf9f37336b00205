"""The outcomes of a plan's messages before its instructions are written.

A message without a remaining copy was placed long ago, or its copy was lost. The missing copy does
not say which, since tombstones last a day and plans may be older; the outcomes do. A message whose
last outcome says that it remains is restored from its dead letter; others are skipped.

No message is placed twice in this way: the outcomes are read up to some offset, and then the
remaining topic is read again for copies written meanwhile. If there is none, only a restored
instruction can place the message, since tables and other instructions need a copy. Each restored
instruction has the offset up to which the outcomes were read. The job carries out those of a lane
one after the other, and before each it looks in the later outcomes for one that was carried out. So
if several plans restore a message at the same time the first one counts, however long the others
wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.engine.commands import Span
from redrive.engine.outcome import FINAL, Result
from redrive.errors import UsageError
from redrive.kafka.cluster import Cluster, settled_ends
from redrive.messages import TopicPartition
from redrive.messages import own_headers as own
from redrive.outcomes.last_outcomes import LastOutcomes

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


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of the messages of one lane before they are instructed."""

    copies: Mapping[bytes, int]
    """The offset of the last remaining copy of each message that has one."""
    placed: int = 0
    """How many of the others have a final outcome."""
    restorable: Mapping[bytes, tuple[int, int]] = field(default_factory=dict)
    """Those that remain without a copy, each with the partition and the offset up to which outcomes
    were read."""


class PlannedMessages:
    """Looks for the messages of a plan; none that had a final outcome is restored."""

    def __init__(self, job: JobConfiguration, cluster: Cluster, plan: str) -> None:
        self._job = job
        self._cluster = cluster
        self._plan = plan

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
        last = {lane.replay: self._last_places(lane, spans[lane.replay].until) for lane in lanes}
        absent = {
            lane.replay: {key for key in lane.origins if last[lane.replay].get(key, _NONE) == _NONE}
            for lane in lanes
        }
        if not is_new:
            # The job may have carried out earlier instructions of this plan.
            for lane in lanes:
                absent[lane.replay] -= self._instructed_keys(lane) if absent[lane.replay] else set()
        outcomes = self._outcomes(absent)
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

    def _outcomes(self, absent: Mapping[TopicPartition, Collection[bytes]]) -> LastOutcomes:
        """Outcomes of messages without a copy, except those that this plan moved."""
        origins = [key.decode() for keys in absent.values() for key in keys]
        if not origins:
            return LastOutcomes({}, {}, {})
        return LastOutcomes.of(self._job, self._cluster, origins)

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
        return known is not None and known.result in FINAL and self._plan not in known.replays

    def _restorable(
        self, lane: PlannedLane, lost: Collection[bytes], outcomes: LastOutcomes, until: int
    ) -> dict[bytes, tuple[int, int]]:
        """Messages that remain, have no copy, and were not yet asked for by this plan."""
        restorable = {}
        for key in lost:
            known = outcomes.by_origin[key.decode()]
            if known.result == Result.REMAINS and self._plan not in known.replays:
                restorable[key] = known.partition, outcomes.ends[known.partition]
        if restorable:
            # One that was retried meanwhile, and remains again, has a later copy than those read.
            end = settled_ends(self._cluster, [lane.remaining])[lane.remaining]
            for newer, *_ in self._places(lane.remaining, until, end):
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
            for key, offset, has_value in self._places(lane.remaining, 0, until)
            if key is not None and key in lane.origins
        }

    def _places(
        self, lane: TopicPartition, start: int, end: int
    ) -> Iterator[tuple[bytes | None, int, bool]]:
        for record in self._cluster.read({lane: start}, {lane: end}):
            yield record.key, record.offset, record.value is not None

"""The outcomes of a plan's messages before its instructions are written.

A message without a remaining copy was placed long ago, or its copy was lost. The missing copy does
not tell which: tombstones last a day, and plans may be older. So the outcomes are asked. A message
whose last outcome says that it remains is restored from its dead letter, any other is left alone.

Why no message is placed twice in this way: the outcomes are read up to some offset, and only then
the remaining topic once more, for copies that were written meanwhile. If there is none, nothing can
place the message any more but a restored instruction: tables and other instructions need a copy.
Each restored instruction says up to which offset the outcomes were read. The job carries out those
of a lane one after the other, and before it does it looks in the outcomes behind that offset for
one that was carried out. So of any number of plans that restore a message at the same time the
first one counts, however long the others wait.
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
"""In the place of the offset of a copy that was taken away."""


@dataclass(frozen=True, slots=True)
class PlannedLane:
    """The messages of a plan that came from one partition of a dead-letter topic."""

    handler: HandlerConfiguration
    partition: int
    origins: frozenset[bytes]

    @property
    def remaining(self) -> TopicPartition:
        """Where their remaining copies are."""
        return TopicPartition(self.handler.identity.remaining_topic, self.partition)

    @property
    def replay(self) -> TopicPartition:
        """Where instructions about them go."""
        return TopicPartition(self.handler.identity.replay_topic, self.partition)


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of the messages of one lane before the first of them is instructed."""

    copies: Mapping[bytes, int]
    """The offset of the last remaining copy of each message that has one."""
    placed: int = 0
    """How many of the others have a final outcome."""
    restorable: Mapping[bytes, tuple[int, int]] = field(default_factory=dict)
    """Those that remain and lost their copy, each with the partition and the offset up to which
    outcomes were looked at."""


class PlannedMessages:
    """Looks for the messages of one plan; nothing is restored that had a final outcome."""

    def __init__(self, job: JobConfiguration, cluster: Cluster, plan: str) -> None:
        self._job = job
        self._cluster = cluster
        self._plan = plan

    def look(
        self, planned: Sequence[PlannedLane], spans: Mapping[TopicPartition, Span], *, is_new: bool
    ) -> dict[TopicPartition, Look]:
        """Looks for the messages of every lane that is still to do, before anything is written.

        Returns:
            By the lane of instructions, what is known; lanes that are done with are left out.

        Raises:
            UsageError: Outcomes can't answer for a message that has no copy.
        """
        lanes = [one for one in planned if spans[one.replay].read <= spans[one.replay].until]
        last = {one.replay: self._last_places(one, spans[one.replay].until) for one in lanes}
        absent = {
            one.replay: {key for key in one.origins if last[one.replay].get(key, _NONE) == _NONE}
            for one in lanes
        }
        if not is_new:
            # The job may have carried out what this plan asked before.
            for one in lanes:
                absent[one.replay] -= self._instructed_keys(one) if absent[one.replay] else set()
        outcomes = self._outcomes(absent)
        lost = {
            one.replay: {key for key in absent[one.replay] if key not in last[one.replay]}
            for one in lanes
        }
        self._check_answers(outcomes, [key.decode() for keys in lost.values() for key in keys])
        return {
            one.replay: Look(
                {key: place for key, place in last[one.replay].items() if place != _NONE},
                sum(self._is_placed(outcomes, key) for key in absent[one.replay]),
                self._restorable(one, lost[one.replay], outcomes, spans[one.replay].until),
            )
            for one in lanes
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
            f" {unknown[0]}, have no remaining copy any more, and {ledger}the topic"
            f" {self._job.outcomes_topic} lack outcomes that would tell whether they"
            " were placed",
            hint="make another plan, of what remains now: `redrive replay plan`",
        )

    def _is_placed(self, outcomes: LastOutcomes, key: bytes) -> bool:
        known = outcomes.found.get(key.decode())
        return known is not None and known.result in FINAL and self._plan not in known.replays

    def _restorable(
        self, lane: PlannedLane, lost: Collection[bytes], outcomes: LastOutcomes, until: int
    ) -> dict[bytes, tuple[int, int]]:
        """The messages that remain, have no copy, and were not asked for by this plan before."""
        found = {}
        for key in lost:
            known = outcomes.found[key.decode()]
            if known.result == Result.REMAINS and self._plan not in known.replays:
                found[key] = known.partition, outcomes.ends[known.partition]
        if found:
            # One that was tried meanwhile, and remains again, has a copy behind those looked at.
            end = settled_ends(self._cluster, [lane.remaining])[lane.remaining]
            for newer, *_ in self._places(lane.remaining, until, end):
                found.pop(newer or b"", None)
        return found

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

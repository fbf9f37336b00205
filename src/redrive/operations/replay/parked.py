"""Applying a plan about parked messages: its entry names their copies, and the job does the rest.

No instruction is written. The lane of the retry topic reads on up to the last copy that is named,
and tries it or lets it remain, as the plan says; so a message that comes due at this moment is
taken once, by its own lane.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from redrive.checkpoints.states import StatesWriter
from redrive.engine.commands import Replay, Span
from redrive.errors import TransientFault, UsageError
from redrive.kafka.cluster import Extent
from redrive.messages import TopicPartition
from redrive.messages import own_headers as own
from redrive.operations.replay.applied import AppliedPlan, PlannedLane
from redrive.operations.replay.entries import read_accepted, write_with_retry
from redrive.rules.backoff import PARTITIONS

MOST_PARKED: Final = 100_000
"""Messages that one plan may name: their offsets are in its entry, which every worker reads."""


class ParkedOrder(AppliedPlan):
    """Writes the entry of one plan about parked messages, once, however often it is applied.

    What ``written`` is told grows partition by partition.
    """

    def write(self) -> Replay:
        """Accepts the plan, unless it was accepted before; errors as for ``accept``."""
        if self._plan.count > MOST_PARKED:
            raise UsageError(
                f"{self._plan.count} parked messages are more than one plan may name"
                f" ({MOST_PARKED})",
                hint=f"plan them in parts, with --limit {MOST_PARKED}",
            )
        return write_with_retry(self._job, self._cluster, self._plan.plan, self._write)

    def _write(self, states: StatesWriter) -> Replay:
        every = read_accepted(self._job, self._cluster)
        accepted = every.get(self._plan.plan)
        if accepted is not None:
            return accepted
        spans: dict[TopicPartition, Span] = {}
        for lane in self._lanes:
            spans.update(self._spans(lane))
            self._written(sum(one.count for one in spans.values()))
        replay = self._plan.order.replay(
            self._plan.plan,
            operator=self._operator,
            purpose=self._purpose,
            accepted=time.time(),
            planned=self._plan.count,
            instructed=sum(one.count for one in spans.values()),
            is_complete=True,
            spans=spans,
        )
        for one in self._finished_replays(every):
            states.write([one.entry()])
        states.write([replay.entry()])
        return replay

    def _spans(self, lane: PlannedLane) -> Mapping[TopicPartition, Span]:
        """Where the messages are parked now; those that are not any more are left out."""
        places = self._waiting_places(lane)
        committed = self._cluster.committed(self._job.application, places, stable=True)
        extents = self._cluster.extents(places)
        _check_known(committed, extents)
        starts = {place: extents[place].position(committed[place]) for place in places}
        named: dict[TopicPartition, set[int]] = {}
        ends = {place: extent.end for place, extent in extents.items()}
        for record in self._cluster.read(starts, ends):
            if own.read_own(record.headers).origin.encode("ascii") in lane.origins:
                named.setdefault(record.lane, set()).add(record.offset)
        return {
            place: Span(
                first=starts[place], count=len(found), end=max(found) + 1, named=frozenset(found)
            )
            for place, found in named.items()
        }

    def _waiting_places(self, lane: PlannedLane) -> list[TopicPartition]:
        identity, existing = lane.handler.identity, self._cluster.topics()
        first = lane.partition * PARTITIONS
        places = [
            TopicPartition(identity.retry_topic, lane.partition),
            *(TopicPartition(identity.backoff_topic, first + n) for n in range(PARTITIONS)),
        ]
        return [one for one in places if one.partition < existing.get(one.topic, 0)]

    def _finished_replays(self, every: Mapping[str, Replay]) -> Iterator[Replay]:
        """Earlier plans that were carried out, without the offsets that are no longer needed."""
        named = [one for one in every.values() if any(it.named for it in one.spans.values())]
        lanes = sorted({lane for one in named for lane in one.spans})
        committed = self._cluster.committed(self._job.application, lanes) if lanes else {}
        for one in named:
            if all((committed[lane] or 0) >= (span.end or 0) for lane, span in one.spans.items()):
                spans = {lane: replace(it, named=frozenset()) for lane, it in one.spans.items()}
                yield replace(one, spans=spans)


def _check_known(
    committed: Mapping[TopicPartition, int | None], extents: Mapping[TopicPartition, Extent]
) -> None:
    """Sees that the job's positions are known: they tell what waits from what waited once."""
    for lane, extent in extents.items():
        if committed[lane] is None and extent.first < extent.end:
            raise TransientFault(
                f"which messages wait on {lane} is not known: the job's offset there has expired",
                hint="start the job, which finds it again, and apply the plan once more",
            )

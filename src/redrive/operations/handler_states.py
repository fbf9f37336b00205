"""The state of each handler, as the broker shows it.

``redrive.streaming.supervision`` watches the job as a whole, which is healthy while anything moves.
Here each handler is judged separately, so that a stalled one is seen beside busy ones.
"""

from __future__ import annotations

from enum import StrEnum

from redrive.configuration import JobConfiguration
from redrive.kafka.cluster import Cluster, next_offsets
from redrive.kafka.deadline import ONE_TRY
from redrive.messages import TopicPartition


class HandlerState(StrEnum):
    """State of one handler."""

    RUNNING = "running"
    """It handles its dead letters, or there are none."""
    WAITING = "waiting"
    """Its dead-letter topic does not exist."""
    STOPPED = "stopped"
    """Dead letters wait on a partition of its topic, and none of them has been handled for
    ``stalled_after`` seconds; or a partition has had no leader for as long; or it lost its
    position, which the job itself reports."""


class HandlerWatch:
    """Derives the states of a job's handlers from successive committed offsets."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._moved: dict[TopicPartition, tuple[int | None, float]] = {}
        """By lane with work, the committed offset and when it was first seen."""

    def look(self, configuration: JobConfiguration, now: float) -> dict[str, HandlerState]:
        """The state of each handler, by its name; ``now`` is in seconds since 1970."""
        topics = {
            handler.identity.name: handler.identity.topic for handler in configuration.handlers
        }
        existing = self._cluster.topics()
        standing = self._stalled_topics(configuration, now)
        states = {}
        for name, topic in topics.items():
            known = HandlerState.STOPPED if topic in standing else HandlerState.RUNNING
            states[name] = known if topic in existing else HandlerState.WAITING
        return states

    def _stalled_topics(self, configuration: JobConfiguration, now: float) -> set[str]:
        lanes, silent = self._cluster.led(
            handler.identity.topic for handler in configuration.handlers
        )
        extents = self._cluster.extents(lanes)
        committed = self._cluster.committed(configuration.application, lanes)
        is_latest = configuration.starting_offsets == "latest"
        at = {
            lane: extent.position(committed[lane], from_end=is_latest)
            for lane, extent in extents.items()
        }
        ends = {lane: extent.end for lane, extent in extents.items()}
        waiting: dict[TopicPartition, int | None] = dict.fromkeys(silent)
        waiting |= {lane: offset for lane, offset in at.items() if offset < ends[lane]}
        before, self._moved = self._moved, {}
        for lane, offset in waiting.items():
            known = before.get(lane)
            self._moved[lane] = known if known and known[0] == offset else (offset, now)
        still = [
            lane
            for lane, (_, since) in self._moved.items()
            if now - since >= configuration.stalled_after
        ]
        # Only transaction markers may follow the last record.
        starts = {lane: at[lane] for lane in still if lane in at}
        records = next_offsets(self._cluster, starts, ends, seconds=ONE_TRY) if starts else {}
        return {lane.topic for lane in still if lane in silent or records[lane] < ends[lane]}

"""Where Kafka no longer has what lies at the job's position: the handler stops, or goes on.

Only the handler of that topic stops. What was found is an entry of the control topic, so that an
operator's answer (``redrive handler resume``) is about this loss and about no later one.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from redrive.checkpoints.control import ControlTopic, LostPosition
from redrive.configuration import DataLoss, JobConfiguration
from redrive.engine.commands import Resume, ResumeFrom
from redrive.kafka.cluster import Cluster, Extent
from redrive.messages import TopicPartition
from redrive.operations.states import read_states
from redrive.streaming.lifecycle import JobControl


class StoppedTopic(NamedTuple):
    """Why the handler of a topic is stopped, while all others go on."""

    problem: str
    hint: str

    @classmethod
    def denied(cls, topic: str) -> StoppedTopic:
        """A topic that this user may not read."""
        return cls(
            f"this user may not read topic {topic}",
            "grant Read on it (redrive acls prints the command): its handler then goes on by"
            " itself, and nothing is lost while the topic keeps its records",
        )


class Losses:
    """The lost positions of one start.

    This class is responsible for where a lane goes on whose position is lost, and for noting the
    lanes that can't go on.
    """

    def __init__(
        self,
        configuration: JobConfiguration,
        control: JobControl,
        cluster: Cluster,
        entries: ControlTopic,
    ) -> None:
        """Take the configuration; arguments as for ``StartFinder``."""
        self.lost: dict[TopicPartition, LostPosition] = {}
        """The lanes that can't go on."""
        self._configuration = configuration
        self._control = control
        self._cluster = cluster
        self._entries = entries
        self._known = entries.lost()

    def begin(
        self,
        lane: TopicPartition,
        committed: int | None,
        extent: Extent,
        *,
        source: str,
        identity: str,
        is_anew: bool,
    ) -> int:
        """Where a lane begins; a lane that can't go on is noted in ``lost``, and must be left out.

        Args:
            lane: The lane.
            committed: Where the job stands; None if the topic is new.
            extent: What the lane holds.
            source: The topic whose messages the lane holds.
            identity: Kafka's id of the topic, if it is the source.
            is_anew: Whether another topic of this name was read before.
        """
        loss = _loss_at(lane, committed, extent, is_anew=is_anew)
        if loss is None:
            assert committed is not None, "what was read before is lost with its topic"
            return committed
        handlers = {one.identity.topic: one.identity.name for one in self._configuration.handlers}
        lost = LostPosition(
            source=source,
            found=int(time.time() * 1000),
            identity=identity,
            committed=committed,
            first=extent.first,
            end=extent.end,
            is_anew=is_anew,
            problem=loss.problem,
            hint=f"{loss.hint}: redrive handler resume {handlers.get(source, source)}; or set"
            ' on_data_loss = "continue"',
        )
        known = self._known.get(lane)
        if known is not None and lost.is_again(known):
            lost = replace(lost, found=known.found)
        return self._resume_or_stop(lane, lost)

    def record(self, lanes: Collection[TopicPartition]) -> None:
        """Writes what was found about the lanes, if it changed, to the control topic.

        Raises:
            TransientFault: As for ``ControlTopic.write``.
        """
        now: Mapping[TopicPartition, LostPosition | None]
        now = {**dict.fromkeys(self._known.keys() & set(lanes)), **self.lost}
        self._entries.set_lost(
            {lane: one for lane, one in now.items() if one != self._known.get(lane)}
        )

    def _resume_or_stop(self, lane: TopicPartition, lost: LostPosition) -> int:
        resume = self._resumes.get(lost.source)
        if resume is not None and resume.answers(lane, lost.found):
            begin = lost.end if resume.begin is ResumeFrom.LATEST else lost.first
            self._control.warning(
                "a stopped handler goes on",
                lane=str(lane),
                begin=resume.begin.value,
                gone=lost.gone,
                skipped=begin - lost.first,
                operator=resume.operator,
                because=lost.problem,
            )
            return begin
        if self._configuration.data_loss_on(lost.source) is DataLoss.STOP:
            self.lost[lane] = lost
        else:
            self._control.warning(
                "going on with the oldest record that is kept", because=lost.problem
            )
        return lost.first

    @cached_property
    def _resumes(self) -> Mapping[str, Resume]:
        return read_states(self._configuration, self._cluster).resumes


def _loss_at(
    lane: TopicPartition, committed: int | None, extent: Extent, *, is_anew: bool
) -> StoppedTopic | None:
    """Why a lane can't go on where the job stands; None if it can."""
    if is_anew:
        problem = f"topic {lane.topic} was deleted and made anew since the job last started"
        return StoppedTopic(problem, "if that was meant, read the new topic from its beginning")
    if committed is None or extent.first <= committed <= extent.end:
        return None
    holds = f"{lane} holds offsets {extent.first} to {extent.end}, but the job stands at"
    if committed > extent.end:
        problem = f"{holds} {committed}: the topic lost records that were handled already"
        hint = (
            "find out why; then read it from the oldest record that is kept, which handles again"
            " what is left of the records that were handled"
        )
        return StoppedTopic(problem, hint)
    problem = f"{holds} {committed}: what lay at {committed} to {extent.first - 1} is gone"
    hint = (
        "these were records, or markers of transactions that the job had no time to pass before it"
        " died: the broker can't tell which any more. Compare with what wrote to the topic, or with"
        " its retention; then go on with the oldest record that is kept"
    )
    return StoppedTopic(f"{problem} before it was read", hint)

"""Handles lost records at the job's position: the handler stops or continues.

Only the handler of that topic stops. The loss is an entry of the control topic, so that an
operator's answer (``redrive handler resume``) applies to this loss and to no later one.
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
    """Why the handler of a topic is stopped, while all others continue."""

    problem: str
    hint: str

    @classmethod
    def denied(cls, topic: str) -> StoppedTopic:
        """The problem of a topic that this user may not read."""
        return cls(
            f"this user may not read topic {topic}",
            "grant Read on it (redrive acls prints the command): its handler then continues,"
            " and nothing is lost while the topic keeps its records",
        )


class Losses:
    """The lost positions of one start.

    This class decides where a lane with a lost position continues, and notes the lanes that cannot.
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
        """The lanes that cannot continue."""
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
        """Where a lane begins; one that cannot continue is noted in ``lost`` and must be left out.

        Args:
            lane: The lane.
            committed: The position of the job; None if the topic is new.
            extent: What the lane holds.
            source: The topic whose messages the lane holds.
            identity: Kafka's id of the lane's topic.
            is_anew: Whether another topic of this name was read before.
        """
        loss = _loss_at(lane, committed, extent, is_anew=is_anew)
        if loss is None:
            assert committed is not None, "what was read before is lost with its topic"
            return committed
        handlers = {
            handler.identity.topic: handler.identity.name
            for handler in self._configuration.handlers
        }
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

    def warn_of_vanished(self, lane: TopicPartition, committed: int | None) -> None:
        """Warns of a partition that a recreated topic no longer has.

        Args:
            lane: The partition.
            committed: How far the job had read it; None if nothing of it.
        """
        problem = _recreated(lane, committed)
        self._control.warning("what was not read is gone with its partition", because=problem)

    def record(self, lanes: Collection[TopicPartition]) -> None:
        """Writes new findings about the lanes to the control topic.

        Raises:
            TransientFault: As for ``ControlTopic.write``.
        """
        now: Mapping[TopicPartition, LostPosition | None]
        now = {**dict.fromkeys(self._known.keys() & set(lanes)), **self.lost}
        self._entries.set_lost(
            {lane: position for lane, position in now.items() if position != self._known.get(lane)}
        )

    def _resume_or_stop(self, lane: TopicPartition, lost: LostPosition) -> int:
        resume = self._resumes.get(lost.source)
        if resume is not None and resume.answers(lane, lost.found):
            begin = lost.end if resume.begin is ResumeFrom.LATEST else lost.first
            self._control.warning(
                "a stopped handler resumes",
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
            self._control.warning("continuing with the oldest record", because=lost.problem)
        return lost.first

    @cached_property
    def _resumes(self) -> Mapping[str, Resume]:
        return read_states(self._configuration, self._cluster).resumes


def _loss_at(
    lane: TopicPartition, committed: int | None, extent: Extent, *, is_anew: bool
) -> StoppedTopic | None:
    if is_anew:
        problem = _recreated(lane, committed)
        return StoppedTopic(problem, "if that was meant, read the new topic from its beginning")
    if committed is None or extent.first <= committed <= extent.end:
        return None
    holds = f"{lane} holds offsets {extent.first} to {extent.end}, but the job stands at"
    if committed > extent.end:
        problem = f"{holds} {committed}: the topic lost records already handled"
        hint = (
            "find out why; then read it from its oldest record, which handles the remaining ones"
            " again"
        )
        return StoppedTopic(problem, hint)
    problem = f"{holds} {committed}: offsets {committed} to {extent.first - 1} no longer exist"
    hint = (
        "these may be records, or only transaction markers that the job had not passed when it"
        " died. Compare with the producers of the topic, or with its retention; then continue with"
        " the oldest record"
    )
    return StoppedTopic(f"{problem} and were not read", hint)


def _recreated(lane: TopicPartition, committed: int | None) -> str:
    read = "" if committed is None else f", which the job had read up to offset {committed}"
    return f"topic {lane.topic} was deleted and recreated: the old {lane} is gone{read}"

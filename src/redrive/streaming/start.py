"""The start of one run of the query: all positions come from Kafka, none from a checkpoint.

A run reads three kinds of topics: sources that are never held (dead-letter queues, intakes),
topics that a channel or a home-server queue empties, and waiting copies on the job's own topics.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, NamedTuple

from redrive.checkpoints.clock import SteadyClock, begin_clock
from redrive.checkpoints.control import (
    ControlTopic,
    LaneBegin,
    LostPosition,
    TableIdentity,
    TopicIdentity,
    Wait,
    changed_entry,
    changed_key,
)
from redrive.checkpoints.epoch import RunIdentity
from redrive.checkpoints.held import HeldPartition, Parked
from redrive.checkpoints.instances import Share
from redrive.configuration import DataLoss, JobConfiguration
from redrive.configuration.deciders import read_topics, sources_of
from redrive.engine.commands import Resume, ResumeFrom
from redrive.errors import ConfigurationError, TransientFault
from redrive.kafka.cluster import Cluster, Extent
from redrive.messages import TopicPartition
from redrive.operations.states import read_states
from redrive.outcomes.ledger import positions_from_outcomes
from redrive.streaming.kept_lanes import (
    KeptLane,
    held_by_channels,
    held_until_due,
    held_until_ordered,
    instructions,
    kept_lanes,
    owned_lanes,
)
from redrive.streaming.lifecycle import JobControl
from redrive.topology.layout import TopicRole

_SHOWN: Final = 3
"""Maximum lanes named in a message."""


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


@dataclass(frozen=True, slots=True)
class Start:
    """The start of one run of the query."""

    positions: Mapping[TopicPartition, int]
    """Lanes that are never held, and the offset each starts at."""
    held: tuple[HeldPartition, ...]
    """Lanes that are held: retries, remaining messages, transmission queues."""
    missing: frozenset[str]
    """Topics to read that do not exist yet."""
    layout: Mapping[str, int]
    """Partitions of the topics that exist and are not the job's own."""
    identities: Mapping[str, str] = field(default_factory=dict)
    """Kafka's ids of all topics with lanes, the job's own included."""
    denied: frozenset[str] = frozenset()
    """Topics that this user may not read; all their lanes are left out of the run."""
    moved: frozenset[TopicPartition] = frozenset()
    """Lanes whose committed offset is no longer valid."""
    topics: Mapping[str, TopicIdentity] = field(default_factory=dict)
    """New facts about topics, to record once positions are committed."""
    begins: Mapping[TopicPartition, LaneBegin] = field(default_factory=dict)
    """Starts of new lanes and of lanes of recreated topics, to record before the topics."""
    since: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where lanes ended before the job's first decision about their topic, as far as it is known:
    no dead letter below is a round of the job's."""
    incarnations: Mapping[str, int] = field(default_factory=dict)
    """Recreated topics, and how many of the name were read, including this one."""
    lanes: frozenset[TopicPartition] = frozenset()
    """Every lane of this instance's share, and those where its messages wait."""
    leaderless: frozenset[TopicPartition] = frozenset()
    """Those of them without a leader. A lane is left out of the run together with all lanes where
    its messages wait, or would: Spark's source and a transaction need all partitions or none."""
    replayed: frozenset[TopicPartition] = frozenset()
    """Lanes with remaining copies that may have been replayed before this run."""
    lost: Mapping[TopicPartition, LostPosition] = field(default_factory=dict)
    """Lanes that cannot continue; all lanes of their sources are left out of the run."""
    clock: SteadyClock = field(default_factory=SteadyClock.of_wall)
    """Stamps messages that the run parks, and determines which are due."""

    @property
    def every_position(self) -> dict[TopicPartition, int]:
        """The start of each lane, held or not."""
        return {**self.positions, **{held.lane: held.start for held in self.held}}

    @property
    def stopped(self) -> dict[str, StoppedTopic]:
        """The topics whose handlers are stopped, with the first reason for each."""
        stopped = {topic: StoppedTopic.denied(topic) for topic in sorted(self.denied)}
        for loss in self.lost.values():
            stopped.setdefault(loss.source, StoppedTopic(loss.problem, loss.hint))
        return stopped

    @property
    def late(self) -> float:
        """The maximum seconds by which stamps of parked messages may be too old."""
        intervals = (held.interval for held in self.held if isinstance(held, Parked))
        return self.clock.late(max(intervals, default=0))

    @property
    def released(self) -> dict[TopicPartition, int]:
        """Lanes with copies from before the table changed, and the offset where they end."""
        return {held.lane: held.release for held in self.held if held.release}


@dataclass
class Losses:
    """The lost positions of one start.

    This class decides where a lane with a lost position continues, and notes the lanes that cannot.
    """

    configuration: JobConfiguration
    control: JobControl
    cluster: Cluster
    entries: ControlTopic
    """The application's control topic, open for writing."""
    lost: dict[TopicPartition, LostPosition] = field(default_factory=dict)
    """The lanes that cannot continue."""

    def __post_init__(self) -> None:
        self._known = self.entries.lost()
        self._resumes: Mapping[str, Resume] | None = None  # read when a lane has lost its position

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
            handler.identity.topic: handler.identity.name for handler in self.configuration.handlers
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
        self.control.warning("what was not read is gone with its partition", because=problem)

    def record(self, lanes: Collection[TopicPartition]) -> None:
        """Writes new findings about the lanes to the control topic.

        Raises:
            TransientFault: As for ``ControlTopic.write``.
        """
        now: Mapping[TopicPartition, LostPosition | None]
        now = {**dict.fromkeys(self._known.keys() & set(lanes)), **self.lost}
        self.entries.set_lost(
            {lane: position for lane, position in now.items() if position != self._known.get(lane)}
        )

    def _resume_or_stop(self, lane: TopicPartition, lost: LostPosition) -> int:
        if self._resumes is None:
            self._resumes = read_states(self.configuration, self.cluster).resumes
        resume = self._resumes.get(lost.source)
        if resume is not None and resume.answers(lane, lost.found):
            begin = lost.end if resume.begin is ResumeFrom.LATEST else lost.first
            self.control.warning(
                "a stopped handler resumes",
                lane=str(lane),
                begin=resume.begin.value,
                gone=lost.gone,
                skipped=begin - lost.first,
                operator=resume.operator,
                because=lost.problem,
            )
            return begin
        if self.configuration.data_loss_on(lost.source) is DataLoss.STOP:
            self.lost[lane] = lost
        else:
            self.control.warning("continuing with the oldest record", because=lost.problem)
        return lost.first


@dataclass(frozen=True, slots=True, kw_only=True)
class _Positions:
    """The positions of all lanes at a start."""

    positions: Mapping[TopicPartition, int]
    extents: Mapping[TopicPartition, Extent]
    moved: frozenset[TopicPartition]
    topics: Mapping[str, TopicIdentity]
    begins: Mapping[TopicPartition, LaneBegin]
    since: Mapping[TopicPartition, int]
    incarnations: Mapping[str, int]


@dataclass
class StartFinder:
    """Computes the start of a run.

    This class finds the lanes of this instance's share, their offsets, and the messages released by
    changed tables or definitions.
    """

    configuration: JobConfiguration
    control: JobControl
    cluster: Cluster
    entries: ControlTopic
    """The application's control topic, open for writing."""
    taken: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Positions taken over from another application, which precede own ones."""

    def __post_init__(self) -> None:
        self._losses = Losses(self.configuration, self.control, self.cluster, self.entries)

    def find(self, layout: Mapping[str, int], denied: frozenset[str] = frozenset()) -> Start:
        """The start.

        Args:
            layout: Partitions of the topics of ``read_topics`` that exist and may be read.
            denied: Those that may not be read.

        Raises:
            TransientFault: The broker gave no answer in time.
            ConfigurationError: Records at a committed offset are lost, which the settings do not
                allow, and there is no other handler.
        """
        clock = begin_clock(self.entries, self.configuration.share)
        start = self._find(layout, denied)
        self._losses.record(start.lanes)
        if start.lost and not start.every_position:
            first = next(iter(start.lost.values()))
            raise ConfigurationError(first.problem, hint=first.hint)
        return replace(start, clock=clock)

    def change_tables(self, start: Start, kept: Collection[KeptLane], run: RunIdentity) -> Start:
        """Lets the tables of the configuration decide in a run that continues.

        No batch of the run may be in progress, and none may begin with the old tables after this
        call, even if it fails: it is then unknown whether the new ones are recorded.

        Returns:
            The lanes, with messages released by the new tables.

        Raises:
            TransientFault: The broker gave no answer in time, or another instance starts.
        """
        # The actual ends: the markers of the last batch may not be written yet, but everything that
        # the old tables parked or kept is below.
        waiting = [lane for kept_lane in kept for lane in kept_lane.waiting]
        ends = self.cluster.ends(waiting, committed_only=False)
        tables, changed = self._tables_of(kept, ends)
        due = {
            partition.lane: partition
            for partition in held_until_due(kept, start.every_position, tables)
        }
        held = tuple(due.get(partition.lane, partition) for partition in start.held)
        waits = {
            lane: Wait(
                partition.release, partition.interval if isinstance(partition, Parked) else None
            )
            for lane, partition in due.items()
        }
        entry = {changed_key(str(run.share)): changed_entry(run.number, waits)}
        self._record_tables(changed, entry if changed else {})
        # Read after planners see the entry: what they planned before has no later instruction, and
        # what they plan from now on has none beside the released messages.
        replays = {kept_lane.replay: kept_lane.remaining for kept_lane in kept if kept_lane.replay}
        instructed = self.cluster.ends(replays, committed_only=False)
        replayed = {remaining for lane, remaining in replays.items() if instructed[lane]}
        return replace(start, held=held, replayed=start.replayed | replayed)

    def _find(self, layout: Mapping[str, int], denied: frozenset[str]) -> Start:
        owned = kept_lanes(self.configuration, layout, self.cluster.topics(), denied)
        lanes = frozenset(lane for kept_lane in owned for lane in kept_lane.lanes)
        names = {lane.topic for lane in lanes}
        # Asked before positions: if a topic is recreated after this, its batches find another id.
        identities, leaderless = self.cluster.identified({*layout, *names}, lanes)
        kept = [kept_lane for kept_lane in owned if leaderless.isdisjoint(kept_lane.lanes)]
        if owned and not kept:
            raise TransientFault(
                f"no lane has leaders for its partitions, such as {min(leaderless)}"
            )
        if hidden := names - identities.keys():
            raise TransientFault(f"the broker does not show topic {min(hidden)}, or not yet")
        self._warn_of_vanished(layout, identities, denied)
        current, kept = self._positions_of(kept, identities)
        led = {kept_lane.source for kept_lane in kept if kept_lane.has_source}
        channels = [
            (lane, source)
            for source in sources_of(self.configuration).values()
            if source.role is TopicRole.TRANSMISSION
            for lane in owned_lanes(self.configuration, source.topic, layout)
            if lane in led
        ]
        channels += [
            (kept_lane.source, kept_lane.channel)
            for kept_lane in kept
            if kept_lane.is_of_handler and kept_lane.channel and kept_lane.has_source
        ]
        moving = {lane for lane, _ in channels}
        free = [
            kept_lane.source
            for kept_lane in kept
            if kept_lane.has_source and kept_lane.source not in moving
        ]
        missing = frozenset(read_topics(self.configuration)) - denied - frozenset(layout)
        replayed = frozenset(
            kept_lane.remaining
            for kept_lane in kept
            if kept_lane.replay and current.extents[kept_lane.replay].end
        )
        start = Start(
            positions={},
            held=tuple(instructions(kept, current.positions)),
            missing=missing,
            denied=denied,
            layout=dict(layout),
            identities=identities,
            incarnations=current.incarnations,
            lanes=lanes,
            leaderless=leaderless,
            replayed=replayed,
            lost=self._losses.lost,
        )
        if self.configuration.only_replays:
            # The next start checks tables again and includes what this one left out.
            return replace(start, held=(*start.held, *held_until_ordered(kept, current.positions)))
        tables, changed = self._tables_of(
            kept, {lane: extent.end for lane, extent in current.extents.items()}
        )
        self._record_tables(changed)
        # When a missing topic is created, it is read from its start.
        awaited = {name: TopicIdentity("") for name in missing if not self.entries.topic_of(name)}
        return replace(
            start,
            positions={lane: current.positions[lane] for lane in free},
            held=(
                *held_by_channels(channels, kept, current.positions),
                *held_until_due(kept, current.positions, tables),
                *start.held,
            ),
            moved=current.moved,
            topics={**current.topics, **awaited},
            begins=current.begins,
            since=current.since,
        )

    def _warn_of_vanished(
        self, layout: Mapping[str, int], identities: Mapping[str, str], denied: frozenset[str]
    ) -> None:
        """Warns of partitions that recreated topics no longer have, whosever share they were.

        The first instance that notices the new topic logs the lost partitions of all instances.
        """
        known = {name: self.entries.topic_of(name) for name in layout.keys() & identities.keys()}
        recreated = {
            name: topic.identity
            for name, topic in known.items()
            if topic is not None and _identified(topic, identities[name]).is_anew(topic)
        }
        if not recreated:
            return
        everything = replace(self.configuration, share=Share(1, 1))
        vanished = [
            kept_lane.source
            for kept_lane in kept_lanes(everything, layout, self.cluster.topics(), denied)
            if not kept_lane.has_source
            and self.entries.topic_id_of(kept_lane.source) == recreated.get(kept_lane.source.topic)
        ]
        committed = self.cluster.committed(self.configuration.application, vanished, stable=True)
        for lane in vanished:
            self._losses.warn_of_vanished(lane, committed[lane])

    def _positions_of(
        self, kept: list[KeptLane], identities: Mapping[str, str]
    ) -> tuple[_Positions, list[KeptLane]]:
        current = self._all_positions(kept, identities)
        stopped = {loss.source for loss in self._losses.lost.values()}
        if not stopped:
            return current, kept
        left_out = [kept_lane for kept_lane in kept if kept_lane.source.topic in stopped]
        names = {
            lane.topic for kept_lane in left_out for lane in (kept_lane.source, *kept_lane.waiting)
        }
        kept = [kept_lane for kept_lane in kept if kept_lane.source.topic not in stopped]
        running = {name: identity for name, identity in identities.items() if name not in names}
        return self._all_positions(kept, running), kept

    def _all_positions(
        self, kept: Collection[KeptLane], identities: Mapping[str, str]
    ) -> _Positions:
        sources = {lane: kept_lane.source.topic for kept_lane in kept for lane in kept_lane.lanes}
        every, own = [*sources], {lane for kept_lane in kept for lane in kept_lane.waiting}
        committed = self.cluster.committed(self.configuration.application, every, stable=True)
        extents = self.cluster.extents(every)
        known = {name: self.entries.topic_of(name) for name in identities}
        topics = {name: _identified(known[name], identity) for name, identity in identities.items()}
        anew = {
            lane
            for lane in every
            if lane.topic in topics
            and self._is_anew(lane, topics[lane.topic], known=known[lane.topic])
        }
        incarnations = {
            name: topic.incarnation for name, topic in topics.items() if topic.incarnation > 1
        }
        recovered = self._recovered_positions(
            {
                lane: incarnations.get(lane.topic, 1)
                for lane in every
                if committed[lane] is None and lane not in anew and self._is_known(lane)
            }
        )
        positions: dict[TopicPartition, int] = {}
        for lane in every:
            offset, extent = committed[lane], extents[lane]
            if lane in recovered:
                offset = max(recovered[lane], extent.first)
            offset = self.taken.get(lane, offset)
            is_anew = lane in anew
            if offset is None and not is_anew:
                positions[lane] = self._first_position(lane, extent, is_own=lane in own)
                continue
            identity = topics[lane.topic].identity if lane.topic in topics else ""
            positions[lane] = self._losses.begin(
                lane, offset, extent, source=sources[lane], identity=identity, is_anew=is_anew
            )
        return _Positions(
            positions=positions,
            extents=extents,
            moved=frozenset(lane for lane in every if positions[lane] != committed[lane]),
            topics={name: topic for name, topic in topics.items() if known[name] != topic},
            begins={
                lane: begin
                for lane in every
                if (begin := self._begin(lane, positions[lane], identities, is_anew=lane in anew))
                is not None
            },
            since={
                kept_lane.source: self._first_end(
                    kept_lane.source, committed[kept_lane.source], extents[kept_lane.source]
                )
                for kept_lane in kept
                if kept_lane.source in committed and kept_lane.source not in anew
            },
            incarnations=incarnations,
        )

    def _is_anew(
        self, lane: TopicPartition, topic: TopicIdentity, *, known: TopicIdentity | None
    ) -> bool:
        """Whether the positions of a lane are those of an earlier topic of the name.

        Another instance may already have noted the new topic for its own lanes.
        """
        topic_id = self.entries.topic_id_of(lane)
        return topic_id != topic.identity if topic_id else topic.is_anew(known)

    def _begin(
        self,
        lane: TopicPartition,
        position: int,
        identities: Mapping[str, str],
        *,
        is_anew: bool,
    ) -> LaneBegin | None:
        """Where a lane begins; None if that is recorded."""
        begin, topic_id = self.entries.begin_of(lane), identities.get(lane.topic, "")
        if begin is None or is_anew:
            return LaneBegin(position, topic_id)
        is_noted = self.entries.topic_id_of(lane) == topic_id
        return None if is_noted else LaneBegin(begin, topic_id)

    def _first_end(self, lane: TopicPartition, committed: int | None, extent: Extent) -> int:
        """The value of ``Start.since``; 0 if the topic may have been decided about before."""
        if committed is None and not self.entries.topic_of(lane.topic):
            return extent.end
        return self.entries.first_end_of(lane)

    def _is_known(self, lane: TopicPartition) -> bool:
        entries = self.entries
        return entries.begin_of(lane) is not None or entries.table_of(lane) is not None

    def _recovered_positions(
        self, lanes: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Positions from outcomes, for lanes with expired committed offsets.

        Args:
            lanes: The lanes, each with the incarnation of its topic.
        """
        if not lanes:
            return {}
        self.control.warning(
            "committed offsets are missing; positions are recovered from the outcomes",
            lanes=", ".join(map(str, islice(lanes, _SHOWN)))
            + (", ..." if len(lanes) > _SHOWN else ""),
        )
        known = positions_from_outcomes(self.configuration, self.cluster, lanes)
        return {lane: known.get(lane, self.entries.begin_of(lane) or 0) for lane in lanes}

    def _tables_of(
        self, kept: Collection[KeptLane], ends: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, TableIdentity], dict[TopicPartition, TableIdentity]]:
        """The table of each lane, and of lanes where it is new.

        A changed one releases parked and remaining messages.
        """
        tables: dict[TopicPartition, TableIdentity] = {}
        changed: dict[TopicPartition, TableIdentity] = {}
        for kept_lane in kept:
            identity = self.entries.table_of(kept_lane.source)
            if identity is None or identity.table != kept_lane.table:
                parked = ends[kept_lane.retry] if kept_lane.retry else 0
                delayed = [ends[lane] for lane in kept_lane.backoff]
                identity = TableIdentity(
                    kept_lane.table, parked, ends[kept_lane.remaining], delayed
                )
                changed[kept_lane.source] = identity
            tables[kept_lane.source] = identity
        return tables, changed

    def _record_tables(
        self,
        changed: Mapping[TopicPartition, TableIdentity],
        more: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        is_replaced = any(self.entries.table_of(lane) is not None for lane in changed)
        self.entries.set_tables(changed, more)
        if is_replaced:
            self.control.notice(
                "new rules or definitions: parked and remaining messages are evaluated again",
                topics=", ".join(sorted({lane.topic for lane in changed})),
            )

    def _first_position(self, lane: TopicPartition, extent: Extent, *, is_own: bool) -> int:
        """The start of a new lane.

        "latest" only skips records from before the application's first start: topics that appear
        later and later partitions are read from their beginning.
        """
        is_first_look = not (is_own or self.entries.topic_of(lane.topic))
        is_latest = is_first_look and self.configuration.starting_offsets == "latest"
        is_taken = is_latest and any(lane.topic == taken.topic for taken in self.taken)
        return extent.end if is_latest and not is_taken else extent.first


def _identified(known: TopicIdentity | None, identity: str) -> TopicIdentity:
    """An existing topic, counted as a new one of its name if its id changed."""
    if known is None or not known.identity:
        return TopicIdentity(identity)
    if known.identity == identity:
        return known
    return TopicIdentity(identity, known.incarnation + 1)


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

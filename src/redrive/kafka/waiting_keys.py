"""ORDER(KEY): the waiting messages of each key, and the progress of rounds."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final

from redrive.engine.facts import WaitingQuestion
from redrive.engine.ordering import SETTLED, Place, Round, WaitingKeys, WaitingMessage, position_of
from redrive.errors import FatalFault, TransientFault
from redrive.kafka.cluster import Cluster, has_leader, may_read, next_offsets, settled_ends
from redrive.kafka.records import StoredRecord
from redrive.messages import TopicPartition
from redrive.messages import own_headers as own

_Offsets = Mapping[TopicPartition, int]

_GROUPS: Final = 32
"""Maximum other consumer groups with a client each; dead letters may name any number."""


class LiveOrder:
    """Follows the topics where messages of handlers with ORDER(KEY) wait.

    A waiting message is missing from an answer only if the end of its wait was committed before the
    question. Every question raises ``TransientFault`` if the broker does not answer in time.
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        """Follow a cluster; the offsets of the consumer group are the job's progress."""
        self._cluster = cluster
        self._group = group
        self._followed: dict[WaitingQuestion, _FollowedKeys] = {}
        self._groups: set[str] = set()
        """Other known groups; each needs a client."""
        self._closed: set[str] = set()
        """Targets of the last rounds that this user may not read."""

    def waiting(self, question: WaitingQuestion) -> WaitingKeys:
        """The waiting messages of a partition by key; the mapping changes with every question."""
        followed = self._followed.setdefault(question, _FollowedKeys(question))
        try:
            followed.follow(self._cluster, self._group)
        except TransientFault:
            del self._followed[question]
            raise
        return followed.keys

    def passed(self, lanes: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """By partition, the first record that the job has not passed; markers do not count.

        Partitions that the job has never read are missing.
        """
        return self._passed(self._group, lanes)

    def rounds(self, rounds: Collection[Round]) -> dict[Round, Round]:
        """The progress of rounds: first the group has to pass the put, then the job what came back.

        Each end is read after what it must cover, so it may be passed late, but never early.
        """
        if not rounds:
            return {}
        targets = self._targets({open_round.target for open_round in rounds})
        ends = self._ends([lane for lane, is_led in targets.items() if is_led])
        silent = targets.keys() - ends.keys()
        now = {
            open_round: _with_ends(open_round, ends)
            for open_round in rounds
            if not any(_may_hold(lane, open_round) for lane in silent)
        }
        topics_of = defaultdict[str, set[str]](set)
        for open_round in now:
            topics_of[open_round.group].add(open_round.target)
        passed = {
            group: self._passed_by_others(group, [lane for lane in ends if lane.topic in topics])
            for group, topics in topics_of.items()
        }
        processed = {
            open_round for open_round, known in now.items() if _is_processed(known, ends, passed)
        }
        there = self._cluster.topics() if processed else {}
        returned_to = {
            open_round.letters
            for open_round in processed
            if open_round.letters.partition < there.get(open_round.letters.topic, 0)
        }
        returned, decided = self._ends(returned_to), self._passed(self._group, returned_to)
        return {
            open_round: _returned(now[open_round], returned, decided)
            if open_round in processed
            else now.get(open_round, open_round)
            for open_round in rounds
        }

    def _targets(self, names: Collection[str]) -> Mapping[TopicPartition, bool]:
        described = self._cluster.descriptions(sorted(names), with_rights=True)
        existing = {
            name: description for name, description in described.items() if description is not None
        }
        self._closed = {name for name, topic in existing.items() if not may_read(topic)}
        return {
            TopicPartition(name, partition.id): has_leader(partition)
            for name, description in existing.items()
            for partition in description.partitions
        }

    def _passed_by_others(self, group: str, lanes: Collection[TopicPartition]) -> _Offsets | None:
        """The positions of another consumer group; None without an answer.

        A group whose offsets this user may not see counts as unknown, and so does any group on a
        topic that this user may not read.
        """
        lanes = [lane for lane in lanes if lane.topic not in self._closed]
        self._groups.add(group)
        if len(self._groups) > _GROUPS:
            self._cluster.close()
            self._groups = {group}
        try:
            return self._passed(group, lanes)
        except FatalFault:
            return {}
        except TransientFault:
            return None

    def _ends(self, lanes: Collection[TopicPartition]) -> _Offsets:
        return self._cluster.ends(lanes, committed_only=False) if lanes else {}

    def _passed(self, group: str, lanes: Collection[TopicPartition]) -> _Offsets:
        """By partition, the first record that a group has not committed; markers do not count.

        Partitions on which the group has no offset are missing.
        """
        if not group or not lanes:
            return {}
        committed = self._cluster.committed(group, list(lanes), stable=group == self._group)
        extents = self._cluster.extents(lanes)
        known = {lane: at for lane, at in committed.items() if at is not None}
        starts = {lane: max(at, extents[lane].first) for lane, at in known.items()}
        stable = {lane: extents[lane].end for lane in starts}
        behind = {lane: at for lane, at in starts.items() if at < stable[lane]}
        return {**starts, **next_offsets(self._cluster, behind, stable)}


def _may_hold(lane: TopicPartition, open_round: Round) -> bool:
    return lane.topic == open_round.target and open_round.partition in {-1, lane.partition}


def _with_ends(open_round: Round, ends: _Offsets) -> Round:
    if open_round.processed is not None:
        return open_round
    wanted = [
        (lane.partition, end) for lane, end in sorted(ends.items()) if _may_hold(lane, open_round)
    ]
    return open_round._replace(processed=tuple(wanted))


def _is_processed(open_round: Round, ends: _Offsets, passed: Mapping[str, _Offsets | None]) -> bool:
    """Whether the message of a round was processed, or counts as such."""
    is_settled = time.time() - open_round.put_at / 1000 > SETTLED
    group = passed[open_round.group]
    return group is not None and all(
        group[lane] >= min(end, ends[lane]) if lane in group else is_settled
        for partition, end in open_round.processed or ()
        if (lane := TopicPartition(open_round.target, partition)) in ends
    )


def _returned(open_round: Round, ends: _Offsets, passed: _Offsets) -> Round:
    """A round whose message was processed; it is over once the job has passed what came back.

    To a partition that is not there any more nothing can come back.
    """
    end = ends.get(open_round.letters)
    if end is None:
        return open_round._replace(is_over=True)
    returned = end if open_round.returned is None else min(open_round.returned, end)
    return open_round._replace(
        returned=returned, is_over=passed.get(open_round.letters, 0) >= returned
    )


class _FollowedKeys:
    """The waiting messages by key of one partition of a dead-letter queue."""

    def __init__(self, question: WaitingQuestion) -> None:
        self.keys: defaultdict[bytes, dict[Place, WaitingMessage]] = defaultdict(dict)
        self._question = question
        self._parked: dict[TopicPartition, dict[int, bytes]] = {}
        self._remaining: dict[bytes, tuple[Place, bytes]] = {}
        self._read: dict[TopicPartition, int] = {}

    def follow(self, cluster: Cluster, group: str) -> None:
        """Read everything that was committed before this call.

        The job's positions are read first. A move of a message commits the new position and the new
        copy together, so a message is in what is read then, by its old copy or its new one.
        """
        there = cluster.topics()  # do not miss a topic that was created meanwhile
        backoff = self._question.backoff
        waiting = [lane for lane in backoff if lane.partition < there.get(lane.topic, 0)]
        parked = [self._question.retry, *waiting]
        committed = cluster.committed(group, parked, stable=True)
        remaining = self._question.remaining
        ends = settled_ends(cluster, [*parked, remaining])
        starts = {lane: max(self._read.get(lane, 0), committed[lane] or 0) for lane in parked}
        starts[remaining] = self._read.get(remaining, 0)
        for record in cluster.read(starts, ends):
            self._take(record)
        self._read.update({lane: max(starts[lane], end) for lane, end in ends.items()})
        for lane in parked:
            self._pass(lane, committed[lane] or 0)

    def _take(self, record: StoredRecord) -> None:
        lane = record.lane
        place = Place(lane, record.offset)
        headers = own.read_own(record.headers)
        if lane == self._question.remaining:
            origin = record.key or b""
            if origin in self._remaining:
                self._remove(*self._remaining.pop(origin))
            key = None if record.value is None else headers.key
            if key is not None:
                self._remaining[origin] = place, key
        else:
            key = record.key
            if key is not None:
                self._parked.setdefault(lane, {})[record.offset] = key
        if key is not None:
            here = own.identity(*lane, record.offset)
            position = position_of(headers.identity or here)
            self.keys[key][place] = WaitingMessage(position, record.timestamp)

    def _pass(self, lane: TopicPartition, position: int) -> None:
        parked = self._parked.get(lane, {})
        for offset in [offset for offset in parked if offset < position]:
            self._remove(Place(lane, offset), parked.pop(offset))

    def _remove(self, place: Place, key: bytes) -> None:
        waiting = self.keys[key]
        waiting.pop(place, None)
        if not waiting:
            del self.keys[key]

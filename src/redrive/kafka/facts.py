"""Answers the decisions' questions about the cluster, all at once.

Only the broker answers. A late answer is a fault, and never counts as "does not exist", "is not
full" or "may be written to". The messages of replays and recent puts are followed in the outcomes.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from typing import Any, Final

import orjson

from redrive.engine.facts import (
    MISSING,
    NO_LIMIT,
    Answers,
    Created,
    DepthQuestion,
    Gone,
    NewTopicQuestion,
    Original,
    Questions,
    RecordQuestion,
    Replayed,
    ReplayedQuestion,
    TopicFacts,
)
from redrive.engine.outcome import PUT_MEMBER, UNTOUCHED, read_put
from redrive.errors import TransientFault
from redrive.kafka.administration import NewTopic
from redrive.kafka.cluster import (
    Cluster,
    Extent,
    has_leader,
    may_read,
    may_write,
    settled_ends,
)
from redrive.kafka.errors import NOT_ALLOWED, described
from redrive.messages import TopicPartition, body_length
from redrive.messages import own_headers as own
from redrive.messages.reasons import Reason

LARGEST_ANSWER: Final = 32 * 1024 * 1024
"""Bytes of records in one answer, apart from its first: the default size of a slice."""
_GAP: Final = 100
"""Maximum records to read through to the next wanted one, instead of seeking."""

_DAY: Final = 86_400_000
"""Milliseconds for which a put is remembered by key and body."""
_REMEMBERED: Final = 100_000
"""Puts above which older ones are dropped."""
_PUT_MEMBER: Final = PUT_MEMBER.encode()

_Answers = dict[RecordQuestion, Original | Gone]


def fetch_originals(cluster: Cluster, questions: Collection[RecordQuestion]) -> _Answers:
    """Fetch records by topic, partition and offset.

    Returns:
        The records, or why they cannot be read. Some are omitted if they would be too large
        together, but never the first.

    Raises:
        TransientFault: The broker did not answer in time.
    """
    answers: _Answers = {}
    wanted = _readable_offsets(cluster, questions, answers)
    room = LARGEST_ANSWER
    while wanted and room > 0:
        runs = {lane: _first_run(offsets) for lane, offsets in wanted.items()}
        room -= _read(cluster, runs, room, answers)
        left = {
            lane: [offset for offset in offsets if RecordQuestion(*lane, offset) not in answers]
            for lane, offsets in wanted.items()
        }
        wanted = {lane: offsets for lane, offsets in left.items() if offsets}
    return answers


def _readable_offsets(
    cluster: Cluster, questions: Collection[RecordQuestion], answers: _Answers
) -> dict[TopicPartition, list[int]]:
    """The offsets of each partition, in order; unreadable ones get an answer with the reason."""
    names = sorted({question.topic for question in questions})
    topics = cluster.descriptions(names, with_rights=True)
    wanted: defaultdict[TopicPartition, list[int]] = defaultdict(list)
    for question in sorted(questions):
        topic = topics[question.topic]
        if topic is None or not 0 <= question.partition < len(topic.partitions):
            answers[question] = Gone(
                f"there is no partition {question.topic}:{question.partition} that this user sees"
            )
        elif not may_read(topic):
            answers[question] = Gone(
                f"this user may not read {question.topic}", may_come=True, is_denied=True
            )
        else:
            wanted[TopicPartition(question.topic, question.partition)].append(question.offset)
    stable = cluster.extents(wanted)
    written = cluster.ends(wanted, committed_only=False) if wanted else {}
    there: defaultdict[TopicPartition, list[int]] = defaultdict(list)
    for lane, offsets in wanted.items():
        for offset in offsets:
            if stable[lane].first <= offset < stable[lane].end:
                there[lane].append(offset)
            elif stable[lane].end <= offset < written[lane]:
                why = f"{lane} has an open transaction before offset {offset}"
                answers[RecordQuestion(*lane, offset)] = Gone(why, may_come=True)
            else:
                why = f"{lane} has offsets {stable[lane].first} to {written[lane]}, not {offset}"
                answers[RecordQuestion(*lane, offset)] = Gone(f"the original was deleted: {why}")
    return there


def _first_run(offsets: Sequence[int]) -> list[int]:
    """The first offsets, up to the first large gap."""
    run = list(offsets[:1])
    for before, after in pairwise(offsets):
        if after - before > _GAP:
            break
        run.append(after)
    return run


def _read(
    cluster: Cluster, runs: Mapping[TopicPartition, Sequence[int]], room: int, answers: _Answers
) -> int:
    """Read a run of each partition; returns the bytes of the wanted records."""
    size = 0
    reached = dict.fromkeys(runs, -1)
    starts = {lane: run[0] for lane, run in runs.items()}
    for record in cluster.read(starts, {lane: run[-1] + 1 for lane, run in runs.items()}):
        reached[record.lane] = record.offset
        if record.offset in runs[record.lane]:
            place = RecordQuestion(*record.lane, record.offset)
            answers[place] = Original(record.key, record.value, record.headers, record.timestamp)
            size += body_length(record.key) + body_length(record.value)
            if size >= room:
                break
    else:
        reached = {lane: run[-1] for lane, run in runs.items()}
    for lane, run in runs.items():
        for place in (RecordQuestion(*lane, offset) for offset in run if offset <= reached[lane]):
            why = f"{lane} has no record at offset {place.offset}: compacted, or never committed"
            answers.setdefault(place, Gone(f"the original was deleted: {why}"))
    return size


_MARKERS: Final = 1.0
"""Seconds to wait for transaction markers before counting a depth: they are written after a commit
returned. A transaction that stays open longer hides only itself."""
_INHERITED: Final = frozenset(
    {
        *("cleanup.policy", "retention.ms", "retention.bytes", "delete.retention.ms"),
        *("max.message.bytes", "compression.type", "min.insync.replicas", "message.timestamp.type"),
        *("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"),
    }
)
"""Settings that a topic for a group has from the topic that it stands for."""
DEFAULT_MAX_MESSAGE_BYTES: Final = 1_048_588
"""Kafka's own default, used when a topic's settings may not be read."""


class ClusterFacts:
    """Answers the questions of decisions.

    They are the facts of a topic that a put needs, and the depth of a queue.
    """

    def __init__(self, cluster: Cluster, *, creates: bool = False) -> None:
        """Ask a cluster; missing topics of groups are only created if ``creates`` is true."""
        self._cluster = cluster
        self._creates = creates
        self._counted: dict[DepthQuestion, tuple[tuple[Extent, ...], int]] = {}

    def answers(self, questions: Questions) -> Answers:
        """The answers for decisions; see ``redrive.checkpoints.protocol.Cluster``."""
        created = {question: self._create_topic(question) for question in questions.new_topics}
        # Records for a new topic get the timestamps with which it keeps them, also in a preview.
        models = {
            question.name: question.like
            for question, answer in created.items()
            if not answer.reason
        }
        facts = self._topic_facts({*questions.topics, *models.values()})
        return Answers(
            facts
            | {
                name: replace(facts[like], may_write=True, may_read=True, silent="")
                for name, like in models.items()
            },
            {question: self._depth(question) for question in questions.depths},
            fetch_originals(self._cluster, questions.records) if questions.records else {},
            new_topics=created,
            topic_ids=self._cluster.topic_ids(questions.topic_ids),
        )

    def _create_topic(self, question: NewTopicQuestion) -> Created:
        name, like = question
        model = self._cluster.descriptions([like])[like]
        if model is None:
            detail = f"{name} cannot be created like {like}: this user may not describe {like}"
            return Created(Reason.NOT_AUTHORIZED, detail)
        # Of what is not set on the model, both topics have the cluster's default.
        settings = self._cluster.settings_of([like], explicit_only=True).get(like, {})
        topic = NewTopic(
            name,
            len(model.partitions),
            {name: str(value) for name, value in settings.items() if name in _INHERITED},
            len(model.partitions[0].replicas),
        )
        error = self._cluster.create(topic, validate_only=not self._creates)
        if error is None:
            return Created()
        is_right = error.code() in NOT_ALLOWED
        reason = Reason.NOT_AUTHORIZED if is_right else Reason.RESOURCE_PROBLEM
        right = " (this user needs Create on it)" if is_right else ""
        return Created(reason, f"topic {name} cannot be created: {described(error)}{right}")

    def _topic_facts(self, names: Collection[str]) -> dict[str, TopicFacts]:
        described = self._cluster.descriptions(names, with_rights=True)
        existing = [name for name, description in described.items() if description is not None]
        settings = self._cluster.settings_of(existing)
        facts = {name: _facts_of(described[name], settings.get(name, {})) for name in existing}
        return {name: facts.get(name, MISSING) for name in names}

    def _depth(self, question: DepthQuestion) -> int:
        """Messages that the queue's group has yet to read, without markers and aborted records.

        Offsets overcount, so they can only show that a queue is not full; near the limit the
        messages are counted by reading.
        """
        count = self._cluster.topics().get(question.topic, 0)
        lanes = [TopicPartition(question.topic, number) for number in range(count)]
        if not lanes:
            return 0
        with contextlib.suppress(TransientFault):
            settled_ends(self._cluster, lanes, seconds=_MARKERS)
        extents = self._cluster.extents(lanes)
        committed = self._cluster.committed(question.group, lanes)
        unread = tuple(
            Extent(max(extents[lane].first, committed[lane] or 0), extents[lane].end)
            for lane in lanes
        )
        most = sum(max(0, extent.end - extent.first) for extent in unread)
        if most < question.limit:
            return most
        known = self._counted.get(question)
        if known is None or known[0] != unread:
            starts = {
                lane: extent.first
                for lane, extent in zip(lanes, unread, strict=True)
                if extent.end > extent.first
            }
            known = unread, self._count(starts, question.limit)
            self._counted[question] = known
        return known[1]

    def _count(self, starts: Mapping[TopicPartition, int], limit: int) -> int:
        return sum(1 for _ in islice(self._cluster.read(starts), limit))


def _facts_of(topic: Any, settings: Mapping[str, Any]) -> TopicFacts:  # noqa: ANN401 - the client's
    policy = str(settings.get("cleanup.policy") or "")
    return TopicFacts(
        max_message_bytes=int(settings.get("max.message.bytes") or DEFAULT_MAX_MESSAGE_BYTES),
        is_uncompressed=settings.get("compression.type") == "uncompressed",
        may_write=may_write(topic),
        may_read=may_read(topic),
        wants_keys="compact" in policy,
        timestamp_before_max=_timestamp_limit(settings, "before"),
        timestamp_after_max=_timestamp_limit(settings, "after"),
        retention=retention_of(settings),
        stamps_records=settings.get("message.timestamp.type") == "LogAppendTime",
        partitions=len(topic.partitions),
        silent=_silence(topic.partitions, int(settings.get("min.insync.replicas") or 1)),
    )


def retention_of(settings: Mapping[str, Any]) -> int:
    """Milliseconds for which a topic keeps a record; ``NO_LIMIT`` if it deletes none by age.

    Its policy may be empty: then it deletes nothing.
    """
    most = int(settings.get("retention.ms") or -1)
    deletes = "delete" in str(settings.get("cleanup.policy", "delete"))
    return most if deletes and most >= 0 else NO_LIMIT


def _timestamp_limit(settings: Mapping[str, Any], side: str) -> int:
    most = settings.get(f"message.timestamp.{side}.max.ms")
    if not most or settings.get("message.timestamp.type") == "LogAppendTime":
        return NO_LIMIT  # if the broker stamps records itself, their own timestamp is irrelevant
    return int(most)


def _silence(partitions: Iterable[Any], least: int) -> str:
    for partition in partitions:
        if not has_leader(partition):
            return f"partition {partition.id} has no leader"
        if len(partition.isr) < least:
            return (
                f"partition {partition.id} has {len(partition.isr)} replicas in sync, not {least}"
            )
    return ""


@dataclass(slots=True)
class _Followed:
    first: int
    """The offset from which every outcome was read."""
    position: int
    last: dict[str, int] = field(default_factory=dict)


class FollowedReplays:
    """The messages that instructions have moved since some outcome.

    Answers include everything committed before the question, and the offset from which they are
    complete. It keeps only messages of replays, which are few, and reads nothing until asked.
    """

    def __init__(self, cluster: Cluster, topic: str, replay_topics: Collection[str]) -> None:
        """Follow an outcomes topic, for instructions on these topics; nothing is read yet."""
        self._cluster = cluster
        self._topic = topic
        self._sources = [f'"topic":"{name}"'.encode() for name in replay_topics]
        self._followed: dict[int, _Followed] = {}

    def since(self, question: ReplayedQuestion) -> Replayed:
        """The messages that instructions have moved since an outcome; the returned mapping grows.

        Raises:
            TransientFault: The broker did not answer in time.
        """
        followed = self._followed.get(question.partition)
        if followed is None or question.since < followed.first:
            followed = _Followed(question.since, question.since)
        lane = TopicPartition(self._topic, question.partition)
        end = settled_ends(self._cluster, [lane])[lane]
        self._read(lane, followed, end)
        # Checked after reading: records deleted before they were read are unknown.
        oldest = self._cluster.extents([lane])[lane].first
        if oldest > followed.position:
            followed.first = max(followed.first, oldest)
        followed.position = max(followed.position, end)
        self._followed[question.partition] = followed
        return Replayed(followed.first, followed.last)

    def _read(self, lane: TopicPartition, followed: _Followed, end: int) -> None:
        for record in self._cluster.read({lane: followed.position}, {lane: end}):
            value = record.value or b""
            # Quotes in a text are escaped, so only the member itself matches.
            if any(source in value for source in self._sources):
                outcome = orjson.loads(value)
                if outcome["result"] not in UNTOUCHED:
                    followed.last[outcome["origin"]] = record.offset


class FollowedPuts:
    """The last puts of a key and body within a day, by their digest.

    Only outcomes of puts whose dead letters may lack Redrive's headers say so. Answers include
    everything committed before the question; nothing is read until asked.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        """Follow an outcomes topic; nothing is read yet."""
        self._cluster = cluster
        self._topic = topic
        self._positions: dict[TopicPartition, int] = {}
        self._last: dict[bytes, own.OwnHeaders] = {}

    def last(self, digests: Collection[bytes]) -> dict[bytes, own.OwnHeaders]:
        """Redrive's headers on the last put of each digest; none if there was none within a day.

        Raises:
            TransientFault: The broker did not answer in time.
        """
        oldest = int(time.time() * 1000) - _DAY
        count = self._cluster.topics().get(self._topic, 0)
        lanes = [TopicPartition(self._topic, number) for number in range(count)]
        ends = settled_ends(self._cluster, lanes)
        if new := [lane for lane in lanes if lane not in self._positions]:
            first = self._cluster.offsets_at(dict.fromkeys(new, oldest))
            self._positions.update(
                {lane: at if at >= 0 else ends[lane] for lane, at in first.items()}
            )
        behind = {lane: at for lane, at in self._positions.items() if at < ends[lane]}
        for record in self._cluster.read(behind, {lane: ends[lane] for lane in behind}):
            self._take(record.value or b"")
        self._positions.update({lane: ends[lane] for lane in behind})
        if len(self._last) > _REMEMBERED:
            self._last = {
                digest: headers
                for digest, headers in self._last.items()
                if _put_at(headers) >= oldest
            }
        last_put = {digest: self._last.get(digest, own.NO_OWN_HEADERS) for digest in digests}
        return {
            digest: headers if _put_at(headers) >= oldest else own.NO_OWN_HEADERS
            for digest, headers in last_put.items()
        }

    def _take(self, value: bytes) -> None:
        if _PUT_MEMBER not in value:  # quotes in a text are escaped
            return
        put = read_put(orjson.loads(value))
        if put is not None and _put_at(put[1]) >= _put_at(self._last.get(put[0])):
            self._last[put[0]] = put[1]


def _put_at(headers: own.OwnHeaders | None) -> int:
    return 0 if headers is None or headers.rounds is None else headers.rounds.put_at

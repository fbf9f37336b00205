"""Records that dead letters refer to, fetched from their topics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Final

from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # public, not in the stub's list

from redrive.engine.facts import Gone, Original, RecordQuestion
from redrive.kafka.cluster import LEGAL_NAME, Cluster
from redrive.messages import TopicPartition, body_length

LARGEST_ANSWER: Final = 32 * 1024 * 1024
"""Bytes of records in one answer, apart from its first: the default size of a slice."""
_GAP: Final = 100
"""Maximum records to read through to the next wanted one, instead of seeking."""

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
    legal = {question.topic for question in questions if LEGAL_NAME.fullmatch(question.topic)}
    topics = cluster.descriptions(sorted(legal), with_rights=True)
    wanted: defaultdict[TopicPartition, list[int]] = defaultdict(list)
    for question in sorted(questions):
        topic = topics.get(question.topic)
        if topic is None or not 0 <= question.partition < len(topic.partitions):
            answers[question] = Gone(
                f"there is no partition {question.topic}:{question.partition} that this user sees"
            )
        elif topic.authorized_operations and AclOperation.READ not in topic.authorized_operations:
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

"""The kinds of dead letters on a topic, from a sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from redrive.kafka.cluster import Cluster
from redrive.kafka.records import StoredRecord
from redrive.masking import NO_MASK, Mask
from redrive.messages import (
    NO_VALID_SCHEME,
    DeadLetterView,
    SchemeTable,
    TopicPartition,
    decode_dead_letter,
    read_view,
)
from redrive.messages import own_headers as own
from redrive.operations.record_view import existing_topic, masked_sentence, masked_view

_DISTINCT: Final = 1_000
"""Maximum distinct names of one kind: there may be any number in records."""
_REST: Final = "(others)"
_LONGEST_NAME: Final = 249
"""Characters of a name that are kept, as many as a topic name may have."""


@dataclass(frozen=True, slots=True)
class Case:
    """A topic and a reason, by which rules of IBM's language can distinguish."""

    topic: str
    """The topic that the message failed on, DESTQ; empty if unknown."""
    reason: int


@dataclass(slots=True)
class SchemeFound:
    """A scheme found in a sample."""

    name: str
    """``NO_VALID_SCHEME`` for messages that are not dead letters."""
    count: int = 0
    example: str = ""
    """``topic:partition:offset`` of one of its messages."""
    view: DeadLetterView | None = None
    problem: str = ""
    """Why the example is not a dead letter."""
    topics: Counter[str] = field(default_factory=Counter)
    """Topics that messages failed on."""
    errors: Counter[str] = field(default_factory=Counter)
    """Root classes of exceptions."""
    groups: Counter[str] = field(default_factory=Counter)
    """Consumer groups and connectors."""
    unreadable: Counter[str] = field(default_factory=Counter)
    """Fields that cannot be read."""


@dataclass(slots=True)
class Identification:
    """What a sample of a topic shows."""

    topic: str
    count: int = 0
    """Messages in the sample."""
    schemes: dict[str, SchemeFound] = field(default_factory=dict)
    cases: dict[Case, Counter[str]] = field(default_factory=dict)
    """How often each exception was seen in each case."""

    def by_share(self) -> list[SchemeFound]:
        """The schemes, the most frequent first."""
        return sorted(self.schemes.values(), key=lambda one: (-one.count, one.name))


def sample(
    cluster: Cluster, topic: str, count: int
) -> tuple[Iterator[StoredRecord], Collection[TopicPartition]]:
    """The newest records of a topic, from all of its partitions; errors as for ``existing_topic``.

    There may be fewer than ``count``, as transaction markers take offsets.

    Returns:
        The records, and the partitions without a leader, which are left out.
    """
    existing_topic(cluster, topic)
    lanes, silent = cluster.led([topic])
    extents = cluster.extents(lanes)
    each = -(-count // max(1, len(extents)))
    starts = {lane: max(one.first, one.end - each) for lane, one in extents.items()}
    return cluster.read(starts, {lane: one.end for lane, one in extents.items()}), silent


def identified(
    topic: str, records: Iterable[StoredRecord], schemes: SchemeTable, mask: Mask = NO_MASK
) -> Identification:
    """The kinds of some records of a topic; no content makes this raise.

    ``cases`` have unmasked names, which a table needs.
    """
    found = Identification(topic)
    for record in records:
        found.count += 1
        _count(found, record, schemes, mask)
    return found


def _count(found: Identification, record: StoredRecord, schemes: SchemeTable, mask: Mask) -> None:
    profile = decode_dead_letter(record.value, record.headers, key=record.key, schemes=schemes)
    one = found.schemes.setdefault(profile.scheme, SchemeFound(profile.scheme))
    one.count += 1
    if not one.example:
        one.example = own.identity(*record.lane, record.offset)
        view = read_view(record.key, record.value, record.headers, schemes=schemes)
        one.view = masked_view(view, profile, mask)
        one.problem = masked_sentence(profile.problem, record.headers, mask)
    if profile.scheme == NO_VALID_SCHEME:
        _add(one.errors, profile.problem.partition(":")[0] or "no header of a known scheme")
        return
    view = masked_view(profile.view, profile, mask) if mask else profile.view
    for counter, name in (
        (one.topics, view.origin.topic),
        (one.errors, view.error_root_class),
        (one.groups, view.connector or view.group),
    ):
        if name:
            _add(counter, name)
    reading = schemes.reading([name for name, _ in record.headers])
    for sentence in reading.unreadable(record.key, record.value, record.headers):
        _add(one.unreadable, sentence.partition(":")[0])
    case = Case(str(profile.fields["DESTQ"]), int(profile.fields["REASON"]))
    if case in found.cases or len(found.cases) < _DISTINCT:
        _add(found.cases.setdefault(case, Counter()), profile.view.error_root_class or "")


def _add(counter: Counter[str], name: str) -> None:
    name = name[:_LONGEST_NAME]
    counter[name if name in counter or len(counter) < _DISTINCT else _REST] += 1

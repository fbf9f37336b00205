"""One record of a topic for display: its failure, and every header.

Only the mask hides anything. Numbers in binary headers are shown as numbers, and headers keep their
order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import orjson

from redrive.diagnostics import did_you_mean
from redrive.errors import EnvironmentFault, UsageError
from redrive.kafka.cluster import Cluster, without_leader
from redrive.kafka.records import StoredRecord
from redrive.masking import MASK, NO_MASK, Mask
from redrive.messages import (
    DeadLetterProfile,
    DeadLetterView,
    Headers,
    SchemeTable,
    TopicPartition,
    decode_dead_letter,
    read_view,
    remove_header,
)
from redrive.messages import own_headers as own
from redrive.messages.cuts import cut_sentence
from redrive.messages.schemes import Scheme
from redrive.messages.schemes.reading import DLH_PREFIX, REDRIVE
from redrive.messages.schemes.scheme import NAMES, Origin
from redrive.operations.schema_registry import Decoded, SchemaRegistry
from redrive.printable import counted, plain_text

_PLACE: Final = re.compile(r"([A-Za-z0-9._-]{1,249}):([0-9]{1,10}):([0-9]{1,18})")

_ORIGIN: Final = tuple(name for name in NAMES if name.startswith("origin."))
"""The parts of an origin, in the order of ``Origin``."""


@dataclass(frozen=True, slots=True)
class ShownHeader:
    """One header of a record."""

    name: str
    raw: bytes | None
    scheme: str
    """Its scheme; ``redrive`` for Redrive's own headers; empty for others."""
    number: int | None
    """Its value as a number, if the scheme writes one in binary; else None."""


@dataclass(frozen=True, slots=True)
class RecordView:
    """A record and its interpretation."""

    record: StoredRecord
    view: DeadLetterView
    profile: DeadLetterProfile
    headers: tuple[ShownHeader, ...]
    unreadable: tuple[str, ...]
    """Sentences about fields that cannot be read."""
    body: bytes | None
    """The value without an MQDLH, or the payload of an envelope."""
    decoded: Decoded | None = None
    """The body decoded by its schema; None without a schema or registry."""

    @classmethod
    def of(
        cls,
        record: StoredRecord,
        schemes: SchemeTable,
        mask: Mask = NO_MASK,
        registry: SchemaRegistry | None = None,
    ) -> Self:
        """Interpret a record; no content makes this raise.

        Numbers in binary headers are shown, unless the mask hides the header.
        """
        key, value, headers = record.key, record.value, record.headers
        schemes = schemes.at(record.lane.topic)
        profile = decode_dead_letter(value, headers, key=key, schemes=schemes)
        reading = schemes.reading([name for name, _ in headers])
        body, _ = remove_header(profile, value, headers)
        shown = cls(
            record,
            read_view(key, value, headers, schemes=schemes),
            profile,
            tuple(_header(name, raw, profile) for name, raw in headers),
            (*reading.unreadable(key, value, headers), *_own_problems(headers)),
            body,
            None if registry is None else registry.decoded(body),
        )
        return shown._masked(mask) if mask else shown

    def _masked(self, mask: Mask) -> Self:
        record, profile = self.record, self.profile
        view = masked_view(self.view, profile, mask)
        fields = {name: mask.plain(value) for name, value in profile.fields.items()}
        if view.origin.topic == MASK:
            fields["DESTQ"] = MASK
        return replace(
            self,
            record=record.masked(mask),
            view=view,
            profile=replace(
                profile,
                problem=masked_sentence(profile.problem, record.headers, mask),
                warning=mask.text(profile.warning),
                fields=fields,
            ),
            headers=tuple(
                replace(header, raw=mask.header(header.name, header.raw), number=None)
                if header.number is None or mask.hides(header.name)
                else header
                for header in self.headers
            ),
            unreadable=tuple(
                masked_sentence(sentence, record.headers, mask) for sentence in self.unreadable
            ),
            body=mask.bytes_or_none(self.body),
            decoded=None
            if self.decoded is None
            else replace(
                self.decoded,
                text=mask.text(self.decoded.text),
                problem=mask.text(self.decoded.problem),
            ),
        )


def _own_problems(headers: Headers) -> Iterator[str]:
    if problem := own.unreadable(headers):
        yield problem
    own_values = own.read_own(headers)
    if own_values.cut:
        yield cut_sentence(own_values.cut, own_values.origin)


def masked_view(view: DeadLetterView, profile: DeadLetterProfile, mask: Mask) -> DeadLetterView:
    """The fields of a dead letter, masked.

    Exceptions may quote the message, and so may any part of a user's scheme. A field that comes
    from a hidden header is hidden as a whole; a number then counts as missing.
    """
    hidden = {
        name
        for scheme in profile.taken
        if isinstance(scheme, Scheme)
        for name, places in scheme.parts.items()
        if any(mask.hides(place.header) for place in places)
    }
    if view.scheme == REDRIVE.name and mask.hides(f"{DLH_PREFIX}DestQName"):
        hidden.add("origin.topic")
    if "error.class" in hidden:  # the root class is the same unless the scheme has another
        hidden.add("error.root_class")

    def shown(name: str, value: Any) -> Any:  # noqa: ANN401 - a text or a number
        if name in hidden:
            return MASK if isinstance(value, str) else None
        return mask.plain(value)

    def origin(place: Origin) -> Origin:
        return Origin(*(shown(name, getattr(place, name.partition(".")[2])) for name in _ORIGIN))

    attributes = {name: name.replace(".", "_") for name in NAMES if name not in _ORIGIN}
    return replace(
        view,
        origin=origin(view.origin),
        first_origin=origin(view.first_origin),
        **{
            attribute: shown(name, getattr(view, attribute))
            for name, attribute in attributes.items()
        },
    )


def masked_sentence(sentence: str, headers: Headers, mask: Mask) -> str:
    """A sentence about an unreadable field, without the value of a hidden header.

    It may begin with the name of a header and end in the value of that header.
    """
    about = (name for name, _ in headers if sentence.startswith(f"the header {name} "))
    if any(map(mask.hides, about)):
        sentence = f"{sentence.partition(': ')[0]}: {MASK}"
    return mask.text(sentence)


def record_place(text: str) -> tuple[TopicPartition, int]:
    """Lane and offset from ``topic:partition:offset``; raises ``UsageError``."""
    match = _PLACE.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is not the position of a record",
            hint="topic:partition:offset, such as orders:0:42",
        )
    return TopicPartition(match[1], int(match[2])), int(match[3])


def read_record(cluster: Cluster, lane: TopicPartition, offset: int) -> StoredRecord:
    """The record at a position; raises ``EnvironmentFault`` if it does not exist or was deleted."""
    count = existing_topic(cluster, lane.topic)
    if lane.partition >= count:
        raise EnvironmentFault(
            f"there is no partition {lane.partition}",
            hint=f"{lane.topic} has {counted(count, 'partition')}",
        )
    if cluster.leaderless([lane]):
        raise EnvironmentFault(
            f"no broker leads {lane}", hint="start its brokers, or reassign the partition"
        )
    extent = cluster.extents([lane])[lane]
    if extent.first <= offset < extent.end:
        records = cluster.read({lane: offset}, until=lambda _: True)
        record = next(records, None)
        if record is not None and record.offset == offset:
            return record
    raise EnvironmentFault(
        f"there is no record at {lane}:{offset}",
        hint=f"the partition holds offsets {extent.first} to {extent.end - 1}; some are transaction"
        " markers, others were removed by retention or compaction",
    )


def find_by_key(cluster: Cluster, topic: str, key: bytes) -> StoredRecord:
    """The newest record with a key, from the whole topic; raises ``EnvironmentFault``."""
    existing_topic(cluster, topic)
    newest: StoredRecord | None = None
    lanes, silent = cluster.led([topic])
    for record in cluster.read(dict.fromkeys(lanes, 0)):
        if record.key == key and (newest is None or record.timestamp >= newest.timestamp):
            newest = record
    if newest is None:
        raise EnvironmentFault(
            f"no record of {topic} has this key",
            hint="; ".join([*without_leader(silent), "write a binary key as 0x and hex digits"]),
        )
    return newest


def existing_topic(cluster: Cluster, topic: str) -> int:
    """The number of partitions of a topic; raises ``EnvironmentFault`` if it does not exist."""
    topics = cluster.topics()
    if topic not in topics:
        raise EnvironmentFault(
            f"there is no topic {topic}",
            hint=did_you_mean(topic, topics) or "names are case-sensitive",
        )
    return topics[topic]


def body_text(value: bytes) -> str | None:
    """A body as text, JSON indented; None if it is not text."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    if text[:1] in {"{", "["}:
        try:
            return orjson.dumps(orjson.loads(value), option=orjson.OPT_INDENT_2).decode()
        except orjson.JSONDecodeError:
            return text
    return plain_text(value)


def _header(name: str, raw: bytes | None, profile: DeadLetterProfile) -> ShownHeader:
    for scheme in profile.taken:
        if isinstance(scheme, Scheme) and scheme.owns(name):
            return ShownHeader(name, raw, scheme.name, _number(scheme, name, raw))
    is_own = name.startswith((own.PREFIX, "mqdlh."))
    return ShownHeader(name, raw, "redrive" if is_own else "", None)


def _number(scheme: Scheme, name: str, raw: bytes | None) -> int | None:
    parts: Iterator[str | int | None] = (
        part.read(raw)
        for parts in scheme.parts.values()
        for part in parts
        if part.header == name and raw is not None and not part.is_wordy
    )
    return next((number for number in parts if isinstance(number, int)), None)

"""The kinds of dead letters on a topic, from a sample."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

import orjson

from redrive.kafka.cluster import Cluster
from redrive.kafka.records import StoredRecord
from redrive.masking import NO_MASK, Mask
from redrive.messages import (
    NO_VALID_SCHEME,
    DeadLetterView,
    Headers,
    SchemeTable,
    TopicPartition,
    decode_dead_letter,
    read_view,
)
from redrive.messages import own_headers as own
from redrive.messages.schemes import encodings
from redrive.operations.record_view import existing_topic, masked_sentence, masked_view

_DISTINCT: Final = 1_000
"""Maximum distinct names of one kind: there may be any number in records."""
_REST: Final = "(others)"
_LONGEST_DRAFT: Final = 40
"""Characters of a topic in the name of a draft."""
_MEMBER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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
    draft: str = ""
    """Settings that would describe messages of no scheme, if they look like dead letters."""


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
        return sorted(self.schemes.values(), key=lambda scheme: (-scheme.count, scheme.name))


def sample(
    cluster: Cluster, topic: str, count: int
) -> tuple[Iterator[StoredRecord], Collection[TopicPartition]]:
    """The newest records of a topic, from all of its partitions.

    There may be fewer than ``count``, as transaction markers take offsets.

    Returns:
        The records, and the partitions without a leader, which are left out.

    Raises:
        EnvironmentFault: The topic does not exist.
    """
    existing_topic(cluster, topic)
    lanes, silent = cluster.led([topic])
    extents = cluster.extents(lanes)
    each = -(-count // max(1, len(extents)))
    starts = {lane: max(extent.first, extent.end - each) for lane, extent in extents.items()}
    return cluster.read(starts, {lane: extent.end for lane, extent in extents.items()}), silent


def identified(
    topic: str, records: Iterable[StoredRecord], schemes: SchemeTable, mask: Mask = NO_MASK
) -> Identification:
    """The kinds of some records of a topic; no content makes this raise.

    ``cases`` have unmasked names, which a table needs.
    """
    identification = Identification(topic)
    for record in records:
        identification.count += 1
        _count(identification, record, schemes, mask)
    return identification


def _count(
    identification: Identification, record: StoredRecord, schemes: SchemeTable, mask: Mask
) -> None:
    profile = decode_dead_letter(record.value, record.headers, key=record.key, schemes=schemes)
    scheme = identification.schemes.setdefault(profile.scheme, SchemeFound(profile.scheme))
    scheme.count += 1
    if not scheme.example:
        scheme.example = own.identity(*record.lane, record.offset)
        view = read_view(record.key, record.value, record.headers, schemes=schemes)
        scheme.view = masked_view(view, profile, mask)
        scheme.problem = masked_sentence(profile.problem, record.headers, mask)
    if profile.scheme == NO_VALID_SCHEME:
        _add(scheme.errors, profile.problem.partition(":")[0] or "no header of a known scheme")
        scheme.draft = scheme.draft or drafted_scheme(
            identification.topic, record.value, record.headers
        )
        return
    view = masked_view(profile.view, profile, mask) if mask else profile.view
    for counter, name in (
        (scheme.topics, view.origin.topic),
        (scheme.errors, view.error_root_class),
        (scheme.groups, view.connector or view.group),
    ):
        if name:
            _add(counter, name)
    reading = schemes.reading([name for name, _ in record.headers])
    for sentence in reading.unreadable(record.key, record.value, record.headers):
        _add(scheme.unreadable, sentence.partition(":")[0])
    case = Case(str(profile.fields["DESTQ"]), int(profile.fields["REASON"]))
    if case in identification.cases or len(identification.cases) < _DISTINCT:
        _add(identification.cases.setdefault(case, Counter()), profile.view.error_root_class or "")


class _Field(NamedTuple):
    """A header, or a member of a JSON value, that may say something about a failure."""

    place: str
    """As settings name it."""
    name: str
    """Lower case, words separated by ``_``."""
    raw: bytes
    is_header: bool


_DRAFTED: Final[Mapping[str, re.Pattern[str]]] = {
    part: re.compile(pattern)
    for part, pattern in (
        ("error.class", r"(error|exception)(_?(class|type|name|fqcn)(_name)?)?"),
        (
            "error.message",
            r"(error|exception|failure)_?(message|msg|reason|text|description)|reason",
        ),
        ("error.stack", r".*(stack_?trace|traceback|stack)"),
        ("origin.topic", r"((original|origin|source|failed|src|from)_?)?topic(_name)?"),
        ("origin.partition", r"((original|origin|source|failed|src|from)_?)?partition(_id)?"),
        ("origin.offset", r"((original|origin|source|failed|src|from)_?)?offset"),
        ("origin.timestamp", r"(original|origin|source|src)_?(timestamp|time)"),
        ("group", r"(consumer_?)?group(_?id)?"),
        ("attempts", r"(retry_?)?(attempts?|count|tries|retries)|delivery_count"),
        ("failed_at", r"failed_?at|(failure|error)_?(time|timestamp)|dead_?lettered_?at"),
    )
}
"""Names that programs use for each part; a prefix such as ``x_`` is left out."""
_PAYLOADS: Final = ("payload", "value", "body", "data", "original")
_DEPTH: Final = 3
_MEMBERS: Final = 200


def drafted_scheme(topic: str, value: bytes | None, headers: Headers) -> str:
    """A table ``[schemes.NAME]`` for a message of no scheme, from the names that it has.

    Returns:
        TOML; empty if nothing in the message looks like an error with its origin.
    """
    fields = [
        _Field(name, _words(name), raw, is_header=True)
        for name, raw in headers
        if raw is not None and not name.startswith(("redrive.", "$")) and " as " not in name
    ]
    document = _document(value)
    fields += islice(_members(document, "$", ""), _MEMBERS)
    places: dict[str, str] = {}
    for part, pattern in _DRAFTED.items():
        named = (candidate for candidate in fields if pattern.fullmatch(candidate.name))
        place = next(filter(None, (_place(part, candidate) for candidate in named)), "")
        if place:
            places[part] = place
    leading = next(
        (
            places[part_name]
            for part_name in ("error.class", "error.message")
            if part_name in places
        ),
        "",
    )
    if not leading and not {"origin.topic", "origin.offset"} <= places.keys():
        return ""
    recognise = (leading or places["origin.topic"]).partition(" as ")[0]
    settings = {"recognise": recognise}
    if recognise.startswith("$") and isinstance(document, dict):
        payload = next((name for name in _PAYLOADS if name in document), "")
        settings |= {"payload": f"$.{payload}"} if payload else {}
    name = re.sub(r"[^A-Za-z0-9-]", "-", topic).strip("-")[:_LONGEST_DRAFT] or "mine"
    lines = (
        f"{key} = {orjson.dumps(place).decode()}" for key, place in (settings | places).items()
    )
    return "\n".join([f"[schemes.own-{name}]", *lines])


def _words(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).removeprefix("x_").strip("_")


def _document(value: bytes | None) -> object:
    try:
        return orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return None


def _members(value: object, path: str, name: str, depth: int = 0) -> Iterator[_Field]:
    """The leaves of a JSON value, by their own name and by that with the member around it."""
    if isinstance(value, dict) and depth < _DEPTH:
        for key, inner in value.items():
            if _MEMBER.fullmatch(key):
                yield from _members(inner, f"{path}.{key}", f"{name}_{key}", depth + 1)
    elif name and isinstance(value, str | int | float):
        raw = value.encode() if isinstance(value, str) else orjson.dumps(value)
        members = name.split("_")
        for last in (2, 1):
            yield _Field(path, _words("_".join(members[-last:])), raw, is_header=False)


def _place(part: str, candidate: _Field) -> str:
    """The place of a part with its encoding; empty if the bytes are none of it."""
    if part in {"error.class", "group", "error.message", "error.stack", "origin.topic"}:
        is_sentence = part == "error.class" and b":" in candidate.raw
        return f"{candidate.place} as class" if is_sentence else candidate.place
    read = encodings.time if part in {"failed_at", "origin.timestamp"} else encodings.decimal
    if read(candidate.raw) is not None:
        return candidate.place
    binary = {4: "int32be", 8: "int64be"}.get(len(candidate.raw)) if candidate.is_header else None
    return f"{candidate.place} as {binary}" if binary else ""


def _add(counter: Counter[str], name: str) -> None:
    name = name[:_LONGEST_NAME]
    counter[name if name in counter or len(counter) < _DISTINCT else _REST] += 1

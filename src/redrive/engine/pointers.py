"""The record that failed, as its dead letter names it.

It is read where the dead letter lacks its payload or was truncated. Outcomes have its place: two
dead letters of one record show that its consumer failed twice on it; and what the exception said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from redrive.engine.facts import Facts, Gone, Original, RecordQuestion
from redrive.engine.message import Message
from redrive.engine.ordering import position_of
from redrive.messages import (
    DeadLetterProfile,
    Headers,
    Records,
    cuts,
    decode_dead_letter,
    original_key,
    remove_header,
    with_original,
)
from redrive.messages import own_headers as own
from redrive.messages.cuts import Content
from redrive.messages.dead_letters import read_view
from redrive.messages.schemes import Scheme, SchemeTable
from redrive.messages.schemes.scheme import Newest, Place
from redrive.rules import is_topic_name

_PARTITION: Final = "origin.partition"
_OFFSET: Final = "origin.offset"
_MESSAGE: Final = "error.message"


def restore_message(message: Message, facts: Facts) -> Message | Gone:
    """A message completed with what its copy had to cut, or why that cannot be read.

    If the rest is unknown, this adds a question and returns the copy, which will be decided again.
    """
    if not message.cut:
        return message
    place = position_of(message.origin)
    found = facts.record(RecordQuestion(place.topic, place.partition, place.offset))
    if found is None:
        return message
    if isinstance(found, Gone):
        return found
    copy = Content(message.key, message.value, message.headers, message.cut)
    whole = cuts.restored(copy, Content(found.key, found.value, found.headers))
    if whole is None:
        return Gone(f"the original was deleted: {message.origin} now has another record")
    return message._replace(**whole._asdict())


def restore_dead_letter(message: Message, schemes: SchemeTable, facts: Facts) -> Message | Gone:
    """A dead letter, completed like ``restore_message``, with the profile of the whole message."""
    whole = restore_message(message, facts)
    if isinstance(whole, Gone) or whole.cut:
        return whole
    profile = decode_dead_letter(whole.value, whole.headers, key=whole.key, schemes=schemes)
    return whole._replace(profile=with_original(profile, whole.group_topic))


def own_headers_of_original(
    message: Message, schemes: SchemeTable, facts: Facts
) -> own.OwnHeaders | Gone:
    """Redrive's headers of the failed record of a dead letter, or why they cannot be read.

    For a dead letter of a program that drops headers. If the record is unknown, this adds a
    question and returns no headers; the message will be decided again.
    """
    found = _original(message, schemes, facts)
    if found is None or isinstance(found, Gone):
        return own.NO_OWN_HEADERS if found is None else found
    return own.read_own(found.headers)


def own_headers_of_put(message: Message, facts: Facts) -> own.OwnHeaders:
    """Redrive's headers on the last put of a dead letter's key and body, except for its identity.

    Equal messages count as one, so that none of them has more rounds than its rule allows. If the
    put is unknown, this adds a question and returns no headers; the message will be decided again.
    """
    profile = message.profile
    if profile is None or profile.view.pointer:
        return own.NO_OWN_HEADERS
    key = original_key(profile, message.key, message.headers)
    value, _ = remove_header(profile, message.value, message.headers)
    return facts.last_put(digest_of(key, value))


def digest_of(key: bytes | None, value: bytes | None) -> bytes:
    """A digest of the key and the body of a message."""
    digest = blake2b(b"%d " % (-1 if key is None else len(key)), digest_size=16)
    digest.update(key or b"")
    digest.update(value or b"")
    return digest.digest()


def failed_record(message: Message, schemes: SchemeTable) -> RecordQuestion | None:
    """The record that failed, as its dead letter names it; None if it does not."""
    origin = read_view(message.key, message.value, message.headers, schemes=schemes).origin
    if origin.topic is None or origin.partition is None or origin.offset is None:
        return None
    return RecordQuestion(origin.topic, origin.partition, origin.offset)


def failed_records(records: Records, profiles: Sequence[DeadLetterProfile]) -> Sequence[str] | None:
    """The places of the records that failed, ``topic:partition:offset``, as dead letters name them.

    Args:
        records: The dead letters, or copies of them.
        profiles: The profile of each.

    Returns:
        A place for each record, empty if its dead letter names none; None if all are empty. A
        record that failed on a group's topic has its place there.
    """
    schemes = _schemes(profiles, _OFFSET)
    columns = {
        scheme: (_column(scheme, _PARTITION, records), _column(scheme, _OFFSET, records))
        for scheme in set(schemes.values())
    }
    if not any(partitions and offsets for partitions, offsets in columns.values()):
        return None
    places, prefixes = [], dict[tuple[int, str | int | None], str]()
    for row, profile in enumerate(profiles):
        place, scheme = "", schemes.get(id(profile))
        if scheme is not None:
            partitions, offsets = columns[scheme]
            if partitions and offsets:
                partition, offset = partitions[row], offsets[row]
                key = id(profile), partition
                prefix = prefixes.get(key)
                if prefix is None:
                    prefix = prefixes[key] = _prefix(profile, partition)
                if prefix and isinstance(offset, int) and offset >= 0:
                    place = f"{prefix}{offset}"
        places.append(place)
    return places


def error_messages(records: Records, profiles: Sequence[DeadLetterProfile]) -> Sequence[str] | None:
    """The messages of the exceptions, empty where a dead letter names none; None if all are empty.

    Arguments as for ``failed_records``.
    """
    schemes = _schemes(profiles, _MESSAGE)
    columns = {scheme: _column(scheme, _MESSAGE, records) for scheme in set(schemes.values())}
    if not any(columns.values()):
        return None
    by_profile = {profile: columns[scheme] for profile, scheme in schemes.items()}
    every = [by_profile.get(id(one)) for one in profiles]
    messages = (column[row] if column else None for row, column in enumerate(every))
    return [text if isinstance(text, str) else "" for text in messages]


def _schemes(profiles: Sequence[DeadLetterProfile], part: str) -> dict[int, Scheme]:
    """The scheme of each profile by its id, if it can name a part."""
    return {
        id(one): scheme
        for one in profiles
        for scheme in one.taken[:1]
        if isinstance(scheme, Scheme) and part in scheme.parts
    }


def _column(scheme: Scheme, part: str, records: Records) -> Sequence[str | int | None] | None:
    """One part of a scheme in each record; None if no record has it."""
    parts, grid = scheme.parts.get(part, ()), records.grid
    if grid is not None and all(one.place is Place.HEADER for one in parts):
        there = [one for one in parts if one.header in grid.layout]
        if not there:
            return None
        if len(there) == 1:  # nearly always
            [part_there] = there
            layout, read = grid.layout, part_there.read
            index = layout.index(part_there.header)
            if scheme.newest is not Newest.FIRST:
                index = len(layout) - 1 - layout[::-1].index(part_there.header)
            return [None if raw is None else read(raw) for raw in grid.column(index)]
    rows = zip(records.keys, records.values, records.headers, strict=True)
    return [scheme.read(part, *row) for row in rows]


def _prefix(profile: DeadLetterProfile, partition: str | int | None) -> str:
    """The start of the places on a partition; empty if topic or partition is not valid."""
    topic = profile.failed_on or ""
    if not isinstance(partition, int) or partition < 0 or not is_topic_name(topic):
        return ""
    return f"{topic}:{partition}:"


def _original(message: Message, schemes: SchemeTable, facts: Facts) -> Original | Gone | None:
    question = failed_record(message, schemes)
    if question is None:
        return Gone("the dead letter does not say where its original is")
    return facts.record(question)


def _joined_headers(message: Message, original: Headers, schemes: SchemeTable) -> Headers:
    """The headers of an original, and those that its dead letter adds.

    The dead letter may have copies of the original's headers, with values that the program changed:
    each header is there once, as it was. Only headers of schemes may repeat, one for each failure.
    """
    profile = message.profile or decode_dead_letter(
        message.value, message.headers, key=message.key, schemes=schemes
    )
    taken = [scheme for scheme in profile.taken if isinstance(scheme, Scheme)]
    names, pairs = {name for name, _ in original}, Counter(original)
    headers = [*original]
    for pair in message.headers:
        if any(scheme.owns(pair[0]) for scheme in taken):
            pairs[pair] -= 1
            is_added = pairs[pair] < 0
        else:
            is_added = pair[0] not in names
        if is_added:
            headers.append(pair)
    return headers


def original_of(message: Message, schemes: SchemeTable, facts: Facts) -> Message | Gone:
    """The record that a dead letter refers to, with the headers that make it a dead letter.

    If the record is unknown, this adds a question and returns the dead letter itself, which will be
    decided again. Returns the reason if it cannot be read.
    """
    found = _original(message, schemes, facts)
    if found is None:
        return message
    if isinstance(found, Gone):
        return found
    if problem := own.unreadable(found.headers):
        return Gone(f"the original cannot be put unchanged: {problem}")
    return message._replace(
        key=found.key,
        value=found.value,
        headers=_joined_headers(message, own.without_own(found.headers), schemes),
        timestamp=found.timestamp,
        record_time=message.record_time or own.read_own(found.headers).timestamp or found.timestamp,
        # A service that loops only the original has not seen this dead letter before.
        hops=max(message.hops, own.read_own(found.headers).hops),
    )

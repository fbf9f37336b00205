"""The record that failed, as its dead letter names it.

It is read where the dead letter lacks its payload or was truncated.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from hashlib import blake2b
from typing import Final

from redrive.engine.decision import Put
from redrive.engine.facts import Facts, Gone, Original, RecordQuestion
from redrive.engine.message import Message
from redrive.engine.ordering import position_of
from redrive.engine.outcome import put_members
from redrive.messages import (
    DeadLetterProfile,
    Headers,
    OutputRecord,
    cuts,
    decode_dead_letter,
    original_key,
    remove_header,
    with_original,
)
from redrive.messages import own_headers as own
from redrive.messages.constants import constant_value
from redrive.messages.cuts import RecordContent
from redrive.messages.dead_letters import read_view
from redrive.messages.schemes import Scheme, SchemeTable

NO_PAYLOAD: Final = constant_value("MQRC_NO_MSG_AVAILABLE") or 0
"""Reason of a dead letter whose referenced payload cannot be read."""


def restore_message(message: Message, facts: Facts) -> Message | Gone:
    """A message completed with what its copy had to cut, or why that cannot be read.

    If the rest is unknown, this adds a question and returns the copy, which will be decided again.
    """
    if not message.cut:
        return message
    place = position_of(message.origin)
    record = facts.record(RecordQuestion(place.topic, place.partition, place.offset))
    if record is None:
        return message
    if isinstance(record, Gone):
        return record
    copy = RecordContent(message.key, message.value, message.headers, message.cut)
    whole = cuts.restored(copy, RecordContent(record.key, record.value, record.headers))
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
    original = _original(message, schemes, facts)
    if original is None or isinstance(original, Gone):
        return own.NO_OWN_HEADERS if original is None else original
    if _is_of_another(message, original):
        return Gone("the record at the place of its original is another one")
    return own.read_own(original.headers)


def _is_of_another(message: Message, original: Original) -> bool:
    """Whether a dead letter is not about a record: neither its key nor its body is the record's.

    It may be a copy from another cluster, where the place means another record.
    """
    profile = message.profile
    if profile is None or profile.view.pointer:
        return False
    key, value = _failed_content(message, profile)
    return key is not None and key != original.key and value != original.value


def _failed_content(
    message: Message, profile: DeadLetterProfile
) -> tuple[bytes | None, bytes | None]:
    """The key and the body of the record that failed, as its dead letter has them."""
    key = original_key(profile, message.key, message.headers)
    value, _ = remove_header(profile, message.value, message.headers)
    return key, value


def own_headers_of_put(message: Message, facts: Facts) -> own.OwnHeaders:
    """Redrive's headers on the last put of a dead letter's key and body, except for its identity.

    Equal messages count as one, so that none of them has more rounds than its rule allows. If the
    put is unknown, this adds a question and returns no headers; the message will be decided again.
    """
    profile = message.profile
    if profile is None or profile.view.pointer:
        return own.NO_OWN_HEADERS
    return facts.last_put(digest_of(*_failed_content(message, profile)))


def digest_of(key: bytes | None, value: bytes | None) -> bytes:
    """A digest of the key and the body of a message."""
    digest = blake2b(b"%d " % (-1 if key is None else len(key)), digest_size=16)
    digest.update(key or b"")
    digest.update(value or b"")
    return digest.digest()


def with_own_headers(decision: Put, record: OutputRecord) -> Put:
    """A put whose outcome has Redrive's headers, and the digest of key and body to find it by."""
    members = put_members(digest_of(record.key, record.value), record.headers or [])
    return replace(decision, members=f"{decision.members},{members}")


def failed_record(message: Message, schemes: SchemeTable) -> RecordQuestion | None:
    """The record that failed, as its dead letter names it; None if it does not."""
    origin = read_view(message.key, message.value, message.headers, schemes=schemes).origin
    if origin.topic is None or origin.partition is None or origin.offset is None:
        return None
    return RecordQuestion(origin.topic, origin.partition, origin.offset)


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
    original = _original(message, schemes, facts)
    if original is None:
        return message
    if isinstance(original, Gone):
        return original
    if problem := own.unreadable(original.headers):
        return Gone(f"the original cannot be put unchanged: {problem}")
    return message._replace(
        key=original.key,
        value=original.value,
        headers=_joined_headers(message, own.without_own(original.headers), schemes),
        timestamp=original.timestamp,
        record_time=message.record_time
        or own.read_own(original.headers).timestamp
        or original.timestamp,
        # A service that loops only the original has not seen this dead letter before.
        hops=max(message.hops, own.read_own(original.headers).hops),
    )

"""Parked and remaining messages: full copies that wait on topics of Redrive's own.

A parked copy waits on the handler's retry topic for its next attempt. Its timestamp is the time of
the failed attempt, so everything due ends at one offset.

A remaining copy waits on the handler's compacted remaining topic until a new table or an operator
places it. Its key is the origin of the dead letter, not its identity: a message may be
dead-lettered twice, and compaction must not remove one of the two.

A copy that is too large for the topic refers to its original instead; see
``redrive.messages.cuts``.

Both topics have the partitions of their source, and a copy stays on the partition of its original,
so that one instance reads all of a partition.
"""

from __future__ import annotations

from redrive.engine.message import Attempts, Message
from redrive.messages import DeadLetterProfile, OutputRecord, cuts
from redrive.messages import own_headers as own
from redrive.messages.fields import Headers


def parked(
    message: Message,
    *,
    topic: str,
    partition: int,
    table: str,
    attempts: Attempts,
    now: int,
    behind: str = "",
) -> OutputRecord:
    """The copy to park after a failed attempt.

    Args:
        message: The message.
        topic: The handler's retry topic.
        partition: The partition of the source.
        table: Short hash of the table that decided.
        attempts: The failed ones, including this one.
        now: Time of the failed attempt, in milliseconds; the delay counts from it.
        behind: Identity of the message of its key that it waits for; empty if none.
    """
    waiting = _waiting_headers(message, table, attempts)
    if behind:
        waiting.append((own.BEHIND, behind.encode("ascii")))
    return OutputRecord(topic, message.key, message.value, waiting, now, partition)


def remaining(
    message: Message,
    *,
    topic: str,
    partition: int,
    table: str,
    attempts: Attempts,
    now: int,
) -> OutputRecord:
    """The copy of a dead letter that no rule can place; arguments as for ``parked``."""
    waiting = _waiting_headers(message, table, attempts)
    if message.key is not None:
        waiting.append((own.KEY, message.key))
    if message.value is None:
        waiting.append((own.NULL, b"1"))
    value = message.value if message.value is not None else b""
    return OutputRecord(topic, message.origin.encode("ascii"), value, waiting, now, partition)


def fit(message: Message, most: int) -> Message:
    """A dead letter, cut so that its copy fits a topic with a maximum record size in bytes."""
    content = cuts.RecordContent(message.key, message.value, message.headers, message.cut)
    return message._replace(**cuts.fitted(content, most)._asdict())


def tombstone(origin: str, *, topic: str, partition: int, now: int) -> OutputRecord:
    """The tombstone of a remaining copy whose message has moved."""
    return OutputRecord(topic, origin.encode("ascii"), None, None, now, partition)


def _waiting_headers(message: Message, table: str, attempts: Attempts) -> Headers:
    headers: Headers = [
        *message.headers,
        (own.ID, message.identity.encode("ascii")),
        (own.ORIGIN, message.origin.encode("ascii")),
        (own.TIMESTAMP, own.number(max(0, message.timestamp))),
        (own.HOPS, own.number(message.hops)),
        (own.FAILURES, own.number(attempts.failures)),
        (own.TABLE, table.encode("ascii")),
    ]
    if message.record_time:
        headers.append((own.RECORD_TIME, own.number(message.record_time)))
    if message.group_topic:
        headers.append((own.GROUP_TOPIC, message.group_topic.value))
    if message.cut:
        headers.append((own.CUT, message.cut.encode("ascii")))
    if attempts.by_rule:
        headers.append((own.FAILED_RULES, own.failed_rules(attempts.by_rule)))
    if attempts.counted:
        headers.append((own.COUNTED, own.number(attempts.counted)))
    if attempts.is_quarantined:
        headers.append((own.QUARANTINE, b"1"))
    return headers


def restore(
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    *,
    timestamp: int,
    own_headers: own.OwnHeaders,
    here: str,
    profile: DeadLetterProfile | None = None,
) -> Message:
    """The dead letter that a parked or remaining copy holds.

    Args:
        key: The record's own key.
        value: The record's own value.
        headers: The copy's headers without Redrive's own.
        timestamp: The copy's timestamp, in milliseconds, used if it has no other.
        own_headers: Redrive's headers of the copy.
        here: ``topic:partition:offset`` of the copy, used if it has no origin.
        profile: Its failure, from its headers; None for a put.
    """
    return Message(
        key=key,
        value=value,
        headers=headers,
        timestamp=timestamp if own_headers.timestamp is None else own_headers.timestamp,
        identity=own_headers.identity or here,
        origin=own_headers.origin or here,
        hops=own_headers.hops,
        cut=own_headers.cut,
        profile=profile,
        group_topic=own_headers.group_topic,
        record_time=own_headers.record_time or 0,
    )

"""Parked and remaining messages: full copies that wait on topics of Redrive's own (design 6).

A parked copy waits on the handler's retry topic for its next attempt. Its timestamp is the time of
the failed attempt, so that "everything due" is one offset of the topic.

A remaining copy waits on the handler's compacted remaining topic until a new table, or a person,
deals with it. Its key is the origin of the dead letter, not its identity: one message may come to
the dead-letter queue twice, and compaction must not make one of the two disappear.

A copy that the topic would refuse as too large points at its original instead; see
``redrive.messages.cuts``.

Both topics have the partitions of their source, and a copy stays on the partition of its original:
that keeps the share of an instance together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from redrive.messages import OutputRecord, cuts
from redrive.messages import own_headers as own

if TYPE_CHECKING:
    from redrive.messages.fields import Headers


class DeadLetterRecord(NamedTuple):
    """One dead letter as it came, wherever it waited in between."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    """Without Redrive's own headers."""
    timestamp: int
    """Milliseconds; the record's own, not that of a copy."""
    identity: str
    """``topic:partition:offset`` of the first time Redrive saw the message."""
    origin: str
    """``topic:partition:offset`` of this dead letter on its dead-letter queue."""
    hops: int
    cut: str = ""
    """What is cut of the key, the value or the headers; empty for a whole message."""


class Progress(NamedTuple):
    """How far a table has come with a dead letter."""

    failures: int
    """Failed attempts under it so far."""
    failed: tuple[tuple[int, int], ...] = ()
    """Rules by number with their failed attempts, where that decides what comes next."""
    is_quarantined: bool = False
    """Whether no table is to look at it again."""


NONE_YET: Final = Progress(0)
"""Nothing was tried."""


def parked(
    record: DeadLetterRecord,
    *,
    topic: str,
    partition: int,
    table: str,
    progress: Progress,
    now: int,
) -> OutputRecord:
    """The copy to park after a failed attempt.

    Args:
        record: The dead letter.
        topic: The handler's retry topic.
        partition: The partition of the source.
        table: Short hash of the table that decided.
        progress: How far it has come with the dead letter, this attempt included.
        now: Milliseconds; the time of the failed attempt.
    """
    waiting = _waiting_headers(record, table, progress)
    return OutputRecord(topic, record.key, record.value, waiting, now, partition)


def remaining(
    record: DeadLetterRecord,
    *,
    topic: str,
    partition: int,
    table: str,
    progress: Progress,
    now: int,
) -> OutputRecord:
    """The copy to keep of a dead letter that no rule can place; arguments as for ``parked``."""
    waiting = _waiting_headers(record, table, progress)
    if record.key is not None:
        waiting.append((own.KEY, record.key))
    if record.value is None:
        waiting.append((own.NULL, b"1"))
    value = record.value if record.value is not None else b""
    return OutputRecord(topic, record.origin.encode("ascii"), value, waiting, now, partition)


def fitted(record: DeadLetterRecord, most: int) -> DeadLetterRecord:
    """A dead letter with as much cut as lets a copy of it be written.

    Args:
        record: The dead letter.
        most: Bytes of the largest record that the copy's topic takes.
    """
    content = cuts.Content(record.key, record.value, record.headers, record.cut)
    return record._replace(**cuts.fitted(content, most)._asdict())


def tombstone(origin: str, *, topic: str, partition: int, now: int) -> OutputRecord:
    """The record that takes a remaining copy away once its message went elsewhere."""
    return OutputRecord(topic, origin.encode("ascii"), None, None, now, partition)


def _waiting_headers(record: DeadLetterRecord, table: str, progress: Progress) -> Headers:
    headers: Headers = [
        *record.headers,
        (own.ID, record.identity.encode("ascii")),
        (own.ORIGIN, record.origin.encode("ascii")),
        (own.TIMESTAMP, own.number(max(0, record.timestamp))),
        (own.HOPS, own.number(record.hops)),
        (own.FAILURES, own.number(progress.failures)),
        (own.TABLE, table.encode("ascii")),
    ]
    if record.cut:
        headers.append((own.CUT, record.cut.encode("ascii")))
    if progress.failed:
        headers.append((own.FAILED_RULES, own.failed_rules(progress.failed)))
    if progress.is_quarantined:
        headers.append((own.QUARANTINE, b"1"))
    return headers


def taken_back(
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    *,
    timestamp: int,
    mine: own.OwnHeaders,
    here: str,
) -> DeadLetterRecord:
    """The dead letter that a parked or remaining copy holds.

    Args:
        key: The record's own key.
        value: The record's own value.
        headers: The copy's headers without Redrive's own.
        timestamp: The copy's timestamp, in milliseconds, used when it carries no other.
        mine: Redrive's headers of the copy.
        here: ``topic:partition:offset`` of the copy, used when it carries no origin.
    """
    return DeadLetterRecord(
        key=key,
        value=value,
        headers=headers,
        timestamp=timestamp if mine.timestamp is None else mine.timestamp,
        identity=mine.identity or here,
        origin=mine.origin or here,
        hops=mine.hops,
        cut=mine.cut,
    )

"""The columns of the ledger, and one outcome record as a row of them (design 7).

The projection makes rows of all outcome records, the commands of the newest ones by themselves;
both by ``row_of``.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from redrive.messages import PATTERN_KEYWORDS
from redrive.messages.own_headers import incarnation_of

Row: TypeAlias = dict[str, Any]
"""One row of the ledger by column name."""


class Kind(StrEnum):
    """The type of a column, by its name in the Delta protocol."""

    TEXT = "string"
    INTEGER = "integer"
    LONG = "long"
    BYTES = "binary"
    TIME = "timestamp"
    DAY = "date"


class Column(NamedTuple):
    """One column."""

    name: str
    kind: Kind
    member: str
    """The member of the outcome record it is read from, ``fields.X`` for a nested one; empty for
    a column that is derived."""
    meaning: str


_NUMERIC_FIELDS: Final = frozenset({"APPLTYPE", "FEEDBACK", "MSGTYPE", "PERSIST", "REASON"})

COLUMNS: Final = (
    Column("time", Kind.TIME, "", "when the attempt was made"),
    Column("day", Kind.DAY, "", "UTC day of `time`; the table is partitioned by it"),
    Column("outcome", Kind.TEXT, "outcome", "`topic:partition:offset` of the record decided on"),
    Column("message", Kind.TEXT, "message", "identity of the message, kept over all its hops"),
    Column("message_offset", Kind.LONG, "", "the offset in `message`, for quick look-ups"),
    Column("origin", Kind.TEXT, "origin", "`topic:partition:offset` of the dead letter itself"),
    Column("source_topic", Kind.TEXT, "topic", "where the record was read: dead-letter queue,"
           " retry, remaining or replay topic"),
    Column("source_partition", Kind.INTEGER, "partition", "its partition"),
    Column("source_offset", Kind.LONG, "offset", "its offset"),
    Column("handler", Kind.TEXT, "handler", "name of the handler"),
    Column("queue_manager", Kind.TEXT, "queue_manager", "queue manager of the dead-letter queue"),
    Column("queue", Kind.TEXT, "queue", "the dead-letter queue"),
    Column("table_hash", Kind.TEXT, "table", "hash of the rules table that decided"),
    Column("rule_line", Kind.INTEGER, "rule_line", "line of the rule; 0 when none applied"),
    Column("action", Kind.TEXT, "action", "RETRY, FWD, DISCARD or IGNORE; empty without a rule"),
    Column("authority", Kind.TEXT, "authority", "PUTAUT of the rule: DEF or CTX"),
    Column("attempt", Kind.INTEGER, "attempt", "number of the attempt, from 1; 0 for none"),
    Column("result", Kind.TEXT, "result", "retried, forwarded, discarded, parked or remains;"
           " of a replay that changed nothing skipped or cancelled"),
    Column("reason", Kind.INTEGER, "reason", "why the attempt failed: MQ reason code; 0 if not"),
    Column("reason_name", Kind.TEXT, "reason_name", "its name, such as MQRC_Q_FULL"),
    Column("detail", Kind.TEXT, "detail", "what Kafka or the rules said about it"),
    Column("target_queue_manager", Kind.TEXT, "target_queue_manager", "where the put went"),
    Column("target_queue", Kind.TEXT, "target_queue", "where the put went"),
    Column("target_topic", Kind.TEXT, "target_topic", "where the put went; empty if it failed"),
    Column("form", Kind.TEXT, "form", "scheme of the dead letter; none: it is none of any scheme"),
    Column("hop", Kind.INTEGER, "hop", "how often Redrive had put the message before"),
    Column("body_size", Kind.LONG, "size", "bytes of the record's value"),
    Column("message_key", Kind.BYTES, "", "the record's key"),
    *(
        Column(
            f"field_{name.lower()}",
            Kind.INTEGER if name in _NUMERIC_FIELDS else Kind.TEXT,
            f"fields.{name}",
            f"pattern field {name}, normalised",
        )
        for name in PATTERN_KEYWORDS
    ),
    Column("job_version", Kind.TEXT, "job_version", "version of Redrive that decided"),
    Column("outcomes_partition", Kind.INTEGER, "", "partition of the outcome record"),
    Column("outcomes_offset", Kind.LONG, "", "its offset: the ledger holds each pair once"),
    Column("malformed", Kind.TEXT, "", "text of a record that is no outcome, or which outcomes were"
           " deleted before the ledger had them; else null"),
    Column("replay", Kind.TEXT, "replay", "the plan of a replay that asked for it; else null"),
    Column("operator", Kind.TEXT, "operator", "who applied that plan"),
    Column("purpose", Kind.TEXT, "purpose", "why, in their words"),
    Column("traceparent", Kind.TEXT, "traceparent", "the trace that the message belongs to, as its"
           " header of this name says (W3C Trace Context); else null"),
    Column("error_class", Kind.TEXT, "error_class", "the exception that the dead letter tells of,"
           " the innermost that it names; else null"),
    Column("consumer_group", Kind.TEXT, "consumer_group", "the group that could not process the"
           " message, as the dead letter tells; else null"),
    Column("source_incarnation", Kind.INTEGER, "incarnation", "which topic of the name"
           " `source_topic` it was: 2 once the topic was made anew; null in rows of earlier"
           " versions, whose `outcome` tells it"),
)  # fmt: skip
"""All columns, in their order."""

ADDED: Final = (
    "replay", "operator", "purpose", "traceparent", "error_class", "consumer_group",
    "source_incarnation",
)  # fmt: skip
"""Columns that a ledger of an earlier version lacks; they are the last ones, in their order."""

INCARNATION: Final = (
    "coalesce(source_incarnation,"
    " try_cast(split_part(split_part(outcome, '~', 2), ':', 1) AS INT), 1)"
)
"""The incarnation of the source place as SQL, also of rows that an earlier version wrote."""

STATISTICS: Final = ("time", "message_offset", "outcomes_partition", "outcomes_offset")
"""Columns with minimum and maximum per file: what look-ups skip files by. Few, because they
are computed with every append."""

REQUIRED: Final = ("outcome", "message", "origin", "handler", "result")
"""Members, beside ``time``, without which a record is no outcome."""

LAST_TIME: Final = 4_102_444_800_000
"""Milliseconds; a time from here on (the year 2100) is not believed. It keeps nonsense from
making partitions of its own."""

GONE: Final = "outcomes that were deleted before the ledger had them: "
"""How ``malformed`` begins in the row that stands for them, at the last offset that is missing."""

TEXT_LIMIT: Final = 10_000
"""Characters kept of a record that is no outcome."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS: Final = 19
"""From this many digits on a number may not fit a long."""
_BOUNDS: Final = {Kind.INTEGER: 2**31, Kind.LONG: 2**63}


def _members(prefix: str) -> tuple[tuple[str, str, int], ...]:
    """Name, member and bound (0: text) of the columns read from members with a prefix."""
    return tuple(
        (column.name, member, _BOUNDS.get(column.kind, 0))
        for column in COLUMNS
        for outer, _, member in (column.member.rpartition("."),)
        if member and outer == prefix
    )


_MEMBERS: Final = _members("")
_FIELDS: Final = _members("fields")
_EMPTY: Final[Row] = dict.fromkeys(column.name for column in COLUMNS)


def row_of(value: bytes | None, timestamp: int, partition: int, offset: int) -> Row:
    """One record of the outcomes topic as a row of the ledger.

    Args:
        value: The record's value.
        timestamp: Its timestamp in milliseconds, the time of a malformed record.
        partition: Its partition.
        offset: Its offset.

    Returns:
        The row. A record that is no outcome has its text in ``malformed`` and nothing else but
        its time and place.
    """
    row = _EMPTY.copy()
    record = _record(value)
    if record is None:
        row["malformed"] = (value or b"").decode(errors="replace")[:TEXT_LIMIT]
        row["time"], row["day"] = moment(timestamp), moment(timestamp).date()
    else:
        _fill(row, record)
    row["outcomes_partition"], row["outcomes_offset"] = partition, offset
    return row


def moment(milliseconds: int) -> datetime:
    """Milliseconds since the epoch as a time in UTC."""
    return _EPOCH + timedelta(milliseconds=milliseconds)


def _record(value: bytes | None) -> dict[str, Any] | None:
    """The JSON object of an outcome record, or None if it is none."""
    try:
        record = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) and _is_outcome(record) else None


def _is_outcome(record: Mapping[str, Any]) -> bool:
    """Whether every member has its column's type and the required ones are there."""
    time, fields = record.get("time"), record.get("fields") or {}
    return (
        type(time) is int
        and 0 <= time < LAST_TIME
        and isinstance(fields, dict)
        and all(type(record.get(name)) is str for name in REQUIRED)
        and _fit(_MEMBERS, record)
        and _fit(_FIELDS, fields)
    )


def _fit(columns: Iterable[tuple[str, str, int]], values: Mapping[str, Any]) -> bool:
    for _, member, bound in columns:
        value = values.get(member)
        # Not isinstance: true and false are no numbers here.
        if type(value) is str if not bound else type(value) is int and -bound <= value < bound:
            continue
        if value is not None:
            return False
    return True


def _fill(row: Row, record: Mapping[str, Any]) -> None:
    fields = record.get("fields") or {}
    for name, member, _ in _MEMBERS:
        row[name] = record.get(member)
    for name, member, _ in _FIELDS:
        row[name] = fields.get(member)
    row["time"] = time = moment(record["time"])
    row["day"] = time.date()
    row["message_key"] = _key(record.get("key"))
    if row["source_incarnation"] is None:  # an earlier version wrote it
        row["source_incarnation"] = incarnation_of(record["outcome"])
    offset = record["message"].rpartition(":")[2]
    if offset.isascii() and offset.isdigit() and len(offset) < _DIGITS:
        row["message_offset"] = int(offset)


def _key(text: object) -> bytes | None:
    try:
        return b64decode(text, validate=True) if type(text) is str else None
    except ValueError:
        return None

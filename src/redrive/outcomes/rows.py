"""One outcome record as a row of the ledger.

Both the projection and the commands, which read the newest outcomes themselves, use ``row_of``.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from redrive.engine.outcome import COLUMNS, FIELDS, LAST_TIME, MASKED, Kind
from redrive.masking import ERROR_MESSAGE, MASK, Mask
from redrive.messages.own_headers import incarnation_of

Values: TypeAlias = dict[str, Any]
"""One row of the answer to a query, by column name."""


class Row(NamedTuple):
    """One outcome by the columns of the ledger, in their order; ``Outcome`` says what they mean.

    What is None in no outcome of a job is None in the row of a record that is not an outcome, which
    ``malformed`` shows, and where a query leaves columns out.
    """

    time: datetime
    day: date
    outcome: str
    message: str
    message_offset: int | None
    origin: str
    source_topic: str
    source_partition: int
    source_offset: int
    handler: str
    queue_manager: str
    queue: str
    table_hash: str
    rule_line: int
    action: str
    authority: str
    attempt: int
    result: str
    reason: int
    reason_name: str
    detail: str
    target_queue_manager: str
    target_queue: str
    target_topic: str
    form: str
    hop: int | None
    body_size: int | None
    message_key: bytes | None
    field_applidat: str | None
    field_applname: str | None
    field_appltype: int | None
    field_destq: str | None
    field_destqm: str | None
    field_feedback: int | None
    field_format: str | None
    field_msgtype: int | None
    field_persist: int | None
    field_reason: int | None
    field_replyq: str | None
    field_replyqm: str | None
    field_userid: str | None
    job_version: str
    outcomes_partition: int
    outcomes_offset: int
    malformed: str | None
    replay: str | None
    operator: str | None
    purpose: str | None
    traceparent: str | None
    error_class: str | None
    consumer_group: str | None
    source_incarnation: int | None
    edit: str | None
    failed_record: str | None
    error_message: str | None
    failed_at: datetime | None
    record_time: datetime | None

    @property
    def pattern_fields(self) -> dict[str, str | int]:
        """The pattern fields, by keyword, as rules match them."""
        pairs = zip(FIELDS, _field_values(self), strict=True)
        return {keyword: value for keyword, value in pairs if value is not None}

    def masked(self, mask: Mask) -> Row:
        """The same outcome without secrets."""
        masked = {name: mask.plain(getattr(self, name)) for name in MASKED}
        if self.error_message is not None and self.form in mask.silent_schemes:
            masked[ERROR_MESSAGE] = MASK
        return self._replace(**masked)


INCARNATION: Final = (
    "coalesce(source_incarnation,"
    " try_cast(split_part(split_part(outcome, '~', 2), ':', 1) AS INT), 1)"
)
"""The incarnation of the source position as SQL, also for rows of an earlier version."""

_REQUIRED: Final = ("outcome", "message", "origin", "handler", "result")
"""Members, besides ``time``, that every outcome has."""

GONE: Final = "outcomes that were deleted before the ledger had them: "
"""The prefix of ``malformed`` in the row for them, at the last missing offset."""

TEXT_LIMIT: Final = 10_000
"""Characters to keep of a record that is not an outcome."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS: Final = 19
"""Numbers with this many digits may not fit a long."""
_BOUNDS: Final = {
    Kind.TEXT: 0, Kind.INTEGER: 2**31, Kind.LONG: 2**63, Kind.TIME: LAST_TIME
}  # fmt: skip
"""The bound of numbers that fit, by type of columns that are read as they are; a time is a number
of milliseconds."""


def _members(prefix: str) -> tuple[tuple[str, str, int], ...]:
    """Column, member and bound (0: text) of the columns read from members with a prefix."""
    return tuple(
        (column.name, member, _BOUNDS[column.kind])
        for column in COLUMNS
        for outer, _, member in (column.member.rpartition("."),)
        if member and outer == prefix and column.kind in _BOUNDS
    )


_MEMBERS: Final = _members("")
_FIELDS: Final = _members("fields")
_TIMES: Final = tuple(column.name for column in COLUMNS if column.kind is Kind.TIME)
_EMPTY: Final[Values] = dict.fromkeys(Row._fields)

FIELD_COLUMNS: Final = tuple(name for name, _, _ in _FIELDS)
"""The columns of the pattern fields, in their order."""
_field_values: Final = attrgetter(*FIELD_COLUMNS)


def row_of(value: bytes | None, timestamp: int, partition: int, offset: int) -> Row:
    """One record of the outcomes topic as a row of the ledger.

    A record that is not an outcome has its text in ``malformed``, and otherwise only its position
    and its timestamp in milliseconds.
    """
    values = _EMPTY.copy()
    record = _record(value)
    if record is None:
        values["malformed"] = (value or b"").decode(errors="replace")[:TEXT_LIMIT]
        values["time"], values["day"] = moment(timestamp), moment(timestamp).date()
    else:
        _fill(values, record)
    values["outcomes_partition"], values["outcomes_offset"] = partition, offset
    return Row._make(values.values())


def moment(milliseconds: int) -> datetime:
    """Milliseconds since the epoch as a time in UTC."""
    return EPOCH + timedelta(milliseconds=milliseconds)


def _record(value: bytes | None) -> dict[str, Any] | None:
    try:
        record = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) and _is_outcome(record) else None


def _is_outcome(record: Mapping[str, Any]) -> bool:
    time, fields = record.get("time"), record.get("fields") or {}
    return (
        type(time) is int
        and 0 <= time < LAST_TIME
        and isinstance(fields, dict)
        and all(type(record.get(name)) is str for name in _REQUIRED)
        and _fit(_MEMBERS, record)
        and _fit(_FIELDS, fields)
    )


def _fit(columns: Iterable[tuple[str, str, int]], values: Mapping[str, Any]) -> bool:
    for _, member, bound in columns:
        value = values.get(member)
        # Not isinstance: true and false are not numbers here.
        if type(value) is str if not bound else type(value) is int and -bound <= value < bound:
            continue
        if value is not None:
            return False
    return True


def _fill(values: Values, record: Mapping[str, Any]) -> None:
    fields = record.get("fields") or {}
    for name, member, _ in _MEMBERS:
        values[name] = record.get(member)
    for name, member, _ in _FIELDS:
        values[name] = fields.get(member)
    for name in _TIMES:
        values[name] = None if values[name] is None else moment(values[name])
    values["day"] = values["time"].date()
    values["message_key"] = _key(record.get("key"))
    if values["source_incarnation"] is None:  # an earlier version wrote it
        values["source_incarnation"] = incarnation_of(record["outcome"])
    offset = record["message"].rpartition(":")[2]
    if offset.isascii() and offset.isdigit() and len(offset) < _DIGITS:
        values["message_offset"] = int(offset)


def _key(text: object) -> bytes | None:
    try:
        return b64decode(text, validate=True) if type(text) is str else None
    except ValueError:
        return None

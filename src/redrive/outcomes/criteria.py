"""Criteria for outcomes, as SQL for the table and as a test of single rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from redrive.outcomes.rows import Row
from redrive.outcomes.table import sql_text

_Condition: TypeAlias = tuple[str, Callable[[Row], bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """Criteria for outcomes; unset ones match everything."""

    message: str = ""
    """Identity of the message."""
    record: str = ""
    """``topic:partition:offset`` of the dead letter, or of the copy that was decided on."""
    key: bytes | None = None
    """The record's key."""
    reason: int | None = None
    """Reason code, of the failed attempt or in the dead-letter header."""
    result: str = ""
    """Result of the attempt."""
    since: datetime | None = None
    """The earliest time."""

    def where(self) -> str:
        """The criteria as the WHERE clause of a query on the ledger."""
        return "WHERE " + " AND ".join(condition for condition, _ in self._conditions())

    def matches(self, row: Row) -> bool:
        """Whether a row matches the criteria."""
        return all(holds(row) for _, holds in self._conditions())

    def _conditions(self) -> Iterator[_Condition]:
        yield "malformed IS NULL", lambda row: row.malformed is None
        if self.message:
            yield self._message()
        if self.record:
            record = sql_text(self.record)
            yield (
                f"(origin = {record} OR outcome = {record})",
                lambda row: self.record in (row.origin, row.outcome),
            )
        if self.key is not None:
            yield f"message_key = X'{self.key.hex()}'", lambda row: row.message_key == self.key
        if self.reason is not None:
            yield (
                f"(reason = {self.reason} OR field_reason = {self.reason})",
                lambda row: self.reason in (row.reason, row.field_reason),
            )
        if self.result:
            yield f"result = {sql_text(self.result)}", lambda row: row.result == self.result
        if self.since is not None:
            yield _since(self.since)

    def _message(self) -> _Condition:
        # The number allows the reader to skip files and pages, unlike the text.
        offset = self.message.rpartition(":")[2]
        quick = f"message_offset = {int(offset)} AND " if offset.isdecimal() else ""
        return (
            f"{quick}message = {sql_text(self.message)}",
            lambda row: row.message == self.message,
        )


def _since(earliest: datetime) -> _Condition:
    # The day allows the reader to skip whole folders.
    day = f"day >= DATE '{earliest.astimezone(UTC):%Y-%m-%d}'"
    return f"{day} AND {time_from(earliest)}", lambda row: row.time >= earliest


def time_from(earliest: datetime, column: str = "time") -> str:
    """The condition, as SQL, that an outcome is not older than a time."""
    return f"{column} >= TIMESTAMP '{earliest.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z'"

"""Selections of outcomes, and of dead letters by their last outcome, as SQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeAlias

from redrive.engine.outcome import Result
from redrive.masking import NO_MASK, Mask
from redrive.outcomes.conditions import engine_condition
from redrive.outcomes.open_letters import OPEN
from redrive.outcomes.rows import Row
from redrive.outcomes.table import sql_text
from redrive.rules import Action

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
    """The earliest time of the outcome."""

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
        if (since := self.since) is not None:
            # The day allows the reader to skip whole folders.
            day = f"day >= DATE '{since.astimezone(UTC):%Y-%m-%d}'"
            yield f"{day} AND {time_from(since)}", lambda row: row.time >= since

    def _message(self) -> _Condition:
        # The number allows the reader to skip files and pages, unlike the text.
        offset = self.message.rpartition(":")[2]
        quick = f"message_offset = {int(offset)} AND " if offset.isdecimal() else ""
        return (
            f"{quick}message = {sql_text(self.message)}",
            lambda row: row.message == self.message,
        )


def time_from(earliest: datetime, column: str = "time") -> str:
    """The condition, as SQL, that a column of an outcome is not before a time."""
    return f"{column} >= TIMESTAMP '{earliest.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z'"


FAILED: Final = "coalesce(failed_at, first_time)"
"""When a dead letter failed, as SQL over ``letters``: lists, groups and ages go by it. Where only
an earlier version has decided, it is the time of the first decision."""
QUARANTINED: Final = f"action = {sql_text(Action.QUARANTINE.value)}"
"""Whether a remaining message is quarantined: no table evaluates it again."""
HELD: Final = f"(result = {sql_text(Result.PARKED)} AND attempt = 0)"
"""Whether a message waits behind an earlier one of its key; others are parked after an attempt."""


class State(StrEnum):
    """State of a dead letter."""

    OPEN = "open"
    """Parked or remaining: not settled, and not in quarantine."""
    PARKED = "parked"
    HELD = "held"
    """Parked behind an earlier message of its key (ORDER(KEY))."""
    REMAINING = "remaining"
    QUARANTINED = "quarantined"
    RETRIED = "retried"
    FORWARDED = "forwarded"
    DISCARDED = "discarded"
    ALL = "all"

    @property
    def results(self) -> tuple[Result, ...]:
        """The last results of dead letters in this state."""
        return _RESULTS[self]


_FINAL: Final = (Result.RETRIED, Result.FORWARDED, Result.DISCARDED)
_RESULTS: Final[Mapping[State, tuple[Result, ...]]] = {
    State.OPEN: OPEN,
    State.PARKED: (Result.PARKED,),
    State.HELD: (Result.PARKED,),
    State.REMAINING: (Result.REMAINS,),
    State.QUARANTINED: (Result.REMAINS,),
    State.RETRIED: (Result.RETRIED,),
    State.FORWARDED: (Result.FORWARDED,),
    State.DISCARDED: (Result.DISCARDED,),
    State.ALL: (*OPEN, *_FINAL),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A selection of dead letters, by their last outcome."""

    state: State = State.OPEN
    message: str = ""
    """Identity of one message, or of its dead letter; it may be in quarantine."""
    reason: int | None = None
    """Reason code, of the last failed attempt or in the dead-letter header."""
    destination: str | None = None
    """DESTQ, the queue that the message was meant for."""
    rule: int | None = None
    """Line of the last applied rule."""
    handler: str | None = None
    key: bytes | None = None
    """The record's key."""
    since: datetime | None = None
    """The earliest time of the failure."""
    before: datetime | None = None
    """The time that the failure has to be older than."""
    looked_since: datetime | None = None
    """The earliest time of the last outcome, by when Redrive looked at the message."""
    where: str = ""
    """A condition in SQL over the columns of the ledger."""
    body: str = ""
    """A comparison of a JSON value in the body."""
    body_text: str = ""
    """A text in the body."""
    messages: frozenset[str] | None = None
    """Identities of those whose bodies matched, once they were read; None for all."""

    @property
    def is_about_bodies(self) -> bool:
        """Whether bodies have to be read before it can be a condition in SQL."""
        return bool(self.body or self.body_text)

    @property
    def is_narrowed(self) -> bool:
        """Whether it has criteria other than the state."""
        return self != Selection(state=self.state)

    @property
    def leaves_out_quarantined(self) -> bool:
        """Whether matching quarantined messages are left out."""
        return self.state in {State.OPEN, State.REMAINING} and not self.message

    def conditions(self, mask: Mask = NO_MASK) -> Iterator[str]:
        """The conditions in SQL, all of which must hold; ``where`` is over masked columns.

        Raises:
            UsageError: ``where`` is not a valid condition.
        """
        assert not self.is_about_bodies, "bodies are read before"
        results = ", ".join(sql_text(result.value) for result in self.state.results)
        yield f"result IN ({results})"
        if self.state is State.HELD:
            yield HELD
        elif self.state is State.QUARANTINED:
            yield QUARANTINED
        elif self.leaves_out_quarantined:
            yield f"NOT {QUARANTINED}"
        if self.reason is not None:
            yield f"(reason = {self.reason} OR field_reason = {self.reason})"
        if self.message:
            yield f"(message = {sql_text(self.message)} OR origin = {sql_text(self.message)})"
        for column, value in (
            ("field_destq", None if self.destination is None else sql_text(self.destination)),
            ("handler", None if self.handler is None else sql_text(self.handler)),
            ("rule_line", self.rule),
            ("message_key", None if self.key is None else f"X'{self.key.hex()}'"),
        ):
            if value is not None:
                yield f"{column} = {value}"
        yield from self._times()
        if self.messages is not None:
            # One literal: a list of some ten thousand ends the process.
            names = sql_text(" ".join(sorted(self.messages)))
            yield f"message IN (SELECT unnest(string_to_array({names}, ' ')))"
        if self.where:
            yield f"({engine_condition(self.where, mask)})"

    def _times(self) -> Iterator[str]:
        if self.since is not None:
            # No outcome is before the failure: the second condition allows skipping files.
            yield f"{time_from(self.since, FAILED)} AND {time_from(self.since)}"
        if self.before is not None:
            yield f"NOT ({time_from(self.before, FAILED)})"
        if self.looked_since is not None:
            yield time_from(self.looked_since)

"""A selection of dead letters, by their state and their last outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from redrive.engine.outcome import Result
from redrive.masking import NO_MASK, Mask
from redrive.outcomes.conditions import engine_condition
from redrive.outcomes.criteria import time_from
from redrive.outcomes.open_letters import OPEN
from redrive.outcomes.table import sql_text
from redrive.rules import Action

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
    """The earliest time of the last outcome."""
    before: datetime | None = None
    """The time that the last outcome has to be older than."""
    where: str = ""
    """A condition in SQL over the columns of the ledger."""

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
        if self.where:
            yield f"({engine_condition(self.where, mask)})"

    def _times(self) -> Iterator[str]:
        if self.since is not None:
            yield time_from(self.since)
        if self.before is not None:
            yield f"NOT ({time_from(self.before)})"

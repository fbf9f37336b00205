"""New dead letters by cause, counted from the ledger.

Each count continues where the last one ended, so only new rows are read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from redrive.messages import NO_VALID_SCHEME
from redrive.messages.constants import reason_name
from redrive.outcomes.open_letters import newer_than
from redrive.outcomes.table import sql_text

if TYPE_CHECKING:
    from redrive.outcomes.rows import Row
    from redrive.outcomes.table import LedgerTable

_INVALID: Final = "no valid dead-letter header"
_COLUMNS: Final = "handler, form, error_class, field_reason, field_destq, consumer_group"


@dataclass(frozen=True, slots=True)
class Cause:
    """New dead letters with one cause."""

    handler: str
    cause: str
    """The exception in their headers, else the name of the reason, such as ``MQRC_Q_FULL``."""
    destination: str
    """DESTQ: the topic or queue that they were meant for."""
    group: str
    """The consumer group that could not process them; empty if unknown."""
    count: int
    first: float
    """When the first of them was decided, in seconds since 1970."""

    @classmethod
    def of(cls, row: Row) -> Self:
        """A cause as the engine counted it."""
        reason = row["field_reason"]
        cause = row["error_class"] or (reason and reason_name(reason)) or str(reason or 0)
        return cls(
            handler=row["handler"],
            cause=_INVALID if row["form"] == NO_VALID_SCHEME else cause,
            destination=row["field_destq"] or "",
            group=row["consumer_group"] or "",
            count=row["n"],
            first=row["first"].timestamp(),
        )


class CauseCounter:
    """Counts the dead letters of a ledger, each once."""

    def __init__(self) -> None:
        self._positions: Mapping[int, int] = {}

    def count_new(self, ledger: LedgerTable, handlers: Collection[str]) -> list[Cause]:
        """The dead letters since the last call, the most frequent causes first.

        The first call counts the whole ledger; a later one must not have an older version of it.
        ``handlers`` are those to count, since puts are also in the ledger.

        Raises:
            EnvironmentFault: The ledger cannot be read.
        """
        if not handlers:
            return []
        names = ", ".join(map(sql_text, sorted(handlers)))
        rows = ledger.rows(
            f"WHERE outcome = origin AND malformed IS NULL AND handler IN ({names})"
            f" AND {newer_than(self._positions)}"
            f" GROUP BY {_COLUMNS} ORDER BY n DESC",
            columns=f"{_COLUMNS}, count(*) n, min(time) first",
        )
        self._positions = ledger.positions()
        return [*map(Cause.of, rows)]

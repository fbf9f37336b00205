"""New dead letters by cause, and repeated ones, counted from the ledger.

A consumer that dies between writing a dead letter and committing its offset processes the record
again, and writes another one. Each count continues where the last one ended: only new rows are
read, and for repeated dead letters those of the last day.
"""

# ruff: noqa: S608 - queries are read only, and names are quoted

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Self

from redrive.messages import NO_VALID_SCHEME
from redrive.messages.constants import reason_name
from redrive.outcomes.open_letters import newer_than
from redrive.outcomes.selection import time_from
from redrive.outcomes.table import sql_text

if TYPE_CHECKING:
    from redrive.outcomes.rows import Values
    from redrive.outcomes.table import LedgerTable

_INVALID: Final = "no valid dead-letter header"
_COLUMNS: Final = "handler, form, error_class, field_reason, field_destq, consumer_group"
_RECORD: Final = "handler, consumer_group, failed_record, hop"
"""What two dead letters of one failed record have in common; retries are other records."""
_SPAN: Final = timedelta(days=1)
"""Maximum time between two dead letters of one record: earlier rows are not searched."""


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
    def of(cls, row: Values) -> Self:
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


class RepeatCounter:
    """Counts the dead letters about a record that an earlier one of the last day is about.

    Args:
        since: Older dead letters do not count, but those that repeat them do.
    """

    def __init__(self, since: datetime) -> None:
        self._since = since
        self._positions: Mapping[int, int] = {}

    def count_new(
        self, ledger: LedgerTable, handlers: Collection[str], now: datetime
    ) -> Mapping[str, int]:
        """The number by handler since the last call; arguments and errors as for ``CauseCounter``.

        Two groups that fail on one record do not repeat each other.
        """
        if not handlers:
            return {}
        names = ", ".join(map(sql_text, sorted(handlers)))
        is_new = f"{time_from(self._since)} AND {newer_than(self._positions)}"
        decided = (
            f"SELECT {_RECORD}, origin, {is_new} is_new FROM ledger WHERE outcome = origin"
            f" AND failed_record IS NOT NULL AND handler IN ({names}) AND {time_from(now - _SPAN)}"
        )
        rows = ledger.answer(
            f"WITH decided AS ({decided}), records AS (SELECT {_RECORD}, count(DISTINCT origin) n,"
            " count(DISTINCT CASE WHEN NOT is_new THEN origin END) earlier FROM decided"
            " WHERE failed_record IN (SELECT failed_record FROM decided WHERE is_new)"
            f" GROUP BY {_RECORD}) SELECT handler, sum(n - greatest(earlier, 1)) n FROM records"
            " WHERE n > 1 GROUP BY handler"
        )
        self._positions = ledger.positions()
        return {row["handler"]: row["n"] for row in rows if row["n"]}

"""The dead letters of a job and their present states, by SQL over the ledger.

The engine is that of ``deltalake`` (DataFusion): it reads Delta, starts at once, and needs no other
library. Outcomes that are not yet in the ledger are added as a small Delta table, so that one query
sees both.
"""

# ruff: noqa: S608 - queries are read only; what users give is quoted, or meant to be SQL

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias

from redrive.configuration import LedgerFolder
from redrive.engine.outcome import FIELDS, UNTOUCHED, Result
from redrive.errors import EnvironmentFault, UsageError
from redrive.masking import NO_MASK, Mask
from redrive.messages import NO_VALID_SCHEME, DeadLetterProfile
from redrive.outcomes.acknowledgements import Acknowledgement, acknowledged
from redrive.outcomes.conditions import condition_error
from redrive.outcomes.open_letters import (
    CHANGED,
    OPEN,
    OpenLetters,
    changed_letters,
    every_outcome,
    last_outcomes,
)
from redrive.outcomes.row_messages import profile_of
from redrive.outcomes.rows import FIELD_COLUMNS, Row, Values
from redrive.outcomes.selection import FAILED, HELD, QUARANTINED, Selection, State, time_from
from redrive.outcomes.table import (
    Columns,
    LedgerTable,
    arrow_of,
    rows_of,
    sql_text,
    values_of,
)
from redrive.rules import Action

if TYPE_CHECKING:
    from redrive.outcomes.ledger import Ledger

__all__ = [
    "PLACES", "Engine", "Group", "Inventory", "Listing", "Selection", "Standing", "State",
    "state_of",
]  # fmt: skip

Engine: TypeAlias = Callable[[str], Iterable[Values]]
"""Answers a SQL query, row by row."""

_REASON: Final = f"CASE WHEN form = {sql_text(NO_VALID_SCHEME)} THEN NULL ELSE field_reason END"
_CAUSES: Final = ("field_destq", "field_applname", "error_class", "consumer_group", "reason_name")
_GROUPED: Final = ("handler", _REASON, *_CAUSES)
_causes_of: Final = attrgetter(*_CAUSES)
_REPEATED: Final = "count({0}) - count(DISTINCT {0})".format("failed_record || ' ' || hop")


PLACES: Final = (
    "handler", "outcome", "origin", "message", "message_key", "body_size", "table_hash", "form",
    "attempt", "result", "rule_line", "hop", "reason", "reason_name", "time", "error_class",
    "consumer_group", *FIELD_COLUMNS,
)  # fmt: skip
"""Columns of the ledger for a replay plan."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Some dead letters."""

    letters: Sequence[Row]
    """The last outcome of each, the newest failure first."""
    total: int
    """How many there are in total."""
    acknowledged: frozenset[str] = frozenset()
    """Identities of acknowledged ones."""


class Places(NamedTuple):
    """The dead letters of a plan."""

    rows: Sequence[Row]
    """Their last outcomes by the columns ``PLACES``, the earliest failure first."""
    replays: Mapping[str, int]
    """The number of earlier replays that put it, by origin, for those that have some."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The dead letters of one handler in one state."""

    count: int = 0
    invalid: int = 0
    """Those without a valid dead-letter header."""
    since: float | None = None
    """Time of the earliest first decision among them, in seconds since 1970; None if unknown."""
    held: int = 0
    """Parked ones that wait behind an earlier one of their key."""
    acknowledged: int = 0
    """Remaining ones that an operator acknowledged."""
    unacknowledged_since: float | None = None
    """Like ``since``, for unacknowledged ones; None if there are none."""
    oldest: datetime | None = None
    """When the earliest of them failed; None if there are none."""


def state_of(row: Row) -> str:
    """The state of a dead letter after its last outcome."""
    if row.result == Result.REMAINS and row.action == Action.QUARANTINE:
        return State.QUARANTINED
    if row.result == Result.PARKED and not row.attempt:
        return State.HELD
    return row.result


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Dead letters with one cause."""

    handler: str
    reason: int | None
    """Why they are dead letters; None without a valid dead-letter header."""
    destination: str
    """DESTQ."""
    application: str
    """APPLNAME, the application that first put them."""
    error_class: str
    """The exception in their headers; empty if there is none."""
    consumer_group: str
    """The consumer group that could not process them; empty if unknown."""
    failure: str
    """Why the last attempt failed; empty if there was no failure."""
    count: int
    first: datetime
    """Time of the earliest failure."""
    last: datetime
    """Time of the latest."""
    example: str
    """Identity of one of the messages."""
    acknowledged: int = 0
    """Those that an operator acknowledged."""
    repeated: int = 0
    """Those about a record that another one of the group is about too, less one for each record:
    its consumer failed on it twice, and wrote two dead letters."""

    def condition(self) -> str:
        """The group as a condition in SQL, for ``Selection.where``."""
        return _in_group(
            self.handler, self.reason, self.destination, self.application, self.error_class,
            self.consumer_group, self.failure,
        )  # fmt: skip

    @classmethod
    def of(cls, row: Values) -> Self:
        """A group from a row of the engine."""
        return cls(
            handler=row["handler"] or "",
            reason=row["cause"],
            destination=row["field_destq"] or "",
            application=row["field_applname"] or "",
            error_class=row["error_class"] or "",
            consumer_group=row["consumer_group"] or "",
            failure=row["reason_name"] or "",
            count=row["n"],
            first=row["first"],
            last=row["last"],
            example=row["example"],
            acknowledged=row["acknowledged"],
            repeated=row["repeated"],
        )


class Inventory:
    """The dead letters of a job at one moment. A context: it keeps a small table while open.

    Args:
        ledger: The ledger, and the outcomes that are not yet in it.
        acknowledgements: Those in effect.
        mask: Hides text from conditions.
    """

    def __init__(
        self,
        ledger: Ledger,
        acknowledgements: Sequence[Acknowledgement] = (),
        mask: Mask = NO_MASK,
    ) -> None:
        self._mask = mask
        self._folder = tempfile.TemporaryDirectory(prefix="redrive-outcomes-")
        self.size = 0
        """Bytes of the ledger's files."""
        self._known = None if ledger.table is None else OpenLetters.of(ledger.table)
        recorded = {} if self._known is None else {"known": self._known.table}
        tail = {}
        if ledger.table is None or ledger.tail:  # each table slows every query down
            tail = {"tail": LedgerTable.of_rows(Path(self._folder.name), arrow_of(ledger.tail))}
        self.tables: Mapping[str, LedgerFolder]
        """Folder of each Delta table that holds outcomes, by its name in queries."""
        if ledger.table is None:
            self._engine = tail["tail"]
            self.tables = {"ledger": self._engine.path}
        else:
            self._engine = ledger.table.beside(**tail, **recorded)
            self.tables = {"ledger": ledger.table.path} | {name: tail[name].path for name in tail}
            self.size = ledger.table.bytes
        self._sources = [*self.tables]
        self._knows_changed = False
        self._acknowledged = acknowledged(filter(self._is_sound, acknowledgements), mask)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def letters(self, selection: Selection, *, limit: int, skipped: int = 0) -> Listing:
        """Dead letters by their last outcome, the newest failure first.

        Raises:
            UsageError: The engine does not understand ``where``.
            EnvironmentFault: The ledger can't be read.
        """
        # A window keeps all rows in memory: few for open dead letters, millions for others.
        is_small = set(selection.state.results) <= set(OPEN)
        # Few columns first: the others are read only for the shown rows.
        places = self._answer(
            selection,
            lambda where: (
                "SELECT outcomes_partition p, outcomes_offset o,"
                f" {'count(*) OVER ()' if is_small else f'(SELECT count(*) FROM letters {where})'}"
                f" n, {self._acknowledged} acknowledged FROM letters {where}"
                f" ORDER BY {FAILED} DESC, o DESC, p DESC LIMIT {limit} OFFSET {skipped}"
            ),
        )
        if not places:
            return Listing((), self.count(selection) if skipped else 0)
        # Also from other partitions: planning a condition for each row takes longer than reading
        # them.
        offsets = ", ".join({str(place["o"]) for place in places})
        rows = self._engine.outcomes(
            f"{self._outcomes()} SELECT * FROM outcomes WHERE outcomes_offset IN ({offsets})"
        )
        by_place = {(row.outcomes_partition, row.outcomes_offset): row for row in rows}
        letters = [by_place[place["p"], place["o"]] for place in places]
        pairs = zip(letters, places, strict=True)
        acknowledged_ones = {letter.message for letter, place in pairs if place["acknowledged"]}
        return Listing(letters, places[0]["n"], frozenset(acknowledged_ones))

    def count(self, selection: Selection) -> int:
        """The number of dead letters; raises ``EnvironmentFault`` and ``UsageError``."""
        [row] = self._answer(selection, lambda where: f"SELECT count(*) n FROM letters {where}")
        return int(row["n"])

    def stories(self, messages: Sequence[str]) -> Mapping[str, Sequence[Row]]:
        """All outcomes of at least one message, in order; raises ``EnvironmentFault``."""
        # Numbers allow the reader to skip files and pages, unlike texts.
        numbers = ", ".join({message.rpartition(":")[2] for message in messages})
        names = ", ".join(map(sql_text, messages))
        stories: dict[str, list[Row]] = {}
        for row in self._engine.outcomes(
            f"{self._outcomes()} SELECT * FROM outcomes WHERE message_offset IN ({numbers})"
            f" AND message IN ({names}) ORDER BY time, outcomes_offset"
        ):
            stories.setdefault(row.message, []).append(row)
        return stories

    def places(self, selection: Selection, *, limit: int | None) -> Places:
        """The dead letters of a plan; errors as for ``letters``."""
        columns = ", ".join(f"l.{name} {name}" for name in PLACES)
        most = "" if limit is None else f" LIMIT {limit}"
        without_put = ", ".join(map(sql_text, sorted({*UNTOUCHED, Result.DISCARDED})))
        answer = self._columns_of(
            selection,
            lambda where: (
                f", chosen AS (SELECT message_offset, {FAILED} failed, {', '.join(PLACES)}"
                f" FROM letters {where}),"
                " tried AS (SELECT origin, count(*) n FROM outcomes WHERE replay IS NOT NULL"
                " AND attempt > 0"
                f" AND result NOT IN ({without_put}) GROUP BY origin)"
                f" SELECT {columns}, coalesce(t.n, 0) replays FROM chosen l"
                " LEFT JOIN tried t ON l.origin = t.origin"
                f" ORDER BY l.failed, l.message_offset, l.message{most}"
            ),
        )
        rows = rows_of(answer)
        replays = zip(answer["origin"], answer["replays"], strict=True)
        return Places(rows, {origin: number for origin, number in replays if number})

    def replayed(self) -> dict[str, dict[str, int]]:
        """The number of messages by result of each replay; raises ``EnvironmentFault``.

        Returns:
            Results with their counts, by plan id.
        """
        rows = self._engine.answer(
            f"{self._outcomes()} SELECT replay, result, count(*) n FROM outcomes"
            " WHERE replay IS NOT NULL GROUP BY replay, result ORDER BY replay, result"
        )
        counts: dict[str, dict[str, int]] = {}
        for row in rows:
            counts.setdefault(row["replay"], {})[row["result"]] = row["n"]
        return counts

    def applied(self, moved: Mapping[tuple[str, str], Sequence[datetime]]) -> Sequence[Values]:
        """How often rules were applied; raises ``EnvironmentFault``.

        Args:
            moved: By handler and table (``table_hash``), the times at which its rules moved to
            other
                lines, in ascending order.

        Returns:
            Rows with ``handler``, ``table_hash``, ``rule_line``, ``layout`` (how many of the times
            had passed), the number ``n`` and the time ``last``.
        """
        cases = " ".join(
            f"WHEN handler = {sql_text(handler)} AND table_hash = {sql_text(table)}"
            f" AND {time_from(times[number - 1])} THEN {number}"
            for (handler, table), times in moved.items()
            for number in range(len(times), 0, -1)
        )
        # A literal 0 to group by would be a column number.
        layout = f"CASE {cases} ELSE 0 END" if cases else "CAST(0 AS BIGINT)"
        return self._engine.answer(
            f"{self._outcomes()} SELECT handler, table_hash, rule_line, {layout} layout,"
            " count(*) n, max(time) last FROM outcomes WHERE rule_line > 0"
            " GROUP BY handler, table_hash, rule_line, layout"
        )

    def groups(self, selection: Selection, *, limit: int) -> tuple[Sequence[Group], int]:
        """Dead letters by cause, the most frequent first; errors as for ``letters``.

        Returns:
            The groups, and the number of dead letters in all groups.
        """
        rows = self._answer(
            selection,
            lambda where: (
                f"SELECT handler, {_REASON} cause,"
                f" {', '.join(_CAUSES)}, count(*) n,"
                f" {_REPEATED} repeated,"
                f" min({FAILED}) first, max({FAILED}) last, max(message) example,"
                f" count(CASE WHEN {self._acknowledged} THEN 1 END) acknowledged,"
                " sum(count(*)) OVER () total"
                f" FROM letters {where} GROUP BY {', '.join(_GROUPED)}"
                f" ORDER BY n DESC, last DESC, example LIMIT {limit}"
            ),
        )
        return [*map(Group.of, rows)], rows[0]["total"] if rows else 0

    def held(self, selection: Selection, firsts: Mapping[str, int]) -> Sequence[Values]:
        """How many dead letters are still on their topics; errors as for ``letters``.

        Args:
            selection: Which dead letters.
            firsts: The first offset that each ``topic:partition`` of origins still has.

        Returns:
            Rows with ``handler``, ``place`` (the ``topic:partition``), the number ``n``, how many
            of them are ``held``, and the ``first`` offset of those, None without any.
        """
        known = " ".join(f"WHEN {sql_text(place)} THEN {at}" for place, at in firsts.items())
        first = f"CASE place {known} END" if known else "CAST(NULL AS BIGINT)"
        return self._answer(
            selection,
            lambda where: (
                f", places AS (SELECT handler, CAST(split_part(origin, ':', 3) AS BIGINT) at,"
                " split_part(origin, ':', 1) || ':' || split_part(origin, ':', 2) place"
                f" FROM letters {where})"
                f" SELECT handler, place, count(*) n, count(CASE WHEN at >= {first} THEN 1 END)"
                f" held, min(CASE WHEN at >= {first} THEN at END) first"
                " FROM places GROUP BY handler, place ORDER BY handler, place"
            ),
        )

    def arrivals(
        self, selection: Selection, since: datetime, seconds: float, *, column: str = ""
    ) -> Iterator[tuple[str, int, int]]:
        """When the dead letters of each group failed; errors as for ``letters``.

        Time is divided into parts of ``seconds`` from ``since`` on; earlier ones count in the
        first.

        Yields:
            The condition of a group, or the text in ``column``, which is then what they are grouped
            by; a part (from 0); and the number of dead letters.
        """
        part = f"floor((date_part('epoch', {FAILED}) - {since.timestamp()}) / {seconds})"
        columns = column or f"handler, {_REASON} cause, {', '.join(_CAUSES)}"
        for row in self._answer(
            selection,
            lambda where: (
                f"SELECT {columns}, greatest(0, CAST({part} AS BIGINT)) part, count(*) n"
                f" FROM letters {where} GROUP BY {column or ', '.join(_GROUPED)}, part"
            ),
        ):
            if column:
                yield row[column] or "", row["part"], row["n"]
                continue
            causes = (row[name] or "" for name in _CAUSES)
            yield _in_group(row["handler"] or "", row["cause"], *causes), row["part"], row["n"]

    def values(self, selection: Selection, column: str, start: str, *, limit: int) -> list[str]:
        """The values of a column of the ledger that start with a text, the most frequent first.

        Errors as for ``letters``.
        """
        rows = self._answer(
            selection,
            lambda where: (
                f"SELECT {column} v, count(*) n FROM letters {where}"
                f" AND starts_with({column}, {sql_text(start)}) GROUP BY {column}"
                f" ORDER BY n DESC, v LIMIT {limit}"
            ),
        )
        return [row["v"] for row in rows]

    def rates(self, since: datetime, seconds: float) -> Sequence[Values]:
        """Outcomes by result, in parts of ``seconds`` from ``since`` on; errors as for ``places``.

        Returns:
            Rows with ``part`` (from 0), ``result``, which is ``quarantined`` for what went into
            quarantine, ``n``, and ``came``, the number of first outcomes.
        """
        part = f"floor((date_part('epoch', time) - {since.timestamp()}) / {seconds})"
        return self._engine.answer(
            f"{self._outcomes()} SELECT CAST({part} AS BIGINT) part,"
            f" CASE WHEN {QUARANTINED} THEN {sql_text(State.QUARANTINED)} ELSE result END result,"
            " count(*) n, count(CASE WHEN outcome = origin THEN 1 END) came"
            f" FROM outcomes WHERE {time_from(since)} GROUP BY 1, 2 ORDER BY 1, 2"
        )

    def standing(self) -> dict[tuple[str, State], Standing]:
        """Open dead letters by handler and state; raises ``EnvironmentFault``."""
        state = (
            f"CASE WHEN result = {sql_text(Result.PARKED)} THEN {sql_text(State.PARKED)}"
            f" WHEN {QUARANTINED} THEN {sql_text(State.QUARANTINED)}"
            f" ELSE {sql_text(State.REMAINING)} END"
        )
        rows = self._engine.answer(
            self._over_letters(
                Selection(),
                f"SELECT handler, {state} state, count(*) n,"
                f" count(CASE WHEN form = {sql_text(NO_VALID_SCHEME)} THEN 1 END) invalid,"
                f" count(CASE WHEN {HELD} THEN 1 END) held,"
                f" count(CASE WHEN {self._acknowledged} THEN 1 END) acknowledged,"
                f" min(CASE WHEN NOT {self._acknowledged} THEN first_time END) unacknowledged,"
                f" min({FAILED}) oldest, min(first_time) first"
                f" FROM letters GROUP BY handler, {state}",
            )
        )
        return {
            (row["handler"] or "", State(row["state"])): Standing(
                row["n"],
                row["invalid"],
                row["first"].timestamp(),
                row["held"],
                row["acknowledged"],
                row["unacknowledged"] and row["unacknowledged"].timestamp(),
                row["oldest"],
            )
            for row in rows
        }

    def first_seen(
        self, handler: str, since: datetime | None, engine: Engine | None = None
    ) -> Iterator[tuple[DeadLetterProfile, str, int]]:
        """The dead letters of a handler that failed since a time, grouped by equal match fields.

        The engine, such as Spark's SQL, answers the query over the tables ``ledger`` and ``tail``;
        by default it is the embedded one.

        Yields:
            Their profile, as far as outcomes have it, the identity of one message, and how many
            there are.

        Raises:
            EnvironmentFault: The ledger can't be read.
        """
        columns = ", ".join(["form", "error_class", "consumer_group", *FIELD_COLUMNS])
        pairs = [*zip(FIELDS, FIELD_COLUMNS, strict=True)]
        conditions = [f"handler = {sql_text(handler)}", "outcome = origin", "malformed IS NULL"]
        if since is not None:
            failed = time_from(since, "coalesce(failed_at, time)")
            conditions.append(f"{failed} AND {time_from(since)}")
        for row in (engine or self._engine.answer)(
            f"{self._outcomes()} SELECT {columns}, count(*) n, max(message) example FROM outcomes"
            f" WHERE {' AND '.join(conditions)} GROUP BY {columns}"
        ):
            fields = {keyword: row[name] for keyword, name in pairs if row[name] is not None}
            profile = profile_of(
                row["form"] or "",
                fields,
                error_class=row["error_class"] or None,
                group=row["consumer_group"] or None,
            )
            yield profile, row["example"], row["n"]

    def covered(self, acknowledgement: Acknowledgement) -> int:
        """How many remaining messages an acknowledgement covers; errors as for ``letters``."""
        return int(self._engine.answer(self._covered_query(acknowledgement))[0]["n"])

    def _covered_query(self, acknowledgement: Acknowledgement) -> str:
        covered = acknowledged([acknowledgement], self._mask)
        return self._over_letters(
            Selection(), f"SELECT count(CASE WHEN {covered} THEN 1 END) n FROM letters"
        )

    def _is_sound(self, acknowledgement: Acknowledgement) -> bool:
        """Whether the SQL condition of an acknowledgement still works.

        It may fail on later rows, such as a CAST of text to a number. Then it acknowledges nothing,
        so that alerts cover too much rather than too little.
        """
        if not acknowledgement.selection.where:
            return True
        with contextlib.suppress(UsageError):
            return not self._engine.problem_with(self._covered_query(acknowledgement))
        return False

    def _answer(self, selection: Selection, query: Callable[[str], str]) -> list[Values]:
        return values_of(self._columns_of(selection, query))

    def _columns_of(self, selection: Selection, query: Callable[[str], str]) -> Columns:
        def whole(selection: Selection) -> str:
            return self._over_letters(
                selection, query(f"WHERE {' AND '.join(selection.conditions(self._mask))}")
            )

        try:
            return self._engine.columns(whole(selection))
        except EnvironmentFault:
            # A condition may fail on single rows: CAST of text to a number, a division by zero.
            without = whole(replace(selection, where=""))
            if not selection.where or self._engine.problem_with(without):
                raise
            raise condition_error(self._engine.problem_with(whole(selection))) from None

    def _outcomes(self) -> str:
        return every_outcome(self._sources)

    def _over_letters(self, selection: Selection, query: str) -> str:
        """A whole query from its part over the ``letters`` of a selection."""
        results = selection.state.results
        if not self._knows_changed and set(results) & set(OPEN):
            self._engine.keep(CHANGED, changed_letters(self._sources, self._known))
            self._knows_changed = True
        return f"{last_outcomes(results, self._sources, self._known, query)} {query}"


def _equals(column: str, value: str | int | None) -> str:
    """A condition on a column of a group; an empty text also matches NULL."""
    if value is None:
        return f"({column}) IS NULL"
    if isinstance(value, int):
        return f"({column}) = {value}"
    return f"coalesce({column}, '') = {sql_text(value)}"


def group_of(row: Row) -> str:
    """The condition in SQL of the group of a message, by its last outcome."""
    reason = None if row.form == NO_VALID_SCHEME else row.field_reason
    return _in_group(row.handler, reason, *(cause or "" for cause in _causes_of(row)))


def _in_group(*values: str | int | None) -> str:
    return " AND ".join(map(_equals, _GROUPED, values))

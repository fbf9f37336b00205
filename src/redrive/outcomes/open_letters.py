"""The open dead letters, kept beside the ledger so that queries need not scan it.

Few outcomes belong to dead letters that are still parked or remain, and finding them needs a full
scan of the ledger. So each compaction of the ledger records the open ones, with the positions up to
which that is true, in a small separate Delta table. A query joins them with later outcomes.

The ledger is authoritative: this table names the ledger and the version that it was made from, is
replaced in one commit, and is ignored if it does not fit. Then the same query has the same answer,
but takes longer.
"""

# ruff: noqa: S608 - queries are read only, and made of constants and numbers

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from redrive.configuration import LedgerFolder
from redrive.engine.outcome import COLUMNS, UNTOUCHED, Result
from redrive.outcomes.storage import explained, open_letters_folder
from redrive.outcomes.table import LedgerTable, sql_text

OPEN: Final = (Result.PARKED, Result.REMAINS)
"""Results of dead letters that are not settled."""

CHANGED: Final = "changed"
"""The name of a table in queries: dead letters with outcomes newer than recorded."""

_NOT_FINAL: Final = frozenset({*OPEN, *UNTOUCHED})
"""Results after which a dead letter keeps its state, or waits."""
_KEY: Final = "redrive.open"
"""Key of a commit's metadata that names its source."""
_NAMES: Final = tuple(column.name for column in COLUMNS)
_COLUMNS: Final = ", ".join(_NAMES)
_NEEDED: Final = ("time", "result", "malformed", "outcomes_partition", "outcomes_offset")
"""Columns that every query over dead letters uses."""
_FIRST: Final = "first_time"
"""The time of a dead letter's first outcome, a column besides those of the ledger."""
_STATE_COLUMNS: Final = "origin, outcome, result, time, outcomes_partition, outcomes_offset"
"""Columns that show whether a dead letter is open."""
_KEPT_HOURS: Final = 1
"""How long a query may still use a replaced version."""
_PROPERTIES: Final = {
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}


@dataclass(frozen=True, slots=True)
class OpenLetters:
    """The open dead letters as of some version of a ledger."""

    table: LedgerTable
    """Their last outcomes, with the time of the first."""
    positions: Mapping[int, int]
    """By partition, the offset from which outcomes are newer."""
    counts: Sequence[tuple[str, str, int]] = ()
    """The number of older outcomes of any kind, by handler and result."""

    @classmethod
    def of(cls, ledger: LedgerTable) -> Self | None:
        """The recorded table of a ledger; None if none fits this version."""
        folder = open_letters_folder(ledger.path)
        try:
            table = DeltaTable(folder)
            source = json.loads(table.history(1)[0][_KEY])
            names = [field.name for field in table.schema().fields]
            counts = [(handler, result, n) for handler, result, n in source["counts"]]
        except (DeltaError, OSError, LookupError, ValueError):
            return None
        fits = source["ledger"] == ledger.identity and source["version"] <= ledger.version
        if not fits or names != [*_NAMES, _FIRST]:
            return None
        return cls(
            LedgerTable(table, folder),
            {int(key): position for key, position in source["positions"].items()},
            [count_of_result for count_of_result in counts if ledger.has(count_of_result[0])],
        )


def counts_of(ledger: LedgerTable, known: OpenLetters | None) -> Counter[tuple[str, str]]:
    """The number of outcomes by handler and result; only newer ones than recorded are read."""
    is_newer = newer_than({} if known is None else known.positions)
    rows = ledger.rows(
        f"WHERE malformed IS NULL AND {is_newer} GROUP BY 1, 2",
        columns="coalesce(handler, '') handler, coalesce(result, '') result, count(*) n",
    )
    counts = Counter({(row["handler"], row["result"]): row["n"] for row in rows})
    for handler, result, number in () if known is None else known.counts:
        counts[handler, result] += number
    return counts


def newer_than(positions: Mapping[int, int]) -> str:
    """The condition, as SQL, that an outcome came later.

    The positions are the offsets from which outcomes are newer, by partition.
    """
    if not positions:
        return "TRUE"
    known = " OR ".join(
        f"(outcomes_partition = {partition} AND outcomes_offset < {position})"
        for partition, position in positions.items()
    )
    most = max(positions)
    floor = min(positions.get(partition, 0) for partition in range(most + 1))
    # The second condition, which the first one implies, allows skipping files.
    return f"NOT ({known}) AND (outcomes_offset >= {floor} OR outcomes_partition > {most})"


def write_open_letters(path: LedgerFolder) -> None:
    """Record the open dead letters of a ledger; the caller must hold the ledger's lock.

    Raises:
        EnvironmentFault: The ledger cannot be read, or the table cannot be written.
    """
    ledger = LedgerTable.open(path)
    positions = {} if ledger is None else ledger.positions()
    known = None if ledger is None else OpenLetters.of(ledger)
    if ledger is None or not positions or (known is not None and known.positions == positions):
        return
    engine = ledger if known is None else ledger.beside(known=known.table)
    engine.keep(CHANGED, changed_letters(["ledger"], known))
    every = f"SELECT {_COLUMNS}, {_FIRST} FROM letters"
    query = f"{last_outcomes(OPEN, ['ledger'], known, every)} {every}"
    counts = [(*what, number) for what, number in counts_of(ledger, known).items()]
    source = {
        "ledger": ledger.identity,
        "version": ledger.version,
        "positions": positions,
        "counts": counts,
    }
    folder = open_letters_folder(path)
    with explained(path):
        write_deltalake(
            folder,
            engine.stream(query),
            mode="overwrite",
            schema_mode="overwrite",
            configuration=_PROPERTIES,
            commit_properties=CommitProperties(custom_metadata={_KEY: json.dumps(source)}),
        )
        table = DeltaTable(folder)
        table.vacuum(_KEPT_HOURS, dry_run=False, enforce_retention_duration=False)
        table.create_checkpoint()
        table.cleanup_metadata()


def every_outcome(sources: Sequence[str], columns: str = _COLUMNS) -> str:
    """The start of a query over ``outcomes``, the outcomes of some tables."""
    parts = [f"SELECT {columns} FROM {source}" for source in sources]
    return f"WITH outcomes AS ({' UNION ALL '.join(parts)})"


def changed_letters(sources: Sequence[str], known: OpenLetters | None) -> str:
    """The query for the table ``CHANGED`` of ``last_outcomes``.

    Retried, forwarded and discarded are final, but a replay may undo the last. So a dead letter is
    open if its last outcome is none of these. Most are settled by the first decision, when the
    decided record is the dead letter itself; these were never open, and leaving them out makes the
    query fast. All outcomes of a dead letter are on one partition, so numbers identify its last
    one, and are read faster than its name.

    Returns:
        SQL for a row of numbers for each dead letter that is open after its newer outcomes, or was
        recorded as open and is now settled; arguments as for ``last_outcomes``.
    """
    first, before, join = _FIRST, "NULL", ""
    if known is not None:
        first, before = f"coalesce(known.{_FIRST}, newer.{_FIRST})", "known.outcomes_offset"
        join = " LEFT JOIN known ON newer.origin = known.origin"
    return (
        "WITH newer AS (SELECT origin, max(outcomes_partition) last_partition,"
        f" max(outcomes_offset) last_offset, min(time) {_FIRST},"
        f" max(CASE WHEN result IN {_texts(OPEN)} THEN outcomes_offset ELSE -1 END)"
        f" > max(CASE WHEN result IN {_texts(OPEN)} THEN -1 ELSE outcomes_offset END) is_open"
        f" FROM ({_newer(sources, known, _STATE_COLUMNS)})"
        f" WHERE result IN {_texts(OPEN)}"
        f" OR (result NOT IN {_texts(sorted(_NOT_FINAL))} AND outcome <> origin) GROUP BY origin)"
        f" SELECT last_partition, last_offset, is_open, {first} {_FIRST}, {before} known_offset"
        f" FROM newer{join} WHERE is_open OR {before} IS NOT NULL"
    )


def last_outcomes(
    results: Collection[Result], sources: Sequence[str], known: OpenLetters | None, query: str
) -> str:
    """The start of a query over ``letters``: dead letters by their last outcome.

    Args:
        results: The wanted last results.
        sources: The tables with outcomes, the ledger first.
        known: Dead letters recorded as open, in the table ``known``.
        query: The rest of the query.

    Returns:
        SQL that defines ``outcomes`` and ``letters``, with the columns of the ledger that the query
        may use. ``letters`` also has ``first_time``: the time of an open dead letter's first
        outcome, else of its last.
    """
    wanted, parts = set(results), []
    may_be_undone = Result.DISCARDED in wanted
    names = _names_in(f"{query} origin replay" if may_be_undone else query)
    every = ", ".join(names)
    if wanted & set(OPEN):
        columns = ", ".join(f"one.{name}" for name in names)
        parts.append(
            f"SELECT {columns}, {CHANGED}.{_FIRST} FROM ({_newer(sources, known, every)}) one"
            f" JOIN {CHANGED} ON one.outcomes_offset = last_offset"
            " AND one.outcomes_partition = last_partition WHERE is_open"
        )
        if known is not None:
            # Open dead letters without a newer relevant outcome are still open.
            parts.append(
                f"SELECT {columns}, one.{_FIRST} FROM known one LEFT ANTI JOIN {CHANGED}"
                " ON one.outcomes_offset = known_offset AND one.outcomes_partition = last_partition"
            )
    settled = f"SELECT {every}, time AS {_FIRST} FROM outcomes one"
    if final := sorted(wanted - {*OPEN, Result.DISCARDED}):
        parts.append(f"{settled} WHERE result IN {_texts(final)} AND malformed IS NULL")
    if may_be_undone:
        # The first outcome after a discard is that of the replay which undoes it. Only discards are
        # joined, as they are few.
        parts.append(
            f"{settled} LEFT ANTI JOIN (SELECT origin, max(outcomes_offset) undone_at FROM outcomes"
            f" WHERE replay IS NOT NULL AND result NOT IN {_texts(sorted(UNTOUCHED))}"
            " GROUP BY origin) undone ON one.origin = undone.origin"
            " AND one.outcomes_offset < undone_at"
            f" WHERE result = {sql_text(Result.DISCARDED)} AND malformed IS NULL"
        )
    return f"{every_outcome(sources, every)}, letters AS ({' UNION ALL '.join(parts)})"


def _names_in(query: str) -> Sequence[str]:
    """The columns that a query may use: planning takes time for each one, used or not."""
    text = query.replace("count(*)", "")
    if "*" in text or "natural" in text.lower():  # columns without their names
        return _NAMES
    return [name for name in _NAMES if name in _NEEDED or name in text]


def _newer(sources: Sequence[str], known: OpenLetters | None, columns: str) -> str:
    """Outcomes newer than recorded; all of them if nothing is recorded."""
    ledger, *others = sources
    newer = newer_than({} if known is None else known.positions)
    parts = [f"SELECT {columns} FROM {ledger} WHERE {newer}"]
    return " UNION ALL ".join([*parts, *(f"SELECT {columns} FROM {source}" for source in others)])


def _texts(results: Collection[Result]) -> str:
    return f"({', '.join(sql_text(result.value) for result in results)})"

"""The ledger's Delta table on disk: made, appended to, read and maintained without Spark.

The table answers where its projection stands: every row carries the partition and the offset of its
outcome record, so no other file has to be right for the projection to go on without a gap or a
duplicate.
"""

from __future__ import annotations

import contextlib
import fcntl
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
from deltalake import DeltaTable, Field, QueryBuilder, Schema, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.schema import PrimitiveType

from redrive.engine.outcome import COLUMNS
from redrive.errors import AlreadyRunningError, EnvironmentFault
from redrive.outcomes.rows import Row, moment

_FIELDS: Final = {column.name: Field(column.name, PrimitiveType(column.kind)) for column in COLUMNS}
_SCHEMA: Final = Schema(list(_FIELDS.values()))
SCHEMA: Final = pa.schema(_SCHEMA.to_arrow())
"""The ledger's columns."""
ADDED: Final = tuple(column.name for column in COLUMNS if column.is_added)
"""Columns that a ledger of an earlier version lacks; they are the last ones, in their order."""
_STATISTICS: Final = ("time", "message_offset", "outcomes_partition", "outcomes_offset")
"""Columns with minimum and maximum per file: what look-ups skip files by. Few, because they
are computed with every append."""

_FORMAT: Final = 1
"""The form of the ledger. Columns that come at the end make no new one."""
_LOG_IS_GONE: Final = "Invalid table version"
"""Of a version whose log entry was deleted: nothing was written."""
_FORMAT_KEY: Final = "redrive.format"
_PROPERTIES: Final = {
    _FORMAT_KEY: str(_FORMAT),
    # Rows are added and never changed.
    "delta.appendOnly": "true",
    "delta.dataSkippingStatsColumns": ",".join(_STATISTICS),
    # An append every few seconds: one checkpoint per hundred keeps both writing and opening quick.
    "delta.checkpointInterval": "100",
    # No use for the table's own past: rows do not change. The defaults would keep a month of log
    # files, half a million of them, and every reader lists them all: 40 us each.
    "delta.logRetentionDuration": "interval 6 hours",
    "delta.deletedFileRetentionDuration": "interval 6 hours",
    # Every start of the projection is a query of its own; nobody asks for those that have ended.
    "delta.setTransactionRetentionDuration": "interval 1 days",
}
_RETENTION_HOURS: Final = 6
"""As ``delta.deletedFileRetentionDuration``: a reader that began before a compaction may go on."""

_TARGET_SIZE: Final = 64 * 1024 * 1024
"""Bytes of a compacted file: about two million rows, and little memory to write one."""

_MILLISECONDS: Final = pa.timestamp("ms", "UTC")

_NAME: Final = "ledger"
"""The table's name in queries."""

_NO_OTHERS: Final[Mapping[str, DeltaTable]] = {}
_NEWEST: Final = 1_000
"""Offsets below the highest one in which ``positions`` looks first."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What one compaction did."""

    files_before: int
    files_after: int
    files_deleted: int
    """Files of earlier compactions that no reader needs any more."""


class LedgerTable:
    """One version of the ledger, the newest when it was opened."""

    def __init__(
        self,
        table: DeltaTable,
        path: Path,
        others: Mapping[str, DeltaTable] = _NO_OTHERS,
        handlers: frozenset[str] | None = None,
    ) -> None:
        """Takes the Delta table opened in a folder; ``open`` and ``create`` open it."""
        self._table = table
        self._path = path
        self._handlers = handlers
        self._query = QueryBuilder()
        for name, one in {_NAME: table, **others}.items():
            self._register(name, one)

    def _register(self, name: str, table: DeltaTable) -> None:
        if self._handlers is None:
            self._query.register(name, table)
            return
        # Conditions of users may have subqueries, which must not name the whole table.
        whole = f"t{secrets.token_hex(16)}"
        self._query.register(whole, table)
        names = ", ".join(map(sql_text, sorted(self._handlers))) or "NULL"
        view = f"CREATE VIEW {name} AS SELECT * FROM {whole} WHERE handler IN ({names})"  # noqa: S608 - quoted
        self.stream(view).read_all()

    @classmethod
    def open(cls, path: Path) -> Self | None:
        """The ledger of a folder, or None if there is none yet.

        Raises:
            EnvironmentFault: There is something, but no ledger that can be read.
        """
        with explained(path):
            try:
                table = DeltaTable(path)
            except TableNotFoundError:
                return None
            _check_format(table, path)
            missing = _FIELDS.keys() - {field.name for field in table.schema().fields}
            if missing and missing <= set(ADDED):
                missing = set()
                table = _completed(table)
        if missing:
            raise EnvironmentFault(
                f"the table in {path} is no ledger: it has no column {min(missing)}",
                hint="name another folder as ledger.path",
            )
        return cls(table, path)

    @classmethod
    def create(cls, path: Path) -> Self:
        """The ledger of a folder, made if there is none yet; errors as for ``open``."""
        if (existing := cls.open(path)) is not None:
            return existing
        with explained(path):
            table = DeltaTable.create(
                path,
                _SCHEMA,
                mode="ignore",
                partition_by=["day"],
                configuration=_PROPERTIES,
                raise_if_key_not_exists=False,  # one of them is ours
            )
            return cls(table, path)

    @property
    def delta(self) -> DeltaTable:
        """The table as the library knows it."""
        return self._table

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._path

    @property
    def identity(self) -> str:
        """What no other ledger has, nor this one once it is made anew."""
        return str(self._table.metadata().id)

    @property
    def version(self) -> int:
        """Number of the table's version, which grows with every append."""
        return int(self._table.version())

    def newest(self) -> float:
        """Time of the newest outcome, in seconds since 1970; 0 if there is none."""
        [row] = self.rows("", columns="max(time) t")
        return 0.0 if row["t"] is None else float(row["t"].timestamp())

    @property
    def size(self) -> int:
        """Number of rows."""
        [row] = self.rows("", columns="count(*) n")
        return int(row["n"])

    @property
    def bytes(self) -> int:
        """Bytes of the table's files."""
        actions = pa.table(self._table.get_add_actions(flatten=True))
        return sum(actions.column("size_bytes").to_pylist())

    def rows(self, clauses: str, *, columns: str = "*") -> list[Row]:
        """Rows by SQL.

        Args:
            clauses: What follows ``SELECT ... FROM ledger``.
            columns: What to select.
        """
        return self.asked(f"SELECT {columns} FROM {_NAME} {clauses}")  # noqa: S608 - read only, and quoted by its callers

    def asked(self, query: str) -> list[Row]:
        """The answer to a whole query, in which the table is called ``ledger``."""
        with explained(self._path):
            return _rows(self.stream(query).read_all())

    def stream(self, query: str) -> pa.RecordBatchReader:
        """The same bit by bit; what goes wrong is not explained."""
        return pa.RecordBatchReader.from_stream(self._query.execute(query))

    def problem_with(self, query: str) -> str:
        """What the engine does not understand about a query; empty if it does."""
        try:
            self.stream(query).read_all()
        except Exception as error:  # noqa: BLE001 - the engine raises plain exceptions
            return str(error)
        return ""

    def beside(self, **others: Self) -> Self:
        """The same table, with others under names of their own for queries over all of them."""
        tables = {name: other.delta for name, other in others.items()}
        return type(self)(self._table, self._path, tables, self._handlers)

    def restricted_to(self, handlers: frozenset[str]) -> Self:
        """The same table, whose queries see the outcomes of some handlers only."""
        return type(self)(self._table, self._path, handlers=handlers)

    def positions(self) -> dict[int, int]:
        """The outcome offset to go on with, for every partition of which there are rows.

        Looks at the newest offsets first, which file statistics single out: partitions grow
        alike, so all of them are met there.
        """
        [extent] = self.rows("", columns="max(outcomes_partition) p, max(outcomes_offset) o")
        if extent["o"] is None:
            return {}
        depth = _NEWEST
        while True:
            floor = extent["o"] - depth
            found = self.rows(
                f"WHERE outcomes_offset > {floor} GROUP BY outcomes_partition",
                columns="outcomes_partition p, max(outcomes_offset) o",
            )
            if floor < 0 or len(found) > extent["p"]:
                return {row["p"]: row["o"] + 1 for row in found}
            depth *= 10

    def append(self, parts: Sequence[pa.Table]) -> None:
        """Adds rows in one commit; whoever calls it holds the lock of the ledger.

        Args:
            parts: The rows, as ``arrow_of`` makes them.

        Raises:
            EnvironmentFault: They could not be written; none of them is in the ledger.
        """
        if not parts:
            return
        rows = pa.concat_tables(parts)
        with explained(self._path):
            try:
                write_deltalake(self._table, rows, mode="append")
            except DeltaError as error:
                if _LOG_IS_GONE not in str(error):
                    raise
                # Compaction has deleted the log by which this snapshot would go on.
                self._table = DeltaTable(self._path)
                write_deltalake(self._table, rows, mode="append")

    def compact(self) -> Compaction:
        """Merges small files, and deletes what nobody reads any more: merged files, and old log.

        Appends may go on meanwhile: merging changes no row.
        """
        with explained(self._path):
            before = len(self._table.file_uris())
            self._table.optimize.compact(target_size=_TARGET_SIZE, max_concurrent_tasks=1)
            deleted = self._table.vacuum(retention_hours=_RETENTION_HOURS, dry_run=False)
            self._table.create_checkpoint()
            self._table.cleanup_metadata()
            return Compaction(before, len(self._table.file_uris()), len(deleted))


def arrow_of(rows: Sequence[Row]) -> pa.Table:
    """Rows as columns.

    Args:
        rows: What ``rows.row_of`` made.

    Returns:
        A table with all columns of ``SCHEMA``.
    """
    return pa.Table.from_pylist(rows, SCHEMA)


def _check_format(table: DeltaTable, path: Path) -> None:
    found = (table.metadata().configuration or {}).get(_FORMAT_KEY) or "1"
    if found != str(_FORMAT):
        raise EnvironmentFault(
            f"the ledger in {path} has the format {found}, and this version reads {_FORMAT}",
            hint="another version of redrive made it: run that one, or move the folder away and let"
            " `redrive ledger rebuild` make it again",
        )


def _rows(answer: pa.Table) -> list[Row]:
    """An answer as Python values.

    Not by ``Table.to_pylist``: it imports pandas for the sake of times, which takes longer than
    any query here.
    """
    names = answer.column_names
    columns = [_values(column) for column in answer.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    if not pa.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    milliseconds = column.cast(_MILLISECONDS, safe=False).cast(pa.int64()).to_pylist()
    return [None if value is None else moment(value) for value in milliseconds]


def remove(path: Path) -> None:
    """Deletes the ledger of a folder, so that the projection builds it anew.

    Raises:
        EnvironmentFault: There is something that is no ledger, or it can't be deleted.
    """
    if LedgerTable.open(path) is not None:
        with explained(path):
            shutil.rmtree(open_letters_folder(path), ignore_errors=True)
            shutil.rmtree(path)


def _completed(table: DeltaTable) -> DeltaTable:
    """The ledger of an earlier version, with the columns that came since."""
    there = {field.name for field in table.schema().fields}
    table.alter.add_columns([_FIELDS[name] for name in ADDED if name not in there])
    table.update_incremental()
    return table


def sql_text(value: str) -> str:
    """A text as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


@contextlib.contextmanager
def explained(path: Path) -> Iterator[Any]:
    """Faults of the library as faults of the ledger in a folder."""
    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        # What follows the first line is for the library's own developers.
        cause = str(error).partition("\n")[0]
        raise EnvironmentFault(
            f"the ledger in {path} can't be used: {cause}",
            hint="`redrive ledger rebuild` makes it again from the outcomes topic",
        ) from error


def lock_file(path: Path) -> Path:
    """The file that whoever appends to a ledger, compacts or deletes it holds locked.

    It lies beside the ledger's folder, in a folder for what belongs to the projection.
    """
    return path.with_name(f"{path.name}-projection") / "lock"


def open_letters_folder(path: Path) -> Path:
    """The folder in which it is written down which dead letters of a ledger are open."""
    return lock_file(path).with_name("open")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of a ledger, as long as no job projects into it.

    Raises:
        AlreadyRunningError: One does.
    """
    file = lock_file(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as handle:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise in_use(path) from error
        yield


def in_use(path: Path) -> AlreadyRunningError:
    """The error of whoever wants to change a ledger that a job projects into."""
    return AlreadyRunningError(
        f"a running job projects into the ledger {path}",
        hint="it also compacts it, every 15 minutes; stop the job to do anything else",
    )

"""The ledger's Delta table: created, appended to, read and maintained without Spark.

The table itself has the position of its projection: every row has the partition and the offset of
its outcome record, so the projection needs no other file to continue without gaps or duplicates.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeAlias

import pyarrow as pa
from arro3.core import Array
from deltalake import CommitProperties, DeltaTable, Field, QueryBuilder, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import PrimitiveType

from redrive.configuration import LedgerFolder, RemoteFolder
from redrive.engine.outcome import ADDED, COLUMNS
from redrive.errors import EnvironmentFault
from redrive.outcomes.rows import EPOCH, Row, Values, moment
from redrive.outcomes.storage import (
    arguments,
    explained,
    in_use,
    is_remote,
    open_letters_folder,
    read_answering,
)

if TYPE_CHECKING:
    from redrive.configuration import JobConfiguration
    from redrive.kafka.cluster import Cluster

_FIELDS: Final = {column.name: Field(column.name, PrimitiveType(column.kind)) for column in COLUMNS}
_SCHEMA: Final = Schema(list(_FIELDS.values()))
SCHEMA: Final = pa.schema(_SCHEMA.to_arrow())
"""The ledger's columns."""
_STATISTICS: Final = ("time", "message_offset", "outcomes_partition", "outcomes_offset")
"""Columns with minimum and maximum per file, by which lookups skip files. Few, because they are
computed with every append."""

_FORMAT: Final = 1
"""The format of the ledger. Appended columns do not change it."""
_LOG_IS_GONE: Final = "Invalid table version"
"""The error about a version whose log entry was deleted: nothing was written."""
_FORMAT_KEY: Final = "redrive.format"
_SOURCE_KEY: Final = "redrive.outcomes"
"""What the ledger is made from, as ``source_of`` names it; missing in earlier versions."""
_PROPERTIES: Final = {
    _FORMAT_KEY: str(_FORMAT),
    # Rows are appended and never changed.
    "delta.appendOnly": "true",
    "delta.dataSkippingStatsColumns": ",".join(_STATISTICS),
    # With an append every few seconds, a checkpoint per hundred keeps writing and opening fast.
    "delta.checkpointInterval": "100",
    # The table's history is useless, as rows do not change. The defaults would keep a month of log
    # files, half a million of them, and every reader lists them all: 40 us each.
    "delta.logRetentionDuration": "interval 6 hours",
    "delta.deletedFileRetentionDuration": "interval 6 hours",
    # Every start of the projection is a new query; ended ones are not needed.
    "delta.setTransactionRetentionDuration": "interval 1 days",
}
_RETENTION_HOURS: Final = 6
"""As ``delta.deletedFileRetentionDuration``: readers from before a compaction may continue."""

_TARGET_SIZE: Final = 64 * 1024 * 1024
"""Bytes of a compacted file: about two million rows, written with little memory."""

_UNITS: Final = {"ms": 1, "us": 1_000, "ns": 1_000_000}
"""Units of a timestamp in a millisecond."""

_NAME: Final = "ledger"
"""The table's name in queries."""

_ONE_TRY: Final = CommitProperties(max_commit_retries=0)
"""The library must not commit after others have committed meanwhile."""
_TRIES: Final = 20
"""Attempts of an append while others commit: at most a compaction, which makes a few versions."""

Columns: TypeAlias = Mapping[str, list[Any]]
"""The answer to a query: values by column name."""

_NO_OTHERS: Final[Mapping[str, DeltaTable]] = {}
_NEWEST: Final = 1_000
"""Number of the highest offsets that ``positions`` searches first."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """The result of one compaction."""

    files_before: int
    files_after: int
    files_deleted: int
    """Files of earlier compactions that no reader needs any more."""


class LedgerTable:
    """One version of the ledger, the newest when it was opened."""

    def __init__(
        self,
        table: DeltaTable,
        path: LedgerFolder,
        others: Mapping[str, DeltaTable] = _NO_OTHERS,
        handlers: frozenset[str] | None = None,
    ) -> None:
        """Use an opened Delta table of a folder; ``open`` and ``create`` open it."""
        self._table = table
        self._path = path
        self._handlers = handlers
        self._stands: dict[int, int] | None = None
        """Its positions as this writer knows them; None before the first append."""
        self._query = QueryBuilder()
        for name, registered in {_NAME: table, **others}.items():
            self._register(name, registered)

    def _register(self, name: str, table: DeltaTable) -> None:
        if self._handlers is None:
            self._query.register(name, table)
            return
        # Users' conditions may have subqueries, which must not see the whole table.
        whole = f"t{secrets.token_hex(16)}"
        self._query.register(whole, table)
        names = ", ".join(map(sql_text, sorted(self._handlers))) or "NULL"
        view = f"CREATE VIEW {name} AS SELECT * FROM {whole} WHERE handler IN ({names})"  # noqa: S608 - quoted
        self.stream(view).read_all()

    @classmethod
    def open(
        cls, path: LedgerFolder, source: str = "", *, bridges_outages: bool = False
    ) -> Self | None:
        """The ledger of a folder, or None if it does not exist.

        Args:
            path: The folder.
            source: What it must be made from, as ``source_of`` names it; empty for anything.
            bridges_outages: For writers: whether requests to a store that is away are repeated for
                half a minute.

        Raises:
            EnvironmentFault: The folder has something else, an unreadable ledger, or the ledger of
                another application or cluster.
        """
        with explained(path):
            named = arguments(path, bridges_outages=bridges_outages)
            try:
                table = (
                    DeltaTable(**named)
                    if bridges_outages
                    else read_answering(path, lambda: DeltaTable(**named))
                )
            except TableNotFoundError:
                return None
            _check_format(table, path)
            _check_source(table, path, source)
            missing = _FIELDS.keys() - {field.name for field in table.schema().fields}
            if missing and missing <= {column.name for column in ADDED}:
                missing = set()
                table = _add_columns(table)
        if missing:
            raise EnvironmentFault(
                f"the table in {path} is not a ledger: it has no column {min(missing)}",
                hint="set ledger.path to another folder",
            )
        return cls(table, path)

    @classmethod
    def create(cls, path: LedgerFolder, source: str = "") -> Self:
        """The ledger of a folder, created if needed; arguments and errors as for ``open``.

        A ledger of an earlier version, which does not name its source, is assumed to have this one.
        """
        existing = cls.open(path, source, bridges_outages=True)
        if existing is not None and (not source or _source_of(existing.delta)):
            return existing
        with explained(path), contextlib.suppress(CommitFailedError):  # another machine creates it
            if existing is None:
                return cls(_create(path, "ignore", source), path)
            properties = {_SOURCE_KEY: source}
            existing.delta.alter.set_table_properties(properties, raise_if_not_exists=False)
        return cls(DeltaTable(**arguments(path)), path)

    @classmethod
    def of_rows(cls, folder: Path, rows: pa.Table) -> Self:
        """A new table of rows in a folder, for queries ``beside`` a ledger."""
        write_deltalake(folder, rows)
        return cls(DeltaTable(folder), folder)

    @property
    def delta(self) -> DeltaTable:
        """The table of the library."""
        return self._table

    @property
    def path(self) -> LedgerFolder:
        """The folder of the table."""
        return self._path

    @property
    def identity(self) -> str:
        """The id of the table; a recreated ledger has another one."""
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
        return sum(self._files().column("size_bytes").to_pylist())

    def _files(self) -> pa.Table:
        # Not by pa.table, which imports pandas: that takes longer than any query here, and 36 MB.
        actions = self._table.get_add_actions(flatten=True)
        return pa.RecordBatchReader.from_stream(actions).read_all()

    def rows(self, clauses: str, *, columns: str) -> list[Values]:
        """Columns of rows by SQL; the clauses follow ``SELECT ... FROM ledger``."""
        return self.answer(f"SELECT {columns} FROM {_NAME} {clauses}")  # noqa: S608 - read only, and quoted by its callers

    def answer(self, query: str) -> list[Values]:
        """The answer to a whole query, in which the table is called ``ledger``."""
        return values_of(self.columns(query))

    def outcomes(self, query: str) -> list[Row]:
        """The outcomes that a whole query selects; columns that it leaves out are None."""
        return rows_of(self.columns(query))

    def columns(self, query: str) -> Columns:
        """The columns of the answer to a whole query."""
        with explained(self._path):
            answer = self.stream(query).read_all()
            return dict(zip(answer.column_names, map(_values, answer.columns), strict=True))

    def stream(self, query: str) -> pa.RecordBatchReader:
        """Like ``answer``, in batches; errors of the engine are not translated."""
        return pa.RecordBatchReader.from_stream(self._query.execute(query))

    def keep(self, name: str, query: str) -> None:
        """Keep the answer to a query in memory, as a table of this name for other queries."""
        self.answer(f"CREATE TABLE {name} AS {query}")

    def problem_with(self, query: str) -> str:
        """The engine's error about a query; empty if it is valid."""
        try:
            self.stream(query).read_all()
        except Exception as error:  # noqa: BLE001 - the engine raises plain exceptions
            return str(error)
        return ""

    def beside(self, **others: Self) -> Self:
        """The same table, with others by name for queries over all of them."""
        tables = {name: other.delta for name, other in others.items()}
        return type(self)(self._table, self._path, tables, self._handlers)

    def restricted_to(self, handlers: frozenset[str]) -> Self:
        """The same table, whose queries see only the outcomes of some handlers."""
        return type(self)(self._table, self._path, handlers=handlers)

    def has(self, handler: str) -> bool:
        """Whether its queries see the outcomes of a handler."""
        return self._handlers is None or handler in self._handlers

    def positions(self) -> dict[int, int]:
        """The next outcome offset of every partition with rows.

        It searches the highest offsets first, which file statistics single out: partitions grow at
        the same rate, so all of them are found there.
        """
        last, end = self._maximum("outcomes_partition"), self._maximum("outcomes_offset")
        if last is None or end is None:
            return {}
        depth = _NEWEST
        while True:
            floor = end - depth
            rows = self.rows(
                f"WHERE outcomes_offset > {floor} GROUP BY outcomes_partition",
                columns="outcomes_partition p, max(outcomes_offset) o",
            )
            if floor < 0 or len(rows) > last:
                return {row["p"]: row["o"] + 1 for row in rows}
            depth *= 10

    def _maximum(self, column: str) -> int | None:
        files, name = self._files(), f"max.{column}"
        maxima = files.column(name).to_pylist() if name in files.column_names else [None]
        if None in maxima:  # some writer left statistics out
            [row] = self.rows("", columns=f"max({column}) m")
            return row["m"] and int(row["m"])
        return max(maxima, default=None)

    def append(self, parts: Sequence[pa.Table]) -> None:
        """Add rows, from ``arrow_of``, in one commit, unless another process has added any.

        So if several processes project the same outcomes at once, each row is written once even
        without a lock: a commit is made at one version of the table or not at all.

        Raises:
            AlreadyRunningError: Another process has added rows; none of these is in the ledger.
            EnvironmentFault: They could not be written. Check ``positions`` for whether they are in
            the
                ledger: the answer to a commit may be lost.
        """
        if not parts:
            return
        rows = pa.concat_tables(parts)
        before = self.positions() if self._stands is None else self._stands
        after = {**before}
        for partition, end in _ends(rows).items():
            after[partition] = max(end, before.get(partition, 0))
        with explained(self._path):
            self._commit(rows, before, after)
        self._stands = after

    def _commit(self, rows: pa.Table, before: dict[int, int], after: dict[int, int]) -> None:
        for tries in count(1):
            try:
                write_deltalake(self._table, rows, mode="append", commit_properties=_ONE_TRY)
            except DeltaError as error:
                is_behind = isinstance(error, CommitFailedError) or _LOG_IS_GONE in str(error)
                if not is_behind or tries == _TRIES:
                    raise
            else:
                return
            # The version exists: from a compaction, another process, or this very commit,
            # if its answer was lost and the client retried.
            self._table = DeltaTable(**arguments(self._path))
            positions = type(self)(self._table, self._path).positions()
            if positions == after:
                return
            if positions != before:
                raise in_use(self._path)

    def compact(self) -> Compaction:
        """Merge small files, and delete unused ones: merged files, and old log entries.

        Appends may continue meanwhile, as merging changes no row.
        """
        with explained(self._path):
            before = len(self._table.file_uris())
            self._table.optimize.compact(target_size=_TARGET_SIZE, max_concurrent_tasks=1)
            deleted = self._table.vacuum(retention_hours=_RETENTION_HOURS, dry_run=False)
            self._table.create_checkpoint()
            self._table.cleanup_metadata()
            return Compaction(before, len(self._table.file_uris()), len(deleted))


def arrow_of(rows: Sequence[Row]) -> pa.Table:
    """Rows, from ``rows.row_of``, as a table with all columns of ``SCHEMA``."""
    columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    arrays = [_array(values, column.type) for values, column in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    # PyArrow would import pandas for values of Python, and arro3 takes no times and days.
    if not pa.types.is_temporal(kind):
        return pa.array(Array(values, kind))
    first: date = EPOCH
    unit, number = timedelta(microseconds=1), pa.int64()
    if pa.types.is_date(kind):
        first, unit, number = EPOCH.date(), timedelta(days=1), pa.int32()
    numbers = [value if value is None else (value - first) // unit for value in values]
    return pa.array(Array(numbers, number)).view(kind)


def _create(
    path: LedgerFolder, mode: Literal["ignore", "overwrite"], source: str = ""
) -> DeltaTable:
    return DeltaTable.create(
        **arguments(path),
        schema=_SCHEMA,
        mode=mode,
        partition_by=["day"],
        # A table that is overwritten in an object store is not append-only.
        configuration=_PROPERTIES
        | ({_SOURCE_KEY: source} if source else {})
        | ({"delta.appendOnly": "false"} if is_remote(path) else {}),
        raise_if_key_not_exists=False,  # one of them is ours
    )


def _ends(rows: pa.Table) -> dict[int, int]:
    last = rows.group_by("outcomes_partition").aggregate([("outcomes_offset", "max")])
    partitions, offsets = last["outcomes_partition"], last["outcomes_offset_max"]
    return {
        partition: offset + 1
        for partition, offset in zip(partitions.to_pylist(), offsets.to_pylist(), strict=True)
        if offset is not None
    }


def _check_format(table: DeltaTable, path: LedgerFolder) -> None:
    number = (table.metadata().configuration or {}).get(_FORMAT_KEY) or "1"
    if number != str(_FORMAT):
        raise EnvironmentFault(
            f"the ledger in {path} has the format {number}, and this version reads {_FORMAT}",
            hint="another version of redrive made it: run that one, or move the folder away and run"
            " `redrive ledger rebuild`",
        )


def source_of(cluster: Cluster, topic: str) -> str:
    """The source of a ledger: an outcomes topic, by a name that is unique among clusters.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    return f"{cluster.identity}/{topic}"


def own_ledger(job: JobConfiguration, cluster: Cluster) -> LedgerTable | None:
    """The ledger of a job; None if it has none, or not yet.

    Raises:
        EnvironmentFault: The ledger cannot be read, or is of another application or cluster.
        TransientFault: The broker gave no answer in time.
    """
    if not job.ledger.enabled:
        return None
    return LedgerTable.open(job.ledger.path, source_of(cluster, job.outcomes_topic))


def _source_of(table: DeltaTable) -> str:
    return (table.metadata().configuration or {}).get(_SOURCE_KEY) or ""


def _check_source(table: DeltaTable, path: LedgerFolder, source: str) -> None:
    known_source = _source_of(table)
    if source and known_source and known_source != source:
        cluster, _, topic = source.partition("/")
        other_cluster, _, other_topic = known_source.partition("/")
        raise EnvironmentFault(
            f"the ledger in {path} has the outcomes of {other_topic} on the cluster"
            f" {other_cluster}, not those of {topic} on {cluster}",
            hint="give each application on each cluster its own ledger, by ledger.path; if that"
            " cluster no longer exists, move the ledger away to keep it, or run `redrive"
            " ledger rebuild`",
        )


def values_of(columns: Columns) -> list[Values]:
    """The rows of an answer."""
    every = zip(*columns.values(), strict=True)
    return [dict(zip(columns, values, strict=True)) for values in every]


def rows_of(columns: Columns) -> list[Row]:
    """The outcomes of an answer; columns that it lacks are None."""
    absent = [None] * len(next(iter(columns.values())))
    every = zip(*(columns.get(name, absent) for name in Row._fields), strict=True)
    return [*map(Row._make, every)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    if not pa.types.is_timestamp(column.type):
        values: list[Any] = column.to_pylist()
        return values
    # Neither by to_pylist nor by a cast, which import pandas and pyarrow.compute.
    unit = _UNITS[column.type.unit]
    numbers = (number for chunk in column.chunks for number in chunk.view(pa.int64()).to_pylist())
    return [None if number is None else moment(number // unit) for number in numbers]


def remove(path: LedgerFolder) -> None:
    """Delete the ledger of a folder, so that the projection rebuilds it.

    Raises:
        EnvironmentFault: The folder has something else, or it cannot be deleted.
    """
    if LedgerTable.open(path) is None:
        return
    with explained(path):
        shutil.rmtree(open_letters_folder(path), ignore_errors=True)
        if isinstance(path, RemoteFolder):
            # A version without rows and with another identity, in one commit.
            _create(path, "overwrite")
        else:
            shutil.rmtree(path)


def _add_columns(table: DeltaTable) -> DeltaTable:
    """The ledger of an earlier version, with the columns added since."""
    there = {field.name for field in table.schema().fields}
    table.alter.add_columns([_FIELDS[column.name] for column in ADDED if column.name not in there])
    table.update_incremental()
    return table


def sql_text(value: str) -> str:
    """Text as a SQL literal."""
    return "'" + value.replace("'", "''") + "'"

"""The ledger's Delta table: made, appended to, read and maintained without Spark.

The table answers where its projection stands: every row carries the partition and the offset of its
outcome record, so no other file has to be right for the projection to go on without a gap or a
duplicate.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, QueryBuilder, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import PrimitiveType

from redrive.configuration import LedgerFolder, RemoteFolder
from redrive.engine.outcome import COLUMNS
from redrive.errors import EnvironmentFault
from redrive.outcomes.rows import Row, moment
from redrive.outcomes.storage import arguments, explained, in_use, is_remote, open_letters_folder

if TYPE_CHECKING:
    from redrive.configuration import JobConfiguration
    from redrive.kafka.cluster import Cluster

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
_SOURCE_KEY: Final = "redrive.outcomes"
"""What the ledger is made from, as ``source_of`` names it; earlier versions did not tell it."""
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

_ONE_TRY: Final = CommitProperties(max_commit_retries=0)
"""The library would commit behind whatever others have committed meanwhile."""
_TRIES: Final = 20
"""Tries of an append while others commit: at most a compaction, which makes a few versions."""

_NO_OTHERS: Final[Mapping[str, DeltaTable]] = {}
_NEWEST: Final = 1_000
"""Offsets below the highest one in which ``positions`` looks first."""


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
        """Takes the Delta table opened in a folder; ``open`` and ``create`` open it."""
        self._table = table
        self._path = path
        self._handlers = handlers
        self._stands: dict[int, int] | None = None
        """Its positions as far as this writer knows; None before the first append."""
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
    def open(cls, path: LedgerFolder, source: str = "") -> Self | None:
        """The ledger of a folder, or None if there is none yet.

        Args:
            path: The folder.
            source: What it has to be made from, as ``source_of`` names it; empty for anything.

        Raises:
            EnvironmentFault: There is something, but no ledger that can be read, or the ledger of
                another application or cluster.
        """
        with explained(path):
            try:
                table = DeltaTable(**arguments(path))
            except TableNotFoundError:
                return None
            _check_format(table, path)
            _check_source(table, path, source)
            missing = _FIELDS.keys() - {field.name for field in table.schema().fields}
            if missing and missing <= set(ADDED):
                missing = set()
                table = _add_columns(table)
        if missing:
            raise EnvironmentFault(
                f"the table in {path} is no ledger: it has no column {min(missing)}",
                hint="name another folder as ledger.path",
            )
        return cls(table, path)

    @classmethod
    def create(cls, path: LedgerFolder, source: str = "") -> Self:
        """The ledger of a folder, made if there is none yet; arguments and errors as for ``open``.

        A ledger of an earlier version, which does not tell its source, is taken for this one's.
        """
        existing = cls.open(path, source)
        if existing is not None and (not source or _source_of(existing.delta)):
            return existing
        with explained(path), contextlib.suppress(CommitFailedError):  # another machine does it
            if existing is None:
                return cls(_create(path, "ignore", source), path)
            properties = {_SOURCE_KEY: source}
            existing.delta.alter.set_table_properties(properties, raise_if_not_exists=False)
        return cls(DeltaTable(**arguments(path)), path)

    @classmethod
    def of_rows(cls, folder: Path, rows: pa.Table) -> Self:
        """A new table of some rows in a folder, for queries ``beside`` a ledger."""
        write_deltalake(folder, rows)
        return cls(DeltaTable(folder), folder)

    @property
    def delta(self) -> DeltaTable:
        """The table as the library knows it."""
        return self._table

    @property
    def path(self) -> LedgerFolder:
        """Its folder."""
        return self._path

    @property
    def identity(self) -> str:
        """The id of the table; a ledger that is made anew has another one."""
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
        # Not by pa.table: it imports pandas, which takes longer than any query here, and 36 MB.
        actions = self._table.get_add_actions(flatten=True)
        return pa.RecordBatchReader.from_stream(actions).read_all()

    def rows(self, clauses: str, *, columns: str = "*") -> list[Row]:
        """Columns of rows by SQL; the clauses follow ``SELECT ... FROM ledger``."""
        return self.answer(f"SELECT {columns} FROM {_NAME} {clauses}")  # noqa: S608 - read only, and quoted by its callers

    def answer(self, query: str) -> list[Row]:
        """The answer to a whole query, in which the table is called ``ledger``."""
        with explained(self._path):
            return _rows(self.stream(query).read_all())

    def stream(self, query: str) -> pa.RecordBatchReader:
        """The same in batches; errors of the engine are not translated."""
        return pa.RecordBatchReader.from_stream(self._query.execute(query))

    def keep(self, name: str, query: str) -> None:
        """Keeps the answer to a query in memory, as a table with this name for other queries."""
        self.answer(f"CREATE TABLE {name} AS {query}")

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

    def has(self, handler: str) -> bool:
        """Whether its queries see the outcomes of a handler."""
        return self._handlers is None or handler in self._handlers

    def positions(self) -> dict[int, int]:
        """The outcome offset to go on with, for every partition of which there are rows.

        Looks at the newest offsets first, which file statistics single out: partitions grow
        alike, so all of them are met there.
        """
        last, end = self._maximum("outcomes_partition"), self._maximum("outcomes_offset")
        if last is None or end is None:
            return {}
        depth = _NEWEST
        while True:
            floor = end - depth
            found = self.rows(
                f"WHERE outcomes_offset > {floor} GROUP BY outcomes_partition",
                columns="outcomes_partition p, max(outcomes_offset) o",
            )
            if floor < 0 or len(found) > last:
                return {row["p"]: row["o"] + 1 for row in found}
            depth *= 10

    def _maximum(self, column: str) -> int | None:
        """The highest value of a column, by the statistics of the files; None without rows."""
        files, name = self._files(), f"max.{column}"
        maxima = files.column(name).to_pylist() if name in files.column_names else [None]
        if None in maxima:  # some writer left statistics out
            [row] = self.rows("", columns=f"max({column}) m")
            return row["m"] and int(row["m"])
        return max(maxima, default=None)

    def append(self, parts: Sequence[pa.Table]) -> None:
        """Adds rows, as ``arrow_of`` makes them, in one commit, if no other process has added any.

        So of several processes that project the same outcomes at once each row is from one, also
        where no lock holds: a commit is made at one version of the table or not at all.

        Raises:
            AlreadyRunningError: Another process has added rows; none of these is in the ledger.
            EnvironmentFault: They could not be written. Whether they are in the ledger is for its
                ``positions`` to tell: the answer to a commit may be lost.
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
            # Another version is there: of a compaction, of another process, or this very commit,
            # if its answer was lost and the client put it again.
            self._table = DeltaTable(**arguments(self._path))
            found = type(self)(self._table, self._path).positions()
            if found == after:
                return
            if found != before:
                raise in_use(self._path)

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
    """Rows, as ``rows.row_of`` makes them, as a table with all columns of ``SCHEMA``."""
    if not rows:
        # Not SCHEMA.empty_table() nor from_pylist: they import pandas.
        return pa.Table.from_batches([], SCHEMA)
    return pa.Table.from_pylist(rows, SCHEMA)


def _create(
    path: LedgerFolder, mode: Literal["ignore", "overwrite"], source: str = ""
) -> DeltaTable:
    return DeltaTable.create(
        **arguments(path),
        schema=_SCHEMA,
        mode=mode,
        partition_by=["day"],
        # What is overwritten in an object store is not append-only.
        configuration=_PROPERTIES
        | ({_SOURCE_KEY: source} if source else {})
        | ({"delta.appendOnly": "false"} if is_remote(path) else {}),
        raise_if_key_not_exists=False,  # one of them is ours
    )


def _ends(rows: pa.Table) -> dict[int, int]:
    """By partition of the outcomes topic, the offset behind the last of some rows."""
    last = rows.group_by("outcomes_partition").aggregate([("outcomes_offset", "max")])
    partitions, offsets = last["outcomes_partition"], last["outcomes_offset_max"]
    return {
        partition: offset + 1
        for partition, offset in zip(partitions.to_pylist(), offsets.to_pylist(), strict=True)
        if offset is not None
    }


def _check_format(table: DeltaTable, path: LedgerFolder) -> None:
    found = (table.metadata().configuration or {}).get(_FORMAT_KEY) or "1"
    if found != str(_FORMAT):
        raise EnvironmentFault(
            f"the ledger in {path} has the format {found}, and this version reads {_FORMAT}",
            hint="another version of redrive made it: run that one, or move the folder away and let"
            " `redrive ledger rebuild` make it again",
        )


def source_of(cluster: Cluster, topic: str) -> str:
    """What a ledger is made from: an outcomes topic, by a name that no other cluster's has.

    Raises:
        TransientFault: The broker gave no answer in time.
    """
    return f"{cluster.identity}/{topic}"


def own_ledger(job: JobConfiguration, cluster: Cluster) -> LedgerTable | None:
    """The ledger of a job; None if it has none, or none yet.

    Raises:
        EnvironmentFault: See ``LedgerTable.open``.
        TransientFault: The broker gave no answer in time.
    """
    if not job.ledger.enabled:
        return None
    return LedgerTable.open(job.ledger.path, source_of(cluster, job.outcomes_topic))


def _source_of(table: DeltaTable) -> str:
    return (table.metadata().configuration or {}).get(_SOURCE_KEY) or ""


def _check_source(table: DeltaTable, path: LedgerFolder, source: str) -> None:
    found = _source_of(table)
    if source and found and found != source:
        cluster, _, topic = source.partition("/")
        other_cluster, _, other_topic = found.partition("/")
        raise EnvironmentFault(
            f"the ledger in {path} has the outcomes of {other_topic} on the cluster"
            f" {other_cluster}, and not those of {topic} on {cluster}",
            hint="give each application on each cluster a ledger of its own, by ledger.path; if"
            " that cluster is gone, move the ledger away to keep it, or `redrive ledger rebuild`",
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


def remove(path: LedgerFolder) -> None:
    """Deletes the ledger of a folder, so that the projection builds it anew.

    Raises:
        EnvironmentFault: There is something that is no ledger, or it can't be deleted.
    """
    if LedgerTable.open(path) is None:
        return
    with explained(path):
        shutil.rmtree(open_letters_folder(path), ignore_errors=True)
        if isinstance(path, RemoteFolder):
            # Another version without rows, and under another identity, in one commit.
            _create(path, "overwrite")
        else:
            shutil.rmtree(path)


def _add_columns(table: DeltaTable) -> DeltaTable:
    """The ledger of an earlier version, with the columns that came since."""
    there = {field.name for field in table.schema().fields}
    table.alter.add_columns([_FIELDS[name] for name in ADDED if name not in there])
    table.update_incremental()
    return table


def sql_text(value: str) -> str:
    """A text as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"

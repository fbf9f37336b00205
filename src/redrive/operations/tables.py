"""The rules tables that have run: the active ones, and the hits of their rules.

Also when remaining messages are evaluated again: once another table is active.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from redrive.checkpoints.tables import KeptTable, TablesRead, read_tables
from redrive.configuration import JobConfiguration
from redrive.errors import EnvironmentFault, TransientFault, UsageError
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import CONNECT
from redrive.operations.network import open_cluster
from redrive.operations.restart import meaning_of
from redrive.operations.states import read_control
from redrive.outcomes.history import Archive

SHORT_HASH: Final = 12
"""Shown digits of a hash: enough to distinguish the tables of a job."""
_OUTCOME_HASH: Final = 16
"""Digits of a hash in outcomes."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Every table that ran."""

    tables: Sequence[KeptTable]
    """The most recently started first."""
    deciding: Mapping[str, frozenset[str]]
    """By handler, the current hashes, or those of the next start if nothing changes: of the table,
    followed by that of the schemes. Two while instances of a job run with different ones."""
    notes: Sequence[str]
    """What is missing, and why."""

    def is_current(self, table: KeptTable) -> bool:
        """Whether a table is active."""
        deciding = self.deciding.get(table.handler, ())
        return any(digest.startswith(table.hash) for digest in deciding)

    def find(self, digits: str, handler: str | None) -> KeptTable:
        """The only table whose hash begins with some digits, of one handler or of any."""
        tables = [
            table
            for table in self.tables
            if table.hash.startswith(digits.lower()) and handler in (None, table.handler)
        ]
        if len(tables) == 1 and digits:
            return tables[0]
        if not tables:
            of = "" if handler is None else f" of {handler}"
            raise UsageError(
                f"no kept table{of} has a hash that begins with {digits!r}",
                hint="redrive tables lists all kept tables",
            )
        shown = ", ".join(f"{table.hash[:SHORT_HASH]} of {table.handler}" for table in tables)
        raise UsageError(
            f"{digits!r} is ambiguous: {shown}",
            hint="give more digits, or name the handler by --handler",
        )


@dataclass(frozen=True, slots=True)
class Applied:
    """How often a rule was applied, by the ledger."""

    count: int
    last: datetime | None
    """None if never."""


@dataclass(frozen=True, slots=True)
class TableHits:
    """How often each rule of a table was applied."""

    rules: Sequence[Applied]

    @property
    def total(self) -> Applied:
        """All rules together."""
        times = [rule.last for rule in self.rules if rule.last is not None]
        return Applied(sum(rule.count for rule in self.rules), max(times, default=None))


def tables_of(job: JobConfiguration) -> Tables:
    """The tables that ran, and which are active.

    Raises:
        EnvironmentFault: The broker can't be reached, or the job never ran with this version.
    """
    with open_cluster(job.connection) as cluster:
        has_tables = bool(cluster.partitions([job.tables_topic]))
        read = read_tables(cluster, job.tables_topic) if has_tables else TablesRead((), ())
        entries = read_control(job, cluster)
    if not read.tables and not read.unreadable:
        raise EnvironmentFault(
            f"no tables are kept in {job.tables_topic}",
            hint="a job that handles dead letters keeps every table there, from its first start on",
        )
    only = job.only_handlers
    if only is not None:
        tables = [table for table in read.tables if table.handler in only]
        return Tables(tables, deciding_in(job, entries), ())
    notes = [f"the entry {key} of {job.tables_topic} cannot be read" for key in read.unreadable]
    return Tables(read.tables, deciding_in(job, entries), notes)


def deciding_in(
    job: JobConfiguration, entries: Mapping[str, Mapping[str, object]]
) -> dict[str, frozenset[str]]:
    """The current hashes of each handler, as in ``Tables.deciding``."""
    hashes = {}
    for handler in job.handlers:
        prefix = f"table/{handler.identity.topic}/"
        hashes[handler.identity.name] = frozenset(
            str(entry.get("table")) for key, entry in entries.items() if key.startswith(prefix)
        )
    return hashes


class NextLook(StrEnum):
    """When the remaining messages of a handler are evaluated again."""

    WITH_ANOTHER_TABLE = "once the rules table changes in meaning"
    AT_THE_NEXT_START = "at the next start or restart: the rules table has changed in meaning"


def next_looks(job: JobConfiguration) -> dict[str, NextLook]:
    """When each handler of a job, with its tables as they are now, evaluates remaining messages.

    Returns:
        By the handler's name; nothing for a handler that has not decided yet, or if the broker does
        not answer.
    """
    try:
        with Cluster.open(job.connection, timeout=CONNECT) as cluster:
            deciding = deciding_in(job, read_control(job, cluster))
    except (EnvironmentFault, TransientFault):
        return {}
    looks = {}
    for handler in job.handlers:
        name = handler.identity.name
        if deciding[name]:
            is_same = deciding[name] == {meaning_of(handler, job)}
            looks[name] = NextLook.WITH_ANOTHER_TABLE if is_same else NextLook.AT_THE_NEXT_START
    return looks


def hits_of(
    job: JobConfiguration, tables: Sequence[KeptTable]
) -> tuple[dict[str, TableHits], tuple[str, ...]]:
    """How often the rules of some tables were applied.

    Outcomes name a rule by its line, and lines move with comments. So each outcome is matched with
    the layout that the table had at its time.

    Returns:
        The hits by ``KeptTable.key``, and why some may be missing.

    Raises:
        EnvironmentFault: There is neither a ledger nor a broker.
    """
    moved = {
        (table.handler, table.hash[:_OUTCOME_HASH]): [
            datetime.fromtimestamp(layout.since, UTC) for layout in table.layouts[1:]
        ]
        for table in tables
    }
    counted: dict[tuple[str, str, int, int], Applied] = {}
    inventory, notes = Archive(job).inventory()
    with inventory:
        for row in inventory.applied(moved):
            place = row["handler"], row["table_hash"], row["layout"], row["rule_line"]
            counted[place] = Applied(row["n"], row["last"])
    return {table.key: _hits(table, counted) for table in tables}, notes


def _hits(table: KeptTable, counted: Mapping[tuple[str, str, int, int], Applied]) -> TableHits:
    identity = table.handler, table.hash[:_OUTCOME_HASH]
    rules = []
    for number in range(len(table.layouts[-1].lines)):
        parts = [
            counted.get((*identity, layout, layout_of_table.lines[number]), Applied(0, None))
            for layout, layout_of_table in enumerate(table.layouts)
        ]
        rules.append(TableHits(parts).total)
    return TableHits(rules)

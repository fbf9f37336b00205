"""The tables topic: every rules table that has run, with its text, times and users.

The topic has one partition and is compacted: a key for each handler and table hash. An entry is
written at the start of a run, before the first decision by its table, so the text of every table in
an outcome is available. Entries are compressed: a topic accepts 64 MiB, and a rules table shrinks
to a tenth.

The topic also has operators' commands (``states``): their keys have another form, and their values
are JSON.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, Self

import orjson

from redrive.checkpoints.control import read_pairs
from redrive.checkpoints.own_topics import MAX_MESSAGE_BYTES
from redrive.engine.commands import STATE_KINDS
from redrive.kafka.cluster import Cluster
from redrive.messages.schemes import OwnScheme

_LARGEST_ENTRY: Final = MAX_MESSAGE_BYTES - 64 * 1024
"""Largest entry, in bytes; the rest is for Kafka's overhead per record."""


@dataclass(frozen=True, slots=True)
class RunningTable:
    """A table that a run is about to use."""

    handler: str
    """Name of its handler."""
    hash: str
    """SHA-256 of its meaning, as 64 hexadecimal digits."""
    text: str
    name: str
    """The source of the text."""
    lines: tuple[int, ...]
    """The line of each rule."""
    schemes: tuple[OwnScheme, ...] = ()
    """Dead-letter schemes in the settings."""
    origin_topic: str = ""
    """The handler's ``origin_topic`` in them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The line numbers of a table's rules from some time on: comments may move them."""

    since: float
    """Seconds since 1970."""
    lines: tuple[int, ...]
    """The line of each rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTable:
    """A table that has run."""

    handler: str
    """Name of its handler."""
    hash: str
    """SHA-256 of its meaning, as 64 hexadecimal digits."""
    text: str | None
    """The text of the last run; None if it is too long for the topic."""
    name: str
    """The source of the text."""
    first_run: float
    """When a run with it first began, in seconds since 1970."""
    first_by: str
    """The user who began that run, ``user@host``."""
    last_run: float
    """When a run with it last began."""
    last_by: str
    layouts: tuple[Layout, ...]
    """Lines of its rules, oldest first."""
    schemes: tuple[OwnScheme, ...] = ()
    """Dead-letter schemes in the settings when a run with it last began."""
    origin_topic: str = ""
    """The handler's ``origin_topic`` then."""

    @property
    def key(self) -> str:
        """The key of its entry."""
        return _key(self.handler, self.hash)

    @classmethod
    def from_entry(cls, value: bytes) -> Self:
        """Read the value of an entry.

        Raises:
            ValueError: It is not a table's entry.
        """
        try:
            content = orjson.loads(zlib.decompress(value))
            layouts = tuple(
                Layout(layout["since"], tuple(layout["lines"])) for layout in content.pop("layouts")
            )
            schemes = tuple(OwnScheme(**scheme) for scheme in content.pop("schemes", ()))
            return cls(**content, layouts=layouts, schemes=schemes)
        except (zlib.error, AttributeError, KeyError, TypeError) as error:
            raise ValueError("not the entry of a table") from error

    def entry(self) -> bytes:
        """The value of its entry; without the text if that is too long."""
        value = zlib.compress(orjson.dumps(asdict(self)), level=9)
        if len(value) <= _LARGEST_ENTRY or self.text is None:
            return value
        return replace(self, text=None).entry()


@dataclass(frozen=True, slots=True)
class TablesRead:
    """The content of a tables topic."""

    tables: Sequence[KeptTable]
    """Tables, the last started first."""
    unreadable: Sequence[str]
    """Keys of unreadable entries."""


def read_tables(cluster: Cluster, topic: str) -> TablesRead:
    """Read every table on a tables topic, which exists.

    Raises:
        TransientFault: The broker did not answer in time.
    """
    # Tables are written outside of any transaction, so an operator's transaction hides none.
    entries = dict(read_pairs(cluster, topic, committed_only=False))
    tables: list[KeptTable] = []
    unreadable: list[str] = []
    for key, value in entries.items():
        if value is None:
            continue
        try:
            tables.append(KeptTable.from_entry(value))
        except ValueError:
            if not key.startswith(STATE_KINDS):
                unreadable.append(key)
    tables.sort(key=lambda table: table.last_run, reverse=True)
    return TablesRead(tables, unreadable)


def keep_tables(
    cluster: Cluster, topic: str, running: Sequence[RunningTable], *, now: float, by: str
) -> None:
    """Record that a run with these tables begins, and wait until every replica has it.

    The run begins at a time in seconds since 1970, by a user as ``user@host``.

    Raises:
        TransientFault: The broker did not answer in time.
    """
    known = {table.key: table for table in read_tables(cluster, topic).tables}
    kept = (
        _with_run(known.get(_key(table.handler, table.hash)), table, now=now, by=by)
        for table in running
    )
    cluster.append(topic, [(table.key.encode(), table.entry()) for table in kept])


def _with_run(known: KeptTable | None, table: RunningTable, *, now: float, by: str) -> KeptTable:
    layouts = () if known is None else known.layouts
    if not layouts or layouts[-1].lines != table.lines:
        layouts = (*layouts, Layout(now, table.lines))
    return KeptTable(
        handler=table.handler,
        hash=table.hash,
        text=table.text,
        name=table.name,
        first_run=now if known is None else known.first_run,
        first_by=by if known is None else known.first_by,
        last_run=now,
        last_by=by,
        layouts=layouts,
        schemes=table.schemes,
        origin_topic=table.origin_topic,
    )


def _key(handler: str, table: str) -> str:
    return f"{handler}/{table}"

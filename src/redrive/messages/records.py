"""Records of one lane: what the job decodes, decides and emits.

They are lists of Python objects, one for each part of a record, as in the Kafka client. Nearly all
records of a lane have the same header names in the same order; a ``HeaderGrid`` makes columns of
their headers, so that code can read one header of every record without the others.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from redrive.messages.fields import Headers

INTERNAL = -1
"""Entry number of a record that belongs to no single attempt, such as an outcome record."""


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """``topic:partition``, as in identities and log lines."""
        return f"{self.topic}:{self.partition}"


class OffsetRange(NamedTuple):
    """The offsets ``[start, end)`` of one partition."""

    topic: str
    partition: int
    start: int
    end: int


class OutputRecord(NamedTuple):
    """One record to produce."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    timestamp: int
    """Milliseconds since the epoch."""
    partition: int = -1
    """Target partition; -1 leaves the choice to the partitioner."""


class Refused(NamedTuple):
    """A record that cannot be put: the broker, the client or known facts refuse it."""

    entry: int
    """Entry number of the record; ``INTERNAL`` for a record of Redrive's own."""
    reason: int
    """MQ reason code that the refusal maps to."""
    detail: str
    """Kafka's message."""


@dataclass(frozen=True, slots=True)
class HeaderGrid:
    """The headers of records that all have the same header names in the same order."""

    layout: tuple[str, ...]
    """The header names of every record."""
    values: Sequence[bytes | None] | pa.BinaryArray
    """The values of all records, record after record."""

    @classmethod
    def of(cls, headers: Sequence[Headers]) -> Self | None:
        """The grid of some records' headers; None if their names or order differ."""
        if not any(headers):
            return cls((), ())
        width = len(headers[0])
        if not all(map(width.__eq__, map(len, headers))):
            return None
        names, values = zip(*chain.from_iterable(headers), strict=True)
        layout = names[:width]
        return cls(layout, values) if names == layout * len(headers) else None

    @classmethod
    def of_arrow(cls, column: pa.ListArray) -> Self | None:
        """The same of a column as ``Records.from_arrow`` has it, whose values stay in Arrow."""
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        pairs, width = column.flatten(), int(lengths[0]) if len(lengths) else 0
        if (lengths != width).any():
            return None
        if not width:
            return cls((), ())
        names = pairs.field(0).fill_null("")
        codes = names.dictionary_encode().indices.to_numpy().reshape(-1, width)
        if (codes != codes[0]).any():
            return None
        return cls(tuple(names[:width].to_pylist()), pairs.field(1))

    def column(self, index: int) -> Sequence[bytes | None]:
        """The value of one header of ``layout`` in every record."""
        values = self.values[index :: len(self.layout)]
        return _objects(values) if isinstance(values, pa.Array) else values

    def last(self, name: str) -> Sequence[bytes | None]:
        """The value of the last header with a name of ``layout`` in every record."""
        return self.column(len(self.layout) - 1 - self.layout[::-1].index(name))


class _HeadersOnDemand(Sequence[Headers]):
    """The headers of records, made once they are asked for."""

    def __init__(self, column: pa.ListArray) -> None:
        self.column = column

    @cached_property
    def _rows(self) -> list[Headers]:
        return _headers(self.column)

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - a row, or several by a slice
        return self._rows[index]


@dataclass
class Records:
    """Some rows of one lane, in offset order. A value: its lists must not be changed."""

    keys: list[bytes | None]
    values: list[bytes | None]
    headers: Sequence[Headers]
    timestamps: list[int]
    """Milliseconds since 1970."""
    offsets: list[int]

    def __len__(self) -> int:
        return len(self.offsets)

    def rows(self, start: int, stop: int) -> Records:
        """The rows ``[start, stop)``."""
        return self._select(itemgetter(slice(start, stop)))

    def only(self, offsets: Container[int]) -> Records:
        """The rows with these offsets."""
        rows = [row for row, offset in enumerate(self.offsets) if offset in offsets]
        if len(rows) == len(self.offsets):
            return self
        return self._select(lambda column: [column[row] for row in rows])

    def _select(self, rows: Callable[[list[Any]], list[Any]]) -> Records:
        columns: list[Any] = [self.keys, self.values, self.headers]
        return Records(*map(rows, [*columns, self.timestamps, self.offsets]))

    @classmethod
    def from_arrow(cls, batch: pa.RecordBatch, *, reads_few: bool = False) -> Self:
        """Read a batch with the columns of Spark's Kafka source.

        Args:
            batch: Columns ``key`` and ``value`` (binary), ``headers``
                (``list<struct<key: string, value: binary>>``, null for none), ``timestamp`` (a
                timestamp, or an integer of milliseconds) and ``offset`` (integer); others are
                ignored.
            reads_few: Whether most headers stay unread: each is made when it is asked for.

        Raises:
            KeyError: If a column is missing.
        """
        column = batch.column("headers")
        grid = HeaderGrid.of_arrow(column)
        if grid is not None and not reads_few:
            grid = HeaderGrid(grid.layout, _objects(grid.values) if grid.layout else ())
        records = cls(
            keys=_objects(batch.column("key")),
            values=_objects(batch.column("value")),
            headers=_HeadersOnDemand(column) if reads_few else _headers(column, grid),
            timestamps=_milliseconds(batch.column("timestamp")).to_pylist(),
            offsets=batch.column("offset").to_pylist(),
        )
        records.grid = grid
        return records

    @cached_property
    def grid(self) -> HeaderGrid | None:
        """The headers as columns; None if the records' header names or their order differ."""
        return HeaderGrid.of(self.headers)


def _headers(column: pa.ListArray, grid: HeaderGrid | None = None) -> list[Headers]:
    if grid is not None and grid.layout:  # nearly always: the names are not made again
        width = len(grid.layout)
        same = list(zip(grid.layout * len(column), grid.values, strict=True))
        return [same[start : start + width] for start in range(0, len(same), width)]
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    pairs = column.flatten()
    # Kafka has no null header names; an Arrow column may. Each distinct name is made once.
    encoded = pairs.field(0).fill_null("").dictionary_encode()
    distinct = np.array(encoded.dictionary.to_pylist(), dtype=object)
    names = distinct[encoded.indices.to_numpy()].tolist() if len(distinct) else []
    flat = list(zip(names, _objects(pairs.field(1)), strict=True))
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    return [flat[start:end] for start, end in pairwise([0, *ends])]


def _objects(column: pa.Array) -> list[bytes | None]:
    # NumPy takes half the time of to_pylist.
    objects: list[bytes | None] = column.to_numpy(zero_copy_only=False).tolist()
    return objects


def _milliseconds(column: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(column.type):
        return column
    milliseconds = pa.timestamp("ms", tz=column.type.tz)
    return column.cast(milliseconds, safe=False).cast(pa.int64())

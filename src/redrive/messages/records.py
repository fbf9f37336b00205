"""Records of one lane as columns: what the job decodes, decides and emits.

A batch comes as Arrow columns and goes out record by record, so both shapes are at hand: lists of
Python objects for the records, Arrow columns for what is done to all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from redrive.messages.fields import Headers

__all__ = ["HeaderColumn", "Records"]


@dataclass(frozen=True, slots=True)
class HeaderColumn:
    """The headers of some records, laid end to end."""

    starts: npt.NDArray[np.int64]
    """Where each record's headers begin; one more entry marks the end of the last."""
    names: list[str]
    """The distinct header names."""
    codes: npt.NDArray[np.int64]
    """For each header the index of its name in ``names``."""
    values: pa.BinaryArray
    """For each header its value."""

    @classmethod
    def from_arrow(cls, column: pa.ListArray) -> Self:
        """Take apart a column of type ``list<struct<key: string, value: binary>>``.

        Args:
            column: Spark's Kafka source gives null for a record without headers.

        Returns:
            The same headers, their names encoded once per distinct name.
        """
        lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
        pairs = column.flatten()
        names = pairs.field(0)
        if names.null_count:  # Kafka has no null header names; an Arrow column may.
            names = names.fill_null("")
        encoded = names.dictionary_encode()
        return cls(
            starts=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
            names=encoded.dictionary.to_pylist(),
            codes=encoded.indices.to_numpy().astype(np.int64),
            values=pairs.field(1),
        )

    @classmethod
    def from_lists(cls, headers: list[Headers]) -> Self:
        """Lay the headers of records end to end that are at hand as Python objects."""
        index: dict[str, int] = {}
        flat = list(chain.from_iterable(headers))
        codes = [index.setdefault(name, len(index)) for name, _ in flat]
        return cls(
            starts=np.concatenate([[0], np.cumsum([len(h) for h in headers], dtype=np.int64)]),
            names=list(index),
            codes=np.array(codes, dtype=np.int64),
            values=pa.array([raw for _, raw in flat], pa.binary()),
        )

    def to_lists(self) -> list[Headers]:
        """The headers of each record."""
        names = np.array(self.names, dtype=object)[self.codes].tolist() if self.names else []
        pairs = list(zip(names, _objects(self.values), strict=True))
        return [pairs[start:end] for start, end in pairwise(self.starts.tolist())]


@dataclass(slots=True)
class Records:
    """Some rows of one lane, in offset order. A value: its columns are not to be changed."""

    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]
    timestamps: list[int]
    """Milliseconds since 1970."""
    offsets: list[int]
    value_column: pa.BinaryArray | None = field(default=None, repr=False, compare=False)
    """The values as they came from Arrow, if they did."""
    header_column: HeaderColumn | None = field(default=None, repr=False, compare=False)
    """The headers as they came from Arrow, if they did."""

    def __len__(self) -> int:
        return len(self.offsets)

    @classmethod
    def from_arrow(cls, batch: pa.RecordBatch) -> Self:
        """Read a batch with the columns of Spark's Kafka source.

        Args:
            batch: Columns ``key`` and ``value`` (binary), ``headers``
                (``list<struct<key: string, value: binary>>``, null for none), ``timestamp`` (a
                timestamp, or an integer of milliseconds) and ``offset`` (integer); others are
                ignored.

        Returns:
            The rows of the batch.

        Raises:
            KeyError: If a column is missing.
        """
        headers = HeaderColumn.from_arrow(batch.column("headers"))
        return cls(
            keys=_objects(batch.column("key")),
            values=_objects(batch.column("value")),
            headers=headers.to_lists(),
            timestamps=_milliseconds(batch.column("timestamp")).to_pylist(),
            offsets=batch.column("offset").to_pylist(),
            value_column=batch.column("value"),
            header_column=headers,
        )

    def columns(self) -> tuple[pa.BinaryArray, HeaderColumn]:
        """Values and headers as Arrow columns; built if the records did not come from Arrow."""
        if self.value_column is None or self.header_column is None:
            self.value_column = pa.array(self.values, pa.binary())
            self.header_column = HeaderColumn.from_lists(self.headers)
        return self.value_column, self.header_column


def _objects(column: pa.Array) -> list[bytes | None]:
    # The way through NumPy takes half the time of to_pylist.
    objects: list[bytes | None] = column.to_numpy(zero_copy_only=False).tolist()
    return objects


def _milliseconds(column: pa.Array) -> pa.Array:
    if not pa.types.is_timestamp(column.type):
        return column
    milliseconds = pa.timestamp("ms", tz=column.type.tz)
    return column.cast(milliseconds, safe=False).cast(pa.int64())

"""The rows that flow through the query: the same columns from every source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from redrive.kafka.records import StoredRecord

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""Columns of Spark's Kafka source, in the order of ``SCHEMA``."""

SCHEMA: Final = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary,"
    " headers array<struct<key: string, value: binary>>"
)
"""The same for Spark."""

_ARROW: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def selected(frame: DataFrame) -> DataFrame:
    """The columns that a decision needs."""
    return frame.select(*COLUMNS)


def arrow_batch(records: list[StoredRecord]) -> pa.RecordBatch:
    """Records as one batch of rows."""
    columns = (
        [record.lane.topic for record in records],
        [record.lane.partition for record in records],
        [record.offset for record in records],
        [max(0, record.timestamp) * 1000 for record in records],
        [record.key for record in records],
        [record.value for record in records],
        [[{"key": name, "value": raw} for name, raw in record.headers] for record in records],
    )
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(columns, _ARROW, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)

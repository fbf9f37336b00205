"""The rows that flow through the query: the same columns from every source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from redrive.messages import Records, TopicPartition

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""Columns of Spark's Kafka source, in the order of ``held_source.SCHEMA``."""

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


def arrow_batch(lane: TopicPartition, records: Records) -> pa.RecordBatch:
    """Records of one lane as one batch of rows."""
    count = len(records)
    columns = (
        pa.repeat(lane.topic, count),
        pa.repeat(pa.scalar(lane.partition, pa.int32()), count),
        records.offsets,
        [1000 * milliseconds for milliseconds in records.timestamps],
        records.keys,
        records.values,
        records.headers,
    )
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, type=field.type)
        for column, field in zip(columns, _ARROW, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)

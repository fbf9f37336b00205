"""The rows that flow through the query: the same columns from every source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa

if TYPE_CHECKING:
    from confluent_kafka import Message
    from pyspark.sql import DataFrame

    from redrive.messages import Headers

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


def arrow_batch(messages: list[Message]) -> pa.RecordBatch:
    """Consumed messages as one batch of rows."""
    headers = [_headers(message) for message in messages]
    columns = (
        [message.topic() for message in messages],
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        [max(0, message.timestamp()[1]) * 1000 for message in messages],
        [message.key() for message in messages],
        [message.value() for message in messages],
        headers,
    )
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(columns, _ARROW, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _headers(message: Message) -> list[dict[str, str | bytes | None]] | None:
    # The client's stub allows more forms than what it reads can take.
    pairs = cast("Headers | None", message.headers())
    return None if pairs is None else [{"key": name, "value": raw} for name, raw in pairs]

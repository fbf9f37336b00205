"""A streaming source that can be held: retries, remaining messages, transmission queues.

Spark starts one Python process to create a source from its options, and one to plan. A start waits
for each in turn, so only the last imports what planning needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.types import StructType

NAME: Final = "redrive_held"
"""The format name under which the source is registered."""

SCHEMA: Final = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary,"
    " headers array<struct<key: string, value: binary>>"
)
"""The columns of the query's frame, for Spark. Not in ``rows``, which needs pyarrow."""


class HeldSource(DataSource):
    """All held partitions as one source."""

    @classmethod
    def name(cls) -> str:
        """The format name of the source."""
        return NAME

    def schema(self) -> str:
        """The columns of the query's frame."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader; its options are those of ``HeldSettings``."""
        from redrive.streaming.held_reader import (  # noqa: PLC0415 - only planning needs it
            HeldReader,
            HeldSettings,
        )

        del schema
        return HeldReader(HeldSettings.from_options(self.options))

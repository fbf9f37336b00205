"""A user's function between sources and decision, checked not to lose messages.

The function gets the batch's frame and returns one with the same columns and new values: a header
from a lookup table, a decrypted body. It may not drop, duplicate or move rows. This is checked:
rows are numbered before, must keep their numbers and order, and are counted.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from redrive.errors import ConfigurationError, FatalFault
from redrive.kafka.deadline import PATIENCE, within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

    from redrive.configuration import JobConfiguration

_NUMBER: Final = "redrive_row"
"""A column that numbers the rows of each task (``monotonically_increasing_id``)."""
_ROW_BITS: Final = 33
"""Bits of such a number for the row in its task; the others identify the task."""
_HINT: Final = (
    "an enrichment fills columns: let it drop, double, sort and repartition nothing; join with"
    " small tables by broadcast, as left joins on keys that are unique"
)


class Enrichment:
    """No enrichment: frames pass unchanged."""

    @classmethod
    def of(cls, configuration: JobConfiguration) -> Enrichment:
        """The enrichment in the settings, or none.

        Raises:
            ConfigurationError: It cannot be imported.
        """
        if not configuration.enrichment:
            return cls()
        module, _, name = configuration.enrichment.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(
                f"the enrichment {configuration.enrichment} cannot be imported: {error}",
                hint="name it as package.module:function, and make it importable for the job",
            ) from error
        return _CheckedEnrichment(configuration.enrichment, function)

    def applied(self, frame: DataFrame) -> DataFrame:
        """The frame for the decision; the batch has the columns of ``held_source.SCHEMA``."""
        return frame

    def check_fetched(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Checks the number of fetched rows before anything is emitted."""

    def checked(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        """The batches, checked as they pass."""
        return batches

    def check_count(self, rows: int) -> None:
        """Checks the number of emitted rows."""


class _CheckedEnrichment(Enrichment):
    """One function; see the module."""

    def __init__(self, name: str, function: Callable[[DataFrame], DataFrame]) -> None:
        self._name = name
        self._function = function
        self._read: Observation | None = None

    def applied(self, frame: DataFrame) -> DataFrame:
        from pyspark.sql import Observation  # noqa: PLC0415 - slow to import
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the name the field uses

        self._read = Observation()
        numbered = frame.withColumn(_NUMBER, F.monotonically_increasing_id())
        counted = numbered.observe(self._read, F.count(F.lit(1)).alias("rows"))
        enriched = self._function(counted)
        missing = {*frame.columns, _NUMBER} - set(enriched.columns)
        if missing:
            raise self._fault(f"drops the columns {', '.join(sorted(missing))}")
        if _moves_rows(enriched):
            raise self._fault("moves rows between tasks")
        return enriched.select(*frame.columns, _NUMBER)

    def check_fetched(self, batches: Sequence[pa.RecordBatch]) -> None:
        self.check_count(sum(batch.num_rows for batch in batches))

    def checked(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return numbered_in_order(batches)

    def check_count(self, rows: int) -> None:
        if self._read is None:
            raise RuntimeError("rows are counted that were never read")
        observation = self._read
        step = f"count of the rows that the enrichment {self._name} read"
        read = int(within(step, PATIENCE, lambda: observation.get)["rows"])
        if rows != read:
            raise self._fault(f"returned {rows} rows for {read}")

    def _fault(self, what: str) -> FatalFault:
        return FatalFault(f"the enrichment {self._name} {what}", hint=_HINT)


def numbered_in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, if their rows still have the numbers from before an enrichment.

    Raises:
        FatalFault: Rows are missing, duplicated or reordered. No row after the first such row is
            passed on.
    """
    expected: dict[int, int] = {}
    for batch in batches:
        if _NUMBER in batch.schema.names and batch.num_rows:
            _check(batch.column(_NUMBER).to_numpy(zero_copy_only=False), expected)
        yield batch


def _check(numbers: np.ndarray[Any, Any], expected: dict[int, int]) -> None:
    tasks = numbers >> _ROW_BITS
    for task in np.unique(tasks):
        own = numbers[tasks == task] & ((1 << _ROW_BITS) - 1)
        first = expected.get(int(task), 0)
        if not np.array_equal(own, np.arange(first, first + len(own))):
            raise FatalFault("the enrichment drops, doubles or moves rows", hint=_HINT)
        expected[int(task)] = first + len(own)


def _moves_rows(frame: DataFrame) -> bool:
    """Whether Spark plans to move rows to other tasks, which would split lanes."""
    execution: Any = frame._jdf.queryExecution()  # noqa: SLF001 - the plan has no public name
    plan = str(execution.executedPlan().toString())
    lines = (line for line in plan.splitlines() if "BroadcastExchange" not in line)
    return any("Exchange" in line or "Sort " in line for line in lines)

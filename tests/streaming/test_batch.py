"""Who emits a batch: the driver while it is small, Spark's workers otherwise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from redrive.configuration import EmitterChoice
from redrive.streaming.batch import LARGEST_RESULT, BatchProcessor

LIMIT = 5_000
SMALL, LARGE = 500.0, 1_000_000.0
"""Bytes of a row."""


def uses_driver(
    choice: EmitterChoice, rows: int, row_size: float, *, workers_first: bool = False
) -> bool:
    """What a processor decides that has a bound on the rows of its batch."""
    processor = cast("Any", BatchProcessor.__new__(BatchProcessor))
    processor._configuration = SimpleNamespace(emitter=choice, driver_batch_limit=LIMIT)
    processor._workers_first = workers_first
    processor._row_size = row_size
    processor._most_rows = lambda: rows
    return bool(processor._uses_driver())


@pytest.mark.parametrize("choice", EmitterChoice)
def test_the_driver_never_fetches_more_than_spark_lets_it(choice: EmitterChoice) -> None:
    """Also where the driver is asked for: such a batch could not be fetched, now or ever."""
    rows = int(LARGEST_RESULT / LARGE)
    assert not uses_driver(choice, rows, LARGE)
    assert rows < LIMIT


def test_a_small_batch_is_the_drivers_unless_workers_are_asked_for() -> None:
    """By its rows where the choice is open, by its bytes always."""
    rows = {choice: uses_driver(choice, LIMIT, SMALL) for choice in EmitterChoice}
    assert rows == {
        EmitterChoice.AUTO: True, EmitterChoice.DRIVER: True, EmitterChoice.LANES: False,
    }  # fmt: skip
    assert not uses_driver(EmitterChoice.AUTO, LIMIT + 1, SMALL)
    assert uses_driver(EmitterChoice.DRIVER, LIMIT + 1, SMALL)


def test_after_a_batch_that_failed_workers_go_first() -> None:
    """It may have been too large, whatever was expected of it."""
    assert not uses_driver(EmitterChoice.DRIVER, 1, SMALL, workers_first=True)

"""A short run of the fuzz target of records; ``make fuzz`` has a hundred thousand and more."""

from __future__ import annotations

from tests.fuzz import records


def test_damaged_records_have_one_outcome_each() -> None:
    """Five thousand of them, dead letters of every scheme, the same ones in every run."""
    assert records.run(1, 5_000) == 5_000

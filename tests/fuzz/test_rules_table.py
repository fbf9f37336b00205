"""A short run of the fuzz target of rules tables."""

from __future__ import annotations

import pytest
from tests.fuzz import rules_table


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mutated_tables_do_no_harm(seed: int) -> None:
    """A thousand altered tables are read without a surprise, the same ones in every run."""
    assert rules_table.run(seed, texts=1000) == 1000

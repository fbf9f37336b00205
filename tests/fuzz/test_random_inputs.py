"""A short run of each fuzz target; ``make fuzz`` has longer ones."""

from __future__ import annotations

import pytest
from tests.fuzz.random_inputs import run


@pytest.mark.parametrize(
    ("target", "seed", "count"),
    [
        ("records", 1, 5_000),
        ("rules", 1, 1_000),
        ("rules", 2, 1_000),
        ("rules", 3, 1_000),
        ("mqsc", 20_240_501, 2_000),
    ],
)
def test_damaged_inputs_do_no_harm(target: str, seed: int, count: int) -> None:
    assert run(target, seed, count=count) == count

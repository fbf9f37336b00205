"""A bounded run of the MQSC fuzz target."""

from __future__ import annotations

import random

from tests.fuzz.mqsc import check, mutate


def test_mutated_scripts_are_read_without_a_crash() -> None:
    """Two thousand broken scripts give findings inside the text, and definitions that print."""
    source = random.Random(20_240_501)
    for _ in range(2000):
        check(mutate(source))

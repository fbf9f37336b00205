"""The vectors of ``mqe_puts``: where puts end in MQ Everyplace networks, and by which steps."""

from __future__ import annotations

import pytest
from tests.conformance.vectors import FURTHER_PUTS, Vector
from tests.topology.mqe.vector_put import check_vector


@pytest.mark.vectors("mqe_puts")
def test_put(vector: Vector) -> None:
    """The put takes the vector's steps and ends where the vector says."""
    assert check_vector(vector) == []


@pytest.mark.parametrize("vector", FURTHER_PUTS, ids=lambda vector: vector["id"])
def test_further_put(vector: Vector) -> None:
    """What the vectors leave open."""
    assert check_vector(vector) == []

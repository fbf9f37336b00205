"""Vectors of ``schemes.yaml``: how the dead letters of the Kafka world read."""

from __future__ import annotations

import pytest
from tests.conformance.vectors import Vector, is_subset, nested, octets

from redrive.messages import Headers, read_view


@pytest.mark.vectors("schemes")
def test_normalised_view(vector: Vector) -> None:
    """The parts of the normalised view that a vector names read as it says."""
    headers: Headers = [(name, octets(content)) for name, content in vector["headers"]]
    view = read_view(octets(vector["key"]), octets(vector["value"]), headers)
    actual = nested(view)
    for name, expected in vector["expect"].items():
        assert is_subset(expected, actual[name]), f"{name}: {actual[name]!r}"

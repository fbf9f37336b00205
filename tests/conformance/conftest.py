"""Gives each test the vectors that its mark ``vectors`` asks for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.vectors import load, of_kinds, vector_id


def pytest_configure(config: pytest.Config) -> None:
    """Name the mark."""
    config.addinivalue_line(
        "markers",
        "vectors(stem, kinds=None): run once for each vector of these kinds of the file <stem>",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each vector."""
    mark = metafunc.definition.get_closest_marker("vectors")
    if mark is None:
        return
    stem, kinds = mark.args[0], mark.kwargs.get("kinds")
    vectors = of_kinds(load(_directory(metafunc.config), stem), kinds)
    ids = [vector_id(stem, vector) for vector in vectors]
    metafunc.parametrize("vector", vectors, ids=ids)


@pytest.fixture
def vectors_directory(request: pytest.FixtureRequest) -> Path:
    """The folder that the vectors are read from."""
    return _directory(request.config)


def _directory(config: pytest.Config) -> Path:
    directory: Path = config.getoption("vectors")
    return directory

"""Gives each test the vectors that its mark ``vectors`` asks for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.vectors import load, of_kinds, vector_id


def pytest_configure(config: pytest.Config) -> None:
    """Name the mark."""
    config.addinivalue_line(
        "markers",
        "vectors(stem, kinds=None, leave_out=None): run once for each vector of these kinds of the"
        " file <stem>, save those for which leave_out(stem, vector) gives a reason",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each vector."""
    mark = metafunc.definition.get_closest_marker("vectors")
    if mark is None:
        return
    stem, kinds = mark.args[0], mark.kwargs.get("kinds")
    vectors = of_kinds(load(_directory(metafunc.config), stem), kinds)
    if leave_out := mark.kwargs.get("leave_out"):
        vectors = [vector for vector in vectors if not leave_out(stem, vector)]
    ids = [vector_id(stem, vector) for vector in vectors]
    metafunc.parametrize("vector", vectors, ids=ids)


@pytest.fixture(scope="session")
def vectors_directory(request: pytest.FixtureRequest) -> Path:
    """The folder that the vectors are read from."""
    return _directory(request.config)


def _directory(config: pytest.Config) -> Path:
    directory: Path = config.getoption("vectors")
    return directory

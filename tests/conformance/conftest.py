"""Gives each test the vectors that its mark ``vectors`` asks for, and those of our own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.vectors import OWN, load, of_kinds, vector_id


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "vectors(*stems, kinds=None, leave_out=None): run for each vector of these kinds of the"
        " files <stem>, save those for which leave_out(stem, vector) gives a reason",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("vectors")
    if mark is None:
        return
    directories, kinds = (_directory(metafunc.config), OWN), mark.kwargs.get("kinds")
    leave_out = mark.kwargs.get("leave_out", lambda *_: "")
    vectors = [
        (stem, vector)
        for stem in mark.args
        for directory in directories
        for vector in of_kinds(load(directory, stem), kinds)
        if not leave_out(stem, vector)
    ]
    ids = [vector_id(*vector_of_stem) for vector_of_stem in vectors]
    if "stem" in metafunc.fixturenames:
        metafunc.parametrize(("stem", "vector"), vectors, ids=ids)
    else:
        metafunc.parametrize("vector", [vector for _, vector in vectors], ids=ids)


@pytest.fixture(scope="session")
def vectors_directory(request: pytest.FixtureRequest) -> Path:
    """The folder that the vectors are read from."""
    return _directory(request.config)


def _directory(config: pytest.Config) -> Path:
    directory: Path = config.getoption("vectors")
    return directory

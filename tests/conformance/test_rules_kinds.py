"""Every vector is run, and by one test only."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.vectors import is_subset, load


def _kinds_run() -> Iterator[str]:
    """The kinds of rules.json that the tests of this folder ask for."""
    for path in sorted(Path(__file__).parent.glob("test_rules_*.py")):
        module = importlib.import_module(f"tests.conformance.{path.stem}")
        for function in vars(module).values():
            for mark in getattr(function, "pytestmark", []):
                if mark.name == "vectors" and mark.args == ("rules",):
                    yield from mark.kwargs["kinds"]


def test_every_kind_of_rules_vector_is_run_once(vectors_directory: Path) -> None:
    run = Counter(_kinds_run())
    assert {vector["kind"] for vector in load(vectors_directory, "rules")} <= set(run)
    assert set(run.values()) == {1}


def test_a_missing_file_has_no_vectors(tmp_path: Path) -> None:
    assert load(tmp_path, "rules") == []


@pytest.mark.parametrize("suffix", [".json", ".yaml", ".yml"])
def test_vectors_are_read_from_json_and_yaml(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"some{suffix}").write_text('[{"id": "A1"}]')
    assert load(tmp_path, "some") == [{"id": "A1"}]


def test_expected_objects_are_subsets_and_lists_are_not() -> None:
    assert is_subset({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}], "d": 3})
    assert not is_subset({"a": [1]}, {"a": [1, 2]})
    assert not is_subset({"a": None}, {})
    assert not is_subset({"a": "1"}, {"a": 1})

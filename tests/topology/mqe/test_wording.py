"""The comparison of vectors with resolutions: strict about facts, free about wording."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.topology.mqe.vector_put import check_vector
from tests.topology.mqe.wording import step_words

VECTORS: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[2] / "vectors" / "mqe_puts.yaml").read_text("utf-8")
)


def damaged(vector: dict[str, Any]) -> list[dict[str, Any]]:
    """The vector with one fact of its expectation changed, in every way that is at hand."""
    expect = vector["expect"]
    changes = [*_wrong_steps(expect["steps"])]
    for key in ("final", "stored"):
        if expect.get(key):
            words = expect[key].split()
            facts = range(1 if key == "final" else len(words))
            changes += [
                {key: " ".join([*words[:index], f"x{words[index]}x", *words[index + 1 :]])}
                for index in facts
                if words[index] != "on"
            ]
    if "error" in expect:
        changes += [{"error": None, "final": "Q@QM"}, {"error": "queue full"}]
    else:
        changes.append({"error": "queue full"})
    return [{**vector, "expect": {**expect, **change}} for change in changes]


def _wrong_steps(steps: list[str]) -> Iterator[dict[str, Any]]:
    for index, step in enumerate(steps):
        manager, kind, *rest = step.split()
        for wrong in (f"Other {kind} {' '.join(rest)}", f"{manager} pull {' '.join(rest)}x"):
            yield {"steps": [*steps[:index], wrong, *steps[index + 1 :]]}
    if steps:
        yield {"steps": [*steps, steps[-1]]}
        yield {"steps": steps[1:]}
    if len(steps) > 1:
        yield {"steps": steps[::-1]}


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["id"] for vector in VECTORS])
def test_any_change_of_a_fact_is_noticed(vector: dict[str, Any]) -> None:
    unnoticed = [changed["expect"] for changed in damaged(vector) if check_vector(changed) == []]
    assert unnoticed == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("QM s&f S (stores A@T)", "QM  s&f S stores A@T"),
        ("QM conn T direct", "QM conn T"),
        ("QM qm-alias A->B", "QM qm-alias A -> B"),
        ("QM exact LQ Q", "QM exact LQ Q@QM"),
        ("QM exact RQD Q@T sync", "QM exact RQD Q@T"),
    ],
)
def test_wording_that_says_the_same_is_the_same(one: str, other: str) -> None:
    assert step_words(one) == step_words(other)


def test_unknown_fields_are_reported_instead_of_passed_over() -> None:
    vector = copy.deepcopy(VECTORS[0])
    vector["expect"]["colour"] = "red"
    assert check_vector(vector) == ["expectation 'colour' is not known"]
    vector["put"]["colour"] = "red"
    assert check_vector(vector) == ["put fields ['colour'] are not known"]

"""Test vectors: reading them, and handing each one to the test of its kind.

A test asks for vectors with a mark and an argument called ``vector``::

    @pytest.mark.vectors("rules", kinds=["match"])
    def test_match(vector: Vector) -> None: ...

and runs once for each vector of ``rules.json`` or ``rules.yaml`` of these kinds, under an id made
of file stem and vector id, such as ``rules-L01``. A test of several files may ask for the ``stem``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from redrive.messages import DeadLetterView

Vector: TypeAlias = dict[str, Any]
"""One vector as its file has it."""


def load(directory: Path, stem: str) -> list[Vector]:
    """Read the vectors of one file.

    Args:
        directory: The folder.
        stem: Name of the file without ``.json``, ``.yaml`` or ``.yml``.

    Returns:
        The vectors in order; none if there is no such file.
    """
    for suffix in (".json", ".yaml", ".yml"):
        path = directory / f"{stem}{suffix}"
        if path.exists():
            text = path.read_text(encoding="utf-8")
            if suffix == ".json":
                vectors: list[Vector] = json.loads(text)
            else:  # ten times as fast as what is written in Python, and each worker reads them
                vectors = yaml.load(text, yaml.CSafeLoader)
            return vectors or []
    return []


OWN = Path(__file__).parent / "own"
"""Vectors that go beyond any set that is given."""
FURTHER_ROUTES, FURTHER_PUTS = (
    load(Path(__file__).parent / "traffic", stem) for stem in ("mq_routes", "mqe_puts")
)
"""Ends of messages that the vectors leave open, in their form."""


def of_kinds(vectors: list[Vector], kinds: Collection[str] | None) -> list[Vector]:
    """The vectors of some kinds; of all kinds if None, and all of a file that has no kinds."""
    return [vector for vector in vectors if kinds is None or vector.get("kind") in kinds]


def vector_id(stem: str, vector: Mapping[str, Any]) -> str:
    return f"{stem}-{vector['id']}"


def is_subset(expected: Any, actual: Any) -> bool:
    """Whether a value holds what a vector expects.

    Members of objects that are not named are not checked; lists must have equal length.
    """
    if isinstance(expected, dict):
        return isinstance(actual, Mapping) and all(
            name in actual and is_subset(value, actual[name]) for name, value in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(actual, list | tuple)
            and len(expected) == len(actual)
            and all(map(is_subset, expected, actual))
        )
    return bool(expected == actual)


def nested(view: DeadLetterView) -> dict[str, Any]:
    """A view with the names of the specification: ``error.class`` is a member of ``error``."""
    flat = asdict(view)
    error = {
        name: flat.pop(f"error_{name}") for name in ("class", "root_class", "message", "stack")
    }
    return {**flat, "error": error}


def octets(content: dict[str, Any] | None) -> bytes | None:
    """The bytes that a value object of a vector stands for."""
    match content:
        case None:
            return None
        case {"text": text}:
            return str(text).encode()
        case {"hex": digits}:
            return bytes.fromhex(str(digits))
        case {"int32be": number}:
            return int(number).to_bytes(4, "big", signed=True)
        case {"int64be": number}:
            return int(number).to_bytes(8, "big", signed=True)
    raise ValueError(f"{content!r} is no value object: see the README of the vectors")

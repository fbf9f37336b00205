"""Tables without DIALECT are IBM's: what was said of them before the dialect came is said now."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from redrive.rules import parse

_FOLDER = Path(__file__).parent
TEXTS = {
    vector["id"]: vector["table"]
    for vector in json.loads((_FOLDER.parent / "vectors" / "rules.json").read_text())
    if "table" in vector
}
BEFORE = json.loads((_FOLDER / "ibm_tables.json").read_text())
"""Vector -> digest of ``said_about``, written by the version before the dialect."""


def said_about(text: str) -> str:
    """Everything that reading a table tells: findings, canonical text, hash."""
    result = parse(text)
    said = [finding.render() for finding in result.diagnostics]
    if result.table is not None:
        said += [result.table.canonical(), result.table.hash]
    return "\n".join(said)


@pytest.mark.parametrize("name", TEXTS)
def test_a_table_of_ibm_is_read_byte_for_byte_as_before(name: str) -> None:
    """The same findings, the same canonical text, the same hash."""
    assert sha256(said_about(TEXTS[name]).encode()).hexdigest() == BEFORE[name]

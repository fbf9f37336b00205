"""The examples of docs/resolution-mqe.md are what the library does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.topology.mqe.vector_put import told_and_taken

from redrive.topology.mqe.reader import read_network

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "resolution-mqe.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```resolution\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "example", EXAMPLES, ids=[example.split("\nput ")[1].split()[0] for example in EXAMPLES]
)
def test_an_example_of_the_page_is_what_happens(example: str) -> None:
    expected, taken = told_and_taken(example)
    assert taken == expected


def test_the_page_has_an_example_for_every_step() -> None:
    assert len(EXAMPLES) == len(set(EXAMPLES)) >= 15


def test_the_network_of_the_page_is_a_sound_one() -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    result = read_network(text)
    assert result.network is not None
    assert [
        diagnostic.render() for diagnostic in result.diagnostics if diagnostic.severity != "note"
    ] == []

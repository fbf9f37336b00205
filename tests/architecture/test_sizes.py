"""No class grows past what a reader keeps in mind."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parents[2] / "src"
MOST: Final = 250
"""Lines of a class, its docstrings among them."""


def test_no_class_has_more_than_250_lines() -> None:
    """A longer one does two things, or more."""
    lengths = {
        f"{path.relative_to(SOURCES)}: {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    assert {name: lines for name, lines in lengths.items() if lines > MOST} == {}

"""Every module says what it is, and every test says what holds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_WORDS_OF_A_SENTENCE = 4
_SHORT_NAME = re.compile(rf"def test(?:_[^\W_]*){{1,{_WORDS_OF_A_SENTENCE - 1}}}\(")
_DOCSTRING = re.compile(r'(?:#.*\n|\s)*r?"""')
"""Modules are not parsed where their text tells as much: that takes long."""
_RETIRED = re.compile(
    r"\b(told|news|deed|weighed|heed(ed)?|by turns|for ever|there and back|as it stands)\b"
    r"|\bbec[ao]mes? of\b|\bevery error right\b"
    r"|\b[Ss]pecification [A-Z]?\.?\d|\b[AB]\.\d+\b|\bQ-\d\d"
)
"""Words that nobody uses so, and references into texts that are not in the repository."""


def test_every_module_has_a_docstring() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for folder in ("src", "tests", "benchmarks", "deploy")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not _DOCSTRING.match(path.read_text(encoding="utf-8"))
    ]
    assert silent == []


def test_every_test_says_what_holds() -> None:
    silent = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if _SHORT_NAME.search(text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if not ast.get_docstring(node)
        if len(node.name.removeprefix("test_").split("_")) < _WORDS_OF_A_SENTENCE
    ]
    assert silent == []


def test_no_source_has_a_retired_word_or_a_reference_to_nowhere() -> None:
    lines = [
        f"{path.relative_to(ROOT)}:{number} {match[0]}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (match := _RETIRED.search(line))
    ]
    assert lines == []

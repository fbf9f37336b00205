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
)
"""Words that nobody uses so."""
_REFERENCE = re.compile(r"\b[Ss]pecification [A-Z]?\.?\d|\b[AB]\.\d+\b|\bQ-\d\d")
"""References into texts that are not in the repository; tests name the source of a rule so."""


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


def _lines_with(pattern: re.Pattern[str], *folders: str) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number} {match[0]}"
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".py", ".md"} and path.parent != Path(__file__).parent
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (match := pattern.search(line))
    ]


def test_no_text_has_a_retired_word_and_no_source_a_reference_to_nowhere() -> None:
    assert _lines_with(_RETIRED, "src", "tests", "benchmarks", "docs") == []
    assert _lines_with(_REFERENCE, "src") == []


def test_pages_name_modules_that_exist() -> None:
    folders = ("src", "tests", "benchmarks", "deploy", "examples")
    modules = [str(path) for folder in folders for path in (ROOT / folder).rglob("*.py")]
    named = {
        (page.name, name)
        for page in (ROOT / "docs").rglob("*.md")
        for name in re.findall(r"`([\w/]+\.py)`", page.read_text(encoding="utf-8"))
    }
    paths = "".join(modules)
    assert [pair for pair in named if f"/{pair[1]}" not in paths] == []

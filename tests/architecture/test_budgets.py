"""How much there is to read. Every number here only gets lower; raising one takes a commit."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[2]

LINES = {"src": 74379, "tests": 62186, "docs": 6000}
"""Lines of Python, and of pages in docs: 55,000 of the source and 46,000 of tests are the goal."""
WORDS = 60_000
"""Words of the pages in docs."""
WORDS_OF_A_SENTENCE = 25
"""Nine of ten sentences of the pages have at most as many."""
FILES = 269
"""Modules of the source: fewer than 300 are the goal."""
LINES_OF_A_ROOM = 8614
"""Lines of the largest package of the source: 9,000 are the goal."""
LINES_OF_A_MODULE = 800
VAGUE_NAMES = 29
"""Bindings of names that don't say what they hold: fewer than 100 are the goal."""
SHARED_CLASS_NAMES = 4
"""Names that several classes of the source have: 15 are the goal."""

_VAGUE = {"one", "found", "it", "mine", "told"}
_BINDING = re.compile(rf"\b(?:{'|'.join(_VAGUE)})\s*(?:[:=,)\]]|in\b|[-+*/%&|^@<>]+=)")
"""What stands behind a name that is bound, and in sentences too."""


def _files(folder: str, ending: str) -> list[Path]:
    return sorted((ROOT / folder).rglob(f"*.{ending}"))


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _nodes_near(pattern: re.Pattern[str], *folders: str) -> Iterator[tuple[Path, ast.AST]]:
    """The nodes of all modules whose text has what is looked for; it takes long to parse all."""
    for path in (path for folder in folders for path in _files(folder, "py")):
        text = path.read_text(encoding="utf-8")
        if pattern.search(text):
            yield from ((path, node) for node in ast.walk(ast.parse(text)))


def test_there_is_no_more_to_read_than_before() -> None:
    endings = {"src": "py", "tests": "py", "docs": "md"}
    lines = {folder: sum(map(_lines, _files(folder, ending))) for folder, ending in endings.items()}
    assert all(lines[folder] <= limit for folder, limit in LINES.items()), lines
    assert len(_files("src", "py")) <= FILES


def test_pages_are_short_and_so_are_nine_of_ten_of_their_sentences() -> None:
    pages = [path.read_text(encoding="utf-8") for path in _files("docs", "md")]
    assert sum(len(page.split()) for page in pages) <= WORDS
    lengths = sorted(length for page in pages for length in _lengths_of_sentences(page))
    assert lengths[len(lengths) * 9 // 10] <= WORDS_OF_A_SENTENCE


def _lengths_of_sentences(page: str) -> Iterator[int]:
    """Words of each sentence, without code, tables and headings; code in a sentence is a word."""
    text = re.sub(r"^```.*?^```", "\n\n", page, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?: {4}|\||#|<|!\[).*$", "", text, flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)", re.sub(r"`[^`]*`", "code", text)):
        for sentence in re.split(r"(?<=[.!?])[\"')*_]*\s+", block):
            if (words := len(re.findall(r"[\w'-]+", sentence))) > 1:
                yield words


def test_each_room_can_be_read_in_a_day() -> None:
    source = ROOT / "src" / "redrive"
    rooms = groupby(_files("src", "py"), lambda path: path.relative_to(source).parts[0])
    lines = {room: sum(map(_lines, paths)) for room, paths in rooms}
    assert max(lines.values()) <= LINES_OF_A_ROOM, lines
    assert [path for path in _files("src", "py") if _lines(path) > LINES_OF_A_MODULE] == []


def test_names_say_what_they_hold() -> None:
    vague = Counter(
        str(path.relative_to(ROOT))
        for path, node in _nodes_near(_BINDING, "src", "tests")
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in _VAGUE)
        or (isinstance(node, ast.arg) and node.arg in _VAGUE)
    )
    assert vague.total() <= VAGUE_NAMES, vague.most_common(20)


def test_a_class_name_means_one_thing() -> None:
    names = Counter(
        name
        for path in _files("src", "py")
        for name in re.findall(r"^ *class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    )
    shared = sorted(name for name, count in names.items() if count > 1)
    assert len(shared) <= SHARED_CLASS_NAMES, shared

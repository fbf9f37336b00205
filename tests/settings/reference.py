"""Writes the tables of ``docs/settings.md`` from the forms of the settings.

``python -m tests.settings.reference`` brings the page up to date.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from enum import StrEnum
from functools import cache
from pathlib import Path

from redrive.forms import Key
from redrive.kafka.connection import KafkaTable
from redrive.settings_file import FORM

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
_SECTION = re.compile(r"^## \[+(\w+).*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"^\| setting and default \| meaning \|\n(?:\|.*\n)+", re.MULTILINE)


def updated(page: str) -> str:
    """The page with a table of keys below the heading of each table of the settings."""

    def section(match: re.Match[str]) -> str:
        key = FORM.root.keys[match[1]]
        table = "\n".join(_rows(key.element or key)) + "\n"
        return _TABLE.sub(lambda _: table, match[0], count=1)

    return _SECTION.sub(section, page)


def _rows(table: Key) -> Iterator[str]:
    meanings, of_kafka = _meanings(table.kind), _meanings(KafkaTable)
    yield "| setting and default | meaning |"
    yield "|---|---|"
    for name, key in sorted(table.keys.items(), key=lambda item: not item[1].is_required):
        if table.kind is not KafkaTable and key.attribute in of_kafka:
            continue  # the page says that they are those of [kafka]
        star, default = " *" if key.is_required else "", _default(key)
        yield f"| `{name}{default and f' = {default}'}`{star} | {meanings[key.attribute]} |"


def _default(key: Key) -> str:
    """A default as a file writes it; empty if there is none, or nothing that can be written."""
    default = key.field.default if key.field else MISSING
    match default:
        case bool():
            return str(default).lower()
        case StrEnum():
            return f'"{default.value}"'
        case str():
            return default and f'"{default}"'
        case int() | float():
            return str(default)
    return ""


@cache
def _meanings(form: type) -> Mapping[str, str]:
    """The docstrings of the fields of a form, those of its bases too."""
    meanings: dict[str, str] = {}
    for base in reversed(form.__mro__[:-1]):
        (tree,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                meaning = " ".join(str(ast.literal_eval(text.value)).split())
                meanings[ast.unparse(field.target)] = meaning.removesuffix(".")
    return meanings


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

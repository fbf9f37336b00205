"""The scanner finds every key and value of a TOML text where it stands."""

import tomllib
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from redrive.forms import KeyPath
from redrive.settings.document import Document, find_places

TEXT = """\
title = 'a # b'   # comment
[application]
name = "orders"
  "quoted \\u0041" . x = { a = 1, "b c" = [ 1, { d = 2 } ] }

[[handlers]]
queue = \"\"\"two
lines\"\"\"\"
[[handlers]]  # second
queue='''
'' '''
rules = [
  "x", # one
  'y',
]
[queues."A.B".deep]
when = 2024-01-01 10:00:00
ratio = 1e3
"""


def leaves(value: Any, path: KeyPath = ()) -> dict[KeyPath, Any]:
    """Every value of a document under its path, tables and lists included."""
    values = {path: value} if path else {}
    if isinstance(value, dict):
        for name, inner in value.items():
            values |= leaves(inner, (*path, name))
    if isinstance(value, list):
        for index, inner in enumerate(value):
            values |= leaves(inner, (*path, index))
    return values


def is_written_as_value(value: Any, written: str) -> bool:
    """Whether a value is written after an equals sign, and not by headers or dotted keys."""
    if isinstance(value, dict):
        return written.startswith("{")
    return not (isinstance(value, list) and written.startswith("[["))


def assert_places(text: str) -> None:
    """The text of each value's place reads back as that value, that of a key as its name."""
    places = find_places(text)
    document = leaves(tomllib.loads(text))
    assert places.keys() == document.keys()
    for path, value in document.items():
        key, written = (
            text[span.start : span.end] for span in (places[path].key, places[path].value)
        )
        if isinstance(path[-1], str):
            assert tomllib.loads(f"{key} = 1") == {path[-1]: 1}
        if is_written_as_value(value, written):
            assert tomllib.loads(f"v = {written}") == {"v": value}


def test_every_form_of_toml_is_located() -> None:
    assert_places(TEXT)


def test_a_place_is_the_line_and_column_of_the_key() -> None:
    """The second handler's queue stands on line 10, its name in column 1, its value in 7."""
    document = Document.from_text(TEXT, name="x.toml", directory=Path())
    key = document.at_key(("handlers", 1, "queue"))
    value = document.at_value(("handlers", 1, "queue"))
    assert (key.file, key.line, key.column, key.length) == ("x.toml", 10, 1, 5)
    assert (value.line, value.column, value.source_line) == (10, 7, "queue='''")


def test_lines_end_before_their_line_end() -> None:
    """LF and CR LF do not belong to a line, and the last one needs neither."""
    document = Document.from_text("a = 1\r\nb = 2\nc = 3", name="", directory=Path())
    shown = [document.at_value((key,)).source_line for key in "abc"]
    assert shown == ["a = 1", "b = 2", "c = 3"]


def basic(text: str) -> str:
    escaped = "".join(c if c.isascii() and c.isalnum() else f"\\U{ord(c):08x}" for c in text)
    return f'"{escaped}"'


characters = st.characters(codec="utf-8", exclude_characters="\r")
strings = st.one_of(
    st.text(characters).map(basic),
    st.text(st.sampled_from('ab ,#=[]{}."')).map(lambda text: f"'{text}'"),
    st.text(st.sampled_from("ab ,#=[]{}.'\n")).map(lambda text: f'"""{text}"""'),
    st.text(st.sampled_from('ab ,#=[]{}."\n')).map(lambda text: f"'''{text}'''"),
)
scalars = st.one_of(
    strings, st.integers(-99, 99).map(str), st.booleans().map(lambda b: str(b).lower())
)
keys = st.one_of(
    st.text("ab-_1", min_size=1, max_size=3), st.text("a b.=#]", max_size=3).map(basic)
)
gaps = st.sampled_from(["", " ", "\t "])
breaks = st.sampled_from(["", " ", "\n", " # c, ]\n"])


@st.composite
def lists(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    parts = [draw(breaks) + item + draw(breaks) for item in draw(st.lists(inner, max_size=3))]
    return "[" + ",".join(parts) + draw(breaks) + "]"


@st.composite
def inline_tables(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    pairs = draw(st.dictionaries(st.text("xyz", min_size=1, max_size=2), inner, max_size=3))
    gap = draw(gaps)
    return (
        "{" + ",".join(f"{gap}{name}{gap}={gap}{item}{gap}" for name, item in pairs.items()) + "}"
    )


values = st.recursive(scalars, lambda inner: lists(inner) | inline_tables(inner), max_leaves=6)


@st.composite
def documents(draw: st.DrawFn) -> str:
    lines = []
    for header in draw(st.lists(keys, max_size=3)):
        if draw(st.booleans()):
            lines.append(f"[[{draw(gaps)}list.{header}{draw(gaps)}]]{draw(gaps)}# c")
        else:
            lines.append(f"[t{len(lines)}.{draw(gaps)}{header}]")
        for name, value in draw(st.dictionaries(keys, values, max_size=3)).items():
            lines.append(f"{draw(gaps)}{name}{draw(gaps)}={draw(gaps)}{value}{draw(gaps)}# x = 1")
    return "\n".join(lines)


@given(documents())
def test_any_document_is_located_as_the_parser_reads_it(text: str) -> None:
    """Whatever the document, paths are those of ``tomllib`` and places are right."""
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return  # two spellings of one key
    assert_places(text)

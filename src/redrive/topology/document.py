"""YAML text as plain data with the position of every value.

The reader works on the parser's events, not on its object constructors: it builds only text, whole
numbers, truth values, lists and mappings, refuses anchors (which can grow without bound) and deep
nesting, and reports duplicate keys. Nothing here can be null, so the words ``null``, ``NO`` and
``on`` are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import yaml

from redrive.diagnostics import Diagnostic, Severity, SourceLocation
from redrive.forms import Flaw, KeyPath

Data: TypeAlias = "str | int | bool | list[Data] | dict[str, Data] | None"

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MAX_DEPTH = 20
_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_WHOLE_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "": None}
# What YAML allows in a document (YAML 1.2, 5.1).
_UNPRINTABLE = re.compile(
    "[^\x09\x0a\x0d\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)


@dataclass(slots=True)
class DefinitionDocument:
    """A text, its data, and their positions."""

    file: str
    lines: list[str]
    data: Data = None
    values: dict[KeyPath, SourceLocation] = field(default_factory=dict)
    keys: dict[KeyPath, SourceLocation] = field(default_factory=dict)
    """The position of each key of a mapping, by the path of its value."""
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def at(self, line: int, column: int, length: int = 1) -> SourceLocation:
        """A span of the text; line and column count from 1."""
        source_line = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return SourceLocation(self.file, line, column, length, source_line)

    def flaw(self, flaw: Flaw) -> Diagnostic:
        """The error about a deviation from the form."""
        key = self.keys.get(flaw.path) if flaw.concerns_key else None
        return flaw.finding(key or self.location(flaw.path))

    def location(self, path: KeyPath) -> SourceLocation:
        """The position of a value, or of the nearest one that would contain it."""
        while path not in self.values and path:
            path = path[:-1]
        return self.values.get(path, self.at(1, 1))


def read_document(text: str, name: str) -> DefinitionDocument:
    """Read YAML text; errors become findings. The data is None if the text is not YAML."""
    document = DefinitionDocument(name, _LINE_END.split(text))
    unprintable = _UNPRINTABLE.search(text)
    if unprintable:
        before = _LINE_END.split(text[: unprintable.start()])
        where = document.at(len(before), len(before[-1]) + 1)
        message = f"character {unprintable.group()!r} is not allowed in YAML"
        hint = "write the file in UTF-8, without control characters"
        document.diagnostics.append(where.finding(Severity.ERROR, "SYNTAX", message, hint=hint))
        return document
    try:
        _Builder(document, yaml.parse(text, Loader=_LOADER)).read()
    except yaml.MarkedYAMLError as problem:
        document.data = None
        document.diagnostics.append(_syntax_error(document, problem))
    except _TooDeepError as problem:
        document.data = None
        message = f"nested deeper than {_MAX_DEPTH} levels"
        document.diagnostics.append(problem.where.finding(Severity.ERROR, "SYNTAX", message))
    return document


def _syntax_error(document: DefinitionDocument, problem: yaml.MarkedYAMLError) -> Diagnostic:
    mark = problem.problem_mark or problem.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    message = " ".join(part for part in (problem.context, problem.problem) if part)
    where = document.at(line, column)
    return where.finding(Severity.ERROR, "SYNTAX", message or "not YAML")


class _TooDeepError(Exception):
    """The text is nested too deep."""

    def __init__(self, where: SourceLocation) -> None:
        super().__init__(where)
        self.where = where


class _Builder:
    """Turns parser events into data with positions."""

    def __init__(self, document: DefinitionDocument, events: Iterator[yaml.Event]) -> None:
        self._document = document
        self._events = events

    def read(self) -> None:
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._error("ONE_DOCUMENT", "a network is one YAML document", event)
                    return
            elif isinstance(event, yaml.NodeEvent):
                self._document.data = self._value(event, ())

    def _value(self, event: yaml.Event, path: KeyPath) -> Data:
        self._document.values[path] = self._where(event)
        if len(path) > _MAX_DEPTH:
            raise _TooDeepError(self._where(event))
        if isinstance(event, yaml.SequenceStartEvent):
            return self._list(path)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, yaml.AliasEvent):
            self._error("ANCHOR", "anchors and aliases of YAML are not supported", event)
            return None
        return _scalar(cast("yaml.ScalarEvent", event))

    def _list(self, path: KeyPath) -> list[Data]:
        items: list[Data] = []
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self._value(event, (*path, len(items))))
        return items

    def _mapping(self, path: KeyPath) -> dict[str, Data]:
        items: dict[str, Data] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._key(event, path)
            path_of_value = (*path, key)
            if key in items:
                self._error("KEY_TWICE", f"duplicate key {key!r}", event)
                path_of_value = (*path, f"{key} (again)")
            self._document.keys[path_of_value] = self._where(event)
            value = self._value(next(self._events), path_of_value)
            items.setdefault(key, value)
        return items

    def _key(self, event: yaml.Event, path: KeyPath) -> str:
        if isinstance(event, yaml.ScalarEvent):
            return str(event.value)
        self._error("KEY_IS_NO_TEXT", "a key must be plain text", event)
        self._value(event, (*path, ""))
        return ""

    def _where(self, event: yaml.Event) -> SourceLocation:
        start, end = cast("yaml.Mark", event.start_mark), cast("yaml.Mark", event.end_mark)
        length = end.column - start.column if end.line == start.line else 1
        return self._document.at(start.line + 1, start.column + 1, max(1, length))

    def _error(self, code: str, message: str, event: yaml.Event) -> None:
        finding = self._where(event).finding(Severity.ERROR, code, message)
        self._document.diagnostics.append(finding)


def _scalar(event: yaml.ScalarEvent) -> Data:
    value = str(event.value)
    if not event.implicit[0]:
        return value
    if value in _CONSTANTS:
        return _CONSTANTS[value]
    return int(value) if _WHOLE_NUMBER.fullmatch(value) else value

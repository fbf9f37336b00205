"""A settings document: a TOML file, the options of a command, or options on top of a file.

Environment variables, such as ``REDRIVE_KAFKA__BOOTSTRAP_SERVERS``, override the file. Every value
keeps its location, so that a finding points into the file or at the wrong option. Secrets are cut
from the lines that findings show.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import orjson

from redrive.diagnostics import Diagnostic, Severity, SourceLocation, did_you_mean
from redrive.errors import ConfigurationError, UsageError
from redrive.forms import Key, KeyPath
from redrive.settings_file import FORM

COMMAND_LINE: Final = "<command line>"
ENVIRONMENT: Final = "<environment>"
PROGRAM: Final = "<settings>"
_SECRET: Final = re.compile(
    r"(?:pas+|psw|pwd|secret|token|credential|jaas)(?!\w*_(?:file|function)\b)", re.IGNORECASE
)
_NAMES_FUNCTION: Final = re.compile(r"\s*oauth_token_function\s*=")
"""The start of a line whose value may mention tokens, but is the name of a function."""
_HIDDEN: Final = "..."


@dataclass(frozen=True, slots=True)
class Option:
    """A command-line option for a setting."""

    path: KeyPath
    name: str
    """The option, such as ``--dlq``; ``NAME=`` for an environment variable; else empty."""
    value: str | bool
    """``True`` for a flag, which is written without it."""

    @property
    def is_variable(self) -> bool:
        """Whether it is an environment variable."""
        return self.name.endswith("=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Settings as written, each with its location."""

    name: str
    """The file as the user named it."""
    directory: Path
    """The base of relative paths in the file."""
    data: Mapping[str, Any]
    keys: Mapping[KeyPath, SourceLocation] = field(repr=False)
    values: Mapping[KeyPath, SourceLocation] = field(repr=False)

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a TOML file.

        Raises:
            UsageError: There is no such file.
            ConfigurationError: It cannot be read, or is not TOML.
        """
        return cls.from_text(_read(path), name=str(path), directory=path.parent)

    @classmethod
    def from_text(cls, text: str, *, name: str, directory: Path) -> Self:
        """Read TOML text; the arguments are those of the class.

        Raises:
            ConfigurationError: The text is not TOML.
        """
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            finding = _syntax_error(str(error), text, name)
            raise ConfigurationError(f"{name} is not valid TOML", diagnostics=[finding]) from None
        lines, places = _Lines(text, name), find_places(text)
        return cls(
            name=name,
            directory=directory,
            data=data,
            keys={path: lines.at(place.key) for path, place in places.items()},
            values={path: lines.at(place.value) for path, place in places.items()},
        )

    @classmethod
    def empty(cls) -> Self:
        """A document without any setting, relative to the working directory."""
        return cls(name=COMMAND_LINE, directory=Path(), data={}, keys={}, values={})

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        """Settings of a program, as TOML would give them, relative to the working directory."""
        return cls(name=PROGRAM, directory=Path(), data=data, keys={}, values={})

    def with_options(self, command: str, options: Sequence[Option]) -> Document:
        """The document overridden by the options of a command such as ``redrive run``."""
        values = [(option.path, option.value) for option in options]
        return self._with(values, _option_places(command, options))

    def with_variable(self, name: str, path: KeyPath, value: str | float) -> Document:
        """The document overridden by a setting from the environment variable ``name``."""
        written = shlex.quote(str(value))
        column = len(f"{name}=") + 1
        place = SourceLocation(ENVIRONMENT, 1, column, len(written), f"{name}={written}")
        return self._with([(path, value)], {path: place})

    def with_values(self, values: Mapping[KeyPath, Any]) -> Document:
        """The document with values set by the program, which have no locations."""
        return self._with(values.items(), {})

    def _with(
        self, values: Iterable[tuple[KeyPath, Any]], places: Mapping[KeyPath, SourceLocation]
    ) -> Document:
        data = deepcopy(dict(self.data))
        for path, value in values:
            _put(data, path, value)
        return replace(
            self, data=data, keys={**self.keys, **places}, values={**self.values, **places}
        )

    def without(self, key: str) -> Document:
        """The document without one of its tables."""
        return replace(self, data={name: value for name, value in self.data.items() if name != key})

    def toml(self) -> str:
        """The settings as a file of tables, without anything nested in them, as options are."""
        lines = []
        for table, content in self.data.items():
            for entry in content if isinstance(content, list) else [content]:
                lines.append(f"[[{table}]]" if isinstance(content, list) else f"[{table}]")
                lines += (f"{key} = {orjson.dumps(value).decode()}" for key, value in entry.items())
        return "\n".join([*lines, ""])

    def has(self, path: KeyPath) -> bool:
        """Whether there is a value at a path."""
        return self._value(path) is not None

    def text(self, path: KeyPath) -> str:
        """The text at a path, unchecked and as written; empty if there is none."""
        value = self._value(path)
        return value if isinstance(value, str) else ""

    def _value(self, path: KeyPath) -> Any:  # noqa: ANN401 - a TOML value
        value: Any = self.data
        for step in path:
            if isinstance(value, dict) or (isinstance(value, Mapping) and isinstance(step, str)):
                value = value.get(step)
            elif isinstance(value, list) and isinstance(step, int) and step < len(value):
                value = value[step]
            else:
                return None
        return value

    def at_key(self, path: KeyPath) -> SourceLocation:
        """The location of a key; if it is missing, of its table, or just the file."""
        return self._nearest(self.keys, path)

    def at_value(self, path: KeyPath) -> SourceLocation:
        """The location of a value; if it is missing, as ``at_key``."""
        return self._nearest(self.values, path)

    def path_of(self, path: KeyPath, name: str) -> Path:
        """The file that a setting names, relative to the document or the working directory."""
        is_elsewhere = self.at_value(path).file in {COMMAND_LINE, ENVIRONMENT}
        return (Path() if is_elsewhere else self.directory) / Path(name).expanduser()

    def _nearest(self, places: Mapping[KeyPath, SourceLocation], path: KeyPath) -> SourceLocation:
        if path in places:
            return places[path]
        for length in range(len(path) - 1, 0, -1):
            if path[:length] in self.values:
                return self.values[path[:length]]
        return SourceLocation(self.name)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError(
            f"there is no settings file {path}",
            hint="name one with -c FILE; docs/settings.md describes it",
        ) from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder, not a settings file") from None
    except OSError as error:
        raise ConfigurationError(f"settings file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigurationError(
            f"settings file {path} is not UTF-8 at byte {error.start}", hint="save it as UTF-8"
        ) from None


def _syntax_error(message: str, text: str, name: str) -> Diagnostic:
    match = re.fullmatch(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", message)
    location = SourceLocation(name)
    if match and match[2]:
        location = _Lines(text, name).location(int(match[2]), int(match[3]))
        if "=" not in location.source_line and _SECRET.search(text):
            location = replace(location, source_line="")  # it may be a line of a long string
    elif text:
        location = SourceLocation(name, text.rstrip().count("\n") + 1)
    reason = match[1] if match else message
    return location.finding(
        Severity.ERROR,
        "SYNTAX",
        reason[:1].lower() + reason[1:],
        hint='write a setting as name = value, and text in quotes: name = "orders"',
    )


class _Lines:
    """Converts offsets in a text into locations, with secrets hidden."""

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self._lines = text.split("\n")
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def at(self, span: TextSpan) -> SourceLocation:
        line = bisect_right(self._starts, span.start)
        return self.location(line, span.start - self._starts[line - 1] + 1, span.end - span.start)

    def location(self, line: int, column: int, length: int = 1) -> SourceLocation:
        visible = _without_secret(self._lines[line - 1].removesuffix("\r"))
        if column > len(visible) + 1:
            visible = ""  # the location itself is hidden
        return SourceLocation(
            self._name, line, column, max(1, min(length, len(visible) - column + 1)), visible
        )


def is_secret(name: str) -> bool:
    """Whether a name looks like that of a secret."""
    return _SECRET.search(name) is not None


def without_value(key: SourceLocation) -> SourceLocation:
    """The location of a key, its value hidden."""
    head, equals, _ = key.source_line[key.column - 1 :].partition("=")
    if not equals:
        return key
    before = key.source_line[: key.column - 1]
    return replace(key, source_line=f"{before}{head}= {_HIDDEN}")


def _without_secret(line: str) -> str:
    """A line, truncated after a name that looks like that of a secret."""
    match = _SECRET.search(line)
    if match is None or _NAMES_FUNCTION.match(line):
        return line
    equals = line.find("=", match.end())
    return line[: equals + 1 if equals >= 0 else match.end()] + f" {_HIDDEN}"


def _put(data: Any, path: KeyPath, value: Any) -> None:  # noqa: ANN401 - a table or a list
    for step, following in pairwise(path):
        inner: Any = [] if isinstance(following, int) else {}
        if isinstance(data, list):
            if step == len(data):
                data.append(inner)
        else:
            data.setdefault(step, inner)
        data = data[step]
    if isinstance(data, list) and path[-1] == len(data):
        data.append(value)
    else:
        data[path[-1]] = value


def _option_places(command: str, options: Sequence[Option]) -> dict[KeyPath, SourceLocation]:
    """Locations in a reconstructed command line, environment variables first."""
    text = ""
    columns: dict[KeyPath, tuple[int, int]] = {}
    variables = [option for option in options if option.is_variable]
    for option in [*variables, None, *(option for option in options if not option.is_variable)]:
        if option is None:
            text += f"{command} "
            continue
        text += option.name if option.is_variable or not option.name else f"{option.name} "
        if option.value is True:
            columns[option.path] = len(text) - len(option.name), len(option.name)
            continue
        written = shlex.quote(str(option.value))
        columns[option.path] = len(text) + 1, len(written)
        text += f"{written} "
    return {
        path: SourceLocation(COMMAND_LINE, 1, column, length, text.rstrip())
        for path, (column, length) in columns.items()
    }


class TextSpan(NamedTuple):
    """Offsets of the first character and of the one after the last."""

    start: int
    end: int


@dataclass(slots=True)
class KeyPlace:
    """The offsets of one key and its value."""

    key: TextSpan
    """The key itself, or the name in a table's header."""
    value: TextSpan
    """The value; for a table its header."""


def find_places(text: str) -> dict[KeyPath, KeyPlace]:
    """The place of every key, table and list element of a text that ``tomllib.loads`` accepts.

    A table without its own header, such as ``a`` in ``[a.b]``, has the place of its name.
    """
    scanner = _Scanner(text)
    scanner.scan()
    return scanner.places


_BLANK: Final = re.compile(r"[ \t]*")
_BLANK_LINES: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_STRING: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'  # up to two quotes may end the content of a long string
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)
_SCALAR: Final = re.compile(r"[^,\]}#\r\n]*[^,\]}#\r\n \t]")


class _Scanner:
    """One pass over the text; every method starts at ``_at`` and leaves it after what it read."""

    def __init__(self, text: str) -> None:
        self.places: dict[KeyPath, KeyPlace] = {}
        self._text = text
        self._at = 0
        self._lengths: dict[KeyPath, int] = {}  # of lists of tables

    def scan(self) -> None:
        table: KeyPath = ()
        while self._skip(_BLANK_LINES) < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._entry(table)

    def _header(self) -> KeyPath:
        start = self._at
        is_list = self._text.startswith("[[", start)
        self._at += 2 if is_list else 1
        names = self._keys()
        self._at += 2 if is_list else 1
        path: KeyPath = ()
        for name, span in names[:-1]:
            path = self._current((*path, name))
            self._note(path, span, span)
        name, span = names[-1]
        path = (*path, name)
        header = TextSpan(start, self._at)
        self._note(path, span, header)
        if is_list:
            self._lengths[path] = self._lengths.get(path, -1) + 1
            path = self._current(path)
            self._note(path, span, header)
        self.places[path].value = header  # it may be known from part of another header
        return path

    def _entry(self, table: KeyPath) -> None:
        names = self._keys()
        self._at += 1  # the equals sign
        path = table
        for name, span in names:
            path = (*path, name)
            self._note(path, span, span)
        self._value(path)

    def _keys(self) -> list[tuple[str, TextSpan]]:
        """A key with its dotted parts; stops before ``=`` or ``]``."""
        names = []
        while True:
            start = self._skip(_BLANK)
            names.append(self._key(start))
            if self._text[self._skip(_BLANK)] != ".":
                return names
            self._at += 1

    def _key(self, start: int) -> tuple[str, TextSpan]:
        if self._text[start] in "\"'":
            self._skip(_STRING)
            # The quoted name in the form of a value, for the parser to undo the escapes.
            name = tomllib.loads(f"name = {self._text[start : self._at]}")["name"]
        else:
            self._skip(_BARE_KEY)
            name = self._text[start : self._at]
        return name, TextSpan(start, self._at)

    def _value(self, path: KeyPath) -> None:
        start = self._skip(_BLANK_LINES)
        match self._text[start]:
            case "[":
                self._list(path)
            case "{":
                self._at += 1
                while self._text[self._skip(_BLANK_LINES)] != "}":
                    self._entry(path)
                    self._skip_comma()
                self._at += 1
            case '"' | "'":
                self._skip(_STRING)
            case _:
                self._skip(_SCALAR)
        self.places[path].value = TextSpan(start, self._at)

    def _list(self, path: KeyPath) -> None:
        self._at += 1
        index = 0
        while self._text[self._skip(_BLANK_LINES)] != "]":
            here = TextSpan(self._at, self._at)
            self._note((*path, index), here, here)
            self._value((*path, index))
            self.places[*path, index].key = self.places[*path, index].value
            index += 1
            self._skip_comma()
        self._at += 1

    def _skip_comma(self) -> None:
        if self._text[self._skip(_BLANK_LINES)] == ",":
            self._at += 1

    def _current(self, path: KeyPath) -> KeyPath:
        """The path, with the current element's index if it is a list."""
        return (*path, self._lengths[path]) if path in self._lengths else path

    def _note(self, path: KeyPath, key: TextSpan, value: TextSpan) -> None:
        self.places.setdefault(path, KeyPlace(key, value))

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._at


_PREFIX: Final = "REDRIVE_"
_SEPARATOR: Final = "__"
"""Between the table and the key. Variables without it, such as REDRIVE_JAVA, are not settings."""
_BOOLEANS: Final = {"true": True, "false": False}


def with_environment(document: Document, environ: Mapping[str, str]) -> Document:
    """The document overridden by environment variables.

    A variable is named after table and key, in capitals, with two underscores between them; every
    character that is not a letter or digit becomes an underscore. It has one text, number or
    boolean; named tables, such as [clusters.eu], must be in the document. An empty variable counts
    as not set. A secret stays in its variable: the document refers to it.
    """
    variables = tuple(_variables(environ))
    settings = _settings(document) if variables else {}
    for name, value in variables:
        if name in settings:
            path, kind = settings[name]
            written = f"${{{name}}}" if is_secret(str(path[-1])) else _typed(value, kind)
            document = document.with_variable(name, path, written)
    return document


def unknown_variables(document: Document, environ: Mapping[str, str]) -> Iterator[Diagnostic]:
    """A finding for each variable that has the form of a setting but names none."""
    variables = tuple(_variables(environ))
    settings = _settings(document) if variables else {}
    for name, _ in variables:
        if name not in settings:
            yield SourceLocation(ENVIRONMENT, 1, 1, len(name), f"{name}=...").finding(
                Severity.ERROR,
                "UNKNOWN_KEY",
                f"the environment variable {name} does not name a setting",
                expected="a setting of one value; named tables must be in the file",
                hint=did_you_mean(name, settings),
                subject=name,
            )


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in sorted(environ.items()):
        if name.startswith(_PREFIX) and _SEPARATOR in name and value:
            yield name, value


def _settings(document: Document) -> Mapping[str, tuple[KeyPath, type]]:
    """The paths and types of the settings that variables can hold, by the variables' names."""
    settings: dict[str, tuple[KeyPath, type]] = {}
    ambiguous = set()
    for path, kind in _scalars(FORM.root, document.data, ()):
        steps = (re.sub("[^A-Z0-9]", "_", str(step).upper()) for step in path)
        name = _PREFIX + _SEPARATOR.join(steps)
        if name in settings:
            ambiguous.add(name)
        settings[name] = path, kind
    # Names of tables that differ only in case or punctuation have no variables.
    return {name: setting for name, setting in settings.items() if name not in ambiguous}


def _scalars(key: Key, value: object, path: KeyPath) -> Iterator[tuple[KeyPath, type]]:
    """The texts, numbers and booleans of a table, and of its named tables that there are."""
    written = value if isinstance(value, Mapping) else {}
    keys = key.keys
    if key.is_mapping and key.element and key.element.is_table:
        keys = dict.fromkeys(written, key.element)
    for name, inner in keys.items():
        yield from _scalars(inner, written.get(name), (*path, name))
    if not key.is_table and key.element is None:
        yield path, key.kind


def _typed(text: str, kind: type) -> str | float:
    """A value in its type; others stay text, for which the form has a finding."""
    if kind is bool:
        return _BOOLEANS.get(text.lower(), text)
    try:
        return kind(text) if kind in {int, float} else text
    except ValueError:
        return text

"""Forms of files, declared once as frozen dataclasses that pydantic validates.

A form declares each key with its type, its default, and its text for users::

    @dataclass(frozen=True, kw_only=True)
    class LogTable(TableForm):
        file: Annotated[str, Field(title="the path of a file")] = ""
        \"""File to append to; without it standard error.\"""

``title`` names a table (``[job]``) or the form of a value (``host:port``), ``description`` says
what it is for, and ``examples`` has a value with which the other checks go on if a required one is
missing. The docstring is the meaning in the reference of settings.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from dataclasses import Field as DataclassField
from enum import Enum, EnumType
from functools import cache, cached_property
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from redrive.diagnostics import did_you_mean

KeyPath: TypeAlias = tuple[str | int, ...]
"""The path of a value: ``("handlers", 0, "queue")``; numbers are indexes of lists."""

Text: TypeAlias = Annotated[str, Field(min_length=1)]
Flag: TypeAlias = Annotated[bool, Field(strict=True)]
File: TypeAlias = Annotated[
    str,
    Field(
        title="the path of a file or folder, relative to this one",
        min_length=1,
        pattern=r"\A(?![A-Za-z][A-Za-z0-9+.-]+:/)",
    ),
]
Function: TypeAlias = Annotated[
    str,
    Field(
        title='a function, such as "package.module:function"',
        min_length=1,
        pattern=r"\A[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*\Z",
    ),
]
Secret: TypeAlias = Annotated[
    str, Field(title='"${NAME}" for an environment variable', min_length=1)
]

MOST: Final = 999_999_999
"""The maximum of most numbers."""

Model = TypeVar("Model")


def number(title: str, minimum: float, maximum: float) -> Any:  # noqa: ANN401 - pydantic's own
    """The form of a number; a whole one in a float's place is a number too."""
    return Field(title=title or None, strict=True, ge=minimum, le=maximum)


class TableForm:
    """Base of the tables of a file: no other keys, and patterns of Python."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", regex_engine="python-re")


_CODES: Final[Mapping[str, str]] = {
    "missing": "MISSING",
    "unexpected_keyword_argument": "UNKNOWN_KEY",
    "greater_than_equal": "OUT_OF_RANGE",
    "less_than_equal": "OUT_OF_RANGE",
    "string_too_short": "EMPTY",
    "too_short": "EMPTY",
    "enum": "BAD_VALUE",
    "literal_error": "BAD_VALUE",
    "string_pattern_mismatch": "BAD_VALUE",
}
"""Codes by pydantic's kinds of errors; ``WRONG_TYPE`` for all others."""

_TYPES: Final[Mapping[Any, str]] = {
    bool: "true or false, without quotes",
    int: "a whole number",
    float: "a number",
    str: "text",
    tuple: "a list",
}

_TYPE_NAMES: Final = (
    (type(None), "empty"),
    (bool, "true or false"),  # before int, of which bool is a subclass
    (int, "a whole number"),
    (float, "a number"),
    (str, "text"),
    (list, "a list"),
    (dt.date | dt.time, "a date or time"),
)


@dataclass(frozen=True, slots=True)
class Flaw:
    """One deviation from a form."""

    path: KeyPath
    """The path of the value; for an unknown or missing key, where its value is or would be."""
    code: str
    message: str
    expected: str = ""
    hint: str = ""
    concerns_key: bool = False
    """Whether the key is wrong rather than its value."""
    keyword: str = ""
    """The violated keyword of a JSON Schema, such as ``pattern``; empty for other forms."""


@dataclass(frozen=True)
class Key:
    """What a form declares of a value."""

    info: FieldInfo
    field: DataclassField[Any] | None = None
    """The field of a key; None for elements of lists and mappings."""

    @property
    def attribute(self) -> str:
        """The name of its field; empty for elements."""
        return self.field.name if self.field else ""

    @property
    def title(self) -> str:
        """The form of the value in words; empty if its type says it."""
        return self.info.title or ""

    @property
    def kind(self) -> Any:  # noqa: ANN401 - a type
        """The type, without None."""
        return self.info.annotation

    @property
    def is_table(self) -> bool:
        """Whether the value is a table with keys of its own."""
        return is_dataclass(self.kind)

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        field = self.field
        return field is not None and field.default is field.default_factory is MISSING

    @property
    def keys(self) -> Mapping[str, Key]:
        """The keys of a table; none for other values."""
        return keys_of(self.kind) if self.is_table else {}

    @property
    def element(self) -> Key | None:
        """The elements of a list, or the values of a mapping."""
        arguments = get_args(self.kind)
        if get_origin(self.kind) is tuple:
            return _key(arguments[0])
        return _key(arguments[1]) if self.is_mapping else None

    @property
    def is_mapping(self) -> bool:
        """Whether the value is a table whose keys are names."""
        origin = get_origin(self.kind)
        return isinstance(origin, type) and issubclass(origin, Mapping)

    @property
    def choices(self) -> list[str]:
        """The allowed texts, if they are limited."""
        if isinstance(self.kind, EnumType):
            choices: Iterable[Enum] = self.kind
            return [str(choice.value) for choice in choices]
        return list(get_args(self.kind)) if get_origin(self.kind) is Literal else []

    @property
    def takes_text(self) -> bool:
        """Whether a text is valid; a list may accept one as its only element."""
        accepts = any(isinstance(part, BeforeValidator) for part in self.info.metadata)
        return self.kind is str or bool(self.choices) or accepts

    def limit(self, name: str) -> float | None:
        """The minimum (``ge``) or maximum (``le``) of a number."""
        limits = (getattr(part, name, None) for part in self.info.metadata)
        return next((limit for limit in limits if limit is not None), None)

    def expected(self, mapping: str) -> str:
        """What is valid, in words."""
        if self.is_table or self.is_mapping:
            return f"a {mapping}: {self.title}"
        if self.choices and not self.title:
            return f"one of {', '.join(self.choices)}"
        words = self.title or _TYPES.get(get_origin(self.kind) or self.kind, "")
        minimum, maximum = self.limit("ge"), self.limit("le")
        words += "" if minimum is None else f" from {minimum:,}"
        return words + ("" if maximum is None else f" to {maximum:,}")

    def stand_in(self) -> Any:  # noqa: ANN401 - a value of the file
        """A valid value of a required key."""
        if self.is_table:
            return {name: key.stand_in() for name, key in self.keys.items() if key.is_required}
        return (self.info.examples or [""])[0]


@cache
def keys_of(form: type[Any]) -> Mapping[str, Key]:
    """The keys of a table by their names in the file, its own before those of its bases."""
    hints = get_type_hints(form, include_extras=True)
    declared = {field.name: field for field in fields(form)}
    keys: dict[str, Key] = {}
    for base in form.__mro__:
        for name in vars(base).get("__annotations__", ()):
            if name in declared:
                key = _key(hints[name], declared[name])
                keys.setdefault(key.info.alias or name, key)
    return keys


def _key(annotation: Any, field: DataclassField[Any] | None = None) -> Key:  # noqa: ANN401 - a type
    parts = [part for part in get_args(annotation) if part is not type(None)]
    is_optional = get_origin(annotation) in {Union, UnionType}
    return Key(FieldInfo.from_annotation(parts[0] if is_optional else annotation), field)


@dataclass(frozen=True)
class FileForm(Generic[Model]):
    """The form of a kind of file."""

    form: type[Model]
    """Its outermost table."""
    title: str
    mapping: str = "mapping"
    """The file format's word for keys with values."""
    description: str = ""

    @cached_property
    def root(self) -> Key:
        """The whole file as a value."""
        titled = Field(title=self.title, description=self.description)
        return _key(Annotated[self.form, titled])

    @cached_property
    def _adapter(self) -> TypeAdapter[Model]:
        return TypeAdapter(self.form)

    def value(self, data: object) -> Model:
        """The value of data without flaws."""
        return self._adapter.validate_python(data)

    def flaws(self, data: object, *, written: object = None) -> tuple[Flaw, ...]:
        """Every deviation of the data, only the first for each value.

        Args:
            data: What to check.
            written: The same for use in messages; by default the data.
        """
        try:
            self.value(data)
        except ValidationError as error:
            flaws: dict[KeyPath, Flaw] = {}
            for detail in error.errors(include_url=False):
                if detail["type"] == "too_short" and detail["input"]:
                    continue  # only because its elements have flaws
                flaw = self._flaw(detail, data if written is None else written)
                flaws.setdefault(flaw.path, flaw)
            return tuple(flaws.values())
        return ()

    def without(self, data: Any, paths: Collection[KeyPath]) -> Model:  # noqa: ANN401 - a TOML value
        """The value of data that has flaws, or other errors, at these paths.

        A required value is replaced by its example. A list is left out with a wrong element.
        """
        for path in sorted(paths, key=len, reverse=True):
            while path and isinstance(path[-1], int):
                path = path[:-1]  # noqa: PLW2901 - the list itself
            table, key = data, self.root
            for step in path[:-1]:
                table = table[step] if isinstance(step, int) else table.get(step, {})
                key = self._inner(key, step) or key
            wrong = self._inner(key, path[-1])
            table.pop(path[-1], None)
            if wrong is not None and wrong.is_required:
                table[path[-1]] = wrong.stand_in()
        return self.value(data)

    @staticmethod
    def _inner(key: Key, step: str | int) -> Key | None:
        return key.keys.get(str(step)) if key.is_table else key.element

    def key_at(self, path: KeyPath) -> Key:
        """What the form declares at a path, or at the table where that is unknown."""
        key = self.root
        for step in path:
            key = self._inner(key, step) or key
        return key

    def tables(self) -> Iterator[Key]:
        """Every table with fixed keys."""
        waiting = [self.root]
        while waiting:
            key = waiting.pop(0)
            if key.is_table:
                yield key
            waiting += key.keys.values()
            waiting += [key.element] if key.element else []

    def _flaw(self, detail: ErrorDetails, written: Any) -> Flaw:  # noqa: ANN401 - any data
        path: KeyPath = detail["loc"]
        if path[-1:] == ("[key]",):
            return self._wrong_name(path[:-1])
        code = _CODES.get(detail["type"], "WRONG_TYPE")
        if code == "MISSING":
            return self._missing_key(path)
        if code == "UNKNOWN_KEY":
            return self._unknown_key(path)
        for index, step in enumerate(path):
            if isinstance(written, str):  # a text in place of a list with one element
                path = path[:index]
                break
            written = written[step]
        return self._wrong_value(code, path, detail["input"], written)

    def _missing_key(self, path: KeyPath) -> Flaw:
        table, key = self.key_at(path[:-1]), self.key_at(path)
        purpose = f": {key.info.description}" if key.info.description else ""
        message = f"{table.title} needs {path[-1]}{purpose}"
        return Flaw(path, "MISSING", message, key.expected(self.mapping), concerns_key=True)

    def _unknown_key(self, path: KeyPath) -> Flaw:
        name, table = str(path[-1]), self.key_at(path[:-1])
        titles = [other.title for other in self.tables() if name in other.keys]
        elsewhere = [title for title in dict.fromkeys(titles) if title.startswith("[")]
        hint = f"{name} belongs in {' or '.join(elsewhere)}" if elsewhere else ""
        hint = hint or did_you_mean(name, table.keys)
        message, expected = f"{table.title} has no key {name}", f"one of {', '.join(table.keys)}"
        return Flaw(path, "UNKNOWN_KEY", message, expected, hint, concerns_key=True)

    def _wrong_name(self, path: KeyPath) -> Flaw:
        table = self.key_at(path[:-1])
        expected = _key(get_args(table.kind)[0]).title
        message = f"{table.title} has no key {path[-1]}"
        return Flaw(path, "UNKNOWN_KEY", message, expected, concerns_key=True)

    def _wrong_value(self, code: str, path: KeyPath, value: object, written: Any) -> Flaw:  # noqa: ANN401 - any data
        key, hint = self.key_at(path), ""
        name = _name(path, key)
        if isinstance(value, float) and math.isnan(value):
            code = "WRONG_TYPE"
        if code == "BAD_VALUE" and not isinstance(value, str):
            code = "WRONG_TYPE"
        if code == "WRONG_TYPE":
            message = f"{name} is {self._type_name(written)}"
            if key.takes_text and isinstance(written, int | float):
                hint = "write it in quotes"
        elif code == "OUT_OF_RANGE":
            message = f"{name} is {written:,}"
        elif code == "EMPTY":
            message = f"{name} is empty"
        else:
            message = f"{written!r} is not a valid {name.removeprefix('an ')}"
            hint = did_you_mean(str(value), key.choices)
        return Flaw(path, code, message, key.expected(self.mapping), hint)

    def _type_name(self, value: object) -> str:
        if isinstance(value, float) and math.isnan(value):
            return "not a number"
        names = (name for kind, name in _TYPE_NAMES if isinstance(value, kind))
        return next(names, f"a {self.mapping}")


def _name(path: KeyPath, key: Key) -> str:
    match path:
        case ():
            return key.title
        case (*_, name, int()):
            return f"an element of {name}"
    return str(path[-1])

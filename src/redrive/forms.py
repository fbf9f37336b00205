"""Forms of files, declared once as frozen dataclasses that pydantic validates.

A form declares each key with its type, its default, and a docstring, which is its meaning in the
reference of settings. In ``Field``, ``title`` names a table (``[job]``) or the form of a value
(``host:port``), ``description`` says what it is for, and ``examples`` has a value with which the
other checks go on if a required one is missing.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
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

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    TypeAdapter,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import ErrorDetails

from redrive.diagnostics import Diagnostic, Severity, SourceLocation, did_you_mean

KeyPath: TypeAlias = tuple[str | int, ...]
"""The path of a value: ``("handlers", 0, "queue")``; numbers are indexes of lists."""


def text(title: str, pattern: str = "") -> Any:  # noqa: ANN401 - pydantic's own
    """The form of a text that is not empty, and matches the whole pattern if there is one."""
    whole = rf"\A(?:{pattern})\Z" if pattern else None
    return Field(title=title, min_length=1, pattern=whole)


def number(title: str, minimum: float, maximum: float) -> Any:  # noqa: ANN401 - pydantic's own
    """The form of a number; a whole one in a float's place is a number too."""
    return Field(title=title or None, strict=True, ge=minimum, le=maximum)


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
    text(
        'a function, such as "package.module:function"',
        r"[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*",
    ),
]
Secret: TypeAlias = Annotated[str, text('"${NAME}" for an environment variable')]

MOST: Final = 999_999_999
"""The maximum of most numbers."""
Natural: TypeAlias = Annotated[int, Field(strict=True, ge=0)]
Location: TypeAlias = Annotated[SourceLocation, InstanceOf(), SkipJsonSchema()]
"""Where a table was read, which is not a key of the file."""

Model = TypeVar("Model")


class TableForm:
    """Base of the tables of a file: no other keys, and patterns of Python."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", regex_engine="python-re")


_CODES: Final[Mapping[str, str]] = {
    "missing": "MISSING",
    "union_tag_not_found": "MISSING",
    "unexpected_keyword_argument": "UNKNOWN_KEY",
    "is_instance_of": "UNKNOWN_KEY",
    "greater_than_equal": "OUT_OF_RANGE",
    "less_than_equal": "OUT_OF_RANGE",
    "string_too_short": "EMPTY",
    "too_short": "EMPTY",
    "enum": "BAD_VALUE",
    "literal_error": "BAD_VALUE",
    "union_tag_invalid": "BAD_VALUE",
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

    def finding(self, place: SourceLocation) -> Diagnostic:
        """The error at its place."""
        return place.finding(
            Severity.ERROR,
            self.code,
            self.message,
            expected=self.expected,
            hint=self.hint,
            subject=str(self.path[-1]) if self.path else "",
        )


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
        return is_dataclass(self.kind) or bool(self.variants)

    @property
    def variants(self) -> Mapping[str, Key]:
        """The tables among which the key ``kind`` chooses; none for other values."""
        if get_origin(self.kind) is not Union:
            return {}
        tables = map(_key, get_args(self.kind))
        return {table.keys["kind"].choices[0]: table for table in tables}

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        own = self.field
        return own is not None and own.default is own.default_factory is MISSING

    @property
    def keys(self) -> Mapping[str, Key]:
        """The keys of a table; none for other values."""
        if self.variants:
            return {"kind": _key(Literal[tuple(self.variants)])}
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
        is_table = self.is_table or self.is_mapping
        return self.kind is str or bool(self.choices) or (accepts and not is_table)

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
    declared = {own.name: own for own in fields(form)}
    keys: dict[str, Key] = {}
    for base in form.__mro__:
        for name in vars(base).get("__annotations__", ()):
            if name in declared:
                key = _key(hints[name], declared[name])
                if key.kind is not SourceLocation:
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
    removed: Mapping[str, str] = field(default_factory=dict)
    """Keys that version 0.1.0 was the last to have, and what to use instead."""

    @cached_property
    def root(self) -> Key:
        """The whole file as a value."""
        return _key(Annotated[self.form, Field(title=self.title)])

    @cached_property
    def _adapter(self) -> TypeAdapter[Model]:
        return TypeAdapter(self.form)

    def json_schema(self) -> str:
        """The form as a JSON Schema, for editors."""
        schema = json.dumps(self._adapter.json_schema(), indent=2)
        # The patterns of JSON Schema are JavaScript's.
        return schema.replace(r"\\A", "^").replace(r"\\Z", "$")

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
        tables = {**key.keys, **key.variants}
        return tables.get(str(step)) if key.is_table else key.element

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
        code, steps, value = (
            _CODES.get(detail["type"], "WRONG_TYPE"),
            detail["loc"],
            detail["input"],
        )
        if detail["type"].startswith("union_tag"):
            steps, value = (*steps, "kind"), value.get("kind")
        if steps[-1:] == ("[key]",):
            steps, code = steps[:-1], "UNKNOWN_KEY"
        table = key = self.root
        path: KeyPath = ()
        for step in steps:
            if step not in key.variants:  # pydantic's path also has the kinds of tables
                path += (step,)
            table, key = key, self._inner(key, step) or key
        if code == "MISSING":
            return self._missing_key(path, table, key)
        if code == "UNKNOWN_KEY":
            return self._unknown_key(path, table)
        for index, step in enumerate(path):
            if isinstance(written, str):  # a text in place of a list with one element
                path = path[:index]
                break
            written = written[step]
        return self._wrong_value(code, path, key, value, written)

    def _missing_key(self, path: KeyPath, table: Key, key: Key) -> Flaw:
        purpose = f": {key.info.description}" if key.info.description else ""
        message = f"{table.title} needs {path[-1]}{purpose}"
        return Flaw(path, "MISSING", message, key.expected(self.mapping), concerns_key=True)

    def _unknown_key(self, path: KeyPath, table: Key) -> Flaw:
        name = str(path[-1])
        if name in self.removed:
            message = f"{name} was removed; 0.1.0 was the last version with it"
            return Flaw(path, "UNKNOWN_KEY", message, hint=self.removed[name], concerns_key=True)
        titles = [other.title for other in self.tables() if name in other.keys]
        elsewhere = [title for title in dict.fromkeys(titles) if title.startswith("[")]
        hint = f"{name} belongs in {' or '.join(elsewhere)}" if elsewhere else ""
        hint = hint or did_you_mean(name, table.keys)
        expected = f"one of {', '.join(table.keys)}"
        if table.is_mapping:
            expected = _key(get_args(table.kind)[0]).title
        message = f"{table.title} has no key {name}"
        return Flaw(path, "UNKNOWN_KEY", message, expected, hint, concerns_key=True)

    def _wrong_value(
        self,
        code: str,
        path: KeyPath,
        key: Key,
        value: object,
        written: Any,  # noqa: ANN401 - any data
    ) -> Flaw:
        name, hint = _name(path, key), ""
        if code == "BAD_VALUE" and not isinstance(value, str):
            code = "WRONG_TYPE"
        if isinstance(value, float) and math.isnan(value):
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

"""JSON Patch (RFC 6902) for the values of messages.

Parts that a patch does not name keep their meaning: a value is refused if reading and writing it
would lose numbers, repeated members or characters.

Paths in settings and rules are the singular queries of RFC 9535, with hyphens in names.
"""

from __future__ import annotations

import json
import math
import re
from copy import deepcopy
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NoReturn, Self

import orjson

_STEP: Final = re.compile(
    r"\.((?:[^\W\d]|\$)[\w$-]*)|\[([0-9]{1,9})\]"
    r"|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]"
)


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path into a JSON value: members and indexes, no wildcards, no filters."""

    steps: tuple[str | int, ...]

    @classmethod
    def of(cls, text: str) -> JsonPath:
        """Read a path such as ``$.order.items[0]['a name']``.

        Raises:
            ValueError: It is not a path; the text says why.
        """
        if not text.startswith("$"):
            raise ValueError("it does not begin with $")
        steps: list[str | int] = []
        at = 1
        while at < len(text):
            match = _STEP.match(text, at)
            if match is None:
                raise ValueError(f"{text[at : at + 20]} is neither .name nor [number] nor ['name']")
            member, index, single, double = match.groups()
            quoted = single if double is None else double
            name = member if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            steps.append(name if index is None else int(index))
            at = match.end()
        return cls(tuple(steps))

    def find(self, document: object) -> str | None:
        """The value there as text; None if it is missing or null."""
        try:
            value = self.follow(document)
        except LookupError:
            return None
        return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()

    def follow(self, document: object) -> Any:  # noqa: ANN401 - any JSON
        """The value there, unchanged.

        Raises:
            LookupError: Nothing is there.
        """
        value: Any = document
        for step in self.steps:
            match value, step:
                case (dict(), str()) | (list(), int()):
                    value = value[step]
                case _:
                    raise LookupError(step)
        return value


_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")
_ESCAPE: Final = re.compile("~(?![01])")
_TAKES: Final = {
    "add": "value", "replace": "value", "test": "value", "remove": "", "move": "from",
    "copy": "from",
}  # fmt: skip
"""The member that each operation has besides its path."""
_SHOWN: Final = 40
"""Maximum characters of a number or a name in an error."""

_Path = tuple[str, ...]


def read_json(data: bytes | None) -> Any:  # noqa: ANN401 - any JSON
    """The JSON value of a text in UTF-8.

    Raises:
        ValueError: It is not JSON, or writing it again would lose something.
    """
    if data is None:
        raise ValueError("the value is null")
    try:
        return json.loads(
            data.decode(),
            parse_float=_parse_float,
            parse_constant=_no_constant,
            object_pairs_hook=_refuse_duplicates,
        )
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise ValueError("the value is not JSON") from None
    except RecursionError:
        raise ValueError("the value is nested too deeply") from None


def write_json(value: Any, *, indent: int | None = None) -> bytes:  # noqa: ANN401 - any JSON
    """A JSON value as UTF-8, indented by ``indent`` columns a level; None for no white space.

    Raises:
        ValueError: A string has half of a surrogate pair.
    """
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, separators=separators, indent=indent)
    return text.encode()


def _parse_float(text: str) -> float:
    number = float(text)
    try:
        is_exact = math.isfinite(number) and Decimal(text) == Decimal(repr(number))
    except ArithmeticError:
        is_exact = False
    if not is_exact:
        raise ValueError(f"the number {text[:_SHOWN]} has more digits than could be kept")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("the value repeats a member of an object")
    return members


@dataclass(frozen=True, slots=True)
class _Operation:
    name: str
    path: _Path
    source: _Path
    value: Any

    def __str__(self) -> str:
        return f"{self.name} {_text(self.path)[:_SHOWN]!r}"

    def apply(self, document: dict[str, Any]) -> None:
        """Change a document, whose only member, without a name, is the value."""
        match self.name:
            case "test":
                if not _is_equal(_value_at(document, self.path), self.value):
                    raise ValueError("the value there is different")
                return
            case "add" | "replace":
                value = deepcopy(self.value)
            case "copy":
                value = deepcopy(_value_at(document, self.source))
            case _:
                value = _remove(document, self.source)
        if self.name == "replace":
            _value_at(document, self.path)
        if self.name != "remove":
            _put(document, self.path, value, is_new=self.name != "replace")


@dataclass(frozen=True, slots=True)
class JsonPatch:
    """Operations on a JSON value, applied all or none."""

    document: tuple[Any, ...]
    """The operations in the form of RFC 6902."""
    _operations: tuple[_Operation, ...]

    @classmethod
    def of(cls, document: object) -> Self:
        """Read a patch, a JSON array of operations.

        Raises:
            ValueError: It is not a patch; the text names the operation.
        """
        if not isinstance(document, list) or not document:
            raise ValueError("a JSON Patch is an array of operations")
        operations = []
        for number, operation in enumerate(document, 1):
            try:
                operations.append(_operation(operation))
            except ValueError as error:
                raise ValueError(f"operation {number}: {error}") from None
        return cls(tuple(document), tuple(operations))

    def applied(self, value: bytes | None) -> bytes:
        """A JSON text after all operations.

        Raises:
            ValueError: It is not JSON, a test fails, or a path is missing.
        """
        document = {"": read_json(value)}
        for number, operation in enumerate(self._operations, 1):
            try:
                operation.apply(document)
            except ValueError as error:
                raise ValueError(f"operation {number}, {operation}: {error}") from None
            except RecursionError:
                raise ValueError(f"operation {number}, {operation}: nested too deeply") from None
        try:
            return write_json(document[""])
        except RecursionError:
            raise ValueError("the patched value is nested too deeply") from None


def _operation(operation: object) -> _Operation:
    if not isinstance(operation, dict) or operation.get("op") not in _TAKES:
        raise ValueError(f"op must be one of {', '.join(_TAKES)}")
    name, needed = operation["op"], _TAKES[operation["op"]]
    if missing := [member for member in ("path", needed) if member and member not in operation]:
        raise ValueError(f"{name} needs {missing[0]}")
    path = _path(operation["path"])
    source = _path(operation["from"]) if needed == "from" else path
    if name == "remove" and path == ("",):
        raise ValueError("remove does not accept the path of the whole value")
    if name == "move" and path[: len(source)] == source and path != source:
        raise ValueError("a value cannot be moved into itself")
    return _Operation(name, path, source, operation.get("value"))


def _path(pointer: object) -> _Path:
    """The names on the path from a document to a value of it (RFC 6901)."""
    if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
        raise ValueError("a path is a text that is empty or begins with /")
    if _ESCAPE.search(pointer):
        raise ValueError(f"{pointer[:_SHOWN]!r}: after ~ comes 0 or 1")
    return tuple(name.replace("~1", "/").replace("~0", "~") for name in pointer.split("/"))


def _text(path: _Path) -> str:
    return "/".join(name.replace("~", "~0").replace("/", "~1") for name in path)


def _value_at(at: Any, path: _Path) -> Any:  # noqa: ANN401 - any JSON
    for depth, name in enumerate(path):
        if isinstance(at, dict) and name in at:
            at = at[name]
        elif isinstance(at, list) and _INDEX.fullmatch(name) and int(name) < len(at):
            at = at[int(name)]
        else:
            raise ValueError(f"there is no {_text(path[: depth + 1])}")
    return at


def _remove(document: dict[str, Any], path: _Path) -> Any:  # noqa: ANN401 - any JSON
    value, parent = _value_at(document, path), _value_at(document, path[:-1])
    del parent[path[-1] if isinstance(parent, dict) else int(path[-1])]
    return value


def _put(document: dict[str, Any], path: _Path, value: Any, *, is_new: bool) -> None:  # noqa: ANN401
    parent, name = _value_at(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[name] = value
        return
    if isinstance(parent, list):
        place = len(parent) if name == "-" else int(name) if _INDEX.fullmatch(name) else -1
        if 0 <= place <= len(parent):
            parent[place : place + (not is_new)] = [value]
            return
    raise ValueError(f"nothing can be added at {_text(path)}")


def _is_equal(value: Any, other: Any) -> bool:  # noqa: ANN401 - any JSON
    """Whether values are equal as JSON: 1 equals 1.0, but not true."""
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(
            _is_equal(value[name], other[name]) for name in value
        )
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(_is_equal, value, other))
    return isinstance(value, bool) is isinstance(other, bool) and bool(value == other)

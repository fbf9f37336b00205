"""Deviations of data from a JSON Schema, described for the people who wrote it.

Schemas are files next to the code that reads them. Their ``title`` names a section of the form
(``[job]``) or the form of a value (``host:port``), and ``description`` says what it is for. A
pattern must match the whole text.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, Self, cast

from redrive.diagnostics import did_you_mean
from redrive.forms import Flaw, KeyPath

if TYPE_CHECKING:
    from jsonschema import ValidationError

_CODES: Final[Mapping[str, str]] = {
    "required": "MISSING",
    "additionalProperties": "UNKNOWN_KEY",
    "type": "WRONG_TYPE",
    "minimum": "OUT_OF_RANGE",
    "maximum": "OUT_OF_RANGE",
    "minLength": "EMPTY",
    "minItems": "EMPTY",
}
"""Codes by the schema's keyword that a value violates; ``BAD_VALUE`` for all others."""

_ABOUT_KEYS: Final = frozenset({"required", "additionalProperties"})
"""Keywords whose violation means that the key is wrong rather than its value."""

_TYPES: Final[Mapping[str, str]] = {
    "array": "a list",
    "boolean": "true or false, without quotes",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
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
class Schema:
    """The form of a kind of file."""

    definition: Mapping[str, Any]
    """The JSON Schema."""
    mapping: str
    """The file format's word for keys with values."""

    @classmethod
    def load(cls, package: str, name: str, *, mapping: str = "mapping") -> Self:
        """Read a schema that is part of a package.

        Args:
            package: Such as ``redrive.topology``.
            name: Name of the file.
            mapping: The file format's word for keys with values.
        """
        return cls(json.loads(resources.files(package).joinpath(name).read_text("utf-8")), mapping)

    def flaws(self, data: object, *, written: object = None) -> tuple[Flaw, ...]:
        """Every deviation of the data, only the first for each value.

        Args:
            data: What to check.
            written: The same for use in messages; by default the data.
        """
        flaws: dict[KeyPath, Flaw] = {}
        for error in _validator()(self.definition).iter_errors(data):
            for flaw in self._flaws(error, data if written is None else written):
                flaws.setdefault(flaw.path, flaw)
        return tuple(flaws.values())

    def _flaws(self, error: ValidationError, written: Any) -> Iterator[Flaw]:  # noqa: ANN401 - any data
        path, schema = tuple(error.absolute_path), cast("dict[str, Any]", error.schema)
        instance = cast("Any", error.instance)
        if error.validator == "required":
            for key in schema["required"]:
                if key not in instance:
                    yield self._missing_key((*path, key), schema)
        elif error.validator == "additionalProperties":
            patterns = "|".join(schema.get("patternProperties", ())) or "(?!)"
            for key in instance:
                if key not in schema.get("properties", ()) and not re.search(patterns, key):
                    yield self._unknown_key((*path, key), schema)
        else:
            for step in path:
                written = written[step]
            yield self._wrong_value(error, path, written)

    @staticmethod
    def _flaw(path: KeyPath, keyword: str, message: str, expected: str, hint: str = "") -> Flaw:
        code, concerns_key = _CODES.get(keyword, "BAD_VALUE"), keyword in _ABOUT_KEYS
        return Flaw(path, code, message, expected, hint, concerns_key, keyword)

    def _missing_key(self, path: KeyPath, schema: Mapping[str, Any]) -> Flaw:
        wanted = schema["properties"][path[-1]]
        if "$ref" in wanted:
            wanted = self.definition["$defs"][wanted["$ref"].rpartition("/")[2]]
        purpose = f": {wanted['description']}" if "description" in wanted else ""
        message = f"{schema['title']} needs {path[-1]}{purpose}"
        return self._flaw(path, "required", message, self._expected(wanted))

    def _unknown_key(self, path: KeyPath, schema: Mapping[str, Any]) -> Flaw:
        key, known = str(path[-1]), list(schema.get("properties", ()))
        elsewhere = [
            section["title"]
            for section in self.definition.get("$defs", {}).values()
            if key in section.get("properties", ())
        ]
        message = f"{schema['title']} has no key {key}"
        expected = f"one of {', '.join(known)}" if known else schema.get("description", "")
        hint = f"{key} belongs in {' or '.join(elsewhere)}" if elsewhere else ""
        hint = hint or did_you_mean(key, known)
        return self._flaw(path, "additionalProperties", message, expected, hint)

    def _wrong_value(
        self,
        error: ValidationError,
        path: KeyPath,
        written: Any,  # noqa: ANN401 - any data
    ) -> Flaw:
        schema, keyword = cast("dict[str, Any]", error.schema), str(error.validator)
        name, hint = _name(path, schema), ""
        if keyword == "type":
            message = f"{name} is {self._type_name(written)}"
            if "string" in schema["type"] and isinstance(written, int | float):
                hint = "write it in quotes"
        elif keyword in {"minimum", "maximum"}:
            message = f"{name} is {written:,}"
        elif keyword in {"minLength", "minItems"}:
            message = f"{name} is empty"
        else:
            message = f"{written!r} is not a valid {name.removeprefix('an ')}"
            if keyword == "enum":
                known = [choice for choice in schema["enum"] if choice]
                hint = did_you_mean(str(cast("Any", error.instance)), known)
        return self._flaw(path, keyword, message, self._expected(schema), hint)

    def _expected(self, schema: Mapping[str, Any]) -> str:
        kind, title = schema.get("type", ""), schema.get("title", "")
        if "object" in kind:
            return f"a {self.mapping}: {title}"
        choices = schema.get("enum") or [schema.get("const")]
        if not title and choices != [None]:
            return f"one of {', '.join(filter(None, choices))}"
        words: str = title or _TYPES.get(str(kind), "")
        words += f" from {schema['minimum']:,}" if "minimum" in schema else ""
        return words + (f" to {schema['maximum']:,}" if "maximum" in schema else "")

    def _type_name(self, value: object) -> str:
        if isinstance(value, float) and math.isnan(value):
            return "not a number"
        names = (name for kind, name in _TYPE_NAMES if isinstance(value, kind))
        return next(names, f"a {self.mapping}")


def _name(path: KeyPath, schema: Mapping[str, Any]) -> str:
    match path:
        case ():
            return str(schema["title"])
        case (*_, key, int()):
            return f"an element of {key}"
    return str(path[-1])


# JSON does not distinguish whole numbers, and has no NaN.


def _is_integer(_checker: object, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(_checker: object, value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _pattern(
    _validator: object, pattern: str, instance: object, _schema: object
) -> Iterator[ValidationError]:
    from jsonschema import ValidationError  # noqa: PLC0415 - as below

    # Python's $ also matches before a line end.
    if isinstance(instance, str) and not re.fullmatch(pattern, instance):
        yield ValidationError("another pattern")


@cache
def _validator() -> Any:  # noqa: ANN401 - a class made by the library
    from jsonschema import Draft202012Validator, validators  # noqa: PLC0415 - slow, for few files

    return validators.extend(  # type: ignore[no-untyped-call]
        Draft202012Validator,
        validators={"pattern": _pattern},
        type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(
            {"integer": _is_integer, "number": _is_number}
        ),
    )

"""Typed access to a settings document that collects every finding instead of stopping at one."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from redrive.diagnostics import Diagnostic, Severity
from redrive.settings.document import Document
from redrive.settings.keys import KEYS, tables_with
from redrive.settings.places import KeyPath

__all__ = ["Findings", "Table", "did_you_mean"]

ChoiceT = TypeVar("ChoiceT", bound=StrEnum)

_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_TYPE_NAMES: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    (bool, "true or false"),  # before int, which bool is a kind of
    (int, "a whole number"),
    (float, "a number"),
    (str, "text"),
    (list, "a list"),
    (dict, "a table"),
    ((dt.date, dt.time), "a date or time"),
)


def type_name(value: object) -> str:
    """The type of a value in the words of settings files."""
    return next(name for types, name in _TYPE_NAMES if isinstance(value, types))


def did_you_mean(name: str, known: Collection[str]) -> str:
    """A hint with the known name that is most like ``name``; empty if none is."""
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower(), list(by_lower_case), n=1, cutoff=0.6)
    return f"did you mean {by_lower_case[close[0]]}?" if close else ""


class Findings:
    """Everything that is to be said about one document."""

    def __init__(self, document: Document, environ: Mapping[str, str]) -> None:
        """Start without a finding.

        Args:
            document: The settings.
            environ: Environment variables, for ``${NAME}`` in values.
        """
        self.document = document
        self.environ = environ
        self.diagnostics: list[Diagnostic] = []

    def error(self, path: KeyPath, code: str, message: str, **more: str) -> None:
        """Reports that a value is wrong."""
        spot = self.document.at_value(path)
        self._add(path, spot.finding(Severity.ERROR, code, message, **more))

    def error_at_key(self, path: KeyPath, code: str, message: str, **more: str) -> None:
        """Reports that a key is wrong or missing."""
        spot = self.document.at_key(path)
        self._add(path, spot.finding(Severity.ERROR, code, message, **more))

    def warning(self, path: KeyPath, code: str, message: str, **more: str) -> None:
        """Reports that a value is legal but probably not meant."""
        spot = self.document.at_value(path)
        self._add(path, spot.finding(Severity.WARNING, code, message, **more))

    def unknown(self, path: KeyPath, code: str, message: str, **more: str) -> None:
        """Reports a key that nobody knows; its value, which may be a secret, is not shown."""
        spot = self.document.at_key(path).without_value()
        self._add(path, spot.finding(Severity.ERROR, code, message, **more))

    def extend(self, diagnostics: Collection[Diagnostic]) -> None:
        """Adds what others found, such as the reader of rules tables."""
        self.diagnostics.extend(diagnostics)

    def in_order(self) -> tuple[Diagnostic, ...]:
        """Every finding once: those of the document in the order of its lines, then the others."""

        def place(finding: Diagnostic) -> tuple[bool, int, int]:
            elsewhere = finding.file != self.document.name
            return (True, 0, 0) if elsewhere else (False, finding.line, finding.column)

        return tuple(dict.fromkeys(sorted(self.diagnostics, key=place)))

    def _add(self, path: KeyPath, finding: Diagnostic) -> None:
        self.diagnostics.append(replace(finding, subject=str(path[-1]) if path else ""))


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the document.

    Every method that reads a value gives its default when the value is wrong, and reports it.
    """

    findings: Findings
    path: KeyPath
    data: Mapping[str, Any]
    name: str
    """The table as ``KEYS`` knows it; empty for the whole document."""

    @property
    def title(self) -> str:
        """How messages name the table."""
        if self.name == "handlers":
            return "[[handlers]]"
        if self.name == "queues" and len(self.path) > 1:
            return f'[queues."{self.path[1]}"]'
        return f"[{self.name}]" if self.name else "the settings"

    def has(self, key: str) -> bool:
        """Whether the key is given."""
        return key in self.data

    def text(self, key: str, default: str = "", *, required: str = "", example: str = "") -> str:
        """A text, with ``${NAME}`` replaced by environment variables.

        Args:
            key: The key.
            default: The value if it is not given.
            required: What the key is needed for; empty if it is not.
            example: How it may be written.
        """
        if not self.has(key):
            if required:
                self.missing(key, required, example)
            return default
        value = self._typed(key, str, example)
        if value is None:
            return default
        if not value.strip():
            self.error(key, "EMPTY", f"{key} is empty", expected=example)
            return default
        return self._interpolated(key, value, default)

    def pattern(
        self, key: str, pattern: str, expected: str, default: str = "", *, required: str = ""
    ) -> str:
        """A text of a certain form.

        Args:
            key: The key.
            pattern: A regular expression for the whole of it.
            expected: The form in words, for the finding.
            default: The value if it is not given.
            required: What the key is needed for; empty if it is not.
        """
        value = self.text(key, default, required=required, example=expected)
        if not self.has(key) or value == default or re.fullmatch(pattern, value):
            return value
        # The text as written: an environment variable may hold a secret by mistake.
        self.error(key, "BAD_VALUE", f"{self.data[key]!r} is no {key}", expected=expected)
        return default

    def choice(self, key: str, default: ChoiceT) -> ChoiceT:
        """One of the values of an enumeration."""
        kind = type(default)
        options = [option.value for option in kind]
        value = self.text(key, default.value, example=", ".join(options))
        if value in options:
            return kind(value)
        self.error(
            key,
            "BAD_VALUE",
            f"{self.data[key]!r} is no {key}",
            expected="one of " + ", ".join(options),
            hint=did_you_mean(value, options),
        )
        return default

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number between ``low`` and ``high``, both included."""
        expected = f"a whole number from {low:,} to {high:,}"
        value: int | None = self._typed(key, int, expected) if self.has(key) else None
        if value is None:
            return default
        if not low <= value <= high:
            self.error(key, "OUT_OF_RANGE", f"{key} is {value:,}", expected=expected)
            return default
        return value

    def seconds(self, key: str, default: float, low: float, high: float) -> float:
        """A number of seconds between ``low`` and ``high``, both included."""
        expected = f"seconds from {low:g} to {high:g}"
        value = self._typed(key, (int, float), expected) if self.has(key) else None
        if value is None:
            return default
        if not low <= value <= high:
            self.error(key, "OUT_OF_RANGE", f"{key} is {value:g}", expected=expected)
            return default
        return float(value)

    def boolean(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self._typed(key, bool, "true or false, without quotes") if self.has(key) else None
        return default if value is None else value

    def texts(self, key: str, example: str) -> tuple[str, ...] | None:
        """A list of texts; None if it is not given."""
        items = self._typed(key, list, example) if self.has(key) else None
        if items is None:
            return None
        for index, item in enumerate(items):
            if not isinstance(item, str):
                self.findings.error(
                    (*self.path, key, index),
                    "WRONG_TYPE",
                    f"an element of {key} is {type_name(item)}",
                    expected=f"text, as in {example}",
                )
        return tuple(self._interpolated(key, item, "") for item in items if isinstance(item, str))

    def file(self, key: str) -> Path | None:
        """The path of a file or folder, relative to the document; None if it is not given."""
        value = self.text(key, example="the path of a file, relative to this one")
        folder = self.findings.document.folder_of((*self.path, key))
        return folder / Path(value).expanduser() if value else None

    def table(self, key: str) -> Table:
        """A table in this one; an empty one if it is not given."""
        value = self._typed(key, dict, f"a table: [{key}]") if self.has(key) else None
        return Table(self.findings, (*self.path, key), value or {}, key)

    def tables(self, key: str) -> Iterator[Table]:
        """The tables of a list of tables."""
        expected = f"a list of tables, each beginning with [[{key}]]"
        items = self._typed(key, list, expected) if self.has(key) else None
        for index, item in enumerate(items or ()):
            path = (*self.path, key, index)
            if isinstance(item, dict):
                yield Table(self.findings, path, item, key)
            else:
                message = f"an element of {key} is {type_name(item)}"
                self.findings.error(path, "WRONG_TYPE", message, expected=expected)

    def named_tables(self, key: str) -> Iterator[tuple[str, Table]]:
        """The tables of a table whose keys are names, such as ``[queues."ORDERS"]``."""
        outer = self.table(key)
        for name in outer.data:
            value = outer._typed(name, dict, f'a table: [{key}."{name}"]')  # noqa: SLF001
            if value is not None:
                yield name, Table(self.findings, (*outer.path, name), value, key)

    def check_keys(self) -> None:
        """Reports every key that is not one of this table's."""
        known = KEYS[self.name]
        for key in self.data:
            if key in known:
                continue
            elsewhere = " or ".join(tables_with(key))
            self.findings.unknown(
                (*self.path, key),
                "UNKNOWN_KEY",
                f"{self.title} {'has' if self.name else 'have'} no {self._kind(key)} {key}",
                expected="one of " + ", ".join(known),
                hint=f"{key} belongs in {elsewhere}" if elsewhere else did_you_mean(key, known),
            )

    def error(self, key: str, code: str, message: str, **more: str) -> None:
        """Reports that the value of a key is wrong."""
        self.findings.error((*self.path, key), code, message, **more)

    def warning(self, key: str, code: str, message: str, **more: str) -> None:
        """Reports that the value of a key is probably not meant."""
        self.findings.warning((*self.path, key), code, message, **more)

    def missing(self, key: str, purpose: str, example: str = "") -> None:
        """Reports that a key is missing."""
        self.findings.error_at_key(
            (*self.path, key),
            "MISSING",
            f"{self.title} needs {key}: {purpose}",
            expected=example,
        )

    def _kind(self, key: str) -> str:
        return "table" if isinstance(self.data[key], dict | list) and not self.name else "key"

    def _typed(self, key: str, types: Any, expected: str) -> Any:  # noqa: ANN401 - a TOML value
        value = self.data[key]
        if isinstance(value, types) and not (isinstance(value, bool) and types is not bool):
            return value
        self.error(key, "WRONG_TYPE", f"{key} is {type_name(value)}", expected=expected)
        return None

    def _interpolated(self, key: str, value: str, default: str) -> str:
        """``value`` with its environment variables; the default if one is not there."""
        wrong = [name for name in _VARIABLE.findall(value) if not self._is_set(key, name)]
        if wrong:
            return default
        return _VARIABLE.sub(lambda match: self.findings.environ[match[1]], value)

    def _is_set(self, key: str, name: str) -> bool:
        if not _VARIABLE_NAME.fullmatch(name):
            self.error(
                key,
                "BAD_VALUE",
                f"{name!r} is no name of an environment variable",
                expected="${NAME}, of letters, digits and underscores",
            )
            return False
        if not self.findings.environ.get(name):
            self.error(
                key,
                "UNSET_VARIABLE",
                f"environment variable {name} is not set",
                hint=f"export {name} before the start",
            )
            return False
        return True

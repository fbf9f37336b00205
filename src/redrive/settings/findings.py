"""Findings about settings, each at its location in the document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from redrive.diagnostics import Diagnostic, Severity, SourceLocation, has_errors
from redrive.entry_point import imported
from redrive.errors import ConfigurationError
from redrive.forms import FileForm, Flaw, KeyPath
from redrive.printable import counted
from redrive.settings.document import Document, is_secret, without_value

Value = TypeVar("Value")
Inner = TypeVar("Inner")

_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RECOGNISABLE: Final = 4
"""Characters from which on a variable's value is hidden in findings about other keys too."""


class Findings:
    """The findings about one document.

    They show ``${NAME}`` instead of what the environment variable holds.
    """

    def __init__(self, document: Document, variables: Mapping[str, str]) -> None:
        """``variables`` are the values of the variables that the document names."""
        self.document = document
        self._variables = variables
        self.diagnostics: list[Diagnostic] = []

    def error(self, path: KeyPath, code: str, message: str, **more: str) -> None:
        """Report an invalid value."""
        self._add(self.document.at_value(path), Severity.ERROR, path, code, message, **more)

    def error_at_key(self, path: KeyPath, code: str, message: str, **more: str) -> None:
        """Report an invalid or missing key; its value, which may be secret, is not shown."""
        location = without_value(self.document.at_key(path))
        self._add(location, Severity.ERROR, path, code, message, **more)

    def warning(self, path: KeyPath, code: str, message: str, **more: str) -> None:
        """Report a value that is legal but probably unintended."""
        self._add(self.document.at_value(path), Severity.WARNING, path, code, message, **more)

    def _add(
        self, location: SourceLocation, severity: Severity, path: KeyPath, *about: str, **more: str
    ) -> None:
        subject = str(path[-1]) if path else ""
        finding = location.finding(severity, *about, subject=subject, **more)
        self.diagnostics.append(self._without_variables(finding, self.document.text(path)))

    def _without_variables(self, finding: Diagnostic, written: str = "") -> Diagnostic:
        """The finding with names of variables instead of values; ``written`` names its own."""
        own = set(_VARIABLE.findall(written))
        names: dict[str, str] = {}
        for name, value in self._variables.items():
            if name in own or len(value) >= _RECOGNISABLE:
                names[value.lower()] = name
        for name in own & self._variables.keys():
            # A message may be about a part of the value, such as one address of a list.
            for part in re.findall(r"[\w.-]{3,}", self._variables[name]):
                names.setdefault(part.lower(), name)
        if not names:
            return finding
        pattern = re.compile(
            "|".join(
                re.escape(value) if len(value) >= _RECOGNISABLE else rf"\b{re.escape(value)}\b"
                for value in sorted(names, key=len, reverse=True)
            ),
            re.IGNORECASE,
        )

        def hidden(text: str) -> str:
            return pattern.sub(lambda match: f"${{{names[match[0].lower()]}}}", text)

        return replace(
            finding,
            message=hidden(finding.message),
            expected=hidden(finding.expected),
            hint=hidden(finding.hint),
        )

    def flaw(self, flaw: Flaw) -> None:
        """Report a deviation from the form, which is described by the text as written."""
        place = self.document.at_value(flaw.path)
        if flaw.concerns_key:
            place = without_value(self.document.at_key(flaw.path))
        self.diagnostics.append(flaw.finding(place))

    def unset_variable(self, path: KeyPath, name: str) -> None:
        """Report an environment variable that is not set, or has an invalid name."""
        if _VARIABLE_NAME.fullmatch(name):
            message = f"environment variable {name} is not set"
            hint = f"export {name} before the start"
            self.error(path, "UNSET_VARIABLE", message, hint=hint)
        else:
            message = f"{name!r} is not a valid name of an environment variable"
            expected = "${NAME}, of letters, digits and underscores"
            self.error(path, "BAD_VALUE", message, expected=expected)

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Add findings of others, such as the parser of rules tables."""
        self.diagnostics.extend(map(self._without_variables, diagnostics))

    def in_order(self) -> tuple[Diagnostic, ...]:
        """Every finding once: those of the document in the order of its lines, then the others."""

        def place(finding: Diagnostic) -> tuple[bool, int, int]:
            elsewhere = finding.file != self.document.name
            return (True, 0, 0) if elsewhere else (False, finding.line, finding.column)

        return tuple(dict.fromkeys(sorted(self.diagnostics, key=place)))

    def checked(self, where: str, hint: str) -> tuple[Diagnostic, ...]:
        """The findings in order.

        Raises:
            ConfigurationError: There are errors in what ``where`` names; all findings are attached.
        """
        diagnostics = self.in_order()
        if has_errors(diagnostics):
            count = sum(finding.severity is Severity.ERROR for finding in diagnostics)
            message = f"{counted(count, 'error')} in {where}"
            raise ConfigurationError(message, hint=hint, diagnostics=diagnostics)
        return diagnostics


@dataclass(frozen=True, slots=True)
class Section(Generic[Value]):
    """One table of the document, with defaults in place of the values that have errors."""

    findings: Findings
    path: KeyPath
    value: Value

    @classmethod
    def whole(
        cls, document: Document, environ: Mapping[str, str], schema: FileForm[Value]
    ) -> Section[Value]:
        """The whole document, checked against a form; ``environ`` replaces ``${NAME}``."""
        # A missing table counts as empty, and so lacks its required keys.
        data: dict[str, Any] = {name: {} for name, key in schema.root.keys.items() if key.is_table}
        unset: dict[KeyPath, str] = {}
        used: dict[str, str] = {}
        data |= _with_variables(document.data, (), environ, unset, used)
        findings = Findings(document, used)
        flaws = schema.flaws(data, written=document.data)
        unknown = {flaw.path for flaw in flaws if flaw.concerns_key}
        for path, name in unset.items():
            if not any(path[:length] in unknown for length in range(1, len(path) + 1)):
                findings.unset_variable(path, name)
        for flaw in flaws:
            if flaw.path not in unset or flaw.concerns_key:
                findings.flaw(flaw)
        return Section(findings, (), schema.without(data, {*unset, *(flaw.path for flaw in flaws)}))

    def inner(self, value: Inner, *steps: str | int) -> Section[Inner]:
        """A table in this one."""
        return Section(self.findings, (*self.path, *steps), value)

    def inners(self, values: Iterable[Inner], key: str) -> tuple[Section[Inner], ...]:
        """The tables of a list of tables."""
        return tuple(self.inner(value, key, index) for index, value in enumerate(values))

    def has(self, key: str) -> bool:
        """Whether the key is set, with a valid value or not."""
        return self.findings.document.has((*self.path, key))

    def text(self, key: str) -> str:
        """A text; empty if it is not given."""
        return str(getattr(self.value, key, None) or "")

    def written(self, key: str) -> str:
        """A text as written, with ``${NAME}``; empty if it is not given."""
        return self.findings.document.text((*self.path, key))

    def file(self, key: str) -> Path | None:
        """The path of a file or folder, relative to the document; None if it is not given."""
        path_of, text = self.findings.document.path_of, self.text(key)
        return path_of((*self.path, key), text) if text else None

    def function(self, key: str, *, hint: str = "") -> str:
        """The name of a function, or empty; reports one that cannot be imported."""
        name = self.text(key)
        if name:
            try:
                imported(name)
            except ConfigurationError as error:
                self.error(key, "BAD_VALUE", error.message, hint=hint or error.hint)
        return name

    def error(self, key: str, code: str, message: str, **more: str) -> None:
        """Report an invalid value of a key."""
        self.findings.error((*self.path, key), code, message, **more)

    def error_at_key(self, key: str, code: str, message: str, **more: str) -> None:
        """Report that a key is wrong or missing; its value is not shown."""
        self.findings.error_at_key((*self.path, key), code, message, **more)

    def warning(self, key: str, code: str, message: str, **more: str) -> None:
        """Report a value of a key that is probably unintended."""
        self.findings.warning((*self.path, key), code, message, **more)

    def bad_value(self, key: str, message: str, **more: str) -> None:
        """Report a value that the key does not accept."""
        self.error(key, "BAD_VALUE", message, **more)

    def without_effect(self, key: str, message: str, **more: str) -> None:
        """Report a value of a key without effect, because of others."""
        self.warning(key, "WITHOUT_EFFECT", message, **more)

    def missing(self, key: str, purpose: str, example: str = "") -> None:
        """Report a missing key that only some documents need."""
        names = [step for step in self.path if isinstance(step, str)]
        header = f"[{'.'.join(names)}]" if len(names) == len(self.path) else f"[[{names[0]}]]"
        message = f"{header} needs {key}: {purpose}"
        self.error_at_key(key, "MISSING", message, expected=example)


def _with_variables(
    value: Any,  # noqa: ANN401 - a TOML value
    path: KeyPath,
    environ: Mapping[str, str],
    unset: dict[KeyPath, str],
    used: dict[str, str],
) -> Any:  # noqa: ANN401 - a TOML value
    """A copy with environment variables filled in.

    Their values are added to ``used``, those that are missing to ``unset``.
    """
    match value:
        case dict():
            return {
                key: _with_variables(inner, (*path, key), environ, unset, used)
                for key, inner in value.items()
            }
        case list():
            return [
                _with_variables(inner, (*path, index), environ, unset, used)
                for index, inner in enumerate(value)
            ]
        case str():
            for name in _VARIABLE.findall(value):
                if not environ.get(name):
                    unset.setdefault(path, name)
                elif not is_secret(str(path[-1])):  # no message is about the text of a secret
                    used[name] = environ[name]
            return _VARIABLE.sub(lambda match: environ.get(match[1], ""), value)
    return value

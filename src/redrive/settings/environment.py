"""Settings from environment variables, such as ``REDRIVE_KAFKA__BOOTSTRAP_SERVERS``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from redrive.diagnostics import Diagnostic, Severity, SourceLocation, did_you_mean
from redrive.settings.document import ENVIRONMENT, Document, is_secret
from redrive.settings.findings import SCHEMA

_PREFIX: Final = "REDRIVE_"
_SEPARATOR: Final = "__"
"""Between the table and the key. Variables without it, such as REDRIVE_JAVA, are not settings."""
_BOOLEANS: Final = {"true": True, "false": False}


class _Setting(NamedTuple):
    """A setting that a variable can hold."""

    path: tuple[str, ...]
    kind: str
    """Its type in the schema."""


def with_environment(document: Document, environ: Mapping[str, str]) -> Document:
    """The document overridden by environment variables.

    A variable is named after table and key, in capitals, with two underscores between them; every
    character that is not a letter or digit becomes an underscore. It has one text, number or
    boolean; named tables, such as [clusters.eu], must be in the document. An empty variable counts
    as not set. A secret stays in its variable: the document refers to it.
    """
    settings = _settings(document)
    for name, value in _variables(environ):
        if name in settings:
            path, kind = settings[name]
            written = f"${{{name}}}" if is_secret(path[-1]) else _typed(value, kind)
            document = document.with_variable(name, path, written)
    return document


def unknown_variables(document: Document, environ: Mapping[str, str]) -> Iterator[Diagnostic]:
    """A finding for each variable that has the form of a setting but names none."""
    settings = _settings(document)
    for name, _ in _variables(environ):
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


def _settings(document: Document) -> dict[str, _Setting]:
    settings: dict[str, _Setting] = {}
    ambiguous = set()
    for setting in _scalars(SCHEMA.definition, document.data, ()):
        steps = (re.sub("[^A-Z0-9]", "_", step.upper()) for step in setting.path)
        name = _PREFIX + _SEPARATOR.join(steps)
        if name in settings:
            ambiguous.add(name)
        settings[name] = setting
    # Names of tables that differ only in case or punctuation have no variables.
    return {name: setting for name, setting in settings.items() if name not in ambiguous}


def _scalars(
    schema: Mapping[str, Any],
    data: Any,  # noqa: ANN401 - a TOML value
    path: tuple[str, ...],
) -> Iterator[_Setting]:
    """The texts, numbers and booleans of a schema, with those of named tables in the data."""
    while "$ref" in schema:
        target: Any = SCHEMA.definition
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        schema = target
    if schema["type"] == "array":
        return
    if schema["type"] != "object":
        yield _Setting(path, schema["type"])
    elif isinstance(data, Mapping):  # otherwise the schema has a finding
        for key, inner in schema.get("properties", {}).items():
            yield from _scalars(inner, data.get(key, {}), (*path, key))
        if named := schema.get("additionalProperties"):
            for key, inner in data.items():
                yield from _scalars(named, inner, (*path, key))


def _typed(text: str, kind: str) -> str | float:
    """A value in its type; others stay text, for which the schema has a finding."""
    try:
        match kind:
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "boolean":
                return _BOOLEANS.get(text.lower(), text)
    except ValueError:
        pass
    return text

"""Settings from environment variables, such as ``REDRIVE_KAFKA__BOOTSTRAP_SERVERS``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from redrive.diagnostics import Diagnostic, Severity, SourceLocation, did_you_mean
from redrive.forms import Key, KeyPath
from redrive.settings.document import ENVIRONMENT, Document, is_secret
from redrive.settings_file import FORM

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
        name = _variable(path)
        if name in settings:
            ambiguous.add(name)
        settings[name] = path, kind
    # Names of tables that differ only in case or punctuation have no variables.
    return {name: setting for name, setting in settings.items() if name not in ambiguous}


def _variable(path: KeyPath) -> str:
    steps = (re.sub("[^A-Z0-9]", "_", str(step).upper()) for step in path)
    return _PREFIX + _SEPARATOR.join(steps)


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

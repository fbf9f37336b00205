"""Findings as text, JSON, GitHub annotations and SARIF."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

import click

from redrive import __version__
from redrive.diagnostics import Diagnostic, Severity
from redrive.printable import counted, printable

_COLOURS: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_SARIF_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


@dataclass(frozen=True, slots=True)
class FileFindings:
    """The findings of one file."""

    file: str
    """Its name on the command line."""
    summary: str
    """Its content, such as ``rules table, 12 rules``; empty for no line about the file."""
    findings: Sequence[Diagnostic]
    counts: str = ""
    """Commands of a script and how many failed, as ``runmqsc`` reports them."""
    notes: Sequence[str] = ()
    """What could not be checked."""


def _text(files: Sequence[FileFindings]) -> Iterator[str]:
    for one in files:
        for finding in one.findings:
            head, *rest = finding.render().split("\n")
            yield click.style(head, fg=_COLOURS[finding.severity])
            yield "".join(f"{line}\n" for line in rest)
        if one.summary:
            counts = [
                counted(count, severity.value)
                for severity in Severity
                if (count := sum(finding.severity is severity for finding in one.findings))
            ]
            total = ", ".join(counts) or "nothing to report"
            yield click.style(f"{printable(one.file)}: {one.summary}: {total}", bold=True)
        if one.counts:
            yield f"    {one.counts}"


def _json(files: Sequence[FileFindings]) -> Iterator[str]:
    yield json.dumps([dataclasses.asdict(one) for one in files], indent=2)


def _github(files: Sequence[FileFindings]) -> Iterator[str]:
    for finding in _all(files):
        place = {"file": finding.file, "line": finding.line, "col": finding.column}
        place["title"] = finding.code
        listed = ",".join(
            f"{name}={_escaped(value, ':,')}" for name, value in place.items() if value
        )
        level = "notice" if finding.severity is Severity.NOTE else finding.severity.value
        yield printable(f"::{level} {listed}::{_escaped(_sentence(finding), '')}")


def _escaped(value: object, more: str) -> str:
    text = str(value).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    for character in more:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def _sarif(files: Sequence[FileFindings]) -> Iterator[str]:
    """The Static Analysis Results Interchange Format, version 2.1.0 (OASIS)."""
    findings = list(_all(files))
    codes = dict.fromkeys(finding.code for finding in findings)
    driver = {"name": "redrive", "version": __version__, "rules": [{"id": code} for code in codes]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_sarif_result(finding) for finding in findings],
    }
    yield json.dumps({"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _sarif_result(finding: Diagnostic) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(finding.file)}}
    if finding.line:
        place["region"] = {"startLine": finding.line}
        if finding.column:
            place["region"]["startColumn"] = finding.column
            place["region"]["endColumn"] = finding.column + finding.length
    return {
        "ruleId": finding.code,
        "level": finding.severity.value,
        "message": {"text": _sentence(finding)},
        "locations": [{"physicalLocation": place}],
    }


def _sentence(finding: Diagnostic) -> str:
    more = {"expected": finding.expected, "for example": finding.witness, "hint": finding.hint}
    return "; ".join([finding.message, *(f"{name}: {it}" for name, it in more.items() if it)])


def _all(files: Sequence[FileFindings]) -> Iterator[Diagnostic]:
    for one in files:
        yield from one.findings


FORMATS: Final[Mapping[str, Callable[[Sequence[FileFindings]], Iterator[str]]]] = MappingProxyType(
    {"text": _text, "json": _json, "github": _github, "sarif": _sarif}
)
"""What ``redrive check --format`` takes; each yields the lines to print."""

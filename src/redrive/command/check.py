"""``redrive check``: every finding in rules tables, settings and topologies, at once."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from redrive.diagnostics import Diagnostic, Severity
from redrive.errors import UsageError
from redrive.operations.definitions import read_sources, with_source_lines
from redrive.rules import decode_source, parse
from redrive.topology.files import (
    CONFIGURATION_SUFFIX,
    JSON_SUFFIX,
    SUFFIXES,
    YAML_SUFFIXES,
    Source,
    read_topology,
)
from redrive.topology.mq.reader import is_mqsc

__all__ = ["KINDS", "Checked", "Kind", "Options", "check"]

_STANDARD_INPUT: Final = "-"
_KIND: Final = re.compile(r"^kind:\s*(\w+)", re.MULTILINE)
_YAML_KINDS: Final = {"mqe": "MQ Everyplace network", "bindings": "bindings"}
_KINDS_BY_SUFFIX: Final = {CONFIGURATION_SUFFIX: "qm.ini", JSON_SUFFIX: "MQSC commands in JSON"}
_COLOURS: Final = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says about all files."""

    strict: bool = True
    """Whether clauses of rules must be separated."""
    input_queue: str = ""
    """The dead-letter queue of the tables; empty if their INPUTQ says it."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of one file."""

    summary: str
    """What the file holds, such as ``rules table, 12 rules``."""
    findings: Sequence[Diagnostic]
    counts: str = ""
    """How many commands a script has, and how many failed; empty if all were carried out."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of file that can be checked."""

    name: str
    recognises: Callable[[Path, str], bool]
    """Whether a file, by its name and text, is of this kind."""
    check: Callable[[str, str, Options], Checked]
    """Checks a file: name for findings, text, options."""


def _check_rules(name: str, text: str, options: Options) -> Checked:
    result = parse(text, name=name, strict=options.strict, input_queue=options.input_queue)
    summary = "rules table"
    if result.table is not None:
        summary += f", {_counted(len(result.table.rules), 'rule')}"
    return Checked(summary, result.diagnostics)


def _check_settings(name: str, text: str, options: Options) -> Checked:
    del text, options  # settings are read from their file: what they name is relative to it
    from redrive.settings import check_settings  # noqa: PLC0415 - only where it is needed

    return Checked("settings", check_settings(Path(name)))


KINDS: Final[Sequence[Kind]] = (
    Kind("settings", lambda path, _text: path.suffix == ".toml", _check_settings),
    Kind("rules table", lambda _path, _text: True, _check_rules),
)
"""The kinds that are checked file by file, in the order in which they are asked; rules tables take
what no other kind wants. The files of a topology are checked together instead."""


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="[QM=]FILE...")
@click.option("--lenient", is_flag=True, help="Accept rules whose clauses are not separated.")
@click.option(
    "--input-queue",
    default="",
    metavar="QUEUE",
    help="The dead-letter queue that the tables work on, if INPUTQ does not say it.",
)
@click.option(
    "--level",
    type=click.Choice([severity.value for severity in Severity]),
    default=Severity.NOTE.value,
    show_default=True,
    help="Show findings of this level and above; only these count for the exit code.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def check(
    context: click.Context,
    files: Sequence[str],
    *,
    lenient: bool,
    input_queue: str,
    level: str,
    as_json: bool,
) -> None:
    """Check rules tables, settings and topologies: all errors, and what is suspicious.

    \b
    redrive check orders.rul redrive.toml
    redrive check QM1.mqsc QM2=second.mqsc network.yaml bindings.yaml
    redrive check --json - < orders.rul

    A rules table may be - for standard input. MQSC scripts (of queue manager QM), MQ Everyplace
    networks and bindings, or folders of them, are one topology and are checked together.

    Exit codes: 0 nothing to report, or notes only; 1 errors or warnings; 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    options = Options(strict=not lenient, input_queue=input_queue)
    shown = list(Severity)[: list(Severity).index(Severity(level)) + 1]
    checked = [(name, _at_level(it, shown)) for name, it in _checked(files, options)]
    if as_json:
        click.echo(json.dumps([_document(name, it) for name, it in checked], indent=2))
    else:
        for name, it in checked:
            _show(name, it)
    is_noted_only = all(
        finding.severity is Severity.NOTE for _, it in checked for finding in it.findings
    )
    context.exit(0 if is_noted_only else 1)


def _at_level(checked: Checked, shown: Sequence[Severity]) -> Checked:
    findings = [finding for finding in checked.findings if finding.severity in shown]
    return dataclasses.replace(checked, findings=findings)


def _checked(files: Sequence[str], options: Options) -> Iterator[tuple[str, Checked]]:
    """Every file in the order of the command line, those of a folder by name."""
    of_topology = {name: sources for name in files if (sources := _definitions(name))}
    together = dict.fromkeys(source for sources in of_topology.values() for source in sources)
    result = read_topology(list(together))
    findings: dict[str, list[Diagnostic]] = {}
    for finding in with_source_lines(result.diagnostics):
        findings.setdefault(finding.file, []).append(finding)
    told: set[str] = set()
    for name in dict.fromkeys(files):
        for source in of_topology.get(name, ()):
            file = str(source.path)
            if file in told:
                continue  # the script of several queue managers
            told.add(file)
            counts = result.counts.get(file)
            failed = str(counts) if counts and counts.has_failures else ""
            yield file, Checked(_kind_of(source), findings.pop(file, ()), failed)
        if name not in of_topology:
            yield name, _check(name, options)


def _definitions(name: str) -> Sequence[Source]:
    """The files of a topology that an argument names; none if it is a file of another kind."""
    if name == _STANDARD_INPUT:
        return ()
    sources = read_sources(name)
    path = sources[0].path
    if path != Path(name) or path.suffix.lower() in SUFFIXES:
        for source in sources:
            _read(str(source.path))  # a file that is not there is an error of the command line
        return sources
    return sources if is_mqsc(decode_source(_read(name))) else ()


def _kind_of(source: Source) -> str:
    suffix = source.path.suffix.lower()
    if suffix not in YAML_SUFFIXES:
        return _KINDS_BY_SUFFIX.get(suffix, "MQSC script")
    kind = _KIND.search(decode_source(_read(str(source.path))))
    return _YAML_KINDS.get(kind[1], "YAML") if kind else "YAML"


def _check(name: str, options: Options) -> Checked:
    path = Path(name)
    text = decode_source(_read(name))
    kind = next(kind for kind in KINDS if kind.recognises(path, text))
    return kind.check("<stdin>" if name == _STANDARD_INPUT else name, text, options)


def _read(name: str) -> bytes:
    try:
        if name == _STANDARD_INPUT:
            return sys.stdin.buffer.read()
        return Path(name).read_bytes()
    except OSError as error:
        raise UsageError(
            f"{name} cannot be read: {error.strerror}", hint="name files that exist, or -"
        ) from error


def _show(name: str, checked: Checked) -> None:
    for finding in checked.findings:
        head, *rest = finding.render().split("\n")
        click.secho(head, fg=_COLOURS[finding.severity])
        click.echo("".join(f"{line}\n" for line in rest))
    counts = [
        _counted(count, severity.value)
        for severity in Severity
        if (count := sum(finding.severity is severity for finding in checked.findings))
    ]
    click.secho(f"{name}: {checked.summary}: {', '.join(counts) or 'nothing to report'}", bold=True)
    if checked.counts:
        click.echo(f"    {checked.counts}")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _document(name: str, checked: Checked) -> dict[str, Any]:
    return {
        "file": name,
        "summary": checked.summary,
        "findings": [dataclasses.asdict(finding) for finding in checked.findings],
        "counts": checked.counts,
    }

"""``redrive check``: every finding in rules tables and other definitions, at once."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from redrive.diagnostics import Diagnostic, Severity
from redrive.errors import UsageError
from redrive.rules import decode_source, parse

__all__ = ["KINDS", "Checked", "Kind", "Options", "check"]

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
"""The kinds in the order in which they are asked; rules tables take what no other kind wants."""


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--lenient", is_flag=True, help="Accept rules whose clauses are not separated.")
@click.option(
    "--input-queue",
    default="",
    metavar="QUEUE",
    help="The dead-letter queue that the tables work on, if INPUTQ does not say it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def check(
    context: click.Context,
    files: Sequence[str],
    *,
    lenient: bool,
    input_queue: str,
    as_json: bool,
) -> None:
    """Check rules tables and settings: every error, and what is legal but suspicious.

    \b
    redrive check orders.rul redrive.toml
    redrive check --json - < orders.rul

    FILE may be - for standard input.

    Exit codes: 0 nothing to report, 1 findings, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    options = Options(strict=not lenient, input_queue=input_queue)
    checked = [(name, _check(name, options)) for name in files]
    if as_json:
        click.echo(json.dumps([_document(name, it) for name, it in checked], indent=2))
    else:
        for name, it in checked:
            _show(name, it)
    context.exit(1 if any(it.findings for _, it in checked) else 0)


def _check(name: str, options: Options) -> Checked:
    path = Path(name)
    text = decode_source(_read(name))
    kind = next(kind for kind in KINDS if kind.recognises(path, text))
    return kind.check("<stdin>" if name == "-" else name, text, options)


def _read(name: str) -> bytes:
    try:
        if name == "-":
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


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _document(name: str, checked: Checked) -> dict[str, Any]:
    return {
        "file": name,
        "summary": checked.summary,
        "findings": [dataclasses.asdict(finding) for finding in checked.findings],
    }

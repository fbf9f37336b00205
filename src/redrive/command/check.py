"""``redrive check``: every finding in rules tables, settings and topologies, at once."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from redrive.command.finding_formats import FORMATS, FileFindings, counted
from redrive.diagnostics import Diagnostic, Severity, in_order
from redrive.errors import ConfigurationError, UsageError
from redrive.operations.definitions import read_sources, with_source_lines
from redrive.operations.put_tracers import assuming_tracer
from redrive.operations.rule_targets import DeadLetterQueue, check_targets
from redrive.rules import RulesTable, decode_source, parse
from redrive.rules.analysis import analyse
from redrive.topology.files import (
    CONFIGURATION_SUFFIX,
    JSON_SUFFIX,
    SUFFIXES,
    YAML_SUFFIXES,
    Source,
    Topology,
    read_topology,
)
from redrive.topology.mq.reader import is_mqsc

__all__ = ["KINDS", "Checked", "Kind", "Options", "check"]

_STANDARD_INPUT: Final = "-"
_KIND: Final = re.compile(r"^kind:\s*(\w+)", re.MULTILINE)
_SEVERITIES: Final = tuple(Severity)
"""The most severe one first."""
_YAML_KINDS: Final = {"mqe": "MQ Everyplace network", "bindings": "bindings"}
_KINDS_BY_SUFFIX: Final = {CONFIGURATION_SUFFIX: "qm.ini", JSON_SUFFIX: "MQSC commands in JSON"}
_SETTINGS: Final = ".toml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says about all files."""

    strict: bool = True
    """Whether clauses of rules must be separated."""
    input_queue: str = ""
    """The dead-letter queue of the tables; empty if their INPUTQ says it."""
    has_settings: bool = False
    """Whether settings are checked too, which say what ``run`` makes of a table."""
    topology: Topology | None = None
    """What the files define that are checked with the tables; None if there is none."""


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
    from redrive.settings.rules import RulesSource, check_rules  # noqa: PLC0415 - as below

    source = RulesSource(text, name, options.strict)
    result = source.parsed(options.input_queue)
    if result.table is None:
        return Checked("rules table", result.diagnostics)
    found: Sequence[Diagnostic] = result.diagnostics
    if not options.has_settings:
        found = check_rules(
            source,
            result,
            queue=options.input_queue or result.table.control.input_queue,
            queue_managers=None,
            allow_context_authority=False,
        )
    analysed = [
        *analyse(result.table, text, name=name),
        *_targets(result.table, text, name, options),
    ]
    summary = f"rules table, {counted(len(result.table.rules), 'rule')}"
    return Checked(summary, in_order([*found, *analysed]))


def _targets(table: RulesTable, text: str, name: str, options: Options) -> Sequence[Diagnostic]:
    """What becomes of the rules' puts in the topology that is checked with the table."""
    topology = options.topology
    if topology is None:
        return ()
    managers = topology.manager_names
    manager = table.control.input_queue_manager or (managers[0] if len(managers) == 1 else "")
    queue = DeadLetterQueue(options.input_queue or table.control.input_queue, manager)
    return check_targets(table, text, assuming_tracer(topology), queue, name=name)


def _check_settings(name: str, text: str, options: Options) -> Checked:
    del text, options  # settings are read from their file: what they name is relative to it
    from redrive.settings import read_settings  # noqa: PLC0415 - only where it is needed

    try:
        settings = read_settings(Path(name))
    except ConfigurationError as error:
        if not error.diagnostics:
            raise
        return Checked("settings", error.diagnostics)
    topology = read_topology(settings.job.topology).topology if settings.job.topology else None
    tracer = assuming_tracer(topology) if topology is not None else None
    analysed: list[Diagnostic] = []
    for handler in settings.job.handlers:
        text, rules = handler.rules, parse(handler.rules).required()
        analysed += analyse(rules, text, name=handler.rules_name)
        if tracer is not None:
            queue = DeadLetterQueue(handler.identity.queue, handler.identity.queue_manager)
            analysed += check_targets(rules, text, tracer, queue, name=handler.rules_name)
    return Checked("settings", tuple(dict.fromkeys([*settings.warnings, *analysed])))


KINDS: Final[Sequence[Kind]] = (
    Kind("settings", lambda path, _text: path.suffix == _SETTINGS, _check_settings),
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
    "--fail-on",
    type=click.Choice([severity.value for severity in Severity]),
    default=Severity.ERROR.value,
    show_default=True,
    help="The least severe finding that makes the exit code 1.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print only the findings that make it 1.")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    help="For people, programs, annotations of GitHub, or code scanning.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.pass_context
def check(
    context: click.Context,
    files: Sequence[str],
    *,
    lenient: bool,
    input_queue: str,
    fail_on: str,
    quiet: bool,
    form: str,
    as_json: bool,
) -> None:
    """Check rules tables, settings and topologies: all errors, and what is suspicious.

    \b
    redrive check orders.rul redrive.toml
    redrive check QM1.mqsc QM2=second.mqsc network.yaml bindings.yaml
    redrive check --fail-on warning --quiet --format github *.rul

    A rules table may be - for standard input. MQSC scripts (of queue manager QM), MQ Everyplace
    networks and bindings, or folders of them, are one topology and are checked together.

    The comment * redrive: allow CODE above a rule allows a warning or note about it.

    Exit codes: 0 nothing that --fail-on names, 1 findings, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    has_settings = any(Path(name).suffix == _SETTINGS for name in files)
    options = Options(strict=not lenient, input_queue=input_queue, has_settings=has_settings)
    checked = _each_once(
        [
            FileFindings(name, it.summary, it.findings, it.counts)
            for name, it in _checked(files, options)
        ]
    )
    failing = set(_SEVERITIES[: _SEVERITIES.index(Severity(fail_on)) + 1])
    failed = [
        FileFindings(one.file, "", [it for it in one.findings if it.severity in failing])
        for one in checked
    ]
    for line in FORMATS["json" if as_json else form](failed if quiet else checked):
        click.echo(line)
    context.exit(1 if any(one.findings for one in failed) else 0)


def _each_once(checked: Sequence[FileFindings]) -> list[FileFindings]:
    """The findings without those that are told at another file too, which is their own.

    Settings have the findings of the tables that they name, and those may be asked for as well.
    """
    own = {Path(one.file).resolve(): set(map(_identity, one.findings)) for one in checked}
    return [
        FileFindings(
            one.file,
            one.summary,
            [
                finding
                for finding in one.findings
                if Path(finding.file).resolve() == Path(one.file).resolve()
                or _identity(finding) not in own.get(Path(finding.file).resolve(), ())
            ],
            one.counts,
        )
        for one in checked
    ]


def _identity(finding: Diagnostic) -> tuple[object, ...]:
    return finding.line, finding.column, finding.code, finding.message


def _checked(files: Sequence[str], options: Options) -> Iterator[tuple[str, Checked]]:
    """Every file in the order of the command line, those of a folder by name."""
    of_topology = {name: sources for name in files if (sources := _definitions(name))}
    together = dict.fromkeys(source for sources in of_topology.values() for source in sources)
    result = read_topology(list(together))
    options = replace(options, topology=result.topology if together else None)
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
        if name not in of_topology and (place := str(Path(name).resolve())) not in told:
            told.add(place)
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

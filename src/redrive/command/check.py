"""``redrive check``: reports every finding in rules tables, settings and topologies."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self
from urllib.parse import quote

import click

from redrive.checkpoints.other_applications import notes_about_others
from redrive.command.options import (
    STANDARD_INPUT,
    choice_option,
    json_option,
    lenient_option,
    optional_config_option,
    read_file,
)
from redrive.command.output import print_notes
from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.configuration.deciders import read_topics, table_of, topology_of
from redrive.diagnostics import Diagnostic, Severity, SourceLocation, in_order
from redrive.engine.decision import TimestampMode
from redrive.engine.facts import Questions, TopicFacts
from redrive.errors import ConfigurationError, EnvironmentFault, ProtocolError, TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import CONNECT
from redrive.kafka.facts import ClusterFacts
from redrive.operations.network import read_sources, with_source_lines
from redrive.operations.put_trace import assuming_tracer
from redrive.operations.rule_targets import check_lives, check_targets, known_topics
from redrive.printable import counted, printable
from redrive.rules import decode_source
from redrive.rules.analysis import analyse
from redrive.topology.files import (
    CONFIGURATION_SUFFIX,
    JSON_SUFFIX,
    SUFFIXES,
    YAML_SUFFIXES,
    DefinitionFile,
    read_topology,
)
from redrive.topology.layout import Topology
from redrive.topology.mq.reader import is_mqsc
from redrive.topology.names import Names
from redrive.version import __version__

_KIND: Final = re.compile(r"^kind:\s*(\w+)", re.MULTILINE)
_SEVERITIES: Final = tuple(Severity)
"""The most severe first."""
_YAML_KINDS: Final = {"mqe": "MQ Everyplace network", "bindings": "bindings"}
_KINDS_BY_SUFFIX: Final = {CONFIGURATION_SUFFIX: "qm.ini", JSON_SUFFIX: "JSON of mqweb"}
_SETTINGS: Final = ".toml"
_COMMON_PARTITIONS: Final = 6
"""Assumed partitions of a topic that does not exist, or of which nothing is known."""
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
    for file in files:
        for finding in file.findings:
            head, *rest = finding.render().split("\n")
            yield click.style(head, fg=_COLOURS[finding.severity])
            yield "".join(f"{line}\n" for line in rest)
        if file.summary:
            counts = [
                counted(count, severity.value)
                for severity in Severity
                if (count := sum(finding.severity is severity for finding in file.findings))
            ]
            total = ", ".join(counts) or "nothing to report"
            yield click.style(f"{printable(file.file)}: {file.summary}: {total}", bold=True)
        if file.counts:
            yield f"    {file.counts}"


def _json(files: Sequence[FileFindings]) -> Iterator[str]:
    yield json.dumps([dataclasses.asdict(file) for file in files], indent=2)


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
    return "; ".join([finding.message, *(f"{name}: {text}" for name, text in more.items() if text)])


def _all(files: Sequence[FileFindings]) -> Iterator[Diagnostic]:
    for file in files:
        yield from file.findings


FORMATS: Final[Mapping[str, Callable[[Sequence[FileFindings]], Iterator[str]]]] = MappingProxyType(
    {"text": _text, "json": _json, "github": _github, "sarif": _sarif}
)
"""What ``redrive check --format`` takes; each yields the lines to print."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    strict: bool
    """Whether clauses of rules must be separated."""
    input_queue: str
    """The dead-letter queue of the tables; empty for INPUTQ."""
    has_settings: bool
    """Whether settings are checked too: they determine what ``run`` does with a table."""
    topology: Topology | None = None
    """The definitions that are checked with the tables."""


def _check_rules(file: str, text: str, options: _Options) -> FileFindings:
    from redrive.settings.rules import RulesSource, check_rules  # noqa: PLC0415 - as below

    name = "<stdin>" if file == STANDARD_INPUT else file
    source = RulesSource(text, name, options.strict)
    result = source.parsed(options.input_queue, None if options.has_settings else ())
    if result.table is None:
        return FileFindings(file, "rules table", result.diagnostics)
    findings: Sequence[Diagnostic] = result.diagnostics
    control = result.table.control
    queue = options.input_queue or control.input_queue
    if not options.has_settings:
        findings = check_rules(
            source, result, queue=queue, queue_managers=None, allow_context_authority=False
        )
    findings = [*findings, *analyse(result.table, text, name=name)]
    if options.topology is not None:
        managers = options.topology.manager_names
        manager = control.input_queue_manager or (managers[0] if len(managers) == 1 else "")
        handled = Names(queue=queue, queue_manager=manager)
        tracer = assuming_tracer(options.topology)
        findings += check_targets(result.table, text, tracer, handled, name=name)
    summary = f"rules table, {counted(len(result.table.rules), 'rule')}"
    return FileFindings(file, summary, in_order(findings))


def _check_settings(file: str) -> FileFindings:
    from redrive.settings import read_settings  # noqa: PLC0415 - slow to import

    try:
        settings = read_settings(Path(file), asks=False)
    except ConfigurationError as error:
        if not error.diagnostics:
            raise
        return FileFindings(file, "settings", error.diagnostics)
    sources = settings.job.topology
    tracer = assuming_tracer(topology_of(sources)) if sources else None
    analysed: list[Diagnostic] = []
    for handler in _every_handler(settings.job):
        text, rules = handler.rules, table_of(handler)
        analysed += analyse(rules, text, name=handler.rules_name)
        if tracer is not None:
            identity = handler.identity
            queue = Names(queue=identity.queue, queue_manager=identity.queue_manager)
            analysed += check_targets(rules, text, tracer, queue, name=handler.rules_name)
    broker = _Broker.ask(settings.job, asks_targets=tracer is None)
    analysed += broker.problems_of_targets(settings.job)
    analysed += broker.other_applications(file)
    findings = tuple(dict.fromkeys([*settings.warnings, *analysed]))
    summary = f"settings, {broker.own_partitions(settings.job)}"
    return FileFindings(file, summary, findings, notes=broker.notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Broker:
    """What the broker says about the topics of a job, as far as it answers."""

    topics: Mapping[str, int] | None = None
    """The partitions of all topics; None if unknown."""
    others: Sequence[str] = ()
    """Other applications on its dead-letter topics, as notes."""
    targets: Mapping[str, TopicFacts] = field(default_factory=dict)
    """The topics that its rules name."""
    notes: Sequence[str] = ()
    """What could not be asked."""

    @classmethod
    def ask(cls, job: JobConfiguration, *, asks_targets: bool) -> Self:
        """Ask all questions over one connection, until one is not answered."""
        names = frozenset(
            name for handler in _every_handler(job) for name in known_topics(table_of(handler))
        )
        unknown = ["which applications handle the same topics"]
        unknown += ["how long the targets of rules keep records"] if names and asks_targets else []
        answers = cls()
        try:
            with Cluster.open(job.connection, timeout=CONNECT) as cluster:
                answers = replace(answers, topics=cluster.topics())
                read = read_topics(job.with_topics(answers.topics or ()))
                answers = replace(
                    answers, others=notes_about_others(cluster, job.application, read)
                )
                del unknown[0]
                if unknown:
                    facts = ClusterFacts(cluster).answers(Questions(names))
                    answers = replace(answers, targets=facts.topics)
        except (EnvironmentFault, ProtocolError, TransientFault) as fault:
            note = f"not checked: {' and '.join(unknown)}: {fault.message}"
            answers = replace(answers, notes=(note,))
        return answers

    def other_applications(self, file: str) -> Iterator[Diagnostic]:
        """What a start would find about other applications."""
        for note in self.others:
            yield SourceLocation(file).finding(Severity.WARNING, "OTHER_APPLICATION", note)

    def problems_of_targets(self, job: JobConfiguration) -> Iterator[Diagnostic]:
        """What the targets that rules name do with the records put there."""
        for handler in _every_handler(job):
            yield from check_lives(
                table_of(handler),
                handler.rules,
                self.targets,
                keeps=handler.timestamp is TimestampMode.KEEP,
                name=handler.rules_name,
            )

    def own_partitions(self, job: JobConfiguration) -> str:
        """How many partitions the job's own topics have, or will have."""
        from redrive.streaming.topics import count_own_partitions  # noqa: PLC0415 - slow to import

        is_known = self.topics is not None
        existing = self.topics or {}
        job = job.with_topics(existing) if is_known else replace(job, handlers=_every_handler(job))
        sources = {name: existing.get(name, _COMMON_PARTITIONS) for name in read_topics(job)}
        count = count_own_partitions(job, sources, existing)
        text = f"own topics with {counted(count, 'partition')}"
        if sources.keys() <= existing.keys():
            return text
        return f"{text} if {'missing' if is_known else 'its'} topics have {_COMMON_PARTITIONS}"


def _every_handler(job: JobConfiguration) -> tuple[HandlerConfiguration, ...]:
    """The handlers, and one for each subscription."""
    return (*job.handlers, *(subscription.handler for subscription in job.subscriptions))


@click.command()
@click.argument("files", nargs=-1, metavar="[QM=]FILE...")
@optional_config_option
@lenient_option
@click.option(
    "--input-queue",
    default="",
    metavar="QUEUE",
    help="The dead-letter queue of the tables, by default INPUTQ.",
)
@choice_option(
    "--fail-on",
    values=Severity,
    default=Severity.ERROR,
    help_text="The least severe level with exit code 1.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print only findings of that level or above.")
@choice_option(
    "--format",
    "form",
    values=FORMATS,
    default="text",
    help_text="Text, JSON, annotations of GitHub, or SARIF for code scanning.",
)
@json_option
@click.pass_context
def check(
    context: click.Context,
    files: Sequence[str],
    *,
    config: Path | None,
    lenient: bool,
    input_queue: str,
    fail_on: str,
    quiet: bool,
    form: str,
    as_json: bool,
) -> None:
    """Report the errors of rules tables, settings and topologies.

    \b
    redrive check -c redrive.toml
    redrive check orders.rul redrive.toml
    redrive check QM1.mqsc QM2=second.mqsc network.yaml bindings.yaml
    redrive check --fail-on warning --quiet --format github *.rul

    Without a FILE redrive.toml is checked. A rules table may be - for standard input. MQSC scripts
    (of queue manager QM), MQ Everyplace networks and bindings, or folders of them, are one topology
    and are checked together.

    The comment * redrive: allow CODE above a rule allows a warning or note about it.

    Exit codes: 0 no finding that --fail-on names, 1 findings, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if config is not None or not files:
        from redrive.command.opening import settings_file  # noqa: PLC0415 - slow to import

        path = settings_file(config, "")
        files = (*files, str(path))
    has_settings = any(Path(name).suffix == _SETTINGS for name in files)
    options = _Options(strict=not lenient, input_queue=input_queue, has_settings=has_settings)
    checked = _without_duplicates(list(_check_files(files, options)))
    failing = set(_SEVERITIES[: _SEVERITIES.index(Severity(fail_on)) + 1])
    failed = [
        FileFindings(
            file.file, "", [finding for finding in file.findings if finding.severity in failing]
        )
        for file in checked
    ]
    for line in FORMATS["json" if as_json else form](failed if quiet else checked):
        click.echo(line)
    if not quiet:
        print_notes(note for file in checked for note in file.notes)
    context.exit(1 if any(file.findings for file in failed) else 0)


def _without_duplicates(checked: Sequence[FileFindings]) -> list[FileFindings]:
    own = {Path(file.file).resolve(): set(map(_identity, file.findings)) for file in checked}

    def is_first(finding: Diagnostic, file_findings: FileFindings) -> bool:
        file = Path(finding.file).resolve()
        return file == Path(file_findings.file).resolve() or _identity(finding) not in own.get(
            file, ()
        )

    return [
        replace(file, findings=[finding for finding in file.findings if is_first(finding, file)])
        for file in checked
    ]


def _identity(finding: Diagnostic) -> tuple[object, ...]:
    return finding.line, finding.column, finding.code, finding.message


def _check_files(files: Sequence[str], options: _Options) -> Iterator[FileFindings]:
    of_topology = {name: sources for name in files if (sources := _definitions(name))}
    together = dict.fromkeys(source for sources in of_topology.values() for source in sources)
    result = read_topology(list(together))
    options = replace(options, topology=result.topology if together else None)
    findings: dict[str, list[Diagnostic]] = {}
    for finding in with_source_lines(result.diagnostics):
        findings.setdefault(finding.file, []).append(finding)
    seen: set[str] = set()
    for name in dict.fromkeys(files):
        for source in of_topology.get(name, ()):
            file = str(source.path)
            if file in seen:
                continue  # the script of several queue managers
            seen.add(file)
            counts = result.counts.get(file)
            failed = str(counts) if counts and counts.has_failures else ""
            yield FileFindings(file, _kind_of(source), findings.pop(file, ()), failed)
        if name not in of_topology and (place := str(Path(name).resolve())) not in seen:
            seen.add(place)
            text = decode_source(read_file(name))
            is_settings = Path(name).suffix == _SETTINGS
            yield _check_settings(name) if is_settings else _check_rules(name, text, options)


def _definitions(name: str) -> Sequence[DefinitionFile]:
    if name == STANDARD_INPUT:
        return ()
    sources = read_sources(name)
    path = sources[0].path
    if path != Path(name) or path.suffix.lower() in SUFFIXES:
        for source in sources:
            read_file(str(source.path))  # a missing file is an error of the command line
        return sources
    return sources if is_mqsc(decode_source(read_file(name))) else ()


def _kind_of(source: DefinitionFile) -> str:
    suffix = source.path.suffix.lower()
    if suffix not in YAML_SUFFIXES:
        return _KINDS_BY_SUFFIX.get(suffix, "MQSC script")
    kind = _KIND.search(decode_source(read_file(str(source.path))))
    return _YAML_KINDS.get(kind[1], "YAML") if kind else "YAML"

"""Topologies from files: MQSC scripts, MQ Everyplace networks and bindings together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from redrive.diagnostics import Diagnostic, Severity, SourceLocation, has_errors
from redrive.topology.bindings import NO_BINDINGS, Bindings, read_bindings
from redrive.topology.layout import SourceText, Topology
from redrive.topology.mq.checks import check_topology
from redrive.topology.mq.network import MqNetwork
from redrive.topology.mq.objects import LocalQueue
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mq.reader import CommandCounts, read_mqsc
from redrive.topology.mq.script import (
    NO_CONFIGURATION,
    Configuration,
    decode_script,
    manager_name,
    read_configuration,
)
from redrive.topology.mqe.objects import NO_NETWORK, MqeNetwork

YAML_SUFFIXES = (".yaml", ".yml")
CONFIGURATION_SUFFIX = ".ini"
JSON_SUFFIX = ".json"
SUFFIXES = (".mqsc", CONFIGURATION_SUFFIX, JSON_SUFFIX, *YAML_SUFFIXES)
"""Suffixes of definition files; others in a folder are ignored."""


@dataclass(frozen=True, slots=True)
class DefinitionFile:
    """One file of a topology."""

    path: Path
    queue_manager: str = ""
    """The queue manager of a script; empty for that of the script's header or the file's name."""


@dataclass(frozen=True, slots=True)
class NamedSources:
    """The files of an argument ``[QM=]FILE`` or of a folder."""

    path: Path
    """The file or the folder, which may be missing."""
    sources: tuple[DefinitionFile, ...]
    """The file, or those of the folder by name; empty if it holds no definitions."""


@dataclass(frozen=True, slots=True)
class TopologyResult:
    """The result of reading the files."""

    topology: Topology | None
    """The definitions of all files, without failed commands; None if there are other errors, so
    that nothing is applied in part."""
    diagnostics: tuple[Diagnostic, ...]
    """All findings, each once: file by file, then those about the files together."""
    counts: Mapping[str, CommandCounts] = field(default_factory=dict)
    failures: frozenset[Diagnostic] = frozenset()

    def accepting_failures(self) -> tuple[Diagnostic, ...]:
        """All findings, with failed commands as warnings."""
        return tuple(
            replace(diagnostic, severity=Severity.WARNING)
            if diagnostic in self.failures
            else diagnostic
            for diagnostic in self.diagnostics
        )


class _Files:
    """Collects the definitions of files."""

    def __init__(self) -> None:
        self.findings: list[Diagnostic] = []
        self.managers: dict[str, QueueManager] = {}
        self.network: MqeNetwork | None = None
        self.bindings: Bindings | None = None
        self.counts: dict[str, CommandCounts] = {}
        self.failures: set[Diagnostic] = set()
        self._first_of_kind: dict[str, str] = {}
        self._configurations: dict[str, Configuration] = {}

    def load(self, source: DefinitionFile) -> SourceText | None:
        """The content of a file; None, and a finding, if it cannot be read."""
        file = str(source.path)
        try:
            return SourceText(file, source.path.read_bytes(), source.queue_manager)
        except OSError as problem:
            self._error("UNREADABLE", f"the file cannot be read: {problem.strerror}", file)
            return None

    def read(self, source: SourceText) -> None:
        text = decode_script(source.data, file=source.name)
        if isinstance(text, Diagnostic):
            self.findings.append(text)
        elif source.suffix == CONFIGURATION_SUFFIX:
            configuration, findings = read_configuration(text, source.name)
            before = self._configurations.get(source.queue_manager, NO_CONFIGURATION)
            self._configurations[source.queue_manager] = configuration.over(before)
            self.findings += findings
        elif source.suffix in YAML_SUFFIXES:
            self._read_yaml(text, source.name)
        elif source.suffix == JSON_SUFFIX:
            message = "the JSON of mqweb was removed; 0.1.0 was the last version that read it"
            self._error("UNSUPPORTED", message, source.name, hint="write MQSC, as dmpmqcfg does")
        else:
            self._read_script(text, source)

    def _read_script(self, text: str, source: SourceText) -> None:
        file = source.name
        name = source.queue_manager or manager_name(text) or Path(file).stem
        everywhere = self._configurations.get("", NO_CONFIGURATION)
        configuration = self._configurations.get(name, NO_CONFIGURATION).over(everywhere)

        result = read_mqsc(
            text,
            queue_manager=name,
            file=file,
            base=self.managers.get(name),
            configuration=configuration,
        )
        self.managers[name] = result.queue_manager
        self.findings += result.diagnostics
        self.counts[file] = result.counts
        self.failures.update(
            diagnostic for diagnostic in result.diagnostics if diagnostic.severity is Severity.ERROR
        )

    def _read_yaml(self, text: str, file: str) -> None:
        from redrive.topology.document import read_document  # noqa: PLC0415 - YAML is slow to import
        from redrive.topology.mqe.reader import read_network  # noqa: PLC0415 - as above

        data = read_document(text, file).data
        kind = data.get("kind") if isinstance(data, dict) else None
        if kind in {"mqe", "bindings"} and str(kind) in self._first_of_kind:
            message = f"{self._first_of_kind[str(kind)]} already has kind {kind}"
            self._error("SECOND_OF_KIND", message, file, hint="put both into one file")
        elif kind == "mqe":
            network = read_network(text, file)
            self.network = network.network
            self.findings += network.diagnostics
        else:
            # For a file of unknown kind, reading it as bindings gives the best errors.
            bindings = read_bindings(text, file)
            self.bindings = bindings.bindings
            self.findings += bindings.diagnostics
        self._first_of_kind.setdefault(str(kind), file)

    def _error(self, code: str, message: str, file: str, *, hint: str = "") -> None:
        self.findings.append(SourceLocation(file).finding(Severity.ERROR, code, message, hint=hint))


def named_sources(text: str, path_of: Callable[[str], Path] = Path) -> NamedSources:
    """Find the files that a command line or a setting names.

    Args:
        text: A file, ``QM=FILE`` for the script of a queue manager, or a folder.
        path_of: Finds the path of a name; by default in the working directory.
    """
    path, queue_manager = path_of(text), ""
    if not path.exists() and "=" in text:
        queue_manager, _, name = text.partition("=")
        path = path_of(name)
    if not path.is_dir():
        return NamedSources(path, (DefinitionFile(path, queue_manager),))
    files = sorted(filter(_holds_definitions, path.iterdir()))
    # QM= may name a folder of scripts of one queue manager; networks name theirs themselves.
    sources = (
        DefinitionFile(file, "" if file.suffix.lower() in YAML_SUFFIXES else queue_manager)
        for file in files
    )
    return NamedSources(path, tuple(sources))


def _holds_definitions(path: Path) -> bool:
    """Whether a file of a folder has definitions by its name; or JSON of mqweb, an error."""
    suffix = path.suffix.lower()
    if suffix != JSON_SUFFIX:
        return suffix in SUFFIXES
    try:
        data = path.read_bytes()
    except OSError:
        return True  # reading it will report the error
    return any(word in data for word in (b'"runCommand', b'"commandResponse"'))


def read_topology(sources: Sequence[DefinitionFile | SourceText]) -> TopologyResult:
    """Read and check the files of a topology.

    Scripts of the same queue manager run in order. There is no topology if there are errors other
    than failed commands.

    Args:
        sources: MQSC scripts, ``qm.ini`` files with inserts for one manager or for all, and YAML
            files with ``kind: mqe`` or ``kind: bindings``.
    """
    files = _Files()
    loaded = [
        files.load(source) if isinstance(source, DefinitionFile) else source for source in sources
    ]
    texts = [text for text in loaded if text is not None]
    # The inserts of a qm.ini apply to all scripts, whatever their order.
    for text in sorted(texts, key=lambda source: source.suffix != CONFIGURATION_SUFFIX):
        files.read(text)
    is_whole = all(
        finding in files.failures
        for finding in files.findings
        if finding.severity is Severity.ERROR
    )
    topology = Topology(
        mq=MqNetwork(files.managers.values()),
        mqe=files.network or NO_NETWORK,
        bindings=files.bindings or NO_BINDINGS,
        sources=tuple(texts),
    )
    together = check_together(topology)
    # If a file cannot be read, its definitions seem to be missing elsewhere.
    files.findings += (
        finding for finding in together if is_whole or finding.code not in _ABOUT_OTHER_FILES
    )
    return TopologyResult(
        topology if is_whole and not has_errors(together) else None,
        tuple(dict.fromkeys(files.findings)),
        files.counts,
        frozenset(files.failures),
    )


_ABOUT_OTHER_FILES = frozenset({"UNKNOWN_QUEUE", "UNKNOWN_QUEUE_MANAGER", "DANGLING_RQMNAME"})
"""Findings that an unreadable file may have caused."""


# Findings about queue managers of both kinds together, and about their bindings


def check_together(topology: Topology) -> list[Diagnostic]:
    """Check a whole topology whose files have no errors; a job does not start with errors."""
    others = [manager.name for manager in topology.mqe.queue_managers]
    findings = [
        *check_topology(topology.mq, others=others),
        *_duplicates(topology),
        *_binding_findings(topology),
        *_topic_findings(topology),
    ]
    return sorted(findings, key=lambda finding: (finding.file, finding.line))


def _error(at: SourceLocation, code: str, message: str, hint: str = "") -> Diagnostic:
    return at.finding(Severity.ERROR, code, message, hint=hint)


def _duplicates(topology: Topology) -> Iterator[Diagnostic]:
    for manager in topology.mqe.queue_managers:
        if manager.name in topology.mq:
            message = f"queue manager {manager.name!r} is already one of IBM MQ"
            hint = "rename one of the two"
            yield _error(manager.location, "DUPLICATE_QUEUE_MANAGER", message, hint)


def _binding_findings(topology: Topology) -> Iterator[Diagnostic]:
    local = set(topology.local_queues())
    managers = topology.mq.queue_managers
    groups = {
        manager.queue_sharing_group.name
        for manager in managers.values()
        if manager.queue_sharing_group
    }
    for name, bound in topology.bindings.queue_managers.items():
        if name not in {*topology.manager_names, *groups}:
            message = f"bindings name queue manager {name}, which is not defined"
            yield _error(bound.location, "UNKNOWN_QUEUE_MANAGER", message)
            continue
        for queue, binding in bound.queues.items():
            definition = managers[name].queue(queue) if name in managers else None
            if not isinstance(definition, LocalQueue) and (name, queue) not in local:
                message = f"bindings name {queue}, which is not a local queue of {name}"
                hint = "only local queues can be bound"
                yield _error(binding.location, "UNKNOWN_QUEUE", message, hint)


def _topic_findings(topology: Topology) -> Iterator[Diagnostic]:
    bindings = topology.bindings
    seen: dict[tuple[str, str], str] = {}
    for (owner, name), queue in topology.local_queues().items():
        bound = bindings.queue_managers.get(owner)
        topic = bindings.topic(queue=name, queue_manager=owner)
        # Kafka treats names that differ only in . and _ as the same.
        key = ((bound and bound.bootstrap_servers) or "", topic.replace("_", "."))
        this = f"{queue if isinstance(queue, LocalQueue) else name}@{owner}"
        if seen.setdefault(key, this) != this:
            message = f"{this} and {seen[key]} are on one topic, {topic}"
            hint = "bind one of them to a topic of its own"
            yield _error(queue.location, "ONE_TOPIC", message, hint)

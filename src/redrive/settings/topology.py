"""The [topology] table: queue managers and the files that define them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from redrive.diagnostics import Severity, did_you_mean
from redrive.forms import KeyPath
from redrive.settings.findings import Findings, Section
from redrive.settings_file import TopologyTable
from redrive.topology.files import SUFFIXES, DefinitionFile, named_sources
from redrive.topology.files import read_topology as read_definitions
from redrive.topology.layout import SourceText, Topology
from redrive.topology.mq.objects import LocalQueue
from redrive.topology.mqe.objects import MqeLocalQueue

_EXAMPLE: Final = '["qm1.mqsc", "QM2=other.mqsc", "bindings.yaml"]'
_OF_KAFKA: Final = ("queue_managers", "dead_letter_queue")
"""Keys only for topologies without definitions."""


@dataclass(frozen=True, kw_only=True)
class TopologySettings(TopologyTable):
    """The table [topology], with its files read."""

    texts: tuple[SourceText, ...] = ()
    """The content of the definition files; empty for the kind ``kafka``."""
    has_files: bool = False
    """Whether queue managers are defined in files, even with errors."""
    definitions: Topology | None = None
    """The definitions; None for the kind ``kafka``, and if they have errors."""

    def own_dead_letter_queue(self, queue_manager: str) -> str:
        """The dead-letter queue of a queue manager; empty if it has none."""
        if self.definitions is None:
            return self.dead_letter_queue
        manager = self.definitions.mq.queue_managers.get(queue_manager)
        if manager is not None:
            return manager.attributes.dead_letter_queue
        network = self.definitions.mqe
        in_mqe = network.queue_manager(queue_manager) if network else None
        return next((queue.name for queue in in_mqe.dead_letter_queues), "") if in_mqe else ""


def local_queues(topology: Topology, queue_manager: str) -> list[str]:
    """The queues of a manager that applications read, without transmission queues."""
    manager = topology.mq.queue_managers.get(queue_manager)
    if manager is None:
        in_mqe = topology.mqe.queue_manager(queue_manager) if topology.mqe else None
        queues = in_mqe.queues if in_mqe else ()
        return [queue.name for queue in queues if isinstance(queue, MqeLocalQueue)]
    return [
        queue.name
        for queue in manager.every_queue.values()
        if isinstance(queue, LocalQueue) and not queue.is_transmission_queue
    ]


def read_topology(section: Section[TopologyTable]) -> TopologySettings:
    """The topology of a table; errors, also in its files, are reported in the section."""
    table = section.value
    if not section.has("files"):
        if table.kind in {"mq", "mqe"}:
            purpose = f"queue managers of kind {table.kind} are defined in files"
            section.missing("files", purpose, _EXAMPLE)
        return TopologySettings(**vars(table))
    if table.kind == "kafka":
        section.error(
            "kind",
            "CONFLICT",
            "queue managers of kind kafka have no definitions, but files are given",
            hint="remove kind: the files define it",
        )
    for key in _OF_KAFKA:
        if section.has(key):
            hint = "the definitions have it"
            section.without_effect(key, f"{key} has no effect with files", hint=hint)
    texts = tuple(_texts(section))
    result = read_definitions(texts)
    accepts = table.failed_commands == "accept"
    diagnostics = result.accepting_failures() if accepts else result.diagnostics
    # Notes are for redrive check.
    section.findings.extend(
        diagnostic for diagnostic in diagnostics if diagnostic.severity is not Severity.NOTE
    )
    if result.topology is not None and texts:
        _check_kind(section, result.topology)
    unused: dict[str, Any] = {"queue_managers": None, "dead_letter_queue": ""}
    return TopologySettings(
        **{**vars(table), **unused}, texts=texts, has_files=True, definitions=result.topology
    )


def _check_kind(section: Section[TopologyTable], topology: Topology) -> None:
    kind = section.value.kind
    defined = {"mq": bool(topology.mq.queue_managers), "mqe": bool(topology.mqe_managers)}
    kinds = [kind for kind, is_there in defined.items() if is_there]
    if not kinds:
        section.error("files", "NO_QUEUE_MANAGER", "the files define no queue manager")
    elif kind in defined and kinds != [kind]:
        section.error(
            "kind",
            "CONFLICT",
            f"kind is {kind}, and the files define queue managers of kind {' and '.join(kinds)}",
            hint="remove kind: the files define it",
        )


def _texts(section: Section[TopologyTable]) -> Iterator[SourceText]:
    for index, written in enumerate(section.value.files):
        path = (*section.path, "files", index)
        for source in _sources(section.findings, path, written):
            try:
                data = source.path.read_bytes()
            except OSError as problem:
                message = f"{source.path} can't be read: {problem.strerror}"
                section.findings.error(path, "UNREADABLE_FILE", message)
            else:
                yield SourceText(str(source.path), data, source.queue_manager)


def _sources(findings: Findings, path: KeyPath, written: str) -> Iterable[DefinitionFile]:
    named = named_sources(written, partial(findings.document.path_of, path))
    if not named.path.exists():
        hint = similar_file(named.path)
        findings.error(path, "MISSING_FILE", f"there is no file {named.path}", hint=hint)
        return ()
    if not named.sources:
        message = f"folder {named.path} holds no files that end in {', '.join(SUFFIXES)}"
        findings.error(path, "MISSING_FILE", message)
    return named.sources


def similar_file(path: Path) -> str:
    """A hint with a similar file that may be meant instead of ``path``."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder} either"
    return did_you_mean(path.name, [entry.name for entry in folder.iterdir() if entry.is_file()])

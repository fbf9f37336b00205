"""The [topology] table: what kind of queue managers there are, and the files that define them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from redrive.diagnostics import Severity
from redrive.settings.reader import Table, did_you_mean
from redrive.topology import mqe
from redrive.topology.files import SUFFIXES, Source, SourceText, Topology, named_sources
from redrive.topology.files import read_topology as read_definitions
from redrive.topology.mq.objects import LocalQueue, Usage

__all__ = [
    "TopologySettings",
    "local_queues",
    "read_topology",
    "similar_file",
]

_EXAMPLE: Final = '["qm1.mqsc", "QM2=other.mqsc", "bindings.yaml"]'
_OF_KAFKA: Final = ("queue_managers", "dead_letter_queue")
"""What only topologies without definitions need to be told."""


class _Kind(StrEnum):
    """Where queues come from; without the key the files tell."""

    KAFKA = "kafka"
    MQ = "mq"
    MQE = "mqe"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySettings:
    """What [topology] says."""

    queue_managers: tuple[str, ...] | None = None
    """Of kind ``kafka``, the names that count as local; None for all."""
    dead_letter_queue: str = ""
    """Of kind ``kafka``, the queue manager's own dead-letter queue (DEADQ)."""
    texts: tuple[SourceText, ...] = ()
    """What the files of definitions hold; none for the kind ``kafka``."""
    has_files: bool = False
    """Whether queue managers are defined in files, be it with errors."""
    definitions: Topology | None = None
    """The definitions; None for the kind ``kafka``, and if they have errors."""

    def own_dead_letter_queue(self, queue_manager: str) -> str:
        """The dead-letter queue of a queue manager; empty if it has none."""
        if self.definitions is None:
            return self.dead_letter_queue
        manager = self.definitions.mq.queue_managers.get(queue_manager)
        if manager is not None:
            return manager.attributes.dead_letter_queue
        queues = _queues_in_mqe(self.definitions, queue_manager)
        return next(
            (
                queue.name
                for queue in queues
                if isinstance(queue, mqe.LocalQueue) and queue.role is mqe.Role.DEAD_LETTER
            ),
            "",
        )


def local_queues(topology: Topology, queue_manager: str) -> list[str]:
    """The queues of a manager that applications read, transmission queues left out."""
    manager = topology.mq.queue_managers.get(queue_manager)
    if manager is None:
        queues = _queues_in_mqe(topology, queue_manager)
        return [queue.name for queue in queues if isinstance(queue, mqe.LocalQueue)]
    return [
        queue.name
        for queue in {**manager.queues, **manager.shared_queues}.values()
        if isinstance(queue, LocalQueue) and queue.usage is Usage.NORMAL
    ]


def _queues_in_mqe(topology: Topology, queue_manager: str) -> Sequence[mqe.Queue]:
    manager = topology.mqe.queue_manager(queue_manager) if topology.mqe else None
    return manager.queues if manager else ()


def read_topology(table: Table) -> TopologySettings:
    """The topology that a table describes, its files read and checked.

    Args:
        table: The table; what is wrong with it and with the files is reported there.
    """
    table.check_keys()
    kind = table.choice("kind", _Kind.KAFKA) if table.has("kind") else None
    if not table.has("files"):
        return _without_files(table, kind)
    if kind is _Kind.KAFKA:
        table.error(
            "kind",
            "CONFLICT",
            "queue managers of kind kafka have no definitions, and there are files of them",
            hint="remove kind: the files tell it themselves",
        )
    for key in _OF_KAFKA:
        if table.has(key):
            hint = "the definitions say it"
            table.warning(key, "WITHOUT_EFFECT", f"{key} has no effect with files", hint=hint)
    texts = tuple(_texts(table))
    definitions = _definitions(table, kind, texts)
    return TopologySettings(texts=texts, has_files=True, definitions=definitions)


def _without_files(table: Table, kind: _Kind | None) -> TopologySettings:
    if kind in {_Kind.MQ, _Kind.MQE}:
        table.missing("files", f"queue managers of kind {kind} are defined in files", _EXAMPLE)
    return TopologySettings(
        queue_managers=table.texts("queue_managers", '["QM1", "QM2"]'),
        dead_letter_queue=table.text("dead_letter_queue"),
    )


def _definitions(table: Table, kind: _Kind | None, texts: Sequence[SourceText]) -> Topology | None:
    if not table.data["files"]:
        table.error("files", "EMPTY", "files is empty", expected=_EXAMPLE)
    result = read_definitions(texts)
    # Notes tell what was passed over; redrive check shows them to whoever asks.
    told = [found for found in result.diagnostics if found.severity is not Severity.NOTE]
    table.findings.extend(told)
    if result.topology is not None and texts:
        _check_kind(table, kind, result.topology)
    return result.topology


def _check_kind(table: Table, kind: _Kind | None, topology: Topology) -> None:
    """Report files that define no queue managers, or others than the settings say."""
    defined = {
        _Kind.MQ: bool(topology.mq.queue_managers),
        _Kind.MQE: bool(topology.mqe_managers),
    }
    kinds = [str(one) for one, is_there in defined.items() if is_there]
    if not kinds:
        table.error("files", "NO_QUEUE_MANAGER", "the files define no queue manager")
    elif kind in {_Kind.MQ, _Kind.MQE} and kinds != [str(kind)]:
        table.error(
            "kind",
            "CONFLICT",
            f"kind is {kind}, and the files define queue managers of kind {' and '.join(kinds)}",
            hint="remove kind: the files tell it themselves",
        )


def _texts(table: Table) -> Iterator[SourceText]:
    """What the files hold, those of a folder by name."""
    for index, written in enumerate(table.texts("files", _EXAMPLE) or ()):
        for source in _sources(table, index, written):
            try:
                data = source.path.read_bytes()
            except OSError as problem:
                _file_error(
                    table, index, "UNREADABLE_FILE", f"{source.path} can't be read", problem
                )
            else:
                yield SourceText(str(source.path), data, source.queue_manager)


def _sources(table: Table, index: int, written: str) -> Iterable[Source]:
    """The files that one ``[QM=]FILE``, or one folder, names."""
    folder = table.findings.document.folder_of((*table.path, "files", index))
    named = named_sources(written, lambda name: folder / Path(name).expanduser())
    if not named.path.exists():
        hint = similar_file(named.path)
        _file_error(table, index, "MISSING_FILE", f"there is no file {named.path}", hint=hint)
        return ()
    if not named.sources:
        message = f"folder {named.path} holds no files that end in {', '.join(SUFFIXES)}"
        _file_error(table, index, "MISSING_FILE", message)
    return named.sources


def _file_error(
    table: Table,
    index: int,
    code: str,
    message: str,
    problem: OSError | None = None,
    *,
    hint: str = "",
) -> None:
    said = f"{message}: {problem.strerror}" if problem else message
    table.findings.error((*table.path, "files", index), code, said, hint=hint)


def similar_file(path: Path) -> str:
    """A hint with the file that may be meant instead of ``path``."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder} either"
    return did_you_mean(path.name, [entry.name for entry in folder.iterdir() if entry.is_file()])

"""The queue managers and the cluster that an operator works on.

Files of definitions are named ``[QM=]FILE``, or as a folder of files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from redrive.configuration import JobConfiguration
from redrive.diagnostics import Diagnostic, Severity, did_you_mean
from redrive.errors import ConfigurationError, EnvironmentFault, UsageError
from redrive.kafka.access import check_access
from redrive.kafka.cluster import Cluster
from redrive.kafka.connection import Connection
from redrive.kafka.deadline import ANSWER
from redrive.masking import NO_MASK, Mask
from redrive.settings import default_file, read_settings
from redrive.topology.files import SUFFIXES, DefinitionFile, named_sources, read_topology
from redrive.topology.layout import Topology

_LINE_END: Final = re.compile("\r\n|[\r\n]")


def open_cluster(connection: Connection) -> Cluster:
    """The cluster, once it has answered."""
    check_access(connection)
    return Cluster.open(connection, timeout=ANSWER)


@dataclass(frozen=True, slots=True)
class Network:
    """Queue managers and the Kafka cluster that holds their topics."""

    connection: Connection
    topology: Topology
    job: JobConfiguration | None = None
    """The job of the settings; None without a settings file."""
    mask: Mask = NO_MASK

    def required_job(self) -> JobConfiguration:
        """The job of the settings; raises ``UsageError`` without settings."""
        if self.job is None:
            raise UsageError("this needs the job's settings", hint="name it with -c FILE")
        return self.job

    def checked_manager(self, name: str) -> str:
        """The name of a queue manager; raises ``UsageError`` if it is not defined."""
        names = self.topology.manager_names
        if name not in names:
            raise unknown(
                f"the topology defines no queue manager {name or repr(name)}", name, names
            )
        return name

    def cluster(self) -> Cluster:
        """The cluster, once it has answered."""
        return open_cluster(self.connection)


def check_topics(cluster: Cluster, topics: Iterable[str]) -> None:
    """Raise ``EnvironmentFault`` if a topic of queue managers does not exist."""
    wanted = set(topics)
    missing = sorted(wanted - set(cluster.partitions(wanted)))
    if missing:
        raise EnvironmentFault(
            f"there is no topic {', '.join(missing)}",
            hint="redrive topology apply creates the topics of the queue managers",
        )


def queue_names(topology: Topology, queue_manager: str) -> list[str]:
    """The names of all queues that a manager defines, of any kind."""
    manager = topology.mq.queue_managers.get(queue_manager)
    if manager is not None:
        return [*manager.queues, *manager.shared_queues]
    in_mqe = topology.mqe.queue_manager(queue_manager)
    return [queue.name for queue in (in_mqe.queues if in_mqe else ())]


def unknown(message: str, name: str, known: Collection[str]) -> UsageError:
    """The error about an unknown name."""
    listed = f"one of {', '.join(known)}" if known else "there is none"
    return UsageError(message, hint=did_you_mean(name, known) or listed)


def read_network(config: Path | None, bootstrap_server: str, files: Sequence[str]) -> Network:
    """The network of a settings file, or of a broker and definitions without a file.

    Raises:
        UsageError: The options exclude each other, or the settings have no queue managers.
        ConfigurationError: The settings or the definitions have errors.
    """
    if not (bootstrap_server or files):
        return network_of_settings(config)
    if config is not None or not (bootstrap_server and files):
        raise UsageError(
            "either -c FILE, or --bootstrap-server and --topology together",
            hint="-c FILE excludes --bootstrap-server and --topology",
        )
    return Network(Connection(bootstrap_servers=bootstrap_server), read_definitions(files))


def network_of_settings(config: Path | None) -> Network:
    """The network of a settings file, by default redrive.toml.

    Raises:
        UsageError: The settings have no queue managers.
        ConfigurationError: The settings or the definitions have errors.
    """
    path = config or default_file()
    settings = read_settings(path)
    if settings.topology is None:
        raise UsageError(
            f"{path} has no definitions of queue managers",
            hint="name MQSC scripts, networks and bindings as files in [topology]",
        )
    return Network(settings.job.connection, settings.topology, settings.job, settings.mask)


def read_definitions(files: Sequence[str]) -> Topology:
    """Read the files of ``--topology``, and print failed commands on standard error.

    Returns:
        The topology without the commands that failed, as ``runmqsc`` leaves a queue manager.

    Raises:
        ConfigurationError: There are other errors; all are attached.
        UsageError: A folder holds no definitions.
    """
    result = read_topology([source for file in files for source in read_sources(file)])
    for finding in with_source_lines(
        diagnostic for diagnostic in result.diagnostics if diagnostic in result.failures
    ):
        sys.stderr.write(f"{finding.render()}\n")
    if result.topology is None:
        errors = [
            diagnostic
            for diagnostic in result.diagnostics
            if diagnostic.severity is Severity.ERROR and diagnostic not in result.failures
        ]
        raise ConfigurationError(
            "the topology has errors",
            hint="correct them; redrive check shows warnings too",
            diagnostics=list(with_source_lines(errors)),
        )
    return result.topology


def read_sources(text: str) -> Sequence[DefinitionFile]:
    """The files of an argument: a file, ``QM=FILE``, or the files of a folder by name.

    Raises:
        UsageError: The folder holds no definitions.
    """
    named = named_sources(text)
    if not named.sources:
        raise UsageError(
            f"folder {named.path} holds no definitions",
            hint=f"name files, or a folder with files that end in {', '.join(SUFFIXES)}",
        )
    return named.sources


def with_source_lines(findings: Iterable[Diagnostic]) -> Iterator[Diagnostic]:
    """Add the source line and a caret to findings about definitions.

    A finding about several files has only the file and the line number of its definition.

    Yields:
        Each finding, in order; without a line if its file cannot be read again.
    """
    lines_of = cache(_lines)  # read each file only once
    for finding in findings:
        if finding.source_line or not finding.line:
            yield finding
            continue
        lines = lines_of(finding.file)
        line = lines[finding.line - 1] if finding.line <= len(lines) else ""
        if finding.column or not line.strip():
            yield replace(finding, source_line=line)
        else:
            start, length = len(line) - len(line.lstrip()), len(line.strip())
            yield replace(finding, source_line=line, column=start + 1, length=length)


def _lines(file: str) -> Sequence[str]:
    try:
        return _LINE_END.split(Path(file).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError):
        return ()

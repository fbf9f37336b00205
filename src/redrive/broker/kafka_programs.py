"""Kafka's own programs that a broker needs, run in its folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from redrive.broker.folder import BrokerFolder
from redrive.broker.process import spawn
from redrive.java import ClassArchive, JarGroup, Java, find_java, jar_files

_FORMAT_TIMEOUT: Final = 240.0
"""Seconds that Kafka's tool may take to format a data folder; it takes two on an idle machine."""


def broker_archive(java: Java) -> ClassArchive:
    """The archive of the classes of the broker and of its formatting tool.

    Raises:
        EnvironmentFault: A jar is missing.
    """
    return ClassArchive(
        program="the embedded broker",
        java=java,
        jars=jar_files(JarGroup.BROKER),
        installation=Path(__file__).parent,
        training="redrive.broker.training",
    )


def format_data(folder: BrokerFolder, cluster_id: str) -> None:
    """Format a fresh data folder for a cluster; a used one is not changed.

    Raises:
        EnvironmentFault: Kafka's tool refused, or there are no jars.
    """
    if (folder.data / "meta.properties").exists():
        return
    arguments = ["format", f"--cluster-id={cluster_id}", "-c", folder.configuration.name]
    with folder.log.open("ab") as output:
        try:
            subprocess.run(
                _java_command(folder, "kafka.tools.StorageTool", *arguments),
                cwd=folder.path,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=True,
                timeout=_FORMAT_TIMEOUT,
            )
        except subprocess.SubprocessError as error:
            raise folder.failure(f"the data folder {folder.data} could not be formatted") from error


def start_kafka(folder: BrokerFolder, heap: str, java_options: Sequence[str] | None) -> int:
    """Start the broker's process; returns its id.

    The folder is configured and formatted; the heap size is in Java's form. The options are by
    default those for a fast start.
    """
    command = _java_command(
        folder, "kafka.Kafka", folder.configuration.name, heap=heap, options=java_options
    )
    return spawn(command, folder.log, folder=folder.path)


def _java_command(
    folder: BrokerFolder,
    main_class: str,
    *arguments: str,
    heap: str = "512m",
    options: Sequence[str] | None = None,
) -> list[str]:
    archive = broker_archive(find_java())
    return [
        str(archive.java.executable),
        *(archive.options() if options is None else options),
        f"-Xmx{heap}",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={folder.logging.name}",
        folder.mark,
        *("-cp", os.pathsep.join(map(str, archive.jars))),
        main_class,
        *arguments,
    ]

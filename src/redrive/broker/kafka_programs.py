"""The programs of Kafka's own that a broker needs, run in its folder."""

from __future__ import annotations

import os
import subprocess
from typing import Final

from redrive.broker.folder import BrokerFolder
from redrive.broker.process import spawn
from redrive.jars import JarGroup, jar_files
from redrive.java import find_java

_FORMAT_TIMEOUT: Final = 240.0
"""Seconds that Kafka's tool may take to make a data folder; it takes two on an idle machine."""


def format_data(folder: BrokerFolder, cluster_id: str) -> None:
    """Format a fresh data folder for a cluster; one that has been used stays as it is.

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
            raise folder.failure(f"the data folder {folder.data} could not be made") from error


def start_kafka(folder: BrokerFolder, heap: str) -> int:
    """Start the broker's process; returns its id.

    The folder is configured and formatted; the size of the heap is as Java writes it.
    """
    command = _java_command(folder, "kafka.Kafka", folder.configuration.name, heap=heap)
    return spawn(command, folder.log, folder=folder.path)


def _java_command(
    folder: BrokerFolder, main_class: str, *arguments: str, heap: str = "512m"
) -> list[str]:
    """A program of Kafka's, to be run in the folder: so no path depends on a character set."""
    class_path = os.pathsep.join(map(str, jar_files(JarGroup.BROKER)))
    return [
        str(find_java().executable),
        f"-Xmx{heap}",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={folder.logging.name}",
        folder.mark,
        *("-cp", class_path),
        main_class,
        *arguments,
    ]

"""The files of a topology as an operator names them: ``[QM=]FILE``, or a folder of files."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from redrive.diagnostics import Diagnostic, Severity
from redrive.errors import ConfigurationError, UsageError
from redrive.topology.files import SUFFIXES, DefinitionFile, named_sources, read_topology
from redrive.topology.layout import Topology

_LINE_END: Final = re.compile("\r\n|[\r\n]")


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
            yield dataclasses.replace(finding, source_line=line)
        else:
            start, length = len(line) - len(line.lstrip()), len(line.strip())
            yield dataclasses.replace(finding, source_line=line, column=start + 1, length=length)


def _lines(file: str) -> Sequence[str]:
    try:
        return _LINE_END.split(Path(file).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError):
        return ()

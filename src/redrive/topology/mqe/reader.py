"""Read MQ Everyplace networks from YAML text, reporting all findings at once.

The keys are the fields of ``redrive.topology.mqe.objects``; queues and connections say their
``kind``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from redrive.diagnostics import Diagnostic, has_errors, in_order
from redrive.forms import FileForm, KeyPath, TableForm
from redrive.topology.document import Document, read_document
from redrive.topology.mqe import objects as mqe
from redrive.topology.mqe.checks import REFERENCES, check_network


@dataclass(frozen=True, kw_only=True)
class _NetworkFile(TableForm):
    kind: Literal["mqe"]
    options: Annotated[mqe.Options, Field(title="options")] = field(default_factory=mqe.Options)
    queue_managers: tuple[Annotated[mqe.QueueManager, Field(title="a queue manager")], ...]


_REMOVED: Final = {"rule": "no class is called: queues go by their attributes and their defaults"}
FORM: Final = FileForm(_NetworkFile, "an MQ Everyplace network", removed=_REMOVED)


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of reading a network."""

    network: mqe.Network | None
    """The network; None if anything is an error."""
    diagnostics: tuple[Diagnostic, ...]


def read_network(text: str | bytes, name: str = "<input>") -> ReadResult:
    """Read a network from YAML text, of which ``name`` is the name in findings.

    Never raises on a bad text: every error in its form and its meaning is a finding. There is no
    network if there is an error.
    """
    if isinstance(text, bytes):
        # Bytes that are not UTF-8 become a character that YAML does not allow, which is reported.
        text = text.decode("utf-8", "surrogateescape")
    document = read_document(text, name)
    findings = list(document.diagnostics)
    if document.data is None and findings:
        return ReadResult(None, tuple(findings))
    flaws = FORM.flaws(document.data)
    findings += map(document.flaw, flaws)
    network = network_from(document, [flaw.path for flaw in flaws])
    findings += [
        finding
        for finding in check_network(network)
        if not (has_errors(findings) and finding.code in REFERENCES)
    ]
    return ReadResult(None if has_errors(findings) else network, in_order(findings))


def network_from(document: Document, flawed: Collection[KeyPath] = ()) -> mqe.Network:
    """The network of a text without what has flaws, at these paths.

    A definition with a flaw is left out, but not its manager if that has a name.
    """
    data = _sound(document, document.data, (), {_left_out(path) for path in flawed})
    if not isinstance(data, dict):
        return mqe.Network()
    file = FORM.value({"queue_managers": [], **data, "kind": "mqe"})
    return mqe.Network(queue_managers=file.queue_managers, options=file.options)


def _left_out(path: KeyPath) -> KeyPath:
    """The path of what to leave out because of a flaw."""
    if path[:1] == ("options",):
        return path[:1]
    # Definitions are elements of lists of a manager, which is one of the list of all.
    return path[:2] if path[2:] == ("name",) else path[:4]


def _sound(document: Document, data: Any, path: KeyPath, left_out: Collection[KeyPath]) -> Any:  # noqa: ANN401 - YAML
    """A copy without what is left out, in which each definition has its location."""
    match data:
        case dict():
            copy = {
                key: _sound(document, value, (*path, key), left_out)
                for key, value in data.items()
                if (*path, key) not in left_out
            }
            location = document.location((*path, "name"))
            return copy | {"location": location} if "name" in copy else copy
        case list():
            return [
                _sound(document, value, (*path, index), left_out)
                for index, value in enumerate(data)
                if (*path, index) not in left_out
            ]
    return data

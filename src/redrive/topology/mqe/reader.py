"""Read MQ Everyplace networks from YAML text, reporting all findings at once.

The form is published as a JSON Schema, ``schema.json`` beside this module. Its keys are the names
of the fields of ``redrive.topology.mqe.objects``; queues and connections say their ``kind``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from redrive.diagnostics import Diagnostic, has_errors, in_order
from redrive.forms import KeyPath
from redrive.schemas import Schema
from redrive.topology.document import Document, read_document
from redrive.topology.mqe import objects as mqe
from redrive.topology.mqe.checks import REFERENCES, check_network

QUEUE_KINDS: Mapping[str, type[mqe.Queue]] = {
    "local": mqe.LocalQueue,
    "remote": mqe.RemoteQueue,
    "store_and_forward": mqe.StoreAndForwardQueue,
    "home_server": mqe.HomeServerQueue,
    "bridge": mqe.BridgeQueue,
}
"""Kinds of queues as the text writes them."""

CONNECTION_KINDS: Mapping[str, type[mqe.Connection]] = {
    "direct": mqe.DirectConnection,
    "via": mqe.ViaConnection,
    "alias": mqe.AliasConnection,
    "null": mqe.NullConnection,
    "mq": mqe.MqConnection,
}
"""Kinds of connections as the text writes them."""

_LISTS: Mapping[str, Mapping[str, type[mqe.Definition]]] = {
    "queues": QUEUE_KINDS,
    "connections": CONNECTION_KINDS,
    "aliases": {"": mqe.QueueManagerAlias},
    "listeners": {"": mqe.Listener},
}
"""The lists of a queue manager, each with the kinds of its items."""

_SCHEMA = Schema.load("redrive.topology.mqe", "schema.json")
_RULE_REMOVED: Final = "rule was removed; 0.1.0 was the last version with it"
_WITHOUT_RULES: Final = "no class is called: queues go by their attributes and their defaults"

_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "aliases": tuple,
    "code_base": mqe.CodeBase,
    "delivery": mqe.Delivery,
    "discovery": mqe.Discovery,
    "mode": mqe.Mode,
    "role": mqe.Role,
    "security": lambda data: mqe.Security(**data),
    "targets": tuple,
}


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
    # Names are checked with the network's meaning, which gives better errors.
    flaws = [
        replace(flaw, message=_RULE_REMOVED, expected="", hint=_WITHOUT_RULES)
        if flaw.code == "UNKNOWN_KEY" and flaw.path[-1] == "rule"
        else flaw
        for flaw in _SCHEMA.flaws(document.data)
        if flaw.keyword != "pattern"
    ]
    findings += map(document.flaw, flaws)
    flawed = {flaw.path[:length] for flaw in flaws for length in range(len(flaw.path) + 1)}
    network = network_from(document, frozenset(flawed))
    findings += [
        finding
        for finding in check_network(network)
        if not (has_errors(findings) and finding.code in REFERENCES)
    ]
    return ReadResult(None if has_errors(findings) else network, in_order(findings))


# The network of the text


def network_from(document: Document, flawed: frozenset[KeyPath]) -> mqe.Network:
    """Build the valid definitions; one with a flaw is left out, but not its manager."""
    data: Any = document.data
    build = _Construction(document, flawed)
    if not isinstance(data, dict):
        return mqe.Network()
    managers = tuple(
        build.queue_manager(item, path)
        for item, path in build.items(data, (), "queue_managers", containers=True)
    )
    options = data.get("options", {})
    if ("options",) in flawed or not isinstance(options, dict):
        options = {}
    return mqe.Network(queue_managers=managers, options=mqe.Options(**_convert_fields(options)))


@dataclass(frozen=True, slots=True)
class _Construction:
    """Builds definitions from data."""

    document: Document
    flawed: frozenset[KeyPath]

    def items(
        self, data: Mapping[str, Any], path: KeyPath, key: str, *, containers: bool = False
    ) -> Iterator[tuple[Any, KeyPath]]:
        """The valid items of a list; for a list of managers all that have a name."""
        listed = data.get(key)
        for index, item in enumerate(listed if isinstance(listed, list) else ()):
            place = (*path, key, index)
            named = isinstance(item, dict) and isinstance(item.get("name"), str)
            if named if containers else place not in self.flawed:
                yield item, place

    def queue_manager(self, data: Mapping[str, Any], path: KeyPath) -> mqe.QueueManager:
        own = {
            key: value
            for key, value in data.items()
            if key in {"name", "description", "code_base", "local_queuing"}
            and (*path, key) not in self.flawed
        }
        lists: dict[str, Any] = {
            key: tuple(
                self._definition(kinds, item, place) for item, place in self.items(data, path, key)
            )
            for key, kinds in _LISTS.items()
        }
        location = self.document.location((*path, "name"))
        return mqe.QueueManager(**_convert_fields(own), **lists, location=location)

    def _definition(
        self, kinds: Mapping[str, type[mqe.Definition]], data: Mapping[str, Any], path: KeyPath
    ) -> mqe.Definition:
        attributes = {key: value for key, value in data.items() if key != "kind"}
        location = self.document.location((*path, "name"))
        return kinds[data.get("kind", "")](**_convert_fields(attributes), location=location)


def _convert_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _CONVERSIONS[key](value) if key in _CONVERSIONS else value
        for key, value in data.items()
    }

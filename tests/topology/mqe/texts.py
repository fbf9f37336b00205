"""Networks as YAML texts: from short ones, errors included, and back."""

from __future__ import annotations

import textwrap
from dataclasses import fields, is_dataclass
from typing import Any

import yaml

from redrive.topology.document import read_document
from redrive.topology.mqe.objects import Network
from redrive.topology.mqe.reader import CONNECTION_KINDS, QUEUE_KINDS, network_from

KINDS: dict[type, str] = {
    cls: kind for kinds in (QUEUE_KINDS, CONNECTION_KINDS) for kind, cls in kinds.items()
}


def network_of(managers: str) -> Network:
    """The network of a YAML list of managers, whatever its check says."""
    text = "kind: mqe\nqueue_managers:\n" + textwrap.dedent(managers)
    document = read_document(text, "test")
    assert document.diagnostics == []
    return network_from(document, frozenset())


def network_text(network: Network) -> str:
    """The YAML text of a network; what has its default is left out."""
    text: str = yaml.safe_dump({"kind": "mqe", "queue_managers": [], **_plain(network)})
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if not is_dataclass(value):
        return getattr(value, "value", value)
    kind = KINDS.get(type(value))
    return ({"kind": kind} if kind else {}) | {
        one.name: _plain(item)
        for one in fields(value)
        if one.name != "location" and (item := getattr(value, one.name)) != one.default
    }

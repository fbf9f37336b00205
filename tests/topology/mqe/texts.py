"""Networks as YAML texts: from short ones, errors included, and back."""

from __future__ import annotations

import textwrap
from dataclasses import fields, is_dataclass
from typing import Any

import yaml

from redrive.topology.document import read_document
from redrive.topology.mqe.objects import MqeNetwork
from redrive.topology.mqe.reader import network_from


def network_of(managers: str) -> MqeNetwork:
    """The network of a YAML list of managers, whatever its check says."""
    text = "kind: mqe\nqueue_managers:\n" + textwrap.dedent(managers)
    document = read_document(text, "test")
    assert document.diagnostics == []
    return network_from(document)


def network_text(network: MqeNetwork) -> str:
    """The YAML text of a network; what has its default is left out."""
    text: str = yaml.safe_dump({"kind": "mqe", "queue_managers": [], **_plain(network)})
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(member) for member in value]
    if not is_dataclass(value):
        return getattr(value, "value", value)
    return {
        key.name: _plain(item)
        for key in fields(value)
        if (item := getattr(value, key.name)) != key.default or key.name == "kind"
        if key.name != "location"
    }

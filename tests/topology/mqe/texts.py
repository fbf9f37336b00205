"""Networks from short YAML texts, errors included, for tests of the check."""

from __future__ import annotations

import textwrap

from redrive.topology.document import read_document
from redrive.topology.mqe import Network
from redrive.topology.mqe.reader import network_from


def network_of(managers: str) -> Network:
    """The network of a YAML list of managers, whatever its check says."""
    text = "kind: mqe\nqueue_managers:\n" + textwrap.dedent(managers)
    document = read_document(text, "test")
    assert document.diagnostics == []
    return network_from(document, frozenset())

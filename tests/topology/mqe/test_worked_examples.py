"""The worked examples E1 to E19 of the resolution specification A.7, and each point of its text.

``worked_examples.txt`` and ``procedure.txt`` have them in the notation of docs/resolution-mqe.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.topology.mqe.notation import read_topology
from tests.topology.mqe.vector_put import told_and_taken

from redrive.topology.mqe.resolver import MqeResolver
from redrive.topology.names import Names

EXAMPLES = dict(
    example.split("\n", 1)
    for name in ("worked_examples.txt", "procedure.txt")
    for example in Path(__file__)
    .with_name(name)
    .read_text("utf-8")
    .removeprefix("# ")
    .split("\n# ")
)


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_worked_example(example: str) -> None:
    """The put goes the way that the example describes, step by step."""
    expected, taken = told_and_taken(example)
    assert taken == expected


@pytest.mark.parametrize("server", ["SERVER23QM", "SERVER24QM"])
def test_e15_traffic_follows_an_alias_that_is_moved_to_another_connection(server: str) -> None:
    """E15: the same put goes to the server whose connection carries the alias."""
    topology = (
        *(
            f"MOBILE0058QM: CONN({name}) " + ("ALIAS(SERVICEXQM)" if name == server else "")
            for name in ("SERVER23QM", "SERVER24QM")
        ),
        "SERVER23QM: LQ(SERVICEXQ)",
        "SERVER24QM: LQ(SERVICEXQ)",
    )
    put = Names(queue="SERVICEXQ", queue_manager="SERVICEXQM")
    resolution = MqeResolver(read_topology(topology).network).resolve("MOBILE0058QM", put)
    assert [str(step) for step in resolution.steps] == [
        f"MOBILE0058QM qm-alias SERVICEXQM->{server}",
        f"MOBILE0058QM discovery creates RQD SERVICEXQ@{server} sync",
        f"MOBILE0058QM conn {server} direct",
        f"{server} exact LQ SERVICEXQ",
    ]
    assert str(resolution.end) == f"SERVICEXQ@{server}"
    assert resolution.discovered == (("MOBILE0058QM", "SERVICEXQ", server),)

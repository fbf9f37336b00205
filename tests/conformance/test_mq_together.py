"""Our vectors about several messages, or members of a cluster, together.

Their form stands at the head of ``own/mq_together.yaml`` and ``own/mq_clusters.yaml``.
"""

from __future__ import annotations

import pytest
from tests.conformance.decided_network import DecidedNetwork
from tests.conformance.test_mq_reports import check, place, put_of
from tests.conformance.traffic_networks import numbered
from tests.conformance.vectors import OWN, Vector, load

from redrive.topology.mq.checks import check_clusters


@pytest.mark.parametrize("vector", load(OWN, "mq_together"), ids=lambda vector: vector["id"])
def test_together(vector: Vector) -> None:
    """The messages arrive in the vector's order, and on as many instances as it says."""
    ones = [
        numbered("mq_routes", {**vector, "put": {**vector["put"], **message}}, 0)
        for message in vector["messages"]
    ]
    network = DecidedNetwork(ones[0].topology)
    network.run_together([put_of(case) for case in ones])
    expect = ones[0].vector["expect"]
    assert sum(map(len, network.lying.values())) == len(ones)
    if "order" in expect:
        bodies = [
            (record.value or b"").decode() for record in network.lying[place(expect["final"])]
        ]
        assert bodies == expect["order"]
    assert len(network.lying) == expect.get("ways", 1)


@pytest.mark.parametrize("vector", load(OWN, "mq_clusters"), ids=lambda vector: vector["id"])
def test_clusters(vector: Vector) -> None:
    """What members could not learn in IBM MQ is noted; the message goes its way all the same."""
    case, _ = check(vector)
    notes = list(check_clusters(case.topology.mq))
    assert [note.code for note in notes] == case.vector["expect"]["notes"]
    assert {note.severity for note in notes} <= {"note"}

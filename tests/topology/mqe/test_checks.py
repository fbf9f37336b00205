"""What the check of a network finds: one small network per finding."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.topology.mqe.notation import read_topology
from tests.topology.mqe.texts import network_of

from redrive.topology.mqe.objects import MqeQueueManager
from redrive.topology.mqe.reader import check_network

_, *FINDINGS = Path(__file__).with_name("findings.txt").read_text("utf-8").strip().split("\n\n")


def codes(text: str) -> list[str]:
    """Severity and code of every finding, in order."""
    return [f"{finding.severity} {finding.code}" for finding in check_network(network_of(text))]


def test_a_sound_network_has_no_findings() -> None:
    assert (
        codes("""
        - name: QM1
          queues:
          - {kind: local, name: A, aliases: [B]}
          - {kind: remote, name: Q, queue_manager: QM2, mode: async, maximum_message_size: 10}
          - {kind: store_and_forward, name: S, queue_manager: nowhere, targets: [QM3]}
          connections: [{kind: direct, name: QM2, port: 1}, {kind: null, name: Service}]
        - name: QM2
          queues: [{kind: local, name: Q, maximum_message_size: 10}]
          connections: [{kind: direct, name: QM1}]
          aliases: [{name: Nick, of: QM2}]
          listeners: [{name: L, port: 1}]
        - name: QM3
          queues: [{kind: home_server, name: H, queue_manager: QM1}]
          connections: [{kind: direct, name: QM1}]
    """)
        == []
    )


@pytest.mark.parametrize("example", FINDINGS)
def test_each_contradiction_or_oddity_gives_exactly_its_finding(example: str) -> None:
    expected, _, managers = example.partition("\n")
    assert ", ".join(codes(managers)) == expected


def test_names_are_checked_without_any_text() -> None:
    network = read_topology(["QM: LQ(Q)"]).network
    assert not [*check_network(network)]
    bad = network.queue_managers[0].queues[0]
    manager = MqeQueueManager(name="", queues=(bad,))
    assert [
        finding.code for finding in check_network(type(network)(queue_managers=(manager,)))
    ] == ["BAD_NAME"]


def test_every_finding_says_what_to_do() -> None:
    findings = check_network(
        network_of("- {name: QM, aliases: [{name: A, of: A}, {name: B, of: Gone}]}")
    )
    assert [(finding.subject, bool(finding.hint)) for finding in findings] == [
        ("A", True),
        ("B", True),
    ]

"""What the check of a network finds: one small network per finding."""

from __future__ import annotations

import pytest
from tests.topology.mqe.notation import read_topology
from tests.topology.mqe.texts import network_of

from redrive.topology.mqe import QueueManager, check_network


def codes(text: str) -> list[str]:
    """Severity and code of every finding, in order."""
    return [f"{one.severity} {one.code}" for one in check_network(network_of(text))]


def test_a_sound_network_has_no_findings() -> None:
    """Managers that reach each other, with definitions that agree, give nothing to report."""
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "- {name: QM, connections: [{kind: direct, name: QM}]}\n- {name: QM}",
            ["error DUPLICATE_QUEUE_MANAGER"],
        ),
        ("- {name: 'Q:M'}", ["error BAD_NAME"]),
        ("- {name: 'Q\u00e4M'}", ["error BAD_NAME"]),
        ("- {name: QM, queues: [{kind: local, name: A, aliases: ['B=']}]}", ["error BAD_NAME"]),
        (
            f"- {{name: QM, queues: [{{kind: bridge, name: {'A' * 49}, queue_manager: MQ}}]}}",
            ["warning LONG_NAME"],
        ),
        (
            "- {name: QM, queues: [{kind: local, name: A}, {kind: local, name: A, expiry: 1}]}",
            ["error DUPLICATE_QUEUE"],
        ),
        (
            (
                "- {name: QM, queues: [{kind: local, name: A},"
                " {kind: remote, name: A, queue_manager: QM}]}"
            ),
            ["error DUPLICATE_QUEUE", "warning NO_CONNECTION"],
        ),
        (
            (
                "- {name: QM, queues: [{kind: local, name: A, role: dead_letter},"
                " {kind: local, name: B, role: dead_letter}]}"
            ),
            ["error TWO_DEAD_LETTER_QUEUES"],
        ),
        (
            "- {name: QM, local_queuing: false, queues: [{kind: local, name: A}]}",
            ["error NO_LOCAL_QUEUING"],
        ),
        (
            (
                "- {name: QM, queues: [{kind: local, name: A, aliases: [C]},"
                " {kind: local, name: B, aliases: [C]}]}"
            ),
            ["error DUPLICATE_QUEUE_ALIAS"],
        ),
        (
            "- {name: QM, queues: [{kind: local, name: A, aliases: [B, B]}]}",
            ["warning ALIAS_REPEATED"],
        ),
        (
            "- {name: QM, queues: [{kind: local, name: A, aliases: [B]}, {kind: local, name: B}]}",
            ["warning ALIAS_HIDDEN"],
        ),
        (
            "- {name: QM, aliases: [{name: A, of: QM}, {name: A, of: QM}]}",
            ["error DUPLICATE_ALIAS"],
        ),
        (
            "- {name: QM, aliases: [{name: A, of: QM}], connections: [{kind: null, name: A}]}",
            ["error DUPLICATE_ALIAS"],
        ),
        ("- {name: QM, aliases: [{name: A, of: A}]}", ["error ALIAS_LOOP"]),
        (
            "- {name: QM, aliases: [{name: A, of: B}, {name: B, of: A}, {name: C, of: A}]}",
            ["error ALIAS_LOOP", "error ALIAS_LOOP"],
        ),
        (
            "- {name: QM, aliases: [{name: QM, of: A}], connections: [{kind: null, name: A}]}",
            ["error ALIAS_LOOP", "error ALIAS_LOOP"],
        ),
        ("- {name: QM, aliases: [{name: A, of: Gone}]}", ["warning ALIAS_TARGET_UNKNOWN"]),
        (
            "- {name: QM, code_base: c, aliases: [{name: A, of: B}, {name: B, of: QM}]}",
            ["warning ALIAS_CHAIN"],
        ),
        (
            (
                "- {name: QM, code_base: c, queues:"
                " [{kind: store_and_forward, name: S, queue_manager: x, targets: [y]}]}"
            ),
            ["warning NOT_IN_CODE_BASE"],
        ),
        (
            "- {name: QM, code_base: c, queues: [{kind: bridge, name: B, queue_manager: MQ}]}",
            ["warning NOT_IN_CODE_BASE"],
        ),
        ("- {name: QM, connections: [{kind: null, name: QM}]}", ["warning NULL_CONNECTION_UNUSED"]),
        (
            (
                "- {name: QM, queues: [{kind: store_and_forward, name: S, queue_manager: x,"
                " targets: [y]}, {kind: store_and_forward, name: T, queue_manager: x,"
                " targets: [z, y]}]}"
            ),
            ["error TARGET_LISTED_TWICE"],
        ),
        (
            (
                "- {name: QM, queues: [{kind: store_and_forward, name: S, queue_manager: x,"
                " targets: [QM]}]}"
            ),
            ["warning STORES_FOR_ITSELF"],
        ),
        (
            (
                "- {name: QM, aliases: [{name: A, of: QM}], queues: [{kind: store_and_forward,"
                " name: S, queue_manager: x, targets: [A]}]}"
            ),
            ["warning ENTRY_IS_ALIAS"],
        ),
        (
            (
                "- {name: QM, queues: [{kind: store_and_forward, name: S, queue_manager: x,"
                " targets: [y], delivery: push}]}"
            ),
            ["error PUSH_HAS_NO_CONNECTION"],
        ),
        (
            "- {name: Q, connections: [{kind: via, name: A, via: B},{kind: via, name: B, via: A}]}",
            ["error VIA_LOOP", "error VIA_LOOP"],
        ),
        ("- {name: QM, connections: [{kind: via, name: A, via: B}]}", ["warning VIA_MISSING"]),
        (
            "- {name: QM, connections: [{kind: via, name: A, via: B}, {kind: direct, name: B}]}",
            ["warning UNKNOWN_QUEUE_MANAGER"],
        ),
        (
            "- {name: QM, queues: [{kind: remote, name: A, queue_manager: B}]}",
            ["warning NO_CONNECTION"],
        ),
        (
            "- {name: QM, connections: [{kind: mq, name: A}, {kind: mq, name: A, port: 1}]}",
            ["error DUPLICATE_CONNECTION"],
        ),
        (
            "- {name: QM, listeners: [{name: L}, {name: L}]}",
            ["error DUPLICATE_LISTENER"],
        ),
    ],
)
def test_one_manager(text: str, expected: list[str]) -> None:
    """Each contradiction or oddity on one manager gives exactly its finding."""
    assert codes(text) == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (
            "connections: [{kind: direct, name: QM2}], aliases: [{name: QM2, of: QM1}]",
            "connections: [{kind: direct, name: QM1}]",
            "warning ALIAS_HIDES_CONNECTION",
        ),
        (
            "connections: [{kind: direct, name: QM2, port: 2}]",
            "connections: [{kind: direct, name: QM1}], listeners: [{name: L, port: 1}]",
            "warning NO_LISTENER",
        ),
        (
            (
                "connections: [{kind: direct, name: QM2}], queues: [{kind: store_and_forward,"
                " name: S, queue_manager: QM2, targets: [QM2], delivery: pull}]"
            ),
            "connections: [{kind: direct, name: QM1}]",
            "error PULL_HAS_CONNECTION",
        ),
        (
            (
                "connections: [{kind: direct, name: QM2}],"
                " queues: [{kind: home_server, name: H, queue_manager: QM2}]"
            ),
            "connections: [{kind: direct, name: QM1}]",
            "warning NOT_STORED_FOR",
        ),
        (
            (
                "connections: [{kind: direct, name: QM2}],"
                " queues: [{kind: remote, name: Q, queue_manager: QM2, mode: async}]"
            ),
            (
                "connections: [{kind: direct, name: QM1}],"
                " queues: [{kind: local, name: Q, maximum_message_size: 5}]"
            ),
            "warning ATTRIBUTES_DIFFER",
        ),
        (
            (
                "connections: [{kind: direct, name: QM2}], queues: [{kind: remote, name: Q,"
                " queue_manager: QM2, mode: async, security: {cryptor: X}}]"
            ),
            "connections: [{kind: direct, name: QM1}], queues: [{kind: local, name: Q}]",
            "warning ATTRIBUTES_DIFFER",
        ),
        ("connections: [{kind: direct, name: QM2}]", "queues: []", "note UNREACHABLE"),
    ],
)
def test_two_managers(first: str, second: str, expected: str) -> None:
    """Each contradiction between two managers gives exactly its finding."""
    assert codes(f"- {{name: QM1, {first}}}\n- {{name: QM2, {second}}}") == [expected]


def test_names_are_checked_without_any_text() -> None:
    """A network that a program built is checked like one that was read."""
    network = read_topology(["QM: LQ(Q)"]).network
    assert check_network(network) == ()
    bad = network.queue_managers[0].queues[0]
    manager = QueueManager(name="", queues=(bad,))
    assert [one.code for one in check_network(type(network)(queue_managers=(manager,)))] == [
        "BAD_NAME"
    ]


def test_every_finding_says_what_to_do() -> None:
    """Each finding has a hint and names its object."""
    findings = check_network(
        network_of("- {name: QM, aliases: [{name: A, of: A}, {name: B, of: Gone}]}")
    )
    assert [(one.subject, bool(one.hint)) for one in findings] == [("A", True), ("B", True)]

"""``redrive topology`` as a person or a program uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from tests.commands import redrive

QM1 = """\
ALTER QMGR DEADQ(DLQ) DEFXMITQ(QM2)
DEF QL(DLQ)
DEF QL(SMALL) MAXMSGL(10) MAXDEPTH(7) PUT(DISABLED)
DEF QA(SALARY) TARGET(PAYROLL)
DEF QR(PAYROLL) RNAME(PAY) RQMNAME(QM2)
DEF QL(QM2) USAGE(XMITQ)
DEF CHL(QM1.QM2) CHLTYPE(SDR) XMITQ(QM2) CONNAME('b(1)')
DEF CHL(TO.QM1) CHLTYPE(CLUSRCVR) CLUSTER(C) CONNAME('a(1)')
DEF CHL(TO.QM2) CHLTYPE(CLUSSDR) CLUSTER(C) CONNAME('b(1)')
"""
QM2 = """\
DEF QL(PAY) CLUSTER(C)
DEF CHL(QM1.QM2) CHLTYPE(RCVR)
DEF CHL(TO.QM2) CHLTYPE(CLUSRCVR) CLUSTER(C) CONNAME('b(1)')
"""
SHOPS = """\
kind: mqe
queue_managers:
  - name: SHOP
    queues:
      - {kind: remote, name: SALES, queue_manager: OFFICE, mode: async}
      - {kind: home_server, name: H, queue_manager: HUB}
    connections:
      - {kind: direct, name: HUB, address: hub, port: 8082}
      - {kind: via, name: OFFICE, via: HUB}
  - name: HUB
    queues:
      - {kind: store_and_forward, name: S, queue_manager: NONE, targets: [SHOP]}
    connections:
      - {kind: direct, name: OFFICE}
  - name: OFFICE
    queues:
      - {kind: local, name: SALES, maximum_messages: 5}
      - {kind: local, name: DEAD, role: dead_letter}
"""


@pytest.fixture(autouse=True)
def folder(folder: Path) -> Path:
    (folder / "QM1.mqsc").write_text(QM1)
    (folder / "QM2.mqsc").write_text(QM2)
    (folder / "shops.yaml").write_text(SHOPS)
    (folder / "bind.yaml").write_text(
        "kind: bindings\nqueue_managers:\n  QM2:\n    queues:\n      PAY: {topic: payroll}\n"
    )
    return folder


def topology(command: str, *words: str, code: int | None = None) -> Result:
    return redrive("topology", command, "--topology", ".", *words, code=code)


def rows(*arguments: str) -> list[str]:
    return [" ".join(line.split()) for line in topology("show", *arguments).output.splitlines()]


def test_queue_managers_are_shown_with_what_they_have() -> None:
    shown = rows()
    assert shown[0] == "5 queue managers, 11 queues, 8 channels and connections"
    assert "QM1 mq DLQ QM2 C 2 QLOCAL, 1 QALIAS, 1 QREMOTE, 1 QLOCAL XMITQ" in shown
    assert "OFFICE mqe DEAD 2 local" in shown


@pytest.mark.parametrize(
    "row",
    [
        "QM1 SMALL QLOCAL 7 10 disabled QM1--SMALL",
        "QM1 SALARY QALIAS PAYROLL@QM1",
        "QM1 PAYROLL QREMOTE PAY@QM2",
        "QM2 PAY QLOCAL 5000 4194304 payroll",
        "OFFICE SALES local 5 OFFICE--SALES",
        "SHOP SALES remote async SALES@OFFICE SHOP--SALES--redrive-to-OFFICE",
        "HUB S store-and-forward *@SHOP HUB--S--redrive-to-SHOP",
    ],
)
def test_queues_are_shown_with_kind_limits_and_topic(row: str) -> None:
    assert row in rows()


@pytest.mark.parametrize(
    "row",
    [
        "QM1 QM1.QM2 SDR QM2 QM2 b(1)",
        "QM1 TO.QM2 CLUSSDR QM2 b(1) C",
        "QM2 QM1.QM2 RCVR",
        "SHOP HUB direct HUB hub(8082)",
        "SHOP OFFICE via HUB HUB",
        "C QM1, QM2 PAY",
    ],
)
def test_channels_and_clusters_are_shown_with_where_they_lead(row: str) -> None:
    assert row in rows()


def test_one_queue_manager_can_be_shown() -> None:
    shown = rows("--queue-manager", "QM2")
    assert shown[0] == "1 queue manager, 1 queue, 2 channels and connections"
    assert not any("SALARY" in row for row in shown)
    assert rows("--queue-manager", "QM*", "--queue-manager", "HUB")[0].startswith("3 queue")
    result = topology("show", "--queue-manager", "NONE", code=2)
    assert "the topology has no queue manager NONE" in result.output
    assert "QM1, QM2, SHOP" in result.output


def test_json_holds_everything() -> None:
    """The values, for programs."""
    document = json.loads(topology("show", "--json").output)
    first = document["queue_managers"][0]
    assert (first["name"], first["dead_letter_queue"]) == ("QM1", "DLQ")
    payroll = next(queue for queue in first["queues"] if queue["name"] == "PAYROLL")
    assert payroll["targets"] == [{"queue": "PAY", "queue_manager": "QM2"}]
    assert payroll["location"] == "QM1.mqsc:5"
    assert document["clusters"] == [
        {"name": "C", "queue_managers": ["QM1", "QM2"], "queues": ["PAY"]}
    ]


def test_without_its_broker_the_topology_is_shown_with_a_note() -> None:
    result = topology("show", "--bootstrap-server", "localhost:1", code=0)
    assert "note: messages were not counted" in result.stderr
    assert " MESSAGES " not in result.stdout.replace("MAX MESSAGES", "")


def test_of_a_large_topology_numbers_are_told(folder: Path) -> None:
    for number in range(60):
        (folder / f"M{number}.mqsc").write_text("DEF QL(A)\nDEF QA(B) TARGET(A)\n")
    shown = rows()
    assert shown[0].startswith("65 queue managers, 131 queues")
    assert "queue managers, mq 62" in shown
    assert "QALIAS 61" in shown
    assert len(shown) < 40
    assert "--queue-manager" in shown[-1]
    assert "M7 B QALIAS A@M7" in rows("--queue-manager", "M7")


def test_a_graph_has_every_manager_queue_and_channel(folder: Path) -> None:
    """In DOT, on standard output or in a file."""
    graph = topology("draw").output
    for words in (
        *("<b>QM1</b>", "<b>QM2</b>", "<b>SHOP</b>", "<b>HUB</b>", "<b>OFFICE</b>"),
        *("QM1.QM2 · SDR → QM2", "QM1.QM2 · RCVR", "TO.QM1 · CLUSRCVR", "OFFICE · via → HUB"),
        *("SALARY · QALIAS → PAYROLL", "PAYROLL · QREMOTE → PAY@QM2", "label=<cluster C>"),
    ):
        assert words in graph
    assert topology("draw", "--output", "network.dot").output == ""
    assert (folder / "network.dot").read_text(encoding="utf-8") == graph


def test_a_part_of_a_topology_can_be_drawn() -> None:
    graph = topology("draw", "--queue-manager", "QM1", "--queues", "2").output
    assert "... and 3 more queues" in graph
    assert "<b>QM2</b>" not in graph
    assert ":head" not in graph


def test_a_file_that_cannot_be_written_is_a_usage_error() -> None:
    result = topology("draw", "--output", "none/network.dot", code=2)
    assert "none/network.dot cannot be written: No such file or directory" in result.output


@pytest.mark.parametrize("command", ["show", "draw"])
def test_commands_that_failed_are_all_told(command: str, folder: Path) -> None:
    (folder / "QM1.mqsc").write_text("DEF QL(A) MAXDEPTH(x)\nDEFINE\n")
    result = topology(command, code=0)
    assert "QM1" in result.stdout
    assert "QM1.mqsc:1:20: error:" in result.stderr
    assert "QM1.mqsc:2:" in result.stderr

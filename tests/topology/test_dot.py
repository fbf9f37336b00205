"""Topologies as graphs in DOT: whole, well-formed, and the same for the same definitions."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from redrive.topology.overview import (
    ClusterOverview,
    ConnectionOverview,
    DefinitionTarget,
    Overview,
    QueueManagerOverview,
    QueueOverview,
    dot,
)

NAMES = st.text(max_size=90) | st.sampled_from(["<QM>", "]]>", "&amp;", '"', "\0", "A\ud800", ""])
MANAGERS = st.sampled_from(("QM1", "QM2", "<QM3>", ""))
CLUSTERS = ("C1", "<C2>")
targets = st.builds(DefinitionTarget, queue=st.sampled_from(("A", "B", "")), queue_manager=MANAGERS)
queues = st.builds(
    QueueOverview,
    name=st.sampled_from(("A", "B", "C")) | NAMES,
    kind=st.sampled_from(("QLOCAL", "QALIAS", "remote sync")),
    targets=st.lists(targets, max_size=2).map(tuple),
    put_enabled=st.booleans(),
)
connections = st.builds(ConnectionOverview, name=NAMES, kind=st.just("SDR"), queue_manager=MANAGERS)
managers = st.builds(
    QueueManagerOverview,
    name=MANAGERS | NAMES,
    kind=st.just("mq"),
    dead_letter_queue=NAMES,
    clusters=st.sets(st.sampled_from(CLUSTERS)).map(tuple),
    queues=st.lists(queues, max_size=5).map(tuple),
    connections=st.lists(connections, max_size=3).map(tuple),
)
overviews = st.builds(
    Overview,
    queue_managers=st.lists(managers, max_size=6, unique_by=lambda manager: manager.name).map(
        tuple
    ),
    clusters=st.just(
        tuple(ClusterOverview(name=name, queue_managers=(), queues=()) for name in CLUSTERS)
    ),
)


@given(overviews, st.integers(min_value=0, max_value=4))
def test_a_graph_is_well_formed_whatever_names_there_are(overview: Overview, most: int) -> None:
    """Labels are XML, edges lead from one port that exists to another, every name is there."""
    text = dot(overview, queues=most)
    assert text == dot(overview, queues=most)
    ports = set()
    words = ""
    for node, label in re.findall(r"^  (m\d+) \[label=<(.*?)>\]$", text, re.MULTILINE | re.DOTALL):
        root = ET.fromstring(label)  # noqa: S314 - our own text
        ports |= {f"{node}:{cell.attrib['port']}" for cell in root.iter("td")} | {node}
        words += " ".join(root.itertext())
    assert len([port for port in ports if ":" not in port]) == len(overview.queue_managers)
    edges = re.findall(r"^  (\S+) -> (\S+)", text, re.MULTILINE)
    assert {end for edge in edges for end in edge if not re.fullmatch(r"c\d", end)} <= ports
    for manager in overview.queue_managers:
        shown = [manager.name, *(queue.name for queue in manager.queues[:most])]
        for name in (*shown, *(connection.name for connection in manager.connections)):
            legal = re.sub("[^\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "�", name)
            assert legal in words


def test_edges_tell_channels_from_definitions() -> None:
    definitions = (
        QueueOverview(
            name="B", kind="QALIAS", targets=(DefinitionTarget(queue="A", queue_manager="QM1"),)
        ),
        QueueOverview(name="A", kind="QLOCAL"),
        QueueOverview(
            name="R", kind="QREMOTE", targets=(DefinitionTarget(queue="X", queue_manager="QM2"),)
        ),
        QueueOverview(name="Z", kind="QLOCAL", put_enabled=False),
    )
    channel = ConnectionOverview(name="QM1.QM2", kind="SDR", queue_manager="QM2")
    first = QueueManagerOverview(
        name="QM1", kind="mq", clusters=("C",), queues=definitions, connections=(channel,)
    )
    second = QueueManagerOverview(name="QM2", kind="mq")
    cluster = ClusterOverview(name="C", queue_managers=("QM1",), queues=())
    text = dot(Overview(queue_managers=(first, second), clusters=(cluster,)), queues=3)
    edges = [line.strip() for line in text.splitlines() if "->" in line]
    assert edges == [
        "m0:c0 -> m1:head",
        "m0:q0 -> m0:q1 [style=dotted]",
        "m0:q2 -> m1:head [style=dashed]",
        'c0 -> m0 [dir=none, color="#0072b2"]',
    ]
    for words in ("R · QREMOTE → X@QM2", "B · QALIAS → A", "... and 1 more queues", "cluster C"):
        assert words in text
    assert "Z · QLOCAL · PUT(DISABLED)" in dot(Overview(queue_managers=(first,)))

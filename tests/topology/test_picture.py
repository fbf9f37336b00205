"""Pictures of topologies and of traces: well-formed, complete, nothing on top of anything else."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.topology.network_picture import picture_of_network
from redrive.topology.overview import (
    ClusterOverview,
    ConnectionOverview,
    Overview,
    QueueManagerOverview,
    QueueOverview,
    Target,
)
from redrive.topology.picture import OUTLINE, Box, Picture, shortened, svg
from redrive.topology.trace import Problem, ResolutionTrace, TraceStep, Visit
from redrive.topology.trace_picture import picture_of_trace

SVG = "{http://www.w3.org/2000/svg}"
NAMES = st.text(max_size=90) | st.sampled_from(
    ["<QM>", "]]>", "&amp;", '"', "\0", "漢字", "A\ud800"]
)
MANAGERS = ("QM1", "QM2", "QM3", "QM4", "<QM5>", "")
CLUSTERS = ("C1", "C2", "C3")

queues = st.builds(
    QueueOverview,
    name=st.sampled_from(("A", "B", "C")) | NAMES,
    kind=st.sampled_from(("QLOCAL", "QALIAS", "remote sync")),
    targets=st.lists(
        st.builds(
            Target,
            queue=st.sampled_from(("A", "B", "")),
            queue_manager=st.sampled_from(MANAGERS),
        ),
        max_size=2,
    ).map(tuple),
    put_enabled=st.booleans(),
)
connections = st.builds(
    ConnectionOverview,
    name=NAMES,
    kind=st.just("SDR"),
    queue_manager=st.sampled_from(MANAGERS),
)


@st.composite
def overviews(draw: st.DrawFn) -> Overview:
    names = draw(st.lists(st.sampled_from(MANAGERS) | NAMES, max_size=8, unique=True))
    managers = tuple(
        QueueManagerOverview(
            name=name,
            kind="mq",
            dead_letter_queue=draw(NAMES),
            clusters=tuple(draw(st.sets(st.sampled_from(CLUSTERS)))),
            queues=tuple(draw(st.lists(queues, max_size=5))),
            connections=tuple(draw(st.lists(connections, max_size=3))),
        )
        for name in names
    )
    clusters = tuple(ClusterOverview(name=name, queue_managers=(), queues=()) for name in CLUSTERS)
    return Overview(queue_managers=managers, clusters=clusters)


def overlap(one: Box, other: Box) -> bool:
    """Whether two boxes have a point in common, their outlines included."""
    (left, top, right, bottom), (west, north, east, south) = edges(one), edges(other)
    return left <= east and west <= right and top <= south and north <= bottom


def edges(box: Box) -> tuple[int, int, int, int]:
    away = OUTLINE * len(box.outlines)
    return box.x - away, box.y - away, box.x + box.width + away, box.y + box.height + away


def drawn(picture: Picture) -> ET.Element:
    return ET.fromstring(svg(picture))  # noqa: S314 - our own text


def texts(picture: Picture) -> list[str]:
    return ["".join(one.itertext()) for one in drawn(picture).iter(f"{SVG}text")]


@given(overviews(), st.integers(min_value=0, max_value=4))
def test_no_two_boxes_overlap(overview: Overview, most: int) -> None:
    """Whatever the network is like, and all of them lie within the picture."""
    picture = picture_of_network(overview, queues=most)
    assert not any(overlap(one, other) for one, other in combinations(picture.boxes, 2))
    root = drawn(picture)
    width, height = int(root.attrib["width"]), int(root.attrib["height"])
    for left, top, right, bottom in map(edges, picture.boxes):
        assert left >= 0
        assert top >= 0
        assert right <= width
        assert bottom <= height


@given(overviews())
def test_every_name_is_drawn_as_text(overview: Overview) -> None:
    """Whatever characters it has, the XML is well-formed and the text comes out again."""
    picture = picture_of_network(overview, queues=9)
    found = "\n".join(texts(picture))
    for manager in overview.queue_managers:
        names = [manager.name, *(queue.name for queue in manager.queues)]
        for name in (*names, *(one.name for one in manager.connections)):
            assert visible(name) in found


def visible(name: str) -> str:
    """The beginning of a name as XML can show it; a parser reads line ends as its own."""
    legal = re.sub(
        "[^\t\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", name
    )
    return shortened(legal, 30).removesuffix("…")


@given(overviews())
def test_arrows_run_between_the_edges_of_boxes(overview: Overview) -> None:
    """Each begins and ends at the left or right edge of a box, between its top and bottom."""
    picture = picture_of_network(overview)

    def is_at_an_edge(x: int, y: int) -> bool:
        return any(
            x in {box.x, box.x + box.width} and box.y < y < box.y + box.height
            for box in picture.boxes
        )

    for arrow in picture.arrows:
        assert is_at_an_edge(*arrow.start)
        assert is_at_an_edge(*arrow.end)


@given(overviews())
def test_the_same_topology_gives_the_same_picture(overview: Overview) -> None:
    """So that a picture under version control changes only with its definitions."""
    assert svg(picture_of_network(overview)) == svg(picture_of_network(overview))


def manager(name: str, *leads_to: str, queues: int = 0) -> QueueManagerOverview:
    return QueueManagerOverview(
        name=name,
        kind="mq",
        queues=tuple(QueueOverview(name=f"Q{n}", kind="QLOCAL") for n in range(queues)),
        connections=tuple(
            ConnectionOverview(name=f"{name}.{far}", kind="SDR", queue_manager=far)
            for far in leads_to
        ),
    )


def test_managers_stand_in_columns_by_their_distance() -> None:
    """A chain is drawn from left to right, with an arrow over each gutter."""
    picture = picture_of_network(
        Overview(queue_managers=(manager("A", "B"), manager("B", "C"), manager("C")))
    )
    assert [box.title for box in sorted(picture.boxes, key=lambda box: box.x)] == ["A", "B", "C"]
    assert [arrow.title for arrow in picture.arrows] == [
        "SDR A.B leads to B",
        "SDR B.C leads to C",
    ]
    assert all(arrow.start[0] < arrow.end[0] for arrow in picture.arrows)


def test_queues_beyond_the_limit_are_counted() -> None:
    """A box stays small; nothing is dropped without a word."""
    found = texts(picture_of_network(Overview(queue_managers=(manager("A", queues=7),)), queues=5))
    assert "Q4 · QLOCAL" in found
    assert "Q5 · QLOCAL" not in found
    assert "... and 2 more queues" in found


def test_a_picture_can_be_read_aloud() -> None:
    """Title and description name the whole and are referred to; there is nothing from elsewhere."""
    picture = picture_of_network(Overview(queue_managers=(manager("A", "B"), manager("B"))))
    root = drawn(picture)
    assert root.attrib["role"] == "img"
    names = {one.attrib.get("id"): one.text for one in root}
    labels = [names[label] for label in root.attrib["aria-labelledby"].split()]
    assert labels == ["Topology", "2 queue managers. A.B leads from A to B."]
    text = svg(picture).replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert not re.search(r"http|<script|@import|@font-face|url\((?!#)|<foreignObject", text)


def trace_of(problem: Problem | None) -> ResolutionTrace:
    step = TraceStep(rule="R1", what="local <queue>", definition="QLOCAL(Q)", location="QM2.mqsc:1")
    visits = (Visit("QM1", "Q@QM2", (step,)), Visit("QM2", "Q@QM2", (step, step)))
    good = problem is None
    return ResolutionTrace(
        visits=visits, end="on a queue", is_good=good, final="Q@QM2", problem=problem
    )


@pytest.mark.parametrize(
    "problem", [None, Problem(code=2085, name="MQRC_X", detail="no & nothing")]
)
def test_a_trace_goes_down_to_its_end(problem: Problem | None) -> None:
    """One box for each manager, the end green or red with the reason, an arrow between any two."""
    picture = picture_of_trace(trace_of(problem))
    assert [box.title for box in picture.boxes] == ["QM1", "QM2", "on a queue"]
    assert not any(overlap(one, other) for one, other in combinations(picture.boxes, 2))
    assert [arrow.start[1] for arrow in picture.arrows] == [
        box.y + box.height for box in picture.boxes[:-1]
    ]
    assert picture.boxes[-1].tone == ("bad" if problem else "good")
    found = texts(picture)
    assert found.count("R1 QLOCAL(Q)") == 3
    assert ("2085 MQRC_X" in found, "no & nothing" in found) == (bool(problem), bool(problem))

"""Bindings files: what they say, and every finding in its place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases_beside

from redrive.topology.bindings import read_bindings

GOOD = """\
kind: bindings
queue_managers:
  QM1:
    bootstrap_servers: kafka-a:9092,kafka-b:9092
    dead_letter_header: headers
    queues:
      ORDERS.IN: {topic: orders, consumer_group: billing}
      A/B%: {consumer_group: audit}
  QM2: {}
"""


def test_what_a_file_says() -> None:
    result = read_bindings(GOOD, "b.yaml")
    assert result.diagnostics == ()
    bindings = result.bindings
    assert bindings is not None
    manager = bindings.queue_managers["QM1"]
    assert manager.bootstrap_servers == "kafka-a:9092,kafka-b:9092"
    assert manager.dead_letter_header == "headers"
    assert bindings.topic(queue="ORDERS.IN", queue_manager="QM1") == "orders"
    assert bindings.topic(queue="A/B%", queue_manager="QM1") == "QM1--A-2FB-25"
    assert bindings.topic(queue="X", queue_manager="QM2") == "QM2--X"
    assert bindings.topic(queue="X", queue_manager="QM3") == "QM3--X"
    assert bindings.consumer_group(queue="A/B%", queue_manager="QM1") == "audit"
    assert bindings.consumer_group(queue="X", queue_manager="QM3") is None


in_table = cases_beside(__file__)
HEAD = "kind: bindings\nqueue_managers:\n  QM1:\n"


@in_table
def test_a_mistake_is_found_in_its_place(code: str, marked: str) -> None:
    before, _, after = marked.replace("HEAD\n", HEAD).replace("LONG", "a" * 250).partition("▸")
    result = read_bindings(f"{before}{after}", "b.yaml")
    assert result.bindings is None
    place = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
    assert (code, *place) in [
        (diagnostic.code, diagnostic.line, diagnostic.column) for diagnostic in result.diagnostics
    ]
    assert all(diagnostic.file == "b.yaml" for diagnostic in result.diagnostics)


def test_all_mistakes_are_found_at_once() -> None:
    text = (
        HEAD + "    dead_letter_header: x\n    queues:\n      A: {topc: a}\n      B: {topic: '.'}\n"
    )
    result = read_bindings(text)
    assert [diagnostic.line for diagnostic in result.diagnostics] == [4, 6, 7]
    assert result.diagnostics[1].hint == "did you mean topic?"


@given(st.text("kind: bings{}[]\n-'#&*\"quemaro_", max_size=60))
def test_no_text_stops_the_reader(text: str) -> None:
    result = read_bindings(text)
    assert (result.bindings is None) == bool(result.diagnostics)

"""Bindings files: what they say, and every finding in its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


HEAD = "kind: bindings\nqueue_managers:\n  QM1:\n"


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("queue_managers: {}\n", "MISSING", 1, 1),
        ("kind: binding\n", "BAD_VALUE", 1, 7),
        ("kind: bindings\nqueue_manager: {}\n", "UNKNOWN_KEY", 2, 1),
        ("kind: bindings\nqueue_managers: 5\n", "WRONG_TYPE", 2, 17),
        (HEAD + "    topics: 5\n", "UNKNOWN_KEY", 4, 5),
        (HEAD + "    bootstrap_servers: kafka\n", "BAD_VALUE", 4, 24),
        (HEAD + "    bootstrap_servers: [kafka:1]\n", "WRONG_TYPE", 4, 24),
        (HEAD + "    dead_letter_header: text\n", "BAD_VALUE", 4, 25),
        (HEAD + "    queues: [A]\n", "WRONG_TYPE", 4, 13),
        (HEAD + "    queues:\n      A: {topic: 'a b'}\n", "BAD_VALUE", 5, 18),
        (HEAD + "    queues:\n      A: {topic: '..'}\n", "BAD_VALUE", 5, 18),
        (HEAD + f"    queues:\n      A: {{topic: {'a' * 250}}}\n", "BAD_VALUE", 5, 18),
        (HEAD + "    queues:\n      A: {topic: redrive-x-control}\n", "BAD_VALUE", 5, 18),
        (HEAD + "    queues:\n      A: {topc: a}\n", "UNKNOWN_KEY", 5, 11),
        (HEAD + "    queues:\n      A: {topic: a}\n      A: {topic: b}\n", "KEY_TWICE", 6, 7),
        (HEAD + "    queues:\n      A: {topic: a.b}\n      B: {topic: a_b}\n", "ONE_TOPIC", 6, 7),
        ("kind: [bindings\n", "SYNTAX", 2, 1),
        ("", "WRONG_TYPE", 1, 1),
        ("- a\n", "WRONG_TYPE", 1, 1),
    ],
)
def test_a_mistake_is_found_in_its_place(text: str, code: str, line: int, column: int) -> None:
    result = read_bindings(text, "b.yaml")
    assert result.bindings is None
    problems = [
        (diagnostic.code, diagnostic.line, diagnostic.column) for diagnostic in result.diagnostics
    ]
    assert (code, line, column) in problems
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

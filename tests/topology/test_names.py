"""Topic names: legal, distinct, and never one of ours."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive.engine.names import control_topic, outcomes_topic, remaining_topic, retry_topic
from redrive.topology.names import escape, is_reserved, put_topic, topic_name, unescape

LEGAL_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

ANY_NAMES = st.text(min_size=1, max_size=120)


@pytest.mark.parametrize(
    ("queue_manager", "queue", "topic"),
    [
        ("QM1", "ORDERS.IN", "QM1--ORDERS.IN"),
        ("QM1", "A_B", "QM1--A-5FB"),
        ("QM1", "A/B%", "QM1--A-2FB-25"),
        ("moon-base", "q", "moon-2Dbase--q"),
        ("QM1", "é", "QM1---C3-A9"),
    ],
)
def test_topic_is_the_two_escaped_names(queue_manager: str, queue: str, topic: str) -> None:
    """The escape of design 4, by example."""
    assert topic_name(queue=queue, queue_manager=queue_manager) == topic


@given(ANY_NAMES, ANY_NAMES)
@example("QM1", "redrive:")
@example("redrive:" * 40, "Q")
def test_every_pair_of_names_gives_a_legal_topic(queue_manager: str, queue: str) -> None:
    topic = topic_name(queue=queue, queue_manager=queue_manager)
    assert LEGAL_TOPIC.fullmatch(topic)
    assert "_" not in topic
    assert not is_reserved(topic)


@given(ANY_NAMES, ANY_NAMES, ANY_NAMES, ANY_NAMES)
def test_different_pairs_get_different_topics(
    first: str, second: str, third: str, fourth: str
) -> None:
    same = (first, second) == (third, fourth)
    assert (
        topic_name(queue=second, queue_manager=first)
        == topic_name(queue=fourth, queue_manager=third)
    ) == same


@given(st.integers(200, 400), st.sampled_from(["%", "A", "_B", "é"]))
def test_long_names_keep_a_prefix_and_end_in_a_hash(length: int, unit: str) -> None:
    name = (unit * length)[:length]
    topic = topic_name(queue=name, queue_manager="QM1")
    assert len(topic) <= 249
    if len("QM1--" + escape(name)) > 249:
        assert re.fullmatch(r"QM1--.*-h[0-9a-f]{32}", topic)
        assert topic != topic_name(queue=name + "X", queue_manager="QM1")


@given(st.text(max_size=60))
def test_unescape_reads_back_what_escape_writes(name: str) -> None:
    assert unescape(escape(name)) == name


@given(st.text("AB-2Fhe_.é", max_size=12))
def test_unescape_accepts_exactly_what_escape_writes(text: str) -> None:
    name = unescape(text)
    assert name is None or escape(name) == text


@pytest.mark.parametrize(
    "topic",
    [
        put_topic("QM1"),
        put_topic("redrive-x"),
        outcomes_topic("pay"),
        outcomes_topic("AB"),
        control_topic("pay"),
        retry_topic("pay", "dlq"),
        remaining_topic("pay", "dlq"),
        "__consumer_offsets",
        "__transaction_state",
    ],
)
def test_own_and_internal_topics_are_reserved(topic: str) -> None:
    assert is_reserved(topic)
    assert LEGAL_TOPIC.fullmatch(topic)


def test_hyphens_in_application_and_handler_do_not_collide() -> None:
    """Application ``a`` with handler ``b-c`` shares no topic with ``a-b`` and ``c``."""
    assert retry_topic("a", "b-c") != retry_topic("a-b", "c")

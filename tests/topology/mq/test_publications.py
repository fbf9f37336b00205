"""Topic strings and the wildcards of subscriptions (topic-based and character-based schemes)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.topology.mq.publications import matches_levels, subscribers
from redrive.topology.mq.reader import read_mqsc

LEVELS = st.lists(st.sampled_from(["a", "b", "", "+b"]), max_size=5)
PATTERNS = st.lists(st.sampled_from(["a", "b", "", "+", "#"]), max_size=5)


def matches(pattern: Sequence[str], levels: Sequence[str]) -> bool:
    """The definition, level by level."""
    if not pattern:
        return not levels
    if pattern[0] == "#":
        return matches(pattern[1:], levels) or (bool(levels) and matches(pattern, levels[1:]))
    return bool(levels) and pattern[0] in {"+", levels[0]} and matches(pattern[1:], levels[1:])


@given(PATTERNS, LEVELS)
def test_levels_match_by_definition(pattern: list[str], levels: list[str]) -> None:
    """``+`` is one level, ``#`` any number of them, everything else is itself."""
    assert matches_levels(pattern, levels) == matches(pattern, levels)


@pytest.mark.parametrize(
    ("subscription", "string", "matched"),
    [
        ("TOPICSTR('a/#')", "a", True),
        ("TOPICSTR('a/+')", "a", False),
        ("TOPICSTR('a/#b')", "a/xb", False),
        ("TOPICSTR('a*') WSCHEMA(CHAR)", "a/b/c", True),
        ("TOPICSTR('a?c') WSCHEMA(CHAR)", "a/c", True),
        ("TOPICSTR('a%*') WSCHEMA(CHAR)", "a/c", False),
        ("TOPICSTR('a%*') WSCHEMA(CHAR)", "a*", True),
        ("TOPICSTR('50%') WSCHEMA(CHAR)", "50%", True),
        ("TOPICOBJ(T) TOPICSTR('#')", "t/x", True),
        ("TOPICOBJ(T)", "t/x", False),
    ],
)
def test_a_subscription_matches(subscription: str, string: str, *, matched: bool) -> None:
    """Wildcards by WSCHEMA; below a topic object if both are given."""
    script = f"DEF TOPIC(T) TOPICSTR('t')\nDEF SUB('a sub') {subscription} DEST(Q)"
    manager = read_mqsc(script, queue_manager="QM1").queue_manager
    assert [one.name for one in subscribers(manager, string)] == ["a sub"] * matched


@pytest.mark.parametrize(
    "command", ["DEF SUB(S) DEST(Q)", "DEF SUB(S) TOPICSTR(a)", "DEF SUB(S) TOPICOBJ(T)"]
)
def test_a_subscription_needs_topics_and_a_queue(command: str) -> None:
    """DEFINE SUB: TOPICSTR or TOPICOBJ, and DEST unless the destination is managed."""
    codes = [one.code for one in read_mqsc(command, queue_manager="QM1").diagnostics]
    assert codes == ["REFUSED"]

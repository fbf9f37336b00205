"""What `redrive check` says of the topics that rules name."""

from __future__ import annotations

import pytest

from redrive.engine.facts import MISSING, TopicFacts
from redrive.operations.rule_targets import check_lives, known_topics
from redrive.rules import parse

TABLE = """DIALECT(KAFKA)
KEY(a) ACTION(FWD) FWDT('compact')
KEY(b) ACTION(FWD) FWDT('week')
* redrive: allow DIES_YOUNG
KEY(c) ACTION(FWD) FWDT('week')
KEY(d) ACTION(FWD) FWDT('far:week')
KEY(e) ACTION(FWD) FWDT('week.&TOPIC')
TOPIC(both) ACTION(RETRY)
TOPIC(both) ACTION(RETRY) TO(GROUP)
ACTION(RETRY)
"""
WEEK = 604_800_000
TOPICS = {
    "compact": TopicFacts(wants_keys=True),
    "week": TopicFacts(retention=WEEK),
    "both": TopicFacts(wants_keys=True, retention=WEEK),
}


@pytest.mark.parametrize("keeps", [True, False])
def test_rules_are_told_what_their_topics_do_with_old_records(*, keeps: bool) -> None:
    table = parse(TABLE).required()
    assert known_topics(table) == {*TOPICS}
    diagnostics = check_lives(table, TABLE, {**TOPICS, "other": MISSING}, keeps=keeps, name="t.rul")
    hides, dies = "HIDES_NEWER", "DIES_YOUNG"
    expected = [(2, hides), (3, dies), (8, hides), (8, dies)] if keeps else [(2, hides), (8, hides)]
    assert [(diagnostic.line, diagnostic.code) for diagnostic in diagnostics] == expected

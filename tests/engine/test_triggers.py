"""Trigger messages: which puts cause one, where it goes, and that the put does not depend on it.

The cases are those of IBM's "Conditions for a trigger event" (q026930, 2 and 3) and "When
triggering does not work" (q026950).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.decided_network import put_deciders
from tests.engine.known_cluster import KnownCluster
from tests.engine.samples import dead_letter, handler_of, outcomes_in, slice_of

from redrive.engine.facts import DepthQuestion, Facts, TopicFacts
from redrive.engine.slice import Slice
from redrive.engine.triggers import SliceTriggers
from redrive.engine.walk import AssumedCluster, walk
from redrive.messages import OutputRecord, Records, Refused, decode_dead_letter
from redrive.messages.fields import mqmd_fields
from redrive.topology.files import SourceText, Topology, read_topology
from redrive.topology.layout import topics_of
from redrive.topology.triggers import triggers_of

NOW = 1_000_000
SCRIPT = """ALTER QMGR DEADQ(DEAD)
DEF QL(DEAD) MAXDEPTH(3)
DEF QL(INIT) DEFPRTY(6) MAXDEPTH(2)
DEF PRO(P) APPLTYPE(UNIX) APPLICID('/bin/pay')
DEF QL(Q) TRIGGER INITQ(INIT) PROCESS(P) %s
DEF QL(PLAIN) STREAMQ(Q)
"""
BINDINGS = b"""kind: bindings
queue_managers:
  A:
    queues:
      Q: {consumer_group: billing}
      INIT: {consumer_group: monitor}
      DEAD: {consumer_group: handler}
"""


def topology(trigger: str, script: str = SCRIPT) -> Topology:
    """One manager with a queue Q that has TRIGGER, and groups that tell the depths."""
    sources = (
        SourceText("A.mqsc", (script % trigger).encode()),
        SourceText("bindings.yaml", BINDINGS),
    )
    found = read_topology(sources).topology
    assert found is not None
    return found


def work_on(of: Topology, queues: list[str], priorities: list[int] | None = None) -> Slice:
    """A slice with puts on the intake of A."""
    decider, kind = put_deciders(of)["A--redrive-put"]
    headers: list[Any] = [
        [("redrive.oq", queue.encode()), ("JMS_IBM_MQMD_Priority", str(priority).encode())]
        for queue, priority in zip(queues, priorities or [0] * len(queues), strict=True)
    ]
    count = len(queues)
    records = Records([b"k"] * count, [b"x"] * count, headers, [NOW] * count, list(range(count)))
    work = slice_of(records, decider, kind=kind, topic="A--redrive-put", partition=0, now=NOW)
    work._context.triggers = SliceTriggers(triggers_of(of))
    return work


def written(work: Slice, cluster: KnownCluster, topic: str) -> list[OutputRecord]:
    return [one for _, one in cluster.decided(work) if one.topic == topic]


def details(work: Slice, cluster: KnownCluster) -> list[str]:
    return [one["detail"] for one in outcomes_in(cluster.decided(work))]


@pytest.mark.parametrize(
    ("trigger", "depth", "priorities", "expected"),
    [
        # EVERY: each message of sufficient priority, whatever the depth.
        ("TRIGTYPE(EVERY)", 0, [0, 0, 0], 3),
        ("TRIGTYPE(EVERY)", 7, [0, 0], 2),
        ("TRIGTYPE(EVERY) TRIGMPRI(4)", 0, [3, 4, 9, 0], 2),
        # FIRST: from 0 to 1.
        ("TRIGTYPE(FIRST)", 0, [0, 0, 0], 1),
        ("TRIGTYPE(FIRST)", 1, [0, 0], 0),
        ("TRIGTYPE(FIRST) TRIGMPRI(4)", 0, [3, 5, 6], 1),
        ("TRIGTYPE(FIRST) TRIGMPRI(4)", 0, [3, 3], 0),
        # DEPTH: from TRIGDPTH minus 1 to TRIGDPTH.
        ("TRIGTYPE(DEPTH) TRIGDPTH(3)", 0, [0, 0], 0),
        ("TRIGTYPE(DEPTH) TRIGDPTH(3)", 0, [0, 0, 0, 0], 1),
        ("TRIGTYPE(DEPTH) TRIGDPTH(3)", 2, [0, 0], 1),
        ("TRIGTYPE(DEPTH) TRIGDPTH(3)", 3, [0, 0], 0),
        ("TRIGTYPE(DEPTH) TRIGDPTH(1)", 0, [0, 0], 1),
        ("TRIGTYPE(NONE)", 0, [0], 0),
    ],
)
def test_a_trigger_message_is_written_when_the_manual_says(
    trigger: str, depth: int, priorities: list[int], expected: int
) -> None:
    """By type, depth before the puts of a slice, and priorities; all messages are put."""
    cluster = KnownCluster(depths={"A--Q": depth})
    of = topology(trigger, SCRIPT.replace(" MAXDEPTH(2)", ""))
    work = work_on(of, ["Q"] * len(priorities), priorities)
    assert len(written(work, cluster, "A--Q")) == len(priorities)
    messages = written(work, cluster, "A--INIT")
    assert len(messages) == expected
    assert len([one for one in details(work, cluster) if one]) == expected
    for one in messages:
        assert (one.value, one.key) == (triggers_of(of)["A--Q"].message, b"Q")
        fields = mqmd_fields(one.headers or [])
        # "MQMD for a trigger message": the initiation queue's DEFPRTY, never persistent.
        wanted = {"Format": "MQTRIG", "Priority": 6, "Persistence": 0, "MsgType": 8, "Expiry": -1}
        assert {name: fields[name] for name in wanted} == wanted
        assert (fields["ReplyToQMgr"], fields["PutApplType"]) == ("A", 7)
    assert len({mqmd_fields(one.headers or [])["MsgId"] for one in messages}) == expected


@given(st.integers(0, 6), st.lists(st.integers(1, 3), max_size=4), st.integers(1, 6))
def test_the_depth_that_counts_is_that_of_all_puts_before(
    depth: int, slices: list[int], wanted: int
) -> None:
    """However puts are cut into slices, exactly the one that reaches TRIGDPTH causes a message."""
    of = topology(f"TRIGTYPE(DEPTH) TRIGDPTH({wanted})")
    found = []
    for count in slices:
        work = work_on(of, ["Q"] * count)
        found += [len(written(work, KnownCluster(depths={"A--Q": depth}), "A--INIT"))]
        depth += count
    before = depth - sum(slices)
    assert sum(found) == (before < wanted <= depth)


def test_offsets_that_overcount_are_counted_again_before_a_trigger_message() -> None:
    """Markers among the offsets make no depth: the exact number is asked where it matters."""

    class Overcounting(KnownCluster):
        def answers(self, questions: Any) -> Any:
            exact = {one: 0 if one.limit < 3 else 2 for one in questions.depths}
            return replace(super().answers(questions), depths=exact)

    work = work_on(topology("TRIGTYPE(DEPTH) TRIGDPTH(3)"), ["Q"])
    assert written(work, Overcounting(), "A--INIT") == []


@pytest.mark.parametrize(
    ("cluster", "initiation", "dead", "words"),
    [
        (KnownCluster(), 1, 0, "trigger message on INIT@A"),
        # A full initiation queue: the dead-letter queue, with 2053 in front.
        (KnownCluster(depths={"A--INIT": 2}), 0, 1, "trigger message on DEAD, because INIT@A"),
        # That is full too: the trigger message is dropped.
        (KnownCluster(depths={"A--INIT": 2, "A--DEAD": 3}), 0, 0, "no dead letter, because"),
        (KnownCluster(topics={"A--INIT": TopicFacts(exists=False)}), 0, 0, "does not exist"),
        (KnownCluster(topics={"A--INIT": TopicFacts(may_write=False)}), 0, 1, "2035"),
        (KnownCluster(topics={"A--INIT": TopicFacts(silent="no leader")}), 0, 1, "2102"),
    ],
)
def test_the_message_is_put_whatever_becomes_of_its_trigger_message(
    cluster: KnownCluster, initiation: int, dead: int, words: str
) -> None:
    """Put on the initiation queue, on the dead-letter queue, or dropped; the outcome says it."""
    work = work_on(topology("TRIGTYPE(EVERY)"), ["Q"])
    assert len(written(work, cluster, "A--Q")) == 1
    assert len(written(work, cluster, "A--INIT")) == initiation
    letters = written(work, cluster, "A--DEAD")
    assert len(letters) == dead
    assert words in details(work, cluster)[0]
    for one in letters:
        header = decode_dead_letter(one.value, one.headers or []).header
        assert header is not None
        assert (header.dest_q_name, header.format) == ("INIT", "MQTRIG")


def test_a_trigger_message_that_the_broker_refuses_is_a_dead_letter() -> None:
    """The refusal is about the trigger message alone; what it was for stays put."""
    work = work_on(topology("TRIGTYPE(EVERY)"), ["Q"])
    entries = [entry for entry, one in KnownCluster().decided(work) if one.topic == "A--INIT"]
    work.refuse([Refused(entries[0], 2102, "refused")], ["A--INIT"])
    counts = [len(written(work, KnownCluster(), topic)) for topic in ("A--Q", "A--INIT", "A--DEAD")]
    assert counts == [1, 0, 1]


def test_copies_and_dead_letters_are_puts_too() -> None:
    """A copy for STREAMQ, and a message that ends on a triggered dead-letter queue."""
    of = topology("TRIGTYPE(EVERY)")
    assert len(written(work_on(of, ["PLAIN"]), KnownCluster(), "A--INIT")) == 1
    script = SCRIPT.replace("DEADQ(DEAD)", "DEADQ(Q)")
    work = work_on(topology("TRIGTYPE(EVERY)", script), ["NO.SUCH"])
    assert len(written(work, KnownCluster(), "A--Q")) == 1
    assert len(written(work, KnownCluster(), "A--INIT")) == 1


def test_what_a_rules_table_puts_causes_trigger_messages() -> None:
    """Also where puts would be prepared; a queue without TRIGGER keeps them prepared."""
    of = topology("TRIGTYPE(EVERY)", SCRIPT.replace(" MAXDEPTH(2)", ""))
    trigger = triggers_of(of)["A--Q"]
    count = 3
    records = Records(
        [b"k"] * count, [b"x"] * count, [dead_letter(2035)] * count, [NOW] * count, [0, 1, 2]
    )
    for topic, expected in (("SECURITY", count), ("OTHER", 0)):
        work = slice_of(records, handler_of(), now=NOW)
        work._context.triggers = SliceTriggers({topic: trigger})
        assert len(written(work, KnownCluster(), "SECURITY")) == count
        assert len(written(work, KnownCluster(), "A--INIT")) == expected


def test_a_put_that_fails_causes_no_trigger_message() -> None:
    """It is a dead letter; the queue got nothing."""
    of = topology("TRIGTYPE(EVERY) PUT(DISABLED)")
    assert written(work_on(of, ["Q"]), KnownCluster(), "A--INIT") == []


def test_a_walk_shows_the_trigger_message() -> None:
    """What ``redrive resolve`` follows has it as one more record."""
    of = topology("TRIGTYPE(FIRST)")
    assumed = AssumedCluster({one.topic for one in topics_of(of)})
    put = OutputRecord("A--redrive-put", None, b"", [("redrive.oq", b"Q")], NOW)
    found = walk(
        put, put_deciders(of), Facts(lambda: 0.0), assumed.answers, now=NOW,
        triggers=triggers_of(of),
    )  # fmt: skip
    (hop,) = found.hops
    assert [one.record.topic for one in hop.written] == ["A--Q", "A--INIT"]
    assert DepthQuestion("A--Q", "billing", 1).topic in assumed.not_full

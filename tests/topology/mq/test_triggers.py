"""Which queues cause trigger messages, and which ``redrive check`` says cause none.

The conditions are those of IBM's "Conditions for a trigger event" (q026930), 6, 7, 9 and 10; the
structure is that of "MQTM - Trigger message" (q100760).
"""

from __future__ import annotations

import struct

import pytest

from redrive.topology.bindings import Bindings, QueueBinding, QueueManagerBinding
from redrive.topology.checks import check_together
from redrive.topology.files import Topology
from redrive.topology.layout import topics_of
from redrive.topology.mq.network import Network
from redrive.topology.mq.reader import read_mqsc
from redrive.topology.triggers import triggers_of

BASE = """DEF QL(INIT)
DEF PRO(P) APPLTYPE(CICS) APPLICID('PAYR') ENVRDATA('JOBPTY(3)') USERDATA('Payroll data')
DEF QL(X) USAGE(XMITQ)
DEF QL(SHUT) PUT(DISABLED)
DEF QL(CLOSED) GET(DISABLED)
DEF QA(ALIAS) TARGET(INIT)
"""


def topology(script: str, group: str = "") -> Topology:
    """One manager; the group reads queue Q."""
    manager = read_mqsc(BASE + script, queue_manager="QM1").queue_manager
    queues = {"Q": QueueBinding(consumer_group=group)} if group else {}
    bindings = Bindings(queue_managers={"QM1": QueueManagerBinding(queues=queues)})
    return Topology(mq=Network([manager]), bindings=bindings)


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ("TRIGGER TRIGTYPE(EVERY) INITQ(INIT) PROCESS(P)", ""),
        ("TRIGGER TRIGTYPE(EVERY) INITQ(INIT) PROCESS(SYSTEM.DEFAULT.PROCESS)", ""),
        ("TRIGGER TRIGTYPE(EVERY) INITQ(SYSTEM.DEFAULT.INITIATION.QUEUE) PROCESS(P)", ""),
        ("TRIGGER TRIGTYPE(NONE) INITQ(NONE) PROCESS(P)", "none"),  # nothing is asked for
        ("NOTRIGGER TRIGTYPE(EVERY) INITQ(INIT) PROCESS(P)", "none"),
        ("TRIGGER TRIGTYPE(EVERY) INITQ(INIT)", "it has no PROCESS"),
        ("TRIGGER TRIGTYPE(EVERY) INITQ(INIT) PROCESS(NO)", "PROCESS(NO) does not exist"),
        ("TRIGGER TRIGTYPE(EVERY) PROCESS(P)", "it has no INITQ"),
        ("TRIGGER TRIGTYPE(EVERY) INITQ(NO) PROCESS(P)", "NO, which does not exist"),
        ("TRIGGER TRIGTYPE(EVERY) INITQ(ALIAS) PROCESS(P)", "ALIAS, which is not a QLOCAL"),
        ("TRIGGER TRIGTYPE(EVERY) INITQ(X) PROCESS(P)", "X, which is not a QLOCAL"),
        ("TRIGGER TRIGTYPE(EVERY) INITQ(SHUT) PROCESS(P)", "SHUT, which has PUT(DISABLED)"),
        ("TRIGGER TRIGTYPE(EVERY) INITQ(CLOSED) PROCESS(P)", "CLOSED, which has GET(DISABLED)"),
        ("TRIGGER INITQ(INIT) PROCESS(P)", "the bindings name no consumer group"),  # FIRST
        ("TRIGGER TRIGTYPE(DEPTH) TRIGDPTH(9) INITQ(INIT) PROCESS(P)", "no consumer group"),
    ],
)
def test_a_queue_causes_trigger_messages_or_the_check_says_why_not(
    attributes: str, problem: str
) -> None:
    """Without a problem there is a trigger and no finding; NOTRIGGER asks for nothing."""
    found = topology(f"DEF QL(Q) {attributes}")
    findings = [
        one for one in check_together(found.mq, None, found.bindings) if one.code == "NO_TRIGGER"
    ]
    assert list(triggers_of(found)) == ([] if problem else ["QM1--Q"])
    assert [one.code for one in findings] == (["NO_TRIGGER"] if problem not in {"", "none"} else [])
    assert all(problem in one.message for one in findings)


def test_what_is_honoured_in_part_is_a_warning_beside_the_trigger() -> None:
    """DEPTH stays on, and the depth is that of all messages whatever TRIGMPRI says."""
    script = "DEF QL(Q) TRIGGER TRIGTYPE(DEPTH) TRIGDPTH(9) TRIGMPRI(3) INITQ(INIT) PROCESS(P)"
    found = topology(script, "billing")
    codes = [one.code for one in check_together(found.mq, None, found.bindings)]
    assert codes.count("NOT_HONOURED") == 3  # and GET(DISABLED) of CLOSED
    (trigger,) = triggers_of(found).values()
    assert (trigger.depth, trigger.lowest_priority, trigger.consumer_group) == (9, 3, "billing")


def test_a_trigger_message_has_the_fields_of_queue_and_process() -> None:
    """684 bytes, as MQTM lies in memory (cmqc.h): TRIGDATA of the queue, the rest of PROCESS."""
    script = "DEF QL(Q) TRIGGER TRIGTYPE(EVERY) TRIGDATA('now') INITQ(INIT) PROCESS(P)"
    (trigger,) = triggers_of(topology(script)).values()
    fields = struct.unpack("<4si48s48s64si256s128s128s", trigger.message)
    assert [one.rstrip() if isinstance(one, bytes) else one for one in fields] == [
        b"TM", 1, b"Q", b"P", b"now", 1, b"PAYR", b"JOBPTY(3)", b"Payroll data",
    ]  # fmt: skip


def test_the_products_own_initiation_queue_has_a_topic_once_a_queue_uses_it() -> None:
    """As with the dead-letter queue: other queues of the product have none."""
    script = "DEF QL(Q) TRIGGER TRIGTYPE(EVERY) PROCESS(P) INITQ(SYSTEM.DEFAULT.INITIATION.QUEUE)"
    own = "QM1--SYSTEM.DEFAULT.INITIATION.QUEUE"
    assert own in {one.topic for one in topics_of(topology(script))}
    assert own not in {one.topic for one in topics_of(topology("DEF QL(Q)"))}


@pytest.mark.parametrize(
    ("attributes", "is_taken"),
    [
        ("APPLTYPE(UNIX) APPLICID('/usr/bin/pay &') ENVRDATA(' ')", True),
        ("APPLTYPE(65536)", True),
        ("APPLTYPE(WINDOWSNT)", True),
        ("APPLTYPE(NOSUCH)", False),
        ("USERDATA('" + "x" * 129 + "')", False),
        ("APPLICID('" + "x" * 257 + "')", False),
        ("TRIGDATA(x)", False),
    ],
)
def test_define_process_is_read_as_runmqsc_reads_it(attributes: str, *, is_taken: bool) -> None:
    """DEFINE PROCESS: the types that have a word, or any number; texts have their limits."""
    result = read_mqsc(f"DEFINE PROCESS(P) {attributes}", queue_manager="QM1")
    assert ("P" in result.queue_manager.processes) is is_taken
    assert result.counts.has_failures is not is_taken

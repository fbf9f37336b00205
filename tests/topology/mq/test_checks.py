"""Findings about a whole topology, each with the place of the definition to change."""

from __future__ import annotations

import pytest

from redrive.topology.bindings import NO_BINDINGS, Bindings, read_bindings
from redrive.topology.files import check_together
from redrive.topology.layout import Topology
from redrive.topology.mq.checks import check_topology
from redrive.topology.mq.network import MqNetwork
from redrive.topology.mq.queue_manager import QueueManager
from redrive.topology.mq.reader import read_mqsc
from redrive.topology.mqe.objects import MqeNetwork, MqeQueueManager

OK = """\
DEF QL(ORDERS)
DEF QA(IN) TARGET(ORDERS)
DEF QL(QM2) USAGE(XMITQ)
DEF CHL(QM1.QM2) CHLTYPE(SDR) XMITQ(QM2) CONNAME('b(1)')
DEF CHL(QM2.QM1) CHLTYPE(RCVR)
DEF QR(PAY) RNAME(PAYROLL) RQMNAME(QM2)
DEF QL(DLQ)
ALTER QMGR DEADQ(DLQ)
"""
PEER = """\
DEF QL(PAYROLL)
DEF QL(QM1) USAGE(XMITQ)
DEF CHL(QM2.QM1) CHLTYPE(SDR) XMITQ(QM1) CONNAME('a(1)')
DEF CHL(QM1.QM2) CHLTYPE(RCVR)
"""


def found(*scripts: str, bindings: Bindings = NO_BINDINGS) -> list[tuple[str, str, int]]:
    managers = []
    for number, script in enumerate(scripts, 1):
        result = read_mqsc(script, queue_manager=f"QM{number}", file=f"QM{number}.mqsc")
        assert result.diagnostics == ()
        managers.append(result.queue_manager)
    findings = check_together(Topology(mq=MqNetwork(managers), bindings=bindings))
    assert all(finding.message and finding.render() for finding in findings)
    return [(finding.code, finding.file, finding.line) for finding in findings]


def of(script: str) -> QueueManager:
    return read_mqsc(script, queue_manager="QM1", file="QM1.mqsc").queue_manager


@pytest.mark.parametrize(
    ("name", "alteration", "code"),
    [
        ("QA(IN)", "TARGET(NOWHERE)", "ALIAS_TARGET"),
        ("QA(IN)", "TARGET(IN)", "ALIAS_LOOP"),
        ("QA(IN)", "PUT(DISABLED)", "PUT_FAILS"),
        ("QA(IN)", "GET(DISABLED)", "NOT_HONOURED"),
        ("QA(IN)", "TARGET(SYSTEM.BASE.TOPIC) TARGTYPE(TOPIC)", "PUT_FAILS"),
        ("QR(PAY)", "RNAME(GONE)", "UNDELIVERABLE"),
        ("QR(PAY)", "RQMNAME(QM9)", "NO_TRANSMISSION_QUEUE"),
        ("QR(PAY)", "RQMNAME(QM9) XMITQ(QM2)", "UNDELIVERABLE"),
        ("QR(PAY)", "RNAME(IN) RQMNAME(QM9)", "REPLY_TO_ALIAS"),
        ("CHL(QM1.QM2)", "CHLTYPE(SDR) XMITQ(GONE)", "NO_TRANSMISSION_QUEUE"),
        ("CHL(QM1.QM2)", "CHLTYPE(SDR) MAXMSGL(5)", "NOT_HONOURED"),
        ("QL(DLQ)", "USAGE(XMITQ)", "NO_CHANNEL"),
        ("QL(ORDERS)", "STREAMQ(GONE)", "NOT_HONOURED"),
        ("QL(ORDERS)", "STREAMQ(GONE) STRMQOS(MUSTDUP)", "PUT_FAILS"),
        ("QL(ORDERS)", "TRIGGER", "NOT_HONOURED"),
        ("QL(ORDERS)", "SCOPE(CELL)", "NOT_HONOURED"),
        ("QMGR", "DEFXMITQ(GONE)", "DEFXMITQ"),
        ("QMGR", "DEADQ(GONE)", "DEADQ"),
    ],
)
def test_a_finding_stands_at_the_command_that_set_its_attribute(
    name: str, alteration: str, code: str
) -> None:
    """Neither at the DEFINE, nor at an ALTER of another attribute before or after."""
    kind = " CHLTYPE(SDR)" if "CHLTYPE" in alteration else ""
    other = f"ALTER {name}{kind} DESCR('x')\n"
    script = f"{OK}{other}ALTER {name} {alteration}\n"
    assert (code, "QM1.mqsc", 10) in found(f"{script}{other}", PEER)


def test_a_definition_replaced_or_copied_stands_where_it_was_made() -> None:
    """An ALTER before it says nothing about the new one."""
    script = "DEF QA(A) TARGET(B)\nALTER QA(A) TARGET(C)\nDEF QA(A) TARGET(D) REPLACE\n"
    assert found(f"{script}DEF QA(E) LIKE(A)") == [
        ("ALIAS_TARGET", "QM1.mqsc", 3),
        ("ALIAS_TARGET", "QM1.mqsc", 4),
    ]


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        ("DEF QA(A) TARGET(IN)", "ALIAS_TARGET"),
        ("DEF QR(R) RNAME(GONE) RQMNAME(QM2)", "UNDELIVERABLE"),
        ("DEF QR(V) RQMNAME(QM9) XMITQ(GONE)", "NO_TRANSMISSION_QUEUE"),
        (
            "DEF CHL(QM1.QM2B) CHLTYPE(SDR) XMITQ(GONE) CONNAME(c)",
            "NO_RECEIVER NO_TRANSMISSION_QUEUE",
        ),
        ("ALTER QMGR DEADQ(GONE)\nALTER QMGR DESCR('x')", "DEADQ"),
        ("ALTER QMGR DEADQ(IN)", "DEADQ"),
        ("ALTER QMGR DEADQ(QM2)", "DEADQ"),
        # Reply-to queue alias: RNAME is a queue here, RQMNAME what others call this manager.
        ("DEF QR(ANSWER) RNAME(IN) RQMNAME(QM1_RELIEF)", "REPLY_TO_ALIAS"),
        ("DEF QR(ANSWER) RNAME(IN) RQMNAME(QM1)", "REPLY_TO_ALIAS"),
        ("DEF QR(ANSWER) RNAME(IN) RQMNAME(QM9) XMITQ(GONE)", "NO_TRANSMISSION_QUEUE"),
        ("DEF QR(ANSWER) RNAME(AWAY) RQMNAME(QM9)", "NO_TRANSMISSION_QUEUE"),
        # A remote definition holds no replies: not itself, not by an alias, and no other one.
        ("DEF QR(ANSWER) RNAME(ANSWER) RQMNAME(QM9)", "NO_TRANSMISSION_QUEUE"),
        ("DEF QR(R) RNAME(A) RQMNAME(QM9); DEF QA(A) TARGET(R)", "NO_TRANSMISSION_QUEUE"),
        ("DEF QR(ANSWER) RNAME(PAY) RQMNAME(QM9)", "NO_TRANSMISSION_QUEUE"),
    ],
)
def test_a_definition_that_leads_nowhere_is_found(line: str, codes: str) -> None:
    findings = found(f"{OK}{line}\n", PEER)
    assert {finding for finding in findings if finding[2] == 9} == {
        (code, "QM1.mqsc", 9) for code in codes.split()
    }


def test_an_alias_loop_is_found_at_both_aliases() -> None:
    findings = found("DEF QA(A) TARGET(B)\nDEF QA(B) TARGET(A)\nDEF QA(C) TARGET(A)")
    assert findings == [
        ("ALIAS_LOOP", "QM1.mqsc", 1),
        ("ALIAS_LOOP", "QM1.mqsc", 2),
        ("ALIAS_TARGET", "QM1.mqsc", 3),
    ]


def test_one_manager_alone_is_no_network() -> None:
    assert found(OK) == []


def test_a_channel_that_may_lead_to_several_managers_is_found() -> None:
    sender = "DEF QL(X) USAGE(XMITQ)\nDEF CHL(C) CHLTYPE(SDR) XMITQ(X) CONNAME(c)\n"
    sender += "DEF CHL(B) CHLTYPE(RCVR)"
    receiver = "DEF CHL(C) CHLTYPE(RCVR)"
    codes = found(sender, receiver, receiver)
    assert ("AMBIGUOUS_CHANNEL", "QM1.mqsc", 2) in codes


def test_bindings_are_checked_against_the_definitions() -> None:
    text = (
        "kind: bindings\nqueue_managers:\n  QM9: {}\n  QM1:\n    queues:\n"
        "      GONE: {topic: a}\n      IN: {topic: b}\n      ORDERS: {topic: QM1--DLQ}\n"
    )
    bindings = read_bindings(text, "b.yaml").bindings
    assert bindings is not None
    assert found(OK, PEER, bindings=bindings) == [
        ("ONE_TOPIC", "QM1.mqsc", 7),
        ("UNKNOWN_QUEUE_MANAGER", "b.yaml", 3),
        ("UNKNOWN_QUEUE", "b.yaml", 6),
        ("UNKNOWN_QUEUE", "b.yaml", 7),
    ]


def test_managers_of_other_kinds_may_be_bound() -> None:
    bindings = read_bindings("kind: bindings\nqueue_managers:\n  MOON: {}\n", "b.yaml").bindings
    assert bindings is not None
    network = MqNetwork([read_mqsc("", queue_manager="QM1").queue_manager])
    moon = MqeNetwork(queue_managers=(MqeQueueManager(name="MOON"),))
    assert check_together(Topology(mq=network, mqe=moon, bindings=bindings)) == []


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("DEF QL(A) GET(DISABLED)", "GET(DISABLED) of QLOCAL(A)"),
        ("DEF QA(A) TARGET(ORDERS) GET(DISABLED)", "GET(DISABLED) of QALIAS(A)"),
        ("DEF CHL(A) CHLTYPE(RCVR) MREXIT(X)", "MREXIT(X) of CHANNEL(A)"),
        ("DEF CHL(A) CHLTYPE(RCVR) MSGEXIT('lib(x)')", "MSGEXIT('lib(x)') of CHANNEL(A)"),
        ("ALTER QMGR CLWLEXIT('x')", "CLWLEXIT('x') of QMGR(QM1)"),
        ("DEF QL(A) TRIGGER INITQ(I) PROCESS(P)", "TRIGGER of QLOCAL(A)"),
        ("DEF QL(A) STREAMQ(GONE)", "STREAMQ(GONE) of QLOCAL(A)"),
    ],
)
def test_what_is_asked_in_vain_is_told(script: str, words: str) -> None:
    """An attribute that would change a message's way in IBM MQ, and does not here."""
    (finding,) = check_topology(MqNetwork([of(f"DEF QL(ORDERS)\n{script}")]))
    assert (finding.code, finding.severity) == ("NOT_HONOURED", "warning")
    assert finding.message.startswith(f"{words} has no effect: ")


@pytest.mark.parametrize(
    "script",
    [
        "DEF QL(A) CAPEXPRY(NOLIMIT) STREAMQ(' ') SCOPE(QMGR) MSGDLVSQ(PRIORITY)",
        "DEF CHL(A) CHLTYPE(RCVR) MRRTY(3) MRTMR(500) MREXIT(' ') PUTAUT(DEF) MAXMSGL(4194304)",
        "DEF QL(SYSTEM.CHANNEL.INITQ) GET(DISABLED) REPLACE",
        "DEF QL(A) NOTRIGGER INITQ(I) PROCESS(P)",
        "DEF QL(A) TRIGGER TRIGTYPE(none)",
        "DEF QL(A) USAGE(XMITQ) TRIGGER INITQ(SYSTEM.CHANNEL.INITQ)",
        "DEF TOPIC(T) TOPICSTR(t) USEDLQ(ASPARENT) PMSGDLV(ALLDUR) CLUSTER(' ')",
    ],
)
def test_defaults_ask_for_nothing(script: str) -> None:
    """What ``dmpmqcfg -a`` prints of every object is no finding."""
    assert check_topology(MqNetwork([of(script)])) == []


@pytest.mark.parametrize(
    ("senders", "unconnected"),
    [
        ({}, []),
        ({"QM1": "TO.QM2", "QM2": "TO.QM1", "QM3": "TO.QM1"}, []),
        ({"QM1": "TO.QM2", "QM2": "TO.QM1", "QM3": "TO.QM4", "QM4": "TO.QM2"}, ["QM3"]),
        ({"QM2": "TO.QM1", "QM3": "TO.QM2"}, ["QM1"]),
    ],
)
def test_a_member_that_finds_no_full_repository_is_noted(
    senders: dict[str, str], unconnected: list[str]
) -> None:
    managers = []
    for name in ("QM1", "QM2", "QM3", *(["QM4"] if "QM4" in senders else [])):
        script = f"DEF CHL(TO.{name}) CHLTYPE(CLUSRCVR) CLUSTER(C) CONNAME(h)\n"
        if name in {"QM1", "QM2"}:
            script += "ALTER QMGR REPOS(C)\n"
        if name in senders:
            script += f"DEF CHL({senders[name]}) CHLTYPE(CLUSSDR) CLUSTER(C) CONNAME(h)\n"
        managers.append(read_mqsc(script, queue_manager=name).queue_manager)
    notes = check_topology(MqNetwork(managers))
    assert {(note.code, note.severity) for note in notes} <= {("NO_REPOSITORY_CHANNEL", "note")}
    assert [note.message.split(" leads")[0].rsplit(" ", 1)[1] for note in notes] == unconnected

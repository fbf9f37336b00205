"""Name resolution row by row: every condition of the table and of the reason codes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.conformance.mq_notation import read_topology
from tests.topology.mq.routes import PutMessage, PutResult, put_message

from redrive.messages.reasons import Reason
from redrive.topology.mq.network import MqNetwork
from redrive.topology.mq.resolution import open_queue
from redrive.topology.mq.results import (
    Bind,
    Call,
    OpenOption,
    OpenRequest,
    Persistence,
    Resolution,
    TargetKind,
)
from redrive.topology.names import Names

XMIT = "DEF QL(QM2) USAGE(XMITQ)"
CLUSTER_QUEUE = "SYSTEM.CLUSTER.TRANSMIT.QUEUE"
GROUP = "QSG(SQ1) MEMBERS(QM1,QM2) IGQ(ENABLED)"


def network(*lines: str) -> MqNetwork:
    """One manager QM1; lines that start with another one's name belong to that."""
    topology = read_topology(line if line[:4] == "QM2:" else f"QM1: {line}" for line in lines)
    topology.manager("QM1")
    return topology.network()


def opened(*lines: str, queue: str, manager: str = "", **options: Any) -> Resolution:
    request = OpenRequest(queue=queue, queue_manager=manager, **options)
    return open_queue(network(*lines), "QM1", request)


def put(*lines: str, queue: str, manager: str = "", **message: Any) -> PutResult:
    depths = message.pop("depths", None)
    call, bind = message.pop("call", Call.MQOPEN), message.pop("bind", Bind.AS_Q_DEF)
    request = OpenRequest(queue=queue, queue_manager=manager, call=call, bind=bind)
    return put_message(network(*lines), "QM1", request, PutMessage(**message), depths=depths)


def led_to(resolution: Resolution) -> tuple[str, str, str]:
    assert not resolution.is_failed, resolution.detail
    return (
        resolution.resolved_queue,
        resolution.resolved_queue_manager,
        resolution.transmission_queue,
    )


@pytest.mark.parametrize(
    ("lines", "queue", "manager", "expected", "rows"),
    [
        (["DEF QL(L)"], "L", "", ("L", "QM1", ""), "R1"),
        (["DEF QL(L)"], "L   ", "QM1  ", ("L", "QM1", ""), "R1"),
        (["DEF QL(L) CLUSNL(N)"], "L", "QM1", ("L", "QM1", ""), "R3"),
        (["DEF QL(L) CLUSTER(C)"], "L", "", ("L", "QM1", ""), "R2"),
        (["DEF QA(A) TARGET(L) CLUSTER(C)", "DEF QL(L)"], "A", "QM1", ("L", "QM1", ""), "R6 R1"),
        (["DEF QA(A) TARGET(L) CLUSTER(C)", "DEF QL(L)"], "A", "", ("L", "QM1", ""), "R7 R1"),
        (
            ["DEF QA(A) TARGET(L) CLUSTER(C)", "DEF QL(L) CLUSTER(C)"],
            "A",
            "QM1",
            ("L", "QM1", ""),
            "R6 R3",
        ),
        (["DEF QR(R) RNAME(Q) RQMNAME(QM2) XMITQ(X)", "DEF QL(X) USAGE(XMITQ)"], "R", "",
         ("Q", "QM2", "X"), "R8 R8"),
        (["DEF QR(R) RNAME(Q) RQMNAME(QM2)", "DEF QL(D) USAGE(XMITQ)",
          "ALTER QMGR DEFXMITQ(D)"], "R", "QM1", ("Q", "QM2", "D"), "R8 R8"),
        (["DEF QR(R) RNAME(Q) RQMNAME(QM2)", "CLQM(QM2) CLUSTER(C)"], "R", "",
         ("Q", "QM2", CLUSTER_QUEUE), "R8 R8"),
        (["DEF QR(R) RNAME(Q) RQMNAME(QM2)", GROUP], "R", "",
         ("Q", "QM2", "SYSTEM.QSG.TRANSMIT.QUEUE"), "R8 R8"),
        (["CLQ(I) ON(QM2) CLUSTER(C)"], "I", "", ("I", "QM2", CLUSTER_QUEUE), "R9 R9"),
        (["CLQ(I) ON(QM2) CLUSTER(C)", GROUP], "I", "",
         ("I", "QM2", "SYSTEM.QSG.TRANSMIT.QUEUE"), "R9 R9"),
        ([GROUP, "SHQ(S)"], "S", "QM2", ("S", "QM1", ""), "R11"),
        ([GROUP, "SHQ(S)"], "S", "", ("S", "QM1", ""), "R1"),
        ([GROUP, "DEF QL(L)"], "L", "SQ1", ("L", "QM1", ""), "R1"),
        ([XMIT], "ANY", "QM2", ("ANY", "QM2", "QM2"), "R12"),
        (["DEF QR(A) RQMNAME(FAR) XMITQ(QM2)", XMIT], "Q", "A", ("Q", "FAR", "QM2"), "R13 R13"),
        (["DEF QR(A) RQMNAME(QM2)", XMIT], "Q", "A", ("Q", "QM2", "QM2"), "R13 R13"),
        (["DEF QR(A) RQMNAME(FAR)", XMIT, "ALTER QMGR DEFXMITQ(QM2)"], "Q", "A",
         ("Q", "FAR", "QM2"), "R13 R13"),
        (["DEF QR(A) RQMNAME(QM1)", "DEF QA(N) TARGET(L)", "DEF QL(L)"], "N", "A",
         ("L", "QM1", ""), "R13 R5 R1"),
        (["DEF QR(A) RQMNAME(B) XMITQ(QM2)", "DEF QR(B) RQMNAME(FAR)", XMIT], "Q", "A",
         ("Q", "B", "QM2"), "R13 R13"),
        (["DEF QR(A)", "DEF QL(L)"], "L", "A", ("L", "QM1", ""), "R13 R1"),
        ([GROUP, "DEF QR(A) RQMNAME(SQ1)", "DEF QL(L)"], "L", "A", ("L", "QM1", ""), "R13 R1"),
        (["CLQM(QM2) CLUSTER(C)"], "Q", "QM2", ("Q", "QM2", CLUSTER_QUEUE), "R14"),
        (["CLQ(VIRTUAL) ON(QM2) CLUSTER(C) TYPE(QMALIAS)"], "Q", "VIRTUAL",
         ("Q", "VIRTUAL", CLUSTER_QUEUE), "R14"),
        ([XMIT, "ALTER QMGR DEFXMITQ(QM2)"], "Q", "FAR", ("Q", "FAR", "QM2"), "R15"),
        (["DEF QR(QM1) RNAME(X) RQMNAME(QM2)", "DEF QL(L)"], "L", "QM1", ("L", "QM1", ""), "R1"),
    ],
)  # fmt: skip
def test_a_row_of_the_table(
    lines: list[str], queue: str, manager: str, expected: tuple[str, str, str], rows: str
) -> None:
    resolution = opened(*lines, queue=queue, manager=manager)
    assert led_to(resolution) == expected
    assert " ".join(step.row for step in resolution.steps) == rows


@pytest.mark.parametrize(
    ("lines", "queue", "manager", "reason"),
    [
        (["DEF QA(A) TARGET(M)", "DEF QM(M)"], "A", "", 2001),
        (["DEF QA(A) TARGET(B) CLUSTER(C)", "DEF QA(B) TARGET(L)", "DEF QL(L)",
          "CLQ(B) ON(QM2) CLUSTER(C)"], "A", "", 2001),
        (["DEF QA(A) TARGET(A) CLUSTER(C)"], "A", "", 2001),
        (["DEF QA(A) TARGET(A)", "CLQ(A) ON(QM2) CLUSTER(C)"], "A", "", 2001),
        (["DEF QA(A) TARGET(A) CLUSTER(C)", "CLQ(A) ON(QM2) CLUSTER(C)"], "A", "QM1", 2001),
        (["DEF QA(A)"], "A", "", 2082),
        (["DEF QA(A) TARGET(I)", "CLQ(I) ON(QM2) CLUSTER(C)"], "A", "QM1", 2082),
        (["DEF QA(A) TARGET(T) TARGTYPE(TOPIC)"], "A", "", 2082),
        (["CLQ(I) ON(QM2) CLUSTER(C)"], "I", "QM1", 2085),
        (["DEF QR(A) RQMNAME(QM1)"], "NOPE", "A", 2085),
        (["DEF QR(A)"], "NOPE", "A", 2085),
        (["DEF QR(A) RQMNAME(QM1)", "CLQ(I) ON(QM2) CLUSTER(C)"], "I", "A", 2085),
        (["DEF QR(A) RQMNAME(QM1)", "DEF QR(R) RNAME(Q) RQMNAME(QM2)", XMIT], "R", "A", 2085),
        (["DEF QR(A)", "DEF QR(R) RNAME(Q) RQMNAME(QM2)", XMIT], "R", "A", 2085),
        ([], "Q", "QM 2", 2086),
        ([], "Q", "Q" * 49, 2086),
        ([], "Q", "QM-2", 2086),
        # 2087 (a) to (h)
        (["DEF QR(R) RNAME(Q)", XMIT], "R", "", 2087),
        (["DEF QR(R) RNAME(Q) RQMNAME(QM1) XMITQ(QM2)", XMIT], "R", "", 2087),
        ([GROUP, "DEF QR(R) RNAME(Q) RQMNAME(SQ1)"], "R", "", 2087),
        (["DEF QA(A) TARGET(R)", "DEF QR(R) RNAME(Q)"], "A", "", 2087),
        (["DEF QR(R) RNAME(Q) RQMNAME(QM2)"], "R", "", 2087),
        (["DEF QR(R) RNAME(I) RQMNAME(C)", "CLQ(I) ON(QM2) CLUSTER(C)"], "R", "", 2087),
        (["QSG(SQ1) MEMBERS(QM1,QM2) IGQ(DISABLED)"], "Q", "QM2", 2087),
        (["DEF QR(R) RNAME(Q) RQMNAME(QM2)", XMIT], "Q", "R", 2087),
        (["DEF QR(A) RQMNAME(QM2)"], "Q", "A", 2087),
        ([], "Q", "QM2", 2087),
        (["DEF QM(M)"], "Q", "M", 2087),
        (["DEF QA(A) TARGET(L)", "DEF QL(L)"], "Q", "A", 2087),
        (["DEF QR(R) RNAME(Q) RQMNAME(QM2) XMITQ(X)", "DEF QA(X) TARGET(QM2)", XMIT], "R", "",
         2091),
        (["DEF QR(R) RNAME(Q) RQMNAME(QM2)", "DEF QM(QM2)"], "R", "", 2091),
        (["DEF QR(A) RQMNAME(B)", "DEF QR(B) RQMNAME(QM2)", XMIT], "Q", "A", 2091),
        (["DEF QR(QM3) RQMNAME(QM3)"], "Q", "QM3", 2091),
        (["DEF QL(QM2)"], "Q", "QM2", 2092),
        (["DEF QR(A) RQMNAME(FAR) XMITQ(N)", "DEF QL(N)"], "Q", "A", 2092),
        (["DEF QR(A) RQMNAME(QM2)", "DEF QL(QM2)"], "Q", "A", 2092),
        (["QSG(SQ1) MEMBERS(QM1,QM2) IGQ(DISABLED)",
          "DEF QR(A) RQMNAME(QM2) XMITQ(SYSTEM.QSG.TRANSMIT.QUEUE)"], "Q", "A", 2092),
        (["DEF QR(R) RQMNAME(QM2) XMITQ(QM2)", XMIT], "R", "", 2184),
        ([XMIT], "", "QM2", 2184),
        (["DEF QR(A) RQMNAME(QM1)"], "", "A", 2184),
        (["DEF QR(A) RQMNAME(FAR) XMITQ(X)", XMIT], "Q", "A", 2196),
        (["ALTER QMGR DEFXMITQ(D)"], "Q", "FAR", 2197),
        (["ALTER QMGR DEFXMITQ(D)", "DEF QR(D) RNAME(X)"], "Q", "FAR", 2198),
        (["ALTER QMGR DEFXMITQ(D)", "DEF QL(D)"], "Q", "FAR", 2199),
        (["ALTER QMGR DEFXMITQ(SYSTEM.CLUSTER.TRANSMIT.QUEUE)"], "Q", "FAR", 2199),
        ([GROUP, "SHQ(S)", "DEF QL(S)"], "S", "", 2343),
        ([GROUP, "SHQ(S)", "DEF QL(S)", "DEF QA(A) TARGET(S)"], "A", "", 2343),
    ],
)  # fmt: skip
def test_a_reason_code(lines: list[str], queue: str, manager: str, reason: int) -> None:
    """The open fails with the code, names what is wrong, and resolves nothing."""
    resolution = opened(*lines, queue=queue, manager=manager)
    assert int(resolution.reason) == reason, resolution.detail
    assert resolution.detail
    assert resolution.target is TargetKind.NOTHING
    assert resolution.resolved_queue == ""


@pytest.mark.parametrize("option", [OpenOption.INPUT, OpenOption.BROWSE, OpenOption.SET])
@pytest.mark.parametrize(
    ("lines", "queue", "manager", "reason"),
    [
        (["DEF QR(R) RNAME(Q) RQMNAME(QM2)", XMIT], "R", "", 2045),
        (["DEF QA(A) TARGET(R)", "DEF QR(R) RNAME(Q) RQMNAME(QM2)", XMIT], "A", "", 2045),
        ([XMIT], "Q", "QM2", 2045),
        (["DEF QR(A) RQMNAME(FAR) XMITQ(QM2)", XMIT], "Q", "A", 2045),
        (["CLQM(QM2) CLUSTER(C)"], "Q", "QM2", 2045),
        (["DEF QR(A) RQMNAME(QM1)", "DEF QL(L)"], "L", "A", 2045),
        (["DEF QA(A) TARGET(T) TARGTYPE(TOPIC)", "TOPIC(T)"], "A", "", 2045),
        (["CLQ(I) ON(QM2) CLUSTER(C)"], "I", "", 2085),
        (["DEF QA(A) TARGET(I)", "CLQ(I) ON(QM2) CLUSTER(C)"], "A", "", 2085),
        (["DEF QL(I) CLUSTER(C) CLWLUSEQ(ANY)", "CLQ(I) ON(QM2) CLUSTER(C) CHRANK(9)"], "I", "",
         0),
        (["DEF QR(A)", "DEF QL(L)"], "L", "A", 0),
    ],
)  # fmt: skip
def test_input_browse_and_set_need_a_local_queue(
    option: OpenOption, lines: list[str], queue: str, manager: str, reason: int
) -> None:
    for options in (option, option | OpenOption.OUTPUT):
        resolution = opened(*lines, queue=queue, manager=manager, options=options)
        assert int(resolution.reason) == reason, resolution.detail
        assert resolution.is_failed or resolution.destination.queue_manager == "QM1"


@pytest.mark.parametrize(
    ("lines", "queue", "manager", "reason"),
    [
        (["DEF QR(R) RNAME(Q) RQMNAME(QM2)", XMIT], "R", "", 0),
        ([XMIT], "Q", "QM2", 0),
        (["DEF QL(L)"], "L", "", 0),
        (["CLQ(I) ON(QM2) CLUSTER(C) PUT(DISABLED)"], "I", "", 0),
        (["DEF QR(A) RQMNAME(QM1)", "DEF QL(L)"], "L", "A", 2045),
    ],
)
def test_inquire_alone_reports_no_resolved_names(
    lines: list[str], queue: str, manager: str, reason: int
) -> None:
    options = OpenOption.INQUIRE
    resolution = opened(*lines, queue=queue, manager=manager, options=options)
    assert int(resolution.reason) == reason
    assert (resolution.resolved_queue, resolution.resolved_queue_manager) == ("", "")


def test_an_open_for_nothing_is_refused() -> None:
    resolution = opened("DEF QL(L)", queue="L", options=OpenOption(0))
    assert resolution.reason is Reason.OPTIONS_ERROR


def test_sqqmname_written_as_use_sends_the_put_to_the_member() -> None:
    """A reading: the table opens a shared queue here unless SQQMNAME(USE) is written."""
    lines = [GROUP, "SHQ(S)", "ALTER QMGR SQQMNAME(USE)"]
    away = opened(*lines, queue="S", manager="QM2")
    assert led_to(away) == ("S", "QM2", "SYSTEM.QSG.TRANSMIT.QUEUE")
    lines[-1] = "ALTER QMGR SQQMNAME(IGNORE)"
    assert led_to(opened(*lines, queue="S", manager="QM2")) == ("S", "QM1", "")


def test_an_alias_for_a_topic_resolves_to_no_queue() -> None:
    result = put("DEF QA(A) TARGET(T) TARGTYPE(TOPIC)", "TOPIC(T)", queue="A")
    assert (result.resolution.reason, result.reason) == (0, 2298)
    assert result.resolution.target is TargetKind.TOPIC
    assert (result.resolution.resolved_queue, result.resolution.transmission_queue) == ("", "")


# Model queues


@pytest.mark.parametrize(
    ("asked", "pattern"),
    [
        ("REPLY.*", r"REPLY\.[0-9A-F]{16}"),
        ("*", r"[0-9A-F]{16}"),
        ("A" * 32 + "*", "A{32}[0-9A-F]{16}"),
        ("AMQ.*   ", r"AMQ\.[0-9A-F]{16}"),
        ("EXACT.NAME", "EXACT.NAME"),
        ("A" * 48, "A{48}"),
    ],
)
def test_dynamic_queue_names(asked: str, pattern: str) -> None:
    """An asterisk at the end is replaced by characters; without one the name is used as it is."""
    resolution = opened("DEF QM(M)", queue="M", dynamic_queue=asked)
    assert resolution.target is TargetKind.DYNAMIC
    assert re.fullmatch(pattern, resolution.resolved_queue)
    assert len(resolution.resolved_queue) <= 48
    assert resolution.resolved_queue_manager == "QM1"


@pytest.mark.parametrize(
    "asked", ["", "   ", "A*B", "A B", "A-B", "**", "A" * 33 + "*", "A" * 49, "é"]
)
def test_bad_dynamic_queue_names(asked: str) -> None:
    """Blank names, forbidden characters and an asterisk elsewhere or too late fail with 2011."""
    resolution = opened("DEF QM(M)", queue="M", dynamic_queue=asked)
    assert resolution.reason is Reason.DYNAMIC_Q_NAME_ERROR


def test_generated_names_depend_on_the_seed_and_are_free() -> None:
    names = {opened("DEF QM(M)", queue="M", seed=seed).resolved_queue for seed in range(20)}
    assert len(names) == 20
    first = opened("DEF QM(M)", queue="M").resolved_queue
    assert opened("DEF QM(M)", f"DEF QL({first})", queue="M").resolved_queue not in {first, ""}
    taken = opened("DEF QM(M)", "DEF QL(X)", queue="M", dynamic_queue="X")
    assert taken.reason is Reason.OBJECT_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("lines", "manager", "call"),
    [(["DEF QM(M)"], "", Call.MQPUT1), (["DEF QM(M)", "DEF QR(A) RQMNAME(QM1)"], "A", Call.MQOPEN)],
)
def test_a_model_queue_is_opened_by_its_own_name(
    lines: list[str], manager: str, call: Call
) -> None:
    """MQPUT1, and an alias of the manager itself, fail with 2057."""
    resolution = opened(*lines, queue="M", manager=manager, call=call)
    assert resolution.reason is Reason.Q_TYPE_ERROR


# Puts


@pytest.mark.parametrize(
    ("lines", "queue", "manager"),
    [
        (["DEF QL(L) PUT(DISABLED)"], "L", ""),
        (["DEF QA(A) TARGET(L) PUT(DISABLED)", "DEF QL(L)"], "A", ""),
        (["DEF QA(A) TARGET(L)", "DEF QL(L) PUT(DISABLED)"], "A", ""),
        (["DEF QR(R) RNAME(Q) RQMNAME(QM2) PUT(DISABLED)", XMIT], "R", ""),
        (["DEF QR(A) RQMNAME(QM1) PUT(DISABLED)", "DEF QL(L)"], "L", "A"),
        (["DEF QR(A) PUT(DISABLED)", "DEF QL(L)"], "L", "A"),
        (["DEF QL(QM2) USAGE(XMITQ) PUT(DISABLED)"], "Q", "QM2"),
        (["DEF QL(D) USAGE(XMITQ) PUT(DISABLED)", "ALTER QMGR DEFXMITQ(D)"], "Q", "FAR"),
        (["CLQ(I) ON(QM2) CLUSTER(C)", f"ALTER QL({CLUSTER_QUEUE}) PUT(DISABLED)"], "I", ""),
        (["CLQ(V) ON(QM2) CLUSTER(C) TYPE(QMALIAS) PUT(DISABLED)"], "Q", "V"),
        (["DEF QM(M) PUT(DISABLED)"], "M", ""),
    ],
)
def test_a_disabled_object_anywhere_on_the_path_stops_the_put(
    lines: list[str], queue: str, manager: str
) -> None:
    """The put fails with 2051; the open does not."""
    assert not opened(*lines, queue=queue, manager=manager).is_failed
    result = put(*lines, queue=queue, manager=manager)
    assert result.reason is Reason.PUT_INHIBITED
    assert "PUT(DISABLED)" in result.detail
    assert not result.resolution.limits.put_enabled


@pytest.mark.parametrize(
    ("lines", "queue", "message", "reason"),
    [
        (["DEF QL(L) MAXMSGL(9)"], "L", {"length": 10}, 2030),
        (["DEF QL(L) MAXMSGL(9)", "ALTER QMGR MAXMSGL(8)"], "L", {"length": 10}, 2030),
        (["DEF QL(L) MAXMSGL(9)", "ALTER QMGR MAXMSGL(8)"], "L", {"length": 9}, 2031),
        (["DEF QL(L)"], "L", {"length": 4_194_304}, 0),
        (["DEF QL(L)"], "L", {"length": 4_194_305}, 2030),
        (["DEF QR(R) RNAME(Q) RQMNAME(QM2)", "DEF QL(QM2) USAGE(XMITQ) MAXMSGL(5)"], "R",
         {"length": 6}, 2030),
        (["DEF QL(L) MAXDEPTH(2)"], "L", {"depths": {"L": 1}}, 0),
        (["DEF QL(L) MAXDEPTH(2)"], "L", {"depths": {"L": 2}}, 2053),
        (["DEF QA(A) TARGET(L)", "DEF QL(L) MAXDEPTH(2)"], "A", {"depths": {"L": 2}}, 2053),
        (["DEF QM(M)"], "M", {"persistence": Persistence.PERSISTENT}, 2048),
        (["DEF QM(M) DEFPSIST(YES)"], "M", {}, 2048),
        (["DEF QM(M) DEFTYPE(PERMDYN)"], "M", {"persistence": Persistence.PERSISTENT}, 0),
    ],
)  # fmt: skip
def test_limits_of_the_queue_that_is_written(
    lines: list[str], queue: str, message: dict[str, Any], reason: int
) -> None:
    assert int(put(*lines, queue=queue, **message).reason) == reason


@pytest.mark.parametrize(
    ("lines", "queue", "manager", "persistent"),
    [
        (["DEF QL(L) DEFPSIST(YES)"], "L", "", True),
        (["DEF QA(A) TARGET(L) DEFPSIST(YES)", "DEF QL(L)"], "A", "", True),
        (["DEF QR(R) RNAME(Q) RQMNAME(QM2) DEFPSIST(YES)", XMIT], "R", "", True),
        (["DEF QR(A) RQMNAME(QM1) DEFPSIST(YES)", "DEF QL(L)"], "L", "A", True),
        (["DEF QL(QM2) USAGE(XMITQ) DEFPSIST(YES)"], "Q", "QM2", True),
        (["CLQ(I) ON(QM2) CLUSTER(C) DEFPSIST(YES)"], "I", "", True),
        (["CLQ(I) ON(QM2) CLUSTER(C)"], "I", "", False),
    ],
)
def test_defaults_come_from_the_first_object(
    lines: list[str], queue: str, manager: str, *, persistent: bool
) -> None:
    assert put(*lines, queue=queue, manager=manager).is_persistent is persistent
    explicit = Persistence.NOT_PERSISTENT
    assert not put(*lines, queue=queue, manager=manager, persistence=explicit).is_persistent


@pytest.mark.parametrize(
    ("queue", "manager", "expected"),
    [
        ("ANSWER.ALIAS", "", "QRR@QMA.CLASS1"),
        ("ANSWER.ALIAS", "QM9", "ANSWER.ALIAS@QM9"),
        ("L", "", "L@QM1"),
        ("UNKNOWN", "", "UNKNOWN@QM1"),
        ("", "", "@QM1"),
    ],
)
def test_reply_to_names_travel_completed(queue: str, manager: str, expected: str) -> None:
    """A QREMOTE replaces both names, XMITQ apart; a given manager keeps them as they are."""
    result = put(
        "DEF QR(ANSWER.ALIAS) RNAME(QRR) RQMNAME(QMA.CLASS1) XMITQ(NOPE)",
        "DEF QL(L)",
        queue="L",
        reply_to=Names(queue=queue, queue_manager=manager),
    )
    assert str(result.reply_to) == expected


def test_a_put_needs_output() -> None:
    """A put on an object opened for input only fails with 2039."""
    request = OpenRequest(queue="L", options=OpenOption.INPUT)
    result = put_message(network("DEF QL(L)"), "QM1", request, PutMessage())
    assert result.reason is Reason.NOT_OPEN_FOR_OUTPUT


# Cluster queues

BOTH = ("CLQ(I) ON(QM2) CLUSTER(C)", "CLQ(I) ON(QM3) CLUSTER(C)")
DISABLED = tuple(f"{line} PUT(DISABLED)" for line in BOTH)


@pytest.mark.parametrize(
    ("lines", "bind", "call", "reason"),
    [
        (DISABLED, Bind.ON_OPEN, Call.MQOPEN, 2268),
        (DISABLED, Bind.NOT_FIXED, Call.MQOPEN, 2270),
        (DISABLED, Bind.ON_OPEN, Call.MQPUT1, 2270),
        ((*DISABLED, "DEF QL(I) CLUSTER(C) PUT(DISABLED)"), Bind.ON_OPEN, Call.MQOPEN, 2051),
        ((DISABLED[0], BOTH[1]), Bind.ON_OPEN, Call.MQOPEN, 0),
        ((DISABLED[0], "DEF QL(I) CLUSTER(C) PUT(DISABLED)", BOTH[1]), Bind.ON_OPEN, Call.MQOPEN,
         0),
    ],
)  # fmt: skip
def test_disabled_instances(lines: tuple[str, ...], bind: Bind, call: Call, reason: int) -> None:
    """Disabled instances are set aside; with none left the code tells when that was noticed."""
    assert int(put(*lines, queue="I", bind=bind, call=call).reason) == reason


def test_an_open_that_binds_nothing_succeeds_although_all_are_disabled() -> None:
    resolution = opened(*DISABLED, queue="I", bind=Bind.NOT_FIXED)
    assert resolution.target is TargetKind.PER_MESSAGE
    assert (resolution.resolved_queue, resolution.resolved_queue_manager) == ("I", "")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("CLQ(I) ON(QM2) CLUSTER(C) DEFBIND(NOTFIXED)", TargetKind.PER_MESSAGE),
        ("CLQ(I) ON(QM2) CLUSTER(C) DEFBIND(OPEN)", TargetKind.REMOTE),
        ("CLQ(I) ON(QM2) CLUSTER(C) DEFBIND(GROUP)", TargetKind.REMOTE),
    ],
)
def test_bind_as_defined_by_the_chosen_instance(line: str, expected: TargetKind) -> None:
    """Without a local object DEFBIND of the instance decides."""
    assert opened(line, queue="I").target is expected


def test_a_local_definition_gives_the_defaults_of_a_cluster_queue() -> None:
    """DEFBIND and DEFPSIST are the local ones even if another instance gets the message."""
    away = "CLQ(I) ON(QM2) CLUSTER(C) CHRANK(1)"
    local = "DEF QL(I) CLUSTER(C) CLWLUSEQ(ANY) PUT(DISABLED)"
    result = put(f"{local} DEFPSIST(YES)", away, queue="I")
    assert not result.is_failed
    assert result.resolution.resolved_queue_manager == "QM2"
    assert result.is_persistent
    assert opened(f"{local} DEFBIND(NOTFIXED)", away, queue="I").target is TargetKind.PER_MESSAGE
    other = f"{away} DEFBIND(NOTFIXED) DEFPSIST(YES)"
    assert opened(local, other, queue="I").target is TargetKind.REMOTE
    assert not put(local, other, queue="I").is_persistent


def test_bind_as_defined_by_the_first_object() -> None:
    """A local alias decides with its DEFBIND before the instance does."""
    lines = ["DEF QA(A) TARGET(I) DEFBIND(NOTFIXED)", BOTH[0]]
    assert opened(*lines, queue="A").target is TargetKind.PER_MESSAGE


@pytest.mark.parametrize(
    ("local", "manager", "from_cluster", "expected"),
    [
        ("LOCAL", "ANY", False, "QM1"),
        ("QMGR", "LOCAL", False, "QM1"),
        ("QMGR", "ANY", False, "QM2"),
        ("ANY", "LOCAL", False, "QM2"),
        ("ANY", "ANY", True, "QM1"),
    ],
)
def test_a_local_instance_may_win_at_once(
    local: str, manager: str, expected: str, *, from_cluster: bool
) -> None:
    """CLWLUSEQ of queue and manager decide; what came over a cluster channel stays here."""
    resolution = opened(
        f"DEF QL(I) CLUSTER(C) CLWLUSEQ({local})",
        f"ALTER QMGR CLWLUSEQ({manager})",
        "CLQ(I) ON(QM2) CLUSTER(C) CHRANK(1)",
        queue="I",
        from_cluster_channel=from_cluster,
    )
    assert resolution.resolved_queue_manager == expected


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("CHRANK(1) QRANK(0)", "CHRANK(0) QRANK(9)"),
        ("QRANK(1) SUSPEND(YES)", "QRANK(0)"),
        ("STATUS(STOPPED)", "SUSPEND(YES)"),
        ("STATUS(RUNNING)", "STATUS(STARTING) NETPRTY(9)"),
        ("STATUS(INACTIVE)", "STATUS(RETRYING) CHPRTY(9)"),
        ("STATUS(BINDING)", "STATUS(RETRYING)"),
        ("STATUS(RETRYING)", "STATUS(STOPPED)"),
        ("NETPRTY(1)", "CHPRTY(9)"),
        ("CHPRTY(1)", "QPRTY(9)"),
        ("QPRTY(1)", "WEIGHT(99)"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_each_test_of_the_workload_comes_before_the_next(
    better: str, worse: str, *, first: bool
) -> None:
    lines = [f"CLQ(I) ON(QM2) CLUSTER(C) {better}", f"CLQ(I) ON(QM3) CLUSTER(C) {worse}"]
    lines = lines if first else lines[::-1]
    for seed in range(5):
        assert opened(*lines, queue="I", seed=seed).resolved_queue_manager == "QM2"


def test_weights_share_the_messages() -> None:
    lines = ["CLQ(I) ON(QM2) CLUSTER(C) WEIGHT(75)", "CLQ(I) ON(QM3) CLUSTER(C) WEIGHT(25)"]
    net = network(*lines)
    chosen = [
        open_queue(net, "QM1", OpenRequest(queue="I", seed=seed)).resolved_queue_manager
        for seed in range(4000)
    ]
    assert abs(chosen.count("QM2") / 4000 - 0.75) < 0.03


def test_only_so_many_channels_are_used() -> None:
    """CLWLMRUC limits the instances that share the messages."""
    net = network(*BOTH, "ALTER QMGR CLWLMRUC(1)")
    chosen = {
        open_queue(net, "QM1", OpenRequest(queue="I", seed=seed)).resolved_queue_manager
        for seed in range(50)
    }
    assert chosen == {"QM2"}


def test_steps_tell_names_and_place() -> None:
    resolution = opened("DEF QA(A) TARGET(R)", "DEF QR(R) RNAME(Q) RQMNAME(QM2)", XMIT, queue="A")
    steps = [(str(step.definition), str(step.before), str(step.after)) for step in resolution.steps]
    assert steps == [
        ("QALIAS(A)", "A", "R"),
        ("QREMOTE(R)", "R", "Q@QM2"),
        ("QLOCAL(QM2)", "Q@QM2", "Q@QM2"),
    ]
    assert all(step.location is not None and step.location.line == 1 for step in resolution.steps)

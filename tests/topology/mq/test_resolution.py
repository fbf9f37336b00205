"""Name resolution row by row: every condition of the table and of the reason codes."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from tests.cases import cases_beside
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

GROUP = "QSG(SQ1) MEMBERS(QM1,QM2) IGQ(ENABLED)"
in_table = cases_beside(__file__)


def network(lines: str) -> MqNetwork:
    """One manager QM1 with these definitions, a semicolon between them."""
    topology = read_topology(f"QM1: {line}" for line in filter(None, lines.split("; ")))
    topology.manager("QM1")
    return topology.network()


def opened(topology: str, names: str, **options: Any) -> Resolution:
    queue, _, manager = names.partition("@")
    request = OpenRequest(queue=queue, queue_manager=manager, **options)
    return open_queue(network(topology), "QM1", request)


def put(topology: str, names: str, **message: Any) -> PutResult:
    queue, _, manager = names.partition("@")
    call, bind = message.pop("call", Call.MQOPEN), message.pop("bind", Bind.AS_Q_DEF)
    request = OpenRequest(queue=queue, queue_manager=manager, call=call, bind=bind)
    return put_message(network(topology), "QM1", request, PutMessage(**message))


def led_to(resolution: Resolution) -> tuple[str, str, str]:
    assert not resolution.is_failed, resolution.detail
    return (
        resolution.resolved_queue,
        resolution.resolved_queue_manager,
        resolution.transmission_queue,
    )


@in_table
def test_a_row_of_the_table(rows: str, names: str, leads_to: str, topology: str) -> None:
    resolution = opened(topology, names)
    assert " ".join(name or "-" for name in led_to(resolution)) == leads_to
    assert " ".join(step.row for step in resolution.steps) == rows


@in_table
def test_a_reason_code(reason: int, names: str, topology: str) -> None:
    """The open fails with the code, names what is wrong, and resolves nothing."""
    resolution = opened(topology, names)
    assert int(resolution.reason) == reason, resolution.detail
    assert resolution.detail
    assert resolution.target is TargetKind.NOTHING
    assert resolution.resolved_queue == ""


@pytest.mark.parametrize("option", [OpenOption.INPUT, OpenOption.BROWSE, OpenOption.SET])
@in_table
def test_input_browse_and_set_need_a_local_queue(
    option: OpenOption, reason: int, names: str, topology: str
) -> None:
    for options in (option, option | OpenOption.OUTPUT):
        resolution = opened(topology, names, options=options)
        assert int(resolution.reason) == reason, resolution.detail
        assert resolution.is_failed or resolution.destination.queue_manager == "QM1"


@in_table
def test_inquire_alone_reports_no_resolved_names(reason: int, names: str, topology: str) -> None:
    resolution = opened(topology, names, options=OpenOption.INQUIRE)
    assert int(resolution.reason) == reason
    assert (resolution.resolved_queue, resolution.resolved_queue_manager) == ("", "")


def test_an_open_for_nothing_is_refused() -> None:
    resolution = opened("DEF QL(L)", "L", options=OpenOption(0))
    assert resolution.reason is Reason.OPTIONS_ERROR


def test_sqqmname_written_as_use_sends_the_put_to_the_member() -> None:
    """A reading: the table opens a shared queue here unless SQQMNAME(USE) is written."""
    used = f"{GROUP}; SHQ(S); ALTER QMGR SQQMNAME(USE)"
    assert led_to(opened(used, "S@QM2")) == ("S", "QM2", "SYSTEM.QSG.TRANSMIT.QUEUE")
    assert led_to(opened(used.replace("USE", "IGNORE"), "S@QM2")) == ("S", "QM1", "")


def test_an_alias_for_a_topic_resolves_to_no_queue() -> None:
    result = put("DEF QA(A) TARGET(T) TARGTYPE(TOPIC); TOPIC(T)", "A")
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
        ("A" * 48, "A{48}"),
    ],
)
def test_dynamic_queue_names(asked: str, pattern: str) -> None:
    """An asterisk at the end is replaced by characters; without one the name is used as it is."""
    resolution = opened("DEF QM(M)", "M", dynamic_queue=asked)
    assert resolution.target is TargetKind.DYNAMIC
    assert re.fullmatch(pattern, resolution.resolved_queue)
    assert len(resolution.resolved_queue) <= 48
    assert resolution.resolved_queue_manager == "QM1"


@pytest.mark.parametrize("asked", ["", "   ", "A*B", "A B", "A-B", "**", "A" * 49, "é"])
def test_bad_dynamic_queue_names(asked: str) -> None:
    """Blank names, forbidden characters and an asterisk elsewhere or too late fail with 2011."""
    resolution = opened("DEF QM(M)", "M", dynamic_queue=asked)
    assert resolution.reason is Reason.DYNAMIC_Q_NAME_ERROR


def test_generated_names_depend_on_the_seed_and_are_free() -> None:
    names = {opened("DEF QM(M)", "M", seed=seed).resolved_queue for seed in range(20)}
    assert len(names) == 20
    first = opened("DEF QM(M)", "M").resolved_queue
    assert opened(f"DEF QM(M); DEF QL({first})", "M").resolved_queue not in {first, ""}
    taken = opened("DEF QM(M); DEF QL(X)", "M", dynamic_queue="X")
    assert taken.reason is Reason.OBJECT_ALREADY_EXISTS


# Puts


@in_table
def test_a_disabled_object_anywhere_on_the_path_stops_the_put(names: str, topology: str) -> None:
    assert not opened(topology, names).is_failed
    result = put(topology, names)
    assert result.reason is Reason.PUT_INHIBITED
    assert "PUT(DISABLED)" in result.detail
    assert not result.resolution.limits.put_enabled


@in_table
def test_limits_of_the_queue_that_is_written(
    reason: int, names: str, message: dict[str, Any], topology: str
) -> None:
    assert int(put(topology, names, **message).reason) == reason


@in_table
def test_defaults_come_from_the_first_object(
    names: str, topology: str, *, persistent: bool
) -> None:
    assert put(topology, names).is_persistent is persistent
    explicit = Persistence.NOT_PERSISTENT
    assert not put(topology, names, persistence=explicit).is_persistent


@pytest.mark.parametrize(
    ("queue", "manager", "expected"),
    [
        ("ANSWER.ALIAS", "", "QRR@QMA.CLASS1"),
        ("ANSWER.ALIAS", "QM9", "ANSWER.ALIAS@QM9"),
        ("UNKNOWN", "", "UNKNOWN@QM1"),
        ("", "", "@QM1"),
    ],
)
def test_reply_to_names_travel_completed(queue: str, manager: str, expected: str) -> None:
    """A QREMOTE replaces both names, XMITQ apart; a given manager keeps them as they are."""
    result = put(
        "DEF QR(ANSWER.ALIAS) RNAME(QRR) RQMNAME(QMA.CLASS1) XMITQ(NOPE); DEF QL(L)",
        "L",
        reply_to=Names(queue=queue, queue_manager=manager),
    )
    assert str(result.reply_to) == expected


def test_a_put_needs_output() -> None:
    request = OpenRequest(queue="L", options=OpenOption.INPUT)
    result = put_message(network("DEF QL(L)"), "QM1", request, PutMessage())
    assert result.reason is Reason.NOT_OPEN_FOR_OUTPUT


# Cluster queues

AWAY = "CLQ(I) ON(QM2) CLUSTER(C)"


@in_table
def test_disabled_instances(reason: int, bind: str, call: str, topology: str) -> None:
    """Disabled instances are set aside; with none left the code tells when that was noticed."""
    assert int(put(topology, "I", bind=Bind[bind], call=Call(call)).reason) == reason


def test_an_open_that_binds_nothing_succeeds_although_all_are_disabled() -> None:
    resolution = opened(f"{AWAY} PUT(DISABLED); {AWAY} PUT(DISABLED)", "I", bind=Bind.NOT_FIXED)
    assert resolution.target is TargetKind.PER_MESSAGE
    assert (resolution.resolved_queue, resolution.resolved_queue_manager) == ("I", "")


@pytest.mark.parametrize(
    ("bind", "expected"),
    [
        ("NOTFIXED", TargetKind.PER_MESSAGE),
        ("OPEN", TargetKind.REMOTE),
        ("GROUP", TargetKind.REMOTE),
    ],
)
def test_bind_as_defined_by_the_first_object(bind: str, expected: TargetKind) -> None:
    """By a local alias before the instance, and by the chosen instance without a local object."""
    assert opened(f"{AWAY} DEFBIND({bind})", "I").target is expected
    assert opened(f"DEF QA(A) TARGET(I) DEFBIND({bind}); {AWAY}", "A").target is expected


def test_a_local_definition_gives_the_defaults_of_a_cluster_queue() -> None:
    """DEFBIND and DEFPSIST are the local ones even if another instance gets the message."""
    away = f"{AWAY} CHRANK(1)"
    local = "DEF QL(I) CLUSTER(C) CLWLUSEQ(ANY) PUT(DISABLED)"
    result = put(f"{local} DEFPSIST(YES); {away}", "I")
    assert not result.is_failed
    assert result.resolution.resolved_queue_manager == "QM2"
    assert result.is_persistent
    assert opened(f"{local} DEFBIND(NOTFIXED); {away}", "I").target is TargetKind.PER_MESSAGE
    both = f"{local}; {away} DEFBIND(NOTFIXED) DEFPSIST(YES)"
    assert opened(both, "I").target is TargetKind.REMOTE
    assert not put(both, "I").is_persistent


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
        f"DEF QL(I) CLUSTER(C) CLWLUSEQ({local}); ALTER QMGR CLWLUSEQ({manager}); {AWAY} CHRANK(1)",
        "I",
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
    assert chosen("; ".join(lines if first else lines[::-1]), 5) == {"QM2": 5}


def chosen(topology: str, puts: int) -> Counter[str]:
    """How often each manager gets a message for I."""
    known = network(topology)
    requests = [OpenRequest(queue="I", seed=seed) for seed in range(puts)]
    return Counter(open_queue(known, "QM1", request).resolved_queue_manager for request in requests)


def test_weights_share_the_messages() -> None:
    weighted = "CLQ(I) ON(QM2) CLUSTER(C) WEIGHT(75); CLQ(I) ON(QM3) CLUSTER(C) WEIGHT(25)"
    assert abs(chosen(weighted, 4000)["QM2"] / 4000 - 0.75) < 0.03


def test_only_so_many_channels_are_used() -> None:
    """CLWLMRUC limits the instances that share the messages."""
    both = f"{AWAY}; CLQ(I) ON(QM3) CLUSTER(C); ALTER QMGR CLWLMRUC(1)"
    assert chosen(both, 50) == {"QM2": 50}


def test_steps_tell_names_and_place() -> None:
    resolution = opened(
        "DEF QA(A) TARGET(R); DEF QR(R) RNAME(Q) RQMNAME(QM2); DEF QL(QM2) USAGE(XMITQ)", "A"
    )
    steps = [(str(step.definition), str(step.before), str(step.after)) for step in resolution.steps]
    assert steps == [
        ("QALIAS(A)", "A", "R"),
        ("QREMOTE(R)", "R", "Q@QM2"),
        ("QLOCAL(QM2)", "Q@QM2", "Q@QM2"),
    ]
    assert all(step.location is not None and step.location.line == 1 for step in resolution.steps)

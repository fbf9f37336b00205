"""The way of a put as the job's own deciders make it, without a broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance.decided_network import HOPS, REMAINING, DecidedNetwork, put_deciders
from tests.conformance.mq_notation import read_topology
from tests.engine.known_cluster import OPEN
from tests.engine.walks import NOW, MqWalk, told_of_elsewhere
from tests.topology.mq.routes import End, PutMessage, follow_route
from tests.topology.mq.test_any_network import MANAGERS, managers, opens

from redrive.engine.attempts import LOOP
from redrive.engine.facts import Facts
from redrive.engine.message import seed_of
from redrive.engine.outcome import Result
from redrive.engine.sources import SourceKind
from redrive.engine.walk import AssumedCluster, Hop, Walk, walk
from redrive.messages import Headers, OutputRecord, decode_dead_letter
from redrive.topology.files import read_topology as read_files
from redrive.topology.layout import SourceText, Topology
from redrive.topology.mq.network import Link, MqNetwork
from redrive.topology.mq.objects import LocalQueue
from redrive.topology.mq.queue_manager import QueueManager, QueueSharingGroup
from redrive.topology.mq.results import OpenRequest, Persistence, job_request
from redrive.topology.names import Names, put_topic

ONE_HOP = ("QM1: DEF QL(QM2) USAGE(XMITQ)", "QM1: CHAN(QM2) TO(QM2)", "QM2: DEF QL(Q)")
DEAD_LETTERS = ("QM2: ALTER QMGR DEADQ(DLQ)", "QM2: DEF QL(DLQ)")
PERSISTENT = PutMessage(persistence=Persistence.PERSISTENT, length=4)
PERSISTENCE = "JMS_IBM_MQMD_Persistence"
NOT_PERSISTENT = PutMessage(persistence=Persistence.NOT_PERSISTENT, length=4)


def followed(
    *lines: str, queue: str = "Q", manager: str = "QM2", put: PutMessage = PERSISTENT, **more: Any
) -> MqWalk:
    way = MqWalk(read_topology(lines), more.pop("depths", {}))
    way.put("QM1", OpenRequest(queue=queue, queue_manager=manager), put, **more)
    return way


def ended(way: MqWalk) -> tuple[Result, str]:
    """The last result, and where the message rests; empty if nowhere."""
    last = way.hops[-1]
    return last.result, "" if last.message is None else way.places[last.message.record.topic].place


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([], "has no DEADQ"),
        (["QM2: ALTER QMGR DEADQ(DLQ)"], "does not exist"),
        (["QM2: ALTER QMGR DEADQ(DLQ)", "QM2: DEF QA(DLQ) TARGET(Q)"], "is not a QLOCAL"),
        (["QM2: ALTER QMGR DEADQ(DLQ)", "QM2: DEF QL(DLQ) USAGE(XMITQ)"], "is not a QLOCAL"),
        (["QM2: ALTER QMGR DEADQ(DLQ)", "QM2: DEF QL(DLQ) PUT(DISABLED)"], "disabled"),
        (["QM2: ALTER QMGR DEADQ(DLQ)", "QM2: DEF QL(DLQ) MAXDEPTH(0)"], "its limit is 0"),
        (["QM2: ALTER QMGR DEADQ(DLQ)", "QM2: DEF QL(DLQ) MAXMSGL(3)"], "limit of 3"),
        ([*DEAD_LETTERS, "QM1: CHAN(QM2) TO(QM2) USEDLQ(NO)"], "USEDLQ(NO)"),
    ],
)
def test_without_a_usable_dead_letter_queue_the_message_remains(
    lines: list[str], problem: str
) -> None:
    depths = {"QM2": {"DLQ": 0}}
    kept = followed(*ONE_HOP, *lines, queue="NOPE", depths=depths)
    outcome = kept.hops[-1].outcome
    assert (kept.hops[-1].result, outcome["reason"]) == (Result.REMAINS, 2085)
    assert problem in outcome["detail"]
    lost = followed(*ONE_HOP, *lines, queue="NOPE", put=NOT_PERSISTENT, depths=depths)
    assert ended(lost) == (Result.DISCARDED, "")


@pytest.mark.parametrize(
    ("lines", "queue", "more", "reason"),
    [
        ([], "NOPE", {}, 2085),
        (["QM2: DEF QL(P) PUT(DISABLED)"], "P", {}, 2051),
        (["QM2: DEF QL(S) MAXMSGL(3)"], "S", {}, 2030),
        (["QM2: ALTER QMGR MAXMSGL(4)", "QM2: ALTER QL(DLQ) MAXMSGL(9)"], "Q", {}, None),
        (["QM2: DEF QL(F) MAXDEPTH(1)"], "F", {"depths": {"QM2": {"F": 1}}}, 2053),
        (["QM2: DEF QM(M)"], "M", {}, 2057),
        (["QM2: DEF QA(A) TARGET(B)"], "A", {}, 2082),
        (["QM2: DEF QR(R) RNAME(X) RQMNAME(QM9)"], "R", {}, 2087),
    ],
)
def test_what_the_receiver_cannot_put_becomes_a_dead_letter(
    lines: list[str], queue: str, more: dict[str, Any], reason: int | None
) -> None:
    way = followed(*ONE_HOP, *DEAD_LETTERS, *lines, queue=queue, **more)
    if reason is None:
        assert ended(way) == (Result.ROUTED, "Q@QM2")
        return
    assert ended(way) == (Result.DEAD_LETTERED, "DLQ@QM2")
    written = way.hops[-1].message
    assert written is not None
    header = decode_dead_letter(written.record.value, written.record.headers or []).header
    assert header is not None
    assert (header.reason, header.dest_q_name, header.dest_q_mgr_name) == (reason, queue, "QM2")


@pytest.mark.parametrize(("expiry", "arrives"), [(None, True), (101, True), (100, False)])
def test_expiry_counts_down_on_transmission_queues(expiry: int | None, *, arrives: bool) -> None:
    """Two delays of 50 tenths use up 100; an expired message is never a dead letter."""
    way = followed(
        "QM1: DEF QL(QM3) USAGE(XMITQ)",
        "QM1: CHAN(QM3) TO(QM2) DELAY(50)",
        "QM2: DEF QL(QM3) USAGE(XMITQ)",
        "QM2: CHAN(QM3) TO(QM3) DELAY(50)",
        *DEAD_LETTERS,
        "QM3: DEF QL(Q)",
        manager="QM3",
        expiry=expiry,
    )
    assert len(way.hops) == 3
    assert ended(way) == ((Result.ROUTED, "Q@QM3") if arrives else (Result.EXPIRED, ""))


def test_what_fails_for_now_is_tried_again_and_then_ends() -> None:
    """All tries but the first and the last are left out: nothing changes between them (MRRTY)."""
    retries = "QM1: CHAN(QM2) TO(QM2) MRRTY(999999999)"
    way = followed(*ONE_HOP, *DEAD_LETTERS, retries, "QM2: ALTER QL(Q) PUT(DISABLED)")
    results = [hop.result for hop in way.hops]
    assert results == [Result.ROUTED, Result.PARKED, Result.DEAD_LETTERED]
    assert way.hops[-1].kind is SourceKind.RETRIES


def test_names_that_come_back_end_by_the_hop_limit() -> None:
    way = followed(
        "QM1: DEF QL(X2) USAGE(XMITQ)",
        "QM1: DEF QR(FAR) RQMNAME(FAR) XMITQ(X2)",
        "QM1: CHAN(X2) TO(QM2)",
        "QM2: DEF QL(X1) USAGE(XMITQ)",
        "QM2: DEF QR(FAR) RQMNAME(FAR) XMITQ(X1)",
        "QM2: CHAN(X1) TO(QM1)",
        manager="FAR",
    )
    assert len(way.hops) == HOPS + 1
    assert way.hops[-1].outcome["reason"] == LOOP


# The examples of scripts


def from_scripts(**scripts: str) -> Topology:
    texts = [SourceText(f"{name}.mqsc", text.encode()) for name, text in scripts.items()]
    topology = read_files(texts).topology
    assert topology is not None
    return topology


def walked(topology: Topology, queue: str, **fields: str) -> Walk:
    """A put on QM1."""
    headers: Headers = [("redrive.oq", queue.encode())]
    headers += [(f"JMS_IBM_MQMD_{name}", text.encode()) for name, text in fields.items()]
    put = OutputRecord(put_topic("QM1"), None, b"body", headers, NOW)
    facts = Facts(lambda: 0.0)
    return walk(put, put_deciders(topology), facts, OPEN.answers, now=NOW)


SENDER = "DEF QL(QM2) USAGE(XMITQ)\nDEF CHL(A.B) CHLTYPE(SDR) XMITQ(QM2) CONNAME(c)\n"
RECEIVER = "DEF QL(DLQ)\nALTER QMGR DEADQ(DLQ)\nDEF CHL(A.B) CHLTYPE(RCVR)\n"


def test_usedlq_of_the_receiver_counts() -> None:
    """USEDLQ(NO) of the RCVR channel: what cannot be put remains, though QM2 has a DEADQ."""
    receiver = RECEIVER.replace("(RCVR)", "(RCVR) USEDLQ(NO)")
    remote = f"{SENDER}DEF QR(R) RNAME(NO) RQMNAME(QM2)\n"
    way = walked(from_scripts(QM1=remote, QM2=receiver), "R", Persistence="1").way()
    assert way[-1].result is Result.REMAINS
    assert "USEDLQ(NO)" in way[-1].outcome["detail"]


def test_the_assumptions_are_those_that_were_needed() -> None:
    assumed = AssumedCluster({"QM1--Q", "QM1--OTHER"})
    questions = Facts(lambda: 0.0)
    questions.topic("QM1--Q")
    questions.topic("QM1--NO")
    answers = assumed.answers(questions.take_questions())
    assert {name: topic.exists for name, topic in answers.topics.items()} == {
        "QM1--Q": True,
        "QM1--NO": False,
    }
    assert (assumed.present, assumed.missing) == ({"QM1--Q"}, {"QM1--NO"})


def test_a_private_transmission_queue_hides_a_shared_queue_of_its_name() -> None:
    sender = SENDER + "DEF QR(R) RNAME(DLQ) RQMNAME(QM2)\n"
    topology = from_scripts(QM1=sender, QM2=RECEIVER)
    managers = topology.mq.queue_managers
    shared = replace(
        managers["QM1"],
        shared_queues={"QM2": LocalQueue(name="QM2")},
        queue_sharing_group=QueueSharingGroup(name="SQ1", members=("QM1",)),
    )
    hops = walked(Topology(mq=MqNetwork([shared, managers["QM2"]])), "R").way()
    assert [hop.result for hop in hops] == [Result.ROUTED, Result.ROUTED]
    assert hops[-1].outcome["target_topic"] == "QM2--DLQ"


# Any network


@given(st.tuples(*map(managers, MANAGERS[1:])), opens(), st.integers(0, 3))
def test_the_walk_ends_where_the_definitions_lead(
    others: tuple[QueueManager, ...], question: tuple[QueueManager, OpenRequest], offset: int
) -> None:
    manager, asked = question
    links = {
        Names(queue=to, queue_manager=name): Link(queue_manager=to)
        for name in MANAGERS
        for to in MANAGERS
    }
    network = MqNetwork([manager, *others], links=links)
    seed = seed_of(f"{put_topic('QM1')}:0:{offset}")
    request = job_request(asked.queue, asked.queue_manager, seed=seed)
    route = follow_route(network, "QM1", request, PERSISTENT)
    hops = walked_at(network, asked, offset)
    if route.end is End.LOOP:
        assert (hops[-1].result, hops[-1].outcome["reason"]) == (Result.REMAINS, LOOP)
        return
    puts = [hop for hop in hops if hop.kind is SourceKind.PUTS]
    assert len(puts) >= len(route.puts)
    if route.end in {End.REFUSED, End.UNDELIVERED}:
        assert len(puts) == len(route.puts)
        assert (hops[-1].result, hops[-1].outcome["reason"]) == (Result.REMAINS, route.reason)
        return
    # A put on a transmission queue by its own name goes on, and has no names there.
    beyond = puts[len(route.puts) :]
    assert not beyond or route.end is End.QUEUE
    assert not beyond or "redrive.oq" not in dict(beyond[0].record.headers or [])
    last = puts[len(route.puts) - 1]
    assert (last.result, last.outcome["reason"]) == (Result.ROUTED, 0)
    destination = route.puts[-1].resolution.destination
    reached = last.outcome["target_queue"], last.outcome["target_queue_manager"]
    assert reached == (destination.queue, destination.queue_manager)


def walked_at(network: MqNetwork, asked: OpenRequest, offset: int) -> tuple[Hop, ...]:
    """The way of a put on QM1, over cluster queues and those of sharing groups too."""
    names = {"redrive.oqm": asked.queue_manager, "redrive.oq": asked.queue, PERSISTENCE: "1"}
    headers: Headers = [(name, text.encode()) for name, text in names.items()]
    put = OutputRecord(put_topic("QM1"), None, bytes(PERSISTENT.length), headers, NOW)
    deciders = put_deciders(Topology(mq=network), told_of_elsewhere(network))
    facts = Facts(lambda: 0.0)
    return walk(put, deciders, facts, OPEN.answers, now=NOW, offset=offset).way()


MQE = b"""\
kind: mqe
queue_managers:
  - name: A
    connections:
      - {kind: direct, name: GATE}
      - {kind: via, name: FAR, via: GATE}
    queues:
      - {kind: remote, name: NOW, queue_manager: FAR, mode: sync}
      - {kind: remote, name: LATER, queue_manager: FAR, mode: async}
  - name: GATE
    connections: [{kind: direct, name: FAR}]
  - name: FAR
    queues:
      - {kind: local, name: NOW}
      - {kind: local, name: LATER}
      - {kind: local, name: FOUND}
"""
ALL_ON_THE_WAY = [("A", "FAR"), ("A", "GATE"), ("GATE", "FAR")]
"""A's way to FAR: a via connection, the direct one, and that of the manager in the middle."""


@pytest.mark.parametrize(
    ("queue", "stopped", "end"),
    [
        # Every connection on the way carries the put (resolution specification A.4).
        *(("NOW", queue, "A--redrive-put") for queue in ALL_ON_THE_WAY),
        # Discovery needs a target that is accessible (A.5, D4).
        *(("FOUND", queue, "A--redrive-put") for queue in ALL_ON_THE_WAY),
        # Asynchronous definitions keep the message.
        ("LATER", ("A", "FAR"), "A--LATER--redrive-to-FAR"),
        ("LATER", ("A", "GATE"), "A--LATER--redrive-to-FAR"),
        *((queue, ("FAR", "A"), f"FAR--{queue}") for queue in ("NOW", "FOUND", "LATER")),
    ],
)
def test_a_stopped_connection_carries_no_put(
    queue: str, stopped: tuple[str, str], end: str
) -> None:
    topology = read_files([SourceText("net.yaml", MQE)]).topology
    assert topology is not None
    network = DecidedNetwork(topology, {stopped: False})
    names: Headers = [("redrive.oqm", b"FAR"), ("redrive.oq", queue.encode())]
    network.run([OutputRecord("A--redrive-put", None, b"x", names, 0)])
    kept = [topic for topic in network.lying if topic != REMAINING]
    if end == "A--redrive-put":
        assert [outcome["result"] for outcome in network.outcomes] == [Result.REMAINS]
        assert network.outcomes[0]["topic"] == end
    else:
        assert kept == [end]

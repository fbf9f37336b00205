"""The seam to the job: destinations on topics, one by one and by columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance.mq_notation import read_topology

from redrive.topology.bindings import Bindings, QueueBinding, QueueManagerBinding
from redrive.topology.mq import ColumnarResolver, MqResolver, Network
from redrive.topology.put import Destination, Refusal, Resolver

LINES = (
    "QM1: DEF QL(ORDERS) MAXDEPTH(7)",
    "QM1: DEF QA(IN) TARGET(ORDERS)",
    "QM1: DEF QR(FAR) RNAME(Q) RQMNAME(QM2)",
    "QM1: DEF QL(QM2) USAGE(XMITQ)",
    "QM1: DEF QM(MODEL)",
    "QM1: DEF QA(NEWS) TARGET(T) TARGTYPE(TOPIC)",
    "QM1: TOPIC(T)",
    "QM1: CLQ(INV) ON(QM3) CLUSTER(C)",
    "QM2: DEF QL(ORDERS)",
)
BINDINGS = Bindings(
    queue_managers={
        "QM1": QueueManagerBinding(
            queues={"ORDERS": QueueBinding(topic="orders", consumer_group="billing")}
        )
    }
)


@pytest.fixture(scope="module")
def network() -> Network:
    return read_topology(LINES).network()


def test_a_local_queue_is_its_topic(network: Network) -> None:
    """Names, topic and limits of a queue, through an alias too."""
    resolver: Resolver = MqResolver(network, "QM1")
    answer = resolver.resolve("", "IN")
    assert isinstance(answer, Destination)
    assert (answer.topic, answer.queue, answer.queue_manager) == ("QM1--ORDERS", "ORDERS", "QM1")
    assert answer.headers == ()
    assert answer.limits.max_depth == 7
    assert answer.limits.consumer_group is None


def test_a_binding_gives_topic_and_consumer_group(network: Network) -> None:
    """What the bindings file says replaces the topic that the names give."""
    answer = MqResolver(network, "QM1", bindings=BINDINGS).resolve("", "ORDERS")
    assert isinstance(answer, Destination)
    assert (answer.topic, answer.limits.consumer_group) == ("orders", "billing")


def test_a_transmission_queue_carries_the_names(network: Network) -> None:
    """The topic is that of the transmission queue, the headers are what the receiver opens with."""
    answer = MqResolver(network, "QM1").resolve("", "FAR")
    assert isinstance(answer, Destination)
    assert (answer.topic, answer.queue, answer.queue_manager) == ("QM1--QM2", "Q", "QM2")
    assert answer.headers == (("redrive.oqm", b"QM2"), ("redrive.oq", b"Q"))


def test_a_cluster_queue_names_the_next_manager_too(network: Network) -> None:
    """No channel leads from a cluster transmission queue to one manager only."""
    answer = MqResolver(network, "QM1").resolve("", "INV")
    assert isinstance(answer, Destination)
    assert answer.headers[-1] == ("redrive.next", b"QM3")


@pytest.mark.parametrize(
    ("queue", "reason"), [("NOPE", 2085), ("MODEL", 2057), ("NEWS", 2502), ("", 2085)]
)
def test_what_has_no_topic_is_refused(network: Network, queue: str, reason: int) -> None:
    """Unknown names, model queues and topics without subscribers are refused with a code."""
    answer = MqResolver(network, "QM1").resolve("", queue)
    assert isinstance(answer, Refusal)
    assert (answer.reason, bool(answer.detail)) == (reason, True)


NAMES = st.sampled_from(["", "ORDERS", "IN", "FAR", "QM1", "QM2", "NOPE", "INV", None])
ROWS = st.lists(st.tuples(st.sampled_from(["QM1", "QM2", "QM9"]), NAMES, NAMES), max_size=30)


@settings(max_examples=100)
@given(
    batches=st.lists(ROWS, max_size=4),
    encode=st.booleans(),
    remembered=st.sampled_from([2, 1_000_000]),
)
def test_columns_answer_as_single_puts(
    *, batches: list[list[tuple[str, str | None, str | None]]], encode: bool, remembered: int
) -> None:
    """Every row of every batch has the answer that its names have by themselves."""
    network = read_topology(LINES).network()
    columnar = ColumnarResolver(network, bindings=BINDINGS, remembered=remembered)
    for rows in batches:
        columns = [pa.array([row[n] for row in rows], pa.string()) for n in range(3)]
        if encode:
            columns = [column.dictionary_encode() for column in columns]
        codes, answers = columnar.resolve(*columns)
        assert len(codes) == len(rows)
        for code, (at, queue_manager, queue) in zip(codes, rows, strict=True):
            if at == "QM9":
                assert isinstance(answers[code], Refusal)
                continue
            alone = MqResolver(network, at, bindings=BINDINGS)
            assert answers[code] == alone.resolve(queue_manager or "", queue or "")


def test_each_triple_of_names_is_resolved_once(network: Network) -> None:
    """A second batch with the same names adds no answer and keeps the codes."""
    columnar = ColumnarResolver(network)
    at = pa.array(["QM1"] * 1000)
    queues = pa.array(["ORDERS", "IN"] * 500)
    blank = pa.array([None] * 1000, pa.string())
    first, answers = columnar.resolve(at, blank, queues)
    assert len(answers) == 2
    second, again = columnar.resolve(at, blank, queues)
    assert again is answers
    assert first.tolist() == second.tolist()


def test_chunked_columns_are_taken(network: Network) -> None:
    """Columns of a table come in chunks."""
    at = pa.chunked_array([["QM1"], ["QM2"]])
    codes, answers = ColumnarResolver(network).resolve(at, at, pa.chunked_array([["IN"], ["IN"]]))
    assert isinstance(answers[codes[0]], Destination)
    assert isinstance(answers[codes[1]], Refusal)

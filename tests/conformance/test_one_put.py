"""One put, one answer: ``redrive resolve``, ``redrive put`` and the job mean the same by it.

Each vector is put three times: its names and its message are given to ``redrive resolve`` and to
``redrive put``, and the record that the latter writes is decided by the job's own routers, hop by
hop, without a broker. Where the ends differ, one of the three is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.commands import redrive
from tests.conformance.decided_network import HOPS, DecidedNetwork
from tests.conformance.mq_notation import matches
from tests.conformance.traffic_networks import InexpressibleError, Numbered, network_text, numbered
from tests.conformance.vectors import Vector

from redrive.command import put as put_module
from redrive.engine.attempts import LOOP
from redrive.engine.outcome import Result as Became
from redrive.kafka.producer import Delivery
from redrive.messages import OutputRecord
from redrive.operations import put as put_operation
from redrive.operations.network import Network
from redrive.operations.put_trace import assuming_tracer
from redrive.topology.layout import Topology, topics_of
from redrive.topology.mq.results import Persistence
from redrive.topology.names import put_topic


@dataclass(frozen=True)
class Ended:
    """Where a message is left."""

    topic: str
    """The topic on which it lies; empty if it is on none of a queue."""
    result: str
    """``on a topic``, ``remains``, ``discarded`` or ``loop``."""
    reason: int = 0


def decided(record: OutputRecord, topology: Topology, *, are_started: bool = False) -> Ended:
    """Where the message is when all channels have run, or those that run by themselves."""
    sources = [topic for topic in topics_of(topology) if topic.is_read and are_started]
    network = DecidedNetwork(topology, {topic.channel: True for topic in sources})
    network.run([record])
    first = network.outcomes[0]["message"]
    last = [outcome for outcome in network.outcomes if outcome["message"] == first][-1]
    if last["reason"] == LOOP:
        return Ended("", "loop")
    if last["result"] in {Became.ROUTED, Became.DEAD_LETTERED}:
        return Ended(last["target_topic"], "on a topic", last["reason"])
    return Ended("", last["result"], last["reason"])


def files_of(case: Numbered) -> Iterator[str]:
    """The definitions of a vector as files, and the options that name them."""
    for number, script in enumerate(case.scripts):
        Path(f"{number}.mqsc").write_bytes(script.data)
        yield f"--topology={script.queue_manager}={number}.mqsc"
    if case.network is not None:
        Path("network.yaml").write_bytes(network_text([case.network]).data)
        yield "--topology=network.yaml"


def names_of(case: Numbered) -> Sequence[str]:
    """The put's names as both commands take them."""
    queue = f"{case.queue}@{case.queue_manager}" if case.queue_manager else case.queue
    return f"--at={case.at}", "--", queue


def descriptor(case: Numbered) -> Sequence[str]:
    """The persistence as both commands take it."""
    if case.persistence in {None, Persistence.AS_Q_DEF}:
        return ()
    return ("--persistent" if case.persistence else "--not-persistent",)


def invoke(*arguments: str) -> Result:
    result = redrive(*arguments)
    assert result.exit_code in {0, 1}, result.output
    return result


def resolved(case: Numbered, *options: str) -> dict[str, Any]:
    """What ``redrive resolve`` answers."""
    options = (*options, f"--length={len(case.body)}", *descriptor(case), *files_of(case))
    trace: dict[str, Any] = json.loads(
        invoke("resolve", "--json", *options, *names_of(case)).stdout
    )
    return trace


def predicted(trace: dict[str, Any]) -> Ended:
    """The end of a trace, in the words of the job."""
    code = (trace["problem"] or {}).get("code") or 0
    if code == LOOP:
        return Ended("", "loop")
    if trace["end"] in {"discarded", "remains"}:
        return Ended("", trace["end"], code)
    if trace["end"].startswith("stays: "):
        return Ended("", "remains", code)  # as the resolver of MQ Everyplace tells it
    return Ended(trace["topic"], "on a topic", code)


def written_by_put(case: Numbered, monkeypatch: pytest.MonkeyPatch) -> tuple[OutputRecord, bool]:
    """The record that ``redrive put`` writes, and whether it warns that it reaches no queue."""
    written: list[OutputRecord] = []

    def write(_: object, records: Iterable[OutputRecord]) -> Delivery:
        written.extend(records)
        return Delivery(tuple(f"{record.topic}:0:0" for record in written))

    monkeypatch.setattr(put_operation, "write_records", write)
    monkeypatch.setattr(
        put_module, "checked_put_topic", lambda network, at: put_topic(network.checked_manager(at))
    )
    monkeypatch.setattr(Network, "cluster", lambda _: nullcontext())
    monkeypatch.setattr(
        put_module, "cluster_tracer", lambda network, _: assuming_tracer(network.topology)
    )
    Path("body").write_bytes(case.body)
    put = invoke(
        "put", "--file=body", "--bootstrap-server=nowhere:9092",
        *descriptor(case), *files_of(case), *names_of(case),
    )  # fmt: skip
    (record,) = written
    return record, "the message will not reach its queue: " in put.stderr


def why_left_out(stem: str, vector: Vector) -> str:
    """Why a vector is no put that an application can make on a job; empty if it is one."""
    try:
        case = numbered(stem, vector, 0)
        assert case.topology.manager_names
    except InexpressibleError as problem:
        return str(problem)
    return "" if case.queue else "no queue is named"


@pytest.mark.vectors("mq_open", "mq_routes", "mqe_puts", leave_out=why_left_out)
def test_a_put_has_one_answer(
    folder: Path, stem: str, vector: Vector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``resolve``, ``put`` and the job lead to one topic, or to one refusal.

    In MQ Everyplace also where the message is stored, and after each move that lets it go on.
    """
    case = numbered(stem, vector, 0)
    record, is_warned = written_by_put(case, monkeypatch)
    topology = case.topology
    trace = resolved(case)
    assert is_warned != trace["is_good"]
    of_mqe = case.network is not None
    assert predicted(trace) == decided(record, topology)
    expect = case.vector["expect"]
    assert of_mqe or matches(expect.get("final") or expect.get("dlq") or "~", trace["final"])
    if not of_mqe:
        return
    then = ["--then=trigger"]
    trace = resolved(case, *then)
    while trace["moves"] and len(then) < HOPS:
        move = min(trace["moves"], key=["push", "trigger", "pull"].index)
        then.append(f"--then={move}")
        trace = resolved(case, *then)
    if trace["end"] != "the put fails":
        end, job_end = predicted(trace), decided(record, topology, are_started=True)
        assert (end.topic, end.result) == (job_end.topic, job_end.result)

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
from click.testing import CliRunner, Result
from tests.conformance.traffic_networks import InexpressibleError, Numbered, network_text, numbered
from tests.conformance.vectors import Vector
from tests.engine.known_cluster import OPEN

from redrive.command import main
from redrive.command import put as put_module
from redrive.engine.facts import Facts
from redrive.engine.names import HandlerIdentity
from redrive.engine.put_decider import PutDecider
from redrive.engine.rules_decider import LOOP
from redrive.engine.slice import Slice, SliceSettings
from redrive.engine.sources import PartitionRecords, SourceKind
from redrive.kafka.writer import Delivery
from redrive.messages import DeadLetterDecoder, OutputRecord, Records, TopicPartition
from redrive.operations import put as put_operation
from redrive.operations.network import Network
from redrive.operations.put_tracers import assuming_tracer
from redrive.topology.files import Topology
from redrive.topology.layout import topics_of
from redrive.topology.mq.results import Persistence
from redrive.topology.names import put_topic
from redrive.topology.receiving import receiving_queue_managers

NOW = 1_000_000
HOPS = 25
REMAINING = "REMAINING"
OUTCOMES = "OUTCOMES"


@dataclass(frozen=True)
class Ended:
    """Where a message is left."""

    topic: str
    """The topic on which it lies; empty if it is on none of a queue."""
    result: str
    """``on a topic``, ``remains``, ``discarded`` or ``loop``."""
    reason: int = 0


class Job:
    """Decides about records as the job does, one after the other."""

    def __init__(self, topology: Topology) -> None:
        self.sources = {one.topic: one for one in topics_of(topology) if one.is_read}
        self.receivers = receiving_queue_managers(topology, self.sources)

    def end_of(self, record: OutputRecord, *, are_started: bool = False) -> Ended:
        """Let channels run until the message rests; all of them, or those that do by themselves."""
        while True:
            written, outcome = self._decided(record)
            reason = outcome["reason"]
            if reason == LOOP:
                return Ended("", "loop")
            if not written or written.topic == REMAINING:
                return Ended("", outcome["result"], reason)
            source = self.sources.get(written.topic)
            if source is None or not (are_started or source.is_running):
                return Ended(written.topic, "on a topic", reason)
            record = written

    def _decided(self, record: OutputRecord) -> tuple[OutputRecord | None, dict[str, Any]]:
        """What is written of a message, and the outcome."""
        source = record.topic
        identity = HandlerIdentity(
            name=source, queue_manager="", queue="", topic=source, retry_topic="",
            remaining_topic=REMAINING,
        )  # fmt: skip
        router = PutDecider(
            identity, self.receivers[source], lambda one: one, table_id="0" * 16, hop_limit=HOPS
        )
        records = Records([record.key], [record.value], [record.headers or []], [NOW], [0])
        part = PartitionRecords(TopicPartition(source, 0), router, SourceKind.PUTS, records)
        settings = SliceSettings(outcomes_topic=OUTCOMES, now=NOW, tables_topic="TABLES")
        work = Slice([part], DeadLetterDecoder(), Facts(lambda: 0.0), settings)
        outputs = {one.topic: one for _, one in OPEN.decided(work)}
        outputs.pop("TABLES", None)  # what discovery created
        outcome = json.loads(outputs.pop(OUTCOMES).value or b"")
        return next(iter(outputs.values()), None), outcome


def files_of(one: Numbered) -> Iterator[str]:
    """The definitions of a vector as files, and the options that name them."""
    for number, script in enumerate(one.scripts):
        Path(f"{number}.mqsc").write_bytes(script.data)
        yield f"--topology={script.queue_manager}={number}.mqsc"
    if one.network is not None:
        Path("network.yaml").write_bytes(network_text([one.network]).data)
        yield "--topology=network.yaml"


def names_of(one: Numbered) -> Sequence[str]:
    """The put's names as both commands take them."""
    queue = f"{one.queue}@{one.queue_manager}" if one.queue_manager else one.queue
    return f"--at={one.at}", "--", queue


def descriptor(one: Numbered) -> Sequence[str]:
    """The persistence as both commands take it."""
    if one.persistence in {None, Persistence.AS_Q_DEF}:
        return ()
    return ("--persistent" if one.persistence else "--not-persistent",)


def invoke(*arguments: str) -> Result:
    """Run the command line."""
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code in {0, 1}, result.output
    return result


def resolved(one: Numbered, *then: str) -> dict[str, Any]:
    """What ``redrive resolve`` answers."""
    options = [f"--length={len(one.body)}"]
    moves = [f"--then={move}" for move in then]
    shown = invoke(
        "resolve", "--json", *options, *moves, *descriptor(one), *files_of(one), *names_of(one)
    )
    trace: dict[str, Any] = json.loads(shown.stdout)
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


def written_by_put(one: Numbered, monkeypatch: pytest.MonkeyPatch) -> tuple[OutputRecord, bool]:
    """The record that ``redrive put`` writes, and whether it warns that it reaches no queue."""
    written: list[OutputRecord] = []

    def write(_: object, records: Iterable[OutputRecord], *, timeout: float) -> Delivery:
        assert timeout > 0
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
    Path("body").write_bytes(one.body)
    put = invoke(
        "put", "--file=body", "--bootstrap-server=nowhere:9092",
        *descriptor(one), *files_of(one), *names_of(one),
    )  # fmt: skip
    (record,) = written
    return record, "the message will not reach its queue: " in put.stderr


def put_three_times(
    stem: str, vector: Vector, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare the three answers."""
    monkeypatch.chdir(folder)
    one = numbered(stem, vector, 0)
    record, is_warned = written_by_put(one, monkeypatch)
    job = Job(one.topology)
    trace = resolved(one)
    assert is_warned != trace["is_good"]
    of_mqe = one.network is not None
    assert predicted(trace) == job.end_of(record)
    if not of_mqe:
        return
    then = ["trigger"]
    trace = resolved(one, *then)
    while trace["moves"] and len(then) < HOPS:
        then.append(min(trace["moves"], key=["push", "trigger", "pull"].index))
        trace = resolved(one, *then)
    if trace["end"] != "the put fails":
        end, job_end = predicted(trace), job.end_of(record, are_started=True)
        assert (end.topic, end.result) == (job_end.topic, job_end.result)


def why_left_out(stem: str, vector: Vector) -> str:
    """Why a vector is no put that an application can make on a job; empty if it is one."""
    try:
        one = numbered(stem, vector, 0)
        assert one.topology.manager_names
    except InexpressibleError as problem:
        return str(problem)
    return "" if one.queue else "no queue is named"


@pytest.mark.vectors("mq_open", leave_out=why_left_out)
def test_an_open_has_one_answer(
    vector: Vector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``resolve``, ``put`` and the job lead to one topic, or to one refusal."""
    put_three_times("mq_open", vector, tmp_path, monkeypatch)


@pytest.mark.vectors("mq_routes", leave_out=why_left_out)
def test_a_way_has_one_answer(
    vector: Vector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same over several queue managers."""
    put_three_times("mq_routes", vector, tmp_path, monkeypatch)


@pytest.mark.vectors("mqe_puts", leave_out=why_left_out)
def test_a_put_in_mq_everyplace_has_one_answer(
    vector: Vector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same in MQ Everyplace, where it is stored and after each move that lets it go on."""
    put_three_times("mqe_puts", vector, tmp_path, monkeypatch)

"""The demos of networks: what they put, where that has to end, and what is done meanwhile."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console
from tests.demo.scripts.prediction import Predictor

from redrive.configuration import JobConfiguration
from redrive.demo.cluster import Cluster
from redrive.demo.demonstration import Report
from redrive.demo.messages import End, Found, Message, Outcome, Record, State
from redrive.demo.reconciliation import Trace, reconcile
from redrive.demo.script import Operator
from redrive.demo.scripts import NETWORKS, NetworkScript
from redrive.demo.scripts.network_operator import NetworkOperator
from redrive.demo.scripts.places import ON_QUEUES, REMAINING
from redrive.operations.network import Network
from redrive.settings import read_settings
from redrive.topology.names import put_topic, topic_name

ROOT = Path(__file__).parents[3]
NAMES = sorted(NETWORKS)


def network(name: str, messages: int = 200, seed: int = 1) -> NetworkScript:
    """A demo of an example."""
    return NetworkScript(NETWORKS[name], messages, seed)


def predictor(name: str) -> Predictor:
    """Where the library says that messages of an example end."""
    return Predictor(read_settings(ROOT / "examples" / name / "redrive.toml").job)


def topic(name: str) -> str:
    """The topic of ``queue@manager``."""
    queue, _, queue_manager = name.partition("@")
    return topic_name(queue=queue, queue_manager=queue_manager)


# What is put


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_gives_the_same_puts_again(name: str) -> None:
    """Another one gives others."""
    assert network(name).messages == network(name).messages
    assert network(name).messages != network(name, seed=2).messages


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("messages", [50, 600])
def test_every_kind_is_put_in_every_stage(name: str, messages: int) -> None:
    """As many in all as were asked for, each with a number of its own."""
    puts = network(name, messages).messages
    assert [put.number for put in puts] == list(range(messages))
    shares = [(stage.name, kind) for stage in NETWORKS[name].stages for kind, _ in stage.shares]
    assert {(put.stage, put.kind) for put in puts} == {(stage, kind.name) for stage, kind in shares}
    lengths = {kind.name: kind.length for _, kind in shares}
    assert all(len(put.original.value or b"") >= lengths[put.kind] for put in puts)


def test_too_few_messages_for_all_kinds_are_refused() -> None:
    """Rather than a demo that leaves something out."""
    with pytest.raises(ValueError, match="too few"):
        network("mq", 10)


@pytest.mark.parametrize("name", NAMES)
def test_the_package_holds_the_examples_themselves(name: str, tmp_path: Path) -> None:
    """There is one copy, and the settings name the broker of the demo."""
    demo = network(name)
    assert demo.folder.resolve() == ROOT / "examples" / name
    demo.write_files(tmp_path, "127.0.0.1:7")
    job = read_settings(tmp_path / "redrive.toml").job
    assert job.connection.bootstrap_servers == "127.0.0.1:7"


# Where it has to end


@pytest.mark.parametrize("name", NAMES)
def test_each_kind_ends_where_redrive_resolve_says(name: str) -> None:
    """What the scripts say by hand is what the library makes of definitions and rules."""
    library = predictor(name)
    found: dict[str, set[End]] = {}
    for stage in NETWORKS[name].stages:
        for kind, _ in stage.shares:
            for number in range(20):
                end = library.end(kind, kind.length, f"{put_topic(kind.at)}:0:{number}")
                found.setdefault(kind.name, set()).add(end)
                [wanted] = [one for one in kind.ends if one == end]
                assert wanted.reason in {0, end.reason}
    ends = {kind.name: kind.ends for stage in NETWORKS[name].stages for kind, _ in stage.shares}
    assert found == {kind: set(of) for kind, of in ends.items()}


def test_places_say_what_a_topic_is_to_a_message() -> None:
    """A handled dead-letter queue and a transmission queue are no ends."""
    places = network("mq").places

    def what(name: str, state: State = State.LEFT) -> str:
        return places.end(Found("x:0:0", name, 0, Record(None, None, ()), state)).what

    transmission = topic("OFFICE@SHOP")
    handled = topic("DEPOT.DEAD@DEPOT")
    assert what(topic("ORDERS@DEPOT")) == "on queues"
    assert what(topic("SHOP.DEAD@SHOP")) == "dead letters"
    for one in (handled, transmission, put_topic("SHOP"), "a-retry-topic"):
        assert what(one) == "waiting"
    assert what(topic("ORDERS@DEPOT"), State.WAITING) == "waiting"
    assert what(handled, State.REMAINING) == "remaining"
    assert places.over(transmission) == "SHOP.OFFICE"


# What is done meanwhile


class _Job:
    """A job that sees that a channel is stopped only after a few messages.

    It stands in for the cluster: what is put is handled at once.
    """

    def __init__(self, topic: str, passing: int) -> None:
        self._topic = topic
        self._passing = passing
        self._outcomes: dict[str, list[Outcome]] = {}
        self.kept = 0
        self.batches: list[int] = []

    def put(self, records: Iterable[tuple[str, Record]]) -> list[str]:
        places = [f"{topic}:{len(self.batches)}:{i}" for i, (topic, _) in enumerate(records)]
        self.batches.append(len(places))
        for place in places:
            self._passing -= 1
            self.kept += self._passing < 0
            reached = self._topic if self._passing < 0 else topic("LEDGER@OFFICE")
            self._outcomes[place] = [outcome(topic=reached)]
        return places

    def outcomes(self) -> Mapping[str, Sequence[Outcome]]:
        return self._outcomes

    def waiting(self, topic: str) -> int:
        assert topic == self._topic
        return self.kept


def outcome(
    result: str = "routed", *, topic: str = "", rule_line: int = 0, reason: int = 0
) -> Outcome:
    """What became of a message in one step."""
    return Outcome(
        message="m",
        time=0,
        result=result,
        topic=topic,
        rule_line=rule_line,
        attempt=0,
        reason=reason,
    )


def test_messages_for_a_stopped_channel_are_put_once_it_is_seen_to_be_stopped() -> None:
    """One after the other until three wait: then nothing passes that would expire too late."""
    demo = network("mq", 600)
    job = _Job(topic("OFFICE@SHOP"), passing=2)
    operator = Operator(
        cast("JobConfiguration", None), cast("Cluster", job), Console(file=io.StringIO())
    )
    count = NetworkOperator(
        operator, cast("Network", None), demo.messages, demo.places
    ).put_to_stopped("stopped", "SHOP", "OFFICE")
    assert job.batches == [1, 1, 1, 1, 1, count - 5]
    assert job.kept == count - 2
    assert len(operator.places) == count


# The report


def test_the_table_says_the_way_and_the_reason() -> None:
    """Over which channels, by which rule, and why; messages that are alike in one row."""
    demo = network("mq")
    places = [
        outcome(topic=topic("OFFICE@SHOP")),
        outcome(topic=topic("DEPOT@OFFICE")),
        outcome("dead-lettered", topic=topic("DEPOT.DEAD@DEPOT"), reason=2085),
        outcome("forwarded", topic=topic("OFFICE@DEPOT"), rule_line=13),
        outcome(topic=topic("RETURNS@OFFICE")),
    ]
    traces = [
        trace_of(put, End(ON_QUEUES, "RETURNS@OFFICE"), places)
        for put in demo.messages
        if put.ends == (End(ON_QUEUES, "RETURNS@OFFICE"),)
    ]
    ((row, count),) = demo.rows(traces).items()
    assert count == len(traces) > 1
    assert row.way == (
        "SHOP.OFFICE", "OFFICE.DEPOT", "DEPOT.DEAD@DEPOT", "rule at line 13", "DEPOT.OFFICE",
    )  # fmt: skip
    assert row.reasons == ("MQRC_UNKNOWN_OBJECT_NAME",)
    text = shown(demo, traces)
    assert "SHOP: RETURNS" in text
    assert f"{count} put = {count} on queues" in text
    assert "every message ended where redrive resolve says" in text


def test_the_report_of_a_wrong_end_names_the_message() -> None:
    """And does not say that all is well."""
    demo = network("mq")
    right = [trace_of(put, put.ends[0], []) for put in demo.messages]
    assert "every message ended where" in shown(demo, right)
    wrong = replace(right[0], ends=[(End(REMAINING, "SOME@WHERE"), None)])
    text = shown(demo, [wrong, *right[1:]])
    assert "message 0 (" in text
    assert "ended remaining SOME@WHERE, not" in text
    assert "every message ended where" not in text


def trace_of(put: Message, end: End, outcomes: Sequence[Outcome]) -> Trace:
    """A message that ended somewhere, over some steps."""
    arrived = replace(
        put.original, headers=(*put.original.headers, *((name, b"1") for name in put.made))
    )
    found = Found("x:0:0", put.topic, put.number, arrived)
    reason = next((one.reason for one in put.ends if one == end), 0)
    steps = outcomes or [outcome(reason=reason)]
    return Trace(message=put, inputs=[found], ends=[(end, found)], outcomes=steps)


def shown(demo: NetworkScript, traces: Sequence[Trace]) -> str:
    """What a report prints."""
    sums = reconcile(traces, demo.ends, counted=demo.counted)
    report = Report(script=demo, traces=traces, reconciliation=sums, seconds=1.0)
    console = Console(file=(stream := io.StringIO()), width=120)
    report.show(console)
    assert report.document()["adds_up"] is report.adds_up
    return stream.getvalue()

"""The demos of networks: what they put, where that has to end, and how the sum comes out."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from rich.console import Console

from redrive.configuration import JobConfiguration
from redrive.demo import Found, Record
from redrive.demo.networks import (
    NETWORKS,
    End,
    EndKind,
    NetworkReport,
    Predictor,
    Put,
    generate_puts,
    reconcile_puts,
)
from redrive.demo.networks.cluster import Outcome, Written
from redrive.demo.networks.ends import Places
from redrive.demo.networks.reconciliation import Traced, trace
from redrive.messages import Form, add_header, new_header
from redrive.settings import read_settings
from redrive.streaming.factory import topology_of
from redrive.topology.names import put_topic, topic_name

ROOT = Path(__file__).parents[2]
PATIENCE = 500
"""Seconds: on an idle machine it takes fifty."""

NAMES = sorted(NETWORKS)


def job_of(network: str) -> JobConfiguration:
    """The job of an example's settings."""
    return read_settings(ROOT / "examples" / network / "redrive.toml").job


def puts_of(network: str, messages: int = 200, seed: int = 1) -> list[Put]:
    """The puts of a demo."""
    return generate_puts(NETWORKS[network].acts, messages, seed)


def identity_of(put: Put) -> str:
    """Where a put lies on its intake, if all others were put before it."""
    return f"{put_topic(put.kind.at)}:0:{put.number}"


# What is put


@pytest.mark.parametrize("network", NAMES)
def test_a_seed_gives_the_same_puts_again(network: str) -> None:
    """Another one gives others."""
    assert puts_of(network) == puts_of(network)
    assert puts_of(network) != puts_of(network, seed=2)


@pytest.mark.parametrize("network", NAMES)
@pytest.mark.parametrize("messages", [50, 600])
def test_every_kind_is_put_in_every_part(network: str, messages: int) -> None:
    """As many in all as were asked for, each with a number of its own."""
    puts = puts_of(network, messages)
    assert [put.number for put in puts] == list(range(messages))
    wanted = {(act.name, kind) for act in NETWORKS[network].acts for kind, _ in act.shares}
    assert {(put.act, put.kind) for put in puts} == wanted
    assert all(len(put.body) >= put.kind.length for put in puts)


def test_too_few_messages_for_all_kinds_are_refused() -> None:
    """Rather than a demo that leaves something out."""
    with pytest.raises(ValueError, match="too few"):
        puts_of("mq", 10)


@pytest.mark.parametrize("network", NAMES)
def test_the_package_holds_the_examples_themselves(network: str, tmp_path: Path) -> None:
    """There is one copy, and the settings name the broker of the demo."""
    packaged = files("redrive.demo.networks").joinpath(network)
    assert Path(str(packaged)).resolve() == ROOT / "examples" / network
    NETWORKS[network].write_files(tmp_path, "127.0.0.1:7")
    assert read_settings(tmp_path / "redrive.toml").job.connection.bootstrap_servers == (
        "127.0.0.1:7"
    )


# Where it has to end

_DEAD = EndKind.DEAD_LETTER
ENDS = {
    "mq": {
        "a local queue": End(EndKind.QUEUE, "RECEIPTS@SHOP"),
        "a chain of aliases": End(EndKind.QUEUE, "LEDGER@OFFICE"),
        "a remote definition, over a hub": End(EndKind.QUEUE, "ORDERS@DEPOT"),
        "both names given": End(EndKind.QUEUE, "ORDERS@DEPOT"),
        "a manager of the cluster": End(EndKind.QUEUE, "RECEIPTS@SHOP"),
        "unknown there: a rule forwards it": End(EndKind.QUEUE, "RETURNS@OFFICE"),
        "unknown there, and no rule helps": End(EndKind.REMAINING, "DEPOT.DEAD@DEPOT", 2085),
        "too long": End(_DEAD, "SHOP.DEAD@SHOP", 2030),
        "too long there: a rule forwards it": End(EndKind.QUEUE, "ORDERS.LONG@DEPOT"),
        "nothing leads there": End(_DEAD, "SHOP.DEAD@SHOP", 2087),
        "expires on the way": End(EndKind.EXPIRED),
    },
    "mqe": {
        "synchronous, over a via connection": End(EndKind.QUEUE, "Orders@OfficeQM"),
        "an alias of a queue": End(EndKind.QUEUE, "Orders@OfficeQM"),
        "an alias of a manager": End(EndKind.QUEUE, "Orders@OfficeQM"),
        "no definition: discovery": End(EndKind.QUEUE, "Positions@GatewayQM"),
        "no queue accepts it": End(_DEAD, "Dead@HandheldQM"),
        "asynchronous, too long at its end": End(EndKind.REMAINING, "Reports@HandheldQM"),
        "asynchronous": End(EndKind.QUEUE, "Reports@OfficeQM"),
        "asynchronous, expires in store": End(EndKind.EXPIRED),
        "store and forward, pulled": End(EndKind.QUEUE, "Jobs@HandheldQM"),
        "pulled, and no queue accepts it": End(_DEAD, "Dead@HandheldQM"),
    },
}
"""By what a kind shows; written down by hand from the definitions."""


@pytest.mark.parametrize("network", NAMES)
def test_each_kind_ends_where_its_definitions_lead(network: str) -> None:
    """The cluster queue left out, of which each message has its own instance."""
    predictor = Predictor(job_of(network))
    ends = {
        put.kind.what: predictor.end(put, identity_of(put))
        for put in puts_of(network)
        if put.kind.queue != "STOCK"
    }
    assert ends == ENDS[network]


def test_both_instances_of_a_cluster_queue_get_their_part() -> None:
    """By the message alone, so that a replay decides alike."""
    predictor = Predictor(job_of("mq"))
    puts = [put for put in puts_of("mq", 600) if put.kind.queue == "STOCK"]
    counts = Counter(predictor.end(put, identity_of(put)).place for put in puts)
    assert counts.keys() == {"STOCK@OFFICE", "STOCK@DEPOT"}
    assert min(counts.values()) > len(puts) / 4


def test_places_tell_what_a_topic_is_to_a_message() -> None:
    """A handled dead-letter queue and a transmission queue are no ends."""
    job = job_of("mq")
    handled = topic_name(queue="DEPOT.DEAD", queue_manager="DEPOT")
    places = Places(topology_of(job.topology), {handled})
    assert places.end(
        topic_name(queue="ORDERS", queue_manager="DEPOT"),
        topic_name(queue="ORDERS", queue_manager="DEPOT"),
    ) == End(EndKind.QUEUE, "ORDERS@DEPOT")
    letters = topic_name(queue="SHOP.DEAD", queue_manager="SHOP")
    assert places.end(letters, letters).kind is EndKind.DEAD_LETTER
    transmission = topic_name(queue="OFFICE", queue_manager="SHOP")
    for topic in (handled, transmission, put_topic("SHOP"), "a-retry-topic"):
        assert places.end(topic, topic).kind is EndKind.WAITING
    assert places.end(handled, "its-remaining-topic").kind is EndKind.REMAINING
    assert places.over(transmission) == "SHOP.OFFICE"


# The sum


def sound(network: str = "mq") -> list[Traced]:
    """Every put where it has to be, as a faultless job leaves it."""
    puts = puts_of(network, 60)
    predictor = Predictor(job_of(network))
    predicted = {put.number: predictor.end(put, identity_of(put)) for put in puts}
    written = {put.number: Written(identity_of(put), record_of(put)) for put in puts}
    found = [
        (replace(end, reason=0), found_of(put, end))
        for put in puts
        if (end := predicted[put.number]).kind is not EndKind.EXPIRED
    ]
    outcomes = {
        identity_of(put): [
            Outcome(
                message=identity_of(put),
                result="expired" if put.kind.expiry else "routed",
                topic="",
                rule_line=0,
                reason=predicted[put.number].reason,
            )
        ]
        for put in puts
    }
    return trace(puts, written, predicted, found, outcomes)


def record_of(put: Put) -> Record:
    """A put without the names, as it arrives."""
    return Record(put.key, put.body, tuple(put.message_headers), 1_000)


def found_of(put: Put, end: End) -> Found:
    """A put where it ends, with a dead-letter header if it is a dead letter."""
    record = record_of(put)
    if end.kind is EndKind.DEAD_LETTER:
        plain = list(record.headers)
        header = new_header(
            plain, reason=end.reason, queue=put.kind.queue, queue_manager="Q", timestamp=0
        )
        value, headers = add_header(header, record.value, plain, form=Form.BINARY)
        record = replace(record, value=value, headers=tuple(headers))
    return Found(f"{end.place}:0:{put.number}", end.place, put.number, record)


def on_queue(traced: Sequence[Traced]) -> int:
    """Index of the first put that is on a queue."""
    return next(i for i, one in enumerate(traced) if one.ends[0][0].kind is EndKind.QUEUE)


@pytest.mark.parametrize("network", NAMES)
def test_a_faultless_job_adds_up_to_the_last_message(network: str) -> None:
    """A dead letter is the message that was put, once its header is off."""
    result = reconcile_puts(sound(network))
    assert result.problems == ()
    assert result.adds_up
    assert sum(result.ends.values()) == result.puts == 60
    assert all(result.ends.get(kind) for kind in EndKind if kind is not EndKind.WAITING)


def test_the_sum_is_told_in_one_line() -> None:
    """What waits is told only if anything does."""
    result = reconcile_puts(sound())
    ends = dict.fromkeys(EndKind, 1) | {EndKind.WAITING: 0}
    line = str(replace(result, puts=4, ends=ends))
    assert line == (
        "4 put = 1 on queues + 1 dead letters + 1 expired + 1 remaining, 0 lost, 0 duplicated"
    )
    assert "+ 2 waiting" in str(replace(result, ends={EndKind.WAITING: 2}))


Damage = Callable[[Traced], Traced]


def elsewhere(one: Traced) -> Traced:
    """The same message on another queue."""
    ((end, found),) = one.ends
    return replace(one, ends=[(replace(end, place="OTHER@SHOP"), found)])


def changed(**changes: object) -> Damage:
    """A damage to what was found."""

    def damage(one: Traced) -> Traced:
        ((end, found),) = one.ends
        assert found is not None
        record = replace(found.record, **changes)  # type: ignore[arg-type]
        return replace(one, ends=[(end, replace(found, record=record))])

    return damage


@pytest.mark.parametrize(
    ("damage", "lost", "duplicated", "problem"),
    [
        (lambda one: replace(one, ends=[]), 1, 0, ""),
        (lambda one: replace(one, ends=[*one.ends, *one.ends]), 0, 1, ""),
        (elsewhere, 0, 0, "ended OTHER@SHOP, and not"),
        (changed(value=b"other"), 0, 0, "the value on"),
        (changed(key=b"other"), 0, 0, "the key on"),
        (changed(headers=()), 0, 0, "the headers on"),
        (changed(timestamp=1), 0, 0, "the timestamp on"),
        (lambda one: replace(one, written=None), 0, 0, "was never put"),
    ],
)
def test_whatever_is_wrong_with_one_message_is_found(
    damage: Damage, lost: int, duplicated: int, problem: str
) -> None:
    """Lost, twice, in the wrong place, or not as it was put."""
    traced = sound()
    index = on_queue(traced)
    traced[index] = damage(traced[index])
    result = reconcile_puts(traced)
    assert not result.adds_up
    assert (result.lost, result.duplicated) == (lost, duplicated)
    if problem:
        assert any(problem in told for told in result.problems)


def test_a_dead_letter_for_another_reason_is_found() -> None:
    """It is in the right place, and why it is there is wrong."""
    traced = sound()
    index = next(i for i, one in enumerate(traced) if one.predicted.kind is EndKind.DEAD_LETTER)
    one = traced[index]
    traced[index] = replace(one, outcomes=[replace(one.outcomes[0], reason=2053)])
    (problem,) = reconcile_puts(traced).problems
    assert "ended with reasons [2053]" in problem


def test_a_message_that_still_waits_does_not_add_up() -> None:
    """Even though it is neither lost nor duplicated."""
    traced = sound()
    index = on_queue(traced)
    one = traced[index]
    waits = End(EndKind.WAITING, "OFFICE@SHOP")
    traced[index] = replace(one, predicted=waits, ends=[(waits, one.ends[0][1])])
    assert not reconcile_puts(traced).adds_up


# The report


def test_the_table_tells_the_way_and_the_reason() -> None:
    """Over which channels, by which rule, and why; messages that are alike in one row."""
    job = job_of("mq")
    puts = [put for put in puts_of("mq") if put.kind.queue == "RETURNS"]
    end = End(EndKind.QUEUE, "RETURNS@OFFICE")
    steps = [
        ("routed", topic_name(queue="OFFICE", queue_manager="SHOP"), 0, 0),
        ("routed", topic_name(queue="DEPOT", queue_manager="OFFICE"), 0, 0),
        ("dead-lettered", topic_name(queue="DEPOT.DEAD", queue_manager="DEPOT"), 0, 2085),
        ("forwarded", topic_name(queue="OFFICE", queue_manager="DEPOT"), 13, 0),
        ("routed", topic_name(queue="RETURNS", queue_manager="OFFICE"), 0, 0),
    ]
    traced = [
        Traced(
            put=put,
            written=Written(identity_of(put), record_of(put)),
            predicted=end,
            ends=[(end, found_of(put, end))],
            outcomes=[Outcome("m", result, topic, line, why) for result, topic, line, why in steps],
        )
        for put in puts
    ]
    report = NetworkReport(
        network="mq",
        seed=1,
        kinds=[puts[0].kind],
        traced=traced,
        reconciliation=reconcile_puts(traced),
        places=Places(
            topology_of(job.topology), {topic_name(queue="DEPOT.DEAD", queue_manager="DEPOT")}
        ),
        seconds=1.0,
    )
    ((row, count),) = report.rows().items()
    assert count == len(puts) > 1
    assert row.way == (
        "SHOP.OFFICE", "OFFICE.DEPOT", "DEPOT.DEAD@DEPOT", "rule at line 13", "DEPOT.OFFICE",
    )  # fmt: skip
    assert row.reasons == ("MQRC_UNKNOWN_OBJECT_NAME",)
    console = Console(file=(stream := io.StringIO()), width=120)
    report.show(console)
    text = stream.getvalue()
    assert "SHOP: RETURNS" in text
    assert f"{count} put = {count} on queues" in text
    assert "every message ended where redrive resolve says" in text


# The whole demo


def run_demo(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run ``redrive demo`` as a user does; what it leaves in its temporary folder is seen."""
    return subprocess.run(
        [sys.executable, "-m", "redrive", "demo", *arguments],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("network", NAMES)
def test_the_demo_of_a_network_adds_up(network: str, tmp_path: Path) -> None:
    """On a real broker, with a channel that stands still; nothing stays behind."""
    options = ["--messages", "60", "--seed", "7", "--json"]
    done = run_demo(network, *options, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["adds_up"]
    assert result["put"] == sum(result["ends"].values()) == 60
    assert {end for end, count in result["ends"].items() if count} == {
        "on queues", "dead letters", "expired", "remaining",
    }  # fmt: skip
    assert "redrive channel stop" in done.stderr
    assert list(tmp_path.glob("redrive-demo-*")) == []


def test_a_network_has_no_fast_demo(tmp_path: Path) -> None:
    """The option would have no effect, and an unknown network no demo."""
    refused = run_demo("mq", "--fast", folder=tmp_path)
    assert refused.returncode == 2
    assert "hint: --messages 100" in refused.stderr
    assert run_demo("mqq", folder=tmp_path).returncode == 2

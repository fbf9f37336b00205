"""Instructions to replay: what is written for them, and what is left alone."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.failed_processing import spring
from tests.engine.known_cluster import KnownCluster
from tests.engine.samples import (
    NOW,
    dead_letter,
    handler_of,
    outcomes_in,
    slice_of,
    written,
)

from redrive.engine.commands import Replay, Span, To, free_by_order, read_replays
from redrive.engine.context import Entry
from redrive.engine.facts import TAKEN_AWAY, Copies, Facts, Replayed
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.slice import Slice, SliceSettings
from redrive.engine.sources import InstructionSource, PartitionRecords, SourceKind
from redrive.messages import DeadLetterDecoder, Headers, OutputRecord, Records, TopicPartition
from redrive.messages import own_headers as own
from redrive.topology.put import Destination, Refusal

NO_REPLAY = Replayed(0, {})
ORIGINS = tuple(f"DLQ:3:{number}".encode() for number in range(4))


def copy_of(origin: bytes) -> OutputRecord:
    """The remaining copy of a dead letter."""
    headers = [
        *dead_letter(2053, "Q"), (own.ID, origin), (own.ORIGIN, origin), (own.KEY, b"k"),
        (own.TIMESTAMP, b"77"), (own.HOPS, b"0"),
    ]  # fmt: skip
    return OutputRecord("REMAINING", origin, b"body", headers, NOW, 3)


def instructions(*rows: tuple[bytes, str]) -> Records:
    """An instruction for each origin and plan."""
    copies = [(copy_of(origin), plan) for origin, plan in rows]
    return Records(
        [copy.key for copy, _ in copies],
        [copy.value for copy, _ in copies],
        [[*(copy.headers or []), (own.REPLAY, plan.encode())] for copy, plan in copies],
        [NOW] * len(rows),
        list(range(len(rows))),
    )


def carried_out(
    records: Records,
    *replays: Replay,
    copies: Copies | None = None,
    handler: RulesDecider | None = None,
    replayed: Replayed = NO_REPLAY,
) -> list[Entry]:
    """What is written for instructions while all messages remain, or as said."""
    there = {origin: number for number, origin in enumerate(ORIGINS)} if copies is None else copies
    cluster = KnownCluster(
        copies=there, replays={replay.plan: replay for replay in replays}, replayed=replayed
    )
    return cluster.decided(slice_of(records, handler or handler_of(), kind=SourceKind.REPLAYS))


ORIGINAL = Replay(plan="p", to=To.ORIGINAL, operator="ann", purpose="it is there again")


@pytest.mark.parametrize("table", ["ACTION(IGNORE)\n", "DIALECT(KAFKA)\nACTION(IGNORE)\n"])
def test_a_replay_to_the_group_puts_to_its_topic_under_any_table(table: str) -> None:
    replay = Replay(plan="p", to=To.GROUP)
    records = instructions((ORIGINS[0], "p"), (ORIGINS[1], "p"))
    letter = spring(OutputRecord("orders", b"k", b"{}", [], 5), 7, 5)
    own_headers = [pair for pair in records.headers[0] if pair[0].startswith("redrive.")]
    records.headers[0][:] = [*(letter.headers or []), *own_headers]
    entries = carried_out(records, replay, handler=handler_of(table))
    (put,) = written(entries, "orders.billing.retry")
    group_topic = own.read_own(put.headers or []).group_topic
    assert group_topic == own.GroupTopic("orders.billing.retry", "orders", 0)
    first, second = outcomes_in(entries)
    assert (first["result"], second["result"]) == ("retried", "remains")
    assert "names no consumer group" in second["detail"]


@given(
    st.lists(st.tuples(st.sampled_from(ORIGINS), st.sampled_from("pqc?")), min_size=1, max_size=8),
    st.dictionaries(st.sampled_from(ORIGINS), st.sampled_from([7, TAKEN_AWAY])),
)
def test_whatever_is_asked_for_each_message_that_remains_is_placed_once(
    rows: list[tuple[bytes, str]], copies: dict[bytes, int]
) -> None:
    cancelled = replace(ORIGINAL, plan="c", cancelled_by="bob")
    entries = carried_out(
        instructions(*rows),
        ORIGINAL,
        Replay(plan="q", to=To.QUEUE, queue="Q"),
        cancelled,
        copies=copies,
    )
    results = Counter(outcome["result"] for outcome in outcomes_in(entries))
    assert sum(results.values()) == len(rows), "each instruction has an outcome"
    wanted = {origin for origin, plan in rows if plan in "pq"}
    placed = {origin for origin in wanted if copies.get(origin) == 7}
    puts = Counter(own.read_own(record.headers or []).identity for record in written(entries, "Q"))
    assert puts == {origin.decode(): 1 for origin in placed}
    assert Counter(record.key for record in written(entries, "REMAINING")) == dict.fromkeys(
        placed, 1
    )
    assert results["cancelled"] == sum(1 for _, plan in rows if plan == "c")


ASKED = 7
"""The offset up to which outcomes were looked at before an instruction was restored."""


@given(
    st.sampled_from([{}, {ORIGINS[0]: 3}, {ORIGINS[0]: TAKEN_AWAY}]),
    st.sampled_from([b"2:%d" % ASKED, b"1", b"x"]),
    st.integers(ASKED - 2, ASKED + 2),
    st.dictionaries(
        st.sampled_from([origin.decode() for origin in ORIGINS[:2]]),
        st.integers(ASKED - 3, ASKED + 3),
    ),
)
def test_a_message_is_restored_only_while_no_outcome_says_that_it_was_placed(
    copies: dict[bytes, int], header: bytes, known_from: int, placed: dict[str, int]
) -> None:
    records = instructions((ORIGINS[0], "p"))
    records.headers[0].append((own.RESTORED, header))
    entries = carried_out(records, ORIGINAL, copies=copies, replayed=Replayed(known_from, placed))
    (outcome,) = outcomes_in(entries)
    if copies == {ORIGINS[0]: 3}:
        expected = "retried"
    else:  # a tombstone may be that of a discard, which the instruction undoes
        is_told = header == b"2:%d" % ASKED and known_from <= ASKED
        is_placed = placed.get(ORIGINS[0].decode(), -1) >= ASKED
        expected = "retried" if is_told and not is_placed else "skipped"
    assert outcome["result"] == expected
    assert len(written(entries, "Q")) == (expected == "retried")


def test_a_copy_that_was_replayed_is_not_evaluated_again() -> None:
    copies = {ORIGINS[0]: TAKEN_AWAY, ORIGINS[1]: 1, ORIGINS[2]: 9}
    letters = [copy_of(origin) for origin in ORIGINS[:3]]
    records = Records(
        [letter.key for letter in letters],
        [letter.value for letter in letters],
        [letter.headers or [] for letter in letters],
        [NOW] * 3,
        [0, 1, 2],
    )
    work = slice_of(records, handler_of(), kind=SourceKind.REMAINING, may_be_gone=True)
    entries = KnownCluster(copies=copies).decided(work)
    assert [outcome["origin"] for outcome in outcomes_in(entries)] == ["DLQ:3:1"]


INTERVAL = 5_000
"""Milliseconds of the handler's RETRYINT."""
RETRIES = TopicPartition("RETRY", 3)


def order_of(to: To, *named: int, cancelled_by: str = "", accepted: float = 0.0) -> Replay:
    """A plan about parked copies, by their offsets."""
    span = Span(first=0, count=len(named), end=max(named) + 1, named=frozenset(named))
    return Replay(
        plan=f"{to}-{accepted:g}", to=to, operator="ann", cancelled_by=cancelled_by,
        accepted=accepted, spans={RETRIES: span},
    )  # fmt: skip


def tried(ages: list[int], *orders: Replay, handler: RulesDecider | None = None) -> list[Entry]:
    """What is written for parked copies of so many milliseconds, which were tried once."""
    copies = [copy_of(f"DLQ:3:{number}".encode()) for number in range(len(ages))]
    records = Records(
        [b"k"] * len(ages),
        [copy.value for copy in copies],
        [[*(copy.headers or []), (own.FAILURES, b"1"), (own.TABLE, b"0" * 16)] for copy in copies],
        [NOW - age for age in ages],
        list(range(len(ages))),
    )
    cluster = KnownCluster(replays={order.plan: order for order in orders})
    return cluster.decided(slice_of(records, handler or handler_of(), kind=SourceKind.RETRIES))


@given(
    st.lists(st.sampled_from([0, INTERVAL - 1, INTERVAL, 2 * INTERVAL]), min_size=1, max_size=6),
    st.lists(
        st.tuples(
            st.sampled_from([To.ATTEMPT, To.REMAIN]),
            st.sets(st.integers(0, 7), min_size=1),
            st.booleans(),
        ),
        max_size=3,
    ),
)
def test_of_parked_messages_those_named_are_dealt_with_and_others_wait_until_they_are_due(
    ages: list[int], asked: list[tuple[To, set[int], bool]]
) -> None:
    orders = [
        order_of(to, *named, cancelled_by="bob" if is_cancelled else "", accepted=float(number))
        for number, (to, named, is_cancelled) in enumerate(asked)
    ]
    entries = tried(ages, *orders)
    puts = {own.read_own(record.headers or []).origin or own.read_own(record.headers or []).identity
            for record in written(entries, "Q")}  # fmt: skip
    kept = {(record.key or b"").decode() for record in written(entries, "REMAINING")}
    waits = {
        own.read_own(record.headers or []).origin: record for record in written(entries, "RETRY")
    }
    last_named = max((max(named) for _, named, _ in asked), default=-1)
    for number, age in enumerate(ages):
        name = f"DLQ:3:{number}"
        targets = [to for to, named, is_cancelled in asked if number in named and not is_cancelled]
        is_due = age >= INTERVAL or number > last_named
        expected = (name in puts, name in kept, name in waits)
        if targets:
            assert expected == (targets[-1] is To.ATTEMPT, targets[-1] is To.REMAIN, False)
        else:
            assert expected == (is_due, False, not is_due)
        if name in waits:
            copy = waits[name]
            assert (copy.timestamp, copy.partition) == (NOW - age, 3)
            assert own.read_own(copy.headers or []).failures == 1
    assert len(outcomes_in(entries)) == len(ages)


def test_an_attempt_that_was_asked_for_counts_as_any_other() -> None:
    def refuse(queue_manager: str, queue: str) -> Destination | Refusal:
        return Refusal(2053, "full")

    handler = handler_of(resolve=refuse)
    for table, result in ((handler.table_id.encode(), "remains"), (b"0" * 16, "parked")):
        part = written(tried([0], order_of(To.ATTEMPT, 1)), "RETRY")
        headers = [*(part[0].headers or []), (own.TABLE, table)]
        records = Records([b"k"], [b"body"], [headers], [NOW], [0])
        order = order_of(To.ATTEMPT, 0)
        work = slice_of(records, handler, kind=SourceKind.RETRIES)
        (outcome,) = outcomes_in(KnownCluster(replays={"p": order}).decided(work))
        assert (outcome["result"], outcome["operator"]) == (result, "ann")


@given(st.builds(
    Replay, plan=st.just("p"), to=st.sampled_from(To), queue=st.text(max_size=5),
    rate=st.none() | st.floats(0.1, 1e6), operator=st.text(max_size=5), is_complete=st.booleans(),
    is_undo=st.booleans(),
))  # fmt: skip
def test_a_replay_is_read_as_it_was_written(replay: Replay) -> None:
    key, value = replay.entry()
    assert read_replays({key: json.loads(json.dumps(value))}) == {"p": replay}


def test_an_order_about_parked_messages_frees_its_lanes_until_it_is_cancelled() -> None:
    order = order_of(To.REMAIN, 3, 8)
    key, value = order.entry()
    assert read_replays({key: json.loads(json.dumps(value))})["remain-0"] == order
    assert free_by_order([order, order_of(To.ATTEMPT, 2), ORIGINAL]) == {RETRIES: 9}
    assert free_by_order([replace(order, cancelled_by="bob")]) == {}


def test_an_entry_of_another_form_is_no_replay() -> None:
    key, value = ORIGINAL.entry()
    assert not read_replays({key: {**value, "to": "the moon"}, "replay/x": {}, "table/x": {}})


_REPLAYS = (
    ORIGINAL,
    Replay(plan="kept", to=To.QUEUE, queue="REPAIR", keeps_header=True),
    Replay(plan="stripped", to=To.QUEUE, queue="REPAIR"),
    Replay(plan="rules", to=To.RULES),
    Replay(plan="gone", to=To.DISCARD),
    Replay(plan="no", to=To.ORIGINAL, cancelled_by="ann"),
)
_MAYBE: dict[str, tuple[bytes, ...]] = {
    own.FAILURES: (b"0", b"3"),
    own.TABLE: (b"0123456789abcdef",),
    own.QUARANTINE: (b"1",),
    own.KEY: (b"k", b""),
    own.NULL: (b"1",),
    own.RESTORED: (b"0:5",),
    own.CUT: (b"body",),
}


@st.composite
def _uniform_instructions(draw: st.DrawFn) -> Records:
    """Instructions that all carry the same header names."""
    more = draw(st.lists(st.sampled_from(sorted(_MAYBE)), unique=True))
    plans = st.sampled_from([*(replay.plan for replay in _REPLAYS), "unknown"])
    origins = st.sampled_from([*ORIGINS, b"DLQ:3:9", b"no identity"])
    rows = draw(st.integers(1, 6))
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: list[Headers] = []
    for _ in range(rows):
        origin = draw(origins)
        identity = draw(st.sampled_from([origin, origin, b"other:0:1", b"rubbish"]))
        keys.append(origin)
        values.append(draw(st.sampled_from([b"body", b"", b"x" * 50])))
        headers.append(
            [
                *dead_letter(draw(st.sampled_from([2053, 2085])), draw(st.sampled_from(["Q", ""]))),
                ("JMS_IBM_MQMD_Persistence", draw(st.sampled_from([b"2", b"1"]))),
                (own.ID, identity),
                (own.ORIGIN, origin),
                (own.TIMESTAMP, draw(st.sampled_from([b"77", b"rubbish"]))),
                (own.HOPS, draw(st.sampled_from([b"0", b"2", b"99"]))),
                *((name, draw(st.sampled_from(_MAYBE[name]))) for name in more),
                (own.REPLAY, draw(plans).encode()),
            ]
        )
    return Records(keys, values, headers, [NOW] * rows, list(range(rows)))


@given(_uniform_instructions(), st.sampled_from(["", "DIALECT(KAFKA)\n"]))
def test_prepared_puts_of_instructions_write_what_the_careful_way_writes(
    records: Records, dialect: str
) -> None:
    handler = handler_of(f"{dialect}ACTION(RETRY)\n")
    copies = {b"DLQ:3:0": 0, b"DLQ:3:1": 1, b"DLQ:3:2": TAKEN_AWAY, b"no identity": 3}
    quick = carried_out(records, *_REPLAYS, copies=copies, handler=handler)
    mixed = Records(
        [*records.keys, b"z"],
        [*records.values, b"x"],
        [*records.headers, [("other", b"1")]],
        [*records.timestamps, NOW],
        [*records.offsets, records.offsets[-1] + 1],
    )
    careful = carried_out(mixed, *_REPLAYS, copies=copies, handler=handler)
    assert quick == careful[: len(quick)]
    assert {entry for entry, _ in careful[len(quick) :]} <= {-1, len(records)}


def test_a_plan_that_is_cancelled_between_two_slices_of_a_batch_does_no_more() -> None:
    handler, decoder, facts = handler_of(), DeadLetterDecoder(), Facts(lambda: 0.0)
    settings, results = SliceSettings(outcomes_topic="OUT", now=NOW), []
    for number, operator in enumerate(["", "bob"]):
        records = instructions((ORIGINS[number], "p"))
        part = PartitionRecords(TopicPartition("REPLAY", 3), handler, SourceKind.REPLAYS, records)
        work = Slice([part], decoder, facts, settings)
        work.resume({})
        cluster = KnownCluster(
            copies={origin: index for index, origin in enumerate(ORIGINS)},
            replays={"p": replace(ORIGINAL, cancelled_by=operator)},
        )
        results += [outcome["result"] for outcome in outcomes_in(cluster.decided(work))]
    assert results == ["retried", "cancelled"]


def test_most_instructions_are_carried_out_by_a_prepared_put(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = Counter[int]()
    original = InstructionSource.read

    def counted(self: InstructionSource, row: int) -> Any:
        read[row] += 1
        return original(self, row)

    monkeypatch.setattr(InstructionSource, "read", counted)
    entries = carried_out(instructions(*((origin, "p") for origin in ORIGINS)), ORIGINAL)
    assert len(written(entries, "Q")) == len(ORIGINS)
    assert not read

"""A slice: what it asks, what it writes, where it resumes, and how it splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.known_cluster import OPEN, KnownCluster
from tests.engine.samples import dead_letter, handler_of, outcomes_in, resolve_anything

from redrive.engine.context import Entry
from redrive.engine.facts import MISSING, Answers, DepthQuestion, Facts, Questions, TopicFacts
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.slice import Slice, SliceSettings
from redrive.engine.sources import PartitionRecords, SourceKind
from redrive.messages import (
    INTERNAL,
    DeadLetterDecoder,
    OutputRecord,
    Records,
    Refused,
    TopicPartition,
)
from redrive.topology.put import Destination, QueueLimits, Refusal

SETTINGS = SliceSettings(outcomes_topic="OUT", now=90_000)
FIRST, SECOND = TopicPartition("DLQ", 0), TopicPartition("DLQ", 1)
HANDLER = handler_of()


def part(
    lane: TopicPartition, start: int, queues: Sequence[str], handler: RulesDecider = HANDLER
) -> PartitionRecords:
    """Dead letters for some queues, which a rule retries; those for no queue are discarded."""
    count = len(queues)
    records = Records(
        keys=[b"k"] * count,
        values=[b"%d" % number for number in range(start, start + count)],
        headers=[dead_letter(2053 if queue else 2051, queue) for queue in queues],
        timestamps=[77] * count,
        offsets=list(range(start, start + count)),
    )
    return PartitionRecords(lane, handler, SourceKind.DEAD_LETTERS, records)


def slice_of(*parts: PartitionRecords, facts: Facts | None = None) -> Slice:
    """A slice that knows nothing of the cluster, unless facts are given."""
    return Slice(parts, DeadLetterDecoder(), facts or Facts(lambda: 0.0), SETTINGS)


def places(outputs: Sequence[Entry]) -> list[tuple[int, int]]:
    """Partition and offset of the inputs, as their outcomes tell."""
    return [(outcome["partition"], outcome["offset"]) for outcome in outcomes_in(outputs)]


def results(outputs: Sequence[Entry]) -> list[str]:
    return [outcome["result"] for outcome in outcomes_in(outputs)]


def puts(outputs: Sequence[Entry]) -> dict[int, OutputRecord]:
    return {entry: record for entry, record in outputs if entry != INTERNAL}


def test_a_slice_asks_for_every_target_at_once_and_then_no_more() -> None:
    work = slice_of(part(FIRST, 5, ["Q", "R", "Q", ""]), part(SECOND, 0, ["S"]))
    questions = work.decide()
    assert questions == Questions(frozenset({"Q", "R", "S"}))
    work.learn(OPEN.answers(questions))
    assert not work.decide()
    assert [put.topic for put in puts(work.outputs).values()] == ["Q", "R", "Q", "S"]


def test_an_answer_can_lead_to_another_question() -> None:
    facts = Facts(lambda: 0.0)

    def resolve(queue_manager: str, queue: str) -> Destination | Refusal:
        is_there = facts.topic(queue).exists
        return resolve_anything(queue_manager, queue if is_there else "SPARE")

    work = slice_of(part(FIRST, 0, ["Q"], handler_of(resolve=resolve)), facts=facts)
    assert work.decide() == Questions(frozenset({"Q"}))
    work.learn(Answers({"Q": MISSING}))
    assert work.decide() == Questions(frozenset({"SPARE"}))
    assert [put.topic for put in puts(OPEN.decided(work)).values()] == ["SPARE"]


def test_the_same_facts_give_the_same_outputs() -> None:
    work = slice_of(part(FIRST, 5, ["Q", "", "R"]))
    first = OPEN.decided(work)
    assert OPEN.decided(work) == first
    assert OPEN.decided(slice_of(part(FIRST, 5, ["Q", "", "R"]))) == first


def test_slices_of_a_batch_share_decisions_until_facts_change() -> None:
    facts, settings, resolved = Facts(lambda: 0.0), replace(SETTINGS), []

    def resolve(queue_manager: str, queue: str) -> Destination | Refusal:
        resolved.append(queue)
        return resolve_anything(queue_manager, queue if facts.topic(queue).exists else "SPARE")

    handler, decoder = handler_of(resolve=resolve), DeadLetterDecoder()

    def decided(start: int, cluster: KnownCluster = OPEN) -> list[str]:
        work = Slice([part(FIRST, start, ["Q", "R"], handler)], decoder, facts, settings)
        return [put.topic for put in puts(cluster.decided(work)).values()]

    assert decided(0) == ["Q", "R"]
    resolved.clear()
    assert decided(2) == ["Q", "R"]
    assert not resolved
    facts.doubt(["Q"])
    assert decided(4, KnownCluster({"Q": MISSING})) == ["SPARE", "R"]


def test_what_was_asked_and_not_answered_is_asked_again_by_the_next_slice() -> None:
    facts, settings, decoder = Facts(lambda: 0.0), replace(SETTINGS), DeadLetterDecoder()
    for start in (0, 1):
        work = Slice([part(FIRST, start, ["Q"])], decoder, facts, settings)
        assert work.decide() == Questions(frozenset({"Q"}))


def test_the_depth_of_a_queue_that_can_be_full_is_asked_for() -> None:
    limits = QueueLimits(max_depth=3, consumer_group="group")

    def resolve(queue_manager: str, queue: str) -> Destination | Refusal:
        given = limits if queue == "Q" else QueueLimits()
        return Destination(topic=queue, queue=queue, queue_manager="", limits=given)

    work = slice_of(part(FIRST, 0, ["Q", "R"], handler_of(resolve=resolve)))
    assert work.decide().depths == {DepthQuestion("Q", "group", 3)}


def test_the_batch_limit_is_that_of_a_target() -> None:
    work = slice_of(part(FIRST, 0, ["Q", "R", ""]))
    limits = {"Q": 5000, "R": 900, "OUT": 10}
    KnownCluster(
        {name: TopicFacts(max_message_bytes=most) for name, most in limits.items()}
    ).decided(work)
    assert work.batch_limit == 900
    nothing = slice_of(part(FIRST, 0, [""]))
    OPEN.decided(nothing)
    assert nothing.batch_limit > 1 << 40


def test_a_slice_resumes_behind_what_was_committed() -> None:
    parts = part(FIRST, 5, ["Q", "R", "S"]), part(SECOND, 0, ["T", "U"])
    work = slice_of(*parts)
    everything = puts(OPEN.decided(work))
    assert work.ends() == {FIRST: 8, SECOND: 2}
    work.resume({FIRST: 7, SECOND: None})
    outputs = OPEN.decided(work)
    assert places(outputs) == [(0, 7), (1, 0), (1, 1)]
    assert puts(outputs) == {entry: everything[entry] for entry in puts(outputs)}
    assert sum(work.summary().inputs.values()) == 3
    work.resume({FIRST: 8, SECOND: 1})
    assert places(OPEN.decided(work)) == [(1, 1)]
    assert work.ends() == {SECOND: 2}


def test_a_refusal_changes_the_plan_of_its_own_record_only() -> None:
    work = slice_of(part(FIRST, 0, ["Q", "Q", "R"]))
    before = puts(OPEN.decided(work))
    second = sorted(before)[1]
    work.refuse([Refused(second, 2035, "not authorised")], ["Q"])
    assert work.decide() == Questions(frozenset({"Q"}))
    outputs = OPEN.decided(work)
    assert puts(outputs) == {entry: record for entry, record in before.items() if entry != second}
    assert results(outputs) == ["retried", "parked", "retried"]
    assert {failure.reason for failure in work.summary().failures} == {2035}


@st.composite
def slices(draw: st.DrawFn) -> tuple[PartitionRecords, ...]:
    """Parts of two lanes in any mixture, those of each lane in offset order."""
    ends = {FIRST: 3, SECOND: 0}
    parts = []
    for _ in range(draw(st.integers(1, 5))):
        lane = draw(st.sampled_from([FIRST, SECOND]))
        queues = draw(st.lists(st.sampled_from(["Q", "R", ""]), min_size=1, max_size=6))
        parts.append(part(lane, ends[lane], queues))
        ends[lane] += len(queues)
    return tuple(parts)


@given(slices())
def test_a_split_keeps_the_order_and_drops_nothing(parts: tuple[PartitionRecords, ...]) -> None:
    whole = slice_of(*parts)
    expected = OPEN.decided(whole)
    halves = whole.split()
    if len(whole) == 1:
        assert halves == ()
        return
    first, second = halves
    assert (len(first), len(first) + len(second)) == (len(whole) // 2, len(whole))
    outputs = [*OPEN.decided(first), *OPEN.decided(second)]
    assert [record for _, record in outputs] == [record for _, record in expected]
    assert {**first.ends(), **second.ends()} == whole.ends()


@pytest.mark.parametrize("count", [2, 5, 8])
def test_a_slice_splits_down_to_single_records(count: int) -> None:
    left, emitted = [slice_of(part(FIRST, 0, ["Q"] * count))], []
    while left:
        work = left.pop(0)
        halves = list(work.split())
        left[:0] = halves
        if not halves:
            emitted += places(OPEN.decided(work))
    assert emitted == [(0, offset) for offset in range(count)]


@pytest.mark.parametrize("reason", [2030, 2110])
def test_a_refusal_that_a_whole_batch_shares_counts_when_each_record_has_a_batch_of_its_own(
    reason: int,
) -> None:
    work = slice_of(part(FIRST, 0, ["Q", "R"]))
    before = puts(OPEN.decided(work))
    first = min(before)
    work.refuse([Refused(first, reason, "refused")], ["Q"])
    assert puts(OPEN.decided(work)) == before
    assert (work.batch_limit, work.has_to_be_split) == (1, False)
    work.refuse([Refused(first, reason, "refused")], ["Q"])
    assert results(OPEN.decided(work)) == ["parked", "retried"]


def test_a_record_that_fits_only_compressed_is_sent_and_a_refusal_is_its_own() -> None:
    letters = part(FIRST, 0, ["Q", "R"])
    letters.records.values[0] = bytes(5_000)
    work, cluster = slice_of(letters), KnownCluster({"Q": TopicFacts(max_message_bytes=2_000)})
    first = min(puts(cluster.decided(work)))
    assert (work.is_packed, work.batch_limit, work.has_to_be_split) == (True, 2_000, False)
    work.refuse([Refused(first, 2030, "refused")], ["Q"])
    assert results(cluster.decided(work)) == ["parked", "retried"]
    assert (work.is_packed, work.has_to_be_split) == (False, False)


def test_a_large_slice_is_split_until_its_records_can_have_batches_of_their_own() -> None:
    work = slice_of(part(FIRST, 0, ["Q"] * 1500))
    first = min(puts(OPEN.decided(work)))
    work.refuse([Refused(first, 2110, "invalid")], ["Q"])
    assert work.has_to_be_split
    assert work.batch_limit > 1
    for half in work.split():
        assert (half.batch_limit, half.has_to_be_split) == (1, False)
        entry = min(puts(OPEN.decided(half)))
        half.refuse([Refused(entry, 2110, "invalid")], ["Q"])
        assert results(OPEN.decided(half)).count("parked") == 1

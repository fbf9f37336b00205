"""The last outcome of messages, or that nobody knows it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.configurations import job_of
from tests.kafka.known_topics import KnownTopics
from tests.outcomes.samples import START, append, outcome

from redrive.engine.facts import ReplayedQuestion
from redrive.engine.outcome import FINAL, UNTOUCHED, put_members
from redrive.kafka.facts import FollowedPuts, FollowedReplays
from redrive.messages import TopicPartition
from redrive.messages import own_headers as own
from redrive.outcomes.ledger import LastOutcomes
from redrive.outcomes.rows import GONE, row_of

ORIGINS = ("dlq:0:0", "dlq~2:0:0", "dlq:0:1")
RESULTS = ("remains", "parked", "retried", "discarded", "skipped")


def outcomes_topic(values: list[bytes], first: int = 0) -> KnownTopics:
    """A cluster with an outcomes topic of one partition, whose first records may be deleted."""
    lane = TopicPartition("redrive-shop-outcomes", 0)
    return KnownTopics({lane: [(START, value) for value in values]}, first=first)


def value_of(origin: str, result: str, plan: str | None = None, topic: str = "dlq") -> bytes:
    columns = {"replay": plan} if plan else {}
    return orjson.dumps(outcome(1, origin=origin, result=result, topic=topic, **columns))


TOLD = st.lists(
    st.tuples(
        st.sampled_from(ORIGINS), st.sampled_from(RESULTS), st.sampled_from([None, "p", "q"])
    ),
    max_size=10,
)


@given(TOLD, st.integers(0, 10), st.integers(0, 10))
def test_the_last_outcome_of_a_message_decides_wherever_it_is_kept(
    tmp_path_factory: pytest.TempPathFactory,
    outcomes: list[tuple[str, str, str | None]],
    in_ledger: int,
    deleted: int,
) -> None:
    configuration = job_of(directory=tmp_path_factory.mktemp("job"))
    values = [value_of(*outcome_of_story) for outcome_of_story in outcomes]
    in_ledger, deleted = min(in_ledger, len(outcomes)), min(deleted, len(outcomes))
    if in_ledger:
        rows = [row_of(value, START, 0, number) for number, value in enumerate(values[:in_ledger])]
        append(configuration.ledger.path, rows)
    cluster: Any = outcomes_topic(values, deleted)
    answer = LastOutcomes.of(configuration, cluster, ORIGINS)
    kept = [number for number in range(len(outcomes)) if number < in_ledger or number >= deleted]
    gap = deleted if deleted > in_ledger else 0
    for origin in ORIGINS:
        numbers = [number for number in kept if outcomes[number][0] == origin]
        moves = [number for number in numbers if outcomes[number][1] not in UNTOUCHED]
        result = outcomes[moves[-1]][1] if moves else None
        is_last = result in FINAL and result != "discarded"  # which a replay may have undone
        is_whole = moves and (is_last or moves[-1] >= gap)
        assert answer.result_of(origin) == (result if is_whole else None)
        if numbers:
            plans = {outcomes[number][2] for number in numbers} - {None}
            assert answer.by_origin[origin].replays == plans
    assert answer.ends == {0: len(outcomes)}


def test_a_ledger_that_passed_over_outcomes_does_not_answer_for_what_was_before(
    tmp_path: Path,
) -> None:
    configuration = job_of(directory=tmp_path)
    gone = row_of(f"{GONE}1 to 3 of partition 0".encode(), START, 0, 3)
    rows = [row_of(value_of("dlq:0:0", "remains"), START, 0, 0), gone]
    rows.append(row_of(value_of("dlq:0:1", "remains"), START, 0, 4))
    append(configuration.ledger.path, rows)
    cluster: Any = outcomes_topic([b""] * 5, 4)
    answer = LastOutcomes.of(configuration, cluster, ORIGINS)
    assert answer.result_of("dlq:0:0") is None
    assert answer.result_of("dlq:0:1") == "remains"


@given(TOLD, st.integers(0, 10), st.integers(0, 10))
def test_a_job_learns_of_every_instruction_that_moved_a_message_since_an_outcome(
    outcomes: list[tuple[str, str, str | None]], since: int, later: int
) -> None:
    topics = {"p": "replay", "q": "other"}
    values = [
        value_of(origin, result, plan, topics.get(plan or "", "dlq"))
        for origin, result, plan in outcomes
    ]
    cluster: Any = outcomes_topic(values[:later])
    followed = FollowedReplays(cluster, "redrive-shop-outcomes", {"replay"})
    followed.since(ReplayedQuestion(0, min(later, since + 2)))
    cluster.logs = outcomes_topic(values).logs
    since = min(since, len(values))
    answer = followed.since(ReplayedQuestion(0, since))
    assert answer.first <= since
    expected = {
        origin: number
        for number, (origin, result, plan) in enumerate(outcomes)
        if number >= since and plan == "p" and result not in UNTOUCHED
    }
    assert {origin: place for origin, place in answer.last.items() if place >= since} == expected


def test_a_job_says_from_where_on_it_knows_what_instructions_moved() -> None:
    values = [value_of("dlq:0:0", "retried", "p", "replay")] * 6
    cluster: Any = outcomes_topic(values, first=4)
    followed = FollowedReplays(cluster, "redrive-shop-outcomes", {"replay"})
    assert followed.since(ReplayedQuestion(0, 2)).first == 4
    assert followed.since(ReplayedQuestion(0, 5)) == (4, {"dlq:0:0": 5})
    cluster.logs, cluster.first = outcomes_topic([*values, b"", b""]).logs, 7
    assert followed.since(ReplayedQuestion(0, 5)).first == 7


def test_a_put_of_a_day_is_found_by_its_key_and_body() -> None:
    now = int(time.time() * 1000)

    def value(digest: bytes, put_at: int, rounds: int) -> bytes:
        header = own.Rounds("0" * 16, ((0, rounds),), rounds, put_at, "dlq", "orders").value
        members = put_members(digest, [(own.ROUNDS, header), (own.HOPS, b"%d" % rounds)])
        return f'{{"detail":"\\"put\\":{{\\"digest\\":\\"","origin":"dlq:0:0",{members}}}'.encode()

    values = [
        value(b"new", now - 2, 1),
        value(b"old", now - 90_000_000, 1),
        value_of("dlq:0:1", "retried"),
    ]
    lane = TopicPartition("redrive-shop-outcomes", 0)
    cluster: Any = KnownTopics({lane: [(now, body) for body in values]})
    followed = FollowedPuts(cluster, "redrive-shop-outcomes")
    last = followed.last([b"new", b"old", b"none"])
    assert {digest: headers.hops for digest, headers in last.items()} == {
        b"new": 1,
        b"old": 0,
        b"none": 0,
    }
    cluster.logs[lane].append((now, value(b"new", now, 2)))
    (again,) = followed.last([b"new"]).values()
    assert again.rounds is not None
    assert again.rounds.by_rule == ((0, 2),)

"""Known facts and open questions: no answer is never taken for an answer."""

from __future__ import annotations

import pytest

from redrive.engine.facts import (
    BEST_CASE,
    MISSING,
    MISSING_AGE,
    TOPIC_AGE,
    Answers,
    DepthQuestion,
    Facts,
    Questions,
    TopicFacts,
)

SMALL = TopicFacts(max_message_bytes=1000)
DEPTH = DepthQuestion("Q", "group", 10)


class Clock:
    """Time that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def facts(clock: Clock) -> Facts:
    """Nothing is known yet."""
    return Facts(clock)


def test_what_is_not_known_is_the_best_case_and_a_question(facts: Facts) -> None:
    assert facts.topic("Q") is BEST_CASE
    assert facts.depth(DEPTH) == 0
    assert facts.take_questions() == Questions(frozenset({"Q"}), frozenset({DEPTH}))
    assert not facts.take_questions()


def test_what_is_known_is_no_question(facts: Facts) -> None:
    facts.learn(Answers({"Q": SMALL, "R": MISSING}, {DEPTH: 7}))
    assert facts.topic("Q") is SMALL
    assert not facts.topic("R").exists
    assert facts.depth(DEPTH) == 7
    assert facts.depth(DEPTH._replace(group="other")) == 0
    assert facts.take_questions() == Questions(
        frozenset(), frozenset({DEPTH._replace(group="other")})
    )


def test_what_is_doubted_is_asked_again(facts: Facts) -> None:
    facts.learn(Answers({"Q": SMALL, "R": SMALL}))
    facts.doubt(["Q", "never heard of"])
    assert facts.topic("Q") is BEST_CASE
    assert facts.topic("R") is SMALL
    assert facts.take_questions() == Questions(frozenset({"Q"}))


@pytest.mark.parametrize(
    ("answer", "age"),
    [
        (SMALL, TOPIC_AGE),
        (MISSING, MISSING_AGE),
        (TopicFacts(may_write=False), MISSING_AGE),
        (TopicFacts(silent="no leader"), MISSING_AGE),
    ],
)
def test_an_answer_is_good_for_a_while(
    facts: Facts, clock: Clock, answer: TopicFacts, age: float
) -> None:
    facts.learn(Answers({"Q": answer}))
    clock.now += age
    facts.begin_slice()
    assert facts.topic("Q") is answer
    clock.now += 0.01
    assert facts.topic("Q") is answer, "within a slice nothing changes"
    facts.begin_slice()
    assert facts.take_questions().topics == {"Q"}, "before anything is decided without it"
    facts.begin_slice()
    assert facts.topic("Q") is BEST_CASE, "there was no answer"


@pytest.mark.parametrize("answer", [MISSING, TopicFacts(may_write=False), TopicFacts(silent="-")])
def test_a_batch_asks_again_whether_a_topic_takes_puts_now(
    facts: Facts, answer: TopicFacts
) -> None:
    facts.learn(Answers({"Q": answer, "R": SMALL}))
    assert (facts.topic("Q"), facts.topic("R")) == (answer, SMALL)
    facts.begin_slice()
    assert not facts.take_questions()
    facts.begin_batch()
    facts.begin_slice()
    assert facts.take_questions().topics == {"Q"}


def test_facts_that_are_confirmed_change_nothing(facts: Facts, clock: Clock) -> None:
    facts.learn(Answers({"Q": SMALL, "unused": SMALL}))
    versions = [facts.version]
    for answer in (SMALL, SMALL, MISSING):
        facts.topic("Q")
        clock.now += 2 * TOPIC_AGE
        facts.begin_slice()
        assert facts.take_questions().topics == {"Q"}
        facts.learn(Answers({"Q": answer}))
        versions.append(facts.version)
    confirmed, changed = versions[1:3], versions[3]
    assert len({*confirmed}) == 1
    assert changed not in confirmed


def test_a_depth_holds_for_one_slice(facts: Facts) -> None:
    facts.learn(Answers({"Q": SMALL}, {DEPTH: 7}))
    facts.begin_slice()
    assert facts.depth(DEPTH) == 0
    assert facts.topic("Q") is SMALL
    assert facts.take_questions() == Questions(frozenset(), frozenset({DEPTH}))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(3_600_000, 1000, (6_460_000, 10_001_000)), (10_000, 0, (9_995_000, 10_000_000))],
)
def test_timestamps_that_a_topic_takes_lie_around_now(
    before: int, after: int, expected: tuple[int, int]
) -> None:
    facts = TopicFacts(timestamp_before_max=before, timestamp_after_max=after)
    assert facts.timestamps(10_000_000) == expected


def test_by_default_a_topic_takes_any_timestamp() -> None:
    earliest, latest = BEST_CASE.timestamps(10_000_000)
    assert earliest < -1
    assert latest > 1 << 60


def test_memory_is_bounded_whatever_names_messages_bring(facts: Facts) -> None:
    names = [f"Q{number}" for number in range(10_001)]
    facts.learn(Answers(dict.fromkeys(names, SMALL)))
    facts.begin_slice()
    assert {facts.topic(name) for name in names} == {BEST_CASE}


def test_an_answer_is_as_old_as_its_question(facts: Facts, clock: Clock) -> None:
    facts.topic("Q")
    questions = facts.take_questions()
    clock.now += TOPIC_AGE + 1
    facts.learn(Answers(dict.fromkeys(questions.topics, SMALL)))
    assert facts.topic("Q") is SMALL
    facts.begin_slice()
    assert facts.take_questions() == questions

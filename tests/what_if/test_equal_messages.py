"""A trial says of each message what an attempt by the same table then does with it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.engine.known_cluster import KnownCluster
from tests.engine.samples import dead_letter, handler_of

from redrive.engine.context import SliceContext
from redrive.engine.decision import Decision, Discard, Keep, Put, Wait
from redrive.engine.facts import Facts, TopicFacts
from redrive.engine.outcome import Result
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.slice import Slice, SliceSettings
from redrive.engine.sources import PartitionRecords, SourceKind
from redrive.messages import DeadLetterDecoder, Headers, Records, TopicPartition
from redrive.messages.own_headers import GROUP_TOPIC, GroupTopic
from redrive.rules import RetryTo, original_target
from redrive.topology.put import Destination, QueueLimits, Refusal
from redrive.what_if.equal_messages import Disposition, SharedDecoder, Trial, Verdict, verdict_of

NOW = 90_000
CLUSTER = KnownCluster(
    topics={
        "TINY": TopicFacts(max_message_bytes=20_000),
        "KEYED": TopicFacts(wants_keys=True),
        "MUTE": TopicFacts(silent="no leader"),
        "YOUNG": TopicFacts(timestamp_before_max=60_000),
        "NARROW": TopicFacts(partitions=1),
    },
    depths={"FULL": 7},
)
QUEUES = ["Q", "TINY", "KEYED", "MUTE", "YOUNG", "NARROW", "FULL", "SHORT", "GONE", ""]
KINDS = {
    SourceKind.DEAD_LETTERS: "DLQ",
    SourceKind.RETRIES: "RETRY",
    SourceKind.REMAINING: "REMAINING",
}

patterns = st.sampled_from(
    ["", "REASON(2053)", "REASON(2085)", "DESTQ(Q)", "DESTQ('*T*')", "DESTQ(TINY)", "PERSIST(1)"]
)
kafka_patterns = st.sampled_from(
    ["SIZE(>9)", "KEY(k)", "SCHEME(redrive)", "JSON('$.a',1)", "AGE(>10)", "HEADER(x,y)"]
)
actions = st.sampled_from(
    [
        "ACTION(RETRY) RETRY(2)",
        "ACTION(RETRY)",
        "ACTION(FWD) FWDQ(SHORT) HEADER(NO)",
        "ACTION(FWD) FWDQ(&DESTQ) RETRY(3)",
        "ACTION(FWD) FWDQ(OTHER) FWDQM(QM2)",
        "ACTION(DISCARD)",
        "ACTION(IGNORE)",
    ]
)


def tables(dialect: str) -> st.SearchStrategy[str]:
    """Tables whose rules meet many of the messages."""
    some = patterns | kafka_patterns if dialect else patterns
    of_kafka = st.sampled_from(["ACTION(QUARANTINE)", "ACTION(RETRY) TO(GROUP) RETRY(2)"])
    more = actions | of_kafka if dialect else actions
    rules = st.lists(st.tuples(some, more).map(" ".join), min_size=1, max_size=5)
    return rules.map(lambda lines: "\n".join([f"{dialect} RETRYINT(5)", *lines, ""]))


@st.composite
def letters(draw: st.DrawFn) -> tuple[bytes | None, bytes | None, Headers, int]:
    """A record on the dead-letter queue."""
    reason, queue = draw(st.sampled_from([2053, 2085])), draw(st.sampled_from(QUEUES))
    headers = dead_letter(reason, queue) if draw(st.integers(0, 9)) else []
    headers = draw(st.just(headers) | st.booleans().map(lambda it: failed(queue, is_round=it)))
    more = draw(st.sampled_from([[], [("JMS_IBM_MQMD_Persistence", b"1")], [("x", b"y")]]))
    own = draw(st.sampled_from([[], [], [("redrive.id", b"DLQ:0:1"), ("redrive.hops", b"25")]]))
    value = draw(st.sampled_from([None, b"", b'{"a":1}', b"x" * 12, b"x" * 4000, b"x" * 30_000]))
    key = draw(st.sampled_from([None, b"k"]))
    return key, value, [*headers, *more, *own], draw(st.sampled_from([77, 20_000, NOW]))


def failed(queue: str, *, is_round: bool) -> Headers:
    """The headers of what a sink connector could not write, in a round for its group or not."""
    topic = f"{queue}.connect-sink.retry" if is_round else queue
    told = {"topic": topic, "partition": "0", "connector.name": "sink"}
    headers: Headers = [(f"__connect.errors.{name}", it.encode()) for name, it in told.items()]
    mark = GroupTopic(topic, queue, 0)
    return [*headers, (GROUP_TOPIC, mark.value)] if is_round else headers


def resolve(manager: str, queue: str) -> Destination | Refusal:
    """Every queue with a name exists but GONE."""
    if queue in {"", "GONE"}:
        return Refusal(2085, f"there is no queue {queue or 'without a name'}")
    limits = {
        "SHORT": QueueLimits(max_message_length=10),
        "FULL": QueueLimits(max_depth=9, consumer_group="readers"),
    }
    return Destination(
        topic=queue, queue=queue, queue_manager=manager, limits=limits.get(queue, QueueLimits())
    )


def records_of(rows: list[tuple[bytes | None, bytes | None, Headers, int]]) -> Records:
    """Rows as they are read."""
    keys, values, headers, timestamps = (list(column) for column in zip(*rows, strict=True))
    return Records(keys, values, headers, timestamps, list(range(len(rows))))


def parts_of(handler: RulesDecider, kind: SourceKind, *parts: Records) -> list[PartitionRecords]:
    lanes = [TopicPartition(KINDS[kind], number) for number in range(len(parts))]
    return [
        PartitionRecords(lane, handler, kind, records)
        for lane, records in zip(lanes, parts, strict=True)
    ]


def done(handler: RulesDecider, kind: SourceKind, *parts: Records) -> dict[str, Any]:
    """What the job writes for some records: the outcomes, and copies by topic."""
    settings = SliceSettings(outcomes_topic="OUT", now=NOW)
    lanes = parts_of(handler, kind, *parts)
    outputs = CLUSTER.decided(Slice(lanes, DeadLetterDecoder(), Facts(lambda: 0.0), settings))
    found: dict[str, Any] = {"RETRY": [], "REMAINING": [], "OUT": []}
    for _, one in outputs:
        if one.topic in found and one.value is not None:
            found[one.topic].append((one.key, one.value, one.headers, one.timestamp))
    found["OUT"] = [json.loads(value) for _, value, _, _ in found["OUT"]]
    return found


def tried(handler: RulesDecider, kind: SourceKind, *parts: Records) -> list[Decision]:
    """What a trial says of the same records."""
    lanes = parts_of(handler, kind, *parts)
    facts = Facts(lambda: 0.0)
    while True:
        trial = Trial(handler, SharedDecoder(), SliceContext(facts, "", NOW))
        batches = [trial.decided(part) for part in lanes]
        if not (questions := facts.take_questions()):
            return [one.decisions[code] for one in batches for code in one.codes]
        facts.learn(CLUSTER.answers(questions))


@given(data=st.data())
def test_a_trial_says_what_the_job_then_does(data: st.DataObject) -> None:
    """Fresh, parked and remaining messages, under the table that kept them and under another.

    Those of a second lane are decided as those of the first, by what is known from there.
    """
    dialect = data.draw(st.sampled_from(["", "DIALECT(KAFKA)"]))
    first = handler_of(data.draw(tables(dialect)), resolve)
    other = data.draw(st.sampled_from(["", "DIALECT(KAFKA)"]))
    second = handler_of(data.draw(tables(other)), resolve)
    rows = data.draw(st.lists(letters(), min_size=1, max_size=12))
    kept = done(first, SourceKind.DEAD_LETTERS, records_of(rows))
    waiting = {
        SourceKind.DEAD_LETTERS: rows,
        SourceKind.RETRIES: kept["RETRY"],
        SourceKind.REMAINING: kept["REMAINING"],
    }
    for kind, found in waiting.items():
        cut = data.draw(st.integers(0, len(found)))
        parts = [records_of(some) for some in (found[:cut], found[cut:]) if some]
        for handler in (first, second):
            if parts:
                outcomes = done(handler, kind, *parts)["OUT"]
                decided = tried(handler, kind, *parts)
                said = [told(verdict_of(handler, one), one.result) for one in decided]
                assert said == [told_by_the_job(one) for one in outcomes]


def told(verdict: Verdict, result: Result) -> dict[str, Any]:
    """A verdict as an outcome tells it."""
    return {
        "line": verdict.line,
        "disposition": verdict.disposition,
        "result": result.value,
        "reason": verdict.reason,
        "queue": verdict.target.queue,
    }


def told_by_the_job(outcome: dict[str, Any]) -> dict[str, Any]:
    """The same members of an outcome."""
    return {
        "line": outcome["rule_line"],
        "disposition": outcome["action"] if outcome["rule_line"] else Disposition.REMAINS,
        "result": outcome["result"],
        "reason": outcome["reason"],
        "queue": outcome["target_queue"],
    }


@given(data=st.data())
def test_the_course_is_what_happens_if_every_attempt_fails(data: st.DataObject) -> None:
    """Attempt by attempt, from wherever the table has come to."""
    dialect = data.draw(st.sampled_from(["", "DIALECT(KAFKA)"]))
    handler = handler_of(data.draw(tables(dialect)), resolve)
    rows = data.draw(st.lists(letters(), min_size=1, max_size=6))
    kept = done(handler, SourceKind.DEAD_LETTERS, records_of(rows))
    for kind, found in ((SourceKind.DEAD_LETTERS, rows), (SourceKind.RETRIES, kept["RETRY"])):
        for decision in tried(handler, kind, records_of(found)) if found else ():
            course = verdict_of(handler, decision).course
            puts = [put.queue for put, number in course.steps for _ in range(number)]
            assert (puts, course.discarded, course.quarantined) == walked(handler, decision)


def walked(handler: RulesDecider, decision: Decision) -> tuple[list[str], bool, bool]:
    """The queues of all attempts if each fails, and how it ends, by the job's own steps."""
    puts: list[str] = []
    while decision.rule is not None and decision.rule.action.can_fail:
        is_for_group = decision.rule.to is RetryTo.GROUP  # a course has the original and TO(GROUP)
        original = original_target(decision.profile.fields).queue
        puts.append(original if is_for_group else decision.target.queue)
        if isinstance(decision, Put):
            decision = handler.on_refusal(decision, Refusal(2053, "it is full"))
        elif isinstance(decision, Wait):
            del puts[-1:]  # it is made when its time has come
        if isinstance(decision, Keep):
            return puts, False, False
        decision = handler.decide_profile(decision.profile, decision.attempts, hops=0)
    return puts, isinstance(decision, Discard), decision.attempts.is_quarantined

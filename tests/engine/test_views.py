"""What a view says of a message is what the job does with it: they ask the same engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.jobs import DEAD_LETTERS, NOW, Decided, MemoryJob, at_now
from tests.engine.known_cluster import KnownCluster
from tests.engine.samples import dead_letter
from tests.topology.mqe.networks import sound_networks
from tests.topology.mqe.texts import network_text

from redrive.command.message_file import WrittenRecord, message_fields
from redrive.configuration.deciders import topology_of
from redrive.engine.attempts import LOOP
from redrive.engine.commands import Replay, To
from redrive.engine.decision import Decision, Discard, Keep, Put, Wait
from redrive.engine.facts import TopicFacts
from redrive.engine.outcome import Result
from redrive.engine.pointers import NO_PAYLOAD
from redrive.engine.rules_decider import RulesDecider
from redrive.masking import NO_MASK
from redrive.messages import Headers, OutputRecord, TopicPartition
from redrive.messages.own_headers import GROUP_TOPIC, GroupTopic
from redrive.messages.reasons import Reason
from redrive.messages.schemes import KNOWN
from redrive.operations.put import NewMessage
from redrive.operations.put_trace import PutTracer
from redrive.operations.replay.planning import Planner, words_of
from redrive.outcomes.history import what_next
from redrive.outcomes.row_messages import missing_fields
from redrive.outcomes.rows import Row
from redrive.rules import RetryTo, Rule, explain, original_target
from redrive.topology.layout import SourceText, TopicRole, topics_of
from redrive.topology.names import put_topic
from redrive.topology.put import Refusal
from redrive.what_if.question import OnceDecoder, Trial
from redrive.what_if.verdict import Disposition, TableEffect

# Networks

LINES: Final = [
    "DEF QL({q})", "", "DEF QL({q}) PUT(DISABLED)", "DEF QL({q}) MAXMSGL(10)",
    "DEF QL({q}) CLUSTER(C) DEFBIND(NOTFIXED)", "DEF QL({q}) STREAMQ(C)", "DEF QA({q}) TARGET(B)",
    "DEF QR({q}) RNAME(A) RQMNAME(QM2)", "DEF QR({q}) RNAME(B) RQMNAME(QM1)",
    "DEF QR({q}) RNAME(C) RQMNAME(FAR) XMITQ({o})", "DEF QL({q}) DEFPSIST(YES)",
]  # fmt: skip
CHANNELS: Final = [
    "DEF QL({o}) USAGE(XMITQ)\nDEF CHL({n}.{o}) CHLTYPE(SDR) XMITQ({o}) CONNAME(c)",
    "DEF QL({o}) USAGE(XMITQ) GET(DISABLED)\nDEF CHL({n}.{o}) CHLTYPE(SDR) XMITQ({o}) CONNAME(c)",
    "DEF QL({o}) USAGE(XMITQ)",
    "",
]
RECEIVERS: Final = ["MRRTY(1)", "MRRTY(1) USEDLQ(NO)", "MRRTY(1) NPMSPEED(NORMAL)"]
DEAD_LETTER_QUEUES: Final = ["DEF QL(DLQ)\nALTER QMGR DEADQ(DLQ)", "DEF QL(DLQ)", ""]
BINDINGS: Final = SourceText(
    "bindings.yaml",
    b"kind: bindings\nqueue_managers: {QM1: {queues: {FULL: {consumer_group: readers}}}}\n",
)


@st.composite
def scripts(draw: st.DrawFn) -> tuple[SourceText, ...]:
    """Two queue managers of IBM MQ, with a queue of limited depth for dead letters only."""
    problems = []
    for name, other in (("QM1", "QM2"), ("QM2", "QM1")):
        lines = [draw(st.sampled_from(LINES)).format(q=q, o=other) for q in "ABC"]
        lines.append(draw(st.sampled_from(CHANNELS)).format(n=name, o=other))
        receiver = draw(st.sampled_from(RECEIVERS))
        lines.append(f"DEF CHL({other}.{name}) CHLTYPE(RCVR) {receiver}")
        lines.append(f"DEF CHL(TO.{name}) CHLTYPE(CLUSRCVR) CLUSTER(C) CONNAME(c)")
        lines.append(draw(st.sampled_from(DEAD_LETTER_QUEUES)))
        lines.append("DEF QL(FULL) MAXDEPTH(9)" if name == "QM1" else "DEF QR(FAR) RQMNAME(QM1)")
        problems.append(SourceText(f"{name}.mqsc", "\n".join(lines).encode()))
    return (*problems, BINDINGS)


NETWORKS: Final = {
    "mq": scripts(),
    "mqe": sound_networks().map(
        lambda network: (SourceText("network.yaml", network_text(network).encode()),)
    ),
}

# Tables

PATTERNS: Final = [
    "", "REASON(2053)", "REASON(2085)", "DESTQ(A)", "DESTQ('*U*')", "DESTQ(FULL)", "PERSIST(1)"
]  # fmt: skip
KAFKA_PATTERNS: Final = [
    "SIZE(>9)", "KEY(k)", "JSON('$.a',1)", "AGE(>10)", "HEADER(x,y)",
    "SCHEME(redrive)", "SCHEME(redrive)", "SCHEME(connect*)", "GROUP(connect-sink)",
]  # fmt: skip
ACTIONS: Final = [
    "ACTION(RETRY) RETRY(2)", "ACTION(RETRY)", "ACTION(FWD) FWDQ(B) HEADER(NO)",
    "ACTION(FWD) FWDQ(&DESTQ) RETRY(3)", "ACTION(FWD) FWDQ(A) FWDQM(QM2)", "ACTION(DISCARD)",
    "ACTION(IGNORE)",
]  # fmt: skip
KAFKA_ACTIONS: Final = [
    "ACTION(QUARANTINE)", "ACTION(RETRY) TO(GROUP) RETRY(2)",
    "ACTION(RETRY) RETRY(3) BACKOFF(1s,2,8s)",
]  # fmt: skip


def tables() -> st.SearchStrategy[str]:
    """Tables of both rules dialects that match many of the messages."""
    plain = _table("", PATTERNS, ACTIONS)
    return plain | _table(
        "DIALECT(KAFKA)", PATTERNS + KAFKA_PATTERNS, ACTIONS + KAFKA_ACTIONS + KAFKA_ACTIONS
    )


def _table(dialect: str, patterns: list[str], actions: list[str]) -> st.SearchStrategy[str]:
    rule = st.tuples(st.sampled_from(patterns), st.sampled_from(actions)).map(" ".join)
    rules = st.lists(rule, min_size=1, max_size=5)
    return rules.map(lambda lines: "\n".join([f"{dialect} RETRYINT(5)", *lines, ""]))


# Messages: pools of whole ones, one choice each, so that thousands are drawn in seconds


def connect(queue: str, *, is_round: bool = False) -> Headers:
    """The headers of what a sink connector could not write, in a round for its group or not."""
    topic = f"{queue}.connect-sink.retry" if is_round else queue
    texts = {"topic": topic, "partition": "0", "connector.name": "sink"}
    headers: Headers = [(f"__connect.errors.{name}", text.encode()) for name, text in texts.items()]
    return [*headers, (GROUP_TOPIC, GroupTopic(topic, queue, 0).value)] if is_round else headers


HEADERS: Final[list[Headers]] = [
    [*dead_letter(reason, queue), ("mqdlh.DestQMgrName", manager.encode())]
    for reason, queue, manager in product(
        (2053, 2085), ("A", "B", "C", "FULL", "GONE", ""), ("", "QM1", "QM2")
    )
]
FAILURES: Final[list[Headers]] = [
    *HEADERS,
    *(connect(queue) for queue in ("A", "B", "GONE")),
    *(connect(queue, is_round=True) for queue in ("A", "GONE")),
    [],
]
MORE: Final[list[Headers]] = [
    [],
    [("JMS_IBM_MQMD_Persistence", b"1")],
    [("x", b"y")],
    [("redrive.id", b"DLQ:0:1"), ("redrive.hops", b"25")],
]
VALUES: Final = [None, b"", b'{"a":1}', b"x" * 12, b"x" * 4000, b"x" * 30_000]


def letters_of(failures: list[Headers], more: list[Headers]) -> list[OutputRecord]:
    """Dead letters with some headers, and every key, value and time."""
    return [
        OutputRecord(DEAD_LETTERS, key, value, [*failure, *further], timestamp)
        for failure, further, value, key, timestamp in product(
            failures, more, VALUES, (b"k", None), (77, 20_000, NOW)
        )
    ]


ALIKE: Final = letters_of(HEADERS, [[]])
"""All with the same header names: most of them the job writes as puts that it has prepared."""
SINKS: Final = letters_of([connect(queue) for queue in ("A", "B", "GONE")], [[]])
"""The same of a sink connector, whose puts count rounds."""
LETTERS: Final = [*ALIKE, *SINKS, *letters_of(FAILURES, MORE)]
MANAGERS: Final = ("QM1", "QM2")
PUTS: Final = [
    (manager, NewMessage(queue=queue, queue_manager=to, persistent=is_persistent), bytes(length))
    for manager, queue, to, is_persistent, length in product(
        MANAGERS,
        ("A", "B", "C", "QM2", "NONE"),
        ("", *MANAGERS, "FAR"),
        (None, True, False),
        (4, 99),
    )
]
TOPIC_FACTS: Final = [
    TopicFacts(max_message_bytes=20_000), TopicFacts(wants_keys=True), TopicFacts(exists=False),
    TopicFacts(silent="no leader"), TopicFacts(timestamp_before_max=60_000),
    TopicFacts(partitions=1), TopicFacts(may_write=False),
]  # fmt: skip
TOPICS: Final = ["QM1--A", "QM1--B", "QM1--C", "QM2--A", "QM1--QM2", "QM1--DLQ", "QM2--DLQ"]
CLUSTERS: Final = st.dictionaries(
    st.sampled_from(TOPICS), st.sampled_from(TOPIC_FACTS), max_size=3
).map(lambda topics: KnownCluster(topics, {"QM1--FULL": 7}))
ORDERS: Final = [
    Replay(to=To.RULES), Replay(to=To.ORIGINAL), Replay(to=To.GROUP), Replay(to=To.DISCARD),
    Replay(to=To.QUEUE, queue="A", queue_manager="QM2"),
]  # fmt: skip
NOT_PLANNED: Final = {
    Reason.MSG_TOO_BIG_FOR_Q, Reason.FORMAT_ERROR, Reason.RESOURCE_PROBLEM, Reason.Q_FULL,
    Reason.PUT_INHIBITED, NO_PAYLOAD,
}  # fmt: skip


def numbers(first: int, end: int, count: int) -> st.SearchStrategy[list[int]]:
    """Some of a pool by their numbers, which keeps what Hypothesis prints short."""
    return st.lists(st.integers(first, end - 1), min_size=count, max_size=count)


SOME_LETTERS: Final = st.one_of(
    numbers(0, len(ALIKE), 40),
    numbers(len(ALIKE), len(ALIKE) + len(SINKS), 40),
    numbers(0, len(LETTERS), 40),
)


@pytest.mark.hypothesis
@pytest.mark.parametrize("kind", NETWORKS)
@at_now
def test_every_view_says_what_the_job_does(kind: str) -> None:
    """Of fifty messages in each network of a kind: dead letters and puts."""

    @given(
        NETWORKS[kind],
        st.tuples(tables(), tables()),
        CLUSTERS,
        SOME_LETTERS,
        numbers(0, len(PUTS), 10),
        st.sampled_from(ORDERS),
    )
    def check(
        definitions: tuple[SourceText, ...],
        rules: tuple[str, str],
        cluster: KnownCluster,
        letters: list[int],
        puts: list[int],
        wanted: Replay,
    ) -> None:
        job = MemoryJob(rules[0], definitions, cluster)
        changed = replace(job, rules=rules[1])
        check_dead_letters(job, [LETTERS[letter] for letter in letters], wanted, changed)
        check_puts(job, [PUTS[put] for put in puts])

    check()


def check_dead_letters(
    job: MemoryJob, letters: Sequence[OutputRecord], wanted: Replay, changed: MemoryJob
) -> None:
    """All views of dead letters, until three attempts have failed, and under another table."""
    identity = job.configuration.handlers[0].identity
    first = decided = check_plan(job, DEAD_LETTERS, letters)
    check_explanations(job, first)
    rows = {decision.row.origin: [decision.row] for decision in first}
    for _ in range(2):
        waiting = {topic: copies_of(decided, topic) for topic in identity.waiting_topics}
        decided = []
        for topic, parked in waiting.items():
            check_plan(changed, topic, parked)
            decided += check_plan(job, topic, parked)
        check_history(job, rows, decided)
    remaining = copies_of(first, identity.remaining_topic)
    check_plan(changed, identity.remaining_topic, remaining)
    check_replay_plan(changed, rows, remaining, wanted)


def copies_of(decided: Sequence[Decided], topic: str) -> list[OutputRecord]:
    """The copies that wait on a topic."""
    written = (record for output in decided for record in output.written)
    return [record for record in written if record.topic == topic and record.value is not None]


def check_plan(job: MemoryJob, topic: str, records: Sequence[OutputRecord]) -> list[Decided]:
    """``plan`` names rule, target and result of an attempt, and what follows if all fail."""
    decided, tried = job.decide(topic, records), trial(job, topic, records)
    pairs = {
        (id(first.decision), id(second)): (first, second)
        for first, second in zip(decided, tried, strict=True)
    }
    for first, second in pairs.values():
        row, verdict = first.row, TableEffect.of(job.decider, job.context, NO_MASK, second)
        assert (verdict.line, verdict.target) == (row.rule_line, str(first.decision.target))
        assert verdict.action == (row.action if row.rule_line else Disposition.REMAINS)
        assert (verdict.reason, second.result) == (first.attempt_now.reason, row.result)
        attempts, last = failing(job.decider, second)
        course = [put.queue for put, number in verdict.course.steps for _ in range(number)]
        assert course == [queue for _, queue in attempts]
        assert verdict.course.discarded == isinstance(last, Discard)
        assert verdict.course.quarantined == last.attempts.is_quarantined
    return decided


def trial(job: MemoryJob, topic: str, records: Sequence[OutputRecord]) -> list[Decision]:
    """What a plan decides about records that it reads in two parts."""
    half = len(records) // 2

    def decide() -> list[Decision]:
        batch = Trial(job.decider, OnceDecoder(), job.context)
        halves = (records[:half], 0), (records[half:], half)
        return [
            decision
            for some, first in halves
            if some
            for decision in batch.decisions(job.part(topic, some, first))
        ]

    return job.facts.answered(decide, job.cluster.answers)


def failing(decider: RulesDecider, first: Decision) -> tuple[list[tuple[Rule, str]], Decision]:
    """The attempts from a decision on if every put fails, by rule and queue, and the last one."""
    attempts, decision = [], first
    while True:
        rule = decision.rule
        is_tried = decision.attempt > 0 and not isinstance(decision, Wait)
        if is_tried and rule is not None and rule.action.can_fail:
            is_for_group = rule.to is RetryTo.GROUP  # a course has the original and TO(GROUP)
            original = original_target(decision.profile.fields).queue
            attempts.append((rule, original if is_for_group else decision.target.queue))
        if isinstance(decision, Put):
            decision = decider.on_refusal(decision, Refusal(2053, "it is full"))
        if isinstance(decision, Keep | Discard):
            return attempts, decision
        decision = decider.decide_profile(decision.profile, decision.attempts, hops=0)


def check_explanations(job: MemoryJob, decided: Sequence[Decided]) -> None:
    """``explain`` names the rules of all attempts, if each that can fail does."""
    table, tried = job.decider.table, trial(job, DEAD_LETTERS, [output.read for output in decided])
    courses = {id(outcome): failing(job.decider, outcome) for outcome in tried}
    for decision, first in zip(decided, tried, strict=True):
        _, key, value, headers, timestamp, *_ = decision.read
        fields, problem = message_fields(
            WrittenRecord(key, value, headers or [], timestamp), KNOWN, table
        )
        if problem:
            assert decision.decision.rule is None
        elif decision.decision.reason not in {LOOP, NO_PAYLOAD} and not decision.row.hop:
            # Loops and payloads that are gone are not in what patterns look at.
            said = [
                table.rules[turn.rule]
                for turn in explain(table, fields).turns
                if turn.rule is not None
                for _ in range(turn.attempts)
            ]
            attempts, last = courses[id(first)]
            applied = [rule for rule, _ in attempts]
            if last.rule is not None and not last.rule.action.can_fail:
                applied.append(last.rule)
            assert [id(rule) for rule in said] == [id(rule) for rule in applied]
            assert said[:1] == [decision.decision.rule][: decision.decision.rule is not None]


def check_history(
    job: MemoryJob, rows: Mapping[str, list[Row]], decided: Sequence[Decided]
) -> None:
    """``history`` names rule, target and time of the next attempt, if outcomes keep enough."""
    for output in decided:
        before, rule = rows[output.row.origin], output.decision.rule
        said = what_next(before, {"dlq": job.decider})
        if not missing_fields(job.decider.table):
            place = TopicPartition(output.read.topic, output.read.partition or 0)
            assert said.due == before[-1].time + timedelta(seconds=job.decider.interval(place))
            assert (said.rule_line or 0) == output.row.rule_line
            target = f" to {output.decision.target}" if output.decision.target.queue else ""
            assert rule is None or said.text.endswith(f": {rule.action}{target}")
        before.append(output.row)


def check_replay_plan(
    job: MemoryJob, rows: Mapping[str, list[Row]], copies: Sequence[OutputRecord], wanted: Replay
) -> None:
    """``replay plan`` names rule and target of what the job then does, if outcomes keep enough.

    A plan does not know what depends on a body, a key, a time or a depth, or on the original.
    """
    nowhere: Any = None
    planner = Planner(job.configuration, nowhere, job.cluster.answers, entries={})
    planned = planner.decisions([rows[(copy.key or b"").decode()][0] for copy in copies], wanted)
    replayed = job.replay(copies, replace(wanted, plan="plan"))
    for decision, said in zip(replayed, planned, strict=True):
        done = decision.decision
        if not isinstance(said, str):
            assert (said.rule and said.rule.line, said.target) == (
                done.rule and done.rule.line,
                done.target,
            )
            is_refused = isinstance(said, Put) and done.reason in NOT_PLANNED
            assert is_refused or type(said) is type(done)
            assert words_of(said, wanted).startswith(str(done.target))


def check_puts(job: MemoryJob, puts: Sequence[tuple[str, NewMessage, bytes]]) -> None:
    """``resolve`` and ``put`` name result, reason and topic where each message comes to rest."""
    topology = topology_of(job.definitions)
    tracer = PutTracer(topology, job.deciders, job.facts, job.cluster.answers)
    places = {topic.topic: topic.role for topic in topics_of(topology)}
    for manager in MANAGERS:
        intake, puts_there = put_topic(manager), [put[1:] for put in puts if put[0] == manager]
        records = [
            OutputRecord(intake, None, body, message.headers(), NOW) for message, body in puts_there
        ]
        for offset, steps in enumerate(job.follow(intake, records)):
            trace, last = tracer.trace(manager, *puts_there[offset], offset=offset), steps[-1].row
            code = trace.problem.code if trace.problem else 0
            assert (trace.topic, code or 0) == (last.target_topic, last.reason)
            is_sent = places.get(last.target_topic) is TopicRole.TRANSMISSION
            ends = {Result.ROUTED: "stays on a transmission queue" if is_sent else "on a queue"}
            ends[Result.DEAD_LETTERED] = "on a dead-letter queue"
            assert trace.end == ends.get(Result(last.result), last.result)

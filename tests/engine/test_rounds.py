"""Rounds: in DIALECT(KAFKA) an attempt is put and processing, for every way to write dead letters.

A consumer fails, and writes dead letters as one library or another does. Which topic it reads and
what comes back is all that Redrive knows of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.conformance.rules_driver import IDENTITY, OUTCOMES, HandlerDriver, MemoryTopics
from tests.engine.failed_processing import (
    ENVELOPE,
    EVERY,
    NAMELESS,
    SCHEMES,
    Fail,
    connect,
    dropping,
    spring,
    streams,
    watermill,
)
from tests.engine.known_cluster import OPEN, KnownCluster
from tests.engine.samples import resolve_anything

from redrive.engine.facts import (
    Answers,
    Facts,
    Gone,
    Original,
    Program,
    Questions,
    RecordQuestion,
    TopicFacts,
)
from redrive.messages import Headers, OutputRecord, SchemeTable
from redrive.messages import own_headers as own
from redrive.rules import parse
from redrive.rules.backoff import JITTER
from redrive.topology.put import Destination, Refusal

SCHEME_TABLE = SchemeTable(scheme.scheme() for scheme in (ENVELOPE, NAMELESS))
BEGIN = 1_000.0
"""Seconds; when the first processing failed."""
PROCESSING = 2.0
"""Seconds from a put to the failure of its processing."""
TABLE = """DIALECT(KAFKA)
ACTION(RETRY) RETRY(3) BACKOFF(30s,2,10m)
ACTION(FWD) FWDT('dead')
"""


@dataclass
class Application:
    """A consumer of ``orders`` that fails, and the job on its dead letters."""

    fail: Callable[[OutputRecord, int, int], OutputRecord]
    table: str = TABLE
    succeeds_at: int = 1 << 30
    """Number of the delivery whose processing succeeds."""
    rounds: str = "orders"
    """The topic from which it reads rounds."""
    is_readable: bool = True
    """Whether the job may read ``orders``."""
    resolve: Callable[[str, str], Destination | Refusal] = resolve_anything
    """Which topics exist."""
    since: int | None = None
    """See ``PartitionRecords``; None where nothing is to be asked without a setting."""
    topics: MemoryTopics = field(default_factory=MemoryTopics)
    failures: list[float] = field(default_factory=list)
    """Seconds; when the processing failed."""
    puts: list[float] = field(default_factory=list)
    """Seconds; when the message was put back."""

    def __post_init__(self) -> None:
        """One message that has failed once."""
        self.driver = self.started(self.table)
        first = OutputRecord("orders", b"k", b"{}", [("tenant", b"acme")], 5)
        self.topics.topics["orders"].append(first)
        self._process(BEGIN - PROCESSING)

    def started(self, table: str) -> HandlerDriver:
        table_ = parse(table).required()
        self.driver = HandlerDriver(
            self.topics, table_, since=self.since, schemes=SCHEME_TABLE, resolve=self.resolve
        )
        return self.driver

    def run(
        self,
        rounds: int = 1 << 30,
        *,
        begin: float = BEGIN,
        restarts: bool = False,
        steps: int = 1 << 30,
    ) -> None:
        """Until nothing more happens, or the message was put back so many times.

        A restart makes the job anew; after so many steps something must be wrong.
        """
        now = begin
        self._process(now)
        while len(self.puts) < rounds and now is not None:
            if restarts:
                self.started(self.table)
            while self._step(now):
                steps -= 1
                assert steps, f"it does not end: {self.outcomes[-1]}"
                if self._process(now):
                    now += PROCESSING
            due = self.driver.due_at()
            if due is None:
                return
            now = max(now, due)

    def known(self) -> dict[RecordQuestion, Original | Gone]:
        """The records that the job can ask for."""
        return {
            RecordQuestion(topic, 0, offset): Original(
                record.key, record.value, record.headers or [], record.timestamp
            )
            if self.is_readable
            else Gone("this user may not read it", may_come=True, is_denied=True)
            for topic in {"orders", self.rounds}
            for offset, record in enumerate(self.topics.topics[topic])
        }

    def _step(self, now: float) -> bool:
        known = self.known()
        facts = {"orders": TopicFacts(may_read=self.is_readable)}
        self.driver.cluster = replace(self.driver.cluster, records=known, topics=facts)
        return self.driver.step(now) is not None

    def _process(self, now: float) -> bool:
        topics = sorted({"orders", self.rounds})
        return sum(self._process_topic(topic, now) for topic in topics) > 0

    def _process_topic(self, topic: str, now: float) -> bool:
        records = self.topics.topics[topic]
        done = self.topics.committed[topic]
        for offset in range(done, len(records)):
            delivery = offset + (topic != "orders")
            if delivery:
                self.puts.append(now)
            if delivery < self.succeeds_at:
                failed = now + PROCESSING
                self.failures.append(failed)
                letter = self.fail(records[offset], offset, int(1000 * failed))
                self.topics.topics["DLQ"].append(letter)
        self.topics.committed[topic] = len(records)
        return len(records) > done

    @property
    def outcomes(self) -> list[dict[str, Any]]:
        return [json.loads(record.value or b"") for record in self.topics.topics[OUTCOMES]]

    @property
    def attempts_put(self) -> list[tuple[int, int]]:
        """The line of the rule and the number of each attempt that put the message."""
        put = [outcome for outcome in self.outcomes if outcome["target_topic"]]
        return [(outcome["rule_line"], outcome["attempt"]) for outcome in put]


@pytest.mark.parametrize("restarts", [False, True], ids=["", "restarts"])
@pytest.mark.parametrize(
    ("fail", "is_readable"),
    [
        (fail, is_readable)
        for fail in (*EVERY, *map(dropping, EVERY))
        # Without its original there is nothing of a share group to put.
        for is_readable in ((True,) if fail.__name__.startswith("share_group") else (True, False))
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_rounds_are_found_without_a_setting(
    fail: Fail, *, is_readable: bool, restarts: bool
) -> None:
    """Whoever copies or drops headers: as many rounds as RETRY says, and then the next rule.

    A restart forgets everything that the process knew, before each step.
    """
    application = Application(fail, since=0, is_readable=is_readable)
    application.run(restarts=restarts, steps=40)
    assert len(application.puts) == 3
    assert len(application.topics.topics["dead"]) == 1
    assert application.attempts_put == [(2, 1), (2, 2), (2, 3), (3, 4)]


def test_rounds_of_a_group_are_found_without_a_setting() -> None:
    table = TABLE.replace("ACTION(RETRY)", "TOPIC(orders) ACTION(RETRY) TO(GROUP)")
    application = Application(dropping(spring), table, since=0, rounds="orders.billing.retry")
    application.run(steps=40)
    assert len(application.topics.topics["orders.billing.retry"]) == 3
    assert len(application.topics.topics["dead"]) == 1


def test_what_is_only_forwarded_is_not_asked() -> None:
    application = Application(
        dropping(spring), "DIALECT(KAFKA)\nACTION(FWD) FWDT('dead')\n", since=0
    )
    application.driver.cluster = cluster = _Asked(records=application.known())
    application.driver.step(BEGIN)
    assert len(application.topics.topics["dead"]) == 1
    assert cluster.records_asked == []


@pytest.mark.parametrize("fail", [spring, watermill], ids=lambda fail: fail.__name__)
def test_a_backlog_from_before_the_first_start_is_put_without_asking(fail: Fail) -> None:
    application = Application(dropping(fail), since=1)
    application.driver.cluster = _Asked()
    application.driver.step(BEGIN + 10_000)
    assert len(application.topics.topics["orders"]) == 2
    assert application.driver.cluster.records_asked == []
    application.driver.cluster = OPEN
    application.run(begin=BEGIN + 10_000, steps=40)
    assert len(application.puts) == 3


def test_a_program_that_copies_headers_is_not_asked_again() -> None:
    for fail, asked in ((spring, 0), (dropping(spring), 1)):
        application = Application(fail, since=0)
        application.run(rounds=2)
        event = OutputRecord("orders", b"n", b"[]", [], 5)
        place = len(application.topics.topics["orders"])
        application.topics.topics["orders"].append(event)
        application.topics.topics["DLQ"].append(fail(event, place, 0))
        cluster = _Asked(records=application.known())
        application.driver.cluster = cluster
        application.driver.step(BEGIN + 10_000)
        assert cluster.records_asked.count(RecordQuestion("orders", 0, place)) == asked


@pytest.mark.parametrize(
    ("key", "body", "is_round"),
    [(b"other", b"[]", False), (b"other", b"{}", True), (b"k", b"[]", True), (None, b"[]", True)],
)
def test_dead_letter_about_another_record_is_no_round_of_the_one_at_its_place(
    key: bytes | None, body: bytes, *, is_round: bool
) -> None:
    application = Application(dropping(spring), since=0)
    application.run(rounds=2)
    place = len(application.topics.topics["orders"]) - 1
    foreign = OutputRecord("orders", key, body, [], 5)
    application.topics.topics["DLQ"].append(application.fail(foreign, place, 10**7))
    application.driver.cluster = replace(application.driver.cluster, records=application.known())
    application.driver.step(10**4)
    outcome = [outcome for outcome in application.outcomes if outcome["topic"] == "DLQ"][-1]
    assert (outcome["message"] != outcome["outcome"]) == is_round


def test_one_dead_letter_without_headers_outweighs_others_that_have_them() -> None:
    facts, program = Facts(lambda: 0.0), Program("spring-dlt", "orders", "billing")
    facts.note_copied(program)
    assert facts.copies_headers(program)
    facts.note_dropped(program)
    facts.note_copied(program)
    assert not facts.copies_headers(program)
    assert "by group billing lack the headers" in program.sentence


@dataclass(frozen=True)
class _Asked(KnownCluster):
    """Notes which records are asked for."""

    records_asked: list[RecordQuestion] = field(default_factory=list)

    def answers(self, questions: Questions) -> Answers:
        self.records_asked.extend(questions.records)
        return super().answers(questions)


def waits(application: Application) -> Sequence[float]:
    """Seconds from each failure to the put that follows."""
    pairs = zip(application.failures, application.puts, strict=False)
    return [put - failed for failed, put in pairs]


@pytest.mark.parametrize("fail", SCHEMES, ids=lambda fail: fail.__name__)
def test_a_message_that_always_fails_is_put_exactly_as_often_as_retry_says(fail: Any) -> None:
    application = Application(fail)
    application.run()
    assert len(application.puts) == 3
    delays = [30, 60, 120]
    for wait, delay in zip(waits(application), delays, strict=True):
        assert delay * (1 - JITTER) < wait <= delay
    (dead,) = application.topics.topics["dead"]
    assert dead.value == b"{}"
    assert (("tenant", b"acme") in (dead.headers or [])) == (fail is not streams)
    assert application.attempts_put == [(2, 1), (2, 2), (2, 3), (3, 4)]
    assert {outcome["message"] for outcome in application.outcomes} == {"DLQ:0:0"}
    assert not application.topics.topics[IDENTITY.remaining_topic]


@pytest.mark.parametrize("fail", SCHEMES, ids=lambda fail: fail.__name__)
def test_a_consumer_that_recovers_ends_the_rounds(fail: Any) -> None:
    application = Application(fail, succeeds_at=2)
    application.run()
    assert (len(application.puts), len(application.failures)) == (2, 2)
    assert application.outcomes[-1]["result"] == "retried"


def test_a_round_names_the_group_that_it_is_for() -> None:
    application = Application(spring)
    application.run()
    *puts, dead = [*application.topics.topics["orders"][1:], *application.topics.topics["dead"]]
    assert [dict(put.headers or [])[own.GROUP] for put in puts] == [b"billing"] * 3
    assert own.GROUP not in dict(dead.headers or [])
    assert len([name for name, _ in puts[-1].headers or [] if name == own.GROUP]) == 1


def test_an_old_backlog_is_due_at_once() -> None:
    application = Application(spring)
    application.driver.step(BEGIN + 31)
    assert len(application.topics.topics["orders"]) == 2


def test_a_fresh_dead_letter_waits_for_the_rest_of_its_delay() -> None:
    application = Application(spring)
    application.driver.step(BEGIN + 10)
    (outcome,) = application.outcomes
    assert outcome["result"] == "parked"
    assert outcome["detail"] == "round 1 of 3 is 30 s after the failure"
    due = application.driver.due_at()
    assert due is not None
    assert BEGIN + 30 * (1 - JITTER) < due <= BEGIN + 30


def test_no_round_is_used_up_before_its_delay_while_the_topic_is_missing() -> None:
    is_missing = Refusal(2085, "there is no topic orders")
    application = Application(
        spring,
        resolve=lambda _, queue: is_missing if queue == "orders" else resolve_anything("", queue),
    )
    application.run(steps=40)
    tried = [(outcome["attempt"], outcome["reason"]) for outcome in application.outcomes]
    assert tried == [(1, 0), (1, 2085), (2, 2085), (3, 2085), (4, 0)]


@pytest.mark.parametrize("fail", [spring, connect, streams], ids=lambda fail: fail.__name__)
def test_as_many_rounds_as_retry_says_are_no_loop(fail: Any) -> None:
    """The limit of hops is 25: it counts only what no RETRY counts."""
    table = "DIALECT(KAFKA) RETRYINT(1)\nACTION(RETRY) RETRY(30)\nACTION(QUARANTINE)\n"
    application = Application(fail, table)
    application.run()
    assert len(application.puts) == 30
    last = application.outcomes[-1]
    assert (last["action"], last["rule_line"], last["hop"]) == ("QUARANTINE", 3, 30)


def test_what_another_queue_counts_is_a_loop_in_the_end() -> None:
    rounds = own.Rounds("0" * 16, ((0, 1),), 1, 5, "OTHER", "orders")
    headers: Headers = [(own.HOPS, b"25"), (own.ROUNDS, rounds.value)]
    application = Application(spring)
    record = OutputRecord("orders", b"k", b"{}", headers, 5)
    application.topics.topics["DLQ"][:] = [spring(record, 1, 1000)]
    application.driver.step(BEGIN)
    (outcome,) = application.outcomes
    assert (outcome["action"], outcome["reason_name"]) == ("QUARANTINE", "MQRC_LOOPING_PUBLICATION")


def test_a_changed_table_counts_from_the_beginning() -> None:
    application = Application(spring)
    application.run(rounds=2)
    changed = TABLE.replace("30s", "31s")
    application.started(changed)
    application.run()
    assert len(application.puts) == 2 + 3
    assert len(application.topics.topics["dead"]) == 1


def test_what_a_changed_table_sets_free_waits_for_the_delays_of_that_table() -> None:
    application = Application(spring)
    application.driver.step(BEGIN + 1)
    application.started(TABLE.replace("30s", "90s"))
    application.driver.step(BEGIN + 2)
    due = application.driver.due_at()
    assert due is not None
    assert BEGIN + 90 * (1 - JITTER) < due <= BEGIN + 90
    application = Application(spring, "DIALECT(KAFKA)\nACTION(IGNORE)\n")
    application.driver.step(BEGIN + 1)
    application.started(TABLE)
    application.driver.step(BEGIN + 2)
    assert len(application.topics.topics["orders"]) == 1
    application.started(TABLE.replace("30s", "1s"))
    application.driver.step(BEGIN + 3)
    assert len(application.topics.topics["orders"]) == 2


def test_headers_that_a_service_copied_to_another_event_count_for_nothing() -> None:
    application = Application(spring)
    application.run(rounds=2)
    known = application.topics.topics["orders"][-1].headers or []
    event = OutputRecord("invoices", b"i", b"[]", known, 5)
    application.topics.topics["DLQ"][:] = [spring(event, 9, int(1000 * BEGIN))]
    application.topics.committed["DLQ"] = 0
    application.driver.step(BEGIN + 1_000)
    (put,) = [outcome for outcome in application.outcomes if outcome["target_topic"] == "invoices"]
    assert (put["message"], put["attempt"], put["hop"]) == ("DLQ:0:0", 1, 0)


def test_a_round_that_can_not_be_counted_is_told() -> None:
    application = Application(streams)
    gone = {RecordQuestion("orders", 0, 0): Gone("the original was deleted")}
    application.driver.cluster = replace(application.driver.cluster, records=gone)
    application.driver.step(BEGIN)
    (outcome,) = application.outcomes
    assert outcome["result"] == "parked"
    unknown = "; the number of its attempts is unknown: the original was deleted"
    assert outcome["detail"].endswith(unknown)


def test_a_round_that_can_not_be_counted_now_waits() -> None:
    application = Application(streams)
    gone = {RecordQuestion("orders", 0, 0): Gone("partition 0 has no leader", may_come=True)}
    application.driver.cluster = replace(application.driver.cluster, records=gone)
    application.driver.step(BEGIN)
    (outcome,) = application.outcomes
    assert (outcome["result"], outcome["detail"]) == ("parked", "partition 0 has no leader")


def test_a_put_that_fails_is_an_attempt_of_the_same_rule() -> None:
    application = Application(spring)
    refusals = iter([2053, None, 2053])
    application.topics.refuse = lambda record: (
        next(refusals, None) if record.topic == "orders" else None
    )
    application.run()
    assert len(application.puts) == 1
    assert len(application.topics.topics["dead"]) == 1
    tried = [
        outcome for outcome in application.outcomes if outcome["reason"] or outcome["target_topic"]
    ]
    assert [outcome["attempt"] for outcome in tried] == [1, 2, 3, 4]


def test_a_name_that_no_topic_has_is_a_failed_attempt() -> None:
    assert (
        own.read_own(
            [(own.ROUNDS, own.Rounds("0" * 16, (), 1, 5, "DLQ", "caf\u00e9 orders").value)]
        ).rounds
        is None
    )


def test_a_damaged_header_counts_for_nothing() -> None:
    good = own.Rounds("0" * 16, ((0, 1), (3, 2)), 3, 5, "DLQ", "orders")
    assert own.read_own([(own.ROUNDS, good.value)]).rounds == good
    empty = good._replace(by_rule=())
    assert own.read_own([(own.ROUNDS, empty.value)]).rounds == empty
    for value in (None, b"", b"x", good.value + b" ", good.value.replace(b"orders", b"\xff")):
        assert own.read_own([(own.ROUNDS, value)]).rounds is None

"""The exactly-once protocol on a simulated cluster: thousands of schedules, and the known faults.

A schedule that fails is run again, with everything that happens in it, by
``pytest tests/simulation --seed N``.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest
from tests.simulation.audit import OUTCOMES, POISON, Audit, Condition
from tests.simulation.clients import Faults, Network, simulated_clients, simulated_clock
from tests.simulation.cluster import Entry, Fate, SimulatedCluster, Transaction
from tests.simulation.job import (
    APPLICATION,
    DEAD_LETTERS,
    REMAINING,
    RETRY,
    Instance,
    configuration,
)
from tests.simulation.mutations import MUTATIONS, RULES, Mutation, find, is_broken
from tests.simulation.scheduler import Scheduler
from tests.simulation.schedules import TABLE, run_schedule

from redrive.checkpoints.control import ControlTopic
from redrive.checkpoints.epoch import RunEntry, RunIdentity, instance_key
from redrive.checkpoints.instances import Share
from redrive.checkpoints.protocol import Emitter, FailedTry, PositionsOnly, RetryPolicy
from redrive.configuration import DataLoss, EmitterChoice, JobConfiguration
from redrive.engine.names import control_topic, tables_topic
from redrive.engine.slice import Slice
from redrive.errors import (
    FencedFault,
    OutcomeUnknown,
    ProtocolError,
    SupersededFault,
    TransientFault,
)
from redrive.kafka.cluster import Cluster
from redrive.messages import OutputRecord, TopicPartition
from redrive.messages.reasons import Reason
from redrive.rules import parse
from redrive.topology.put import QueueLimits

AUDITED: Final = parse(TABLE).required()
_CHUNK: Final = 25
_QUICK: Final = (
    "offsets not sent",
    "offsets read while a transaction moves them",
    "innocents blamed for a neighbour in their batch",
    "the entry not read at all",
    "a task's second attempt emits",
    "a replay does not ask what still remains",
    "a parked message that is tried at once stays parked too",
    "a message of a key is not held",
    "a changed table taken in the middle of a batch",
)
"""Mutations that are found within seconds; the others are for ``make mutations``."""


# -- schedules ---------------------------------------------------------------------------------


def failing(seeds: Sequence[int]) -> list[str]:
    """The schedules among some that show a fault, and which."""
    logging.disable()  # in a process of its own: the warnings of a job that has a hard time
    failures = []
    with simulated_clients():
        for seed in seeds:
            result = run_schedule(seed)
            if result.findings:
                failures.append(f"--seed {seed}: {'; '.join(result.findings[:3])}")
    return failures


def test_whatever_fails_every_effect_happens_once_and_the_job_comes_to_an_end(
    pytestconfig: pytest.Config,
) -> None:
    seed = pytestconfig.getoption("seed")
    if seed is not None:
        with simulated_clients():
            result = run_schedule(seed, _print)
        assert not result.findings, result.findings
        return
    count = pytestconfig.getoption("schedules")
    chunks = [range(first, min(first + _CHUNK, count)) for first in range(0, count, _CHUNK)]
    # Not forked: a process with threads of clients must not be.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        failures = [failure for some in pool.map(failing, chunks) for failure in some]
    assert not failures, "run again with pytest tests/simulation " + "\n".join(failures)


def _print(now: float, process: str, what: str) -> None:
    print(f"{now - 1_000_000:12.3f} {process:12} {what}")  # noqa: T201 - the trace that was asked for


@pytest.mark.parametrize("name", _QUICK)
def test_the_schedules_find_a_planted_mistake(name: str) -> None:
    """Schedules that show nothing can show something; ``make mutations`` has all mistakes."""
    tried, shown = find(name)
    assert shown is not None, f"none of {tried} schedules shows it"
    assert not is_broken(shown), shown.findings[0]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_each_planted_mistake_replaces_what_the_code_has(mutation: Mutation) -> None:
    """What was renamed would be found missing by ``make mutations`` only."""
    with simulated_clients(), ExitStack() as stack:
        for each in mutation.patches():
            stack.enter_context(each)


def test_each_rule_of_the_guarantees_is_taken_away_by_a_planted_mistake() -> None:
    """The numbered rules of docs/guarantees.md are what the mistakes say that they take away."""
    page = (Path(__file__).parents[2] / "docs/guarantees.md").read_text("utf-8")
    names, name, rules = iter(RULES), "", set()
    for number in re.findall(r"^(\d+)\. ", page, re.MULTILINE):
        name = next(names) if number == "1" else name
        rules.add(f"{name} {number}")
    assert {mutation.rule for mutation in MUTATIONS if mutation.rule} == rules
    assert not [*names]


def test_a_schedule_is_the_same_again_from_its_seed() -> None:
    courses = []
    for _ in range(2):
        steps: list[tuple[float, str]] = []
        with simulated_clients():
            run_schedule(7, lambda now, _, what: steps.append((now, what)))  # noqa: B023
        courses.append(steps)
    assert courses[0] == courses[1]


# -- known faults, one by one ------------------------------------------------------------------


class Course:
    """A cluster with some targets, and jobs that run on it one after the other."""

    def __init__(self, *, partitions: int = 1, targets: Sequence[str] = ("Q0", "Q1")) -> None:
        self.scheduler = Scheduler(1, most_steps=5_000)
        self.cluster = SimulatedCluster()
        self.network = Network(self.cluster, self.scheduler)
        self.cluster.create(DEAD_LETTERS, partitions)
        self.cluster.create(OUTCOMES)
        self.cluster.create(control_topic(APPLICATION), wants_keys=True)
        self.cluster.create(tables_topic(APPLICATION), wants_keys=True)
        for name in targets:
            self.cluster.create(name)
        self.scheduler.on_step = self.cluster.write_marker
        self.answered: Counter[str] = Counter()
        """How often each kind of request was answered."""
        self.scheduler.trace = lambda _, what: self.answered.update([_kind(what)])

    def settings(self, table: str = TABLE, share: str = "1/1", **options: Any) -> JobConfiguration:
        return configuration(self.network, table, Share.parse(share), **options)

    def letters(
        self, *queues: str, body: bytes = b"x", reason: int = 2053, partition: int = 0
    ) -> None:
        """Writes dead letters, one for each queue."""
        for queue in queues:
            headers: list[tuple[str, bytes | None]] = [
                ("mqdlh.Reason", str(reason).encode()),
                ("mqdlh.DestQName", queue.encode()),
            ]
            now = int(self.scheduler.now * 1000)
            self.cluster.append(OutputRecord(DEAD_LETTERS, b"k", body, headers, now, partition))

    def start(self, settings: JobConfiguration | None = None, workers: int = 0) -> Instance:
        """Starts an instance, which runs once ``run`` is called."""
        settings = settings or self.settings()
        if workers:
            settings = replace(settings, emitter=EmitterChoice.LANES)
        name = f"i{len(self.scheduler.processes)}"
        instance = Instance(name, self.network, settings, workers=workers, is_over=lambda: True)
        instance.start()
        return instance

    def run(self, settings: JobConfiguration | None = None) -> float:
        """Runs what was started, or one instance, to its end; the seconds that it took."""
        begun = self.scheduler.now
        if not self.scheduler.processes:
            self.start(settings)
        with simulated_clients(), simulated_clock(self.scheduler):
            self.scheduler.run()
        assert not self.scheduler.has_ended_early, "the job did not come to an end"
        self.cluster.settle()
        return self.scheduler.now - begun

    def outcomes(self) -> list[dict[str, Any]]:
        """The outcomes in the order of their inputs."""
        outcomes = [
            json.loads(record.value or b"") for *_, record in self.cluster.visible(OUTCOMES)
        ]
        return sorted(
            outcomes,
            key=lambda outcome: (outcome["topic"], outcome["partition"], outcome["offset"]),
        )

    def results(self) -> Counter[tuple[str, int]]:
        """Result and reason of all attempts."""
        return Counter((outcome["result"], outcome["reason"]) for outcome in self.outcomes())

    def on_step(self, step: int, happens: Callable[[], None]) -> None:
        """Lets something happen at a step of the schedule, once."""

        def look() -> None:
            self.cluster.write_marker()
            if not done and self.scheduler.steps >= step:
                done.append(True)
                happens()

        done: list[bool] = []
        self.scheduler.on_step = look

    def after(self, what: str, happens: Callable[[], None]) -> None:
        """Lets something happen right after the first answer to a kind of request."""

        def look(_: str, event: str) -> None:
            if event == what and not self.answered[what]:
                happens()
            self.answered[_kind(event)] += 1

        self.scheduler.trace = look

    def check(self, *conditions: Condition) -> None:
        """Nobody but these conditions of topics made any put fail, and all was done once."""
        assert not [error for _, error in self.scheduler.errors]
        assert not Audit(self.cluster, list(conditions), AUDITED).run()


def _kind(what: str) -> str:
    return what.partition(" ")[0]


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_refusal_that_is_known_in_the_middle_of_produce_costs_its_own_record_only(
    *, is_mixed: bool
) -> None:
    """The rest hears ``_STATE`` or is purged, and is done again: nothing starts over forever."""
    course = Course()
    course.cluster.topics["Q0"].refuses = POISON
    course.network.faults = Faults(
        is_mixed=is_mixed, buffer_full=0.1, sent_early=0.5, out_of_sequence=1.0
    )
    course.letters("Q0", "Q1", "Q0")
    course.letters("Q0", body=POISON)
    course.letters("Q1", "Q0", "Q1")
    assert course.run() < 60
    assert course.results() == {
        ("retried", 0): 6, ("parked", 2110): 1, ("remains", 2110): 1
    }  # fmt: skip
    course.check(Condition("Q0", Reason.FORMAT_ERROR, 0))
    # The control topic is opened three times. A producer is opened anew for another fault, for
    # batches of a single record, and for large ones again: once for each attempt on the culprit.
    # One more is for a transaction that breaks the sequence of the one before, as some seeds show.
    assert course.answered["init_transactions"] <= 4 + 4 or is_mixed


def test_payloads_that_are_too_large_together_are_fetched_in_several_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("redrive.kafka.facts.LARGEST_ANSWER", 20)
    course = Course(targets=["jobs"])
    for number in range(5):
        course.cluster.append(OutputRecord("jobs", None, b"payload %d" % number, [], 1, 0))
        fields = {"topic": b"jobs", "partition": b"0", "offset": str(number * 2 % 6).encode()}
        headers = [(f"__dlq.errors.{name}", value) for name, value in fields.items()]
        course.cluster.append(OutputRecord(DEAD_LETTERS, None, None, [*headers], 1, 0))
    course.run(course.settings("ACTION(RETRY)"))
    there = [record.value for *_, record in course.cluster.visible("jobs")]
    again = [b"payload %d" % (number * 2 % 6) for number in range(5)]
    assert there == [b"payload %d" % number for number in range(5)] + again
    assert course.results() == {("retried", 0): 5}


@pytest.mark.parametrize("messages", [0, 1])
def test_depth_is_of_messages_and_not_of_offsets(messages: int) -> None:
    course = Course()
    log = course.cluster.logs[TopicPartition("Q1", 0)]
    record = OutputRecord("Q1", None, b"x", [], 0)
    aborted = Transaction("other", 0.0, Fate.ABORTED)
    log += [Entry(record, None, 0.0)] * messages
    log += [Entry(record, aborted, 0.0), Entry(None, aborted, 0.0)] * (3 - 2 * messages)
    course.letters("Q1", "Q1", "Q1", "Q1")
    limits = {"Q1": QueueLimits(max_depth=4, consumer_group="readers")}
    course.run(course.settings("REASON(2053) ACTION(RETRY) RETRY(1)", limits=limits))
    assert [outcome["offset"] for outcome in course.outcomes() if outcome["reason"]] == [
        3
    ] * messages


@pytest.mark.parametrize("step", [5, 40, 60, 80, 120])
def test_the_job_goes_on_after_the_broker_was_restarted(step: int) -> None:
    course = Course()
    course.letters(*["Q0", "Q1"] * 10)
    course.on_step(step, lambda: setattr(course.cluster, "restarts", 1))
    assert course.run() < 90
    assert course.results() == {("retried", 0): 20}
    course.check()


@pytest.mark.parametrize("topic", [DEAD_LETTERS, RETRY, REMAINING])
def test_progress_of_one_topic_that_is_lost_alone_is_found_again(topic: str) -> None:
    course = Course()
    course.letters("Q0", "NOWHERE", "Q1")
    course.run()
    stood = dict(course.cluster.offsets)
    before = course.outcomes()
    for place in [place for place in stood if place[1].topic == topic]:
        del course.cluster.offsets[place]
    course.letters("Q0")
    course.run()
    assert len(course.outcomes()) == len(before) + 1
    assert all(course.cluster.offsets[place] >= offset for place, offset in stood.items())
    course.check(Condition("NOWHERE", Reason.UNKNOWN_OBJECT_NAME, 0))


def test_no_answer_is_never_taken_for_an_answer() -> None:
    course = Course()
    course.letters(*["Q0", "Q1"] * 5)
    course.network.faults = Faults(lost_request=0.5)
    course.on_step(400, lambda: setattr(course.network, "faults", Faults()))
    course.run()
    assert course.results() == {("retried", 0): 10}
    course.check()


@pytest.mark.parametrize("seed", range(5))
def test_a_lost_answer_of_the_control_topic_does_not_end_the_job(seed: int) -> None:
    course = Course()
    course.scheduler.random.seed(seed)
    course.letters("Q0")
    course.network.faults = Faults(lost_answer=0.2, hangs=0.1)
    course.on_step(150, lambda: setattr(course.network, "faults", Faults()))
    course.run()
    course.check()


def test_forgotten_offsets_are_found_again() -> None:
    course = Course(partitions=2)
    course.letters("Q0", "Q1", "Q0")
    course.run()
    course.cluster.offsets.clear()
    course.letters("Q1", partition=1)
    course.run()
    assert course.results() == {("retried", 0): 4}
    course.check()


def test_latest_means_what_was_there_before_the_first_start() -> None:
    course = Course()
    settings = course.settings(starting_offsets="latest")
    course.letters("Q0", "Q0")
    course.run(settings)
    assert not course.outcomes()
    course.cluster.create(DEAD_LETTERS, 2)
    course.letters("Q1", partition=1)
    course.letters("Q0")
    course.run(settings)
    assert course.results() == {("retried", 0): 2}


def test_what_remains_survives_that_its_topic_is_made_anew() -> None:
    course = Course()
    course.letters("Q0", reason=9999)
    course.run()
    course.cluster.may_move_back.add(TopicPartition(DEAD_LETTERS, 0))
    course.cluster.delete(DEAD_LETTERS)
    course.cluster.create(DEAD_LETTERS)
    course.letters("Q1", reason=9999)
    course.run(course.settings(data_loss=DataLoss.CONTINUE))
    live = {record.key: record.value for *_, record in course.cluster.visible(REMAINING)}
    assert len(live) == 2
    assert all(value is not None for value in live.values())


_RECREATED_AT: Final = range(20, 240, 8)
"""Steps at which a dead-letter topic is deleted and created again, one in each course."""


def faults_of_a_recreated_topic(step: int, shares: Sequence[str] = ("1/1",)) -> list[str]:
    """What is wrong after the dead-letter topic was recreated at a step, with more records."""
    course = Course(partitions=len(shares))
    lanes = [TopicPartition(DEAD_LETTERS, number) for number in range(len(shares))]

    def write(name: str, count: int) -> None:
        for lane in lanes:
            for number in range(count):
                body = f"{name} {lane.partition} {number}".encode()
                course.letters("Q0", body=body, partition=lane.partition)

    def recreate() -> None:
        course.cluster.may_move_back.update(lanes)
        course.cluster.delete(DEAD_LETTERS)
        course.cluster.create(DEAD_LETTERS, len(lanes))
        write("new", 25)

    write("old", 9)
    settings = [course.settings(share=share, data_loss=DataLoss.CONTINUE) for share in shares]
    for setting in settings:
        course.start(setting)
    course.on_step(step, recreate)
    course.run()
    for setting in settings * 2:  # a job that goes on looks for changed topics now and then
        course.start(setting)
        course.run()
    puts = Counter(record.value for *_, record in course.cluster.visible("Q0"))
    faults = [f"{body!r} is put {count} times" for body, count in puts.items() if count > 1]
    faults += [
        f"{record.value!r} is put {puts[record.value]} times"
        for lane, _, _, record in course.cluster.visible(DEAD_LETTERS)
        if puts[record.value] != 1
    ]
    faults += [str(error) for _, error in course.scheduler.errors]
    return [f"step {step}: {fault}" for fault in faults]


@pytest.mark.parametrize("shares", [("1/1",), ("1/2", "2/2")], ids=["one instance", "two"])
def test_a_topic_recreated_at_any_step_is_read_from_its_beginning(shares: Sequence[str]) -> None:
    assert not [
        fault for step in _RECREATED_AT for fault in faults_of_a_recreated_topic(step, shares)
    ]


@pytest.mark.parametrize(
    ("mistake", "shares"),
    [
        (patch.object(Slice, "_check_topics", lambda _: None), ("1/1",)),
        (patch.object(ControlTopic, "topic_id_of", lambda *_: ""), ("1/2", "2/2")),
    ],
    ids=["ids are not compared before a commit", "an instance takes the other's topic for its own"],
)
def test_the_steps_of_a_recreated_topic_find_a_planted_mistake(
    mistake: Any, shares: Sequence[str]
) -> None:
    with mistake:
        assert any(faults_of_a_recreated_topic(step, shares) for step in _RECREATED_AT)


def test_a_small_record_is_not_blamed_for_the_batch_of_a_large_one() -> None:
    course = Course()
    course.letters("Q0", "Q1")
    course.letters("Q0", body=random.Random(1).randbytes(4_000))
    course.letters("Q0", "Q0")
    shrinks = lambda: setattr(course.cluster.topics["Q0"], "limit", 2_000)  # noqa: E731
    course.after("describe_configs", shrinks)
    course.run(course.settings("REASON(2053) ACTION(RETRY) RETRY(1)"))
    assert course.results() == {("retried", 0): 4, ("remains", 2030): 1}
    assert [outcome["size"] for outcome in course.outcomes() if outcome["reason"]] == [4_000]


@pytest.mark.parametrize("packs", [False, True])
def test_whether_a_large_record_fits_once_it_is_compressed_is_for_its_topic_to_say(
    *, packs: bool
) -> None:
    course = Course()
    course.cluster.topics["Q0"].limit, course.cluster.topics["Q0"].packs = 2_000, packs
    course.letters("Q0", "Q1")
    course.letters("Q0", body=b"large" * 800)
    course.letters("Q0", "Q0")
    course.run(course.settings("REASON(2053) ACTION(RETRY) RETRY(1)"))
    refused = {} if packs else {("remains", 2030): 1}
    assert course.results() == {("retried", 0): 4 + packs, **refused}


def test_a_driver_that_stood_still_for_longer_than_its_transaction_goes_on() -> None:
    course = Course()
    course.letters(*["Q0", "Q1"] * 5)
    driver = course.start()
    course.on_step(75, lambda: course.scheduler.freeze(driver.processes[0], 200.0))
    course.run()
    assert course.results() == {("retried", 0): 10}
    course.check()


@pytest.mark.parametrize("step", range(30, 120, 6))
def test_an_older_run_can_not_commit_once_a_newer_one_has_read_positions(step: int) -> None:
    course = Course()
    course.letters(*["Q0", "Q1"] * 8)
    older = course.start()
    newer: list[Instance] = []

    def take_over() -> None:
        course.scheduler.freeze(older.processes[0], 5.0)
        newer.append(course.start())

    course.on_step(step, take_over)
    course.run()
    assert all(isinstance(error, SupersededFault) for _, error in course.scheduler.errors)
    assert not Audit(course.cluster, [], AUDITED).run()
    assert course.results() == {("retried", 0): 16}


def test_an_entry_that_is_committed_is_waited_for_until_it_can_be_read() -> None:
    course = Course()
    old = RunIdentity(APPLICATION, Share(1, 1), 1)
    settings, key = course.settings(), instance_key(old.share)
    checked: list[bool] = []

    def body() -> None:
        cluster = Cluster(settings.connection)
        entry = RunEntry(cluster, settings.control_topic, old)
        with ControlTopic(cluster, settings.control_topic) as entries:
            entries.write({key: {"run": 1}})
            entry.check_current()
            until = course.scheduler.steps + 20
            course.scheduler.on_step = lambda: (
                course.cluster.write_marker() if course.scheduler.steps > until else None
            )
            entries.write({key: {"run": 2, "host": "far", "pid": 7}})
            with pytest.raises(SupersededFault, match="process 7 on far"):
                entry.check_current()
            checked.append(True)

    course.scheduler.spawn("old", body)
    course.run()
    assert checked


@pytest.mark.parametrize("step", range(60, 130, 5))
def test_two_instances_take_over_from_one(step: int) -> None:
    course = Course(partitions=2)
    for partition in (0, 1):
        course.letters(*["Q0", "Q1"] * 4, partition=partition)
    whole = course.start()

    def take_over() -> None:
        course.scheduler.freeze(whole.processes[0], 5.0)
        for share in ("1/2", "2/2"):
            course.start(course.settings(share=share), workers=1)

    course.on_step(step, take_over)
    course.run()
    assert not Audit(course.cluster, [], AUDITED).run()
    assert course.results() == {("retried", 0): 16}


# -- the emission itself -----------------------------------------------------------------------


class Unreachable:
    """A broker that never answers, for a producer, a run and questions alike."""

    transactional_id = "id"

    def __init__(self, fault: type[ProtocolError]) -> None:
        self._fault = fault

    def register(self, transactional_id: str) -> None:
        raise self._fault(f"no answer about {transactional_id}")

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize("fault", [TransientFault, OutcomeUnknown, FencedFault])
def test_an_outage_is_waited_out_and_given_up_at_the_deadline(fault: type[ProtocolError]) -> None:
    """The emission pauses longer and longer, and ends with a fault that may be tried again; so it
    does if a coordinator whose answers get lost fences it, though there is no newer run."""
    scheduler, policy = Scheduler(0, most_steps=0), RetryPolicy(deadline=60)
    seen: list[FailedTry] = []
    clock: Any = _Clock(scheduler)
    nobody: Any = Unreachable(fault)
    emitter = Emitter(lambda _: nobody, nobody, nobody, clock, policy=policy, failed=seen.append)
    with pytest.raises(TransientFault, match="no answer"):
        emitter.emit(PositionsOnly({TopicPartition(DEAD_LETTERS, 0): 0}))
    assert 60 < seen[-1].seconds < 70
    assert [attempt.tries for attempt in seen] == list(range(1, len(seen) + 1))
    assert [policy.interval(n) for n in (1, 2, 3, 10)] == [0.1, 0.2, 0.4, 5.0]


class _Clock:
    """The clock of a scheduler without processes."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.sleep = scheduler.sleep

    def monotonic(self) -> float:
        return self._scheduler.now

"""ORDER(KEY): the messages of a key take effect in the order in which they first arrived."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from tests.conformance.rules_driver import IDENTITY, OUTCOMES, HandlerDriver, MemoryTopics
from tests.engine.failed_processing import spring, streams
from tests.engine.known_cluster import KnownCluster

from redrive.engine.facts import Answers, Original, Questions, RecordQuestion
from redrive.engine.message import NO_ATTEMPTS, Message
from redrive.engine.ordering import Ahead, Place, Round, WaitingMessage, position_of
from redrive.messages import OutputRecord, TopicPartition
from redrive.messages import own_headers as own
from redrive.rules import parse
from redrive.rules.backoff import PARTITIONS

TABLES = (
    "DIALECT(KAFKA) RETRYINT(5)\nACTION(RETRY) RETRY(3)\nACTION(FWD) FWDT('dead')\n",
    "DIALECT(KAFKA) RETRYINT(7)\nACTION(RETRY) RETRY(4) BACKOFF(3s,2,1m)\n",
    "DIALECT(KAFKA) RETRYINT(4)\nSIZE(>=2) ACTION(DISCARD)\nACTION(RETRY) RETRY(2)\n",
)


@dataclass(frozen=True)
class OrderedCluster(KnownCluster):
    """Answers what waits from the topics in memory, after the naive rule for rounds."""

    topics_in_memory: MemoryTopics = field(default_factory=MemoryTopics)

    def answers(self, questions: Questions) -> Answers:
        answers = super().answers(questions)
        memory = self.topics_in_memory
        is_quiet = not memory.waiting("orders") and not memory.waiting("DLQ")
        rounds = {question: question._replace(is_over=is_quiet) for question in questions.rounds}
        return replace(
            answers, rounds=rounds, waiting=dict.fromkeys(questions.waiting, self._waiting())
        )

    def _waiting(self) -> dict[bytes, dict[Place, WaitingMessage]]:
        memory, waiting = (
            self.topics_in_memory,
            defaultdict[bytes, dict[Place, WaitingMessage]](dict),
        )
        backoff = IDENTITY.backoff_topic
        logs = {TopicPartition(IDENTITY.retry_topic, 0): IDENTITY.retry_topic}
        logs |= {
            TopicPartition(backoff, number): f"{backoff}:{number}" for number in range(PARTITIONS)
        }
        for lane, log in logs.items():
            first = memory.committed[log]
            for offset, record in enumerate(memory.waiting(log), first):
                own_headers = own.read_own(record.headers or [])
                message = WaitingMessage(position_of(own_headers.identity), record.timestamp)
                waiting[record.key or b""][Place(lane, offset)] = message
        lane = TopicPartition(IDENTITY.remaining_topic, 0)
        last = {record.key: (at, record) for at, record in enumerate(memory.topics[lane.topic])}
        for offset, record in last.values():
            own_headers = own.read_own(record.headers or [])
            if record.value is not None:
                message = WaitingMessage(position_of(own_headers.identity), record.timestamp)
                waiting[own_headers.key or b""][Place(lane, offset)] = message
        return waiting


@dataclass
class World:
    """An application that fails at random, and the job on its dead letters."""

    seed: int
    table: str
    is_ordered: bool = True
    fail: Callable[[OutputRecord, int, int], OutputRecord] = spring
    memory: MemoryTopics = field(default_factory=MemoryTopics)
    effects: list[tuple[bytes, int]] = field(default_factory=list)
    """Key and number of each message, in the order in which they were done."""
    now: float = 1_000.0
    sent: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.start(self.table)

    def start(self, table: str) -> None:
        read = parse(table).required()
        control = replace(read.control, is_ordered=self.is_ordered)
        self.driver = HandlerDriver(self.memory, replace(read, control=control))
        self.driver.cluster = OrderedCluster(topics_in_memory=self.memory)

    def fail_first(self) -> None:
        """A new message fails; its key is one of three."""
        key = b"key%d" % self.random.randrange(3)
        body = b"%d" % self.sent
        record = OutputRecord("orders", key, body, [], 5)
        letter = self.fail(record, 1_000_000 + self.sent, int(1000 * self.now))
        self.memory.topics["DLQ"].append(letter)
        self.sent += 1

    def process(self) -> None:
        """The application takes one message that was put; it may fail again."""
        waiting = self.memory.waiting("orders")
        if not waiting:
            return
        offset = self.memory.committed["orders"]
        if self.random.random() < 0.6:
            self.memory.topics["DLQ"].append(self.fail(waiting[0], offset, int(1000 * self.now)))
        else:
            self.effects.append((waiting[0].key or b"", int(waiting[0].value or b"")))
        self.memory.committed["orders"] += 1

    def run(self, steps: int = 80) -> None:
        """Some steps at random, then until nothing more happens."""
        for _ in range(steps):
            self.now += self.random.choice((0.0, 0.1, 1.0, 4.0))
            self.random.choice((self.fail_first, self.process, self.step, self.step))()
        for _ in range(
            300 if "FWDT" in self.table else 40
        ):  # what waits behind a message that remains is due again and again
            while self.memory.waiting("orders"):
                self.process()
            self.step()
            due = self.driver.due_at()
            if due is None and not self.memory.waiting("DLQ"):
                return
            self.now = max(self.now, due or 0.0)

    def step(self) -> None:
        """The job handles everything that is free; it may crash before it commits."""
        if self.random.random() < 0.2:
            self.driver.decided(self.now)
            return
        known = {
            RecordQuestion("orders", 0, at): Original(
                order.key, order.value, order.headers or [], order.timestamp
            )
            for at, order in enumerate(self.memory.topics["orders"])
        }
        self.driver.cluster = replace(self.driver.cluster, records=known)
        before = {topic: len(records) for topic, records in self.memory.topics.items()}
        self.driver.step(self.now)
        for record in self.memory.topics["dead"][before.get("dead", 0) :]:
            self.effects.append((record.key or b"", int(record.value or b"")))
        for record in self.memory.topics[OUTCOMES][before.get(OUTCOMES, 0) :]:
            outcome = json.loads(record.value or b"")
            if outcome["result"] == "discarded":
                offset = int(outcome["message"].rsplit(":", 1)[1])
                letter = self.memory.topics["DLQ"][offset]
                self.effects.append((letter.key or b"", int(letter.value or b"")))


@pytest.mark.parametrize("fail", [spring, streams], ids=lambda fail: fail.__name__)
@pytest.mark.parametrize("table", TABLES)
def test_messages_of_a_key_take_effect_in_the_order_of_their_arrival(
    table: str, fail: Callable[[OutputRecord, int, int], OutputRecord]
) -> None:
    """Whatever fails, however often, wherever the job stops, and if the headers are dropped.

    A message has one outcome that says that it is held, however long it is.
    """
    held = 0
    for seed in range(3):
        world = World(seed, table, fail=fail)
        world.run()
        for key in {key for key, _ in world.effects}:
            numbers = [number for other, number in world.effects if other == key]
            assert numbers == sorted(set(numbers)), (seed, key)
        if "dead" in table:
            assert len(world.effects) == world.sent, seed
        outcomes = [json.loads(record.value or b"") for record in world.memory.topics[OUTCOMES]]
        waited = Counter(
            outcome["origin"] for outcome in outcomes if "waits behind" in outcome.get("detail", "")
        )
        assert set(waited.values()) <= {1}, seed
        held += len(waited)
    assert held


def test_without_order_the_same_messages_overtake_each_other() -> None:
    def overtakes(seed: int) -> bool:
        world = World(seed, TABLES[0], is_ordered=False)
        world.run()
        return any(
            numbers != sorted(numbers)
            for key in {key for key, _ in world.effects}
            if (numbers := [number for other, number in world.effects if other == key])
        )

    assert any(map(overtakes, range(10)))


RETRY_LANE = TopicPartition(IDENTITY.retry_topic, 0)


@pytest.mark.parametrize(
    ("lane", "waited", "messages", "delay"),
    [
        (None, 0, 1, 1),
        (None, 0, 5, 4),
        (None, 0, 1_000, 60),
        (TopicPartition(IDENTITY.backoff_topic, 0), 1, 1, 1),  # a note, or a message that is held
        (RETRY_LANE, 0, 1, 20),
        (RETRY_LANE, 12, 1, 4),
        (RETRY_LANE, 21, 2, 1),
        (TopicPartition(IDENTITY.remaining_topic, 0), 0, 1, 60),
    ],
)
def test_a_held_message_is_looked_at_when_what_it_waits_for_may_have_moved(
    lane: TopicPartition | None, waited: int, messages: int, delay: int
) -> None:
    table = parse("DIALECT(KAFKA) ORDER(KEY) RETRYINT(20)\nACTION(RETRY) BACKOFF(20s,1,20s)\n")
    decider = HandlerDriver(MemoryTopics(), table.required())._handler
    ahead = Ahead(WaitingMessage(position_of("DLQ:0:7"), 100_000), lane, messages)
    message = Message(b"k", b"v", [], 5, "DLQ:0:9", "DLQ:0:9", 0)
    assert decider.held_keys is not None
    held = decider.held_keys.hold(message, NO_ATTEMPTS, ahead, 100_000 + 1000 * waited)
    assert (held.behind, held.delay, held.attempt) == ("DLQ:0:7", delay, 0)


def test_a_message_without_a_key_never_waits() -> None:
    world = World(0, TABLES[0])
    letters = [
        world.fail(OutputRecord("orders", key, b"0", [], 5), offset, 1_000_000)
        for offset, key in enumerate([None, None, b"k"])
    ]
    world.memory.topics["DLQ"] += letters
    world.driver.step(1_006.0)
    assert len(world.memory.topics["orders"]) == len(letters)


def test_a_note_is_read_as_it_was_written() -> None:
    first = Round("orders", -1, "billing", 5, TopicPartition("DLQ", 1), ((0, 3), (1, 7)), 9)
    assert Round.read(None, [(own.IN_ROUND, first.value)]) == first
    assert Round.read(b"", [(own.IN_ROUND, first.value)]) is None
    assert Round.read(None, [(own.IN_ROUND, b"x")]) is None
    assert Round.read(None, []) is None

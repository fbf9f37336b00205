"""A cluster whose facts are known: what decides is asked and answered as the job does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from redrive.engine.commands import Replay, orders_on
from redrive.engine.context import Entry
from redrive.engine.facts import (
    Answers,
    Copies,
    Gone,
    Original,
    Questions,
    RecordQuestion,
    Replayed,
    TopicFacts,
)
from redrive.engine.slice import Slice
from redrive.messages import own_headers as own

_NEVER = Replayed(0, {})


@dataclass(frozen=True)
class KnownCluster:
    """Every topic exists and takes everything, save for what is said here."""

    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    depths: Mapping[str, int] = field(default_factory=dict)
    """Messages on queues that can be full, by topic."""
    records: Mapping[RecordQuestion, Original | Gone] = field(default_factory=dict)
    """Records that dead letters point at; all others are gone."""
    copies: Copies = field(default_factory=dict)
    """What remains, on whichever partition."""
    replays: Mapping[str, Replay] = field(default_factory=dict)
    """Accepted plans."""

    puts: Mapping[bytes, own.OwnHeaders] = field(default_factory=dict)
    """The last put of a key and body, by their digest."""
    replayed: Replayed = _NEVER
    """What instructions have moved, as any partition of the outcomes topic tells."""

    def answers(self, questions: Questions) -> Answers:
        return Answers(
            {name: self.topics.get(name, TopicFacts()) for name in questions.topics},
            {depth: self.depths.get(depth.topic, 0) for depth in questions.depths},
            {record: self.records.get(record, Gone("it is gone")) for record in questions.records},
            dict.fromkeys(questions.copies, self.copies),
            {plan: self.replays.get(plan) for plan in questions.replays},
            {lane: orders_on(lane, self.replays.values()) for lane in questions.orders},
            dict.fromkeys(questions.replayed, self.replayed),
            rounds={question: question for question in questions.rounds},
            waiting={question: {} for question in questions.waiting},
            puts={put: self.puts.get(put, own.NO_OWN_HEADERS) for put in questions.puts},
        )

    def decided(self, work: Slice) -> list[Entry]:
        """What a slice writes once every fact it needs is known."""
        while questions := work.decide():
            work.learn(self.answers(questions))
        return list(work.outputs)


OPEN = KnownCluster()
"""Nothing is refused."""

"""Jobs whose cluster is in memory, and what they decide about the records of their topics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple
from unittest import mock

from tests.configurations import handled, job_of
from tests.engine.known_cluster import OPEN, KnownCluster

from redrive.configuration import JobConfiguration, OnUndeliverable
from redrive.configuration.deciders import DeciderFactory, Deciders, topology_of
from redrive.engine.commands import Replay
from redrive.engine.context import SliceContext
from redrive.engine.decision import Decision, Wait
from redrive.engine.facts import Facts
from redrive.engine.put_decider import PutDecider
from redrive.engine.rules_decider import RulesDecider
from redrive.engine.slice import Slice, SliceSettings
from redrive.engine.sources import PartitionRecords
from redrive.messages import DeadLetterDecoder, OutputRecord, Records, TopicPartition
from redrive.messages import own_headers as own
from redrive.outcomes.rows import Row, row_of
from redrive.topology.layout import SourceText, topics_of

NOW: Final = 90_000
"""Milliseconds: the time of all decisions."""


def _seconds() -> float:
    return NOW / 1000


at_now = mock.patch("time.time", _seconds)
"""Lets views that look at the clock decide at the same time."""
DEAD_LETTERS: Final = "QM1--DLQ"
_OUTCOMES: Final = "OUT"
_PLAN: Final = "plan"


class Decided(NamedTuple):
    """What the job decides about one record."""

    read: OutputRecord
    """The record as it was read."""
    decision: Decision
    row: Row
    """Its outcome as the ledger has it."""
    written: Sequence[OutputRecord]
    """What the decision writes besides."""

    @property
    def attempt_now(self) -> Decision:
        """The decision, or the attempt for which the message waits, as it would end now."""
        return self.decision.attempt_now if isinstance(self.decision, Wait) else self.decision


def _decision_of(
    outcome: dict[str, Any], decisions: Sequence[tuple[Decision, dict[str, Any]]]
) -> Decision:
    """The decision of an outcome, by its members; those of a single put are none of them."""
    fitting = (pair for pair in decisions if pair[1].items() <= outcome.items())
    decision, _ = max(fitting, key=lambda pair: len(pair[1]))
    return decision


@dataclass
class MemoryJob:
    """A job with one handler, for the queue DLQ of QM1."""

    rules: str
    definitions: tuple[SourceText, ...] = ()
    cluster: KnownCluster = OPEN
    facts: Facts = field(default_factory=lambda: Facts(lambda: 0.0))

    @cached_property
    def configuration(self) -> JobConfiguration:
        names = {"name": "dlq", "queue": "DLQ", "queue_manager": "QM1", "replay_topic": "replay"}
        handler = handled(DEAD_LETTERS, self.rules, **names)
        aside = OnUndeliverable.KEEP_ASIDE  # a stopped channel would hold the messages behind too
        return job_of(handler, topology=self.definitions, on_undeliverable=aside)

    @cached_property
    def deciders(self) -> Deciders:
        return DeciderFactory(self.configuration, self.facts).deciders()

    @property
    def decider(self) -> RulesDecider:
        decider, _ = self.deciders[DEAD_LETTERS]
        assert isinstance(decider, RulesDecider)
        return decider

    @property
    def context(self) -> SliceContext:
        return SliceContext(self.facts, "", NOW)

    def part(self, topic: str, records: Sequence[OutputRecord], first: int = 0) -> PartitionRecords:
        """Records of one topic as the job reads them, from one partition and an offset on."""
        read = Records(
            [record.key for record in records],
            [record.value for record in records],
            [record.headers or [] for record in records],
            [record.timestamp for record in records],
            list(range(first, first + len(records))),
        )
        return PartitionRecords(TopicPartition(topic, 0), *self.deciders[topic], read)

    def decide(
        self, topic: str, records: Sequence[OutputRecord], cluster: KnownCluster | None = None
    ) -> list[Decided]:
        """What the job decides about records of one topic, in a slice of their own."""
        if not records:
            return []
        settings = SliceSettings(outcomes_topic=_OUTCOMES, now=NOW)
        part = self.part(topic, records)
        work = Slice([part], DeadLetterDecoder(), self.facts, settings)
        decided: list[Decided] = []
        written: list[OutputRecord] = []
        outputs = [output for _, output in (cluster or self.cluster).decided(work)]
        decisions = [
            (decision, json.loads(f"{{{decision.members}}}"))
            for decision in work._context.decisions
        ]
        for output in outputs:
            if output.topic != _OUTCOMES:
                written.append(output)
                continue
            decision = _decision_of(json.loads(output.value or b""), decisions)
            row = row_of(output.value, NOW, 0, len(decided))
            decided.append(Decided(records[len(decided)], decision, row, written))
            written = []
        assert len(decided) == len(records), "every record has an outcome"
        return decided

    def replay(self, copies: Sequence[OutputRecord], replay: Replay) -> list[Decided]:
        """What the job decides about instructions to replay messages that remain."""
        instructions = [
            copy._replace(headers=[*(copy.headers or []), (own.REPLAY, replay.plan.encode())])
            for copy in copies
        ]
        remaining = {copy.key or b"": offset for offset, copy in enumerate(copies)}
        cluster = replace(self.cluster, copies=remaining, replays={replay.plan: replay})
        return self.decide("replay", instructions, cluster)

    def follow(self, intake: str, puts: Sequence[OutputRecord]) -> list[list[Decided]]:
        """Of each put on an intake, what the job decides until the message rests."""
        topology = topology_of(self.definitions)
        moving = {
            topic.topic for topic in topics_of(topology) if topic.is_read and topic.is_running
        }
        moving |= {
            decider.identity.retry_topic
            for decider, _ in self.deciders.values()
            if isinstance(decider, PutDecider) and decider.identity.topic in moving
        }
        steps: dict[str, list[Decided]] = {}
        waiting = {intake: list(puts)}
        while waiting:
            topic, records = waiting.popitem()
            for outcome in self.decide(topic, records):
                steps.setdefault(outcome.row.message, []).append(outcome)
                for written in outcome.written:
                    if written.topic in moving:
                        waiting.setdefault(written.topic, []).append(written)
        return [steps[f"{intake}:0:{offset}"] for offset in range(len(puts))]

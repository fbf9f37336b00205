"""The demo with dead letters of Kafka: four schemes, one table, rounds, a missing topic."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console, Group

from redrive.demo.environment import Environment
from redrive.demo.messages import WAITING, End, Found, Outcome, State
from redrive.demo.reconciliation import Trace
from redrive.demo.script import Operator, titled_table
from redrive.demo.scripts.applications import (
    AWAY,
    DEAD_LETTER_TOPICS,
    KINDS,
    PARTITIONS,
    PAYMENTS,
    TOPICS,
    PaymentService,
    generate,
)
from redrive.demo.scripts.dead_letters import BACKLOG, DeadLetterScript, failed_lines
from redrive.demo.scripts.orders import Punctuality
from redrive.kafka.administration import NewTopic
from redrive.messages import reason_name
from redrive.rules.backoff import JITTER, jitter_of

_FOR_AWAY: Final = {one.name for one in KINDS if one.topic == AWAY and one.end == "retried"}
"""Kinds of messages that return to the missing topic."""


class KafkaTeams(DeadLetterScript):
    """A sink of Connect, two Spring applications and Kafka Streams; one topic is missing."""

    verdict = (
        "Each message was followed by its number: it is in one place, where the table puts it; what"
        " was retried is on the partition it failed on, without a header of its scheme, and was"
        " processed as often as it had to be."
    )

    def __init__(self, messages: int, seed: int, *, fast: bool = False) -> None:
        self.title = f"with {messages} dead letters of Kafka in four schemes, seed {seed}"
        self._backoff = "1s,2,2s" if fast else "2s,2,16s"
        self._away = 3 if fast else 30
        """Seconds for which a topic is missing once the job needs it."""
        backoff = f"BACKOFF({self._backoff})"
        super().__init__(generate(messages, seed), seed, "kafka.rul", backoff)
        backlog = round(len(self.messages) * BACKLOG)
        self._before, self._after = self.messages[:backlog], self.messages[backlog:]
        self._payments = PaymentService(self.messages)

    def write_files(self, folder: Path, bootstrap_servers: str) -> None:
        """See ``Script.write_files``."""
        self._write_files(folder, bootstrap_servers, DEAD_LETTER_TOPICS)

    def prepare(self, environment: Environment, operator: Operator) -> None:
        """See ``Script.prepare``."""
        with environment.step("Dead letters") as progress:
            here = [one for one in TOPICS if one != AWAY]
            operator.cluster.create([NewTopic(one, PARTITIONS, {}) for one in here])
            others = [*DEAD_LETTER_TOPICS, *sorted({one.place for one in KINDS if one.place})]
            operator.cluster.create([NewTopic(one, 2, {}) for one in others])
            operator.put(self._before)
            progress(f"{len(self._before)} on {', '.join(DEAD_LETTER_TOPICS)}, the others follow")
        operator.console.print("The job starts, which takes some seconds")

    def play(self, operator: Operator) -> None:
        """See ``Script.play``."""
        with closing(operator.cluster.consumer(PAYMENTS, f"{PAYMENTS}-service")) as consumer:
            operator.applications.append(
                partial(self._payments.process, consumer, operator.cluster)
            )
            self._play(operator)

    def _play(self, operator: Operator) -> None:
        began = time.monotonic()

        def say(text: str) -> None:
            operator.console.print(f"{time.monotonic() - began:5.1f} s: {text}", markup=False)

        operator.put(self._after)
        for_away = [one for one in self.messages if one.kind in _FOR_AWAY]
        operator.wait_for_outcomes("were tried", for_away, _failed)
        say(f"{AWAY} is away: {len(for_away)} messages for it wait, and are tried again in vain,")
        say(f"with BACKOFF({self._backoff}); everything else goes on, and {PAYMENTS} fails again")
        operator.pause(self._away)
        operator.cluster.create([NewTopic(AWAY, PARTITIONS, {})])
        say(f"{AWAY} is back: each message for it goes there when its next attempt is due")
        operator.wait_until("have come to rest", lambda: self._moving(operator))
        say("every message has come to rest")

    def _moving(self, operator: Operator) -> Iterator[str]:
        outcomes = operator.cluster.outcomes()
        for one in self.messages:
            place = operator.places[one.number]
            results = [it.result for it in outcomes.get(place, ()) if it.result != "parked"]
            is_due = (
                one.failures and results.count("retried") > self._payments.deliveries[one.number]
            )
            if len(results) <= one.failures or is_due:
                yield place

    def end_of(self, found: Found) -> End | None:
        """See ``Script.end_of``; what could not be processed continued as a dead letter."""
        if found.topic != PAYMENTS or found.state is not State.LEFT:
            return super().end_of(found)
        booked = self._payments.booked.get(found.place)
        if booked is None:
            return End(WAITING, PAYMENTS)
        return super().end_of(found) if booked else None

    def _retried_to(self, found: Found) -> str:
        return found.place.rpartition(":")[0]  # on its partition

    def show(self, traces: Sequence[Trace], console: Console) -> None:
        """See ``Script.show``."""
        table = titled_table("Results of the dead letters")
        table.add_column("scheme")
        table.add_column("what failed", overflow="fold")
        table.add_column("number", justify="right", no_wrap=True)
        table.add_column("ended", overflow="fold")
        for row in self._rows(traces):
            what = Group(row["what"], *failed_lines(row["failures"]))
            ended = " ".join(filter(None, (row["end"], row["place"])))
            table.add_row(row["scheme"], what, str(row["messages"]), ended)
        console.print(table)
        poison = ", ".join(
            f"{count} poison messages in quarantine after exactly {rounds} rounds"
            for rounds, count in self._poison(traces).items()
        )
        console.print(
            f"Rounds of {PAYMENTS} after the first: {self._rounds(traces)}; {poison}",
            soft_wrap=True,
        )

    def document(self, traces: Sequence[Trace], ends: Mapping[str, int]) -> dict[str, Any]:
        """See ``Script.document``."""
        rounds = {**self._rounds(traces).document(), "poison": self._poison(traces)}
        return self._document(ends, kinds=self._rows(traces), rounds=rounds)

    @staticmethod
    def _poison(traces: Sequence[Trace]) -> dict[str, int]:
        """Rounds -> how many poison messages came back so often."""
        return Counter(
            str(len(one.inputs) - 1)
            for one in traces
            if one.message.failures and one.message.ends[0].what == "remaining"
        )

    def _rounds(self, traces: Sequence[Trace]) -> Punctuality:
        """Due-time errors of the puts of returning messages.

        First rounds do not count: their dead letters may be older than the job.
        """
        errors = []
        for one in traces:
            failed = sorted(one.inputs, key=lambda it: it.record.timestamp)[1:]
            puts = [it for it in one.outcomes if it.result == "retried"][1:]
            for letter, put in zip(failed, puts, strict=False):  # that of poison has no put
                waited = (put.time - letter.record.timestamp) / 1000
                errors.append(waited - self._wait(put))
        return Punctuality(sorted(errors))

    def _wait(self, put: Outcome) -> float:
        """Seconds from a failure until its message was due, at least what the table says."""
        [rule] = [one for one in self.table.rules if one.line == put.rule_line]
        delay = rule.wait_before(put.attempt - 1, self.table.control.retry_interval)
        partitions = self.table.backoff_partitions
        place = partitions.partition(delay, jitter_of(put.message, put.attempt - 1))
        return max(partitions.seconds(place), delay * (1 - JITTER))

    def _rows(self, traces: Sequence[Trace]) -> list[dict[str, Any]]:
        number = Counter(one.message.kind for one in traces)
        failures = {kind.name: Counter[str]() for kind in KINDS}
        for one in traces:
            failures[one.message.kind].update(
                reason_name(outcome.reason) for outcome in one.outcomes if outcome.reason
            )
        return [
            {
                "scheme": kind.scheme,
                "what": kind.name,
                "messages": number[kind.name],
                "end": kind.end,
                "place": kind.place or (kind.topic if kind.end == "retried" else ""),
                "failures": dict(failures[kind.name]),
            }
            for kind in KINDS
        ]


def _failed(outcomes: Sequence[Outcome]) -> bool:
    """Whether an attempt failed: the first delay may come before it."""
    return any(one.reason for one in outcomes)

"""The demo with dead letters of Kafka: four schemes, one table, and a topic that is away."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, Group

from redrive.demo.script import Operator, titled_table
from redrive.demo.scripts.applications import (
    AWAY,
    DEAD_LETTER_TOPICS,
    KINDS,
    PARTITIONS,
    TOPICS,
    generate,
)
from redrive.demo.scripts.dead_letters import BACKLOG, DeadLetterScript, failed_lines
from redrive.kafka.administration import NewTopic
from redrive.messages import reason_name

if TYPE_CHECKING:
    from redrive.demo.environment import Environment
    from redrive.demo.messages import Found, Outcome
    from redrive.demo.reconciliation import Trace

_FOR_AWAY: Final = {one.name for one in KINDS if one.topic == AWAY and one.end == "retried"}
"""Kinds of messages that go back to the topic that is away."""


class KafkaTeams(DeadLetterScript):
    """A sink of Connect, two Spring applications and Kafka Streams; a topic of theirs is away."""

    verdict = (
        "Each message was followed by its number: it is in one place, where the table puts it; what"
        " was retried is on the partition it failed on, without a header of its scheme."
    )

    def __init__(self, messages: int, seed: int, *, fast: bool = False) -> None:
        self.title = f"with {messages} dead letters of Kafka in four schemes, seed {seed}"
        self._backoff = "1s,2,2s" if fast else "2s,2,16s"
        self._away = 3 if fast else 30
        """Seconds for which a topic is away once the job wants it."""
        backoff = f"BACKOFF({self._backoff})"
        super().__init__(generate(messages, seed), seed, "kafka.rul", backoff)
        backlog = round(len(self.messages) * BACKLOG)
        self._before, self._after = self.messages[:backlog], self.messages[backlog:]

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
        began = time.monotonic()

        def say(text: str) -> None:
            operator.console.print(f"{time.monotonic() - began:5.1f} s: {text}", markup=False)

        operator.put(self._after)
        for_away = [one for one in self.messages if one.kind in _FOR_AWAY]
        operator.wait_for_outcomes("were tried", for_away, bool)
        say(f"{AWAY} is away: {len(for_away)} messages for it wait, and are tried again in vain,")
        say(f"with BACKOFF({self._backoff}); everything else goes on")
        operator.pause(self._away)
        operator.cluster.create([NewTopic(AWAY, PARTITIONS, {})])
        say(f"{AWAY} is back: each message for it goes there when its next attempt is due")
        operator.wait_for_outcomes("have come to rest", self.messages, _rests)
        say("every message has come to rest")

    def _retried_to(self, found: Found) -> str:
        return found.place.rpartition(":")[0]  # on its partition

    def show(self, traces: Sequence[Trace], console: Console) -> None:
        """See ``Script.show``."""
        table = titled_table("What became of the dead letters")
        table.add_column("scheme")
        table.add_column("what failed", overflow="fold")
        table.add_column("number", justify="right", no_wrap=True)
        table.add_column("ended", overflow="fold")
        for row in self._rows(traces):
            what = Group(row["what"], *failed_lines(row["failures"]))
            ended = " ".join(filter(None, (row["end"], row["place"])))
            table.add_row(row["scheme"], what, str(row["messages"]), ended)
        console.print(table)

    def document(self, traces: Sequence[Trace], ends: Mapping[str, int]) -> dict[str, Any]:
        """See ``Script.document``."""
        return self._document(ends, kinds=self._rows(traces))

    def _rows(self, traces: Sequence[Trace]) -> list[dict[str, Any]]:
        """The kinds of dead letters, with how many there were and how many attempts failed."""
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


def _rests(outcomes: Sequence[Outcome]) -> bool:
    return bool(outcomes) and outcomes[-1].result != "parked"

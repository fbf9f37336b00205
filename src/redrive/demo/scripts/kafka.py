"""The demo with dead letters of Kafka: four schemes, one table, and a topic that is away."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, Group
from rich.text import Text

from redrive.demo.messages import SETTINGS, WAITING, End, Found, Outcome, State
from redrive.demo.report import titled_table
from redrive.demo.script import Operator, Script
from redrive.demo.scripts.applications import (
    AWAY,
    DEAD_LETTER_TOPICS,
    KINDS,
    PARTITIONS,
    TOPICS,
    forwarding_topics,
    generate,
)
from redrive.kafka.administration import NewTopic
from redrive.messages import reason_name
from redrive.rules import Action, parse

if TYPE_CHECKING:
    from redrive.demo.environment import Environment
    from redrive.demo.messages import Message
    from redrive.demo.reconciliation import Trace

__all__ = ["KafkaTeams"]

_RULES: Final = "kafka.rul"
_BACKLOG: Final = 0.8
"""Which part of the dead letters is there before the job starts."""
_PARKED: Final = "parked"
_FOR_AWAY: Final = {one.name for one in KINDS if one.topic == AWAY and one.end == "retried"}
"""Kinds of messages that go back to the topic that is away."""


class KafkaTeams(Script):
    """A sink of Connect, two Spring applications and Kafka Streams; a topic of theirs is away."""

    counted = "in"
    ends = ("forwarded", "retried", "discarded", "remaining")
    verdict = (
        "Each message was followed by its number: it is in one place, where the table puts it; what"
        " was retried is on the partition it failed on, without a header of its scheme."
    )

    def __init__(self, messages: int, seed: int, *, fast: bool = False) -> None:
        """Make the dead letters.

        Args:
            messages: How many.
            seed: Decides about their order and content.
            fast: Whether it is a demo to test with, over in a few seconds, or one to watch.
        """
        self.title = f"with {messages} dead letters of Kafka in four schemes, seed {seed}"
        self.messages = generate(messages, seed)
        self._seed = seed
        self._backoff = "1s,2,2s" if fast else "2s,2,16s"
        self._away = 3 if fast else 30
        """Seconds for which a topic is away once the job wants it."""
        table = parse(self.rules(), name=_RULES).table
        if table is None:
            raise ValueError(f"{_RULES} has errors")
        self._retries = {rule.line for rule in table.rules if rule.action is Action.RETRY}

    def rules(self) -> str:
        """The table with the BACKOFF of this demo."""
        text = files("redrive.demo").joinpath(_RULES).read_text(encoding="utf-8")
        return re.sub(r"BACKOFF\([^)]*\)", f"BACKOFF({self._backoff})", text)

    def write_files(self, folder: Path, bootstrap_servers: str) -> None:
        """See ``Script.write_files``."""
        handlers = "".join(
            f'[[handlers]]\nqueue = "{topic}"\nrules = "{_RULES}"\n\n'
            for topic in DEAD_LETTER_TOPICS
        )
        settings = (
            f'[application]\nname = "demo"\ndirectory = "job"\n\n'
            f'[kafka]\nbootstrap_servers = "{bootstrap_servers}"\n\n'
            f'{handlers}[job]\ndriver_memory = "1g"\n'
        )
        (folder / SETTINGS).write_text(settings, encoding="utf-8")
        (folder / _RULES).write_text(self.rules(), encoding="utf-8")

    def prepare(self, environment: Environment, operator: Operator) -> None:
        """See ``Script.prepare``."""
        with environment.step("Dead letters") as progress:
            here = [one for one in TOPICS if one != AWAY]
            operator.cluster.create([NewTopic(one, PARTITIONS, {}) for one in here])
            others = [*DEAD_LETTER_TOPICS, *forwarding_topics()]
            operator.cluster.create([NewTopic(one, 2, {}) for one in others])
            operator.put(self._backlog)
            progress(
                f"{len(self._backlog)} on {', '.join(DEAD_LETTER_TOPICS)}, the others will come"
            )
        operator.console.print("The job starts, which takes some seconds")

    def play(self, operator: Operator) -> None:
        """See ``Script.play``."""
        began = time.monotonic()

        def say(text: str) -> None:
            operator.console.print(f"{time.monotonic() - began:5.1f} s: {text}", markup=False)

        operator.put(self.messages[len(self._backlog) :])
        for_away = [one for one in self.messages if one.kind in _FOR_AWAY]
        _wait(operator, "were tried", for_away, bool)
        say(f"{AWAY} is away: {len(for_away)} messages for it wait, and are tried again in vain,")
        say(f"with BACKOFF({self._backoff}); everything else goes on")
        operator.pause(self._away)
        operator.cluster.create([NewTopic(AWAY, PARTITIONS, {})])
        say(f"{AWAY} is back: each message for it goes there when its next attempt is due")
        _wait(operator, "have come to rest", self.messages, _rests)
        say("every message has come to rest")

    @property
    def _backlog(self) -> Sequence[Message]:
        return self.messages[: round(len(self.messages) * _BACKLOG)]

    def end_of(self, found: Found) -> End:
        """See ``Script.end_of``; what was retried has to be on its partition."""
        if found.state is State.WAITING:
            return End(WAITING, found.topic)
        if found.state is State.REMAINING:
            return End("remaining", found.topic)
        if found.rule_line in self._retries:
            return End("retried", found.place.rpartition(":")[0])
        return End("forwarded", found.topic)

    def show(self, traces: Sequence[Trace], console: Console) -> None:
        """See ``Script.show``."""
        table = titled_table("What became of the dead letters")
        table.add_column("scheme")
        table.add_column("what failed", overflow="fold")
        table.add_column("number", justify="right", no_wrap=True)
        table.add_column("ended", overflow="fold")
        for row in self._rows(traces):
            failed = [
                Text(f"{count} failed: {reason.removeprefix('MQRC_')}", style="dim")
                for reason, count in row["failures"].items()
            ]
            ended = " ".join(filter(None, (row["end"], row["place"])))
            table.add_row(row["scheme"], Group(row["what"], *failed), str(row["messages"]), ended)
        console.print(table)

    def document(self, traces: Sequence[Trace], ends: Mapping[str, int]) -> dict[str, Any]:
        """See ``Script.document``."""
        return {
            "seed": self._seed,
            "messages": len(self.messages),
            **ends,
            "kinds": self._rows(traces),
        }

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
    """Whether the job has nothing more to do with a message."""
    return bool(outcomes) and outcomes[-1].result != _PARKED


def _wait(
    operator: Operator,
    what: str,
    messages: Sequence[Message],
    holds: Callable[[Sequence[Outcome]], bool],
) -> None:
    places = [operator.places[one.number] for one in messages]

    def missing() -> list[str]:
        outcomes = operator.cluster.outcomes()
        return [one for one in places if not holds(outcomes.get(one, ()))]

    operator.wait_until(what, missing)

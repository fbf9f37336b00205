"""The steps of a network's script: channels stop, queues are disabled, clients pull."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from redrive.demo.messages import Message, Outcome
from redrive.demo.script import Operator
from redrive.demo.scripts.places import Places
from redrive.operations.channel import set_channels, trigger
from redrive.operations.network import Network
from redrive.operations.states import set_put_enabled

_HELD: Final = 3
"""Messages sent to a stopped channel one after the other, each in a later batch: if it were still
running, the first of them would be gone."""


class NetworkOperator:
    """Plays the script of a network: every public method except ``play`` is a step of it.

    No step waits for a fixed time, but for visible effects of the job. Steps with ``put`` and
    ``wait_for`` in their names return numbers of messages, which ``say`` prints.
    """

    def __init__(
        self, operator: Operator, network: Network, messages: Sequence[Message], places: Places
    ) -> None:
        self._operator = operator
        self._network = network
        self._messages = messages
        self._places = places
        self._began = time.monotonic()
        self._counts: dict[str, int | None] = {}
        """What each step returned last, by its name."""

    def play(self, script: Sequence[Mapping[str, Any]]) -> None:
        """Carry out the steps in order."""
        for step in script:
            [(name, arguments)] = step.items()
            given = [arguments] if isinstance(arguments, str) else arguments
            self._counts[name] = getattr(self, name)(*given)

    def begin(self, title: str) -> None:
        """Print a heading."""
        seconds = time.monotonic() - self._began
        self._operator.console.print(f"\n[bold]{title}[/]  [dim]{seconds:.0f} s[/]")

    def say(self, text: str) -> None:
        """Print a line, with the numbers that steps returned in braces."""
        self._operator.console.print(f"  {text.format(**self._counts)}", markup=False)

    def put(self, stage: str) -> int:
        """Put the messages of a stage."""
        messages = self._of(stage)
        self._operator.put(messages)
        return len(messages)

    def put_to_stopped(self, stage: str, queue_manager: str, queue: str) -> int:
        """Put the messages of a stage, once the job has visibly stopped a transmission queue."""
        topic = self._places.topic(queue=queue, queue_manager=queue_manager)
        waiting = self._operator.cluster.waiting
        return self._put_until(stage, self._is_kept(topic), lambda: waiting(topic) >= _HELD)

    def put_to_disabled(self, stage: str) -> int:
        """Put the messages of a stage, once the job has visibly refused one."""
        return self._put_until(stage, self._is_refused, lambda: self._refused(stage) > 0)

    def channel(self, verb: str, queue_manager: str, channel: str) -> None:
        """``start`` or ``stop`` a channel."""
        set_channels(self._network, queue_manager, channel, is_running=verb == "start")
        self._show_command(f"channel {verb} {queue_manager} {channel}")

    def puts(self, verb: str, queue_manager: str, queue: str) -> None:
        """``enable`` or ``disable`` puts to a queue."""
        set_put_enabled(self._network, queue_manager, queue, put_enabled=verb == "enable")
        self._show_command(f"queue {verb} put {queue_manager} {queue}")

    def trigger(self, queue_manager: str) -> None:
        """Make a queue manager of MQ Everyplace pull its waiting messages."""
        trigger(self._network, queue_manager)
        self._show_command(f"trigger {queue_manager}")

    def wait_for_rest(self, *stages: str) -> None:
        """Wait until the messages of some stages are where they stay."""
        messages = [one for stage in stages for one in self._of(stage)]
        self._wait("have come to rest", messages, self._rests)

    def wait_for_kept(self, stage: str, queue_manager: str, queue: str) -> int:
        """Wait for messages on a transmission queue, or at rest; returns how many are there."""
        topic = self._places.topic(queue=queue, queue_manager=queue_manager)
        self._wait(f"are on {queue} of {queue_manager}", self._of(stage), self._is_kept(topic))
        return self._operator.cluster.waiting(topic)

    def wait_for_refused(self, stage: str) -> int:
        """Wait until messages have failed, or are at rest; returns how many have failed."""
        self._wait("were handled", self._of(stage), self._is_refused)
        return self._refused(stage)

    def wait_for_expiry(self, tenths: int) -> None:
        """Wait until messages with an expiry of ``tenths`` have expired."""
        self._operator.pause(tenths / 10)

    def _put_until(
        self,
        stage: str,
        is_handled: Callable[[Sequence[Outcome]], bool],
        is_obeyed: Callable[[], bool],
    ) -> int:
        """Put messages one by one until the job obeys a command, then the others."""
        messages = self._of(stage)
        count = 0
        while count < len(messages) and not is_obeyed():
            self._operator.put([messages[count]])
            self._wait("were handled", [messages[count]], is_handled)
            count += 1
        self._operator.put(messages[count:])
        return len(messages)

    def _wait(
        self, what: str, messages: Sequence[Message], holds: Callable[[Sequence[Outcome]], bool]
    ) -> None:
        self._operator.wait_for_outcomes(what, messages, lambda it: bool(it) and holds(it))

    def _is_kept(self, topic: str) -> Callable[[Sequence[Outcome]], bool]:
        return lambda outcomes: outcomes[-1].topic == topic or self._rests(outcomes)

    def _is_refused(self, outcomes: Sequence[Outcome]) -> bool:
        return _has_failed(outcomes) or self._rests(outcomes)

    def _rests(self, outcomes: Sequence[Outcome]) -> bool:
        return self._places.rests(outcomes[-1])

    def _refused(self, stage: str) -> int:
        outcomes = self._operator.cluster.outcomes()
        places = (self._operator.places.get(one.number, "") for one in self._of(stage))
        return sum(_has_failed(outcomes.get(place, ())) for place in places)

    def _of(self, stage: str) -> list[Message]:
        return [one for one in self._messages if one.stage == stage]

    def _show_command(self, command: str) -> None:
        self._operator.console.print(f"  [cyan]redrive {command}[/]")


def _has_failed(outcomes: Sequence[Outcome]) -> bool:
    return any(one.result == "parked" for one in outcomes)

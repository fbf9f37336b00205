"""What is done to a network while the job runs: channels stop, queues break, clients pull."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from redrive.operations.channel import set_channels, trigger
from redrive.operations.states import set_put_enabled

if TYPE_CHECKING:
    from redrive.demo.messages import Message, Outcome
    from redrive.demo.script import Operator
    from redrive.demo.scripts.places import Places
    from redrive.demo.scripts.puts import Kind
    from redrive.operations.network import Network

__all__ = ["NetworkOperator"]

_HELD: Final = 3
"""Messages that came to a stopped channel one after the other, each in a later batch: were it
running still, the first of them would be gone."""


class NetworkOperator:
    """What can be done to a network while the job runs, and seen of it.

    Nothing here waits for a time to pass: it waits for what the job is seen to have done.
    """

    def __init__(
        self, operator: Operator, network: Network, messages: Sequence[Message], places: Places
    ) -> None:
        """Take the network; nothing happens yet.

        Args:
            operator: Puts and waits.
            network: What the commands work on.
            messages: All messages of the demo.
            places: What the topics of the network are.
        """
        self._operator = operator
        self._network = network
        self._messages = messages
        self._places = places
        self._began = time.monotonic()

    # Saying

    def begin(self, title: str) -> None:
        """Say what comes next."""
        seconds = time.monotonic() - self._began
        self._operator.console.print(f"\n[bold]{title}[/]  [dim]{seconds:.0f} s[/]")

    def say(self, text: str) -> None:
        """Say what happens."""
        self._operator.console.print(f"  {text}", markup=False)

    # Doing

    def put(self, stage: str) -> int:
        """Put the messages of one stage; returns how many there are."""
        messages = self._of(stage)
        self._operator.put(messages)
        return len(messages)

    def put_to_stopped(self, stage: str, queue_manager: str, queue: str) -> int:
        """Put the messages of one stage, once the job is seen to hold a transmission queue.

        Returns:
            How many there are.
        """
        topic = self._places.topic(queue=queue, queue_manager=queue_manager)
        waiting = self._operator.cluster.waiting
        return self._put_until(stage, self._is_kept(topic), lambda: waiting(topic) >= _HELD)

    def put_to_disabled(self, stage: str) -> int:
        """Put the messages of one stage, once the job is seen to refuse one.

        Returns:
            How many there are.
        """
        return self._put_until(stage, self._is_refused, lambda: self._refused(stage) > 0)

    def set_channel(self, queue_manager: str, channel: str, *, is_running: bool) -> None:
        """Start or stop a channel."""
        set_channels(self._network, queue_manager, channel, is_running=is_running)
        self._say_command(f"channel {'start' if is_running else 'stop'} {queue_manager} {channel}")

    def set_queue(self, queue_manager: str, queue: str, *, put_enabled: bool) -> None:
        """Enable or disable puts to a queue."""
        set_put_enabled(self._network, queue_manager, queue, put_enabled=put_enabled)
        self._say_command(f"queue {'enable' if put_enabled else 'disable'} {queue_manager} {queue}")

    def trigger(self, queue_manager: str) -> None:
        """Let a queue manager of MQ Everyplace pull what waits for it now."""
        trigger(self._network, queue_manager)
        self._say_command(f"trigger {queue_manager}")

    # Seeing

    def wait_for_rest(self, *stages: str) -> None:
        """Wait until the messages of some stages are where they stay."""
        self._wait(
            "have come to rest",
            [one for stage in stages for one in self._of(stage)],
            self._rests,
        )

    def wait_for_kept(self, stage: str, queue_manager: str, queue: str) -> int:
        """Wait until messages are on a transmission queue, or at rest if it is not theirs.

        Returns:
            How many messages wait on that queue, those of other stages included.
        """
        topic = self._places.topic(queue=queue, queue_manager=queue_manager)
        self._wait(f"are on {queue} of {queue_manager}", self._of(stage), self._is_kept(topic))
        return self._operator.cluster.waiting(topic)

    def wait_for_refused(self, stage: str) -> int:
        """Wait until the messages of a stage have failed once, or are at rest.

        Returns:
            How many have failed.
        """
        self._wait("were handled", self._of(stage), self._is_refused)
        return self._refused(stage)

    def wait_for_expiry(self, kind: Kind) -> None:
        """Wait until the messages of a kind, which are put, are late."""
        self._operator.pause(kind.expiry / 10)

    def _put_until(
        self,
        stage: str,
        is_handled: Callable[[Sequence[Outcome]], bool],
        is_obeyed: Callable[[], bool],
    ) -> int:
        """Put messages one by one until the job is seen to obey a command, then the others."""
        messages = self._of(stage)
        count = 0
        while count < len(messages) and not is_obeyed():
            self._operator.put([messages[count]])
            self._wait("were handled", [messages[count]], is_handled)
            count += 1
        self._operator.put(messages[count:])
        return len(messages)

    def _wait(
        self,
        what: str,
        messages: Sequence[Message],
        holds: Callable[[Sequence[Outcome]], bool],
    ) -> None:
        places = {self._operator.places[one.number] for one in messages}

        def missing() -> list[str]:
            outcomes = self._operator.cluster.outcomes()
            return [one for one in places if not (one in outcomes and holds(outcomes[one]))]

        self._operator.wait_until(what, missing)

    def _is_kept(self, topic: str) -> Callable[[Sequence[Outcome]], bool]:
        return lambda outcomes: outcomes[-1].topic == topic or self._rests(outcomes)

    def _is_refused(self, outcomes: Sequence[Outcome]) -> bool:
        return _has_failed(outcomes) or self._rests(outcomes)

    def _rests(self, outcomes: Sequence[Outcome]) -> bool:
        return self._places.rests(outcomes[-1])

    def _refused(self, stage: str) -> int:
        """How many messages of a stage have failed so far."""
        outcomes = self._operator.cluster.outcomes()
        places = (self._operator.places.get(one.number, "") for one in self._of(stage))
        return sum(_has_failed(outcomes.get(place, ())) for place in places)

    def _of(self, stage: str) -> list[Message]:
        return [one for one in self._messages if one.stage == stage]

    def _say_command(self, command: str) -> None:
        self._operator.console.print(f"  [cyan]redrive {command}[/]")


def _has_failed(outcomes: Sequence[Outcome]) -> bool:
    return any(one.result == "parked" for one in outcomes)

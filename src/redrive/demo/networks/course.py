"""What happens in a network's demo, one thing after the other, while the job runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from redrive.errors import EnvironmentFault
from redrive.streaming.factory import topology_of
from redrive.streaming.lifecycle import JobControl, JobObserver
from redrive.topology.layout import QueueTopic, TopicRole, topics_of
from redrive.topology.states import channel_entry, queue_entry, release_entry

if TYPE_CHECKING:
    from rich.console import Console

    from redrive.configuration import JobConfiguration
    from redrive.demo.networks.cluster import NetworkCluster, Outcome, Written
    from redrive.demo.networks.puts import Put

__all__ = ["Course", "CourseRunner"]

_LOOK: Final = 0.3
"""Seconds between two looks at the broker."""
_MOMENT: Final = 2.0
"""Seconds after which the running job has surely seen a changed state."""
_PATIENCE: Final = 240.0
"""Seconds that something is waited for which has to happen."""
_MOVING: Final = frozenset({"routed", "retried", "forwarded", "dead-lettered"})
"""Results of messages that are on a topic now."""


class _EndedError(Exception):
    """The job has ended, or has to."""


class Course:
    """What a demo can do to a network, and what it can see of it.

    Every method that waits ends with the job.
    """

    def __init__(
        self,
        job: JobConfiguration,
        cluster: NetworkCluster,
        puts: Sequence[Put],
        console: Console,
    ) -> None:
        """Take the network; nothing happens yet.

        Args:
            job: The job.
            cluster: The broker.
            puts: All puts of the demo.
            console: Where to tell what happens.
        """
        self.written: dict[int, Written] = {}
        """What was put so far, by number."""
        self.ended = Event()
        """Set when it has to end."""
        self._cluster = cluster
        self._puts = puts
        self._console = console
        self._began = time.monotonic()
        self._topics = {one.topic: one for one in topics_of(topology_of(job.topology))}
        self._handled = {handler.identity.topic for handler in job.handlers}

    # Telling

    def begin(self, title: str) -> None:
        """Say what comes next."""
        seconds = time.monotonic() - self._began
        self._console.print(f"\n[bold]{title}[/]  [dim]{seconds:.0f} s[/]")

    def tell(self, text: str) -> None:
        """Say what happens."""
        self._console.print(f"  {text}", markup=False)

    # Doing

    def put(self, act: str) -> int:
        """Put the messages of one part of the demo; returns how many there are."""
        puts = self._of(act)
        self.written |= self._cluster.put(puts)
        return len(puts)

    def set_channel(self, queue_manager: str, channel: str, *, is_running: bool) -> None:
        """Stop or start a channel; the job gets a moment to see that it is stopped."""
        entry = channel_entry(queue_manager, channel, is_running=is_running)
        self._cluster.set_states(entry)
        self._tell_command(f"channel {_word(is_running)} {queue_manager} {channel}")
        if not is_running:
            self._pause()

    def set_queue(self, queue_manager: str, queue: str, *, put_enabled: bool) -> None:
        """Disable or enable puts to a queue; the job gets a moment to see that it is disabled."""
        self._cluster.set_states(
            queue_entry(queue=queue, queue_manager=queue_manager, put_enabled=put_enabled)
        )
        verb = "enable" if put_enabled else "disable"
        self._tell_command(f"queue {verb} {queue_manager} {queue}")
        if not put_enabled:
            self._pause()

    def trigger(self, queue_manager: str) -> None:
        """Set free what a queue manager of MQ Everyplace can pull now (triggerTransmission)."""
        pulled = [
            one.topic
            for one in self._topics.values()
            if one.is_pulled and one.channel[0] == queue_manager
        ]
        self._cluster.set_states(*(release_entry(*self._cluster.end(topic)) for topic in pulled))
        self._tell_command(f"trigger {queue_manager}")

    # Seeing

    def await_rest(self, *acts: str) -> None:
        """Wait until the messages of some parts of the demo are where they stay."""
        self._await(acts, lambda outcomes: self._rests(outcomes[-1]), "have come to rest")

    def await_kept(self, act: str, queue_manager: str, queue: str) -> int:
        """Wait until messages are on a transmission queue, or at rest if it is not theirs.

        Returns:
            How many messages wait on that queue, those of other parts included.
        """
        topic = self._transmission(queue_manager, queue)
        self._await(
            (act,),
            lambda outcomes: outcomes[-1].topic == topic or self._rests(outcomes[-1]),
            f"are on {queue} of {queue_manager}",
        )
        # If it were not held, it would be gone after a moment.
        self._pause()
        return len(self._cluster.waiting(topic))

    def await_parked(self, act: str) -> int:
        """Wait until the messages of a part have failed once, or are at rest.

        Returns:
            How many have failed.
        """

        def has_failed(outcomes: Sequence[Outcome]) -> bool:
            return any(one.result == "parked" for one in outcomes)

        self._await(
            (act,),
            lambda outcomes: has_failed(outcomes) or self._rests(outcomes[-1]),
            "were refused, and wait for their next attempt",
        )
        outcomes = self._cluster.outcomes()
        identities = [self.written[one.number].identity for one in self._of(act)]
        return sum(has_failed(outcomes.get(identity, ())) for identity in identities)

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        if self.ended.wait(seconds):
            raise _EndedError

    def _await(
        self, acts: Iterable[str], holds: Callable[[Sequence[Outcome]], bool], what: str
    ) -> None:
        identities = {self.written[one.number].identity for act in acts for one in self._of(act)}
        deadline = time.monotonic() + _PATIENCE
        while True:
            outcomes = self._cluster.outcomes()
            missing = [one for one in identities if not (one in outcomes and holds(outcomes[one]))]
            if not missing:
                return
            if time.monotonic() > deadline:
                raise EnvironmentFault(
                    f"{len(missing)} of {len(identities)} messages never {what}, such as"
                    f" {min(missing)}",
                    hint="--directory keeps the job's log, which may say why",
                )
            self.pause(_LOOK)

    def _rests(self, outcome: Outcome) -> bool:
        """Whether the job has nothing more to do with a message, as things are."""
        if outcome.result == "parked":
            return False
        if outcome.result not in _MOVING:
            return True
        topic = self._topics[outcome.topic]
        return topic.role is TopicRole.QUEUE and topic.topic not in self._handled

    def _transmission(self, queue_manager: str, queue: str) -> str:
        return next(one.topic for one in self._topics.values() if _is(one, queue_manager, queue))

    def _of(self, act: str) -> list[Put]:
        return [one for one in self._puts if one.act == act]

    def _pause(self) -> None:
        self.pause(_MOMENT)

    def _tell_command(self, command: str) -> None:
        self._console.print(f"  [cyan]redrive {command}[/]")


def _word(is_running: bool) -> str:  # noqa: FBT001 - a word for it
    return "start" if is_running else "stop"


def _is(topic: QueueTopic, queue_manager: str, queue: str) -> bool:
    return (topic.queue_manager, topic.queue) == (queue_manager, queue)


class CourseRunner(JobObserver):
    """Lets a course run in a thread of its own from the start of the job, and then stops it."""

    def __init__(
        self, course: Course, script: Callable[[Course], None], control: JobControl
    ) -> None:
        """Take the course.

        Args:
            course: What can be done.
            script: Does it.
            control: Stops the job afterwards.
        """
        self._course = course
        self._script = script
        self._control = control
        self._thread = Thread(target=self._run, name="course", daemon=True)
        self._failure: Exception | None = None

    def started(self, configuration: JobConfiguration) -> None:
        """Begin: the job runs."""
        del configuration
        self._thread.start()

    def end(self) -> None:
        """Let it come to its end; raises what made it fail, if anything did.

        Raises:
            EnvironmentFault: Something that has to happen did not.
        """
        self._course.ended.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._script(self._course)
        except _EndedError:
            pass
        except Exception as error:  # noqa: BLE001 - end() raises it again
            self._failure = error
        self._control.request_stop("the demo is over")

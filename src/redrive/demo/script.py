"""What a demo consists of: a script, and the operator who carries it out while the job runs."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, ClassVar, Final

from redrive.demo.progress import notice_text
from redrive.errors import EnvironmentFault
from redrive.streaming.lifecycle import JobControl, JobObserver

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from redrive.configuration import JobConfiguration
    from redrive.demo.cluster import Cluster
    from redrive.demo.environment import Environment
    from redrive.demo.messages import End, Found, Message
    from redrive.demo.reconciliation import Trace

__all__ = ["Operator", "Script", "ScriptRunner", "View"]

_LOOK: Final = 0.3
"""Seconds between two looks at the broker."""
_PATIENCE: Final = 300.0
"""Seconds without any progress after which what is waited for will never be."""


class _EndedError(Exception):
    """The job has ended, or has to."""


class Operator:
    """Puts messages and waits for what becomes of them; every wait ends with the job."""

    def __init__(self, job: JobConfiguration, cluster: Cluster, console: Console) -> None:
        """Take what it works on.

        Args:
            job: The job.
            cluster: The broker.
            console: Where to say what happens.
        """
        self.job = job
        self.cluster = cluster
        self.console = console
        self.places: dict[int, str] = {}
        """Where each message was put, by its number."""
        self.ended = Event()
        """Set when it has to end."""

    def put(self, messages: Sequence[Message]) -> None:
        """Put messages, as applications and channels do.

        Raises:
            EnvironmentFault: The broker did not take one.
        """
        places = self.cluster.put((one.topic, one.record) for one in messages)
        self.places |= {one.number: place for one, place in zip(messages, places, strict=True)}

    def pause(self, seconds: float) -> None:
        """Let time pass."""
        if self.ended.wait(seconds):
            raise _EndedError

    def wait_until(self, what: str, missing: Callable[[], Iterable[object]]) -> None:
        """Wait until nothing is missing any more.

        Args:
            what: What is waited for, as the end of a sentence: "have come to rest".
            missing: What is missing now.

        Raises:
            EnvironmentFault: Nothing has changed for a long time.
        """
        last, changed = set(missing()), time.monotonic()
        while last:
            self.pause(_LOOK)
            if (now := set(missing())) != last:
                last, changed = now, time.monotonic()
            elif time.monotonic() - changed > _PATIENCE:
                raise EnvironmentFault(
                    f"{len(now)} never {what}, such as {min(map(str, now))}: nothing has changed"
                    f" for {_PATIENCE:.0f} s",
                    hint="--directory keeps the job's log, which may say why",
                )


class View(JobObserver):
    """What shows how the job gets on; this one shows only what keeps it from its work."""

    def __init__(self, console: Console) -> None:
        """Take where to show it."""
        self._console = console

    def shown(self) -> AbstractContextManager[None]:
        """Shows it for the time of the context."""
        return nullcontext()

    def warning(self, message: str, /, **facts: object) -> None:
        """See ``JobObserver.warning``."""
        self._console.print(notice_text(message, facts), style="yellow", markup=False)


class Script(ABC):
    """What is put, what happens while the job runs, and how the result is shown."""

    counted: ClassVar[str]
    """What an input is called in the sum."""
    ends: ClassVar[Sequence[str]]
    """What becomes of messages, in the order of the sum."""
    title: str
    """What the demo is made of, in one line."""
    verdict: ClassVar[str]
    """What holds if the sum comes out."""
    messages: Sequence[Message]
    """Every message of the demo, each with its number as its index."""
    observers: Sequence[JobObserver] = ()
    """Who else hears what the job does."""

    @abstractmethod
    def write_files(self, folder: Path, bootstrap_servers: str) -> None:
        """Write the settings of the job and the files that they name.

        Args:
            folder: Where to.
            bootstrap_servers: The broker for the settings.
        """

    @abstractmethod
    def prepare(self, environment: Environment, operator: Operator) -> None:
        """Make the topics, and what is there before the job starts."""

    @abstractmethod
    def play(self, operator: Operator) -> None:
        """Do what happens while the job runs; it is stopped when this returns."""

    def view(self, console: Console) -> View:
        """What shows how the job gets on."""
        return View(console)

    @abstractmethod
    def end_of(self, found: Found) -> End:
        """What kind of an end it is to be found there."""

    @abstractmethod
    def show(self, traces: Sequence[Trace], console: Console) -> None:
        """Print what became of the messages."""

    @abstractmethod
    def document(self, traces: Sequence[Trace], ends: Mapping[str, int]) -> dict[str, Any]:
        """What became of the messages, for programs.

        Args:
            traces: Every message.
            ends: How many of them ended how.
        """


class ScriptRunner(JobObserver):
    """Lets a script play in a thread of its own from the start of the job, and then stops it."""

    def __init__(self, script: Script, operator: Operator, control: JobControl) -> None:
        """Take the script.

        Args:
            script: What happens.
            operator: Does it.
            control: Stops the job afterwards.
        """
        self._script = script
        self._operator = operator
        self._control = control
        self._thread = Thread(target=self._play, name="script", daemon=True)
        self._failure: Exception | None = None

    def started(self, configuration: JobConfiguration) -> None:
        """Begin: the job runs."""
        del configuration
        self._thread.start()

    def end(self) -> None:
        """Let the script come to its end."""
        self._operator.ended.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE)

    def check(self) -> None:
        """Raise what made the script fail, if anything did.

        Raises:
            EnvironmentFault: Something that has to happen did not.
        """
        if self._failure is not None:
            raise self._failure

    def _play(self) -> None:
        try:
            self._script.play(self._operator)
        except _EndedError:
            pass
        except Exception as error:  # noqa: BLE001 - check() raises it again
            self._failure = error
        self._control.request_stop("the demo is over")

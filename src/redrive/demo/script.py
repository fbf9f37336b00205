"""A script, and the operator that carries it out while the job runs."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.table import Table

from redrive.errors import EnvironmentFault
from redrive.streaming.lifecycle import JobControl, JobObserver

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from redrive.configuration import JobConfiguration
    from redrive.demo.cluster import Cluster
    from redrive.demo.environment import Environment
    from redrive.demo.messages import End, Found, Message, Outcome
    from redrive.demo.reconciliation import Trace

_LOOK: Final = 0.3
"""Seconds between two checks of the broker."""
_PATIENCE: Final = 300.0
"""Seconds without progress after which a wait fails."""


class _EndedError(Exception):
    """The job has ended, or must end."""


class Operator:
    """Puts messages and waits for their outcomes; every wait ends with the job."""

    def __init__(self, job: JobConfiguration, cluster: Cluster, console: Console) -> None:
        self.job = job
        self.cluster = cluster
        self.console = console
        self.places: dict[int, str] = {}
        """Where each message was put, by its number."""
        self.ended = Event()
        self.applications: list[Callable[[], object]] = []
        """Applications of the demo: each call processes the new records of one."""

    def put(self, messages: Sequence[Message]) -> None:
        """Put messages, as applications and channels do."""
        places = self.cluster.put((one.topic, one.record) for one in messages)
        self.places |= {one.number: place for one, place in zip(messages, places, strict=True)}

    def pause(self, seconds: float) -> None:
        """Wait for some seconds, or until the job ends; applications continue."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self.ended.wait(min(left, _LOOK)):
                raise _EndedError
            for process in self.applications:
                process()

    def wait_until(self, what: str, missing: Callable[[], Iterable[object]]) -> None:
        """Wait until nothing is missing; ``what`` ends the sentence: "have come to rest"."""
        last, changed = set(missing()), time.monotonic()
        while last:
            self.pause(_LOOK)
            if (now := set(missing())) != last:
                last, changed = now, time.monotonic()
            elif time.monotonic() - changed > _PATIENCE:
                raise EnvironmentFault(
                    f"{len(now)} never {what}, such as {min(map(str, now))}: nothing has changed"
                    f" for {_PATIENCE:.0f} s",
                    hint="--directory keeps the job's log, which may show the reason",
                )

    def wait_for_outcomes(
        self, what: str, messages: Sequence[Message], holds: Callable[[Sequence[Outcome]], bool]
    ) -> None:
        """Wait until a condition on the outcomes of every message holds; else as ``wait_until``."""
        places = {self.places[one.number] for one in messages}

        def missing() -> list[str]:
            outcomes = self.cluster.outcomes()
            return [one for one in places if not holds(outcomes.get(one, ()))]

        self.wait_until(what, missing)


class View(JobObserver):
    """Shows the progress of the job; this one shows only warnings."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def shown(self) -> AbstractContextManager[None]:
        """Show the view for the context."""
        return nullcontext()

    def warning(self, message: str, /, **facts: object) -> None:
        """See ``JobObserver.warning``."""
        self._console.print(notice_text(message, facts), style="yellow", markup=False)


class Script(ABC):
    """What is put, what happens while the job runs, and how to show the result."""

    counted: ClassVar[str]
    """The word for an input in the totals."""
    ends: ClassVar[Sequence[str]]
    title: str
    verdict: ClassVar[str]
    """What is true if the totals add up."""
    messages: Sequence[Message]
    """Every message of the demo, each with its number as its index."""

    @abstractmethod
    def write_files(self, folder: Path, bootstrap_servers: str) -> None:
        """Write the settings of the job and the files that they name."""

    @abstractmethod
    def prepare(self, environment: Environment, operator: Operator) -> None:
        """Create the topics, and what exists before the job starts."""

    @abstractmethod
    def play(self, operator: Operator) -> None:
        """Do what happens while the job runs; the job is stopped when this returns."""

    def view(self, console: Console) -> View:
        """The view of the job while it runs."""
        return View(console)

    @abstractmethod
    def end_of(self, found: Found) -> End | None:
        """The end of a message found here; None if it went on from here."""

    @abstractmethod
    def show(self, traces: Sequence[Trace], console: Console) -> None:
        """Print the ends of the messages."""

    @abstractmethod
    def document(self, traces: Sequence[Trace], ends: Mapping[str, int]) -> dict[str, Any]:
        """The ends of the messages for programs; ``ends`` is their number by kind of end."""


class ScriptRunner(JobObserver):
    """Plays a script in its own thread from the start of the job, and then stops the job."""

    def __init__(self, script: Script, operator: Operator, control: JobControl) -> None:
        self._script = script
        self._operator = operator
        self._control = control
        self._thread = Thread(target=self._play, name="script", daemon=True)
        self._failure: Exception | None = None

    def started(self, configuration: JobConfiguration) -> None:
        """See ``JobObserver.started``."""
        del configuration
        self._thread.start()

    def end(self) -> None:
        """Stop the script, and wait for its end."""
        self._operator.ended.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE)

    def check(self) -> None:
        """Raise the error that made the script fail, if any."""
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


def notice_text(message: str, facts: Mapping[str, object]) -> str:
    """A notice of the job in one line."""
    details = ", ".join(f"{name} {value}" for name, value in facts.items())
    return f"{message} ({details})" if details else message


def titled_table(title: str) -> Table:
    """An empty table in the style of reports."""
    return Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="dim")

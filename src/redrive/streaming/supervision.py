"""Whether the job makes progress, told to whoever watches over it.

The watch is a thread of its own that asks Kafka: as long as records wait and no committed offset
moves, nothing was done, whatever the cause. It says so in the log, in a file that status reads, and
in the end by ending the process with an exit code that makes a supervisor start it again.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from redrive.errors import ProtocolError
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import MOST_ABANDONED, abandoned_calls
from redrive.operations.supervision import (
    Activity,
    SupervisionState,
    supervision_file,
    write,
)

if TYPE_CHECKING:
    from redrive.configuration import JobConfiguration
    from redrive.messages import TopicPartition
    from redrive.streaming.lifecycle import JobControl

EXIT_STALLED: Final = 75
"""Exit code of a process that ends because it stalled (EX_TEMPFAIL): start it again."""

_STATE_AGE: Final = 2.0
"""Seconds between two writings of the state."""
_PROBE_AGE: Final = 5.0
"""Seconds between two questions whether offsets move."""
_ANSWER_TIMEOUT: Final = 5.0
"""Seconds for an answer to the watch."""
_REMINDER: Final = 60.0
"""Seconds between two warnings about one stall."""
_STOP_PATIENCE: Final = 15.0
"""Seconds that an orderly stop may take; what hangs then is left behind, and nothing is lost."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What keeps the job from its work at the moment."""

    cause: str
    step: str
    since: float
    """Seconds since the epoch."""


class Supervisor:
    """Watches one job.

    This class is responsible for: knowing since when nothing moves; the file that says so; ending
    a process that does not end, or does not move, by itself.
    """

    def __init__(
        self,
        configuration: JobConfiguration,
        control: JobControl,
        end_process: Callable[[int], None] | None,
    ) -> None:
        """Prepare the watch; ``start`` begins it.

        Args:
            configuration: The job.
            control: Is told of a stall.
            end_process: Ends this process at once with an exit code; None if whoever runs the job
                wants to live on whatever hangs.
        """
        self._configuration = configuration
        self._control = control
        self._end_process = end_process
        self._cluster = Cluster(configuration.connection, timeout=_ANSWER_TIMEOUT)
        self._lanes: tuple[TopicPartition, ...] = ()
        self._committed: Mapping[TopicPartition, int | None] = {}
        self._moved_at = time.monotonic()
        self._lagging = ""
        self._trouble: Trouble | None = None
        self._silence: Trouble | None = None
        self._waits_for = ""
        self._ledger = ""
        self._warned_at = -float("inf")
        self._stopping_since: float | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins to watch."""
        self._thread = threading.Thread(target=self._watch, name="redrive-supervisor", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ends the watch; the job has ended in order."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=_ANSWER_TIMEOUT)
        supervision_file(self._configuration).unlink(missing_ok=True)

    def watch(self, lanes: tuple[TopicPartition, ...]) -> None:
        """Takes the lanes of a run that has begun; earlier trouble is over."""
        self._lanes = lanes
        self._trouble, self._waits_for = None, ""

    def troubled(self, cause: str, step: str) -> None:
        """Notes what keeps the job from its work; it is over when ``watch`` is called."""
        since = self._trouble.since if self._trouble is not None else time.time()
        self._trouble = Trouble(cause, step, since)

    def waits_for(self, what: str) -> None:
        """Notes that somebody else has to act first: a topic has to be made. That is no stall."""
        self._waits_for = what

    def ledger_waits(self, problem: str) -> None:
        """Notes why the ledger is not written, or by an empty text that it is. That is no stall."""
        self._ledger = problem

    def _watch(self) -> None:
        probed_at = -float("inf")
        while not self._ended.wait(_STATE_AGE):
            now = time.monotonic()
            if self._control.is_stopping:
                self._check_stop(now)
            elif now - probed_at > _PROBE_AGE:
                probed_at = now
                self._probe()
                self._check_clients()
            self._tell(now)

    def _check_stop(self, now: float) -> None:
        if self._stopping_since is None:
            self._stopping_since = now
        if now - self._stopping_since > _STOP_PATIENCE and self._end_process is not None:
            self._control.warning(
                "something did not end in time and is left behind; nothing is lost",
                seconds=round(now - self._stopping_since),
            )
            self._end_process(0)

    def _check_clients(self) -> None:
        if abandoned_calls() > MOST_ABANDONED and self._end_process is not None:
            self._control.warning(
                "too many clients never came back: the process ends, to be started again",
                exit_code=EXIT_STALLED,
            )
            self._end_process(EXIT_STALLED)

    def _probe(self) -> None:
        """Asks whether committed offsets moved, and whether anything waits at all."""
        lanes = self._lanes
        try:
            committed = self._cluster.committed(self._configuration.application, lanes)
            ends = self._cluster.ends(lanes)
        except ProtocolError as fault:
            since = self._silence.since if self._silence is not None else time.time()
            self._silence = Trouble(fault.message, "asking the broker", since)
            return
        self._silence = None
        lagging = [lane for lane in lanes if (committed[lane] or 0) < ends[lane]]
        if committed != self._committed or not lagging:
            self._moved_at = time.monotonic()
        self._committed = committed
        self._lagging = str(lagging[0]) if lagging else ""

    def _tell(self, now: float) -> None:
        state = replace(self._state(now), ledger=self._ledger)
        self._control.supervised(state)
        with contextlib.suppress(OSError):  # a full disk: status finds an old file, and says so
            write(supervision_file(self._configuration), state)
        if state.state is not Activity.STALLED or state.since is None:
            self._warned_at = -float("inf")
            return
        seconds = time.time() - state.since
        if now - self._warned_at > _REMINDER:
            self._warned_at = now
            facts = {"lane": state.lane, "step": state.step, "because": state.cause}
            shown = {name: value for name, value in facts.items() if value}
            self._control.warning("stalled", seconds=round(seconds), **shown)
        limit = self._configuration.exit_after
        if limit and seconds > limit and self._end_process is not None:
            self._control.warning(
                "stalled for too long: the process ends, to be started again",
                exit_code=EXIT_STALLED,
            )
            self._end_process(EXIT_STALLED)

    def _state(self, now: float) -> SupervisionState:
        moment, pid = time.time(), os.getpid()
        if self._control.is_stopping:
            return SupervisionState(time=moment, pid=pid, state=Activity.STOPPING)
        standing = Trouble("no batch is committed", "batch", moment - (now - self._moved_at))
        known = [one for one in (self._trouble, self._silence) if one is not None]
        since = min(one.since for one in (*known, standing))
        if moment - since >= self._configuration.stalled_after:
            told = (*known, standing)[0]
            return SupervisionState(
                time=moment,
                pid=pid,
                state=Activity.STALLED,
                since=since,
                step=told.step,
                lane=self._lagging,
                cause=told.cause,
            )
        if self._waits_for:
            return SupervisionState(
                time=moment, pid=pid, state=Activity.WAITING, cause=self._waits_for
            )
        return SupervisionState(time=moment, pid=pid, state=Activity.RUNNING)


def cause_of(fault: BaseException | None, text: str) -> str:
    """Why a run ended, in one line that is never cut before its cause.

    Args:
        fault: What ended it, if it was a fault of the protocol.
        text: What Spark said; a trace of Java and Python, whose cause stands in its last lines.
    """
    if isinstance(fault, ProtocolError):
        return fault.message
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("at ", "File ", "Traceback"))]
    causes = [line for line in telling if "Error" in line or "Exception" in line or "Fault" in line]
    chosen = causes[-1:] or telling[:1] or ["it ended by itself"]
    return " ".join(chosen[0].split())

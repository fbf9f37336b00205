"""Supervision: detects whether the job makes progress.

A separate thread asks Kafka: while records wait and no committed offset moves, the job is stalled,
whatever the cause. Retries, replays and channels are watched separately: only a due message is
work, not one that waits for its time or for an operator. The watch reports a stall in the log and
in a file for ``redrive status``, and finally ends the process with an exit code that makes a
supervisor restart it.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from redrive.checkpoints.held import (
    HeldChannel,
    HeldInstructions,
    HeldPartition,
    HeldPartitions,
    Parked,
    TransmissionQueue,
)
from redrive.checkpoints.states import StatesFollower
from redrive.configuration import JobConfiguration
from redrive.diagnostics import Severity
from redrive.engine.commands import NO_STATES
from redrive.errors import (
    EXIT_STALLED,
    ConfigurationError,
    ProtocolError,
    RedriveError,
    RestartRequired,
)
from redrive.kafka.cluster import Cluster, next_offsets
from redrive.kafka.deadline import MOST_ABANDONED, ONE_TRY, abandoned_calls, pause_after
from redrive.messages import TopicPartition
from redrive.operations.supervision import (
    HIDDEN_TOO_LONG,
    Activity,
    HiddenRecords,
    SupervisionState,
    hidden_records,
    supervision_file,
    write,
)
from redrive.streaming.lifecycle import JobControl, JobObserver
from redrive.streaming.start import Start
from redrive.streaming.workers import MOST_STOPPED, StoppedWorkers

_STATE_AGE: Final = 2.0
"""Seconds between two writes of the state."""
_PROBE_AGE: Final = 5.0
"""Seconds between two checks whether offsets move."""
_ASK_AGE: Final = 60.0
"""Seconds between two questions for the producers of open transactions."""
_HIDDEN_REMINDER: Final = 600.0
"""Seconds between two warnings about one open transaction."""
_REMINDER: Final = 60.0
"""Seconds between two warnings about one stall."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """The current problem that blocks the job."""

    cause: str
    step: str
    since: float
    """Seconds since the epoch."""


@dataclass(slots=True)
class _Work:
    """Lanes that are watched together: if one moves, all of them can."""

    cause: str
    """The problem if none moves."""
    moved_at: float
    lanes: list[TopicPartition] = field(default_factory=list)
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    lagging: str = ""
    """A lane with work; empty for none."""


class _Progress:
    """The work of one run, and since when it has made no progress."""

    def __init__(
        self, configuration: JobConfiguration, cluster: Cluster, start: Start, before: list[_Work]
    ) -> None:
        self.start = start
        self._group = configuration.application
        self._cluster = cluster
        rate = configuration.reevaluation_rate
        self._held = HeldPartitions(start.held, cluster, start.clock, rate=rate)
        follows = any(held.follows_states for held in start.held)
        self._follower = StatesFollower(cluster, configuration.application) if follows else None
        self.hidden: dict[TopicPartition, HiddenRecords] = {}
        """What open transactions hide, by the last look."""
        self._stable: Mapping[TopicPartition, int] = {}
        self._asked_at = -_ASK_AGE
        causes = {
            **dict.fromkeys(start.positions, "no batch is committed"),
            **{held.lane: _cause_of(held) for held in start.held},
        }
        known = {work.cause: work for work in before}
        self.work = [
            known.get(cause) or _Work(cause, time.monotonic())
            for cause in dict.fromkeys(causes.values())
        ]
        for work in self.work:
            work.lanes = [lane for lane, cause in causes.items() if cause == work.cause]

    def close(self) -> None:
        if self._follower is not None:
            self._follower.close()

    def look(self) -> None:
        """Asks for work and moved offsets; ``TransientFault`` without an answer."""
        every = self.start.every_position
        committed = self._cluster.committed(self._group, every)
        at = {lane: committed[lane] or begin for lane, begin in every.items()}
        ends = self._cluster.ends(every)
        self._look_behind(ends)
        states = NO_STATES if self._follower is None else self._follower.states()
        held = {partition.lane: at[partition.lane] for partition in self.start.held}
        free = {**ends, **self._held.free(held, ends, states)}
        for work in self.work:
            lagging = [lane for lane in work.lanes if at[lane] < free[lane]]
            moved = {lane: at[lane] for lane in work.lanes}
            is_still = bool(lagging) and moved == work.committed
            if is_still:
                # Only transaction markers, and what compaction removed, may be left. At every look:
                # a lane without a record is no stall at any moment.
                starts = {lane: at[lane] for lane in lagging}
                records = next_offsets(self._cluster, starts, free, seconds=ONE_TRY)
                lagging = [lane for lane in lagging if records[lane] < free[lane]]
            if not is_still or not lagging:
                work.moved_at = time.monotonic()
            work.committed, work.lagging = moved, str(lagging[0]) if lagging else ""

    def _look_behind(self, stable: Mapping[TopicPartition, int]) -> None:
        """Notes what lies behind the last stable offsets, and who hides it once that lasts."""
        written = self._cluster.ends(stable, committed_only=False)
        now = time.time()
        before, self.hidden = self.hidden, {}
        for lane, end in written.items():
            records = end - stable[lane]
            known = before.get(lane) if stable[lane] == self._stable.get(lane) else None
            if records > 0:
                self.hidden[lane] = (
                    HiddenRecords(
                        topic=lane.topic, partition=lane.partition, records=records, since=now
                    )
                    if known is None
                    else replace(known, records=records)
                )
        self._stable = stable
        lasting = {
            lane: transaction.records
            for lane, transaction in self.hidden.items()
            if now - transaction.since >= HIDDEN_TOO_LONG / 2 and not transaction.transactional_id
        }
        if lasting and time.monotonic() - self._asked_at >= _ASK_AGE:
            self._asked_at = time.monotonic()
            for transaction in hidden_records(self._cluster.connection, lasting, (), now):
                lane = TopicPartition(transaction.topic, transaction.partition)
                since = min(transaction.since, self.hidden[lane].since)
                self.hidden[lane] = replace(transaction, since=since)

    def longest_stalled(self) -> _Work | None:
        """The lanes stalled longest; None if there is no work."""
        return min(self.work, key=lambda work: work.moved_at, default=None)


def _cause_of(held: HeldPartition) -> str:
    match held:
        case TransmissionQueue() | Parked(channel=HeldChannel()):
            return "no channel moves a message"
        case HeldInstructions():
            return "no replay is carried out"
        case Parked():
            return "no due retry is handled"
    return "no released message is handled"


class Supervisor(JobObserver):
    """Watches one job.

    This class tracks since when nothing moves, writes the state file, and ends a stalled process.
    ``lifecycle.EndDeadline`` ends a process that hangs at its end.
    """

    def __init__(
        self,
        configuration: JobConfiguration,
        control: JobControl,
        end_process: Callable[[int], None] | None,
        *,
        ends_workers: bool = True,
    ) -> None:
        """Prepare the watch; ``start`` begins it.

        Args:
            configuration: The job.
            control: Gets reports.
            end_process: Ends this process at once with an exit code; None if the caller of the job
                must survive a hang.
            ends_workers: Whether to end Spark's Python processes that stand still; not in a session
                that others use.
        """
        self._configuration = configuration
        self._control = control
        control.add_observer(self)
        self._end_process = end_process
        self._cluster = Cluster(configuration.connection, timeout=ONE_TRY)
        self._start: Start | None = None
        self._progress: _Progress | None = None
        self._trouble: Trouble | None = None
        self._silence: Trouble | None = None
        self.noted = SupervisionState(time=time.time(), pid=os.getpid(), state=Activity.RUNNING)
        """What the job's own thread knows; only that thread replaces it."""
        self._warned_at = -float("inf")
        self._stopped_workers = StoppedWorkers(self._report_ended_worker) if ends_workers else None
        self._hidden_warned: dict[TopicPartition, float] = {}
        self._ended = threading.Event()
        self._threads = (
            threading.Thread(target=self._watch, name="redrive-supervisor", daemon=True),
            threading.Thread(target=self._watch_progress, name="redrive-progress", daemon=True),
        )

    def start(self) -> None:
        """Begins to watch."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Ends the watch; the job has ended normally."""
        self._ended.set()
        deadline = time.monotonic() + ONE_TRY
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=max(0.0, deadline - time.monotonic()))
        supervision_file(self._configuration).unlink(missing_ok=True)

    def watch(self, start: Start) -> None:
        """Watches the lanes of a run that starts; earlier problems are over."""
        self._start, self._trouble = start, None
        stopped = {topic: stopped_topic.problem for topic, stopped_topic in start.stopped.items()}
        self.noted = replace(self.noted, state=Activity.RUNNING, cause="", stopped=stopped)

    def troubled(self, cause: str, step: str) -> None:
        """Notes a problem that blocks the job until ``watch`` is called."""
        since = self._trouble.since if self._trouble is not None else time.time()
        self._trouble = Trouble(cause, step, since)

    def waits_for(self, what: str) -> None:
        """Notes that the job waits for something, such as a missing topic. That is not a stall."""
        state = Activity.WAITING if what else Activity.RUNNING
        self.noted = replace(self.noted, state=state, cause=what)

    def stands_by(self) -> None:
        """Notes that other instances have all of the work, until ``watch`` is called."""
        self._start, self._trouble = None, None
        cause = "other instances have every partition"
        self.noted = replace(self.noted, state=Activity.STANDBY, cause=cause, stopped={})

    def restarted(self, configuration: JobConfiguration, *, is_new_run: bool) -> None:
        """Forget an earlier refusal."""
        del configuration, is_new_run
        self.noted = replace(self.noted, refused="")

    def restart_refused(self, error: RedriveError) -> None:
        """Report why changed settings were refused."""
        findings = error.diagnostics if isinstance(error, ConfigurationError) else ()
        first = next((finding for finding in findings if finding.severity is Severity.ERROR), None)
        refused = error.message if first is None else f"{first}: {first.message}"
        self.noted = replace(self.noted, refused=refused)

    def _watch(self) -> None:
        while not self._ended.wait(_STATE_AGE):
            if not self._control.is_stopping and abandoned_calls() > MOST_ABANDONED:
                self._end_stalled(
                    "too many clients do not return: the process ends and must be restarted"
                )
            if self._stopped_workers is not None:
                self._stopped_workers.look(time.monotonic())
            self._report(time.monotonic())

    def _report_ended_worker(self, pid: int) -> None:
        self._control.warning(
            "a process of Spark stood still and was ended; a new run continues",
            pid=pid,
            seconds=round(MOST_STOPPED),
        )

    def _end_stalled(self, message: str) -> None:
        if self._end_process is not None:
            self._control.warning(message, exit_code=EXIT_STALLED)
            self._control.fatal_error = RestartRequired(message, hint="nothing is lost")
            self._end_process(EXIT_STALLED)

    def _watch_progress(self) -> None:
        """Asks Kafka in another thread, so that a late answer does not delay a stop.

        The clients belong to this thread, so it closes them, however late it ends.
        """
        pause = _PROBE_AGE
        while not self._ended.wait(pause):
            before = time.thread_time()
            if not self._control.is_stopping:
                self._probe()
            pause = pause_after(time.thread_time() - before, _PROBE_AGE)
        if self._progress is not None:
            self._progress.close()
        self._cluster.close()

    def _probe(self) -> None:
        progress = self._progress_of_run()
        if progress is None:
            return
        try:
            progress.look()
        except ProtocolError as fault:
            since = self._silence.since if self._silence is not None else time.time()
            self._silence = Trouble(fault.message, "asking the broker", since)
        else:
            self._silence = None

    def _progress_of_run(self) -> _Progress | None:
        start, known = self._start, self._progress
        if known is not None and known.start is not start:
            known.close()
            self._progress = None
        if start is not None and self._progress is None:
            before = [] if known is None else known.work
            self._progress = _Progress(self._configuration, self._cluster, start, before)
        return self._progress

    def _report(self, now: float) -> None:
        state = replace(self._state(now), hidden=self._hidden())
        self._warn_of_hidden(state.hidden, now)
        self._control.supervised(state)
        with contextlib.suppress(OSError):  # a full disk: status reports an old file
            write(supervision_file(self._configuration), state)
        if state.state is not Activity.STALLED or state.since is None:
            self._warned_at = -float("inf")
            return
        seconds = time.time() - state.since
        if now - self._warned_at > _REMINDER:
            self._warned_at = now
            facts = {"lane": state.lane, "step": state.step, "because": state.cause}
            known = {name: value for name, value in facts.items() if value}
            self._control.warning("stalled", seconds=round(seconds), **known)
        limit = self._configuration.exit_after
        if limit and seconds > limit:
            self._end_stalled("stalled for too long: the process ends and must be restarted")

    def _hidden(self) -> tuple[HiddenRecords, ...]:
        if self._progress is None:
            return ()
        every, now = self._progress.hidden, time.time()
        return tuple(transaction for transaction in every.values() if not transaction.is_brief(now))

    def _warn_of_hidden(self, hidden: Iterable[HiddenRecords], now: float) -> None:
        lasting = {
            TopicPartition(transaction.topic, transaction.partition): transaction
            for transaction in hidden
            if transaction.is_problem(time.time())
        }
        for lane in self._hidden_warned.keys() - lasting.keys():
            del self._hidden_warned[lane]
            self._control.notice("the open transaction has ended", lane=str(lane))
        for lane, transaction in lasting.items():
            if now - self._hidden_warned.get(lane, -float("inf")) >= _HIDDEN_REMINDER:
                self._hidden_warned[lane] = now
                self._control.warning(
                    "an open transaction hides records, which nobody can read until it ends",
                    lane=str(lane),
                    records=transaction.records,
                    seconds=round(time.time() - transaction.since),
                    hint=transaction.owner,
                )

    def _state(self, now: float) -> SupervisionState:
        moment = time.time()
        noted = replace(self.noted, time=moment)
        if self._control.is_stopping:
            return replace(noted, state=Activity.STOPPING, cause="")
        work = None if self._progress is None else self._progress.longest_stalled()
        known = [trouble for trouble in (self._trouble, self._silence) if trouble is not None]
        if work is not None:
            known.append(Trouble(work.cause, "batch", moment - (now - work.moved_at)))
        since = min((trouble.since for trouble in known), default=moment)
        if moment - since >= self._configuration.stalled_after:
            return replace(
                noted,
                state=Activity.STALLED,
                since=since,
                step=known[0].step,
                lane="" if work is None else work.lagging,
                cause=known[0].cause,
            )
        return noted


def cause_of(text: str) -> str:
    """The cause in Spark's message, in one line that is never cut before it.

    Args:
        text: A trace of Java and Python with the cause in its last lines.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    messages = [line for line in lines if not line.startswith(("at ", "File ", "Traceback"))]
    causes = [line for line in messages if re.search("Error|Exception|Fault", line)]
    chosen = causes[-1:] or messages[:1] or ["no error was given"]
    return " ".join(chosen[0].split())

"""What a job does, as metrics, and its health."""

from __future__ import annotations

import time
from typing import NamedTuple

import redrive
from redrive.configuration import JobConfiguration
from redrive.errors import RedriveError
from redrive.masking import NO_MASK, Mask
from redrive.observe.metrics import JobMetrics
from redrive.operations.supervision import Activity, SupervisionState, problem_of
from redrive.streaming.emission import Emitted
from redrive.streaming.lifecycle import BatchSummary, JobObserver


class Health(NamedTuple):
    """The health of a job by its checks."""

    is_well: bool
    """Whether it makes progress, has nothing to do, or waits for others."""
    is_live: bool
    """Whether it may recover by itself. False once its watch is silent, which also ends a job that
    stalled for too long; an unreachable broker does not silence it."""
    is_ready: bool
    """Whether it handles dead letters, or would if there were any."""
    state: str
    """What it is doing; ``starting`` before its first report."""
    message: str
    """What is wrong, or what it waits for; empty if it just runs."""


class MetricsObserver(JobObserver):
    """Keeps the metrics of a job, and its last state."""

    def __init__(self, configuration: JobConfiguration, mask: Mask = NO_MASK) -> None:
        self._mask = mask
        self.metrics = JobMetrics(
            version=redrive.__version__,
            application=configuration.application,
            instance=configuration.instance,
        )
        self.metrics.state.stalled.set_function(self._stalled)
        self._state: SupervisionState | None = None

    def batch(self, summary: BatchSummary) -> None:
        """Measure how long a committed batch took."""
        self.metrics.emission.batches.labels(summary.emitter.value).observe(summary.seconds)

    def emitted(self, emitted: Emitted) -> None:
        """Count what was committed or tried."""
        self.metrics.inputs.count(emitted, self._mask)
        self.metrics.emission.count(emitted.figures)

    def run_began(self, epoch: int) -> None:
        """Show the number of the run."""
        self.metrics.state.epoch.set(epoch)

    def restarted(self, configuration: JobConfiguration, *, is_new_run: bool) -> None:
        """Show that the job continues with new settings."""
        del configuration, is_new_run
        self.metrics.state.restarted.set(1)

    def restart_refused(self, error: RedriveError) -> None:
        """Show that the job kept its old settings."""
        del error
        self.metrics.state.restarted.set(0)

    def rates(self, arriving: float, processed: float) -> None:
        """Show Spark's rates over its last batches."""
        self.metrics.emission.arriving.set(arriving)
        self.metrics.emission.processed.set(processed)

    def supervised(self, state: SupervisionState) -> None:
        """Show the state of the job."""
        before, self._state = self._state, state.masked(self._mask)
        is_new = before is None or before.state != state.state
        self.metrics.state.show(state, is_new=is_new)

    @property
    def health(self) -> Health:
        """The job's current health, by the rule of ``redrive status --check``.

        A job that waits for a topic or is stopping is healthy; one without a report for a minute is
        not.
        """
        state, now = self._state, time.time()
        if state is None:
            return Health(
                is_well=False,
                is_live=True,
                is_ready=False,
                state="starting",
                message="the job has not started yet",
            )
        problem = problem_of(state, (str(state.pid),), now)
        message = problem or ("" if state.state is Activity.RUNNING else state.describe(now))
        return Health(
            is_well=not problem,
            is_live=not state.is_dead(now),
            is_ready=not problem and state.state in {Activity.RUNNING, Activity.STANDBY},
            state=state.state.value,
            message=message,
        )

    def _stalled(self) -> float:
        state = self._state
        if state is None or state.state is not Activity.STALLED or state.since is None:
            return 0.0
        return time.time() - state.since

"""Wait for the completion of a replay, by the running job or one run for the purpose."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from typing import Final

import click

from redrive.checkpoints.instances import Share
from redrive.command.output import ShowProgress, progress_bar
from redrive.configuration import JobConfiguration
from redrive.errors import AlreadyRunningError, TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import CLOSE
from redrive.operations.process import PidFile, check_directory, handling_signals
from redrive.operations.replay.progress import ReplayStatus, statuses
from redrive.streaming.lifecycle import JobControl

__all__ = ["runs", "wait_for_completion"]

_LOOK: Final = 0.5
"""Seconds between two checks of the progress."""
_WITHOUT_JOB: Final = 30.0
"""Seconds without any instance after which a job counts as ended: a supervisor takes some."""


def runs(cluster: Cluster, job: JobConfiguration) -> bool:
    """Whether an instance of the job runs.

    Raises:
        TransientFault: The broker does not know.
    """
    members = cluster.instances(job.application)
    if members is None:
        raise TransientFault("the broker does not report whether the job runs")
    return bool(members)


def wait_for_completion(cluster: Cluster, job: JobConfiguration, plan: str) -> ReplayStatus:
    """Waits until a replay is done; without a running job one is run for it, and ended.

    Args:
        cluster: The cluster.
        job: The job.
        plan: The id of an accepted plan.

    Raises:
        EnvironmentFault: No job can be run here.
        TransientFault: The broker gave no answer in time.
    """
    with progress_bar("replaying") as show:
        while not _is_done(cluster, job, plan, show):
            if runs(cluster, job) and _watch(cluster, job, plan, show):
                break
            click.echo("No job runs: one is run for this replay, and for nothing else.", err=True)
            try:
                _run(cluster, job, plan, show)
                break
            except AlreadyRunningError:
                continue  # somebody started it at this moment
    return _status(cluster, job, plan)


def _status(cluster: Cluster, job: JobConfiguration, plan: str) -> ReplayStatus:
    [status] = statuses(job, cluster, plan=plan)
    return status


def _watch(cluster: Cluster, job: JobConfiguration, plan: str, show: ShowProgress) -> bool:
    """Waits for the running job; False if it has ended before the replay was done."""
    seen = time.monotonic()
    while not _is_done(cluster, job, plan, show):
        if cluster.instances(job.application) != ():
            seen = time.monotonic()
        if time.monotonic() - seen > _WITHOUT_JOB:
            return False
        time.sleep(_LOOK)
    return True


def _is_done(cluster: Cluster, job: JobConfiguration, plan: str, show: ShowProgress) -> bool:
    try:
        status = _status(cluster, job, plan)
    except TransientFault:
        return False  # a broker that is restarted
    show(max(0, status.replay.instructed - status.waiting), status.replay.instructed)
    return status.is_done


def _run(cluster: Cluster, job: JobConfiguration, plan: str, show: ShowProgress) -> None:
    from redrive.streaming.job import run  # noqa: PLC0415 - Spark takes its time to import

    job = replace(job, only_replays=True, share=Share(1, 1))
    check_directory(job.directory)
    control, over = JobControl(), threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK):
            if _is_done(cluster, job, plan, show):
                control.request_stop("the replay is done")
                return

    watcher = threading.Thread(target=watch, name="redrive-replay", daemon=True)
    with PidFile.held(job), handling_signals(control.request_stop, None):
        watcher.start()
        try:
            run(job, control, end_process=os._exit)
        finally:
            over.set()
            watcher.join(timeout=CLOSE)

"""Seeing a replay through: the running job carries it out, or one that is run for the purpose."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from redrive.checkpoints.instances import Share
from redrive.configuration import JobConfiguration
from redrive.errors import AlreadyRunningError, TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import CLOSE
from redrive.operations.process import PidFile, check_directory, handling_signals
from redrive.operations.replay.progress import ReplayStatus, statuses
from redrive.streaming.lifecycle import JobControl

__all__ = ["progress_bar", "runs", "see_through"]

_LOOK: Final = 0.5
"""Seconds between two looks at how far it is."""
_WITHOUT_JOB: Final = 30.0
"""Seconds without any instance after which a job counts as ended: a supervisor takes some."""
_SAID: Final = 10.0
"""Seconds between two lines where there is no terminal for a bar."""

Told = Callable[[int, int], None]
"""Takes what is done and what there is to do."""


def runs(cluster: Cluster, job: JobConfiguration) -> bool:
    """Whether an instance of the job runs.

    Raises:
        TransientFault: The broker can't tell.
    """
    members = cluster.instances(job.application)
    if members is None:
        raise TransientFault("the broker does not tell whether the job runs")
    return bool(members)


def see_through(cluster: Cluster, job: JobConfiguration, plan: str) -> ReplayStatus:
    """Waits until a replay is done; without a running job one is run for it, and ended.

    Args:
        cluster: The cluster.
        job: The job.
        plan: The id of an accepted plan.

    Raises:
        EnvironmentFault: No job can be run here.
        TransientFault: The broker gave no answer in time.
    """
    with progress_bar("replaying") as told:
        while not _is_done(cluster, job, plan, told):
            if runs(cluster, job) and _watch(cluster, job, plan, told):
                break
            click.echo("No job runs: one is run for this replay, and for nothing else.", err=True)
            try:
                _run(cluster, job, plan, told)
                break
            except AlreadyRunningError:
                continue  # somebody started it at this moment
    return _status(cluster, job, plan)


def _status(cluster: Cluster, job: JobConfiguration, plan: str) -> ReplayStatus:
    [status] = statuses(job, cluster, plan=plan)
    return status


def _watch(cluster: Cluster, job: JobConfiguration, plan: str, told: Told) -> bool:
    """Waits for the running job; False if it has ended before the replay was done."""
    seen = time.monotonic()
    while not _is_done(cluster, job, plan, told):
        if cluster.instances(job.application) != ():
            seen = time.monotonic()
        if time.monotonic() - seen > _WITHOUT_JOB:
            return False
        time.sleep(_LOOK)
    return True


def _is_done(cluster: Cluster, job: JobConfiguration, plan: str, told: Told) -> bool:
    try:
        status = _status(cluster, job, plan)
    except TransientFault:
        return False  # a broker that is restarted
    told(max(0, status.replay.instructed - status.waiting), status.replay.instructed)
    return status.is_done


def _run(cluster: Cluster, job: JobConfiguration, plan: str, told: Told) -> None:
    from redrive.streaming.job import run  # noqa: PLC0415 - Spark takes its time to import

    job = replace(job, only_replays=True, share=Share(1, 1))
    check_directory(job.directory)
    control, over = JobControl(), threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK):
            if _is_done(cluster, job, plan, told):
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


@contextmanager
def progress_bar(what: str) -> Iterator[Told]:
    """Shows on standard error how far something is.

    Args:
        what: What is done.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(what)
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _lines(what: str) -> Told:
    last = time.monotonic()

    def told(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > _SAID:
            last = time.monotonic()
            click.echo(f"{what}: {done} of {total}", err=True)

    return told

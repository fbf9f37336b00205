"""Plans of replays: make and apply them, and wait until the job has carried them out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import click

from redrive.checkpoints.instances import Share
from redrive.command.opening import count_quarantined, notes_about_quarantined
from redrive.command.output import ShowProgress, ask, print_json, print_notes, progress_bar
from redrive.command.replay_view import question, show_plan, show_status
from redrive.command.run import end_process
from redrive.configuration import JobConfiguration
from redrive.engine.edits import Content, Edit
from redrive.errors import (
    AlreadyRunningError,
    NotFoundError,
    RedriveError,
    TransientFault,
    UsageError,
)
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import CLOSE
from redrive.kafka.facts import ClusterFacts
from redrive.operations.durations import clock
from redrive.operations.network import open_cluster
from redrive.operations.process import PidFile, check_directory, handling_signals, this_user
from redrive.operations.replay.applying import accept
from redrive.operations.replay.plan import Order, ReplayPlan
from redrive.operations.replay.planning import Planner
from redrive.operations.replay.progress import ReplayStatus, statuses
from redrive.operations.states import read_control, read_states
from redrive.outcomes.history import Archive, NotFound
from redrive.outcomes.inventory import Inventory, Selection, State
from redrive.settings import Settings
from redrive.streaming.lifecycle import JobControl

_ABOUT_OTHERS: Final = {
    State.PARKED: "parked messages are retried automatically; `redrive parked now` retries"
    " them at once, `redrive parked cancel` ends their retries",
    State.REMAINING: "use `redrive replay` or `redrive discard` for remaining messages",
    State.QUARANTINED: "use `redrive replay` or `redrive discard` for quarantined messages",
}
_ABOUT_FINAL: Final = (
    "messages that were put or discarded are no longer Redrive's; `redrive ls` lists"
    " them, and `redrive show ID` shows one while its topic keeps it"
)
_LOOK: Final = 0.5
"""Seconds between two checks of the progress."""
_WITHOUT_JOB: Final = 30.0
"""Seconds without any instance after which a job counts as ended; a supervised restart is faster.
"""


def planned(
    settings: Settings,
    selection: Selection,
    order: Order,
    limit: int | None,
    *,
    editor: Callable[[Content], Edit] | None = None,
) -> ReplayPlan:
    """A plan for the selected messages that remain, or are parked.

    ``editor`` edits the content of the only message.

    Raises:
        UsageError: The command does not act on messages in the selected state.
    """
    is_about_parked = order.to.is_about_parked
    state = State.PARKED if is_about_parked else State.REMAINING
    possible = {State.OPEN, state} if is_about_parked else {State.OPEN, state, State.QUARANTINED}
    if selection.state not in possible:
        raise UsageError(
            f"--status {selection.state} is not for this command, which takes {state} messages",
            hint=_ABOUT_OTHERS.get(selection.state, _ABOUT_FINAL),
        )
    if selection.state is State.OPEN:
        selection = replace(selection, state=state)
    job = settings.job
    with open_cluster(job.connection) as cluster:
        inventory, notes = Archive(job).inventory(mask=settings.mask)
        with inventory:
            rows = inventory.places(selection, limit=limit)
            quarantined = count_quarantined(inventory, selection)
            notes = (*notes, *notes_about_quarantined(quarantined))
            if not rows:
                notes = (*notes, *_other_state_note(inventory, selection))
        planner = Planner(
            job,
            cluster,
            ClusterFacts(cluster).answers,
            entries=read_control(job, cluster) if rows else {},
            states=read_states(job, cluster),
        )
        if editor is not None and rows:
            order = replace(order, edit=editor(planner.preview.content(rows[0], order)))
        return planner.plan(rows, order, notes=notes, mask=settings.mask).masked(settings.mask)


def _other_state_note(inventory: Inventory, selection: Selection) -> Iterator[str]:
    """A note if messages match the selection in the other state: parked or remaining."""
    is_about_parked = selection.state is State.PARKED
    other = State.REMAINING if is_about_parked else State.PARKED
    if inventory.places(replace(selection, state=other), limit=1):
        verb = "`redrive replay`" if is_about_parked else "`redrive parked`"
        where = "remain" if is_about_parked else "are parked"
        yield f"messages that {where} match: use {verb} for those"


def planned_message(
    settings: Settings,
    selection: Selection,
    order: Order,
    editor: Callable[[Content], Edit] | None = None,
) -> ReplayPlan:
    """A plan for one message, with a note if there is nothing to do; or ``NotFoundError``."""
    found = planned(settings, selection, order, None, editor=editor)
    if found.count:
        return found
    answer = Archive(settings.job).history(selection.message)
    if isinstance(answer, NotFound):
        raise NotFoundError(answer.reason, hint=answer.hint)
    last = answer.last
    known = f"the last outcome of {answer.message} is {last['result']!r}, {clock(last['time'])} UTC"
    note = f"{known}; redrive history {answer.message} shows more"
    return replace(found, notes=[*found.notes, note])


def plan_and_apply(
    job: JobConfiguration, found: ReplayPlan, purpose: str, *, mq: bool, yes: bool, as_json: bool
) -> None:
    """Show a plan, ask, and apply it; errors as for ``accept``."""
    if not as_json:
        show_plan(found, mq=mq)
    if found.count:
        apply_plan(job, found, purpose, wait=True, yes=yes, as_json=as_json)
    elif as_json:
        print_json(found.document())


def output_plan(found: ReplayPlan, output: Path | None, *, mq: bool, as_json: bool) -> None:
    """Print a plan, and write it to ``output`` if that is named and the plan is not empty."""
    if output is not None and found.count:
        found.write(output)
    if as_json:
        print_json(found.document())
        return
    show_plan(found, mq=mq)
    if output is not None and found.count:
        click.echo(
            f"written to {output}; apply it by `redrive replay apply {output} --because ...`"
        )


def apply_plan(
    job: JobConfiguration, found: ReplayPlan, purpose: str, *, wait: bool, yes: bool, as_json: bool
) -> None:
    """Ask, hand a plan to the job, and wait for it if asked to; errors as for ``accept``."""
    ask(question(found), yes=yes)
    with open_cluster(job.connection) as cluster:
        with progress_bar("instructing") as show:
            accepted = accept(
                job,
                cluster,
                found,
                operator=this_user(),
                purpose=purpose,
                written=lambda done: show(done, found.count),
            )
        if not accepted.cancelled_by and (wait or not runs(cluster, job)):
            wait_for_completion(cluster, job, found.plan)
        status_now = status_with_results(job, cluster, found.plan)
    print_json(status_now.document()) if as_json else show_status(status_now)
    if by := status_now.replay.cancelled_by:
        raise RedriveError(
            f"the plan {found.plan} was cancelled by {by}",
            hint="make another plan for the rest",
        )


def status_with_results(job: JobConfiguration, cluster: Cluster, plan_id: str) -> ReplayStatus:
    """The progress of a replay, with the results of its messages."""
    [found] = statuses(job, cluster, plan=plan_id, results=partial(results_of_replays, job))
    return found


def results_of_replays(job: JobConfiguration) -> dict[str, dict[str, int]]:
    """How many messages of each replay had which result, as far as can be read."""
    inventory, notes = Archive(job).inventory()
    print_notes(notes)
    with inventory:
        return inventory.replayed()


def runs(cluster: Cluster, job: JobConfiguration) -> bool:
    """Whether an instance of the job runs; raises ``TransientFault`` if that is unknown."""
    members = cluster.instances(job.application)
    if members is None:
        raise TransientFault("the broker does not report whether the job runs")
    return bool(members)


def wait_for_completion(cluster: Cluster, job: JobConfiguration, plan: str) -> None:
    """Wait until a replay is done; without a running job, run one for it and end it."""
    with progress_bar("replaying") as show:
        while not _is_done(cluster, job, plan, show):
            if runs(cluster, job) and _watch(cluster, job, plan, show):
                break
            click.echo("No job is running: starting one for this replay only.", err=True)
            try:
                _run(cluster, job, plan, show)
                break
            except AlreadyRunningError:
                continue  # a job was started meanwhile


def _watch(cluster: Cluster, job: JobConfiguration, plan: str, show: ShowProgress) -> bool:
    """Wait for the running job; False if it ended before the replay was done."""
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
        [status] = statuses(job, cluster, plan=plan)
    except TransientFault:
        return False  # a restarting broker
    show(max(0, status.replay.instructed - status.waiting), status.replay.instructed)
    return status.is_done


def _run(cluster: Cluster, job: JobConfiguration, plan: str, show: ShowProgress) -> None:
    from redrive.streaming.job import run  # noqa: PLC0415 - Spark takes its time to import

    job = replace(job, only_replays=True, share=Share(1, 1), rebalances=False)
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
            run(job, control, end_process=partial(end_process, control))
        finally:
            over.set()
            watcher.join(timeout=CLOSE)

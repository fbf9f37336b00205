"""Plans of replays: make, show and apply them, and wait until the job has carried them out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.text import Text

from redrive.checkpoints.instances import Share
from redrive.command.opening import choose_by_body, count_quarantined, notes_about_quarantined
from redrive.command.output import (
    ShowProgress,
    ask,
    console,
    print_json,
    print_notes,
    print_table,
    progress_bar,
)
from redrive.command.run import end_process
from redrive.configuration import JobConfiguration
from redrive.engine.commands import Replay, To
from redrive.engine.edits import Content, Edit
from redrive.engine.outcome import Result
from redrive.errors import AlreadyRunningError, RedriveError, TransientFault, UsageError
from redrive.kafka.cluster import Cluster
from redrive.kafka.deadline import CLOSE
from redrive.kafka.facts import ClusterFacts
from redrive.operations.durations import clock, duration
from redrive.operations.network import open_cluster
from redrive.operations.process import PidFile, check_directory, handling_signals, this_user
from redrive.operations.replay.applying import accept
from redrive.operations.replay.plan import Change, Plan
from redrive.operations.replay.planning import Planner
from redrive.operations.replay.progress import ReplayStatus, statuses
from redrive.operations.states import read_control, read_states
from redrive.outcomes.history import Archive
from redrive.outcomes.inventory import Inventory, Selection, State
from redrive.printable import counted, printable
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
    " them, `redrive show ID` shows one; `redrive replay` takes discarded ones"
)
_LOOK: Final = 0.5
"""Seconds between two checks of the progress."""
_WITHOUT_JOB: Final = 30.0
"""Seconds without any instance after which a job counts as ended; a supervised restart is faster.
"""
_UNITS = ("bytes", "KB", "MB", "GB", "TB")
_STEP = 1000
_MOST_WARNINGS = 20
"""Maximum warnings to show: messages may name any number of missing targets."""


def planned(
    settings: Settings,
    selection: Selection,
    replay: Replay,
    *,
    limit: int | None = None,
    editor: Callable[[Content], Edit] | None = None,
    includes_failing: bool = False,
) -> Plan:
    """A plan for the selected messages that remain, or are parked.

    ``editor`` edits the content of the only message. Messages on which an edit does not apply are
    left out unless the plan ``includes_failing`` ones. If nothing is to be done with a message that
    the selection names, a note says why.

    Raises:
        UsageError: The command does not act on messages in the selected state.
        NotFoundError: The message that the selection names is unknown.
    """
    is_about_parked = replay.to.is_about_parked
    state = State.PARKED if is_about_parked else State.REMAINING
    possible = {State.OPEN, state} if is_about_parked else {State.OPEN, state, State.QUARANTINED}
    if not is_about_parked and replay.to is not To.DISCARD:
        possible.add(State.DISCARDED)
    if selection.state not in possible:
        raise UsageError(
            f"--status {selection.state} is not for this command, which takes {state} messages",
            hint=_ABOUT_OTHERS.get(selection.state, _ABOUT_FINAL),
        )
    if selection.state is State.OPEN:
        selection = replace(selection, state=state)
    replay = replace(replay, is_undo=selection.state is State.DISCARDED)
    job = settings.job
    with open_cluster(job.connection) as cluster:
        archive = Archive(job)
        inventory, notes = archive.inventory(mask=settings.mask)
        with inventory:
            selection, bodies = choose_by_body(settings, archive.cluster, inventory, selection)
            places = inventory.places(selection, limit=limit)
            quarantined = count_quarantined(inventory, selection)
            notes = (*notes, *notes_about_quarantined(quarantined))
            if bodies is not None:
                notes = (*notes, *bodies.left_out, str(bodies))
            if not places.rows and not replay.is_undo:
                notes = (*notes, *_notes_about_others(inventory, selection))
        planner = Planner(
            job,
            cluster,
            ClusterFacts(cluster).answers,
            entries=read_control(job, cluster) if places.rows else {},
            states=read_states(job, cluster),
        )
        if editor is not None and places.rows:
            edit = editor(planner.preview.content(places.rows[0], replay))
            replay = replace(replay, edit=edit)
        trying = (
            progress_bar("trying the edit")
            if replay.edit
            else nullcontext(lambda _done, _total: None)
        )
        with trying as show:
            plan = planner.plan(
                places,
                replay,
                notes=notes,
                mask=settings.mask,
                includes_failing=includes_failing,
                show_progress=show,
            ).masked(settings.mask)
    if plan.count or not selection.message:
        return plan
    return replace(plan, notes=[*plan.notes, _note_about(job, selection.message)])


def _notes_about_others(inventory: Inventory, selection: Selection) -> Iterator[str]:
    """A note if messages match the selection in the other state: parked or remaining."""
    is_about_parked = selection.state is State.PARKED
    other = State.REMAINING if is_about_parked else State.PARKED
    if inventory.places(replace(selection, state=other), limit=1).rows:
        verb = "`redrive replay`" if is_about_parked else "`redrive parked`"
        where = "remain" if is_about_parked else "are parked"
        yield f"messages that {where} match: use {verb} for those"


def _note_about(job: JobConfiguration, message: str) -> str:
    """A note about the last outcome of a message; raises ``NotFoundError``."""
    answer = Archive(job).history(message)
    last = answer.last
    known = f"the last outcome of {answer.message} is {last.result!r}, {clock(last.time)} UTC"
    if last.result == Result.DISCARDED:
        known += f"; redrive replay now {answer.message} --status discarded brings it back"
    return f"{known}; redrive history {answer.message} shows more"


def show_plan(plan: Plan, *, mq: bool) -> None:
    """Print what a plan will do, and its warnings."""
    if not plan.count:
        state = "is parked" if plan.replay.to.is_about_parked else "remains"
        state = "is discarded and held by its topic" if plan.replay.is_undo else state
        why = "the edit applies to no message" if plan.changes else f"no such message {state}"
        click.echo(f"Nothing to do: {why}.")
        for change in plan.changes:
            _show_change(console(), change)
        print_notes(plan.notes)
        return
    count = counted(plan.count, "message")
    click.echo(f"Plan {plan.id}: {count}, {_size(plan.size)}, {_what(plan)}")
    for title, parts in (
        ("reason", plan.reasons if mq else ()),
        ("exception", plan.exceptions),
        ("consumer group", plan.groups),
        ("target", plan.targets),
        ("handler", plan.handlers),
    ):
        if parts:  # a plan of another program may have none
            rows = [
                {title: part.name, "messages": part.count, "for example": part.example}
                for part in parts
            ]
            print_table(rows, folded=[title], whole=["for example"])
    lines = console()
    for change in plan.changes:
        _show_change(lines, change)
    for warning in plan.warnings[:_MOST_WARNINGS]:
        about = f" ({counted(warning.count, 'message')})" if warning.count else ""
        lines.print(Text(f"warning: {printable(warning.text)}{about}", style="yellow"))
    if (more := len(plan.warnings) - _MOST_WARNINGS) > 0:
        lines.print(Text(f"{more} more warnings: --json shows all", style="yellow"))
    print_notes(plan.notes)


def question(plan: Plan) -> str:
    """The question before a plan is applied."""
    messages = counted(plan.count, "message")
    match plan.replay.to:
        case To.DISCARD:
            return f"Discard {messages}?"
        case To.ATTEMPT:
            return f"Make the next attempt on {messages} now?"
        case To.REMAIN:
            return f"End the retries of {messages}?"
        case _:
            return f"Replay {messages} {plan.replay}?"


def accepted_before(replay: Replay) -> str:
    """The notice about a plan that was already accepted."""
    purpose = f" ({printable(replay.purpose)})" if replay.purpose else ""
    who = f"{_when(replay.accepted)} from {printable(replay.operator)}{purpose}"
    return f"The plan {replay.plan} was already accepted {who}."


def show_status(status: ReplayStatus) -> None:
    """Print the progress of one replay."""
    replay = status.replay
    rate = f", {replay.rate:g} a second" if replay.rate else ""
    click.echo(f"replay {replay.plan}: {status.state}, {printable(str(replay))}{rate}")
    click.echo(f"  accepted {_when(replay.accepted)} from {printable(replay.operator)}")
    if replay.purpose:
        click.echo(f"  because: {printable(replay.purpose)}")
    if replay.cancelled_by:
        click.echo(f"  cancelled by {printable(replay.cancelled_by)}")
    click.echo(f"  {replay.planned} planned, {replay.instructed} accepted")
    for text in status.left_out():
        click.echo(f"  {text}")
    for result, count in sorted(status.results.items()):
        click.echo(f"  {count} {result}")
    if status.results.get(Result.REMAINS) and replay.to is not To.REMAIN:
        condition = f"replay = '{replay.plan}'"
        click.echo(
            f'  see why some remain: redrive groups --status remaining --where "{condition}"'
        )
    if status.waiting:
        click.echo(f"  at most {status.waiting} left")
    if not replay.is_complete and not replay.cancelled_by:
        click.echo("  apply the plan again to go on, or cancel it")


def show_statuses(statuses: Sequence[ReplayStatus]) -> None:
    """Print a table of replays."""
    if not statuses:
        click.echo("No replays yet.")
        return
    rows = [
        {
            "replay": status.replay.plan,
            "state": status.state,
            "accepted": _when(status.replay.accepted),
            "by": status.replay.operator,
            "to": str(status.replay.target) or status.replay.to.value,
            "messages": status.replay.planned,
            "to do": status.waiting,
            "results": ", ".join(_results(status)),
            "because": status.replay.purpose,
        }
        for status in statuses
    ]
    print_table(rows, right=["accepted"], folded=["results", "because"], whole=["replay"])


def _results(status: ReplayStatus) -> Iterator[str]:
    yield from (f"{count} {result}" for result, count in sorted(status.results.items()))
    if status.replay.placed:
        yield next(status.left_out())


def _show_change(lines: Console, change: Change) -> None:
    lines.print(Text(f"changes in {printable(change.message)}"), soft_wrap=True)
    for line in change.lines:
        style = {"-": "red", "+": "green"}.get(line[:1], "")
        lines.print(Text(f"  {printable(line)}", style=style), soft_wrap=True)
    if change.problem:
        text = f"  it stays where it is: {printable(change.problem)}"
        lines.print(Text(text, style="yellow"), soft_wrap=True)
    elif not change.lines:
        lines.print(Text("  nothing"))


def _what(plan: Plan) -> str:
    replay = printable(str(plan.replay))
    if plan.replay.rate is None or plan.seconds is None:
        return replay
    return f"{replay}, {plan.replay.rate:g} a second: {duration(plan.seconds)}"


def _when(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{duration((datetime.now(UTC) - moment).total_seconds())} ago"


def _size(count: int) -> str:
    size = float(count)
    for unit in _UNITS:
        if size < _STEP or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == _UNITS[0] else f"{size:.1f} {unit}"
        size /= _STEP
    raise AssertionError(count)


def plan_and_apply(
    job: JobConfiguration, plan: Plan, purpose: str, *, mq: bool, yes: bool, as_json: bool
) -> None:
    """Show a plan, ask, and apply it; errors as for ``accept``."""
    if not as_json:
        show_plan(plan, mq=mq)
    if plan.count:
        apply_plan(job, plan, purpose, wait=True, yes=yes, as_json=as_json)
    elif as_json:
        print_json(plan.document())


def output_plan(plan: Plan, output: Path | None, *, mq: bool, as_json: bool) -> None:
    """Print a plan, and write it to ``output`` if that is named and the plan is not empty."""
    if output is not None and plan.count:
        plan.write(output)
    if as_json:
        print_json(plan.document())
        return
    show_plan(plan, mq=mq)
    if output is not None and plan.count:
        click.echo(
            f"written to {output}; apply it by `redrive replay apply {output} --because ...`"
        )


def apply_plan(
    job: JobConfiguration, plan: Plan, purpose: str, *, wait: bool, yes: bool, as_json: bool
) -> None:
    """Ask, hand a plan to the job, and wait for it if asked to; errors as for ``accept``."""
    ask(question(plan), yes=yes)
    with open_cluster(job.connection) as cluster:
        with progress_bar("instructing") as show:
            accepted = accept(
                job,
                cluster,
                plan,
                operator=this_user(),
                purpose=purpose,
                written=lambda done: show(done, plan.count),
            )
        if not accepted.cancelled_by and (wait or not runs(cluster, job)):
            wait_for_completion(cluster, job, plan.id)
        status_now = status_with_results(job, cluster, plan.id)
    print_json(status_now.document()) if as_json else show_status(status_now)
    if by := status_now.replay.cancelled_by:
        raise RedriveError(
            f"the plan {plan.id} was cancelled by {by}",
            hint="make another plan for the rest",
        )


def status_with_results(job: JobConfiguration, cluster: Cluster, plan_id: str) -> ReplayStatus:
    """The progress of a replay, with the results of its messages."""
    [progress] = statuses(job, cluster, plan=plan_id, results=partial(results_of_replays, job))
    return progress


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

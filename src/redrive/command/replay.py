"""``redrive replay``: plan a replay of remaining messages, and apply it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from redrive.checkpoints.control import Entries, read_entries
from redrive.command.opening import count_quarantined, notes_about_quarantined, open_cluster
from redrive.command.options import FILE, config_option
from redrive.command.output import print_json, print_notes, progress_bar
from redrive.command.replay_view import (
    accepted_before,
    question,
    show_plan,
    show_status,
    show_statuses,
)
from redrive.command.replay_work import runs, wait_for_completion
from redrive.command.selection import selection_options
from redrive.configuration import JobConfiguration
from redrive.engine.commands import To
from redrive.errors import RedriveError, UsageError
from redrive.kafka.cluster import Cluster
from redrive.kafka.facts import ClusterFacts
from redrive.operations.durations import clock
from redrive.operations.process import this_user
from redrive.operations.replay.accepting import accept
from redrive.operations.replay.entries import read_accepted
from redrive.operations.replay.plan import Order, ReplayPlan, parse_rate, parse_target
from redrive.operations.replay.planning import Planner
from redrive.operations.replay.progress import ReplayStatus, cancel, find_replay, statuses
from redrive.operations.states import read_states
from redrive.outcomes.history import Archive, NotFound
from redrive.outcomes.inventory import Inventory, Selection, State
from redrive.printable import printable
from redrive.settings import Settings, read_settings

__all__ = [
    "Verbs",
    "because_option",
    "check_message",
    "commands",
    "json_option",
    "limit_option",
    "plan_and_apply",
    "planned",
    "rate_option",
    "replay",
    "tell_plan",
    "yes_option",
]

_ABOUT_OTHERS: Final = {
    State.PARKED: "parked messages are tried again by themselves; `redrive parked now` tries them"
    " at once, `redrive parked cancel` lets them remain",
    State.REMAINING: "`redrive replay` and `redrive discard` are about what remains",
    State.QUARANTINED: "`redrive replay` and `redrive discard` are about what is in quarantine",
}
_ABOUT_FINAL: Final = (
    "what was put or discarded is not Redrive's any more; `redrive ls` lists it, and"
    " `redrive show ID` shows one as long as its topic has it"
)

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
json_option = click.option("--json", "as_document", is_flag=True, help="Print one JSON object.")
limit_option = click.option(
    "--limit", type=click.IntRange(min=1), help="Maximum messages, oldest failure first."
)
rate_option = click.option("--rate", metavar="N/s", help="Messages a second, such as 50/s.")
because_option = click.option("--because", "purpose", default="", help="Why, for the ledger.")


def to_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds where messages go; the command gets ``to`` and ``header``."""
    to = click.option(
        "--to",
        default="original",
        show_default=True,
        metavar="original|rules|QUEUE[@QM]",
        help="Where to: their original destinations, the rules from the first one on, or a queue.",
    )
    header = click.option(
        "--header",
        type=click.Choice(["keep", "strip"]),
        default="strip",
        show_default=True,
        help="Whether a message for QUEUE keeps its dead-letter header.",
    )
    return to(header(command))


class Verbs(click.Group):
    """Subcommands, or the id of one message in the place of one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Takes an id, which has colons, for the argument of ``message``."""
        if args and args[0] not in self.commands and ":" in args[0]:
            return "message", self.commands["message"], args
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            ctx.fail(
                f"No such command {args[0]!r}. The ID of a message, which may stand here too, has"
                " the form topic:partition:offset."
            )
        return super().resolve_command(ctx, args)


@click.group(cls=Verbs)
def replay() -> None:
    """Replay remaining messages: plan, look at the plan, apply it; or do it at once.

    \b
    redrive replay now --reason MQRC_Q_FULL                    the target is there again
    redrive replay plan --where "field_destq = 'ORDERS'" --rate 50/s -o plan.json
    redrive replay apply plan.json --reason "ticket 4711"
    redrive replay orders.dlq:0:17 --to ORDERS.REPAIR          one message
    redrive replay status 5f2ac9d01b7e
    redrive replay cancel 5f2ac9d01b7e

    Each message is put exactly once, by the running job; without one, a job is run for the replay
    and ended. What does not remain any more by then is skipped. Parked messages are left alone:
    redrive parked is about them. Quarantined ones are replayed if they are asked for: by their ID,
    or with --status quarantined.

    Exit codes: 0 done, also if nothing matches; 1 error; 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples


@replay.command()
@config_option
@selection_options
@to_options
@rate_option
@limit_option
@click.option("-o", "--output", type=FILE, help="Write the plan.")
@json_option
def plan(
    *,
    config: Path,
    selection: Selection,
    to: str,
    header: str,
    rate: str | None,
    limit: int | None,
    output: Path | None,
    as_document: bool,
) -> None:
    """Plan a replay: which messages, where to, what to know before. Nothing is touched.

    \b
    redrive replay plan --reason MQRC_Q_FULL -o plan.json
    redrive replay plan --destq ORDERS --to ORDERS.REPAIR@QM1 --header keep --rate 20/s -o plan.json

    The filters are those of redrive ls.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    found = planned(read_settings(config), selection, _order(to, header, rate), limit)
    tell_plan(found, output, as_document=as_document)


@replay.command()
@click.argument("file", type=FILE, metavar="PLAN")
@config_option
@click.option("--reason", "--because", "purpose", required=True, help="Why, for the ledger.")
@click.option("--no-wait", is_flag=True, help="Return once the running job has the instructions.")
@yes_option
@json_option
def apply(
    *, file: Path, config: Path, purpose: str, no_wait: bool, yes: bool, as_document: bool
) -> None:
    """Apply a plan: what it says is done with each of its messages, once.

    \b
    redrive replay apply plan.json --reason "the database is back, ticket 4711"

    A plan that was accepted before is not accepted again: apply shows how far it is. After an
    interruption, kill -9 included, the same command goes on. One that was cancelled stays so.

    Exit codes: 0 done, 1 cancelled or an error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    job, found = job_of(config), ReplayPlan.read(file)
    with open_cluster(job.connection) as cluster:
        before = read_accepted(job, cluster).get(found.plan)
    if before is not None:
        click.echo(accepted_before(before), err=True)
        yes = True
    elif not yes and not as_document:
        if found.created:
            click.echo(f"Planned at {printable(found.created)}: so it was then.")
        show_plan(found)
    _apply(job, found, purpose, wait=not no_wait, yes=yes, as_document=as_document)


@replay.command()
@config_option
@selection_options
@to_options
@rate_option
@limit_option
@because_option
@yes_option
@json_option
def now(
    *,
    config: Path,
    selection: Selection,
    to: str,
    header: str,
    rate: str | None,
    limit: int | None,
    purpose: str,
    yes: bool,
    as_document: bool,
) -> None:
    """Plan a replay, show it, ask, and apply it.

    \b
    redrive replay now --reason MQRC_Q_FULL
    redrive replay now --older-than 1h --to rules --yes --because "ticket 4711"

    --reason is a filter here, the reason code of the messages; --because says why for the ledger.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    settings = read_settings(config)
    found = planned(settings, selection, _order(to, header, rate), limit)
    plan_and_apply(settings.job, found, purpose, yes=yes, as_document=as_document)


@replay.command(hidden=True)
@click.argument("identity", metavar="ID")
@config_option
@to_options
@because_option
@yes_option
@json_option
def message(
    *,
    identity: str,
    config: Path,
    to: str,
    header: str,
    purpose: str,
    yes: bool,
    as_document: bool,
) -> None:
    """Replay one message.

    Example: redrive replay orders.dlq:0:17 --to rules
    """
    settings = read_settings(config)
    found = planned(settings, Selection(message=identity), _order(to, header, None), None)
    found = check_message(settings.job, found, identity)
    plan_and_apply(settings.job, found, purpose, yes=yes, as_document=as_document)


@replay.command()
@click.argument("plan_id", metavar="PLAN")
@config_option
@json_option
def status(*, plan_id: str, config: Path, as_document: bool) -> None:
    """Show the progress of a replay, and the results of its messages.

    Example: redrive replay status 5f2ac9d01b7e
    """
    job = job_of(config)
    with open_cluster(job.connection) as cluster:
        find_replay(job, cluster, plan_id)
        found = _with_results(job, cluster, plan_id)
    print_json(found.document()) if as_document else show_status(found)


@replay.command(name="list")
@config_option
@json_option
def list_replays(*, config: Path, as_document: bool) -> None:
    """List the accepted replays, and their progress.

    Example: redrive replay list
    """
    job = job_of(config)
    with open_cluster(job.connection) as cluster:
        found = statuses(job, cluster, results=_results(job))
    print_json([one.document() for one in found]) if as_document else show_statuses(found)


@replay.command(name="cancel")
@click.argument("plan_id", metavar="PLAN")
@config_option
def cancel_replay(*, plan_id: str, config: Path) -> None:
    """Cancel what is left of a replay. What was put before stays put.

    Example: redrive replay cancel 5f2ac9d01b7e

    Messages that are left remain, and their outcome says who cancelled.
    """
    job = job_of(config)
    with open_cluster(job.connection) as cluster:
        find_replay(job, cluster, plan_id)
        [found] = statuses(job, cluster, plan=plan_id)
        if found.is_done and not found.replay.cancelled_by:
            click.echo(f"replay {plan_id} is done: nothing is left to cancel")
            return
        before = cancel(job, cluster, plan_id, this_user())
    if before.cancelled_by:
        click.echo(f"replay {plan_id} was cancelled by {before.cancelled_by} before")
    else:
        click.echo(f"replay {plan_id} is cancelled; what was put before stays put")


commands: Final = (apply, status, list_replays, cancel_replay)
"""What is the same for every kind of plan."""


def plan_and_apply(
    job: JobConfiguration, found: ReplayPlan, purpose: str, *, yes: bool, as_document: bool
) -> None:
    """Shows a plan, asks, and applies it; errors as for ``Instructions``."""
    if not as_document:
        show_plan(found)
    if found.count:
        _apply(job, found, purpose, wait=True, yes=yes, as_document=as_document)
    elif as_document:
        print_json(found.document())


def planned(
    settings: Settings, selection: Selection, order: Order, limit: int | None
) -> ReplayPlan:
    """A plan about what remains, or is parked, and is asked for.

    Args:
        settings: The job's settings.
        selection: Which messages.
        order: What to do with them.
        limit: How many at most; None for all.

    Raises:
        UsageError: What is asked for is somewhere else.
        EnvironmentFault: The cluster can't be reached, or the ledger can't be read.
    """
    is_about_parked = order.to.is_about_parked
    state = State.PARKED if is_about_parked else State.REMAINING
    possible = {State.OPEN, state} if is_about_parked else {State.OPEN, state, State.QUARANTINED}
    if selection.state not in possible:
        raise UsageError(
            f"--status {selection.state} is not for this command: it is about what is {state}",
            hint=_ABOUT_OTHERS.get(selection.state, _ABOUT_FINAL),
        )
    if selection.state is State.OPEN:
        selection = replace(selection, state=state)
    job = settings.job
    with open_cluster(job.connection) as cluster:
        inventory, notes = Archive(job).inventory()
        with inventory:
            rows = inventory.places(selection, limit=limit)
            quarantined = count_quarantined(inventory, selection)
            notes = (*notes, *notes_about_quarantined(quarantined))
            if not rows:
                notes = (*notes, *_elsewhere(inventory, selection))
        planner = Planner(
            job,
            cluster,
            ClusterFacts(cluster).answers,
            entries=_entries(job, cluster) if rows else {},
            states=read_states(job, cluster),
        )
        return planner.plan(rows, order, notes=notes).masked(settings.mask)


def _entries(job: JobConfiguration, cluster: Cluster) -> Entries:
    if not cluster.partitions([job.control_topic]):
        return {}
    return read_entries(cluster, job.control_topic)


def _elsewhere(inventory: Inventory, selection: Selection) -> Iterator[str]:
    """What to do about messages that are as asked for, but not where the command looks."""
    is_about_parked = selection.state is State.PARKED
    other = State.REMAINING if is_about_parked else State.PARKED
    if inventory.places(replace(selection, state=other), limit=1):
        verb = "`redrive replay`" if is_about_parked else "`redrive parked`"
        where = "remain" if is_about_parked else "are parked"
        yield f"messages that {where} fit, though: {verb} is about those"


def check_message(job: JobConfiguration, found: ReplayPlan, identity: str) -> ReplayPlan:
    """A plan about one message, with a note about its last outcome if there is nothing to do.

    Args:
        job: The job.
        found: The plan.
        identity: Of the message, or of a dead letter.

    Raises:
        RedriveError: There is no outcome of such a message.
    """
    if found.count:
        return found
    answer = Archive(job).history(identity)
    if isinstance(answer, NotFound):
        raise RedriveError(answer.reason, hint=answer.hint)
    last = answer.last
    known = f"the last outcome of {answer.message} is {last['result']!r}, {clock(last['time'])} UTC"
    note = f"{known}; redrive history {answer.message} tells more"
    return replace(found, notes=[*found.notes, note])


def _order(to: str, header: str, rate: str | None) -> Order:
    kind, target = parse_target(to)
    return Order(
        to=kind,
        target=target,
        keeps_header=header == "keep" and kind is To.QUEUE,
        rate=None if rate is None else parse_rate(rate),
    )


def tell_plan(found: ReplayPlan, output: Path | None, *, as_document: bool) -> None:
    """Prints a plan, and writes it to a file if one is named and there is anything in it."""
    if output is not None and found.count:
        found.write(output)
    if as_document:
        print_json(found.document())
        return
    show_plan(found)
    if output is not None and found.count:
        click.echo(f"written to {output}; `redrive replay apply {output} --reason ...` does it")


def _apply(
    job: JobConfiguration,
    found: ReplayPlan,
    purpose: str,
    *,
    wait: bool,
    yes: bool,
    as_document: bool,
) -> None:
    if not yes:
        click.confirm(question(found), abort=True, err=True)
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
        status_now = _with_results(job, cluster, found.plan)
    print_json(status_now.document()) if as_document else show_status(status_now)
    if by := status_now.replay.cancelled_by:
        raise RedriveError(
            f"the plan {found.plan} was cancelled by {by}",
            hint="for what is left of it make another plan",
        )


def _with_results(job: JobConfiguration, cluster: Cluster, plan_id: str) -> ReplayStatus:
    [found] = statuses(job, cluster, plan=plan_id, results=_results(job))
    return found


def _results(job: JobConfiguration) -> dict[str, dict[str, int]]:
    inventory, notes = Archive(job).inventory()
    print_notes(notes)
    with inventory:
        return inventory.replayed()


def job_of(config: Path) -> JobConfiguration:
    """The job of a settings file."""
    return read_settings(config).job

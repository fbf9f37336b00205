"""``redrive replay``, ``discard`` and ``parked``: actions on waiting messages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from redrive.command.edits import edit_options, edit_with, edited_file
from redrive.command.failures import shows_mq
from redrive.command.options import (
    FILE,
    because_option,
    choice_option,
    combined,
    config_option,
    mq_option,
    number_option,
    table_options,
    yes_option,
)
from redrive.command.output import ask, print_json
from redrive.command.replay_work import (
    accepted_before,
    apply_plan,
    output_plan,
    plan_and_apply,
    planned,
    results_of_replays,
    show_plan,
    show_status,
    show_statuses,
    status_with_results,
)
from redrive.command.selection import selection_options
from redrive.engine.commands import Replay, To
from redrive.engine.edits import NO_EDIT, Edit
from redrive.errors import UsageError
from redrive.operations.network import open_cluster
from redrive.operations.process import this_user
from redrive.operations.replay.plan import Plan, parse_rate, parse_target
from redrive.operations.replay.progress import cancel, find_replay, read_accepted, statuses
from redrive.outcomes.inventory import Selection
from redrive.printable import counted, printable
from redrive.settings import read_settings

_limit = number_option("--limit", "Maximum messages, oldest failure first.")
_rate = click.option("--rate", metavar="N/s", help="Messages a second, such as 50/s.")
_output = click.option("-o", "--output", type=FILE, help="Write the plan; replay apply applies it.")
_shown = combined(config_option, mq_option, table_options)
_applied = combined(because_option, yes_option, _shown)
_to = combined(
    click.option(
        "--to",
        default="original",
        show_default=True,
        metavar="original|group|rules|QUEUE[@QM]",
        help="Where to: their original destinations, the topics of the groups that failed, the"
        " rules from the first one on, or a queue.",
    ),
    choice_option(
        "--header",
        values=("keep", "strip"),
        default="strip",
        help_text="Whether a message for QUEUE keeps its dead-letter header.",
    ),
)
_edits = combined(
    edit_options,
    click.option(
        "--include-failing",
        is_flag=True,
        help="Also plan messages on which the edit does not apply: a failed attempt each.",
    ),
)
_identity = click.argument("identity", metavar="ID")
_identity_or_selection = click.argument("identity", metavar="[ID]", default="")
_in_editor = click.option(
    "--edit", "is_edited", is_flag=True, help="Edit the message in $VISUAL or $EDITOR."
)
_plan_id = click.argument("plan_id", metavar="PLAN")


def _acting(
    group: click.Group,
    name: str,
    *options: Callable[..., Any],
    to: To | None = None,
    only_plans: bool = False,
) -> Callable[[Callable[[], None]], click.Command]:
    """Add a command that plans what to do with messages and, unless it only plans, does it.

    The decorated function has its help. Without ``to`` the options say where the messages go.
    """

    @combined(*options, _shown if only_plans else _applied)
    def act(
        *,
        config: Path,
        mq: bool,
        as_json: bool,
        selection: Selection | None = None,
        identity: str = "",
        limit: int | None = None,
        output: Path | None = None,
        purpose: str = "",
        yes: bool = False,
        rate: str | None = None,
        include_failing: bool = False,
        edit: Edit = NO_EDIT,
        is_edited: bool = False,
        **target: str,
    ) -> None:
        if edit and is_edited:
            raise UsageError(
                "--edit cannot be combined with --set-header, --drop-header or --json-patch",
                hint="make these changes in the editor",
            )
        wanted = Replay(to=to) if to is not None else parse_target(target["to"])
        wanted = replace(
            wanted,
            keeps_header=wanted.to is To.QUEUE and target["header"] == "keep",
            rate=None if rate is None else parse_rate(rate),
            edit=edit,
        )
        settings = read_settings(config)
        mq = shows_mq(settings.job, mq=mq)
        selection = replace(selection or Selection(), message=identity)
        with edited_file(identity) if is_edited else nullcontext() as file:
            editor = None if file is None else partial(edit_with, file, identity)
            plan = planned(
                settings,
                selection,
                wanted,
                limit=limit,
                editor=editor,
                includes_failing=include_failing,
            )
            if is_edited and plan.count and not plan.replay.edit:
                click.echo(f"{identity} is unchanged: nothing is sent")
            elif only_plans or output is not None:
                output_plan(plan, output, mq=mq, as_json=as_json)
            else:
                plan_and_apply(settings.job, plan, purpose, mq=mq, yes=yes, as_json=as_json)

    def add(described: Callable[[], None]) -> click.Command:
        return group.command(name, help=described.__doc__, hidden=name == "message")(act)

    return add


class _MessageGroup(click.Group):
    """Subcommands, or the id of one message in the place of one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read ``--edit ID`` as an option of ``message``."""
        if args[:1] == ["--edit"]:
            args = ["message", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Read an id, which has colons, as the argument of ``message``."""
        if args and args[0] not in self.commands and ":" in args[0]:
            return "message", self.commands["message"], args
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            ctx.fail(
                f"No such command {args[0]!r}. The ID of a message, which may stand here too, has"
                " the form topic:partition:offset."
            )
        return super().resolve_command(ctx, args)


# -- replay ------------------------------------------------------------------------------------


@click.group(cls=_MessageGroup)
def replay() -> None:
    """Put remaining messages back: plan, review, apply; or at once.

    \b
    redrive replay now --reason MQRC_Q_FULL                    the target works again
    redrive replay plan --where "field_destq = 'ORDERS'" --rate 50/s -o plan.json
    redrive replay apply plan.json --because "ticket 4711"
    redrive replay orders.dlq:0:17 --to ORDERS.REPAIR          one message
    redrive replay --edit orders.dlq:0:17                      edit one message first
    redrive replay now --reason 2110 --json-patch fix.json     change each message first
    redrive replay status 5f2ac9d01b7e
    redrive replay cancel 5f2ac9d01b7e

    Each message is put exactly once, by the running job; without one, a job is run for the replay
    and ended. Messages that no longer remain by then are skipped. Parked messages are not replayed:
    redrive parked retries them. Quarantined ones are replayed only on request: by their ID,
    or with --status quarantined.

    Exit codes: 0 done, also if nothing matches; 1 error; 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples


@_acting(replay, "plan", selection_options, _to, _rate, _limit, _edits, _output, only_plans=True)
def plan() -> None:
    """Plan a replay: which messages, where to, and warnings. Nothing is changed.

    \b
    redrive replay plan --reason MQRC_Q_FULL -o plan.json
    redrive replay plan --destq ORDERS --to ORDERS.REPAIR@QM1 --header keep --rate 20/s -o plan.json

    The filters are those of redrive ls; --status discarded brings discarded messages back.
    """  # noqa: D301 - \b keeps click from wrapping the examples


@_acting(replay, "now", _identity_or_selection, selection_options, _to, _rate, _limit, _edits)
def now() -> None:
    """Plan a replay, show it, ask, and apply it.

    \b
    redrive replay now --reason MQRC_Q_FULL
    redrive replay now --older-than 1h --to rules --yes --because "ticket 4711"
    """  # noqa: D301 - \b keeps click from wrapping the examples


@_acting(replay, "message", _identity, _to, edit_options, _in_editor)
def message() -> None:
    """Replay one message.

    \b
    redrive replay orders.dlq:0:17 --to rules
    redrive replay --edit orders.dlq:0:17 --because "ticket 4711"

    --edit opens the message as the replay would put it, with headers as lines and the value as text
    or indented JSON, shows your changes, asks, and sends it. Without a change nothing is sent.
    """  # noqa: D301 - \b keeps click from wrapping the examples


# -- every kind of plan ------------------------------------------------------------------------


@replay.command()
@click.argument("file", type=FILE, metavar="PLAN")
@click.option("--no-wait", is_flag=True, help="Return once the running job has received the plan.")
@_applied
def apply(
    *, file: Path, config: Path, purpose: str, no_wait: bool, yes: bool, mq: bool, as_json: bool
) -> None:
    """Apply a plan to each of its messages, once.

    \b
    redrive replay apply plan.json --because "the database is back, ticket 4711"

    A plan is accepted only once; after that, apply shows its progress. After an interruption, even
    kill -9, the same command continues. A cancelled plan stays cancelled.

    Exit codes: 0 done, 1 cancelled or an error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    job, plan = read_settings(config).job, Plan.read(file)
    with open_cluster(job.connection) as cluster:
        before = read_accepted(job, cluster).get(plan.id)
    if before is not None:
        click.echo(accepted_before(before), err=True)
    elif not yes and not as_json:
        if plan.created:
            click.echo(f"Planned at {printable(plan.created)}: so it was then.")
        show_plan(plan, mq=shows_mq(job, mq=mq))
    yes = yes or before is not None
    apply_plan(job, plan, purpose, wait=not no_wait, yes=yes, as_json=as_json)


@replay.command()
@_plan_id
@config_option
@table_options
def status(*, plan_id: str, config: Path, as_json: bool) -> None:
    """Show the progress of a replay, and the results of its messages.

    Example: redrive replay status 5f2ac9d01b7e
    """
    job = read_settings(config).job
    with open_cluster(job.connection) as cluster:
        find_replay(job, cluster, plan_id)
        progress = status_with_results(job, cluster, plan_id)
    print_json(progress.document()) if as_json else show_status(progress)


@replay.command(name="list")
@config_option
@table_options
def list_replays(*, config: Path, as_json: bool) -> None:
    """List the accepted replays, and their progress.

    Example: redrive replay list
    """
    job = read_settings(config).job
    with open_cluster(job.connection) as cluster:
        replays = statuses(job, cluster, results=partial(results_of_replays, job))
    print_json([progress.document() for progress in replays]) if as_json else show_statuses(replays)


@replay.command(name="cancel")
@_plan_id
@config_option
@because_option
@yes_option
def cancel_replay(*, plan_id: str, config: Path, purpose: str, yes: bool) -> None:
    """Cancel the rest of a replay, after asking. Messages already put stay put.

    Example: redrive replay cancel 5f2ac9d01b7e --because "the wrong queue"

    The rest of the messages remain; their outcomes say who cancelled, and why.
    """
    job = read_settings(config).job
    with open_cluster(job.connection) as cluster:
        find_replay(job, cluster, plan_id)
        [progress] = statuses(job, cluster, plan=plan_id)
        if by := progress.replay.cancelled_by:
            click.echo(f"replay {plan_id} was cancelled by {printable(by)} before")
            return
        if progress.is_done:
            click.echo(f"replay {plan_id} is complete: nothing to cancel")
            return
        rest = counted(progress.waiting, "message")
        ask(f"Cancel the rest of replay {plan_id}, at most {rest}?", yes=yes)
        cancel(job, cluster, plan_id, this_user(), purpose)
    click.echo(f"replay {plan_id} is cancelled; messages already put stay put")


# -- discard -----------------------------------------------------------------------------------


@click.group(cls=_MessageGroup)
def discard() -> None:
    """Discard remaining messages, by a plan or at once.

    \b
    redrive discard orders.dlq:0:17 --because "a test message"
    redrive discard now --older-than 90d --because "kept for 90 days"
    redrive discard plan --where "body_size = 0" -o plan.json
    redrive discard apply plan.json --because "ticket 4711"

    It works like redrive replay: the running job discards each once, and the ledger records who and
    why. Discarded messages are gone once the broker compacts the topic of remaining messages.

    Exit codes: 0 done, also if nothing matches; 1 error; 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples


for _command in (apply, status, list_replays, cancel_replay):
    discard.add_command(_command)


@_acting(discard, "plan", selection_options, _rate, _limit, _output, to=To.DISCARD, only_plans=True)
def plan_to_discard() -> None:
    """Plan which messages to discard. Nothing is changed.

    Example: redrive discard plan --reason MQRC_Q_FULL --older-than 30d -o plan.json
    """


@_acting(discard, "now", _identity_or_selection, selection_options, _rate, _limit, to=To.DISCARD)
def discard_now() -> None:
    """Plan which messages to discard, show the plan, ask, and apply it.

    Example: redrive discard now --older-than 90d --because "kept for 90 days"
    """


@_acting(discard, "message", _identity, to=To.DISCARD)
def discard_message() -> None:
    """Discard one message.

    Example: redrive discard orders.dlq:0:17 --because "a test message"
    """


# -- parked ------------------------------------------------------------------------------------


@click.group()
def parked() -> None:
    """Retry parked messages now, or cancel their retries.

    \b
    redrive parked now --destq ORDERS                     the target works again
    redrive parked now orders.dlq:0:17                    one message
    redrive parked cancel --rule 12 --because "ticket 4711"

    A parked message waits for its next attempt. `now` makes that attempt at once; it counts like
    any other. `cancel` ends the retries: the message remains, for redrive replay or redrive
    discard. The running job does it once for each message; without one, a job is started for it.

    Exit codes: 0 done, also if nothing matches; 1 error; 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples


_of_parked = combined(_identity_or_selection, selection_options, _limit, _output)


@_acting(parked, "now", _of_parked, to=To.ATTEMPT)
def retry_now() -> None:
    """Make the next attempt on parked messages now, before it is due.

    Example: redrive parked now --reason MQRC_Q_FULL --because "the queue was emptied"

    Messages parked earlier on the same partition may have to wait once more, for one interval at
    most.
    """


@_acting(parked, "cancel", _of_parked, to=To.REMAIN)
def cancel_retries() -> None:
    """End the retries of parked messages: they remain.

    Example: redrive parked cancel --destq ORDERS --because "the queue is gone for good"
    """

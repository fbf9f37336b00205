"""How replay plans and the progress of replays are shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import click
from rich.console import Console
from rich.text import Text

from redrive.command.output import console, print_notes, print_table
from redrive.engine.commands import Replay, To
from redrive.engine.outcome import Result
from redrive.operations.durations import duration
from redrive.operations.replay.changes import Change
from redrive.operations.replay.plan import Order, ReplayPlan
from redrive.operations.replay.progress import ReplayStatus, target_of
from redrive.printable import counted, printable
from redrive.topology.names import Names

_UNITS = ("bytes", "KB", "MB", "GB", "TB")
_STEP = 1000
_MOST_WARNINGS = 20
"""Maximum warnings to show: messages may name any number of missing targets."""


def show_plan(plan: ReplayPlan, *, mq: bool) -> None:
    """Print what a plan will do, and its warnings."""
    if not plan.count:
        state = "is parked" if plan.order.to.is_about_parked else "remains"
        click.echo(f"Nothing to do: no such message {state}.")
        print_notes(plan.notes)
        return
    count = counted(plan.count, "message")
    click.echo(f"Plan {plan.plan}: {count}, {_size(plan.size)}, {_order(plan)}")
    for title, parts in (
        ("reason", plan.reasons if mq else ()),
        ("exception", plan.exceptions),
        ("consumer group", plan.groups),
        ("target", plan.targets),
        ("handler", plan.handlers),
    ):
        if parts:  # a plan of another program may have none
            rows = [
                {title: one.name, "messages": one.count, "for example": one.example}
                for one in parts
            ]
            print_table(rows, folded=[title], whole=["for example"])
    lines = console()
    for change in plan.changes:
        _show_change(lines, change)
    for one in plan.warnings[:_MOST_WARNINGS]:
        about = f" ({counted(one.count, 'message')})" if one.count else ""
        lines.print(Text(f"warning: {printable(one.text)}{about}", style="yellow"))
    if (more := len(plan.warnings) - _MOST_WARNINGS) > 0:
        lines.print(Text(f"{more} more warnings: --json shows all", style="yellow"))
    print_notes(plan.notes)


def question(plan: ReplayPlan) -> str:
    """The question before a plan is applied."""
    messages = counted(plan.count, "message")
    match plan.order.to:
        case To.DISCARD:
            return f"Discard {messages}?"
        case To.ATTEMPT:
            return f"Make the next attempt on {messages} now?"
        case To.REMAIN:
            return f"End the retries of {messages}?"
        case _:
            return f"Replay {messages} {plan.order}?"


def accepted_before(replay: Replay) -> str:
    """The notice about a plan that was already accepted."""
    purpose = f" ({printable(replay.purpose)})" if replay.purpose else ""
    who = f"{_when(replay.accepted)} from {printable(replay.operator)}{purpose}"
    return f"The plan {replay.plan} was already accepted {who}."


def show_status(status: ReplayStatus) -> None:
    """Print the progress of one replay."""
    replay = status.replay
    rate = f", {replay.rate:g} a second" if replay.rate else ""
    target = Names(queue=replay.queue, queue_manager=replay.queue_manager)
    order = Order(to=replay.to, target=target, keeps_header=replay.keeps_header, edit=replay.edit)
    click.echo(f"replay {replay.plan}: {status.state}, {printable(str(order))}{rate}")
    click.echo(f"  accepted {_when(replay.accepted)} from {printable(replay.operator)}")
    if replay.purpose:
        click.echo(f"  because: {printable(replay.purpose)}")
    if replay.cancelled_by:
        click.echo(f"  cancelled by {printable(replay.cancelled_by)}")
    click.echo(f"  {replay.planned} planned, {replay.instructed} accepted")
    if replay.placed:
        click.echo(f"  {replay.placed} already placed")
    if status.gone:
        gone = "were not parked" if replay.to.is_about_parked else "did not remain"
        click.echo(f"  {status.gone} {gone} any more when it was applied")
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
            "replay": one.replay.plan,
            "state": one.state,
            "accepted": _when(one.replay.accepted),
            "by": one.replay.operator,
            "to": target_of(one.replay),
            "messages": one.replay.planned,
            "to do": one.waiting,
            "results": ", ".join(_results(one)),
            "because": one.replay.purpose,
        }
        for one in statuses
    ]
    print_table(rows, right=["accepted"], folded=["results", "because"], whole=["replay"])


def _results(status: ReplayStatus) -> Iterator[str]:
    yield from (f"{count} {result}" for result, count in sorted(status.results.items()))
    if status.replay.placed:
        yield f"{status.replay.placed} already placed"


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


def _order(plan: ReplayPlan) -> str:
    order = printable(str(plan.order))
    if plan.order.rate is None or plan.seconds is None:
        return order
    return f"{order}, {plan.order.rate:g} a second: {duration(plan.seconds)}"


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

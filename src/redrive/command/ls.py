"""``redrive ls``, ``groups`` and ``ack``: dead letters, their causes, and acknowledged ones."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import click
from rich.text import Text

from redrive.command.failures import (
    cause,
    exception_and_why,
    failure_text,
    reason_text,
    short_class,
    shows_mq,
)
from redrive.command.history import STYLES, due_text, plain
from redrive.command.opening import Answer, ask_inventory
from redrive.command.options import config_option, mq_option, number_option, table_options
from redrive.command.output import print_json, print_notes, print_table
from redrive.command.selection import none_in_words, reserve, selection_options, selection_text
from redrive.errors import UsageError
from redrive.operations.durations import clock, duration, parse_until
from redrive.operations.network import open_cluster
from redrive.operations.process import this_user
from redrive.operations.states import acknowledgements_in_effect, write_states
from redrive.outcomes.acknowledgements import Acknowledgement
from redrive.outcomes.conditions import LONGEST
from redrive.outcomes.history import Next, next_steps
from redrive.outcomes.inventory import Group, Inventory, Listing, state_of
from redrive.outcomes.rows import Row
from redrive.outcomes.selection import Selection, State
from redrive.outcomes.table import sql_text
from redrive.printable import counted
from redrive.settings import Settings, read_settings

_REMAINING: Final = Selection(state=State.REMAINING)
_HIDDEN: Final = ("destination", "application", "error_class", "consumer_group", "failure")
"""Fields of a group that ``[mask]`` may hide."""


@click.command()
@config_option
@selection_options
@number_option("--limit", "How many to list, those that failed last.", default=20, most=1000)
@number_option(
    "--page",
    "Page of the list, --limit messages each; 1 has the last failed.",
    default=1,
    most=1_000_000,
)
@mq_option
@table_options
def ls(
    *, config: Path, selection: Selection, limit: int, page: int, mq: bool, as_json: bool
) -> None:
    """List dead letters that are parked, remain or ended.

    \b
    redrive ls
    redrive ls --status remaining --reason MQRC_Q_FULL --older-than 1h
    redrive ls --status all --since 1d --where "field_destq LIKE 'orders.%' AND attempt > 2"

    Parked messages wait for their next attempt; remaining ones match no rule, or every rule has
    failed. Quarantined ones are listed with --status quarantined or all. --where is SQL over the
    columns of the ledger. Without a broker the newest may be missing, with a note.

    Exit codes: 0 listed, also if there are none; 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    settings = read_settings(config)
    letters = Letters.of(settings, selection, limit=limit, page=page)
    if as_json:
        print_json(letters.document())
        return
    mq = shows_mq(settings.job, mq=mq)
    _show(letters, selection, mq=mq, before=(page - 1) * limit)
    print_notes(letters.answer.all_notes())


class Letters(NamedTuple):
    """Masked dead letters, and what comes next for each."""

    listing: Listing
    steps: Mapping[str, Next]
    """By the identity of a message."""
    answer: Answer[Any]

    @classmethod
    def of(cls, settings: Settings, selection: Selection, *, limit: int, page: int = 1) -> Self:
        """A page of dead letters, page 1 the newest; errors as for ``Inventory.letters``."""

        def ask(inventory: Inventory, chosen: Selection) -> tuple[Listing, dict[str, Next]]:
            listing = inventory.letters(chosen, limit=limit, skipped=(page - 1) * limit)
            return listing, next_steps(settings.job, inventory, listing.letters)

        answer = ask_inventory(settings, selection, ask)
        listing, steps = answer.found
        letters = [letter.masked(settings.mask) for letter in listing.letters]
        return cls(replace(listing, letters=letters), steps, answer)

    def document(self) -> dict[str, Any]:
        """What ``redrive ls --json`` prints."""
        rows = [
            {
                **plain(letter),
                **_next_of(self.steps.get(letter.message)),
                "acknowledged": letter.message in self.listing.acknowledged,
            }
            for letter in self.listing.letters
        ]
        return {"total": self.listing.total, "dead_letters": rows, **self.answer.document()}


def _next_of(step: Next | None) -> dict[str, Any]:
    if step is None or step.due is None:
        return {}
    return {"next": {"attempt": step.attempt, "due": clock(step.due), "rule_line": step.rule_line}}


def _show(letters: Letters, selection: Selection, *, mq: bool, before: int) -> None:
    """Print a page; ``before`` is the number of newer messages."""
    listing, steps, is_complete = letters.listing, letters.steps, not letters.answer.notes
    if not listing.letters and listing.total:
        click.echo(f"this page is empty: {listing.total} in all")
        return
    if not listing.letters:
        click.echo(none_in_words(selection, is_complete=is_complete))
        return
    moment = datetime.now(UTC)
    rows = [
        {
            "message": row.message,
            "result": _state(row, listing),
            "failed": _ago(row.failed_at, moment),
            "last outcome": _ago(row.time, moment),
            **({"next": _next_text(steps.get(row.message))} if steps else {}),
            **cause(row, mq=mq),
            "last failure": exception_and_why(row, mq=mq),
        }
        for row in reversed(listing.letters)
    ]
    print_table(rows, right=["failed", "last outcome"], folded=[*rows[0]][4:], whole=["message"])
    last = before + len(listing.letters)
    if before or listing.total > last:
        shown = f"{before + 1} to {last}, counted from the newest," if before else str(last)
        more = "; --page or --limit shows more" if listing.total > last else ""
        click.echo(f"{shown} of {listing.total}{reserve(is_complete=is_complete)}{more}")


def _ago(time: datetime | None, now: datetime) -> str:
    return "" if time is None else f"{duration((now - time).total_seconds())} ago"


def _state(row: Row, listing: Listing) -> Text:
    state = state_of(row)
    if row.message in listing.acknowledged:
        return Text(f"{state}, acknowledged")
    return Text(state, style=STYLES.get(row.result, ""))


def _next_text(step: Next | None) -> str:
    return "" if step is None or step.due is None else f"{step.attempt} {due_text(step.due)}"


@click.command()
@config_option
@selection_options
@number_option("--limit", "How many groups to list, the largest ones.", default=20, most=1000)
@mq_option
@table_options
def groups(*, config: Path, selection: Selection, limit: int, mq: bool, as_json: bool) -> None:
    """Count dead letters by cause.

    \b
    redrive groups
    redrive groups --status all --since 1d

    Each group has its count and share, when the first and the last failed, and one message as an
    example for redrive show.

    Exit codes: 0 listed, also if there are none; 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    settings = read_settings(config)
    groups_ = Groups.of(settings, selection, limit=limit)
    if as_json:
        print_json(groups_.document())
        return
    _show_groups(groups_, selection, mq=shows_mq(settings.job, mq=mq))
    print_notes(groups_.answer.all_notes())


class Groups(NamedTuple):
    """Dead letters by cause, masked."""

    groups: Sequence[Group]
    total: int
    """Dead letters in all groups."""
    answer: Answer[Any]
    conditions: Sequence[str]
    """For each group the condition that selects it; empty if it would reveal a secret."""
    trends: Sequence[Sequence[int]]
    """For each group the number of its dead letters in each of some equal time spans."""

    @classmethod
    def of(
        cls,
        settings: Settings,
        selection: Selection,
        *,
        limit: int,
        bars: int = 0,
    ) -> Self:
        """The largest groups, with trends of ``bars`` values; errors as ``Inventory.groups``."""

        def ask(
            inventory: Inventory, chosen: Selection
        ) -> tuple[Sequence[Group], int, Sequence[Sequence[int]]]:
            groups, total = inventory.groups(chosen, limit=limit)
            return groups, total, trends_of(inventory, chosen, groups, bars)

        answer = ask_inventory(settings, selection, ask)
        groups, total, trends = answer.found
        hide, masked, conditions = settings.mask.text, [], []
        for group in groups:
            hidden: dict[str, Any] = {name: hide(getattr(group, name)) for name in _HIDDEN}
            masked.append(replace(group, **hidden))
            conditions.append(group.condition() if masked[-1] == group else "")
        return cls(masked, total, answer, conditions, trends)

    def document(self) -> dict[str, Any]:
        """What ``redrive groups --json`` prints."""
        rows = [asdict(group) for group in self.groups]
        return {"total": self.total, "groups": rows, **self.answer.document()}


def trends_of(
    inventory: Inventory, selection: Selection, groups: Sequence[Group], bars: int
) -> Sequence[Sequence[int]]:
    """When the dead letters of each group failed: how many in each of ``bars`` equal times."""
    if not groups or not bars:
        return ()
    since = min(group.first for group in groups)
    seconds = max(1.0, (max(group.last for group in groups) - since).total_seconds() / bars)
    trends: dict[str, list[int]] = {group.condition(): [0] * bars for group in groups}
    for condition, part, number in inventory.arrivals(selection, since, seconds):
        if condition in trends:
            trends[condition][min(bars - 1, part)] += number
    return [trends[group.condition()] for group in groups]


def _show_groups(listed: Groups, selection: Selection, *, mq: bool) -> None:
    groups, total, is_complete = listed.groups, listed.total, not listed.answer.notes
    if not groups:
        click.echo(none_in_words(selection, is_complete=is_complete))
        return
    has_exceptions = any(group.error_class for group in groups)  # dead letters of MQ have none
    has_acknowledged = any(group.acknowledged for group in groups)
    has_repeated = any(group.repeated for group in groups)
    rows = [
        {
            "number": group.count,
            "share": f"{100 * group.count / total:.1f} %",
            **({"acknowledged": group.acknowledged} if has_acknowledged else {}),
            **({"repeated": group.repeated} if has_repeated else {}),
            **_cause(group, mq=mq, has_exceptions=has_exceptions),
            "last failure": failure_text(group.failure, mq=mq),
            "first (UTC)": clock(group.first)[:-4],
            "last (UTC)": clock(group.last)[:-4],
            "example": group.example,
        }
        for group in groups
    ]
    columns = [*rows[0]]
    print_table(
        rows,
        right=[name for name in columns if name in {"share", "acknowledged", "repeated"}],
        folded=columns[2 + has_acknowledged + has_repeated : -3],
        whole=["example"],
    )
    click.echo(f"{counted(total, 'dead letter')} in all{reserve(is_complete=is_complete)}")


def _cause(group: Group, *, mq: bool, has_exceptions: bool) -> dict[str, object]:
    exception = short_class(group.error_class)
    if mq:
        return {
            "reason": reason_text(group.reason),
            **({"exception": exception} if has_exceptions else {}),
            "for": group.destination,
            "put by": group.application,
        }
    if group.reason is None:
        exception = reason_text(None)
    return {"exception": exception, "group": group.consumer_group, "topic": group.destination}


# -- ack ----------------------------------------------------------------------------------------


@click.command()
@config_option
@selection_options
@click.option("--until", default="", metavar="TIME", help="When it ends: 12h, 7d, 4w, or a date.")
@click.option("--note", default="", metavar="TEXT", help="Why they are kept.")
@click.option("--list", "lists", is_flag=True, help="List the acknowledgements in effect.")
@click.option("--undo", default="", metavar="ID", help="End this acknowledgement now.")
@table_options
def ack(
    *,
    config: Path,
    selection: Selection,
    until: str,
    note: str,
    lists: bool,
    undo: str,
    as_json: bool,
) -> None:
    """Acknowledge messages that remain on purpose.

    \b
    redrive ack --handler orders.dlq --rule 12 --until 7d --note "kept for the audit"
    redrive ack --destq billing --until 2027-01-31 --note "ticket 4711"
    redrive ack --list
    redrive ack --undo 5f2ac9d0

    The messages stay as they are: rules and replays treat them as before, and ls, groups and status
    mark them. It covers those that remain now and match the options, as of redrive ls. The metrics
    of unacknowledged messages leave them out, and so do the alerts.

    Exit codes: 0 done, 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    settings = read_settings(config)
    if lists or undo:
        if selection != Selection() or until or note or (lists and undo):
            raise UsageError("--list and --undo stand alone", hint="leave out the other options")
        if lists:
            _list_acknowledgements(settings, as_json=as_json)
        else:
            take_back(settings, undo, this_user())
            if as_json:
                print_json({"undone": undo})
            else:
                click.echo(f"{undo}: removed; these messages raise alerts again")
        return
    made, answer = acknowledge(settings, selection, operator=this_user(), until=until, note=note)
    if as_json:
        print_json(_acknowledgement_document(settings, made, answer.found))
    else:
        click.echo(
            f"{made.id}: {counted(answer.found, 'remaining message')} acknowledged"
            f" until {_end_text(made)} UTC; redrive ack --undo {made.id} removes it"
        )
        print_notes(answer.all_notes())


class NothingRemains(UsageError):
    """No remaining message matches."""


def acknowledge(
    settings: Settings, selection: Selection, *, operator: str, until: str, note: str
) -> tuple[Acknowledgement, Answer[int]]:
    """Acknowledge remaining messages.

    ``until`` and ``note`` are the command's options. Returns the acknowledgement, and how many
    messages it covers.

    Raises:
        NothingRemains: No message matches.
        UsageError: The selection, the time or the note is not valid.
    """
    if selection.state not in {State.OPEN, State.REMAINING}:
        raise UsageError(
            f"--status {selection.state}: these raise no alert", hint="leave out --status"
        )
    if not until or not note:
        raise UsageError("an acknowledgement needs --until and --note")
    try:
        end = parse_until(until, datetime.now(UTC))
    except ValueError as error:
        raise UsageError(
            f"--until {until} is not a future time",
            hint="give 12h, 7d, 4w, or 2027-01-31; 0.1.0 was the last version with forever",
        ) from error
    made = Acknowledgement(
        id=secrets.token_hex(4),
        operator=operator,
        note=note,
        made=datetime.now(UTC),
        until=end,
        selection=replace(selection, state=State.REMAINING),
    )

    def ask(inventory: Inventory, chosen: Selection) -> int:
        nonlocal made
        made = replace(made, selection=_without_bodies(chosen))
        return inventory.covered(made)

    answer = ask_inventory(settings, made.selection, ask)
    if not answer.found:
        raise NothingRemains(
            "no remaining message matches these options",
            hint="redrive ls --status remaining lists remaining messages",
        )
    write_states(settings.job, [made.entry()])
    return made, answer


def _without_bodies(selection: Selection) -> Selection:
    """The selection with a condition that names the messages whose bodies matched."""
    if selection.messages is None:
        return selection
    names = ", ".join(map(sql_text, ["", *sorted(selection.messages)]))  # never an empty list
    named = f"message IN ({names})"
    where = f"({selection.where}) AND {named}" if selection.where else named
    if len(where) > LONGEST:
        raise UsageError(
            f"{len(selection.messages):,} bodies match, more than an acknowledgement can name",
            hint="narrow the search, or acknowledge by other options",
        )
    return replace(selection, where=where, messages=None)


class Acknowledgements(NamedTuple):
    """The acknowledgements in effect, each with the messages that it covers."""

    pairs: Sequence[tuple[Acknowledgement, int]]
    notes: Sequence[str]
    """Why messages may be missing."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Those of a job; errors as for ``Inventory.covered``."""
        current = _in_effect(settings)
        answer = ask_inventory(
            settings, _REMAINING, lambda inventory, _: [*map(inventory.covered, current)]
        )
        return cls([*zip(current, answer.found, strict=True)], answer.notes)

    def document(self, settings: Settings) -> list[dict[str, Any]]:
        """What ``redrive ack --list --json`` prints."""
        return [_acknowledgement_document(settings, *pair) for pair in self.pairs]


def _list_acknowledgements(settings: Settings, *, as_json: bool) -> None:
    current = Acknowledgements.of(settings)
    if as_json:
        print_json(current.document(settings))
        return
    if not current.pairs:
        click.echo("Nothing is acknowledged.")
        return
    hide = settings.mask.text
    rows = [
        {
            "id": acknowledgement.id,
            "messages": number,
            "until (UTC)": _end_text(acknowledgement),
            "by": acknowledgement.operator,
            "note": hide(acknowledgement.note),
            "selection": hide(selection_text(acknowledgement.selection)) or "everything",
        }
        for acknowledgement, number in current.pairs
    ]
    print_table(rows, right=["messages"], folded=["by", "note", "selection"])
    print_notes(current.notes)


def take_back(settings: Settings, name: str, operator: str) -> None:
    """End an acknowledgement now; raises ``UsageError`` if it is not in effect."""
    taken = next(
        (acknowledgement for acknowledgement in _in_effect(settings) if acknowledgement.id == name),
        None,
    )
    if taken is None:
        raise UsageError(
            f"no acknowledgement {name} is in effect", hint="redrive ack --list shows them"
        )
    write_states(settings.job, [taken.undone(operator)])


def _in_effect(settings: Settings) -> Sequence[Acknowledgement]:
    job = settings.job
    with open_cluster(job.connection) as cluster:
        current = acknowledgements_in_effect(job, cluster)
    only = job.only_handlers
    return [
        acknowledgement
        for acknowledgement in current
        if only is None or acknowledgement.selection.handler in only
    ]


def _end_text(acknowledgement: Acknowledgement) -> str:
    until = acknowledgement.until
    return "forever" if until is None else clock(until)[:-7]


def _acknowledgement_document(
    settings: Settings, acknowledgement: Acknowledgement, messages: int
) -> dict[str, Any]:
    hide = settings.mask.text
    return {
        "id": acknowledgement.id,
        "messages": messages,
        "operator": acknowledgement.operator,
        "note": hide(acknowledgement.note),
        "made": acknowledgement.made,
        "until": acknowledgement.until,
        "selection": hide(selection_text(acknowledgement.selection)),
    }

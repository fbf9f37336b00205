"""``redrive ack``: acknowledges messages that remain on purpose."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import click

from redrive.command.opening import Answer, ask_inventory
from redrive.command.options import config_option, table_options
from redrive.command.output import print_json, print_notes, print_table
from redrive.command.selection import selection_options, selection_text
from redrive.errors import UsageError
from redrive.operations.durations import clock, parse_until
from redrive.operations.network import open_cluster
from redrive.operations.process import this_user
from redrive.operations.states import acknowledgements_in_effect, write_states
from redrive.outcomes.acknowledgements import Acknowledgement
from redrive.outcomes.selection import Selection, State
from redrive.printable import counted
from redrive.settings import Settings, read_settings

_REMAINING: Final = Selection(state=State.REMAINING)


@click.command()
@config_option
@selection_options
@click.option("--until", metavar="TIME", help="When it ends: 12h, 7d, 4w, a date, or forever.")
@click.option("--note", default="", metavar="TEXT", help="Why they are kept.")
@click.option("--owner", default="", metavar="NAME", help="Who looks after them.")
@click.option("--include-new", is_flag=True, help="Cover later messages too.")
@click.option(
    "--list",
    "lists",
    is_flag=True,
    help="List the acknowledgements in effect, all or those of --owner.",
)
@click.option("--undo", default="", metavar="ID", help="End this acknowledgement now.")
@table_options
def ack(
    *,
    config: Path,
    selection: Selection,
    until: str | None,
    note: str,
    owner: str,
    include_new: bool,
    lists: bool,
    undo: str,
    as_json: bool,
) -> None:
    """Acknowledge messages that remain on purpose, to suppress alerts about them.

    \b
    redrive ack --handler orders.dlq --rule 12 --until 7d --note "kept for the audit"
    redrive ack --rule 12 --include-new --until 2027-01-31 --note "ACTION(IGNORE) is meant"
    redrive ack --destq billing --until 4w --owner team-billing --note "ticket 4711"
    redrive ack --since 2026-03-01 --older-than 2026-03-02 --until forever --note "archived"
    redrive ack --list
    redrive ack --undo 5f2ac9d0

    The messages stay as they are: rules and replays treat them as before, and ls, groups and status
    mark them. It covers those that remain now and match the options, as of redrive ls; with
    --include-new also later ones. The metrics of unacknowledged messages leave them out, and so do
    the alerts. With --until forever they are archived: groups list them last.

    Exit codes: 0 done, 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    settings = read_settings(config)
    given = selection != Selection() or until or note or include_new or (owner and not lists)
    if lists or undo:
        if given or (lists and undo):
            raise UsageError("--list and --undo stand alone", hint="leave out the other options")
        if lists:
            _list(settings, owner, as_json=as_json)
        else:
            take_back(settings, undo, this_user())
            if as_json:
                print_json({"undone": undo})
            else:
                click.echo(f"{undo}: removed; these messages raise alerts again")
        return
    one, answer = acknowledge(
        settings, selection, operator=this_user(), until=until or "", note=note, owner=owner,
        covers_new=include_new,
    )  # fmt: skip
    if as_json:
        print_json(_document(settings, one, answer.found))
    else:
        until = "forever" if one.until is None else f"until {_moment(one.until)} UTC"
        click.echo(
            f"{one.id}: {counted(answer.found, 'remaining message')} acknowledged"
            f" {until}; redrive ack --undo {one.id} removes it"
        )
        print_notes(answer.all_notes())


class NothingRemains(UsageError):
    """No remaining message matches."""


def acknowledge(
    settings: Settings,
    selection: Selection,
    *,
    operator: str,
    until: str,
    note: str,
    owner: str,
    covers_new: bool,
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
    one = Acknowledgement(
        id=secrets.token_hex(4),
        operator=operator,
        note=note,
        owner=owner,
        made=datetime.now(UTC),
        until=_time(until),
        covers_new=covers_new,
        selection=replace(selection, state=State.REMAINING),
    )
    answer = ask_inventory(settings, one.selection, lambda it: it.covered(one))
    if not answer.found and not covers_new:
        raise NothingRemains(
            "no remaining message matches these options",
            hint="redrive ls --status remaining lists remaining messages; --include-new"
            " covers later ones",
        )
    write_states(settings.job, [one.entry()])
    return one, answer


class Acknowledgements(NamedTuple):
    """The acknowledgements in effect, each with the messages that it covers."""

    pairs: Sequence[tuple[Acknowledgement, int]]
    notes: Sequence[str]
    """Why messages may be missing."""

    @classmethod
    def of(cls, settings: Settings, owner: str = "") -> Self:
        """Those of a job; errors as for ``Inventory.covered``."""
        found = [one for one in _in_effect(settings) if not owner or one.owner == owner]
        answer = ask_inventory(settings, _REMAINING, lambda it: [*map(it.covered, found)])
        return cls([*zip(found, answer.found, strict=True)], answer.notes)

    def document(self, settings: Settings) -> list[dict[str, Any]]:
        """What ``redrive ack --list --json`` prints."""
        return [_document(settings, one, number) for one, number in self.pairs]


def _list(settings: Settings, owner: str, *, as_json: bool) -> None:
    pairs, notes = found = Acknowledgements.of(settings, owner)
    if as_json:
        print_json(found.document(settings))
        return
    if not pairs:
        click.echo(f"Nothing is acknowledged{f' for {owner}' if owner else ''}.")
        return
    hide, has_owners = settings.mask.text, any(one.owner for one, _ in pairs)
    rows = [
        {
            "id": one.id,
            "messages": number,
            "new ones": "yes" if one.covers_new else "no",
            "until (UTC)": "forever" if one.until is None else _moment(one.until),
            **({"owner": one.owner} if has_owners else {}),
            "by": one.operator,
            "note": hide(one.note),
            "selection": hide(selection_text(one.selection)) or "everything",
        }
        for one, number in pairs
    ]
    print_table(rows, right=["messages"], folded=["owner", "by", "note", "selection"])
    print_notes(notes)


def take_back(settings: Settings, name: str, operator: str) -> None:
    """End an acknowledgement now; raises ``UsageError`` if it is not in effect."""
    found = next((one for one in _in_effect(settings) if one.id == name), None)
    if found is None:
        raise UsageError(
            f"no acknowledgement {name} is in effect", hint="redrive ack --list shows them"
        )
    write_states(settings.job, [found.undone(operator)])


def _in_effect(settings: Settings) -> Sequence[Acknowledgement]:
    job = settings.job
    with open_cluster(job.connection) as cluster:
        found = acknowledgements_in_effect(job, cluster)
    only = job.only_handlers
    return [one for one in found if only is None or one.selection.handler in only]


def _time(text: str) -> datetime | None:
    if text == "forever":
        return None
    try:
        return parse_until(text, datetime.now(UTC))
    except ValueError as error:
        raise UsageError(
            f"--until {text} is not a future time", hint="give 12h, 7d, 4w, 2027-01-31, or forever"
        ) from error


def _moment(time: datetime) -> str:
    return clock(time)[:-7]


def _document(settings: Settings, one: Acknowledgement, messages: int) -> dict[str, Any]:
    hide = settings.mask.text
    return {
        "id": one.id,
        "messages": messages,
        "operator": one.operator,
        "owner": one.owner,
        "note": hide(one.note),
        "made": one.made,
        "until": one.until,
        "covers_new": one.covers_new,
        "selection": hide(selection_text(one.selection)),
    }

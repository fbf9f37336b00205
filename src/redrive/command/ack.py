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
    """Acknowledge messages that remain on purpose, to suppress alerts about them.

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
            _list(settings, as_json=as_json)
        else:
            take_back(settings, undo, this_user())
            if as_json:
                print_json({"undone": undo})
            else:
                click.echo(f"{undo}: removed; these messages raise alerts again")
        return
    made, answer = acknowledge(settings, selection, operator=this_user(), until=until, note=note)
    if as_json:
        print_json(_document(settings, made, answer.found))
    else:
        click.echo(
            f"{made.id}: {counted(answer.found, 'remaining message')} acknowledged"
            f" until {_end(made)} UTC; redrive ack --undo {made.id} removes it"
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
    made = Acknowledgement(
        id=secrets.token_hex(4),
        operator=operator,
        note=note,
        made=datetime.now(UTC),
        until=_time(until),
        selection=replace(selection, state=State.REMAINING),
    )
    answer = ask_inventory(settings, made.selection, lambda inventory: inventory.covered(made))
    if not answer.found:
        raise NothingRemains(
            "no remaining message matches these options",
            hint="redrive ls --status remaining lists remaining messages",
        )
    write_states(settings.job, [made.entry()])
    return made, answer


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
            settings, _REMAINING, lambda inventory: [*map(inventory.covered, current)]
        )
        return cls([*zip(current, answer.found, strict=True)], answer.notes)

    def document(self, settings: Settings) -> list[dict[str, Any]]:
        """What ``redrive ack --list --json`` prints."""
        return [_document(settings, one, number) for one, number in self.pairs]


def _list(settings: Settings, *, as_json: bool) -> None:
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
            "until (UTC)": _end(acknowledgement),
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


def _time(text: str) -> datetime:
    try:
        return parse_until(text, datetime.now(UTC))
    except ValueError as error:
        raise UsageError(
            f"--until {text} is not a future time",
            hint="give 12h, 7d, 4w, or 2027-01-31; 0.1.0 was the last version with forever",
        ) from error


def _end(acknowledgement: Acknowledgement) -> str:
    until = acknowledgement.until
    return "forever" if until is None else clock(until)[:-7]


def _document(
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

"""``redrive ls``: the dead letters of a job, and the state of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.text import Text

from redrive.command.history import STYLES, at, plain, reason_text, why
from redrive.command.opening import ask_inventory
from redrive.command.options import config_option, json_option, number_option
from redrive.command.output import print_json, print_notes, print_uncut, table
from redrive.command.selection import none_in_words, reserve, selection_options
from redrive.messages import NO_VALID_SCHEME
from redrive.operations.durations import clock, duration
from redrive.outcomes.inventory import Group, Listing, Selection, state_of
from redrive.printable import printable
from redrive.settings import read_settings

__all__ = ["groups", "ls"]

_HIDDEN: Final = ("destination", "application", "error_class", "consumer_group", "failure")
"""Fields of a group that may hold what ``[mask]`` hides."""


@click.command()
@config_option
@selection_options
@number_option("--limit", 20, 1000, "How many to list, the newest ones.")
@json_option
def ls(*, config: Path, selection: Selection, limit: int, as_json: bool) -> None:
    """List dead letters: those that are parked or remain, or others by their outcome.

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
    answer = ask_inventory(settings, selection, lambda it: it.letters(selection, limit=limit))
    letters = [settings.mask.row(row) for row in answer.found.letters]
    listing = replace(answer.found, letters=letters)
    if as_json:
        rows = [plain(row) for row in letters]
        print_json({"total": listing.total, "dead_letters": rows, **answer.document()})
        return
    _show(listing, selection, is_complete=not answer.notes)
    print_notes(answer.all_notes())


def _show(listing: Listing, selection: Selection, *, is_complete: bool) -> None:
    if not listing.letters:
        click.echo(none_in_words(selection, is_complete=is_complete))
        return
    shown = table(
        "message", "result", "last outcome", "for", "reason", "last failure",
        right=("last outcome",), folded=("for", "reason", "last failure"),
    )  # fmt: skip
    moment = datetime.now(UTC)
    for row in reversed(listing.letters):
        shown.add_row(
            printable(row["message"]),
            Text(state_of(row), style=STYLES.get(row["result"], "")),
            f"{duration((moment - row['time']).total_seconds())} ago",
            at(row["field_destq"], row["field_destqm"]),
            reason_text(None if row["form"] == NO_VALID_SCHEME else row["field_reason"]),
            why(row),
        )
    print_uncut(shown)
    if listing.total > len(listing.letters):
        click.echo(
            f"{len(listing.letters)} of {listing.total}{reserve(is_complete=is_complete)};"
            " --limit shows more"
        )


@click.command()
@config_option
@selection_options
@number_option("--limit", 20, 1000, "How many groups to list, the largest ones.")
@json_option
def groups(*, config: Path, selection: Selection, limit: int, as_json: bool) -> None:
    """Count dead letters by cause: reason, exception, destination, and what failed.

    \b
    redrive groups
    redrive groups --status all --since 1d

    Each group has its number and share, when the first and the last was seen, and one message as an
    example for redrive show.

    Exit codes: 0 listed, also if there are none; 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    settings = read_settings(config)
    answer = ask_inventory(settings, selection, lambda it: it.groups(selection, limit=limit))
    groups, total = answer.found
    hide = settings.mask.text
    found = []
    for one in groups:
        shown: dict[str, Any] = {it: hide(getattr(one, it)) for it in _HIDDEN}
        found.append(replace(one, **shown))
    if as_json:
        rows = [asdict(group) for group in found]
        print_json({"total": total, "groups": rows, **answer.document()})
        return
    _show_groups(found, total, selection, is_complete=not answer.notes)
    print_notes(answer.all_notes())


def _show_groups(
    found: Sequence[Group], total: int, selection: Selection, *, is_complete: bool
) -> None:
    if not found:
        click.echo(none_in_words(selection, is_complete=is_complete))
        return
    causes = ["reason", "exception", "for", "put by", "last failure"]
    if not any(group.error_class for group in found):
        causes.remove("exception")  # dead letters of MQ have none
    shown = table(
        "number", "share", *causes, "first (UTC)", "last (UTC)", "example",
        right=("number", "share"), folded=tuple(causes),
    )  # fmt: skip
    for group in found:
        cells = {
            "reason": reason_text(group.reason),
            "exception": printable(group.error_class.rpartition(".")[2]),
            "for": printable(group.destination),
            "put by": printable(group.application),
            "last failure": printable(group.failure),
        }
        shown.add_row(
            str(group.count),
            f"{100 * group.count / total:.1f} %",
            *(cells[cause] for cause in causes),
            clock(group.first)[:-4],
            clock(group.last)[:-4],
            printable(group.example),
        )
    print_uncut(shown)
    click.echo(f"{total} dead letters in all{reserve(is_complete=is_complete)}")

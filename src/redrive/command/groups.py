"""``redrive groups``: dead letters by cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import click
import orjson

from redrive.command.history import reason_text, tell
from redrive.command.selection import (
    config_option,
    none_in_words,
    notes_about_unread,
    reserve,
    selection_options,
)
from redrive.command.status import print_uncut, table
from redrive.operations.durations import clock
from redrive.outcomes.history import Archive
from redrive.outcomes.inventory import Group, Selection
from redrive.printable import printable
from redrive.settings import read_settings

__all__ = ["groups"]


@click.command()
@config_option
@selection_options
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=1000),
    default=20,
    show_default=True,
    help="How many groups to list, the largest ones.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
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
    archive = Archive(settings.job)
    inventory, notes = archive.inventory()
    with inventory:
        groups, total = inventory.groups(selection, limit=limit)
    unread = archive.unread()
    hidden = settings.mask.text
    found = [
        replace(
            one,
            destination=hidden(one.destination),
            application=hidden(one.application),
            error_class=hidden(one.error_class),
            consumer_group=hidden(one.consumer_group),
            failure=hidden(one.failure),
        )
        for one in groups
    ]
    if as_json:
        content = {
            "total": total,
            "complete": not notes,
            "groups": [asdict(group) for group in found],
            "unread": unread,
            "notes": notes,
        }
        click.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2))
        return
    _show(found, total, selection, is_complete=not notes)
    tell([*notes, *notes_about_unread(unread)])


def _show(found: Sequence[Group], total: int, selection: Selection, *, is_complete: bool) -> None:
    if not found:
        click.echo(none_in_words(selection, is_complete=is_complete))
        return
    causes = ["reason", "exception", "for", "put by", "last failure"]
    if not any(group.error_class for group in found):
        causes.remove("exception")  # dead letters of MQ tell of none
    shown = table(
        "number", "share", *causes, "first (UTC)", "last (UTC)", "example",
        right=("number", "share"), folded=tuple(causes),
    )  # fmt: skip
    for group in found:
        told = {
            "reason": reason_text(group.reason),
            "exception": printable(group.error_class.rpartition(".")[2]),
            "for": printable(group.destination),
            "put by": printable(group.application),
            "last failure": printable(group.failure),
        }
        shown.add_row(
            str(group.count),
            f"{100 * group.count / total:.1f} %",
            *(told[cause] for cause in causes),
            clock(group.first)[:-4],
            clock(group.last)[:-4],
            printable(group.example),
        )
    print_uncut(shown)
    click.echo(f"{total} dead letters in all{reserve(is_complete=is_complete)}")

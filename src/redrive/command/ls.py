"""``redrive ls``: the dead letters of a job, and the state of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from rich.text import Text

from redrive.command.failures import cause, failure_text, reason_text, short_class, shows_mq, why
from redrive.command.history import STYLES, due_text, plain
from redrive.command.opening import ask_inventory
from redrive.command.options import config_option, mq_option, number_option, table_options
from redrive.command.output import print_json, print_notes, print_table
from redrive.command.selection import none_in_words, reserve, selection_options
from redrive.operations.durations import clock, duration
from redrive.outcomes.history import Next, next_steps
from redrive.outcomes.inventory import Group, Inventory, Listing, Selection, state_of
from redrive.outcomes.rows import Row
from redrive.settings import read_settings

_HIDDEN: Final = ("destination", "application", "error_class", "consumer_group", "failure")
"""Fields of a group that may hold what ``[mask]`` hides."""


@click.command()
@config_option
@selection_options
@number_option("--limit", 20, 1000, "How many to list, the newest ones.")
@mq_option
@table_options
def ls(*, config: Path, selection: Selection, limit: int, mq: bool, as_json: bool) -> None:
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

    def ask(inventory: Inventory) -> tuple[Listing, dict[str, Next]]:
        found = inventory.letters(selection, limit=limit)
        return found, next_steps(settings.job, inventory, found.letters)

    answer = ask_inventory(settings, selection, ask)
    found, steps = answer.found
    letters = [settings.mask.row(row) for row in found.letters]
    listing = replace(found, letters=letters)
    if as_json:
        rows = [
            {
                **plain(row),
                **_next_of(steps.get(row["message"])),
                "acknowledged": row["message"] in listing.acknowledged,
            }
            for row in letters
        ]
        print_json({"total": listing.total, "dead_letters": rows, **answer.document()})
        return
    mq = shows_mq(settings.job, mq=mq)
    _show(listing, steps, selection, mq=mq, is_complete=not answer.notes)
    print_notes(answer.all_notes())


def _next_of(step: Next | None) -> dict[str, Any]:
    """What JSON says of the next attempt; empty if none is due."""
    if step is None or step.due is None:
        return {}
    return {"next": {"attempt": step.attempt, "due": clock(step.due), "rule_line": step.rule_line}}


def _show(
    listing: Listing,
    steps: Mapping[str, Next],
    selection: Selection,
    *,
    mq: bool,
    is_complete: bool,
) -> None:
    if not listing.letters:
        click.echo(none_in_words(selection, is_complete=is_complete))
        return
    moment = datetime.now(UTC)
    rows = [
        {
            "message": row["message"],
            "result": _state(row, listing),
            "last outcome": f"{duration((moment - row['time']).total_seconds())} ago",
            **({"next": _next_text(steps.get(row["message"]))} if steps else {}),
            **cause(row, mq=mq),
            "last failure": why(row, mq=mq),
        }
        for row in reversed(listing.letters)
    ]
    print_table(rows, right=["last outcome"], folded=[*rows[0]][3:], whole=["message"])
    if listing.total > len(listing.letters):
        click.echo(
            f"{len(listing.letters)} of {listing.total}{reserve(is_complete=is_complete)};"
            " --limit shows more"
        )


def _state(row: Row, listing: Listing) -> Text:
    state = state_of(row)
    if row["message"] in listing.acknowledged:
        return Text(f"{state}, acknowledged")
    return Text(state, style=STYLES.get(row["result"], ""))


def _next_text(step: Next | None) -> str:
    return "" if step is None or step.due is None else f"{step.attempt} {due_text(step.due)}"


@click.command()
@config_option
@selection_options
@number_option("--limit", 20, 1000, "How many groups to list, the largest ones.")
@mq_option
@table_options
def groups(*, config: Path, selection: Selection, limit: int, mq: bool, as_json: bool) -> None:
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
    mq = shows_mq(settings.job, mq=mq)
    _show_groups(found, total, selection, mq=mq, is_complete=not answer.notes)
    print_notes(answer.all_notes())


def _show_groups(
    found: Sequence[Group], total: int, selection: Selection, *, mq: bool, is_complete: bool
) -> None:
    if not found:
        click.echo(none_in_words(selection, is_complete=is_complete))
        return
    has_exceptions = any(group.error_class for group in found)  # dead letters of MQ have none
    has_acknowledged = any(group.acknowledged for group in found)
    rows = [
        {
            "number": group.count,
            "share": f"{100 * group.count / total:.1f} %",
            **({"acknowledged": group.acknowledged} if has_acknowledged else {}),
            **_cause(group, mq=mq, has_exceptions=has_exceptions),
            "last failure": failure_text(group.failure, mq=mq),
            "first (UTC)": clock(group.first)[:-4],
            "last (UTC)": clock(group.last)[:-4],
            "example": group.example,
        }
        for group in found
    ]
    told = [*rows[0]]
    print_table(
        rows,
        right=[name for name in told if name in {"share", "acknowledged"}],
        folded=told[3 if has_acknowledged else 2 : -3],
        whole=["example"],
    )
    click.echo(f"{total} dead letters in all{reserve(is_complete=is_complete)}")


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

"""``redrive plan``: what another rules table would do with the messages that there are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from redrive.command.options import FILE, config_option, json_option
from redrive.command.output import print_json, print_lines, print_notes
from redrive.command.selection import parse_time
from redrive.configuration import JobConfiguration
from redrive.errors import UsageError
from redrive.settings import Option, read_settings
from redrive.what_if import Over, Question, WhatIf, ask
from redrive.what_if.document import document_of
from redrive.what_if.page import page_of
from redrive.what_if.text import lines_of

_TABLE = click.Path(exists=True, dir_okay=False, path_type=Path)
_LIVE: Final = (Over.REMAINING, Over.PARKED, Over.BACKLOG)
_CHANGES: Final = 2


@click.command()
@click.argument("new", type=_TABLE)
@config_option
@click.option(
    "--old",
    type=_TABLE,
    metavar="FILE",
    help="The table to compare with; by default that of the settings.",
)
@click.option(
    "--handler", "name", metavar="NAME", help="The handler, if the settings have several."
)
@click.option(
    "--over",
    "places",
    type=click.Choice([over.value for over in Over]),
    multiple=True,
    help="Which messages; may be repeated. By default all that wait: remaining, parked, backlog.",
)
@click.option("--since", metavar="TIME", help="History from: 10m, 2h, 7d, or a date.")
@click.option(
    "--spark/--no-spark",
    "by_spark",
    default=None,
    help="Read history with Spark; by default where the ledger has over 4 GB.",
)
@click.option(
    "--html", "page", type=FILE, metavar="FILE", help="Write a report with pictures to FILE."
)
@json_option
@click.pass_context
def plan(
    context: click.Context,
    *,
    new: Path,
    config: Path,
    old: Path | None,
    name: str | None,
    places: Sequence[str],
    since: str | None,
    by_spark: bool | None,
    page: Path | None,
    as_json: bool,
) -> None:
    """Show what the rules table NEW would do with the messages that there are.

    \b
    redrive plan orders-new.rul
    redrive plan orders-new.rul --over history --since 7d --html report.html
    git show main:orders.rul | redrive plan orders.rul --old /dev/stdin

    Both tables are tried on every message, as the job decides about it; nothing is written and the
    job may run meanwhile. Messages that were kept and would be thrown away come first. History is
    what the ledger knows, by match fields, each dead letter as if it came anew.

    Exit codes: 0 nothing changes for any message, 2 something does or usage, 1 error.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    over = tuple(Over(place) for place in places) or _LIVE
    if since is not None and Over.HISTORY not in over:
        raise UsageError("--since is for history", hint="add --over history")
    if by_spark and Over.HISTORY not in over:
        raise UsageError("--spark is for history", hint="add --over history")
    settings = read_settings(config)
    job = settings.job
    index = _index_of(job, name, new)
    answer = asked(
        Question(
            old=job if old is None else _with_table(config, index, old),
            new=_with_table(config, index, new),
            handler=job.handlers[index].identity.name,
            over=over,
            since=None if since is None else parse_time("--since", since),
            by_spark=by_spark,
            mask=settings.mask,
        )
    )
    if page is not None:
        page.write_text(page_of(answer, datetime.now(UTC)), encoding="utf-8")
    show(answer, as_json=as_json)
    if page is not None:
        click.echo(f"the report is in {page}", err=True)
    context.exit(_CHANGES if answer.changed else 0)


def asked(question: Question) -> WhatIf:
    """The answer to a question, with a progress bar on a terminal."""
    columns = (TextColumn("Trying"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)
        return ask(
            replace(
                question,
                processes=os.cpu_count() or 1,
                begun=lambda total: bar.update(task, total=total),
                advance=lambda number: bar.advance(task, number),
            )
        )


def show(answer: WhatIf, *, as_json: bool) -> None:
    """Print an answer."""
    if as_json:
        print_json(document_of(answer))
        return
    print_lines(lines_of(answer))
    print_notes(answer.notes)


def _index_of(job: JobConfiguration, name: str | None, new: Path) -> int:
    """The handler that a table is for: the one that is named, or reads this file, or is alone."""
    names = [handler.identity.name for handler in job.handlers]
    if name is not None:
        if name not in names:
            raise UsageError(f"there is no handler {name}", hint=f"there are {', '.join(names)}")
        return names.index(name)
    same = [
        index
        for index, handler in enumerate(job.handlers)
        if Path(handler.rules_name).resolve() == new.resolve()
    ]
    if len(job.handlers) == 1 or len(same) == 1:
        return same[0] if same else 0
    raise UsageError(
        f"the settings have {len(names)} handlers, and the table may be for any of them",
        hint=f"add --handler with one of {', '.join(names)}",
    )


def _with_table(config: Path, index: int, table: Path) -> JobConfiguration:
    """The job as the settings make it with another table; it is checked as ``run`` does."""
    option = Option(("handlers", index, "rules"), str(table), str(table.absolute()))
    return read_settings(config, options=[option]).job

"""``redrive tables``: the rules tables that have run, with their text and their hits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from redrive.checkpoints.tables import KeptTable
from redrive.command.options import (
    handler_option,
    json_option,
    optional_config_option,
    table_options,
)
from redrive.command.output import print_json, print_lines, print_notes, print_table
from redrive.configuration import JobConfiguration
from redrive.errors import EnvironmentFault
from redrive.operations.durations import clock
from redrive.operations.tables import SHORT_HASH, Applied, TableHits, Tables, hits_of, tables_of
from redrive.settings import default_file, read_settings_for_lookup

_HITS: Final = ("hits", "last hit (UTC)")
"""Columns of what ``_cells`` returns."""


@click.group(invoke_without_command=True)
@optional_config_option
@handler_option
@click.option("--hits", is_flag=True, help="Count from the ledger how often each was applied.")
@table_options
@click.pass_context
def tables(
    context: click.Context, *, config: Path | None, handler: str | None, hits: bool, as_json: bool
) -> None:
    """List the rules tables that have run: when and by whom.

    \b
    redrive tables
    redrive tables --hits
    redrive tables show 3f2a9c
    redrive restart --table 3f2a9c        restore it

    A table is identified by the hash of its meaning; comments and layout do not matter. A job keeps
    its tables in the topic redrive-<application>-tables.

    Exit codes: 0 listed, 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    context.obj = config
    if context.invoked_subcommand is not None:
        return
    job = _job(context, None)
    ran = tables_of(job)
    listed = [table for table in ran.tables if handler in (None, table.handler)]
    counted, notes = hits_of(job, listed) if hits else ({}, ())
    notes = (*ran.notes, *notes)
    if as_json:
        content = {
            "tables": [table_document(kept, ran, counted) for kept in listed],
            "complete": not notes,
            "notes": notes,
        }
        print_json(content)
        return
    _show(listed, ran, counted, hits=hits)
    print_notes(notes)


@tables.command()
@click.argument("digits", metavar="HASH")
@optional_config_option
@handler_option
@click.option("--raw", is_flag=True, help="Print the text only.")
@json_option
@click.pass_context
def show(
    context: click.Context,
    *,
    digits: str,
    config: Path | None,
    handler: str | None,
    raw: bool,
    as_json: bool,
) -> None:
    """Print a table that has run, with the number of hits of each rule.

    HASH is an unambiguous prefix of its hash.

    \b
    redrive tables show 3f2a9c
    redrive tables show 3f2a9c --raw > orders.rul

    Exit codes: 0 shown, 1 error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    job = _job(context, config)
    ran = tables_of(job)
    kept = ran.find(digits, handler)
    text = required_text(kept)
    if raw:
        click.echo(text, nl=False)
        return
    try:
        counted, notes = hits_of(job, [kept])
    except EnvironmentFault as fault:
        hint = f"--raw prints the table without hits; {fault.hint}"
        raise EnvironmentFault(fault.message, hint=hint) from fault
    notes = (*ran.notes, *notes)
    if as_json:
        content = {**table_document(kept, ran, counted), "text": text, "notes": notes}
        print_json(content)
        return
    current = ", active" if ran.is_current(kept) else ""
    described = (
        f"table {kept.hash}{current}",
        f"handler {kept.handler}, from {kept.name}",
        f"first run {_moment(kept.first_run)} UTC by {kept.first_by}",
        f"last run {_moment(kept.last_run)} UTC by {kept.last_by}",
        "",
    )
    print_lines(described)
    print_lines(_with_hits(text, kept, counted[kept.key]))
    print_notes(notes)


def required_text(kept: KeptTable) -> str:
    """The text of a table; raises ``EnvironmentFault`` if it was too long to be kept."""
    if kept.text is None:
        raise EnvironmentFault(
            f"the table {kept.hash[:SHORT_HASH]} was too long for the topic, which has only"
            " its hash",
            hint="look for its file",
        )
    return kept.text


def _job(context: click.Context, config: Path | None) -> JobConfiguration:
    return read_settings_for_lookup(config or context.obj or default_file()).job


def _show(
    listed: Sequence[KeptTable], ran: Tables, counted: Mapping[str, TableHits], *, hits: bool
) -> None:
    if not listed:
        reserve = ", as far as could be read" if ran.notes else ""
        click.echo(f"No table has run{reserve}.")
        return
    rows = [
        {
            "hash": kept.hash[:SHORT_HASH],
            "handler": kept.handler,
            "first run (UTC)": _moment(kept.first_run),
            "last run (UTC)": _moment(kept.last_run),
            "by": kept.last_by,
            "rules": len(kept.layouts[-1].lines),
            "current": "yes" if ran.is_current(kept) else "",
            **(dict(zip(_HITS, _cells(counted[kept.key].total), strict=True)) if hits else {}),
        }
        for kept in listed
    ]
    print_table(rows, right=["hits"], folded=["handler", "by"])


def _cells(applied: Applied) -> list[str]:
    last = "" if applied.last is None else clock(applied.last)[:-4]
    return [str(applied.count), last]


def _with_hits(text: str, kept: KeptTable, hits: TableHits) -> Iterator[str]:
    beside = {
        line: _cells(applied)
        for line, applied in zip(kept.layouts[-1].lines, hits.rules, strict=True)
    }
    width = max(len("hits"), *(len(number) for number, _ in beside.values()))
    yield f"{'hits':>{width}}  {'last hit (UTC)':19}  line"
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        count, last = beside.get(number, ("", ""))
        yield f"{count:>{width}}  {last:19}  {number:4}  {line}".rstrip()


def _moment(seconds: float) -> str:
    return clock(datetime.fromtimestamp(seconds, UTC))[:-4]


def table_document(
    kept: KeptTable, ran: Tables, counted: Mapping[str, TableHits]
) -> dict[str, Any]:
    """A table as ``redrive tables --json`` prints it; with ``counted``, also its hits."""
    hits = counted.get(kept.key)
    lines = kept.layouts[-1].lines
    return {
        "hash": kept.hash,
        "handler": kept.handler,
        "name": kept.name,
        "first_run": datetime.fromtimestamp(kept.first_run, UTC),
        "first_by": kept.first_by,
        "last_run": datetime.fromtimestamp(kept.last_run, UTC),
        "last_by": kept.last_by,
        "current": ran.is_current(kept),
        "hits": None if hits is None else asdict(hits.total),
        "rules": [
            {"line": line, **({} if hits is None else asdict(hits.rules[number]))}
            for number, line in enumerate(lines)
        ],
    }

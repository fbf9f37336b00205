"""What rules tables would do with the messages that exist; nothing is written.

Four commands share this: ``redrive plan`` compares two tables, ``redrive restart --plan`` compares
the current tables with the new ones, ``redrive run --dry-run`` and ``redrive explain --topic`` try
one table each.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import click

from redrive.command.options import EXISTING_FILE, config_option, json_option
from redrive.command.output import print_json, print_lines, print_notes, progress_bar
from redrive.command.selection import parse_time
from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.errors import UsageError
from redrive.operations.network import open_cluster
from redrive.operations.record_view import existing_topic
from redrive.settings import (
    Document,
    Option,
    Settings,
    read_settings,
    settings_of,
    with_environment,
)
from redrive.topology.names import escape
from redrive.what_if import Over, Question, WhatIf, ask
from redrive.what_if.answer import document_of_table
from redrive.what_if.text import lines_of, lines_of_table

_LIVE: Final = (Over.REMAINING, Over.PARKED, Over.BACKLOG)
_CHANGES: Final = 2
_PUTS: Final = "puts to queue managers are not included: see redrive resolve"


@click.command()
@click.argument("new", type=EXISTING_FILE)
@config_option
@click.option(
    "--old",
    type=EXISTING_FILE,
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
    help="Which messages; may be repeated. Default: all that wait (remaining, parked, backlog).",
)
@click.option("--since", metavar="TIME", help="History that failed since: 10m, 2h, 7d, or a date.")
@click.option(
    "--spark/--no-spark",
    "by_spark",
    default=None,
    help="Read history with Spark; by default where the ledger has over 4 GB.",
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
    as_json: bool,
) -> None:
    """Show what the rules table NEW would do with the existing messages.

    \b
    redrive plan orders-new.rul
    redrive plan orders-new.rul --over history --since 7d --json
    git show main:orders.rul | redrive plan orders.rul --old /dev/stdin

    Both tables are tried on every message, as the job would decide; nothing is written, and the job
    may run meanwhile. Messages that were kept and would be discarded come first. History is the
    ledger's match fields, with each dead letter as if it were new.

    Exit codes: 0 nothing changes for any message, 2 something does or usage, 1 error.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    over = tuple(Over(place) for place in places) or _LIVE
    for option, is_given in (("--since", since is not None), ("--spark", by_spark)):
        if is_given and Over.HISTORY not in over:
            raise UsageError(f"{option} is for history", hint="add --over history")
    settings = read_settings(config)
    job = settings.job
    index = _index_of(job, name, new)
    answer = ask_with_progress(
        Question(
            old=job if old is None else with_table(config, old, job.handlers[index]).job,
            new=with_table(config, new, job.handlers[index]).job,
            handler=job.handlers[index].identity.name,
            over=over,
            since=None if since is None else parse_time("--since", since),
            by_spark=by_spark,
            mask=settings.mask,
        )
    )
    show(answer, as_json=as_json)
    context.exit(_CHANGES if answer.changed else 0)


def ask_with_progress(question: Question) -> WhatIf:
    """The answer to a question, with its progress."""
    with progress_bar("Trying") as show_progress:
        return ask(replace(question, show_progress=show_progress))


def show(answer: WhatIf, *, as_json: bool) -> None:
    """Print an answer."""
    if as_json:
        print_json(asdict(answer))
        return
    print_lines(lines_of(answer))
    print_notes(answer.notes)


def _index_of(job: JobConfiguration, name: str | None, new: Path) -> int:
    """The handler of a table: the named one, the one that reads this file, or the only one."""
    if name is not None:
        return handler_index(job, name)
    same = [
        index
        for index, handler in enumerate(job.handlers)
        if Path(handler.rules_name).resolve() == new.resolve()
    ]
    if len(job.handlers) == 1 or len(same) == 1:
        return same[0] if same else 0
    names = [handler.identity.name for handler in job.handlers]
    raise UsageError(
        f"the settings have {len(names)} handlers, and the table may be for any of them",
        hint=f"add --handler with one of {', '.join(names)}",
    )


def handler_index(job: JobConfiguration, name: str) -> int:
    """The index of the handler with this name; raises ``UsageError`` if there is none."""
    names = [handler.identity.name for handler in job.handlers]
    if name not in names:
        raise UsageError(f"there is no handler {name}", hint=f"there are {', '.join(names)}")
    return names.index(name)


def with_table(config: Path, table: Path, *handlers: HandlerConfiguration) -> Settings:
    """The settings with another table for handlers, checked as by ``run``.

    Raises ``ConfigurationError``.
    """
    sections = {handler.section for handler in handlers}
    return read_settings(config, options=[_table_option(section, table) for section in sections])


def _table_option(index: int, table: Path) -> Option:
    return Option(("handlers", index, "rules"), str(table), str(table.absolute()))


def try_table(
    table: Path, topic: str, *, config: Path | None, bootstrap_server: str, as_json: bool
) -> None:
    """Try any table on the messages that wait on one dead-letter topic; nothing is written.

    Without settings ``bootstrap_server`` is the broker of a job that is not set up yet.

    Raises:
        UsageError: The settings have no handler for the topic.
        ConfigurationError: The settings or the table have errors.
        EnvironmentFault: The topic does not exist.
    """
    if config is None:
        options = [
            Option(("kafka", "bootstrap_servers"), "--bootstrap-server", bootstrap_server),
            Option(("application", "name"), "--topic", escape(topic)),
            Option(("handlers", 0, "queue"), "--topic", topic),
            _table_option(0, table),
        ]
        document = with_environment(Document.empty(), os.environ)
        settings = settings_of(document.with_options("redrive explain", options))
    else:
        job = read_settings(config).job
        topics = [handler.identity.topic for handler in job.handlers]
        if topic not in topics:
            raise UsageError(
                f"the settings have no handler for {topic}",
                hint=f"they have handlers for {', '.join(topics) or 'no topic'}; try another topic"
                " with --bootstrap-server instead of the settings",
            )
        settings = with_table(config, table, job.handlers[topics.index(topic)])
    try_tables(settings, topic=topic, as_json=as_json)


def try_tables(settings: Settings, *, topic: str = "", as_json: bool) -> None:
    """Try each table on the messages that wait for its handler; nothing is written.

    ``topic`` is the topic of the only handler to try; empty for all of them.

    Raises:
        UsageError: There is no rules table.
        EnvironmentFault: A dead-letter topic does not exist.
    """
    job = settings.job
    if not job.handlers:
        raise UsageError("there is no rules table to try", hint="redrive resolve traces a put")
    handlers = [handler for handler in job.handlers if topic in {"", handler.identity.topic}]
    with open_cluster(job.connection) as cluster:
        for handler in handlers:
            existing_topic(cluster, handler.identity.topic)
    questions = [
        # Both tables are the job's own, so the answer is what the job itself would do.
        Question(old=job, new=job, handler=handler.identity.name, over=_LIVE, mask=settings.mask)
        for handler in handlers
    ]
    answers = [ask_with_progress(question) for question in questions]
    if as_json:
        print_json({"handlers": [document_of_table(answer) for answer in answers]})
        return
    for answer in answers:
        print_lines([*lines_of_table(answer), ""])
    print_lines(["nothing was put, and all positions are unchanged"])
    print_notes(dict.fromkeys(note for answer in answers for note in answer.notes))
    if job.topology:
        print_notes([_PUTS])

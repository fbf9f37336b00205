"""``redrive run --dry-run``: what the job would do with what waits now, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click
import orjson

from redrive.command.plan import asked
from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.diagnostics import did_you_mean
from redrive.errors import EnvironmentFault, UsageError
from redrive.kafka.access import check_access
from redrive.kafka.cluster import Cluster
from redrive.printable import printable
from redrive.settings import Settings
from redrive.what_if import Over, Question, WhatIf
from redrive.what_if.one_table import document_of_table, lines_of_table

__all__ = ["show_tables", "try_tables"]

_LIVE: Final = (Over.BACKLOG, Over.PARKED, Over.REMAINING)
_ANSWER_TIMEOUT: Final = 15.0
"""Seconds for one answer of the cluster."""
_PUTS: Final = "puts to the queue managers of the topology are not tried: redrive resolve tells"


def try_tables(settings: Settings, *, as_json: bool) -> None:
    """Try each table on what waits for its handler, and write nothing.

    Args:
        settings: The job's settings.
        as_json: Whether to print JSON.

    Raises:
        UsageError: There is no rules table.
        EnvironmentFault: The cluster can't be reached, or a dead-letter topic is not there.
        TransientFault: The broker gave no answer in time.
    """
    job = settings.job
    if not job.handlers:
        raise UsageError(
            "there is no rules table to try", hint="redrive resolve shows the way of a put"
        )
    check_access(job.connection)
    _check_topics(job)
    answers = [asked(_question(settings, handler)) for handler in job.handlers]
    show_tables(answers, as_json=as_json)
    if job.topology and not as_json:
        click.echo(f"{click.style('note:', fg='yellow')} {_PUTS}", err=True)


def show_tables(answers: list[WhatIf], *, as_json: bool) -> None:
    """Print what the tables of some handlers would do."""
    if as_json:
        documents = [document_of_table(one) for one in answers]
        click.echo(orjson.dumps({"handlers": documents}, option=orjson.OPT_INDENT_2))
        return
    for line in _lines(answers):
        click.echo(printable(line))
    for note in dict.fromkeys(note for one in answers for note in one.notes):
        click.echo(f"{click.style('note:', fg='yellow')} {printable(note)}", err=True)


def _lines(answers: list[WhatIf]) -> Iterator[str]:
    for number, answer in enumerate(answers):
        if number:
            yield ""
        yield from lines_of_table(answer)
    yield ""
    yield "nothing was written, and no position was moved"


def _question(settings: Settings, handler: HandlerConfiguration) -> Question:
    """The question whose answer is what the job itself would do: both tables are its own."""
    return Question(
        old=settings.job,
        new=settings.job,
        handler=handler.identity.name,
        over=_LIVE,
        mask=settings.mask,
    )


def _check_topics(job: JobConfiguration) -> None:
    with Cluster.open(job.connection, timeout=_ANSWER_TIMEOUT) as cluster:
        known = cluster.topics()
    for handler in job.handlers:
        if (topic := handler.identity.topic) not in known:
            raise EnvironmentFault(
                f"there is no topic {topic}",
                hint=did_you_mean(topic, known) or "names are case-sensitive",
            )

"""What the job would do with what waits now, and nothing else.

For ``redrive run --dry-run`` with the tables of the job, for ``redrive explain --topic`` with any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from redrive.command.opening import open_cluster
from redrive.command.output import print_json, print_lines, print_notes
from redrive.command.plan import asked
from redrive.configuration import HandlerConfiguration, JobConfiguration
from redrive.diagnostics import did_you_mean
from redrive.errors import EnvironmentFault, UsageError
from redrive.settings import Document, Option, Settings, read_settings, settings_of
from redrive.topology.names import escape
from redrive.what_if import Over, Question, WhatIf
from redrive.what_if.one_table import document_of_table, lines_of_table

_LIVE: Final = (Over.BACKLOG, Over.PARKED, Over.REMAINING)
_PUTS: Final = "puts to the queue managers of the topology are not tried: see redrive resolve"


def try_table(
    table: Path, topic: str, *, config: Path | None, bootstrap_server: str, as_json: bool
) -> None:
    """Try any table on what waits on one dead-letter topic, and write nothing.

    Args:
        table: The table.
        topic: The topic.
        config: The settings of the job that handles it; None for ``bootstrap_server``.
        bootstrap_server: The broker of a job that is not set up yet.
        as_json: Whether to print JSON.

    Raises:
        UsageError: The settings have no handler for the topic.
        ConfigurationError: The settings or the table have errors.
        EnvironmentFault: The cluster can't be reached, or the topic is not there.
        TransientFault: The broker gave no answer in time.
    """
    if config is None:
        settings = _without_file(table, topic, bootstrap_server)
    else:
        index = _handler_of(read_settings(config).job, topic)
        rules = Option(("handlers", index, "rules"), str(table), str(table.absolute()))
        settings = read_settings(config, options=[rules])
    try_tables(settings, topic=topic, as_json=as_json)


def try_tables(settings: Settings, *, topic: str = "", as_json: bool) -> None:
    """Try each table on what waits for its handler, and write nothing.

    Args:
        settings: The job's settings.
        topic: The topic of the one handler that is meant; empty for all of them.
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
    handlers = [one for one in job.handlers if topic in {"", one.identity.topic}]
    _check_topics(job, handlers)
    show_tables([asked(_question(settings, one)) for one in handlers], as_json=as_json)
    if job.topology and not as_json:
        print_notes([_PUTS])


def show_tables(answers: list[WhatIf], *, as_json: bool) -> None:
    """Print what the tables of some handlers would do."""
    if as_json:
        documents = [document_of_table(one) for one in answers]
        print_json({"handlers": documents})
        return
    print_lines(_lines(answers))
    print_notes(dict.fromkeys(note for one in answers for note in one.notes))


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


def _without_file(table: Path, topic: str, bootstrap_server: str) -> Settings:
    """The settings of ``redrive run --dlq TOPIC --rules TABLE``: what it did is not asked again."""
    options = [
        Option(("kafka", "bootstrap_servers"), "--bootstrap-server", bootstrap_server),
        Option(("application", "name"), "--topic", escape(topic)),
        Option(("handlers", 0, "queue"), "--topic", topic),
        Option(("handlers", 0, "rules"), str(table), str(table.absolute())),
    ]
    return settings_of(Document.empty().with_options("redrive explain", options))


def _handler_of(job: JobConfiguration, topic: str) -> int:
    topics = [handler.identity.topic for handler in job.handlers]
    if topic not in topics:
        raise UsageError(
            f"the settings have no handler for {topic}",
            hint=f"they have some for {', '.join(topics) or 'nothing'}; any other topic can be"
            " tried with --bootstrap-server in the place of the settings",
        )
    return topics.index(topic)


def _check_topics(job: JobConfiguration, handlers: Sequence[HandlerConfiguration]) -> None:
    with open_cluster(job.connection) as cluster:
        known = cluster.topics()
    for handler in handlers:
        if (topic := handler.identity.topic) not in known:
            raise EnvironmentFault(
                f"there is no topic {topic}",
                hint=did_you_mean(topic, known) or "names are case-sensitive",
            )

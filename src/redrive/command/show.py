"""``redrive show``: shows one dead letter with its body, its headers and its history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.text import Text

from redrive.command import record
from redrive.command.failures import shows_mq
from redrive.command.history import document_of, masked, print_history
from redrive.command.options import choice_option, config_option, mq_option, table_options
from redrive.command.output import console, print_json
from redrive.configuration import JobConfiguration
from redrive.errors import NotFoundError, RedriveError, TransientFault
from redrive.kafka.records import StoredRecord
from redrive.operations.network import open_cluster
from redrive.operations.record_view import RecordView, read_record, record_place
from redrive.operations.schema_registry import SchemaRegistry
from redrive.outcomes.bodies import Lost
from redrive.outcomes.history import Archive, History, NotFound
from redrive.settings import Settings, read_settings


@click.command()
@click.argument("identity", metavar="ID")
@config_option
@choice_option(
    "--body",
    "form",
    values=record.FORMS,
    default="auto",
    help_text="How to print the body; auto is by its schema, JSON, text, or else hex.",
)
@click.option("--all", "whole", is_flag=True, help="Print the whole body, however long it is.")
@mq_option
@table_options
def show(*, identity: str, config: Path, form: str, whole: bool, mq: bool, as_json: bool) -> None:
    """Show one dead letter: why it failed, headers, body, and its history.

    \b
    redrive show orders.dlq:0:4711
    redrive show orders.dlq:0:4711 --body hex --all

    ID is topic:partition:offset, as redrive ls prints it. The body is read from the dead-letter
    topic or, if it was deleted there, from the topic where the message waits. A record without an
    outcome is shown too. Values that [mask] of the settings names are shown as ***.

    Exit codes: 0 shown, also without the body; 1 no such message or an error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    settings = read_settings(config)
    answer, found = find_message(settings, identity)
    if as_json:
        print_json(message_document(settings, answer, found))
        return
    lines = console()
    if answer:
        print_history(answer, mq=shows_mq(settings.job, mq=mq))
        lines.print()
    if isinstance(found, Lost):
        lines.print(Text(f"body: {found.reason}", style="yellow"))
        return
    for line in record.lines(_view(found, settings), form, whole=whole):
        lines.print(Text(line), soft_wrap=True)
    if not answer:
        lines.print(Text("no outcome yet: the job has not handled it", style="yellow"))


def find_message(
    settings: Settings, identity: str, *, of_handlers: bool = False
) -> tuple[History | None, StoredRecord | Lost]:
    """The masked history of a message, and its record.

    The history is None if the job has not handled the record. With ``of_handlers``, which a job
    that is restricted to some handlers implies, only topics of these have records without one.

    Raises:
        NotFoundError: There is neither an outcome nor a record.
    """
    archive = Archive(settings.job)
    answer = archive.history(identity)
    if not isinstance(answer, NotFound):
        return masked(answer, settings.mask), archive.record(answer.last)
    is_limited = of_handlers or settings.job.only_handlers is not None
    if is_limited and identity.partition(":")[0] not in _topics(settings.job):
        raise NotFoundError(answer.reason)  # no hint, which would be about other topics
    try:
        with open_cluster(settings.job.connection) as cluster:
            return None, read_record(cluster, *record_place(identity))
    except (RedriveError, TransientFault):
        raise NotFoundError(answer.reason, hint=answer.hint) from None


def _topics(job: JobConfiguration) -> set[str]:
    names = (one.identity for one in job.handlers)
    return {
        topic for one in names for topic in (one.topic, *one.waiting_topics, one.remaining_topic)
    }


def message_document(
    settings: Settings, answer: History | None, found: StoredRecord | Lost
) -> dict[str, Any]:
    """What ``redrive show --json`` prints of what ``find_message`` found."""
    content = document_of(answer) if answer else {"outcomes": []}
    return {**content, "record": _in_json(found, settings)}


def _view(found: StoredRecord, settings: Settings) -> RecordView:
    registry = None if settings.registry is None else SchemaRegistry(settings.registry)
    return RecordView.of(found, settings.job.scheme_table, settings.mask, registry)


def _in_json(found: StoredRecord | Lost, settings: Settings) -> dict[str, Any]:
    if isinstance(found, Lost):
        return {"lost": found.reason}
    view = _view(found, settings)
    header = view.profile.header
    return {
        **record.as_json(view),
        "topic": found.lane.topic,
        "partition": found.lane.partition,
        "offset": found.offset,
        "dead_letter": None if header is None else header.fields(),
        "body_hex": None if view.body is None else view.body.hex(),
        "body": None if view.body is None else record.text_or_none(view.body),
    }

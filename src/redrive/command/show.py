"""``redrive show``: one dead letter with its body, its headers and its whole story."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import orjson
from rich.text import Text

from redrive.command import record
from redrive.command.history import document_of, masked, story
from redrive.command.selection import config_option
from redrive.command.status import console
from redrive.errors import RedriveError, TransientFault
from redrive.kafka.cluster import Cluster
from redrive.kafka.records import StoredRecord
from redrive.messages import SchemeTable
from redrive.operations.record_view import RecordView, read_record, record_place
from redrive.operations.schema_registry import SchemaRegistry
from redrive.outcomes.bodies import Lost
from redrive.outcomes.history import Archive, History, NotFound
from redrive.settings import Settings, read_settings

__all__ = ["show"]

_ANSWER_TIMEOUT: Final = 10.0
"""Seconds to wait for one answer of the cluster."""


@click.command()
@click.argument("identity", metavar="ID")
@config_option
@click.option(
    "--body",
    "form",
    type=click.Choice(record.FORMS),
    default="auto",
    show_default=True,
    help="How to print the body; auto is by its schema, JSON, text, or else hex.",
)
@click.option("--all", "whole", is_flag=True, help="Print the whole body, however long it is.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(*, identity: str, config: Path, form: str, whole: bool, as_json: bool) -> None:
    """Show one dead letter: why it failed, headers, body, and all that happened to it.

    \b
    redrive show orders.dlq:0:4711
    redrive show orders.dlq:0:4711 --body hex --all

    ID is topic:partition:offset, as redrive ls prints it. The body is read from the dead-letter
    topic or, if that has deleted it, from the topic where the message waits. A record that was
    never decided about is shown as it is. What [mask] of the settings names is shown as ***.

    Exit codes: 0 shown, also if the body is gone; 1 no such message or an error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    settings = read_settings(config)
    how = _Form(form, whole, as_json)
    archive = Archive(settings.job)
    answer = archive.history(identity)
    if isinstance(answer, NotFound):
        _show(None, _undecided(settings, identity, answer), settings, how)
        return
    found = archive.record(answer.last)
    _show(masked(answer, settings.mask), found, settings, how)


def _undecided(settings: Settings, identity: str, answer: NotFound) -> StoredRecord:
    """The record at a place about which there is no outcome."""
    try:
        with Cluster.open(settings.job.connection, timeout=_ANSWER_TIMEOUT) as cluster:
            return read_record(cluster, *record_place(identity))
    except (RedriveError, TransientFault):
        raise RedriveError(answer.reason, hint=answer.hint) from None


class _Form(NamedTuple):
    """How a record is to be shown."""

    body: str
    whole: bool
    as_json: bool


def _show(
    answer: History | None, found: StoredRecord | Lost, settings: Settings, form: _Form
) -> None:
    schemes = SchemeTable(one.scheme() for one in settings.job.schemes)
    registry = None if settings.registry is None else SchemaRegistry(settings.registry)
    view = (
        None if isinstance(found, Lost) else RecordView.of(found, schemes, settings.mask, registry)
    )
    if form.as_json:
        content = document_of(answer) if answer else {"outcomes": []}
        click.echo(
            orjson.dumps({**content, "record": _in_json(view, found)}, option=orjson.OPT_INDENT_2)
        )
        return
    lines = console()
    if answer:
        story(answer)
        lines.print()
    if view is None or isinstance(found, Lost):
        lines.print(Text(f"body: {_reason(found)}", style="yellow"))
        return
    for line in record.lines(view, form.body, whole=form.whole):
        lines.print(Text(line), soft_wrap=True)
    if not answer:
        lines.print(Text("no outcome yet: the job has not decided about it", style="yellow"))


def _reason(found: StoredRecord | Lost) -> str:
    return found.reason if isinstance(found, Lost) else ""


def _in_json(view: RecordView | None, found: StoredRecord | Lost) -> dict[str, Any]:
    if view is None or isinstance(found, Lost):
        return {"lost": _reason(found)}
    header = view.letter.header
    return {
        **record.as_json(view),
        "topic": found.lane.topic,
        "partition": found.lane.partition,
        "offset": found.offset,
        "dead_letter": None if header is None else header.fields(),
        "body_hex": None if view.body is None else view.body.hex(),
        "body": None if view.body is None else record.text_or_none(view.body),
    }

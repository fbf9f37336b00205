"""``redrive show``: one dead letter with its body, its headers and its whole story."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import orjson
from rich.text import Text

from redrive.command.history import document_of, story
from redrive.command.selection import config_option
from redrive.command.status import console
from redrive.errors import RedriveError
from redrive.kafka.records import StoredRecord
from redrive.messages import decode_dead_letter, remove_header
from redrive.messages.own_headers import PREFIX
from redrive.outcomes.bodies import Lost
from redrive.outcomes.history import Archive, NotFound
from redrive.printable import printable
from redrive.settings import read_settings

__all__ = ["show"]

_LINE: Final = 16
"""Bytes on one line of a hexadecimal body."""
_SHOWN: Final = 4_096
"""Bytes of a body that are shown unless all are asked for."""


@click.command()
@click.argument("identity", metavar="ID")
@config_option
@click.option(
    "--body",
    "form",
    type=click.Choice(["auto", "text", "json", "hex", "none"]),
    default="auto",
    show_default=True,
    help="How to print the body; auto is JSON if it is JSON, text if it is text, else hex.",
)
@click.option("--all", "whole", is_flag=True, help="Print the whole body, however long it is.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(*, identity: str, config: Path, form: str, whole: bool, as_json: bool) -> None:
    """Show one dead letter: body, headers, and everything that happened to it.

    \b
    redrive show orders.dlq:0:4711
    redrive show orders.dlq:0:4711 --body hex --all

    ID is topic:partition:offset, as redrive ls prints it. The body is read from the dead-letter
    topic or, if that has deleted it, from the topic where the message waits.

    Exit codes: 0 shown, also if the body is gone; 1 no such message or an error, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    archive = Archive(read_settings(config).job)
    answer = archive.history(identity)
    if isinstance(answer, NotFound):
        raise RedriveError(answer.reason, hint=answer.hint)
    record = archive.record(answer.last)
    if as_json:
        content = {**document_of(answer), "record": _in_json(record)}
        click.echo(orjson.dumps(content, option=orjson.OPT_INDENT_2))
        return
    story(answer)
    lines = console()
    lines.print()
    if isinstance(record, Lost):
        lines.print(Text(f"body: {record.reason}", style="yellow"))
        return
    for line in _lines(record, form, whole=whole):
        lines.print(Text(printable(line)), soft_wrap=True)


def _lines(record: StoredRecord, form: str, *, whole: bool) -> Iterator[str]:
    place = f"{record.lane.topic}:{record.lane.partition}:{record.offset}"
    yield f"record {place}"
    for name, value in record.headers:
        if not name.startswith(PREFIX):
            yield f"  {name}: {_inline(value)}"
    profile = decode_dead_letter(record.value, record.headers)
    if profile.header is not None:
        told = (f"{name} {value}" for name, value in profile.header.fields().items() if value)
        yield f"dead-letter header ({profile.scheme}): {', '.join(told)}"
    body, _ = remove_header(profile, record.value, record.headers)
    if form == "none":
        return
    if not body:
        yield "no body" if body is None else "empty body"
        return
    cut = body if whole else body[:_SHOWN]
    yield f"body, {len(body)} bytes:"
    yield from (f"  {line}" for line in _body(body, cut, form))
    if len(cut) < len(body):
        yield f"  ... {len(body) - len(cut)} more bytes; --all shows them"


def _body(body: bytes, cut: bytes, form: str) -> Iterator[str]:
    document = _document(body) if form in {"auto", "json"} and len(cut) == len(body) else None
    if document is not None:
        yield from document.split("\n")
    elif form == "hex" or (form == "auto" and not _is_text(cut)):
        yield from _hexadecimal(cut)
    else:
        yield from cut.decode("utf-8", "replace").splitlines()


def _document(body: bytes) -> str | None:
    """The body as indented JSON; None if it is none."""
    try:
        found = json.loads(body)
    except ValueError:
        return None
    if not isinstance(found, dict | list):
        return None
    return json.dumps(found, indent=2, ensure_ascii=False)


def _is_text(data: bytes) -> bool:
    # A character of several bytes may be cut at the end.
    text = data.decode("utf-8", "replace").rstrip("\ufffd")
    return "\ufffd" not in text and all(it.isprintable() or it in "\t\r\n" for it in text)


def _hexadecimal(data: bytes) -> Iterator[str]:
    for start in range(0, len(data), _LINE):
        part = data[start : start + _LINE]
        text = "".join(chr(it) if 0x20 <= it < 0x7F else "." for it in part)  # noqa: PLR2004 - ASCII
        yield f"{start:08x}  {part.hex(' '):<{3 * _LINE}} {text}"


def _inline(value: bytes | None) -> str:
    if value is None:
        return "(null)"
    return value.decode() if _is_text(value) else f"0x{value.hex()}"


def _in_json(record: StoredRecord | Lost) -> dict[str, Any]:
    if isinstance(record, Lost):
        return {"lost": record.reason}
    profile = decode_dead_letter(record.value, record.headers)
    body, _ = remove_header(profile, record.value, record.headers)
    return {
        "topic": record.lane.topic,
        "partition": record.lane.partition,
        "offset": record.offset,
        "headers": [
            {"name": name, "value": None if value is None else _inline(value)}
            for name, value in record.headers
        ],
        "dead_letter": None if profile.header is None else profile.header.fields(),
        "body_hex": None if body is None else body.hex(),
        "body": body.decode() if body is not None and _is_text(body) else None,
    }

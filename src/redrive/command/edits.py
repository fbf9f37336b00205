"""Options that change messages before a replay, and the editor."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
import orjson

from redrive.command.options import FILE, parsed, repeated_option
from redrive.engine.edits import (
    MAX_EDIT_BYTES,
    NO_EDIT,
    Content,
    DropHeader,
    Edit,
    Operation,
    PatchValue,
    ReplaceContent,
    SetHeader,
    checked_name,
    digest,
)
from redrive.errors import EnvironmentFault, UsageError
from redrive.messages.json_patch import JsonPatch, read_json, write_json
from redrive.operations.replay.plan import header_text, value_text

_HEAD: Final = """\
# {message} as the replay puts it. Lines up to the empty one that begin with # are ignored.
# A line for each header, NAME: VALUE; 0x and hexadecimal digits stand for bytes.
# After the first empty line comes the value.
"""
_HEX: Final = "0x"
_SHOWN: Final = 80
"""Characters of a line that an error quotes."""


def read_edit(set_headers: Iterable[str], dropped: Iterable[str], patch: JsonPatch | None) -> Edit:
    """The edit of headers to set (``NAME=VALUE``) or drop, and a patch; raises ``UsageError``."""
    operations: list[Operation] = [
        DropHeader(_header_name("--drop-header", name)) for name in dict.fromkeys(dropped)
    ]
    for text in set_headers:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set-header {text} has no value", hint="write NAME=VALUE")
        if any(
            name == operation.name
            for operation in operations
            if isinstance(operation, SetHeader | DropHeader)
        ):
            raise UsageError(f"the header {name} is set or dropped twice", hint="name it once")
        operations.append(SetHeader(_header_name("--set-header", name), os.fsencode(value)))
    if patch is not None:
        operations.append(PatchValue(patch))
    return _within_limit(Edit(tuple(operations)))


def _edit_of(set_headers: Sequence[str], dropped: Sequence[str], patch: Path | None) -> Edit:
    try:
        data = None if patch is None else patch.read_bytes()
    except OSError as error:
        raise UsageError(f"{patch} cannot be read: {error.strerror}", hint="name a file") from error
    read = None if data is None else patch_of(data, str(patch), "the file")
    return read_edit(set_headers, dropped, read)


edit_options = parsed(
    "edit",
    _edit_of,
    repeated_option(
        "--set-header",
        "set_headers",
        metavar="NAME=VALUE",
        help_text="Set a header before the put.",
    ),
    repeated_option(
        "--drop-header", "dropped", metavar="NAME", help_text="Remove a header before the put."
    ),
    click.option(
        "--json-patch",
        "patch",
        type=FILE,
        help="Change the JSON value before the put, by a JSON Patch (RFC 6902).",
    ),
)
"""The options of a change of messages: an ``Edit``."""


def _header_name(option: str, name: str) -> str:
    try:
        return checked_name(name)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", hint="name a header of the message") from None


def patch_of(data: bytes, name: str, what: str) -> JsonPatch:
    """A JSON Patch; ``UsageError`` names its source, and calls it ``what``: ``the file``."""
    try:
        return JsonPatch.of(read_json(data))
    except ValueError as error:
        problem = str(error).replace("the value", what, 1)
        raise UsageError(
            f"{name}: {problem}",
            hint='such as [{"op": "replace", "path": "/currency", "value": "EUR"}]',
        ) from None


def _within_limit(edit: Edit) -> Edit:
    try:
        size = len(orjson.dumps(edit.document()))
    except TypeError:
        raise UsageError(
            "the patch has a number beyond 64 bits", hint="put it in quotes, or use --edit"
        ) from None
    if size > MAX_EDIT_BYTES:
        raise UsageError(
            f"the edit has {size:,} bytes; {MAX_EDIT_BYTES:,} are the most",
            hint="change large values by --json-patch, or replay to a queue and correct them there",
        )
    return edit


@contextmanager
def edited_file(message: str) -> Iterator[Path]:
    """A private file for an editor: deleted afterwards, but kept if the edit failed."""
    folder = Path(tempfile.mkdtemp(prefix="redrive-edit-"))
    path = folder / f"{message.replace(':', '-').replace('/', '-')}.txt"
    try:
        yield path
    except BaseException:
        if path.exists():
            click.echo(f"the edited message is kept in {path}", err=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def edit_with(path: Path, message: str, content: Content) -> Edit:
    """Open a message in the user's editor; without a change the edit is empty.

    Raises:
        UsageError: The message is not text, or the edited file cannot be read.
        EnvironmentFault: There is no editor, or it failed.
    """
    text = written_form(message, content)
    path.touch(mode=0o600)
    path.write_bytes(text.encode())
    try:
        click.edit(filename=str(path))
    except click.ClickException as error:
        raise EnvironmentFault(
            f"the editor failed: {error.message}", hint="set VISUAL or EDITOR to another"
        ) from error
    return replacement(path.read_bytes(), content)


def replacement(data: bytes, content: Content) -> Edit:
    """The edit that a changed ``written_form`` describes; errors as for ``read_form``."""
    edited = read_form(data, content)
    if edited == content:
        return NO_EDIT
    return _within_limit(Edit((ReplaceContent(digest(content), edited),)))


def written_form(message: str, content: Content) -> str:
    """A message as text to edit; raises ``UsageError`` if it does not fit into lines."""
    body = value_text(content.value)
    if body is None:
        raise UsageError(
            f"the value of {message} is binary: {len(content.value or b'')} bytes",
            hint="--set-header and --drop-header change its headers; `redrive show --body hex`"
            " shows the value",
        )
    lines = []
    for name, raw in content.headers:
        if not name or name.startswith("#") or ":" in name or name != " ".join(name.split()):
            raise UsageError(
                f"the header {name!r} of {message} can't be edited as a line",
                hint="use --set-header and --drop-header",
            )
        lines.append(f"{name}: {header_text(raw)}\n")
    return f"{_HEAD.format(message=message)}{''.join(lines)}\n{body}\n"


def read_form(data: bytes, content: Content) -> Content:
    """The content of an edited text; raises ``UsageError``."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise UsageError("the edited file is not UTF-8", hint="save it as UTF-8") from None
    known: defaultdict[str, list[tuple[str, bytes | None]]] = defaultdict(list)
    for name, raw in content.headers:
        known[f"{name}: {header_text(raw)}"].append((name, raw))
    headers = []
    rest, number, ending = text, 0, "\n"
    while ending:
        line, ending, rest = rest.partition("\n")
        number, line = number + 1, line.removesuffix("\r")
        if not line.strip():
            break
        if not line.startswith("#"):
            headers.append(known[line].pop(0) if known[line] else _header(number, line))
    return Content(_value(rest, content.value), headers)


def _header(number: int, line: str) -> tuple[str, bytes]:
    name, colon, value = (part.strip() for part in line.partition(":"))
    problem = "" if colon else f"{line[:_SHOWN]!r} has no colon"
    data = value.encode()
    try:
        if value.startswith(_HEX):
            data = bytes.fromhex(value.removeprefix(_HEX))
        checked_name(name)
    except ValueError as error:
        problem = problem or str(error)
    if problem:
        raise UsageError(
            f"line {number} is not a header: {problem}",
            hint="write NAME: VALUE, and an empty line before the value",
        )
    return name, data


def _value(body: str, before: bytes | None) -> bytes | None:
    shown = value_text(before) or ""
    text = body.removesuffix("\n")
    if text == shown:
        return before
    data = text.encode()
    if not _is_json(before):
        return data
    try:
        document = read_json(data)
        return data if shown.encode() == before else write_json(document)
    except ValueError as error:
        raise UsageError(
            f"the value was JSON: {error}", hint="`python -m json.tool` shows where it is not valid"
        ) from None


def _is_json(value: bytes | None) -> bool:
    try:
        return isinstance(read_json(value), dict | list)
    except ValueError:
        return False

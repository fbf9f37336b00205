"""``redrive fmt``: writes rules tables in their canonical form."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from redrive.command.options import STANDARD_INPUT, lenient_option, read_file
from redrive.printable import printable
from redrive.rules import decode_source, parse
from redrive.rules.source import encoding_of


@click.command()
@click.argument("tables", nargs=-1, required=True, metavar="TABLE...")
@click.option(
    "--check", "only_check", is_flag=True, help="Change nothing; list the files that would change."
)
@lenient_option
@click.pass_context
def fmt(context: click.Context, tables: Sequence[str], *, only_check: bool, lenient: bool) -> None:
    """Write rules tables in their canonical form; comments are kept.

    \b
    redrive fmt orders.rul
    redrive fmt --check *.rul
    redrive fmt - < orders.rul

    One rule in each entry, keywords in a fixed order, names for numbers, no defaults, lines of at
    most 72 characters. The meaning and the hash stay the same. TABLE may be - for standard input,
    which is written to standard output. A table with errors is left as it is.

    Exit codes: 0 done, 1 errors in a table or, with --check, something to format, 2 usage.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    changed = False
    for name in tables:
        data = read_file(name)
        text = decode_source(data)
        shown = "<stdin>" if name == STANDARD_INPUT else name
        table = parse(text, name=shown, strict=not lenient).required()
        formatted = table.formatted(text)
        if "\r\n" in text:
            formatted = formatted.replace("\n", "\r\n")
        # The code page of the file; UTF-16 becomes UTF-8.
        is_latin = encoding_of(data) == "iso-8859-1"
        encoded = formatted.encode("iso-8859-1" if is_latin else "utf-8")
        differs = encoded != data
        changed |= differs
        if name == STANDARD_INPUT and not only_check:
            click.echo(encoded, nl=False)
        elif differs:
            click.echo(f"{printable(shown)}: {'not formatted' if only_check else 'formatted'}")
            if not only_check:
                _replace(Path(name), encoded)
    context.exit(1 if only_check and changed else 0)


def _replace(path: Path, data: bytes) -> None:
    """Write a file as a whole or not at all, with the permissions that it has."""
    target = path.resolve()
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
        file.write(data)
    os.chmod(file.name, target.stat().st_mode)  # noqa: PTH101 - a name, not a path
    Path(file.name).replace(target)

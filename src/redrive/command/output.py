"""The output of commands: JSON, tables, notes and progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

import click
import orjson
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from redrive.printable import printable

_WIDTH: Final = 10_000
"""Columns of the output without a terminal: a row is one line."""
_LINE_END: Final = "\N{SYMBOL FOR LINE FEED}"
_FOLDED: Final = 10
"""Minimum columns of a long value, however narrow the terminal is."""

_LONGEST: Final = 80
"""Characters of a value that a table shows without ``--wide``."""
WIDE: Final = "redrive.wide"
"""Key of the click context for whether to show values in full."""
_LINE_EVERY: Final = 10.0
"""Seconds between two lines of progress without a terminal."""

ShowProgress: TypeAlias = Callable[[int, int], None]
"""Called with the number that is done and the total."""


def print_json(content: object, *, indent: bool = True) -> None:
    """Print a value as JSON, indented or on one line."""
    option = orjson.OPT_INDENT_2 if indent else None
    click.echo(orjson.dumps(content, option=option))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines without control characters of a terminal."""
    for line in lines:
        click.echo(printable(line))


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on standard error."""
    for note in notes:
        click.echo(f"{click.style('note:', fg='yellow')} {printable(note)}", err=True)


def ask(question: str, *, yes: bool, default: bool = False) -> None:
    """Ask for confirmation; without a yes the command ends. ``default`` is what Enter means."""
    if yes:
        return
    try:
        answer = click.confirm(question, default=default, err=True)
    except click.Abort:
        if not sys.stdin.isatty():
            click.echo("\nnobody can answer here: give --yes to go on without a question", err=True)
        raise
    if not answer:
        raise click.Abort


@contextmanager
def progress_bar(label: str) -> Iterator[ShowProgress]:
    """A progress bar on standard error; without a terminal a line every ten seconds."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(label)
        return
    from rich import progress  # noqa: PLC0415 - slow to import, and few commands show it

    columns = (
        progress.TextColumn("{task.description}"), progress.BarColumn(),
        progress.MofNCompleteColumn(), progress.TimeElapsedColumn(), progress.TimeRemainingColumn(),
    )  # fmt: skip
    with progress.Progress(*columns, console=console) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(label: str) -> ShowProgress:
    last = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > _LINE_EVERY:
            last = time.monotonic()
            click.echo(f"{label}: {done} of {total}", err=True)

    return show


def console() -> Console:
    """The console for tables, of any width when it is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)


def table(
    rows: Sequence[Mapping[str, object]],
    *,
    right: Collection[str] = (),
    folded: Collection[str] = (),
    whole: Collection[str] = (),
) -> Table:
    """A table with a line under its header on a terminal, plain columns otherwise.

    A long value is cut in the middle if the command has ``table_options`` and got no ``--wide``.

    Args:
        rows: Cells by column; all rows have the columns of the first. Text is not markup, and one
            line; numbers are aligned right; None is blank.
        right: Further columns that are aligned to the right.
        folded: Columns that take several lines when the terminal is narrow.
        whole: Columns that are never cut: ids to copy.
    """
    grid = Table(
        box=box.SIMPLE_HEAD if sys.stdout.isatty() else None, pad_edge=False, collapse_padding=True
    )
    context = click.get_current_context(silent=True)
    is_whole = context is None or context.meta.get(WIDE, True)
    by_column = []
    for name in rows[0] if rows else ():
        texts = [_one_line(row[name]) for row in rows]
        if not is_whole and name not in whole:
            texts = [_cut(text) for text in texts]
        is_right = name in right or any(isinstance(row[name], int) for row in rows)
        is_folded = name in folded
        grid.add_column(
            name,
            justify="right" if is_right else "left",
            no_wrap=not is_folded,
            overflow="fold",
            min_width=None if is_folded else max(len(name), *(text.cell_len for text in texts)),
        )
        by_column.append([_Folded(text.plain, text.style) if is_folded else text for text in texts])
    for cells in zip(*by_column, strict=True):
        grid.add_row(*cells)
    return grid


class _Folded(Text):
    """Text that may be broken within words."""

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widest = super().__rich_measure__(console, options).maximum
        return Measurement(min(widest, _FOLDED), widest)


def _one_line(cell: object) -> Text:
    if isinstance(cell, Text):
        return cell
    return Text("" if cell is None else printable(str(cell)).replace("\n", _LINE_END))


def _cut(text: Text) -> Text:
    if len(text) <= _LONGEST:
        return text
    half = _LONGEST // 2
    return Text(f"{text.plain[:half]}…{text.plain[-half:]}", text.style)


def print_table(rows: Sequence[Mapping[str, object]], **columns: Collection[str]) -> None:
    """Print a table; arguments as for ``table``."""
    print_uncut(table(rows, **columns))


def print_uncut(*parts: RenderableType) -> None:
    """Print tables and lines; a narrow terminal breaks lines, nothing is cut."""
    lines = console()
    room = lines.options.update(max_width=_WIDTH)
    needed = max(lines.measure(part, options=room).minimum for part in parts)
    if needed > lines.width:
        lines = Console(width=needed, highlight=False)
    for part in parts:
        lines.print(part)

"""The output of commands: JSON, tables, notes and progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import click
import orjson
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from redrive.printable import printable

__all__ = [
    "ShowProgress", "console", "counted", "print_json", "print_lines", "print_notes", "print_uncut",
    "progress_bar", "table",
]  # fmt: skip

_WIDTH: Final = 10_000
"""Columns of the output without a terminal: a row is one line for the program that reads it."""
_LINE_END: Final = "\N{SYMBOL FOR LINE FEED}"
_FOLDED: Final = 10
"""Minimum columns of a long value, however narrow the terminal is."""

_LINE_EVERY: Final = 10.0
"""Seconds between two lines of progress without a terminal."""

ShowProgress: TypeAlias = Callable[[int, int], None]
"""Takes the number that is done and the total."""


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


def counted(count: int, noun: str) -> str:
    """A number with its noun: ``1 rule``, ``2 rules``."""
    return f"{count} {noun}{'s' * (count != 1)}"


@contextmanager
def progress_bar(label: str) -> Iterator[ShowProgress]:
    """A progress bar on standard error; without a terminal a line every ten seconds."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(label)
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


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


def table(*columns: str, right: tuple[str, ...] = (), folded: tuple[str, ...] = ()) -> Table:
    """A table with a rule under its head on a terminal, plain columns otherwise.

    Args:
        columns: Their names.
        right: Columns that are aligned to the right, numbers.
        folded: Columns that take several lines when the terminal is narrow.
    """
    is_terminal = sys.stdout.isatty()
    made = _Table(
        box=box.SIMPLE_HEAD if is_terminal else None, pad_edge=False, collapse_padding=True
    )
    for name in columns:
        made.add_column(
            name,
            justify="right" if name in right else "left",
            no_wrap=name not in folded,
            overflow="fold",
            min_width=None if name in folded else len(name),
        )
    return made


class _Table(Table):
    """A table whose columns are not cut unless they are folded."""

    def add_row(self, *cells: RenderableType | None, **style: Any) -> None:  # noqa: ANN401 - rich's
        """See ``Table.add_row``; a text is no markup, and one line."""
        shown = [_one_line(cell) for cell in cells]
        for number, (column, cell) in enumerate(zip(self.columns, shown, strict=False)):
            if column.no_wrap:
                column.min_width = max(column.min_width or 0, cell.cell_len)
            else:
                shown[number] = _Folded(cell.plain, cell.style)
        super().add_row(*shown, **style)


class _Folded(Text):
    """A text that may be broken within words where there is little room."""

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widest = super().__rich_measure__(console, options).maximum
        return Measurement(min(widest, _FOLDED), widest)


def _one_line(cell: RenderableType | None) -> Text:
    if isinstance(cell, Text):
        return cell
    return Text(str(cell or "").replace("\n", _LINE_END))


def print_uncut(*parts: RenderableType) -> None:
    """Print tables and lines; a narrow terminal breaks lines, nothing is cut."""
    lines = console()
    room = lines.options.update(max_width=_WIDTH)
    needed = max(lines.measure(part, options=room).minimum for part in parts)
    if needed > lines.width:
        lines = Console(width=needed, highlight=False)
    for part in parts:
        lines.print(part)

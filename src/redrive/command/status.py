"""``redrive status``: what waits, what became of the rest, and how fast."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import click
import orjson
from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from redrive.command.options import instance_options, instance_settings
from redrive.engine.outcome import Result
from redrive.errors import UsageError
from redrive.operations.durations import clock, duration
from redrive.operations.next_look import NextLook, next_looks
from redrive.operations.retention import Waiting, expiring_of
from redrive.operations.supervision import (
    Activity,
    SupervisionState,
    problem_of,
    supervision_file,
)
from redrive.operations.supervision import read as read_supervision
from redrive.outcomes.ledger import Batch
from redrive.outcomes.status import (
    Count,
    HandlerStatus,
    Precision,
    PutsStatus,
    Status,
    status_of,
)
from redrive.printable import printable
from redrive.settings import Settings, read_settings

__all__ = ["status"]

_REFRESH: Final = 2.0
"""Seconds between two looks with ``--watch``."""
_WIDTH: Final = 10_000
"""Columns of the output when it goes to no terminal: whatever reads it finds one line for a row."""
_LINE_END: Final = "\N{SYMBOL FOR LINE FEED}"
_FOLDED: Final = 10
"""Columns that a long value has at least, however narrow the terminal is."""
_HOW_TO_RELEASE: Final = (
    "redrive browse QM --remaining shows them; redrive channel start or redrive queue release tries"
    " them again\n"
)
_SIGNS: Final = {
    Precision.EXACT: "",
    Precision.AT_MOST: "≤ ",
    Precision.LAST_KNOWN: "~ ",
    Precision.UNKNOWN: "",
}


@click.command()
@click.option(
    "--config",
    "-c",
    type=click.Path(path_type=Path, dir_okay=False),
    default="redrive.toml",
    show_default=True,
    help="The job's settings.",
)
@instance_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--watch", is_flag=True, help="Show it again every two seconds until interrupted.")
@click.option("--check", is_flag=True, help="Say by the exit code whether all is well.")
@click.pass_context
def status(
    context: click.Context,
    /,
    config: Path,
    instance: str | None,
    directory: str | None,
    *,
    as_json: bool,
    watch: bool,
    check: bool,
) -> None:
    """Show what waits on every dead-letter queue, and what became of the rest.

    \b
    redrive status -c redrive.toml
    redrive status --watch
    redrive status --check

    waiting: not read yet. parked: waits for its next attempt. remaining: no rule can place it.
    Of puts it shows what could be put nowhere, by the queue on which it waits.
    Without a broker it shows what the ledger knows, and says so.

    Exit codes: 0 shown, 1 error, 2 usage. With --check, which belongs on the machine on which the
    job runs: 0 all is well, 1 the job is stalled or dead, or the broker is away.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    if check and watch:
        raise UsageError("--check looks once", hint="leave out --watch")
    settings = read_settings(config, options=instance_settings(instance, directory))
    if watch:
        _watch(settings, as_json=as_json)
        return
    view = _View.of(settings)
    if as_json:
        click.echo(orjson.dumps(view.as_json(), option=orjson.OPT_INDENT_2))
    else:
        print_uncut(view.shown())
    context.exit(1 if check and view.problem else 0)


def console() -> Console:
    """Where tables are printed: as wide as they need to be when nobody looks at them."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)


def table(*columns: str, right: tuple[str, ...] = (), folded: tuple[str, ...] = ()) -> Table:
    """A table with a rule under its head on a terminal, plain columns otherwise.

    Args:
        columns: Their names.
        right: Those whose values stand to the right, numbers.
        folded: Those that take several lines when the terminal is narrow.
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
    """A table that knows how wide it is at least: what is not folded is not cut."""

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
    """Prints tables and lines. Where a terminal is too narrow it breaks lines; nothing is cut.

    Args:
        parts: Tables as ``table`` makes them, and anything else.
    """
    lines = console()
    room = lines.options.update(max_width=_WIDTH)
    needed = max(lines.measure(part, options=room).minimum for part in parts)
    if needed > lines.width:
        lines = Console(width=needed, highlight=False)
    for part in parts:
        lines.print(part)


def _watch(settings: Settings, *, as_json: bool) -> None:
    try:
        if as_json:
            while True:
                click.echo(orjson.dumps(_View.of(settings).as_json()))
                time.sleep(_REFRESH)
        with Live(console=console(), auto_refresh=False) as live:
            while True:
                live.update(_View.of(settings).shown(), refresh=True)
                time.sleep(_REFRESH)
    except KeyboardInterrupt:
        return


@dataclass(frozen=True, slots=True)
class _View:
    """Where a job stands, and what it says about itself."""

    now: Status
    supervision: SupervisionState | None
    next_looks: Mapping[str, NextLook]
    """When handlers look again at what remains."""
    expiring: Sequence[Waiting]
    """Topics that delete messages before they are handled."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        job = settings.job
        now, said = status_of(job), read_supervision(supervision_file(job))
        remains = now.instances is not None and any(it.remaining.number for it in now.handlers)
        looks = next_looks(job) if remains else {}
        expiring = () if now.instances is None else expiring_of(job, now.time.timestamp())
        return cls(now, None if said is None else said.masked(settings.mask), looks, expiring)

    @property
    def problem(self) -> str:
        """What is wrong with the job as a whole; empty if all is well."""
        return problem_of(self.supervision, self.now.instances, self.now.time.timestamp())

    @property
    def description(self) -> str:
        """What the job says about itself, unless it just runs."""
        state = self.supervision
        if state is None or (state.state is Activity.RUNNING and not self.problem):
            return ""
        return state.describe(self.now.time.timestamp())

    def shown(self) -> RenderableType:
        now = self.now
        parts: list[RenderableType] = [Text(_title(now, self.supervision), style="bold")]
        if self.description:
            parts.append(
                Text(
                    printable(f"{self.description}\n"),
                    style="bold red" if self.problem else "yellow",
                )
            )
        if now.handlers or now.puts is None:
            parts.append(_queues(now))
            parts += [Text(line) for line in self._looks()]
        moment = now.time.timestamp()
        parts += [
            Text(printable(f"{one.sentence(moment)}\n"), style="bold red") for one in self.expiring
        ]
        if now.puts is not None and now.puts.retried:
            parts.append(_waiting("is tried again by a receiver, waits on", now.puts.retried))
        if now.puts is not None and now.puts.undelivered:
            parts.append(_waiting("could be put nowhere, waits on", now.puts.undelivered))
            parts.append(_HOW_TO_RELEASE)
        if now.outcomes:
            parts += [_results(now), _batches(now.batches)]
        elif now.outcomes is not None:
            parts.append("No outcomes yet. `redrive run` handles what waits.")
        ledger = "" if self.supervision is None else self.supervision.ledger
        notes = [*now.notes, *_missing(now), *filter(None, [ledger])]
        return Group(*parts, *(Text(printable(f"note: {note}"), style="yellow") for note in notes))

    def _looks(self) -> Iterator[str]:
        """When what remains is looked at again, where something does."""
        for handler in self.now.handlers:
            look = self.next_looks.get(handler.identity.name)
            if look is not None and handler.remaining.number:
                yield f"what remains of {handler.identity.name} is looked at again {look}"

    def as_json(self) -> dict[str, Any]:
        state = self.supervision
        supervision = None if state is None else asdict(state)
        return {
            **_as_json(self.now),
            "next_looks": self.next_looks,
            "expiring": [_expiring_as_json(one) for one in self.expiring],
            "problem": self.problem,
            "supervision": supervision,
        }


def _title(now: Status, supervision: SupervisionState | None) -> str:
    match now.instances:
        case None:
            running = "not known whether it runs"
        case ():
            running = "not running"
        case instances:
            running = f"running: {', '.join(instances)}"
    # What the job says of itself is as old as its last word; all else was asked for now.
    age = now.time.timestamp() - supervision.time if supervision is not None else None
    word = "" if age is None else f", its last word {duration(age)} ago"
    return f"{now.application}  ({running}{word})  {clock(now.time)} UTC\n"


def _queues(now: Status) -> Table:
    numbers = ("waiting", "parked", "next due", "remaining", "invalid", "oldest")
    shown = table("handler", "queue", *numbers, right=numbers, folded=("queue",))
    for handler in now.handlers:
        identity = handler.identity
        oldest = handler.oldest
        shown.add_row(
            identity.name,
            f"{identity.queue}@{identity.queue_manager}".removesuffix("@"),
            _known(handler.depth),
            _number(handler.parked),
            _due(handler, now),
            _number(handler.remaining),
            _known(handler.invalid),
            "" if oldest is None else duration((now.time - oldest).total_seconds()),
        )
    return shown


def _waiting(title: str, numbers: Mapping[str, int]) -> Table:
    shown = table(title, "messages", right=("messages",))
    for place, number in numbers.items():
        shown.add_row(place, str(number))
    return shown


def _number(count: Count) -> str:
    return f"{_SIGNS[count.precision]}{_known(count.number)}"


def _known(number: int | None) -> str:
    return "?" if number is None else str(number)


def _due(handler: HandlerStatus, now: Status) -> str:
    if handler.next_due is None:
        return ""
    seconds = (handler.next_due - now.time).total_seconds()
    return f"in {duration(seconds)}" if seconds > 0 else "now"


def _results(now: Status) -> Table:
    numbers = ("last minute", "last hour", "in all")
    shown = table("handler", "result", *numbers, right=numbers)
    deciders: list[tuple[str, HandlerStatus | PutsStatus]] = [
        (one.identity.name, one) for one in now.handlers
    ]
    if now.puts is not None:
        deciders.append(("puts", now.puts))
    for name, one in deciders:
        for result in Result:
            if total := one.totals.get(result, 0):
                minute, hour = one.last_minute.get(result, 0), one.last_hour.get(result, 0)
                shown.add_row(name, result.value, str(minute), str(hour), str(total))
    return shown


def _batches(batches: tuple[Batch, ...]) -> Table:
    shown = table(
        "last batches (UTC)", "messages", "results", right=("messages",), folded=("results",)
    )
    for batch in batches:
        results = ", ".join(f"{number} {result}" for result, number in batch.results.items())
        shown.add_row(clock(batch.time), str(sum(batch.results.values())), results)
    return shown


def _missing(now: Status) -> Iterator[str]:
    for handler in now.handlers:
        if handler.topic_exists is False:
            yield f"the dead-letter topic {handler.identity.topic} does not exist yet"


def _expiring_as_json(one: Waiting) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "at_most": one.expiring,
        "first": None if one.first is None else datetime.fromtimestamp(one.first, UTC),
        "retention": one.retention,
    }


def _as_json(now: Status) -> dict[str, Any]:
    return {
        "application": now.application,
        "time": now.time,
        "instances": now.instances,
        "handlers": [_handler_as_json(handler) for handler in now.handlers],
        "puts": None if now.puts is None else _puts_as_json(now.puts),
        "batches": [batch._asdict() for batch in now.batches],
        "outcomes": now.outcomes,
        "unprojected": now.unprojected,
        "notes": [*now.notes, *_missing(now)],
    }


def _puts_as_json(puts: PutsStatus) -> dict[str, Any]:
    return {
        "undelivered": puts.undelivered,
        "retried": puts.retried,
        "results": _results_as_json(puts),
    }


def _results_as_json(one: HandlerStatus | PutsStatus) -> dict[str, Any]:
    return {"last_minute": one.last_minute, "last_hour": one.last_hour, "in_all": one.totals}


def _handler_as_json(handler: HandlerStatus) -> dict[str, Any]:
    identity = handler.identity
    return {
        "handler": identity.name,
        "queue_manager": identity.queue_manager,
        "queue": identity.queue,
        "topic": identity.topic,
        "topic_exists": handler.topic_exists,
        "waiting": handler.depth,
        "parked": handler.parked._asdict(),
        "next_due": handler.next_due,
        "remaining": handler.remaining._asdict(),
        "invalid": handler.invalid,
        "oldest": handler.oldest,
        "results": _results_as_json(handler),
    }

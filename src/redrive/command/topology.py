"""``redrive topology``: what a topology consists of, as tables and as a picture."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from redrive.command.options import topology_option
from redrive.command.topology_apply import apply
from redrive.errors import UsageError
from redrive.operations.definitions import read_definitions
from redrive.topology.network_picture import DEFAULT_QUEUES, picture_of_network
from redrive.topology.overview import Overview, QueueManagerOverview, overview_of
from redrive.topology.picture import svg

__all__ = ["topology"]

_MOST_MANAGERS: Final = 50
"""Queue managers up to which each one is listed; of more, numbers are told."""
_MOST_QUEUES: Final = 500
"""Queues up to which each one is listed."""


@click.group()
def topology() -> None:
    """Show and draw queue managers, and create the topics that they need.

    \b
    redrive topology show --topology definitions
    redrive topology draw --topology QM1.mqsc --topology QM2.mqsc --output network.svg
    """  # noqa: D301 - \b keeps click from wrapping the examples


topology.add_command(apply)

_queue_managers = click.option(
    "--queue-manager",
    "queue_managers",
    multiple=True,
    metavar="NAME",
    help="Only this one; * and ? stand for any characters. May be given several times.",
)


@topology.command()
@topology_option
@_queue_managers
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
def show(files: Sequence[str], queue_managers: Sequence[str], *, as_json: bool) -> None:
    """Show queue managers, queues, channels and clusters.

    \b
    redrive topology show --topology QM1.mqsc --topology network.yaml
    redrive topology show --topology definitions --queue-manager 'SHOP*'

    Of a large topology it tells numbers; --queue-manager shows a part of it.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    overview = _overview(files, queue_managers)
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(overview), indent=2))
    else:
        click.echo("\n".join(_sections(overview)))


@topology.command()
@topology_option
@_queue_managers
@click.option(
    "--queues",
    type=click.IntRange(min=0),
    default=DEFAULT_QUEUES,
    show_default=True,
    metavar="N",
    help="Most queues in the box of one queue manager; the others are counted.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to write the picture. Default: standard output.",
)
def draw(
    files: Sequence[str], queue_managers: Sequence[str], *, queues: int, output: Path | None
) -> None:
    """Draw queue managers with their queues and channels as a picture (SVG).

    \b
    redrive topology draw --topology definitions --output network.svg
    """  # noqa: D301 - \b keeps click from wrapping the examples
    picture = svg(picture_of_network(_overview(files, queue_managers), queues=queues))
    if output is None:
        click.echo(picture, nl=False)
        return
    try:
        output.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{output} cannot be written: {error.strerror}", hint="name a file that can be"
        ) from error


def _overview(files: Sequence[str], queue_managers: Sequence[str]) -> Overview:
    whole = overview_of(read_definitions(files))
    part = whole.of(queue_managers)
    if not part.queue_managers:
        first = ", ".join(manager.name for manager in whole.queue_managers[:10])
        problem = f"the topology has no queue manager {' or '.join(queue_managers)}".rstrip()
        raise UsageError(problem, hint=f"it has {first or 'none at all'}")
    return part


# Tables


def _sections(overview: Overview) -> Iterator[str]:
    managers = overview.queue_managers
    queues = sum(len(manager.queues) for manager in managers)
    connections = sum(len(manager.connections) for manager in managers)
    counted = (_number(len(managers), "queue manager"), _number(queues, "queue"))
    yield f"{', '.join(counted)}, {connections} channels and connections"
    if len(managers) > _MOST_MANAGERS:
        yield from _table("in all", _numbers(managers))
    else:
        yield from _table("queue managers", _manager_rows(managers))
        if queues <= _MOST_QUEUES:
            yield from _table("queues", _queue_rows(managers))
            yield from _table("channels and connections", _connection_rows(managers))
    yield from _table("clusters", _cluster_rows(overview))
    if len(managers) > _MOST_MANAGERS or queues > _MOST_QUEUES:
        yield "\n--queue-manager NAME shows a part of it, --json everything."


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _table(title: str, rows: Iterator[Sequence[str]]) -> Iterator[str]:
    """A title and columns; nothing if there is no row below their names."""
    lines = list(rows)
    if len(lines) == 1:
        return
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    yield f"\n{title}"
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()


def _manager_rows(managers: Sequence[QueueManagerOverview]) -> Iterator[Sequence[str]]:
    yield ("NAME", "KIND", "DEAD-LETTER QUEUE", "DEFAULT TRANSMISSION QUEUE", "CLUSTERS", "QUEUES")
    for one in managers:
        yield (
            one.name,
            one.kind,
            one.dead_letter_queue,
            one.default_transmission_queue,
            ", ".join(one.clusters),
            ", ".join(f"{number} {kind}" for kind, number in one.queues_by_kind.items()),
        )


def _numbers(managers: Sequence[QueueManagerOverview]) -> Iterator[Sequence[str]]:
    yield ("KIND", "NUMBER")
    yield from _counted(f"queue managers, {manager.kind}" for manager in managers)
    yield from _counted(queue.kind for manager in managers for queue in manager.queues)
    yield from _counted(one.kind for manager in managers for one in manager.connections)


def _counted(kinds: Iterator[str]) -> Iterator[Sequence[str]]:
    return ((kind, str(number)) for kind, number in Counter(kinds).items())


def _queue_rows(managers: Sequence[QueueManagerOverview]) -> Iterator[Sequence[str]]:
    yield ("QUEUE MANAGER", "NAME", "KIND", "LEADS TO", "MAX MESSAGES", "MAX BYTES", "PUT", "TOPIC")
    for manager in managers:
        for queue in manager.queues:
            yield (
                manager.name,
                queue.name,
                queue.kind,
                ", ".join(map(str, queue.targets)),
                _limit(queue.maximum_messages),
                _limit(queue.maximum_length),
                "" if queue.put_enabled else "disabled",
                ", ".join(queue.topics),
            )


def _limit(value: int | None) -> str:
    return "" if value is None else str(value)


def _connection_rows(managers: Sequence[QueueManagerOverview]) -> Iterator[Sequence[str]]:
    yield ("QUEUE MANAGER", "NAME", "KIND", "LEADS TO", "TRANSMISSION QUEUE", "ADDRESS", "CLUSTER")
    for manager in managers:
        for one in manager.connections:
            yield (
                manager.name,
                one.name,
                one.kind,
                one.queue_manager,
                one.transmission_queue,
                one.address,
                ", ".join(one.clusters),
            )


def _cluster_rows(overview: Overview) -> Iterator[Sequence[str]]:
    yield ("NAME", "QUEUE MANAGERS", "QUEUES")
    for cluster in overview.clusters:
        yield (cluster.name, _some(cluster.queue_managers), _some(cluster.queues))


def _some(names: Sequence[str], most: int = 10) -> str:
    more = [f"... and {len(names) - most} more"] if len(names) > most else []
    return ", ".join([*names[:most], *more])

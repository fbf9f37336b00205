"""``redrive topology``: what a topology consists of, as tables and as a graph."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from redrive.command.options import network_options, topology_option
from redrive.command.topology_apply import apply
from redrive.errors import EnvironmentFault, TransientFault, UsageError
from redrive.operations.definitions import read_definitions
from redrive.operations.depths import NO_DEPTH, Depth, depths_of
from redrive.operations.network import Network, read_network
from redrive.topology.dot import DEFAULT_QUEUES, dot
from redrive.topology.files import Topology
from redrive.topology.overview import Overview, QueueManagerOverview, overview_of

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
    redrive topology draw --topology QM1.mqsc --topology QM2.mqsc --output network.dot
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
@network_options
@_queue_managers
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON object.")
def show(
    config: Path | None,
    bootstrap_server: str,
    files: Sequence[str],
    queue_managers: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Show queue managers, queues, channels and clusters.

    \b
    redrive topology show --topology QM1.mqsc --topology network.yaml
    redrive topology show --topology definitions --queue-manager 'SHOP*'
    redrive topology show -c redrive.toml

    With a broker, that of the settings or --bootstrap-server, it counts the messages on each queue
    that its consumer group has not read yet; of a queue without a group, all that its topic keeps.
    What the receiving end of a channel tries to put again counts on the transmission queue.
    Of a large topology it tells numbers; --queue-manager shows a part of it.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    is_offline = bool(files) and not bootstrap_server and config is None
    network = None if is_offline else read_network(config, bootstrap_server, files)
    definitions = read_definitions(files) if network is None else network.topology
    overview = _overview(definitions, queue_managers)
    depths = None if network is None else _depths(network)
    if as_json:
        depth = {
            topic: {"messages": one.messages, "is_exact": one.is_exact}
            for topic, one in (depths or {}).items()
        }
        content = {**dataclasses.asdict(overview), "depths": depth}
        click.echo(json.dumps(content, indent=2))
    else:
        click.echo("\n".join(_sections(overview, depths)))


def _depths(network: Network) -> Mapping[str, Depth] | None:
    """What waits on each topic; None, with a note, if the broker does not say."""
    try:
        return depths_of(network)
    except (EnvironmentFault, TransientFault) as fault:
        click.echo(f"note: no messages are counted: {fault.message}", err=True)
        return None


@topology.command()
@topology_option
@_queue_managers
@click.option(
    "--queues",
    type=click.IntRange(min=0),
    default=DEFAULT_QUEUES,
    show_default=True,
    metavar="N",
    help="Most queues listed in one queue manager; the others are counted.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to write the graph. Default: standard output.",
)
def draw(
    files: Sequence[str], queue_managers: Sequence[str], *, queues: int, output: Path | None
) -> None:
    """Write queue managers with their queues and channels as a graph in DOT.

    \b
    redrive topology draw --topology definitions | dot -Tsvg > network.svg

    dot is a program of Graphviz (graphviz.org); many editors and web pages show DOT too.
    """  # noqa: D301 - \b keeps click from wrapping the examples
    overview = _overview(read_definitions(files), queue_managers)
    graph = dot(overview, queues=queues)
    if output is None:
        click.echo(graph, nl=False)
        return
    try:
        output.write_text(graph, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{output} cannot be written: {error.strerror}", hint="name a file that can be"
        ) from error


def _overview(definitions: Topology, queue_managers: Sequence[str]) -> Overview:
    whole = overview_of(definitions)
    part = whole.of(queue_managers)
    if not part.queue_managers:
        first = ", ".join(manager.name for manager in whole.queue_managers[:10])
        problem = f"the topology has no queue manager {' or '.join(queue_managers)}".rstrip()
        raise UsageError(problem, hint=f"it has {first or 'none at all'}")
    return part


# Tables


def _sections(overview: Overview, depths: Mapping[str, Depth] | None) -> Iterator[str]:
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
            yield from _table("queues", _queue_rows(managers, depths))
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


def _queue_rows(
    managers: Sequence[QueueManagerOverview], depths: Mapping[str, Depth] | None
) -> Iterator[Sequence[str]]:
    counted = () if depths is None else ("MESSAGES",)
    limits = ("MAX MESSAGES", "MAX BYTES")
    yield ("QUEUE MANAGER", "NAME", "KIND", "LEADS TO", *counted, *limits, "PUT", "TOPIC")
    for manager in managers:
        for queue in manager.queues:
            yield (
                manager.name,
                queue.name,
                queue.kind,
                ", ".join(map(str, queue.targets)),
                *(() if depths is None else (_depth(queue.topics, depths),)),
                _limit(queue.maximum_messages),
                _limit(queue.maximum_length),
                "" if queue.put_enabled else "disabled",
                ", ".join(queue.topics),
            )


def _depth(topics: Sequence[str], depths: Mapping[str, Depth]) -> str:
    """The messages on all topics of a queue; empty if none of them is there."""
    found = [depths[topic] for topic in topics if topic in depths]
    if not found:
        return ""
    return str(sum(found, NO_DEPTH))


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
